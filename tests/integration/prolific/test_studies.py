"""A study at Prolific: the token, the draft, places, waves and statuses, against a stand-in
that refuses and loses replies.
"""

import asyncio
from typing import Any

import httpx
import pytest

from frontend import submissions
from frontend.context import Context
from frontend.prolific.credentials import reference_of
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.statuses import PlatformStatus, Status
from frontend.submissions import Schedule, ask_once
from tests.bundles import bundle_of, members_of
from tests.living import client_on
from tests.people import PASSWORD, MakeAccount, make_send
from tests.prolific import (
    PAGE,
    SECRET,
    SPEC,
    TERMS,
    TOKEN,
    WORKSPACE,
    Send,
    StandIn,
    connected,
    experiment_id,
    finished,
    paid,
    published,
    sentence,
)
from tests.studies import OWNER, study


def _folder(settings: Settings) -> Any:
    from pathlib import Path

    return Path(settings.data) / "prolific"


async def test_a_token_is_tried_and_kept_where_only_the_server_reads_it(
    send: Send, prolific: StandIn, settings: Settings, context: Context
) -> None:
    refused = await send("PUT", "/api/account/prolific", json={"token": "x" * 30})
    assert refused.status_code == 502
    assert "does not know the token" in sentence(refused)
    assert (await send("PUT", "/api/account/prolific", json={"token": "two words and more"})).status_code == 400
    prolific.workspaces.append({"id": "other", "title": "Elsewhere"})
    several = await send("PUT", "/api/account/prolific", json={"token": TOKEN})
    assert (several.status_code, "Lab, Elsewhere" in sentence(several)) == (400, True)
    reply = await send("PUT", "/api/account/prolific", json={"token": f" {TOKEN}\n", "workspace": "Lab"})
    assert reply.json() == {
        "token": True,
        "from_environment": False,
        "workspace": "Lab",
        "webhooks": False,
        "events": {},
    }
    (owner,) = [each for each in await context.store.accounts.list() if each.name == OWNER[0]]
    (path,) = [*(await asyncio.to_thread(lambda: list(_folder(settings).iterdir())))]
    assert path.stem == reference_of(owner.id)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert TOKEN not in repr(await context.read_prolific(owner.id))
    assert TOKEN not in str((await send("GET", "/api/log")).json())
    assert TOKEN not in (await send("GET", "/console/account")).text
    removed = await send("DELETE", "/api/account/prolific")
    assert removed.json()["token"] is False
    assert not path.exists()


async def test_the_environment_gives_the_owner_a_token_and_nobody_else(
    settings: Settings, store: Store, prolific: StandIn, owner: tuple[str, str], fresh: MakeAccount
) -> None:
    await fresh("ben")
    own = settings.model_copy(update={"prolific_token": TOKEN})
    async with client_on(own, store) as client:
        for name, there in ((owner[0], True), ("ben", False)):
            reply = (await client.get("/api/account/prolific", auth=(name, PASSWORD))).raise_for_status().json()
            assert (reply["token"], reply["from_environment"]) == (there, there)
    assert TOKEN not in repr(own)


async def test_the_token_goes_with_the_account(
    client: httpx.AsyncClient, send: Send, fresh: MakeAccount, settings: Settings, prolific: StandIn
) -> None:
    account = await fresh("cleo")
    cleo = make_send(client, "cleo")
    (await cleo("PUT", "/api/account/prolific", json={"token": TOKEN})).raise_for_status()
    path = _folder(settings) / f"{reference_of(account.id)}.json"
    assert path.exists()
    (await send("DELETE", "/api/accounts/cleo")).raise_for_status()
    assert not path.exists()


async def test_the_draft_says_what_the_file_says(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    terms = f"{TERMS.replace('20', '30')}, screen_out_places: 5, signed_links: true"
    checks = "html: {max_queries: 1}\nchecks: {catch: 50%, on_failure: screen_out}"
    text = {
        "C0DE7": "C0DE7, screen_out_code: OUT77",
        "html: {max_queries: 1}": checks,
        "reward: 1.50": "reward: 1.50, screened_out: 0.20",
    }
    _, made = await published(client, context, send, "drafted", terms, **text)
    body = prolific.studies[made]
    assert body["external_study_url"].endswith(
        "/e/drafted/?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}"
    )
    completed, screened = body["completion_codes"]
    assert (completed["code"], completed["code_type"]) == ("C0DE7", "COMPLETED")
    assert screened["code"] == "OUT77"
    assert screened["actions"] == [{"action": "FIXED_SCREEN_OUT_PAYMENT", "fixed_screen_out_reward": 20, "slots": 5}]
    wanted = {"reward": 150, "total_available_places": 10, "estimated_completion_time": 9}
    assert {name: body[name] for name in wanted} == wanted
    assert body["is_external_study_url_secure"] is True
    assert body["status"] == "UNPUBLISHED"
    shown = (await send("GET", PAGE.format("drafted"))).json()
    assert (shown["study"]["places"], shown["committed"], shown["limit"]) == (10, 1600, 3000)
    again = await send("POST", f"{PAGE.format('drafted')}/study", json={"cost": 1600})
    assert (again.status_code, "already" in sentence(again)) == (409, True)
    changes = [
        each.what for each in await context.store.experiments.read_changes(await experiment_id(context, "drafted"))
    ]
    assert "Prolific: study connected" in changes


@pytest.mark.parametrize(
    ("terms", "cost", "word"),
    [
        (TERMS.replace("20", "14.99"), 1500, "spend_at_most is 14.99"),
        ("minutes: 9, places: 10", 1500, "how much"),
        (TERMS, 1400, "the page showed 14.00"),
    ],
)
async def test_a_draft_above_the_limit_or_with_another_cost_is_refused(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn, terms: str, cost: int, word: str
) -> None:
    name = f"refused-{cost}-{len(terms)}"
    await study(client, context, SPEC.replace("{TERMS}", f"{{{terms}}}"), name)
    await connected(send)
    reply = await send("POST", f"{PAGE.format(name)}/study", json={"cost": cost})
    assert (reply.status_code, word in sentence(reply)) == (409, True), sentence(reply)
    assert prolific.studies == {}


async def test_without_a_token_or_a_description_everything_is_a_sentence(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    await study(client, context, SPEC.replace("{TERMS}", f"{{{TERMS}}}"), "no-token")
    await study(client, context, SPEC.split("recruitment", maxsplit=1)[0], "no-terms")
    refused = await send("POST", f"{PAGE.format('no-token')}/study", json={"cost": 1500})
    assert (refused.status_code, "page Account" in sentence(refused)) == (409, True)
    shown = (await send("GET", PAGE.format("no-terms"))).json()
    assert (shown["token"], shown["study"], len(shown["problems"])) == (False, None, 4)
    for path in ("refresh", "places", "payments/plan"):
        body = {"places": {"places": 20, "cost": 0}, "payments/plan": {"action": "approve"}}.get(path)
        assert (await send("POST", f"{PAGE.format('no-terms')}/{path}", json=body)).status_code == 409
    assert prolific.asked == []


async def test_a_draft_whose_reply_was_lost_is_found_and_not_made_twice(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    await study(client, context, SPEC.replace("{TERMS}", f"{{{TERMS}}}"), "lost-draft")
    await connected(send)
    prolific.lose.add("POST /api/v1/studies/")
    lost = await send("POST", f"{PAGE.format('lost-draft')}/study", json={"cost": 1500})
    assert (lost.status_code, lost.json()["error"]["code"]) == (502, "platform_unknown")
    found = await send("POST", f"{PAGE.format('lost-draft')}/study", json={"cost": 1500})
    assert found.status_code == 201
    assert list(prolific.studies) == [found.json()["study"]["id"]]


async def test_who_took_part_in_an_earlier_wave_does_not_see_the_next(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    first, made = await published(client, context, send, "wave-one")
    await finished(first, prolific, made, 1, 2)
    await published(client, context, send, "wave-two", f"{TERMS}, not_from: [wave-one]")
    (group,) = prolific.groups.values()
    assert group["participant_ids"] == [f"{number:024x}" for number in (1, 2)]
    assert group["workspace_id"] == WORKSPACE
    body = list(prolific.studies.values())[-1]
    assert body["filters"] == [{"filter_id": "participant_group_blocklist", "selected_values": [group["id"]]}]
    await finished(first, prolific, made, 3)
    reply = await send("POST", f"{PAGE.format('wave-two')}/groups")
    assert reply.json() == {"people": {"wave-one": 3}}
    assert len(group["participant_ids"]) == 3


async def test_a_study_of_ones_own_can_be_entered_if_it_leads_here(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    _, made = await published(client, context, send, "made-here")
    await study(client, context, SPEC.replace("{TERMS}", f"{{{TERMS}}}"), "entered")
    elsewhere = await send("PUT", f"{PAGE.format('entered')}/study", json={"study": made})
    assert (elsewhere.status_code, "leads elsewhere" in sentence(elsewhere)) == (409, True)
    own = prolific.studies[made] | {
        "id": "studyofmyown00000000",
        "external_study_url": "https://lab.org/e/entered/?a=1",
    }
    prolific.studies[own["id"]] = own
    assert (await send("PUT", f"{PAGE.format('entered')}/study", json={"study": own["id"]})).status_code == 200
    unknown = await send("PUT", f"{PAGE.format('entered')}/study", json={"study": "nothing0000"})
    assert (unknown.status_code, "nothing of this id" in sentence(unknown)) == (502, True)
    assert (await send("DELETE", f"{PAGE.format('entered')}/study")).json()["study"] is None


async def test_places_only_grow_and_within_the_limit(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    _, made = await published(client, context, send, "places")
    url = f"{PAGE.format('places')}/places"
    for places, cost, word in (
        (9, 0, "takes none back"),
        (14, 600, "spend_at_most"),
        (12, 299, "the page showed 2.99"),
    ):
        refused = await send("POST", url, json={"places": places, "cost": cost})
        assert (refused.status_code, word in sentence(refused)) == (409, True), sentence(refused)
    assert prolific.studies[made]["total_available_places"] == 10
    prolific.lose.add("PATCH")
    assert (await send("POST", url, json={"places": 12, "cost": 300})).status_code == 502
    changes = await context.store.experiments.read_changes(await experiment_id(context, "places"))
    assert (changes[-1].what, changes[-1].detail) == ("Prolific: places ordered", "10 → 12 places of 1.50 GBP")
    again = await send("POST", url, json={"places": 12, "cost": 0})  # it was carried out: nothing more is to be paid
    assert (again.status_code, again.json()["study"]["places"]) == (200, 12)
    assert prolific.studies[made]["total_available_places"] == 12


async def test_statuses_come_by_asking_and_a_returned_place_is_free_at_once(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "asked")
    person, submission = prolific.submit(made, 50, "ACTIVE")
    arrived = await colors.arrive(PROLIFIC_PID=person, STUDY_ID=made, SESSION_ID=submission)
    await finished(colors, prolific, made, *range(60, 85))  # more than one page of the stand-in
    shown = (await send("POST", f"{PAGE.format('asked')}/refresh")).raise_for_status().json()
    assert shown["study"]["counts"] == {"ACTIVE": 1, "AWAITING_REVIEW": 25}
    prolific.submissions[submission]["status"] = "RETURNED"
    await send("POST", f"{PAGE.format('asked')}/refresh")
    one = await context.store.participants.read(
        await experiment_id(context, "asked"), context.signer.read_session(arrived["session"]).participant
    )
    assert one is not None
    assert (one.platform, one.status) == (PlatformStatus.RETURNED, Status.RETURNED)


async def test_each_submission_of_somebody_who_comes_again_finds_its_own_participant(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    again = {"C0DE7": "C0DE7, repeats: 1"}
    colors, made = await published(client, context, send, "again", **again)
    (first,) = await finished(colors, prolific, made, 91)
    person, second = f"{91:024x}", "d" * 24
    prolific.submissions[second] = prolific.submissions[f"{91 + 0xABC000:024x}"] | {"id": second, "status": "RETURNED"}
    arrived = await colors.arrive(PROLIFIC_PID=person, STUDY_ID=made, SESSION_ID=second)
    newest = context.signer.read_session(arrived["session"]).participant
    assert newest != first
    await send("POST", f"{PAGE.format('again')}/refresh")
    experiment = await experiment_id(context, "again")
    found = [await context.store.participants.read(experiment, each) for each in (first, newest)]
    assert [each.platform for each in found if each] == [PlatformStatus.AWAITING_REVIEW, PlatformStatus.RETURNED]
    await published(client, context, send, "again-later", f"{TERMS}, not_from: [again]")
    assert next(iter(prolific.groups.values()))["participant_ids"] == [person]


async def test_asking_backs_off_while_nothing_changes(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = await published(client, context, send, "backs-off")
    now = [context.now_ms()]
    at = Context(context.settings, context.store, now_ms=lambda: now[0])
    turns: dict[str, Schedule] = {}
    monkeypatch.setattr(submissions, "MOST_STUDIES", 1000)
    await ask_once(at, turns)
    prolific.asked.clear()
    assert await ask_once(at, turns) == 0
    assert prolific.asked == []
    pauses: list[int] = []
    mine = await experiment_id(context, "backs-off")
    for _ in range(8):
        now[0] = turns[mine].due_ms
        await ask_once(at, turns)
        pauses.append(turns[mine].pause_ms)
    assert pauses == sorted(pauses)
    assert pauses[-1] == submissions.LATEST_MS
    prolific.submit(made, 7, "ACTIVE")
    now[0] = turns[mine].due_ms
    await ask_once(at, turns)
    assert turns[mine].pause_ms == submissions.SOONEST_MS
    prolific.token = "revoked"
    now[0] = turns[mine].due_ms
    await ask_once(at, turns)  # a refused token stops nothing
    assert turns[mine].pause_ms == 2 * submissions.SOONEST_MS


async def test_nothing_of_the_account_is_in_a_bundle_or_an_export(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "bundled")
    people = await finished(colors, prolific, made, 171)
    members = members_of(await bundle_of(context.settings, context.store, "bundled"))
    assert not any(TOKEN.encode() in content or SECRET.encode() in content for content in members.values())
    records = await context.store.prolific.read(await experiment_id(context, "bundled"))
    assert records.study is not None
    await paid(send, "bundled", {"action": "approve", "participants": people})
    kept = repr(await context.store.prolific.read(await experiment_id(context, "bundled")))
    assert f"{171:024x}" not in kept
    assert f"{171 + 0xABC000:024x}" not in kept
    assert TOKEN not in kept


async def test_prolifics_errors_are_sentences(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    await published(client, context, send, "errors")
    for status, word in ((401, "token"), (403, "workspace"), (429, "Wait a minute"), (500, "problem of its own")):
        prolific.refuse["GET /api/v1/studies/"] = (status, {"error": {"detail": "no"}})
        prolific.asked.clear()
        reply = await send("POST", f"{PAGE.format('errors')}/refresh")
        assert (reply.status_code, word in sentence(reply)) == (502, True), sentence(reply)
        assert len(prolific.asked) == (3 if status in {429, 500} else 1)
    prolific.refuse["GET /api/v1/studies/"] = (200, {"id": 1})
    assert "cannot be understood" in sentence(await send("POST", f"{PAGE.format('errors')}/refresh"))
    prolific.refuse.clear()
    prolific.lose.add("GET /api/v1/studies/")
    assert (await send("POST", f"{PAGE.format('errors')}/refresh")).status_code == 200  # reading is repeated


async def test_prolific_out_of_reach_is_a_sentence(settings: Settings, store: Store, owner: tuple[str, str]) -> None:
    away = settings.model_copy(update={"prolific_url": "http://127.0.0.1:1"})
    async with client_on(away, store) as client:
        reply = await client.put("/api/account/prolific", json={"token": TOKEN}, auth=owner)
    assert (reply.status_code, "cannot be reached" in sentence(reply)) == (502, True)
    assert SECRET not in reply.text
