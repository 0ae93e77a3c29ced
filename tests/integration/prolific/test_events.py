"""Webhooks of Prolific: what they change, and that forged, old and foreign ones change nothing."""

from typing import Any

import httpx

from frontend.context import Context
from frontend.prolific import platform
from frontend.prolific.credentials import reference_of
from frontend.store.statuses import PlatformStatus, Status
from tests.people import MakeAccount
from tests.prolific import PAGE, Send, StandIn, changed_submission, experiment_id, published, signed


async def post_event(client: httpx.AsyncClient, reference: str, content: bytes, headers: Any) -> httpx.Response:
    return await client.post(f"/api/prolific/events/{reference}", content=content, headers=headers)


async def subscribed(send: Send, context: Context, name: str) -> str:
    (await send("POST", f"{PAGE.format(name)}/webhooks")).raise_for_status()
    record = (await context.store.prolific.read(await experiment_id(context, name))).study
    assert record is not None
    return record.reference


async def test_an_event_frees_a_returned_place_at_once_and_only_once(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "events")
    reference = await subscribed(send, context, "events")
    assert {each["event_type"] for each in prolific.subscriptions.values()} == set(platform.EVENTS)
    assert all(each["is_enabled"] for each in prolific.subscriptions.values())
    assert all(each["target_url"].endswith(reference) for each in prolific.subscriptions.values())
    person, submission = prolific.submit(made, 201, "ACTIVE")
    arrived = await colors.arrive(PROLIFIC_PID=person, STUDY_ID=made, SESSION_ID=submission)
    body = changed_submission(person, submission, "TIMED-OUT")
    for outcome in ("applied", "repeated"):
        reply = await post_event(client, reference, *signed(body))
        assert (reply.status_code, reply.json()) == (200, {"status": outcome})
    one = await context.store.participants.read(
        await experiment_id(context, "events"), context.signer.read_session(arrived["session"]).participant
    )
    assert one is not None
    assert (one.platform, one.status) == (PlatformStatus.TIMED_OUT, Status.TIMED_OUT)
    study_event = {"event_type": "study.status.change", "resource_id": made, "status": "ACTIVE"}
    assert (await post_event(client, reference, *signed(study_event, event="2"))).json() == {"status": "applied"}
    other = {"event_type": "study.has_high_return_rate", "resource_id": made}
    assert (await post_event(client, reference, *signed(other, event="3"))).json() == {"status": "unknown"}
    shown = (await send("GET", "/api/account/prolific")).json()
    assert shown["events"] == {"applied": 2, "repeated": 1, "unknown": 1}
    assert (await send("GET", PAGE.format("events"))).json()["study"]["status"] == "ACTIVE"
    await send("DELETE", "/api/account/prolific")
    assert prolific.subscriptions == {}
    assert (await post_event(client, reference, *signed(body, event="4"))).status_code == 403


async def test_forged_old_and_foreign_events_change_nothing(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn, fresh: MakeAccount
) -> None:
    colors, made = await published(client, context, send, "forged")
    reference = await subscribed(send, context, "forged")
    person, submission = prolific.submit(made, 211, "ACTIVE")
    arrived = await colors.arrive(PROLIFIC_PID=person, STUDY_ID=made, SESSION_ID=submission)
    body = changed_submission(person, submission, "RETURNED")
    now = context.now_ms() / 1000
    content, headers = signed(body, event="f")
    attacks: list[tuple[int, str, bytes, dict[str, str]]] = [
        (403, reference, *signed(body, secret="guessed")),
        (403, reference, *signed(body, secret="")),
        (403, reference, content.replace(b"RETURNED", b"APPROVED"), headers),
        (403, reference, content, headers | {"X-Prolific-Request-Timestamp": str(int(now) + 1)}),
        (403, reference, content, {"Content-Type": "application/json", "X-Event-Id": "f"}),
        (403, reference, *signed(body, at=now - 600)),
        (403, reference, *signed(body, at=now + 600)),
        (403, "0" * 32, content, headers),
        (403, "..credentials", content, headers),
        (404, "..%2f..%2fcredentials", content, headers),
        (400, reference, content, headers | {"X-Event-Id": ""}),
        (400, reference, *signed([1], event="list")),  # pyright: ignore[reportArgumentType]
        (413, reference, *signed(body | {"more": "x" * 70_000}, event="large")),
    ]
    for status, at, sent, with_headers in attacks:
        reply = await post_event(client, at, sent, with_headers)
        assert reply.status_code == status, (at, reply.text)
    # Another account, with a secret of its own, tells of a submission that is none of its studies'.
    eve = await fresh("eve")
    kept = context.prolific_files.read_file(reference)
    assert kept is not None
    context.prolific_files.write(reference_of(eve.id), kept)
    foreign = await post_event(client, reference_of(eve.id), content, headers)
    assert foreign.json() == {"status": "foreign"}
    # The same person in another study, whose submission is not the one of this experiment.
    other = changed_submission(person, "f" * 24, "RETURNED")
    assert (await post_event(client, reference, *signed(other, event="o"))).json() == {"status": "foreign"}
    one = await context.store.participants.read(
        await experiment_id(context, "forged"), context.signer.read_session(arrived["session"]).participant
    )
    assert one is not None
    assert (one.platform, one.status) == (None, Status.ARRIVED)
    context.prolific_files.remove(eve.id)
