"""Which sampler, which query, which side: pure functions of the spec, the participant, the turn and the seed.

`trial` counts from 1 over everything a participant is given, as experimenters count in `sampling.details`.

Which targets the next trials will probably show: what a page loads ahead when its files are too many to load at once.

A guess costs a file that is loaded for nothing, or one that is loaded a trial later than it could have been; which query
is asked is decided when it is asked, and by nothing here.

Which query a participant gets.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from frontend.context import Context
from frontend.errors import NotOpenError
from frontend.experiments import Experiment, Parsed, Plan
from frontend.participant.steps import Values
from frontend.security import Session
from frontend.store import Store
from frontend.store.participants import Turn, is_tryout
from salmon.logs import fields
from salmon.records import Query, Served
from salmon.samplers.passive import Random, candidates, fallback
from salmon.spec import TargetSpec


@dataclass(frozen=True)
class Choice:
    """The sampler of one trial, with the probability it had; `query` is set where the experimenter fixed it."""

    sampler: str
    probability: float
    query: tuple[int, int, int] | None = None


def choose_sampler(plan: Plan, *, participant: str, trial: int) -> Choice:
    """The sampler of this trial: the experimenter's, where the spec fixes one, otherwise drawn by `sampling.probs`.

    With `samplers_per_user` k > 0 a participant meets only k samplers, drawn once without replacement by the same
    probabilities.
    """
    for fixed_trial, sampler, query in plan.details:
        if fixed_trial == trial:
            return Choice(sampler, 1.0, query)
    weights = _weights(plan, participant)
    sampler = _draw(weights, _uniform(plan.seed, participant, "sampler", trial))
    return Choice(sampler, weights[sampler] / sum(weights.values()))


def turn_of(plan: Plan, *, participant: str, trial: int, sampler: str) -> int:
    """How often this sampler came before this trial for this participant."""
    earlier = range(1, trial)
    return sum(choose_sampler(plan, participant=participant, trial=k).sampler == sampler for k in earlier)


def place(query: Query, *, participant: str, trial: int, seed: int) -> tuple[int, int]:
    """(left, right): the sides of the feet, a fair coin for every showing."""
    first, second = sorted(query.feet)
    return (first, second) if _uniform(seed, participant, "side", trial) < 0.5 else (second, first)


def serve(
    query: Query,
    choice: Choice,
    *,
    experiment: str,
    revision: int,
    participant: str,
    session: str,
    trial: int,
    seed: int,
    nonce: str,
    now_ms: int,
) -> Served:
    """The query as one participant gets it."""
    left, right = place(query, participant=participant, trial=trial, seed=seed)
    return Served(
        experiment=experiment,
        revision=revision,
        participant=participant,
        session=session,
        trial=trial,
        sampler=choice.sampler,
        head=query.head,
        left=left,
        right=right,
        score=query.score,
        trial_type=query.trial_type,
        probability=query.probability,
        sampler_probability=choice.probability,
        generation=query.generation,
        published_ms=query.published_ms,
        served_ms=now_ms,
        nonce=nonce,
    )


def fixed_query(indices: Sequence[int]) -> Query:
    """The query that the experimenter put at this place."""
    head, first, second = indices
    return Query(head, (first, second), trial_type="fixed", probability=1.0)


def _weights(plan: Plan, participant: str) -> Mapping[str, float]:
    weights = dict(zip(plan.samplers, map(float, plan.probabilities), strict=True))
    if not 0 < plan.samplers_per_user < len(weights):
        return weights
    left = {sampler: weight for sampler, weight in weights.items() if weight > 0}
    own: dict[str, float] = {}
    for draw in range(min(plan.samplers_per_user, len(left))):
        sampler = _draw(left, _uniform(plan.seed, participant, "own", draw))
        own[sampler] = left.pop(sampler)
    return own


def _draw(weights: Mapping[str, float], point: float) -> str:
    """The name at `point` in [0, 1) of the line on which each name is as long as its weight."""
    left = point * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return next(name for name in reversed(list(weights)) if weights[name] > 0)  # rounding ate the last crumb


def _uniform(seed: int, participant: str, purpose: str, number: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments; a hash is 20 times cheaper than a generator."""
    digest = hashlib.blake2b(f"{seed}:{participant}:{purpose}:{number}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


#: Trials after the one on the screen whose files are loaded.
TRIALS_AHEAD = 3
#: Up to this, all files are loaded before the first trial.
MOST_FILES = 100
MOST_BYTES = 20_000_000


def loads_ahead(targets: Sequence[TargetSpec]) -> bool:
    """Whether the files are too many, or too large, to wait for all of them."""
    files = {target.media: target.size_bytes for target in targets if target.media}
    return len(files) > MOST_FILES or sum(files.values()) > MOST_BYTES


def position_of(values: Mapping[str, str]) -> int:
    """How many queries of the experiment's order a participant was given; spare ones stand outside of it."""
    return int(values.get("turns", 0)) - int(values.get("spares", 0))


async def upcoming_targets(
    store: Store, experiment: str, parsed: Experiment | Parsed, participant: str, *, after: int, trials: int
) -> list[int]:
    """The targets of so many trials `after` a place in the order, soonest first; none where all files are loaded."""
    if not loads_ahead(parsed.targets):
        return []
    queries: list[Query] = []
    published: dict[str, list[Query]] = {}
    plan, n = parsed.plan, len(parsed.targets)
    for trial in range(after + 1, after + 1 + trials):
        choice = choose_sampler(plan, participant=participant, trial=trial)
        sampler = choice.sampler
        if choice.query is not None:
            queries.append(fixed_query(choice.query))
        elif sampler in parsed.passive:
            turn = turn_of(plan, participant=participant, trial=trial, sampler=sampler)
            drawn = candidates(parsed.passive[sampler], n, participant=participant, turn=turn, seed=plan.seed)
            queries.append(drawn[0])
        else:
            if sampler not in published:
                published[sampler] = await store.participants.peek_queries(experiment, sampler, trials)
            queries += islice(published[sampler], 1)
            del published[sampler][:1]
    return list(dict.fromkeys(target for query in queries for target in (query.head, *query.feet)))


log = logging.getLogger("salmon.trials")

#: How long a participant waits for the store to give a query.
PATIENCE_SECONDS = 0.3


async def may_be_random(context: Context, session: Session, values: Values) -> bool:
    """Whether a random query may stand in for the next one: where a sampler searches for queries or draws them anyway.

    Queries that the experimenter has fixed, sets for validation and rounds stay as they are: the page waits for them.
    """
    experiment = await context.catalogue.read(session.experiment)
    trial = position_of(values) + 1
    choice = choose_sampler(experiment.plan, participant=session.participant, trial=trial)
    passive = experiment.passive.get(choice.sampler)
    return choice.query is None and (passive is None or passive == Random())


async def next_query(
    context: Context,
    session: Session,
    turn: Turn,
    parsed: Parsed,
    choice: Choice,
    nonce: str,
    *,
    own_turn: int | None = None,
) -> Query:
    """The query of this turn: the experimenter's, a passive sampler's, the best published one, or a fallback.

    `own_turn` counts the sampler's earlier queries to this participant, where they do not follow from the plan.
    """
    store, n, seed = context.store.participants, len(parsed.targets), parsed.plan.seed
    now_ms = context.now_ms()
    if choice.query is not None:
        fixed = (fixed_query(choice.query),)
        return await store.remember_query(session.experiment, session.participant, fixed, token=nonce, now_ms=now_ms)
    sampler = choice.sampler
    if is_tryout(session.participant):
        return await random_query(context, session, turn, parsed, nonce)
    if sampler in parsed.passive:
        if own_turn is None:
            own_turn = turn_of(parsed.plan, participant=session.participant, trial=turn.position, sampler=sampler)
        drawn = candidates(parsed.passive[sampler], n, participant=session.participant, turn=own_turn, seed=seed)
        return await store.remember_query(session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms)
    taken = await _in_time(
        store.take_query(
            session.experiment, session.participant, sampler, token=nonce, last_head=turn.last_head, now_ms=now_ms
        )
    )
    if taken is not None:
        return taken
    drawn = fallback(n, participant=session.participant, turn=turn.number, seed=seed)
    remembered = await _in_time(
        store.remember_query(
            session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms, pending_of=sampler
        )
    )
    return remembered or drawn[0]


async def random_query(context: Context, session: Session, turn: Turn, parsed: Parsed, nonce: str) -> Query:
    """A random query that is nobody's: no learner waits for it, and it is not counted as one that was missing."""
    drawn = fallback(len(parsed.targets), participant=session.participant, turn=turn.number, seed=parsed.plan.seed)
    return await context.store.participants.remember_query(
        session.experiment, session.participant, drawn, token=nonce, now_ms=context.now_ms()
    )


async def _in_time(query: Awaitable[Query | None]) -> Query | None:
    """What the store gives within the time that a participant may wait, or None.

    Where the store is slower, a random query is asked rather than none. Should it have given one all the same, that one
    is pending under a token nobody has, and is published again later; a fallback that could not be noted may be asked
    twice.
    """
    try:
        return await asyncio.wait_for(query, PATIENCE_SECONDS)
    except TimeoutError:
        log.warning("the store is slow", extra=fields(seconds=PATIENCE_SECONDS))
        return None


def check_open(state: str) -> None:
    """Refuse what only an open experiment does, with a sentence that says why."""
    if state != "open":
        sentences = {
            "draft": "This experiment has not been opened yet.",
            "paused": "This experiment is paused at the moment.",
            "closed": "This experiment has ended.",
        }
        raise NotOpenError(
            sentences.get(state, "This experiment is not open."),
            state=state,
            hint="Answers already given are kept. Please contact the people who sent you the link.",
        )
