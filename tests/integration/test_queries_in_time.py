"""Nobody waits for a slow store or network: what is asked instead, and that nothing of
the experiment's order is lost.
"""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.participant.queries import MOST_BYTES, MOST_FILES, loads_ahead, prefetch_targets
from frontend.security import Session
from frontend.store import Store
from frontend.store.lua import TAKE_QUERY
from frontend.store.turns import MOST_OPEN, Choice, GivenQuery, Numbers, take_query
from salmon.records import Query
from salmon.samplers.passive import Random, candidates
from salmon.spec import TargetSpec
from salmon.wire import Keys
from tests.studies import study

COLORS = "targets: [red, green, blue, cyan, pink, gold, grey, navy]\nseed: 3\n"


async def test_a_store_that_does_not_give_a_query_in_time_is_not_waited_for(
    client: httpx.AsyncClient, context: Context, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    colors = await study(client, context, COLORS, "slow-store")
    arrival = await colors.arrive(puid="waits")
    never = asyncio.Event()

    choose = store.turns.choose

    async def choose_without_lists(choice: Choice) -> GivenQuery | None:
        if choice.script == TAKE_QUERY:
            await never.wait()
        return await choose(choice)

    monkeypatch.setattr(store.turns, "choose", choose_without_lists)
    late = await colors.query(arrival)
    monkeypatch.undo()
    assert (late["sampler"], late["score"]) == ("Adaptive", -9999.0)
    reply = (await colors.answer({"token": late["token"], "winner": late["left"]})).json()
    assert reply["results"][0]["recorded"] is True
    assert [row["trial_type"] for row in await colors.rows()] == ["fallback"]

    async def choose_never(_: Choice) -> None:
        await never.wait()

    monkeypatch.setattr(store.turns, "choose", choose_never)
    assert (await colors.query(arrival))["token"] != late["token"]


async def test_a_spare_query_is_random_and_moves_nothing_of_the_order(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, COLORS + "samplers: {Random: {}}\n", "spare-order")
    arrival = await colors.arrive(puid="careful")
    session = context.signer.read_session(arrival["session"])
    first = await colors.query(arrival)
    spare = await colors.query(arrival, spare=True)
    second = await colors.query(arrival)
    assert [query["trial"] for query in (first, spare, second)] == [1, 2, 3]
    assert second["head"] in {
        query.head for query in candidates(Random(), 8, participant=session.participant, turn=1, seed=3)
    }
    await colors.answer(*({"token": query["token"], "winner": query["left"]} for query in (spare, second)))
    assert [row["trial_type"] for row in await colors.rows()] == ["fallback", "random"]


async def test_no_random_query_stands_in_while_a_fixed_one_is_ahead(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = COLORS + "samplers: {Random: {}}\nsampling: {details: {2: {sampler: Random, query: [4, 0, 1]}}}\n"
    colors = await study(client, context, spec, "spare-fixed")
    arrival = await colors.arrive(puid="careful")
    assert await colors.query(arrival, spare=True) == {"none": True}
    await colors.query(arrival)
    assert await colors.query(arrival, spare=True) == {"none": True}
    fixed = await colors.query(arrival)
    assert (fixed["head"], {fixed["left"], fixed["right"]}) == (4, {0, 1})
    assert "token" in await colors.query(arrival, spare=True)


async def test_the_trials_do_not_end_before_a_listed_query_that_another_window_was_given(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = (
        COLORS
        + "html: {max_queries: 3}\nsamplers: {Random: {}}\nrecruitment: {completion_code: DONE}\n"
        + "sampling: {details: {3: {sampler: Random, query: [4, 0, 1]}}}\n"
    )
    colors = await study(client, context, spec, "listed-elsewhere")
    arrival = await colors.arrive(puid="two-windows")

    async def answer(query: dict[str, Any]) -> None:
        await colors.answer({"token": query["token"], "winner": query["left"]})

    async def finish(given: int) -> dict[str, Any]:
        headers = {"X-Salmon-Session": arrival["session"]}
        return (await client.post("/e/listed-elsewhere/finish", json={"given": given}, headers=headers)).json()

    first, second, listed = [await colors.query(arrival, number=number) for number in (1, 2, 4)]
    assert (listed["trial"], listed["head"]) == (4, 4)
    await answer(first)
    instead = await colors.query(arrival, number=3)
    assert (instead["trial"], instead["token"]) == (4, listed["token"])
    await answer(second)
    assert await finish(2) == {"stored": 2, "complete": False, "missing": 1}
    await answer(instead)
    assert (await colors.query(arrival, number=3))["done"] is True
    assert (await finish(3))["code"] == "DONE"


async def test_a_listed_query_is_asked_after_the_last_answer_if_others_came_before_it(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = COLORS + "samplers: {Random: {}}\nsampling: {details: {1: {sampler: Random, query: [4, 0, 1]}}}\n"
    colors = await study(client, context, spec, "listed-late")
    arrival = await colors.arrive(puid="early")
    session = context.signer.read_session(arrival["session"])
    listed, *others = [await colors.query(arrival, number=number) for number in (1, 2, 3)]
    await colors.answer(*({"token": query["token"], "winner": query["left"]} for query in others))
    turns, at = context.store.turns, (session.experiment, session.participant)
    assert await turns.count_due(*at, ends_after=2) == 1
    due = await turns.begin_turn(*at, now_ms=1, number=4, ends_after=2)
    assert (due.outcome, due.number) == ("begun", 1)
    assert (await turns.begin_turn(*at, now_ms=1, number=4, spare=True, ends_after=2)).outcome == "none"
    await colors.answer({"token": listed["token"], "winner": listed["left"]})
    assert (await turns.begin_turn(*at, now_ms=1, number=4, ends_after=2)).outcome == "ended"
    assert (await turns.begin_turn(*at, now_ms=1, number=4, ends_after=2, listed_until=4)).position == 4


async def test_a_reserve_that_stays_unused_ends_nothing_and_few_turns_are_kept(
    client: httpx.AsyncClient, context: Context, store: Store
) -> None:
    colors = await study(client, context, COLORS + "html: {max_queries: 0}\nsamplers: {Random: {}}\n", "long")
    arrival = await colors.arrive(puid="patient")
    session = context.signer.read_session(arrival["session"])
    query, reserve = await colors.query(arrival, number=1), await colors.query(arrival, number=2, spare=True)
    most_kept = 0
    for number in range(3, 303):
        ahead = await colors.query(arrival, number=number)
        await colors.answer({"token": query["token"], "winner": query["left"]})
        query = ahead
        most_kept = max(most_kept, len(await entries_of(store, session)))
    assert most_kept <= 4  # the reserve, the query on the page, the one ahead, and one that has just ended
    numbers = await store.turns.read_numbers(session.experiment, session.participant)
    assert (numbers.open, numbers.next) == ((2, 302), 303)
    await colors.answer({"token": reserve["token"], "winner": reserve["left"]})
    assert await colors.query(arrival, number=2) == {"over": True, "answers": 301}
    assert (await colors.query(arrival, number=302))["token"] == query["token"]


async def entries_of(store: Store, session: Session) -> dict[str, str]:
    key = Keys(session.experiment).given(session.participant)
    return await store.turns._connection.do(lambda client: client.hgetall(key))


async def test_sixty_four_turns_may_be_open_and_no_more(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, COLORS + "html: {max_queries: 0}\nsamplers: {Random: {}}\n", "many-open")
    arrival = await colors.arrive(puid="collector")
    queries = [await colors.query(arrival, number=number) for number in range(1, MOST_OPEN + 1)]
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await colors.query(arrival, number=MOST_OPEN + 1)
    await colors.answer({"token": queries[30]["token"], "winner": queries[30]["left"]})
    assert (await colors.query(arrival, number=MOST_OPEN + 1))["trial"] == MOST_OPEN + 1


async def test_a_number_that_was_passed_over_can_still_be_asked_for(
    client: httpx.AsyncClient, context: Context, store: Store
) -> None:
    colors = await study(client, context, COLORS + "samplers: {Random: {}}\n", "out-of-order")
    arrival = await colors.arrive(puid="jumps")
    session = context.signer.read_session(arrival["session"])
    third = await colors.query(arrival, number=3)
    await colors.answer({"token": third["token"], "winner": third["left"]})
    assert (await store.turns.read_numbers(session.experiment, session.participant)).open == (1, 2)
    assert [(await colors.query(arrival, number=number))["trial"] for number in (2, 1)] == [2, 1]
    assert (await colors.query(arrival, number=3))["over"] is True


async def test_a_participant_of_an_earlier_version_goes_on_where_they_were(
    client: httpx.AsyncClient, context: Context, store: Store
) -> None:
    colors = await study(client, context, COLORS + "samplers: {Random: {}}\n", "begun-before")
    arrival = await colors.arrive(puid="half-way")
    session = context.signer.read_session(arrival["session"])
    at, keys = (session.experiment, session.participant), Keys(session.experiment)
    open_turn = "G|4|1|0|nonce|5|Random|1.0|0,1,2|Random||1.0|0|0"
    fields = {"turns": 5, "spares": 1, "top": 6, "settled": 1, "status": "active"}
    given = {"2": "|2|1|1|5", "3": "", "5": "", "6": open_turn}
    do = store.turns._connection.do
    await do(lambda client: client.hset(keys.participant(session.participant), mapping=fields))
    await do(lambda client: client.hset(keys.given(session.participant), mapping=given))
    assert await store.turns.read_numbers(*at) == Numbers((2, 4, 6), 7)
    seen = [(await store.turns.begin_turn(*at, now_ms=1, number=number)).outcome for number in (1, 3, 5, 2, 4, 7)]
    assert seen == ["over", "over", "over", "begun", "begun", "begun"]
    assert await store.turns.read_numbers(*at) == Numbers((2, 4, 6, 7), 8)
    assert set(await entries_of(store, session)) == {"2", "4", "6", "7"}


async def test_a_query_chosen_too_late_does_not_open_a_turn_that_is_over(
    client: httpx.AsyncClient, context: Context, store: Store, probe: BackendStore
) -> None:
    colors = await study(client, context, COLORS, "too-late")
    arrival = await colors.arrive(puid="quick")
    session = context.signer.read_session(arrival["session"])
    at = (session.experiment, session.participant)
    first = await colors.query(arrival, number=1)
    turn = await store.turns.begin_turn(*at, now_ms=1, number=1)
    await colors.answer({"token": first["token"], "winner": first["left"]})
    second = await colors.query(arrival, number=2)
    head = (second["head"] + 1) % 8  # what is asked is not published
    query = Query(head, ((head + 1) % 8, (head + 2) % 8), score=5.0, trial_type="active", probability=1.0)
    probe.publish(session.experiment, "Adaptive", probe.take_over(session.experiment), queries=[query])
    late = take_query(*at, "Adaptive", turn, token="late", probability=1.0, now_ms=2)
    assert await store.turns.choose(late) is None
    (left,) = await store.turns.peek_queries(session.experiment, "Adaptive", 2)
    assert left.key == query.key  # another turn may take it
    assert (await store.turns.read_numbers(*at)).open == (2,)


async def test_sets_for_validation_get_no_random_query_in_between(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, COLORS + "samplers: {Validation: {n_queries: 5}}\n", "spare-validation")
    assert await colors.query(await colors.arrive(puid="v"), spare=True) == {"none": True}


async def test_a_spare_query_of_a_searching_sampler_is_not_counted_as_one_that_was_missing(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, COLORS, "spare-active")
    spare = await colors.query(await colors.arrive(puid="s"), spare=True)
    assert (spare["sampler"], spare["score"], spare["soon"]) == ("Adaptive", -9999.0, [])
    assert (await context.catalogue.find("spare-active")).state.counters == {}


def test_files_are_loaded_ahead_where_they_are_more_or_larger_than_one_waits_for() -> None:
    def files(count: int, size_bytes: int) -> list[TargetSpec]:
        return [TargetSpec(k, "image", "", f"{k}.png", media=f"{k}.png", size_bytes=size_bytes) for k in range(count)]

    assert not loads_ahead(files(MOST_FILES, MOST_BYTES // MOST_FILES))
    assert loads_ahead(files(MOST_FILES + 1, 1))
    assert loads_ahead(files(3, MOST_BYTES // 3 + 1))
    assert not loads_ahead([TargetSpec(k, "text", "", "") for k in range(10_000)])


@pytest.mark.parametrize("kind", ["Random", "Adaptive"])
async def test_the_targets_of_the_next_three_trials_are_known_before_they_are_asked(
    client: httpx.AsyncClient,
    context: Context,
    store: Store,
    probe: BackendStore,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Queries are drawn from the id; one in a hundred participants draws one that was asked before and gets another.
    monkeypatch.setattr("frontend.store.participants.draw_participant_id", lambda: "abcdefghijkl")
    spec = COLORS + f"samplers: {{{kind}: {{}}}}\nsampling: {{details: {{2: {{sampler: {kind}, query: [7, 0, 6]}}}}}}\n"
    colors = await study(client, context, spec, f"prefetch-{kind.lower()}")
    arrival = await colors.arrive(puid="ahead")
    session = context.signer.read_session(arrival["session"])
    experiment = await context.catalogue.read(session.experiment)
    if kind == "Adaptive":
        queries = [Query(k, (k + 1, k + 2), score=5.0 - k, trial_type="active", probability=1.0) for k in range(4)]
        probe.publish(session.experiment, kind, probe.take_over(session.experiment), queries=queries)
    assert arrival["load_all"] is True
    assert await _soon(store, experiment, session.participant) == []
    large = replace(
        experiment, targets=tuple(replace(target, media="x", size_bytes=10**8) for target in experiment.targets)
    )
    soon = await _soon(store, large, session.participant)
    shown = [await colors.query(arrival, number=number) for number in (1, 2, 3)]
    assert set(soon) == {query[place] for query in shown for place in ("head", "left", "right")}
    assert soon[0] == shown[0]["head"]


async def _soon(store: Store, experiment: Any, participant: str) -> list[int]:
    return await prefetch_targets(store, experiment.id, experiment, participant, after=0, spares=0, trials=3)
