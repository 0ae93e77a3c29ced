"""What is under way while an experiment is deleted, or a participant erased, brings nothing of them back."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from frontend.errors import GoneError
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.participants import Participant
from frontend.store.statuses import Status
from frontend.store.step_changes import StepChange
from frontend.store.turns import Turn, remember_query, take_query
from salmon.records import Query
from salmon.wire import Keys
from salmon.wire.keys import NOBODY
from tests.living import started

QUERY = Query(0, (1, 2), trial_type="random", probability=1.0)
Verb = Callable[[Store, str, Participant, Turn], Awaitable[Any]]

OF_SOMEBODY: dict[str, Verb] = {
    "begin_session": lambda s, e, p, _: s.participants.begin_session(
        e, p.id, "s", seen_ms=1, language="en", browser="b", network="", group="", companions={"SESSION_ID": "x"}
    ),
    "activate": lambda s, e, p, _: s.participants.activate(e, p.id),
    "change": lambda s, e, p, _: s.participants.change(e, p.id, StepChange(Status.CONSENTED, "consent", 1)),
    "complete": lambda s, e, p, _: s.participants.complete(e, p.id, now_ms=1),
    "restart": lambda s, e, p, _: s.participants.restart(e, p.id, "link", "ada", now_ms=1),
    "begin_turn": lambda s, e, p, _: s.turns.begin_turn(e, p.id, now_ms=1),
    "end_turn": lambda s, e, p, _: s.turns.end_turn(e, p.id, 1),
    "count_turn": lambda s, e, p, _: s.turns.count_turn(e, p.id, "Random"),
    "take_query": lambda s, e, p, t: s.turns.choose(
        take_query(e, p.id, "Random", t, token="t", probability=1.0, now_ms=1)
    ),
    "remember_query": lambda s, e, p, t: s.turns.choose(
        remember_query(e, p.id, "Random", [QUERY], t, token="t", probability=1.0, now_ms=1, pending=True)
    ),
}
OF_EXPERIMENTS: dict[str, Verb] = {
    "arrive": lambda s, e, _, __: s.participants.arrive(e, "link", "bob", now_ms=1),
    "decide": lambda s, e, p, _: s.participants.decide(e, {p.id: ("exclude", "n")}, by="me", now_ms=1),
    "count_anonymous_turn": lambda s, e, _, __: s.turns.count_anonymous_turn(e),
    "claim": lambda s, e, p, _: s.turns.claim(e, NOBODY, "t", p.id),
    "set_state": lambda s, e, _, __: s.experiments.set_state(e, "open", now_ms=1),
    "archive": lambda s, e, _, __: s.experiments.archive(e),
    "share": lambda s, e, _, __: s.experiments.share(e, {"@somebody": "view"}),
}


@pytest.fixture
async def known(
    client: httpx.AsyncClient, settings: Settings, store: Store
) -> AsyncIterator[tuple[str, str, Participant, Turn]]:
    """An experiment, its name, a participant and a turn of theirs."""
    crowd, experiment = await started(client, settings, store, "removed", "targets: 9\nsamplers: {Random: {}}\n")
    participant = await store.participants.arrive(experiment, "link", "ada", now_ms=1)
    turn = await store.turns.begin_turn(experiment, participant.id, now_ms=1)
    yield experiment, crowd.slug, participant, turn
    await store.experiments.delete(crowd.slug, experiment)


async def keys_of(store: Store, experiment: str, participant: str) -> list[str]:
    """Return which of the keys of an experiment and a participant are there."""
    keys = Keys(experiment)
    names = (*keys.of_participant(participant), *keys.of_participant(NOBODY), keys.arrivals, keys.events, keys.state)
    names += (keys.counts, keys.pending("Random"))
    return [name for name in names if await store.connection.do(lambda c, name=name: c.exists(name))]


@pytest.mark.parametrize("verb", [*OF_SOMEBODY, *OF_EXPERIMENTS])
async def test_nothing_is_written_to_a_deleted_experiment(
    known: tuple[str, str, Participant, Turn], store: Store, verb: str
) -> None:
    experiment, slug, participant, turn = known
    await store.experiments.delete(slug, experiment)
    with pytest.raises(GoneError):
        await (OF_SOMEBODY | OF_EXPERIMENTS)[verb](store, experiment, participant, turn)
    await store.participants.add_events(experiment, participant.id, [{"event": "late"}])
    assert await keys_of(store, experiment, participant.id) == []


@pytest.mark.parametrize("verb", OF_SOMEBODY)
async def test_nothing_is_written_to_somebody_who_was_erased(
    known: tuple[str, str, Participant, Turn], store: Store, verb: str
) -> None:
    experiment, _, participant, turn = known
    names = Keys(experiment).of_participant(participant.id)
    await store.connection.do(lambda client: client.delete(*names))
    with pytest.raises(GoneError):
        await OF_SOMEBODY[verb](store, experiment, participant, turn)
    await store.participants.add_events(experiment, participant.id, [{"event": "late"}])
    assert [name for name in await keys_of(store, experiment, participant.id) if name in names] == []


@pytest.mark.parametrize("verb", [*OF_SOMEBODY, *OF_EXPERIMENTS])
async def test_it_is_written_to_somebody_who_is_there(
    known: tuple[str, str, Participant, Turn], store: Store, verb: str
) -> None:
    experiment, _, participant, turn = known
    await (OF_SOMEBODY | OF_EXPERIMENTS)[verb](store, experiment, participant, turn)
