"""Attempts to get a completion code, or to be sent elsewhere, without having taken part: all of them fail."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from frontend.context import Context
from frontend.store.statuses import PlatformStatus
from tests.studies import OWNER, Study, study

CODE = "C0DE77"
SPEC = f"""\
targets: [red, green, blue, cyan, pink]
samplers: {{Random: {{}}}}
html: {{max_queries: 3}}
recruitment: {{completion_code: {CODE}, redirect: "https://example.org/back?code={{code}}&study={{STUDY_ID}}"}}
"""


async def finish(one: Study, session: str, **body: Any) -> httpx.Response:
    reply = await one.client.post(f"/e/{one.slug}/finish", json=body, headers={"X-Salmon-Session": session})
    assert CODE not in reply.text or reply.json()["complete"]
    return reply


async def answer(one: Study, arrival: dict[str, Any], count: int) -> None:
    for _ in range(count):
        query = await one.query(arrival)
        (await one.answer({"token": query["token"], "winner": query["left"]})).raise_for_status()


@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_a_forged_completion_gets_no_code(client: httpx.AsyncClient, context: Context, answered: int) -> None:
    one = await study(client, context, SPEC, f"forged-{answered}")
    arrival = await one.arrive(puid="crook")
    await answer(one, arrival, answered)
    session = arrival["session"]
    for body in ({"given": 0}, {"given": 3}, {"given": answered}, {"given": answered, "incomplete": True}):
        assert CODE not in (await finish(one, session, **body)).text, body
    forged = [{"token": "a.b", "winner": 0}, {"token": arrival["session"], "winner": 0}]
    await one.answer(*forged)
    left = await client.post(f"/e/{one.slug}/steps/debrief", json={}, headers={"X-Salmon-Session": session})
    skipped = await client.post(f"/e/{one.slug}/skip", headers={"X-Salmon-Session": session})
    assert (left.status_code, skipped.status_code) == (409, 403)
    assert CODE not in (await finish(one, session, given=3, incomplete=True)).text


async def test_whoever_returned_or_withdrew_gets_no_code(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC + "consent: {text: May we?}\n", "left-early")
    experiment = (await context.catalogue.find(one.slug)).id
    for name in ("returned", "withdrew"):
        arrival = await one.arrive(puid=name)
        headers = {"X-Salmon-Session": arrival["session"]}
        await client.post(f"/e/{one.slug}/steps/consent", json={"agreed": True}, headers=headers)
        await answer(one, arrival, 3)
        if name == "withdrew":
            await client.post(f"/e/{one.slug}/withdraw", headers=headers)
        else:
            participant = (await context.store.export_reader.read_arrivals(experiment))["link:returned"]
            note = context.store.participants.note_platform_status
            await note(experiment, participant, PlatformStatus.RETURNED, 5)
        assert (await finish(one, arrival["session"], given=3)).json()["error"]["code"] == "ended"


async def test_a_session_cannot_be_guessed_from_another(client: httpx.AsyncClient, context: Context) -> None:
    one, other = [await study(client, context, SPEC, name) for name in ("guessed", "guessed-other")]
    done = await one.arrive(puid="honest")
    await answer(one, done, 3)
    assert CODE in (await finish(one, done["session"], given=3)).text
    payload, _, signature = done["session"].rpartition(".")
    mine = (await one.arrive(puid="crook"))["session"]
    attempts = [f"{payload}.{mine.rpartition('.')[2]}", payload, f"{payload}.", f"{payload}.{signature[:-1]}"]
    attempts += [
        f"{payload}.{signature[:at]}{'A' if signature[at] != 'A' else 'B'}{signature[at + 1 :]}" for at in range(8)
    ]
    for attempt in attempts:
        reply = await finish(one, attempt, given=3)
        assert reply.status_code in {403, 422}, attempt
        assert CODE not in reply.text
    elsewhere = (await other.arrive(puid="honest"))["session"]
    assert CODE not in (await finish(one, elsewhere, given=3)).text, "a session is of one experiment"


async def test_the_code_is_nowhere_before_the_end(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC, "nowhere")
    base = f"/e/{one.slug}/"
    replies = [await client.get(base, params={"puid": "ada"}, headers={"accept": "text/html"})]
    replies += [await client.get(f"{base}{name}") for name in ("own.css", "own.js", "config", "finish")]
    arrived = await client.post(f"{base}arrive", json={"parameters": {"puid": "ada"}})
    headers = {"X-Salmon-Session": arrived.json()["session"]}
    replies += [arrived, await client.post(f"{base}steps/welcome", json={}, headers=headers)]
    for _ in range(3):
        replies.append(await client.get(f"{base}query", headers=headers))
        query = replies[-1].json()
        replies.append(await one.answer({"token": query["token"], "winner": query["left"]}))
    replies += [await client.get(path) for path in ("/config", "/openapi.json", f"/api/experiments/{one.slug}")]
    assert not [reply.url for reply in replies if CODE in reply.text or "example.org" in reply.text]
    bundle = await client.get(f"/api/experiments/{one.slug}/exports/participants.csv", auth=OWNER)
    assert CODE not in bundle.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"STUDY_ID": "x", "redirect": "https://evil.example"},
        {"STUDY_ID": "x", "turkSubmitTo": "https://www.mturk.com", "code": "0THER"},
    ],
)
async def test_a_link_sends_nobody_elsewhere(
    client: httpx.AsyncClient, context: Context, parameters: dict[str, str]
) -> None:
    one = await study(client, context, SPEC, f"redirect-{len(parameters)}")
    arrival = await one.arrive(puid="ada", **parameters)
    await answer(one, arrival, 3)
    done = (await finish(one, arrival["session"], given=3)).json()
    address = urlsplit(done["redirect"])
    assert (address.scheme, address.netloc, address.path) == ("https", "example.org", "/back")
    assert parse_qs(address.query) == {"code": [CODE], "study": ["x"]}
    assert done["form"] is None


@pytest.mark.parametrize("value", ["x&code=0THER", "//evil.example", "x#y", "x/../y", "https://evil.example"])
async def test_what_is_no_id_does_not_reach_the_address_that_people_are_sent_back_to(
    client: httpx.AsyncClient, context: Context, value: str
) -> None:
    one = await study(client, context, SPEC, "no-id")
    reply = await client.post(f"/e/{one.slug}/arrive", json={"parameters": {"puid": "ada", "STUDY_ID": value}})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "link_wrong")
    await context.store.experiments.delete(one.slug, (await context.catalogue.find(one.slug)).id)
