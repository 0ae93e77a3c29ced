"""The routes of participants on a real store: what is asked, what is recorded, what is refused."""

import asyncio
from typing import Any

import httpx
import pytest

from frontend.context import Context
from salmon.export import FIRST_COLUMNS
from tests.studies import OWNER, study

RANDOM = "targets: [red, green, blue, cyan, pink]\nsamplers: {Random: {}}\n"


async def test_an_answer_comes_home_with_the_26_columns_of_the_first_salmon(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, RANDOM, "columns")
    query = await colors.query(await colors.arrive(puid="first"))
    body = {"token": query["token"], "winner": query["right"], "rt_ms": 1234.5, "network_latency_ms": 12.0}
    assert (await colors.answer(body)).json()["results"][0]["recorded"] is True
    (row,) = await colors.rows()
    assert tuple(row)[:26] == FIRST_COLUMNS
    names = ["red", "green", "blue", "cyan", "pink"]
    for place in ("head", "left", "right"):
        assert int(row[place]) == query[place]
        assert row[f"{place}_html"] == row[f"{place}_filename"] == names[query[place]]
    assert (int(row["winner"]), int(row["loser"])) == (query["right"], query["left"])
    assert (row["sampler"], float(row["score"]), row["puid"]) == ("Random", -9999.0, "first")
    assert (float(row["response_time"]), float(row["network_latency"])) == (1.2345, 0.012)
    assert float(row["time_received"]) - float(row["start_time"]) == pytest.approx(
        float(row["time_received_since_start"]),
        abs=1e-5,  # seconds since 1970 leave a float less than a microsecond
    )
    assert (row["puid_num_responses"], row["num_responses"]) == ("1", "1")


async def test_the_same_token_records_one_answer_however_often_and_concurrently_it_is_sent(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, RANDOM, "once")
    query = await colors.query(await colors.arrive(puid="twice"))
    first = {"token": query["token"], "winner": query["left"]}
    second = {"token": query["token"], "winner": query["right"]}
    replies = await asyncio.gather(*(colors.answer(first, second) for _ in range(10)))
    results = [result for reply in replies for result in reply.json()["results"]]
    assert sum(result["recorded"] for result in results) == 1
    assert {result["count"] for result in results} == {1}
    assert len(await colors.rows()) == 1


@pytest.mark.parametrize("damage", ["forged", "of another server", "winner elsewhere", "too long"])
async def test_what_was_not_served_is_not_recorded(client: httpx.AsyncClient, context: Context, damage: str) -> None:
    colors = await study(client, context, RANDOM, f"refused-{damage.split(' ', maxsplit=1)[0]}{len(damage)}")
    query = await colors.query(await colors.arrive(puid="crook"))
    body: dict[str, Any] = {"token": query["token"], "winner": query["left"]}
    if damage == "forged":
        payload, _, signature = body["token"].rpartition(".")
        body["token"] = f"{payload[:-2]}AA.{signature}"
    elif damage == "of another server":
        body["token"] = body["token"].rpartition(".")[0] + "." + "A" * 43
    elif damage == "too long":
        body["token"] = body["token"] + "A" * 3000
    else:
        body["winner"] = next(i for i in range(5) if i not in {query["left"], query["right"]})
    reply = await colors.answer(body)
    assert reply.status_code == 422
    assert reply.json()["results"][0]["error"]["message"].endswith(".")
    assert await colors.rows() == []


async def test_one_bad_answer_in_a_list_does_not_hold_up_the_good_ones(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, RANDOM, "mixed")
    query = await colors.query(await colors.arrive(puid="mixed"))
    reply = await colors.answer({"token": "nonsense", "winner": 1}, {"token": query["token"], "winner": query["left"]})
    assert reply.status_code == 200
    refused, recorded = reply.json()["results"]
    assert refused["error"]["code"] == "forged"
    assert recorded["recorded"] is True


async def test_a_participant_sees_every_query_before_one_comes_twice(
    client: httpx.AsyncClient, context: Context
) -> None:
    four = await study(client, context, "targets: [a, b, c, d]\nsamplers: {Random: {}}\n", "all-twelve")
    arrival = await four.arrive(puid="patient")
    seen = [await four.query(arrival) for _ in range(8)]
    keys = [(query["head"], *sorted((query["left"], query["right"]))) for query in seen]
    assert len(set(keys)) == len(keys)


async def test_the_same_seed_and_participant_are_asked_the_same_queries(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, RANDOM + "seed: 7\n", "replay")
    arrival = await colors.arrive(puid="again")
    session = context.signer.read_session(arrival["session"])
    served = [await colors.query(arrival) for _ in range(5)]
    from frontend.participant import queries
    from salmon.samplers.passive import Random, candidates

    parsed = await context.catalogue.revision(session.experiment, 1)
    asked: set[str] = set()
    for trial, query in enumerate(served, start=1):
        turn = queries.turn_of(parsed.plan, participant=session.participant, trial=trial, sampler="Random")
        drawn = candidates(Random(), 5, participant=session.participant, turn=turn, seed=7)
        again = next(candidate for candidate in drawn if candidate.key not in asked)
        asked.add(again.key)
        sides = queries.place(again, participant=session.participant, trial=trial, seed=7)
        assert (query["head"], query["left"], query["right"]) == (again.head, *sides)


async def test_fixed_queries_stand_where_the_experimenter_put_them(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(
        client, context, RANDOM + "sampling: {details: {2: {sampler: Random, query: [4, 0, 1]}}}\n", "details"
    )
    arrival = await colors.arrive(puid="fixed")
    _, second = await colors.query(arrival), await colors.query(arrival)
    assert (second["head"], {second["left"], second["right"]}, second["score"]) == (4, {0, 1}, -9999.0)
    await colors.answer({"token": second["token"], "winner": second["left"]})
    assert [row["trial_type"] for row in await colors.rows()] == ["fixed"]


async def test_an_experiment_that_is_not_open_says_so(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, RANDOM, "paused")
    query = await colors.query(await colors.arrive(puid="early"))
    await client.put("/api/experiments/paused/state", json={"state": "paused"}, auth=OWNER)
    late = await client.post("/e/paused/arrive", json={"parameters": {"puid": "late"}})
    assert late.status_code == 409
    assert "paused" in late.json()["error"]["message"]
    # what was asked before is still recorded
    assert (await colors.answer({"token": query["token"], "winner": query["left"]})).json()["results"][0]["recorded"]


async def test_without_a_published_query_an_active_sampler_falls_back_and_counts_it(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, "targets: [red, green, blue, cyan]\n", "fallback")
    query = await colors.query(await colors.arrive(puid="alone"))
    assert (query["sampler"], query["score"]) == ("Adaptive", -9999.0)
    assert (await context.catalogue.find("fallback")).state.counters == {"fallbacks:Adaptive": 1}


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        ({"PROLIFIC_PID": "{{%PROLIFIC_PID%}}"}, "has not filled in"),
        ({"workerId": "workerId"}, "has not filled in"),
        ({"puid": "a b"}, "is not an id"),
        ({"puid": "x" * 300}, "is not an id"),
    ],
)
async def test_a_link_with_an_unfilled_or_wrong_id_is_refused(
    client: httpx.AsyncClient, context: Context, parameters: dict[str, str], part: str
) -> None:
    name = f"arrivals{abs(hash(str(parameters)))}"
    await study(client, context, RANDOM, name)
    reply = await client.post(f"/e/{name}/arrive", json={"parameters": parameters})
    assert reply.status_code == 400
    assert part in reply.json()["error"]["message"]


async def test_the_end_is_confirmed_only_when_every_answer_is_stored(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(
        client, context, RANDOM + "html: {max_queries: 1}\nrecruitment: {completion_code: C0DE42}\n", "finish"
    )
    arrival = await colors.arrive(puid="last")
    headers = {"X-Salmon-Session": arrival["session"]}
    query = await colors.query(arrival)
    for claimed in (0, 1):  # whatever a page claims, the code stays here until the answers are there
        early = (await client.post("/e/finish/finish", json={"given": claimed}, headers=headers)).json()
        assert early == {"stored": 0, "complete": False, "missing": 1}
    await colors.answer({"token": query["token"], "winner": query["left"]})
    done = (await client.post("/e/finish/finish", json={"given": 1}, headers=headers)).json()
    assert (done["stored"], done["complete"], done["code"]) == (1, True, "C0DE42")


async def test_errors_are_sentences_for_people_and_for_programs(client: httpx.AsyncClient) -> None:
    page = await client.get("/e/nowhere/", headers={"Accept": "text/html"})
    assert (page.status_code, "There is no experiment called" in page.text) == (404, True)
    assert set((await client.get("/e/nowhere/")).json()["error"]) == {"code", "message", "where", "hint"}
    wrong = await client.post("/e/nowhere/answers", content=b"not json")
    assert (wrong.status_code, "cannot be read" in wrong.json()["error"]["message"]) == (400, True)


async def test_health_says_what_is_missing(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "no backend")
    assert 'salmon_requests_total{route="/readyz",status="503"} 1.0' in (await client.get("/metrics")).text
