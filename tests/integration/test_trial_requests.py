"""The requests of every trial: what a page is known by, that every change acts at once,
and that newcomers wait first.
"""

from typing import Any

import httpx
import pytest

from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.lifecycle import MOST_UNDER_WAY
from frontend.store import Store
from salmon.records import Query
from tests.studies import OWNER, Study, study

COLORS = "targets: [red, green, blue, cyan, pink, gold, grey, navy]\nsamplers: {Random: {}}\n"


@pytest.fixture
def context(client: httpx.AsyncClient) -> Context:
    """The parts of the web process that answers."""
    transport: Any = client._transport  # pyright: ignore[reportPrivateUsage]
    return transport.app.state.context


async def ask(client: httpx.AsyncClient, slug: str, session: str, query: str, **headers: str) -> httpx.Response:
    return await client.get(f"/e/{slug}/query?{query}", headers={"X-Salmon-Session": session, **headers})


async def begun(client: httpx.AsyncClient, context: Context, slug: str, spec: str = COLORS) -> tuple[Study, str]:
    """Return a study and the session of a page that this process knows: it has asked before."""
    colors = await study(client, context, spec, slug)
    session = (await colors.arrive(puid="p"))["session"]
    await ask(client, slug, session, "number=1")
    assert context.open_pages.find(session) is not None
    return colors, session


async def set_state(client: httpx.AsyncClient, slug: str, state: str) -> None:
    reply = await client.put(f"/api/experiments/{slug}/state", json={"state": state}, auth=OWNER)
    assert reply.is_success, reply.text


async def test_both_ways_to_a_query_and_to_an_answer_reply_alike(client: httpx.AsyncClient, context: Context) -> None:
    _, session = await begun(client, context, "ways")
    for query in (
        "number=1",
        "number=2&skipped=1",
        "number=1",
        "number=99",
        "number=3&spare=true",
        "number=4&skipped=2&skipped=3",
    ):
        short = await ask(client, "ways", session, query)
        long = await ask(client, "ways", session, f"{query}&unknown=1")
        assert (short.status_code, short.content) == (long.status_code, long.content)
        assert dict(short.headers) == dict(long.headers)
    forged = [await ask(client, "ways", "forged", f"number=1{more}") for more in ("", "&unknown=1")]
    assert [reply.status_code for reply in forged] == [403, 403]
    assert forged[0].content == forged[1].content
    token = (await ask(client, "ways", session, "number=4")).json()["token"]
    bodies: tuple[Any, ...] = ({"token": token, "winner": 99}, {"token": "x", "winner": 1}, {}, [])
    for body in bodies:
        replies = [
            await client.post("/e/ways/answers", json=body, headers=headers)
            for headers in ({}, {"Origin": "http://elsewhere.test"})
        ]
        assert replies[0].content == replies[1].content
        assert replies[0].status_code == replies[1].status_code


async def test_a_query_without_a_session_or_with_a_wrong_number_is_refused_with_sentences(
    client: httpx.AsyncClient, context: Context
) -> None:
    _, session = await begun(client, context, "wrong")
    assert (await client.get("/e/wrong/query?number=1")).status_code == 422
    assert (await ask(client, "wrong", session, "number=-1")).status_code == 422
    page = await ask(client, "wrong", "forged", "number=1", Accept="text/html")
    assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")


@pytest.mark.parametrize("sampler", ["Random", "Adaptive"])
async def test_the_next_query_of_a_page_takes_one_call_to_the_store(
    client: httpx.AsyncClient,
    context: Context,
    store: Store,
    probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
    sampler: str,
) -> None:
    page = await study(client, context, f"targets: 12\nsamplers: {{{sampler}: {{}}}}\n", f"one-call-{sampler.lower()}")
    arrival = await page.arrive(puid="ada")
    experiment = context.signer.read_session(arrival["session"]).experiment
    published = [Query(k, (k + 1, k + 2), score=1.0, trial_type="active", generation=3) for k in range(6)]
    probe.publish(experiment, "Adaptive", probe.take_over(experiment), queries=published)
    calls: list[str] = []
    run = store.connection.run

    async def counted(script: str, *arguments: Any, **options: Any) -> Any:
        calls.append(script)
        return await run(script, *arguments, **options)

    monkeypatch.setattr(store.connection, "run", counted)
    await page.query(arrival, number=1)
    calls.clear()
    second = await page.query(arrival, number=2)
    assert len(calls) == 1
    assert second["score"] == (1.0 if sampler == "Adaptive" else -9999.0)
    assert await page.query(arrival, number=2) == second
    await page.query(arrival, number=3, spare=True)
    calls.clear()
    fourth = await page.query(arrival, number=4)
    assert len(calls) == 1
    assert (
        await page.answer(*({"token": query["token"], "winner": query["left"]} for query in (second, fourth)))
    ).is_success
    assert [row["sampler"] for row in await page.rows()] == [sampler] * 2


async def test_a_turn_that_is_not_the_foreseen_one_gets_its_own_query(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = "targets: 12\nsamplers: {Random: {}}\nsampling: {details: {4: {sampler: Random, query: [4, 0, 1]}}}\n"
    page = await study(client, context, spec, "not-foreseen")
    arrival = await page.arrive(puid="ada")
    asked = [await page.query(arrival, number=number) for number in (1, 3, 2, 5)]
    assert (asked[3]["head"], {asked[3]["left"], asked[3]["right"]}) == (4, {0, 1})
    assert len({(query["head"], frozenset((query["left"], query["right"]))) for query in asked}) == 4
    known = context.open_pages.find(arrival["session"])
    assert known is not None
    known.position = 40
    again = [await page.query(arrival, number=number) for number in (3, 4, 5)]
    assert [again[0], again[2]] == [asked[1], asked[3]]


async def test_a_pause_and_the_end_act_at_once_on_pages_that_have_asked_before(
    client: httpx.AsyncClient, context: Context
) -> None:
    _, session = await begun(client, context, "paused")
    await set_state(client, "paused", "paused")
    assert (await ask(client, "paused", session, "number=2")).json()["error"]["code"] == "paused"
    await set_state(client, "paused", "open")
    assert "token" in (await ask(client, "paused", session, "number=2")).json()
    await set_state(client, "paused", "closed")
    assert (await ask(client, "paused", session, "number=3")).json()["error"]["code"] == "closed"


async def test_the_newest_window_goes_on_and_the_older_one_is_told(client: httpx.AsyncClient, context: Context) -> None:
    colors, session = await begun(client, context, "windows")
    newer = (await colors.arrive(puid="p"))["session"]
    assert (await ask(client, "windows", session, "number=2")).json()["error"]["code"] == "elsewhere"
    assert "token" in (await ask(client, "windows", newer, "number=2")).json()


async def test_a_participant_whose_part_has_ended_is_told_so(client: httpx.AsyncClient, context: Context) -> None:
    _, session = await begun(client, context, "ended")
    page = context.open_pages.find(session)
    assert page is not None
    await context.store.participants.withdraw(page.experiment.id, page.participant.id, now_ms=1)
    assert (await ask(client, "ended", session, "number=2")).json()["error"]["code"] == "ended"


async def test_scripts_get_the_experiment_that_is_open_now(client: httpx.AsyncClient, context: Context) -> None:
    spec = COLORS + "security: {compat: on}\n"
    await study(client, context, spec, "first-study")
    for puid in ("", "ada"):
        assert "token" in (await client.get("/query", params={"puid": puid})).json()
    await study(client, context, spec.replace("red", "teal"), "second-study")
    second = await context.catalogue.find("second-study")
    for puid in ("", "ada"):
        token = (await client.get("/query", params={"puid": puid})).json()["token"]
        assert context.signer.read_served(token).experiment == second.id
    # A state that was changed and not announced, because the process that did so was killed in between:
    await context.store.connection.run(
        "return redis.call('HSET', KEYS[1], 'state', 'paused')", (f"salmon:{{{second.id}}}:state",), ()
    )
    for puid in ("", "ada"):
        first = await context.catalogue.find("first-study")
        reply = await client.get("/query", params={"puid": puid})
        assert reply.is_error or context.signer.read_served(reply.json()["token"]).experiment == first.id


async def test_where_too_much_is_under_way_newcomers_wait_and_those_who_have_begun_go_on(
    client: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    colors, session = await begun(client, context, "full-house")
    monkeypatch.setattr(context.metrics, "under_way", 2 * MOST_UNDER_WAY)
    refused = await client.post("/e/full-house/arrive", json={"parameters": {"puid": "late"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
    assert int(refused.headers["Retry-After"]) >= 1
    query = (await ask(client, "full-house", session, "number=2")).json()
    assert (await colors.answer({"token": query["token"], "winner": query["left"]})).status_code == 200
    again = await client.post("/e/full-house/arrive", json={"parameters": {"puid": "p"}, "session": session})
    assert again.status_code == 200
    monkeypatch.undo()
    assert context.metrics.under_way == 0
    assert (await client.post("/e/full-house/arrive", json={"parameters": {"puid": "late"}})).status_code == 200


async def test_both_ways_of_scripts_reply_alike(client: httpx.AsyncClient, context: Context) -> None:
    await study(client, context, COLORS + "security: {compat: on}\n", "scripts")
    page = {"Origin": "http://elsewhere.test"}  # whoever sends it takes the way through the routes
    for query in ("", "?sampler=Random", "?puid=ada%C3%A9", "?sampler=Unknown"):
        short, long = [await client.get(f"/query{query}", headers=headers) for headers in ({}, page)]
        assert (short.status_code, short.json().keys()) == (long.status_code, long.json().keys())
        assert {**short.headers, "content-length": ""} == {**long.headers, "content-length": ""}
    for body in ("", "{}", '{"token": "x", "head": 0, "left": 1, "right": 2, "winner": 1, "sampler": "Random"}'):
        short, long = [await client.post("/answer", content=body, headers=headers) for headers in ({}, page)]
        assert (short.status_code, short.content) == (long.status_code, long.content)
    asked = (await client.get("/query?puid=ada")).json()
    answered = await client.post("/answer", json={**asked, "winner": asked["left"], "puid": "ada"})
    assert (answered.status_code, answered.json()) == (200, {"success": True})
