"""Checks in a running experiment: what participants are served, what follows from
failures, and what is stored of it.
"""

from typing import Any

import httpx
import pytest

from frontend.context import Context
from frontend.participant.checks import keys_of_shared
from tests.studies import Study, study

SPEC = """targets: [a, b, c, d, e, f, g, h]
seed: 5
samplers: {Random: {}}
html: {max_queries: 40}
"""


async def take_part(one: Study, puid: str, *, trials: int, wrong: bool = False) -> tuple[dict[str, Any], list[Any]]:
    """Answer so many trials, catch trials rightly or wrongly; return the arrival and what the page was told."""
    arrival = await one.arrive(puid=puid)
    told: list[Any] = []
    for number in range(1, trials + 1):
        query = await one.query(arrival, number=number)
        if "token" not in query:
            return arrival, [*told, query]
        again = await one.query(arrival, number=number)
        assert [again[side] for side in ("head", "left", "right", "token")] == [
            query[side] for side in ("head", "left", "right", "token")
        ], "the same query is given until it is answered"
        feet = [query["left"], query["right"]]
        winner = query["head"] if query["head"] in feet else min(feet)
        if wrong and query["head"] in feet:
            (winner,) = set(feet) - {winner}
        body = {"token": query["token"], "winner": winner, "rt_ms": 800.0}
        results = [(await one.answer(body)).json()["results"][0] for _ in range(2)]  # the second is a duplicate
        told.append(results[0])
        assert not results[1]["recorded"]
    return arrival, told


async def finish(one: Study, arrival: dict[str, Any]) -> dict[str, Any]:
    reply = await one.client.post(
        f"/e/{one.slug}/finish", json={"given": 0}, headers={"X-Salmon-Session": arrival["session"]}
    )
    return reply.json()


async def test_a_participant_meets_every_kind_and_rows_say_which(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC + "checks: {catch: 10%, repeat: 10%, shared: 5}\n", "all-kinds")
    for puid in ("ann", "bob"):
        await take_part(one, puid, trials=40)
    rows = await one.rows()
    for puid in ("ann", "bob"):
        own = [row for row in rows if row["puid"] == puid]
        kinds = [row["trial_type"] for row in own]
        assert {kind: kinds.count(kind) for kind in set(kinds)} == {"random": 27, "catch": 4, "repeat": 4, "shared": 5}
        by_id = {row["response_id"]: row for row in own}
        for row in own:
            if row["trial_type"] == "repeat":
                first = by_id[row["repeat_of"]]
                assert (first["head"], first["left"], first["right"]) == (row["head"], row["right"], row["left"])
                assert int(row["trial_index"]) - int(first["trial_index"]) >= 10
    experiment = await context.catalogue.find(one.slug)
    held_out = keys_of_shared(experiment)
    asked = {
        "{},{},{}".format(row["head"], *sorted((int(row["left"]), int(row["right"])))): row["trial_type"]
        for row in rows
    }
    assert {key for key, kind in asked.items() if key in held_out} == held_out
    assert all((kind == "shared") == (key in held_out) for key, kind in asked.items())


async def test_without_checks_no_trial_is_one(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC, "no-checks")
    await take_part(one, "ann", trials=40)
    assert {row["trial_type"] for row in await one.rows()} == {"random"}


@pytest.mark.parametrize(
    ("on_failure", "key"), [("nothing", ""), ("flag", ""), ("warn", "warn"), ("screen_out", "out")]
)
async def test_what_follows_from_failed_catch_trials(
    client: httpx.AsyncClient, context: Context, on_failure: str, key: str
) -> None:
    extra = f"checks: {{catch: 20%, on_failure: {on_failure}, tolerate: 1}}\n"
    extra += "recruitment: {platform: prolific, completion_code: DONE1, screen_out_code: OUT77}\n"
    one = await study(client, context, SPEC + extra, f"failing-{on_failure.replace('_', '-')}")
    one.arrive = lambda **_: Study.arrive(one, PROLIFIC_PID="a" * 24, STUDY_ID="b" * 24, SESSION_ID="c" * 24)  # type: ignore[method-assign]
    arrival, told = await take_part(one, "p", trials=40, wrong=True)
    heard = [reply.get(key) for reply in told if key and key in reply]
    answers = len([reply for reply in told if "recorded" in reply])
    assert "DONE1" not in str(told)
    assert "OUT77" not in str(told)
    last = await finish(one, arrival)
    if on_failure == "screen_out":
        assert heard == ["failed_checks"] * 2, (
            "with the second failed catch trial, and where the next query is asked for"
        )
        assert (last["out"], last["code"], last["redirect"]) == (
            "failed_checks",
            "OUT77",
            "https://app.prolific.com/submissions/complete?cc=OUT77",
        )
        assert [row["trial_type"] for row in await one.rows()].count("catch") == 2
        assert (await one.arrive())["step"] == "out"
    else:
        assert (answers, last["code"]) == (40, "DONE1")
        assert heard == [True] * (8 if on_failure == "warn" else 0)


async def test_careful_participants_are_not_screened_out(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC + "checks: {catch: 20%, on_failure: screen_out, tolerate: 0}\n", "careful")
    arrival, told = await take_part(one, "ann", trials=40)
    assert all("out" not in reply for reply in told)
    assert "out" not in await finish(one, arrival)
