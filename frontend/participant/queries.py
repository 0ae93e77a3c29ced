"""Choose the query that a participant gets: the only module that decides it.

The decision has two parts, both pure functions of the experiment, the participant and the trial: `choose_sampler` says
which sampler asks, and `plan_query` says where its query comes from (`Fixed`, `Drawn` or `Published`). Two functions act
on the plan: `take_query` gets the query from the store, and `prefetch_targets` guesses the targets of the next trials
without taking anything.

`trial` counts from 1 over the experiment's order, as experimenters count in `sampling.details`. `number` counts
everything a participant was given, spare queries included.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from frontend.context import Context
from frontend.errors import NotOpenError
from frontend.experiments import ParsedRevision, SamplingPlan, ServedExperiment
from frontend.security import Session
from frontend.store import Store
from frontend.store.participants import Turn
from salmon.logs import fields
from salmon.records import Query, Served
from salmon.samplers.passive import Random, candidates, fallback
from salmon.spec import TargetSpec
from salmon.wire.keys import NOBODY, is_tryout

log = logging.getLogger("salmon.trials")

#: How long a participant waits for the store to give a query.
PATIENCE_SECONDS = 0.3
#: Trials after the one on the screen whose files are loaded.
TRIALS_AHEAD = 3
#: Up to this, all files are loaded before the first trial.
MOST_FILES = 100
MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class SamplerChoice:
    """The sampler of one trial, with the probability it had; `query` is set where the experimenter fixed it."""

    sampler: str
    probability: float
    query: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Fixed:
    """The query that the experimenter put at this trial."""

    query: Query


@dataclass(frozen=True)
class Drawn:
    """Queries drawn without a model: the first that the participant has not seen is asked."""

    candidates: tuple[Query, ...]


@dataclass(frozen=True)
class Published:
    """The best query that the learning process has published for this sampler."""

    sampler: str


QueryPlan = Fixed | Drawn | Published


def choose_sampler(plan: SamplingPlan, *, participant: str, trial: int) -> SamplerChoice:
    """Return the sampler of a trial: the experimenter's, where the spec fixes one, otherwise drawn by `sampling.probs`.

    With `samplers_per_user` k > 0 a participant meets only k samplers, drawn once without replacement by the same
    probabilities. What is fixed for each participant does not hold for requests that name nobody.
    """
    if participant == NOBODY:
        plan = replace(plan, details=(), samplers_per_user=0)
    for fixed_trial, sampler, query in plan.details:
        if fixed_trial == trial:
            return SamplerChoice(sampler, 1.0, query)
    weights = _weights(plan, participant)
    sampler = _draw(weights, _uniform(plan.seed, participant, "sampler", trial))
    return SamplerChoice(sampler, weights[sampler] / sum(weights.values()))


def plan_query(
    parsed: ServedExperiment | ParsedRevision,
    choice: SamplerChoice,
    *,
    participant: str,
    trial: int,
    number: int,
    own_turn: int | None = None,
    spare: bool = False,
) -> QueryPlan:
    """Return where the query of a trial comes from, once its sampler is chosen.

    `own_turn` counts the sampler's earlier queries to this participant, where they do not follow from the trials before.
    A `spare` query is random, and so is every query of somebody who tries the experiment out, because published ones
    belong to participants.
    """
    plan, sampler, n = parsed.plan, choice.sampler, len(parsed.targets)
    if choice.query is not None and not spare:
        head, first, second = choice.query
        return Fixed(Query(head, (first, second), trial_type="fixed", probability=1.0))
    if spare or is_tryout(participant):
        return Drawn(fallback(n, participant=participant, turn=number, seed=plan.seed))
    if sampler in parsed.passive:
        if own_turn is None:
            own_turn = turn_of(plan, participant=participant, trial=trial, sampler=sampler)
        return Drawn(candidates(parsed.passive[sampler], n, participant=participant, turn=own_turn, seed=plan.seed))
    return Published(sampler)


def allows_spare(parsed: ServedExperiment | ParsedRevision, choice: SamplerChoice) -> bool:
    """Return whether a random query may stand in for that of a trial.

    Queries that the experimenter has fixed, sets for validation and rounds stay as they are: the page waits for them.
    """
    passive = parsed.passive.get(choice.sampler)
    return choice.query is None and (passive is None or passive == Random())


def turn_of(plan: SamplingPlan, *, participant: str, trial: int, sampler: str) -> int:
    """Count how often this sampler came before this trial for this participant."""
    return sum(choose_sampler(plan, participant=participant, trial=k).sampler == sampler for k in range(1, trial))


def place(query: Query, *, participant: str, trial: int, seed: int) -> tuple[int, int]:
    """Return the feet as (left, right): a fair coin for every showing."""
    first, second = sorted(query.feet)
    return (first, second) if _uniform(seed, participant, "side", trial) < 0.5 else (second, first)


def serve(
    query: Query,
    choice: SamplerChoice,
    *,
    session: Session,
    revision: int,
    number: int,
    seed: int,
    nonce: str,
    now_ms: int,
) -> Served:
    """Return the query as one participant gets it: placed left and right, with all that its token will sign."""
    left, right = place(query, participant=session.participant, trial=number, seed=seed)
    return Served(
        experiment=session.experiment,
        revision=revision,
        participant=session.participant,
        session=session.session,
        trial=number,
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


async def next_query(
    context: Context, session: Session, turn: Turn, parsed: ParsedRevision, *, spare: bool = False
) -> Served:
    """Get the query of a participant's turn; a `spare` one may stand in for the query that comes after it."""
    trial = turn.position + int(spare)
    choice = choose_sampler(parsed.plan, participant=session.participant, trial=trial)
    plan = plan_query(parsed, choice, participant=session.participant, trial=trial, number=turn.number, spare=spare)
    return await take_query(context, session, turn, parsed, choice, plan)


async def take_query(
    context: Context, session: Session, turn: Turn, parsed: ParsedRevision, choice: SamplerChoice, plan: QueryPlan
) -> Served:
    """Get the planned query from the store and return it as it is served.

    A published query is replaced by a random one where none is left, or where the store does not answer in time.
    """
    nonce = context.nonce()
    match plan:
        case Fixed(query):
            chosen = await _remember_first(context, session, (query,), nonce)
        case Drawn(drawn):
            chosen = await _remember_first(context, session, drawn, nonce)
        case Published(sampler):
            chosen = await _take_published(context, session, turn, parsed, sampler, nonce)
    return serve(
        chosen,
        choice,
        session=session,
        revision=turn.revision,
        number=turn.number,
        seed=parsed.plan.seed,
        nonce=nonce,
        now_ms=context.now_ms(),
    )


async def prefetch_targets(
    store: Store,
    experiment: str,
    parsed: ServedExperiment | ParsedRevision,
    participant: str,
    *,
    after: int,
    spares: int,
    trials: int,
) -> list[int]:
    """Return the targets that so many trials `after` a trial will probably show, soonest first.

    The list is empty where all files are loaded before the first trial. A wrong guess costs a file that is loaded in
    vain, or one that is loaded a trial later than it could have been.
    """
    if not loads_ahead(parsed.targets):
        return []
    queries: list[Query] = []
    published: dict[str, list[Query]] = {}
    for trial in range(after + 1, after + 1 + trials):
        choice = choose_sampler(parsed.plan, participant=participant, trial=trial)
        match plan_query(parsed, choice, participant=participant, trial=trial, number=trial + spares):
            case Fixed(query):
                queries.append(query)
            case Drawn(drawn):
                queries.append(drawn[0])
            case Published(sampler):
                if sampler not in published:
                    published[sampler] = await store.participants.peek_queries(experiment, sampler, trials)
                queries += islice(published[sampler], 1)
                del published[sampler][:1]
    return list(dict.fromkeys(target for query in queries for target in (query.head, *query.feet)))


def loads_ahead(targets: Sequence[TargetSpec]) -> bool:
    """Return whether the files are too many, or too large, to wait for all of them before the first trial."""
    files = {target.media: target.size_bytes for target in targets if target.media}
    return len(files) > MOST_FILES or sum(files.values()) > MOST_BYTES


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


def _weights(plan: SamplingPlan, participant: str) -> Mapping[str, float]:
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
    """Return the name at `point` in [0, 1) of the line on which each name is as long as its weight."""
    left = point * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return next(name for name in reversed(list(weights)) if weights[name] > 0)  # the sum of floats fell short


def _uniform(seed: int, participant: str, purpose: str, number: int) -> float:
    """Return a number in [0, 1) that depends on nothing but its arguments; a hash is 20 times cheaper than a generator."""
    digest = hashlib.blake2b(f"{seed}:{participant}:{purpose}:{number}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


async def _remember_first(context: Context, session: Session, drawn: tuple[Query, ...], nonce: str) -> Query:
    return await context.store.participants.remember_query(
        session.experiment, session.participant, drawn, token=nonce, now_ms=context.now_ms()
    )


async def _take_published(
    context: Context, session: Session, turn: Turn, parsed: ParsedRevision, sampler: str, nonce: str
) -> Query:
    store, now_ms = context.store.participants, context.now_ms()
    taken = await _in_time(
        store.take_query(
            session.experiment, session.participant, sampler, token=nonce, last_head=turn.last_head, now_ms=now_ms
        )
    )
    if taken is not None:
        return taken
    drawn = fallback(len(parsed.targets), participant=session.participant, turn=turn.number, seed=parsed.plan.seed)
    remembered = await _in_time(
        store.remember_query(
            session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms, pending_of=sampler
        )
    )
    return remembered or drawn[0]


async def _in_time(query: Awaitable[Query | None]) -> Query | None:
    """Return what the store gives within the time that a participant may wait, or None.

    A query that the store takes after that time is pending under a token that nobody has, and is published again later.
    A fallback that could not be noted may be asked twice.
    """
    try:
        return await asyncio.wait_for(query, PATIENCE_SECONDS)
    except TimeoutError:
        log.warning("the store is slow", extra=fields(seconds=PATIENCE_SECONDS))
        return None
