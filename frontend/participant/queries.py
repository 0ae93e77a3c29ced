"""Choose the query that a participant gets: the only module that decides it.

The decision has two parts, both pure functions of the experiment, the participant and the trial: `choose_sampler` says
which sampler asks, or which check the trial is, and `plan_query` says where its query comes from (`Fixed`, `Drawn`,
`Repeated` or `Published`). Two functions act on the plan: `take_query` gets the query from the store, and
`prefetch_targets` guesses the targets of the next trials without taking anything.

`trial` counts from 1 over the experiment's order, as experimenters count in `sampling.details`. `number` counts
everything a participant was given, spare queries included.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any, cast

from frontend.context import Context
from frontend.errors import ConflictError, DamagedError
from frontend.experiments import ParsedRevision, SamplingPlan, ServedExperiment
from frontend.participant.checks import (
    MOST_LOOKED_THROUGH,
    Check,
    catch_query,
    choose_repeat,
    find_check,
    keys_of_shared,
    shared_query,
)
from frontend.security import Session
from frontend.store import Store, turns
from frontend.store.statuses import Status
from frontend.store.turns import GivenQuery, Turn
from salmon.logs import fields
from salmon.records import Query, Served
from salmon.samplers.passive import Random, candidates, fallback
from salmon.spec import TargetSpec
from salmon.wire.keys import NOBODY, is_tryout

log = logging.getLogger("salmon.trials")

#: How long a participant waits for the store to give a query.
PATIENCE_SECONDS = 0.3
#: How the session of whoever has no page is called.
SCRIPT = "script"
#: So many of the best published queries are asked in turn of whoever does not say who they are.
ANONYMOUS_AMONG = 64
#: Queries drawn for a trial, of which the first is asked that its participant has not seen; more where the first ones
#: are shared queries.
_CANDIDATES, _MOST_CANDIDATES = 8, 512
#: Trials after the one on the screen whose files are loaded.
TRIALS_AHEAD = 3
#: Up to this, all files are loaded before the first trial.
MOST_FILES = 100
MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class SamplerChoice:
    """The sampler of one trial, with the probability it had; `query` is set where the experimenter fixed it.

    Where the trial is a `check` (its kind and number, see `find_check`) or held out, the sampler only lends its name.
    """

    sampler: str
    probability: float
    query: tuple[int, int, int] | None = None
    check: tuple[Check, int] | None = None


@dataclass(frozen=True)
class Fixed:
    """The query that the experimenter put at this trial."""

    query: Query

    @property
    def candidates(self) -> tuple[Query, ...]:
        """What may be asked: nothing else."""
        return (self.query,)


@dataclass(frozen=True)
class Drawn:
    """Queries drawn without a model: the first that the participant has not seen is asked."""

    candidates: tuple[Query, ...]


@dataclass(frozen=True)
class Repeated:
    """An earlier query of the participant with its sides swapped; where none is old enough, one of the candidates."""

    candidates: tuple[Query, ...]


@dataclass(frozen=True)
class Published:
    """The best query that the learning process has published for this sampler."""

    sampler: str


QueryPlan = Fixed | Drawn | Repeated | Published


def choose_sampler(plan: SamplingPlan, *, participant: str, trial: int) -> SamplerChoice:
    """Return the sampler of a trial: the experimenter's, where the spec fixes one, otherwise drawn by `sampling.probs`.

    With `samplers_per_user` k > 0 a participant meets only k samplers, drawn once without replacement by the same
    probabilities. In a race that is one sampler, and some trials of everybody are held out. What is fixed for each
    participant does not hold for requests that name nobody.
    """
    if participant == NOBODY:
        plan = replace(plan, details=(), samplers_per_user=0, checks=None, race=0.0)
    for fixed_trial, sampler, query in plan.details:
        if fixed_trial == trial:
            return SamplerChoice(sampler, 1.0, query)
    weights = _weights(plan, participant)
    sampler = _draw(weights, _uniform(plan.seed, participant, "sampler", trial))
    check = find_check(plan, participant=participant, trial=trial)
    if check is None and plan.race and _uniform(plan.seed, participant, "held out", trial) < plan.race:
        check = ("held_out", trial)
    return SamplerChoice(sampler, 1.0 if check else weights[sampler] / sum(weights.values()), check=check)


def plan_query(
    parsed: ServedExperiment | ParsedRevision,
    choice: SamplerChoice,
    *,
    participant: str,
    trial: int,
    number: int,
    own_turn: int | None = None,
    spare: bool = False,
    most: int = _CANDIDATES,
) -> QueryPlan:
    """Return where the query of a trial comes from, once its sampler is chosen.

    Of a drawn query, there are `most` candidates at the most, and always the same first one. `own_turn` counts the
    sampler's earlier queries to this participant, where they do not follow from the trials before. A `spare` query is
    random, and so is every query of somebody who tries the experiment out, because published ones belong to
    participants.
    """
    plan, sampler, n = parsed.plan, choice.sampler, len(parsed.targets)
    if choice.query is not None and not spare:
        head, first, second = choice.query
        return Fixed(Query(head, (first, second), trial_type="fixed", probability=1.0))
    shown = parsed.shown_targets
    if shown is not None:
        n = len(shown)
    if choice.check is not None and not spare:
        return _plan_check(parsed, choice.check, participant=participant, trial=trial, number=number)
    if spare or is_tryout(participant):
        return Drawn(_fallback(parsed, participant, number, most))
    if sampler in parsed.passive:
        if own_turn is None:
            own_turn = turn_of(plan, participant=participant, trial=trial, sampler=sampler)
        asked = partial(candidates, parsed.passive[sampler], n, participant=participant, turn=own_turn, seed=plan.seed)
        return Drawn(_held_out(parsed, most, lambda count: _among(shown, asked(count=count))))
    return Published(sampler)


def _plan_check(
    parsed: ParsedRevision, check: tuple[Check, int], *, participant: str, trial: int, number: int
) -> QueryPlan:
    """Return where the query of a check comes from; an ordinary random one stands in where there is no such query."""
    kind, place = check
    query = None
    if kind == "catch":
        targets = parsed.shown_targets or tuple(range(len(parsed.targets)))
        query = catch_query(parsed.plan, targets, participant=participant, trial=trial, number=place)
    elif kind == "shared":
        query = shared_query(parsed, participant=participant, number=place)
    if query is not None:
        return Fixed(query)
    drawn = _fallback(parsed, participant, number)
    if kind == "held_out":
        return Drawn(tuple(replace(query, trial_type="held_out") for query in drawn))
    return Repeated(drawn) if kind == "repeat" else Drawn(drawn)


def _fallback(parsed: ParsedRevision, participant: str, number: int, most: int = _CANDIDATES) -> tuple[Query, ...]:
    """Return random queries of the targets that a participant is shown."""
    shown, seed = parsed.shown_targets, parsed.plan.seed
    n = len(parsed.targets if shown is None else shown)
    return _held_out(
        parsed,
        most,
        lambda count: _among(shown, fallback(n, participant=participant, turn=number, seed=seed, count=count)),
    )


def _held_out(parsed: ParsedRevision, most: int, draw: Callable[[int], tuple[Query, ...]]) -> tuple[Query, ...]:
    """Return the first of drawn queries that are not shared ones, whose answers are never fitted."""
    drawn, held_out = draw(most), keys_of_shared(parsed)
    if not held_out:
        return drawn
    for queries in (drawn, draw(_MOST_CANDIDATES)):
        kept = tuple(query for query in queries if query.key not in held_out)
        if kept:
            return kept[:most]
    return drawn


def _among(shown: tuple[int, ...] | None, drawn: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return queries that were drawn of the first targets as queries of those that a group is shown."""
    if shown is None:
        return drawn
    return tuple(
        replace(query, head=shown[query.head], feet=(shown[query.feet[0]], shown[query.feet[1]])) for query in drawn
    )


def allows_spare(parsed: ServedExperiment | ParsedRevision, *, participant: str, after: int) -> bool:
    """Return whether a random query may stand in for that of the trial `after` another.

    It may not where the experimenter has fixed the query of that trial or of a later one: an answer to a spare query
    counts towards the last answer, so the experiment would end before the trials that are fixed.
    """
    upcoming = choose_sampler(parsed.plan, participant=participant, trial=after + 1)
    return may_pass(parsed, upcoming) and last_fixed(parsed) <= after


def last_fixed(parsed: ServedExperiment | ParsedRevision) -> int:
    """Return the last trial whose query the experimenter has fixed; 0 where there is none."""
    last = parsed.spec.html.max_queries
    fixed = (trial for trial, _, query in parsed.plan.details if query is not None and (last <= 0 or trial <= last))
    return max(fixed, default=0)


def may_pass(parsed: ServedExperiment | ParsedRevision, choice: SamplerChoice) -> bool:
    """Return whether the query of a trial is one of many, and not on a list of which each is to be asked.

    Queries that the experimenter has fixed, sets for validation, rounds and checks are such
    lists: the page waits for them.
    """
    passive = parsed.passive.get(choice.sampler)
    return choice.query is None and choice.check is None and (passive is None or passive == Random())


def turn_of(plan: SamplingPlan, *, participant: str, trial: int, sampler: str) -> int:
    """Count how often this sampler asked before this trial for this participant; checks are not its queries."""
    asked = _samplers_so_far(plan, participant)
    for k in range(len(asked) + 1, trial):
        choice = choose_sampler(plan, participant=participant, trial=k)
        asked.append(choice.sampler if choice.check is None else "")
    return asked[: max(0, trial - 1)].count(sampler)


@lru_cache(maxsize=4096)
def _samplers_so_far(plan: SamplingPlan, participant: str) -> list[str]:
    """Return the list to which the samplers of a participant's trials are added, in order; "" stands for a check."""
    del plan, participant
    return []


def place(query: Query, *, participant: str, trial: int, seed: int) -> tuple[int, int]:
    """Return the feet as (left, right): a fair coin for every showing."""
    first, second = sorted(query.feet)
    return (first, second) if _uniform(seed, participant, "side", trial) < 0.5 else (second, first)


def serve(given: GivenQuery, *, session: Session, revision: int, number: int, seed: int) -> Served:
    """Return the query as one participant gets it: placed left and right, with all that its token will sign."""
    query = given.query
    left, right = place(query, participant=session.participant, trial=number, seed=seed)
    if right == query.left:
        left, right = right, left
    return Served(
        experiment=session.experiment,
        revision=revision,
        participant=session.participant,
        session=session.session,
        trial=number,
        sampler=given.sampler,
        head=query.head,
        left=left,
        right=right,
        score=query.score,
        trial_type=query.trial_type,
        probability=query.probability,
        sampler_probability=given.probability,
        generation=query.generation,
        published_ms=query.published_ms,
        served_ms=given.served_ms,
        nonce=given.nonce,
    )


async def next_query(context: Context, session: Session, turn: Turn, parsed: ParsedRevision) -> Served:
    """Return the query of a participant's turn: what it was given before, or else what is planned for it."""
    given = turn.given
    if given is None:
        trial = turn.position + int(turn.spare)
        choice = choose_sampler(parsed.plan, participant=session.participant, trial=trial)
        plan = partial(
            plan_query,
            *(parsed, choice),
            participant=session.participant,
            trial=trial,
            number=turn.number,
            spare=turn.spare,
        )
        given = await take_query(context, session, turn, parsed, choice, plan)
    return serve(given, session=session, revision=turn.revision, number=turn.number, seed=parsed.plan.seed)


async def take_query(
    context: Context,
    session: Session,
    turn: Turn,
    parsed: ParsedRevision,
    choice: SamplerChoice,
    make_plan: Callable[..., QueryPlan],
) -> GivenQuery:
    """Get the planned query from the store, where it belongs to the turn from then on.

    Of the candidates for a random query, only the first is drawn as long as the participant has not seen it. A
    published query is replaced by a random one where none is left, or where the store does not answer in time. Queries
    that the experimenter has listed are given again until they are answered.
    """
    store, now_ms, token = context.store.turns, context.now_ms(), context.nonce()
    at = (session.experiment, session.participant, choice.sampler)
    if turn.number == 1 and (held_out := keys_of_shared(parsed)):
        await store.mark_asked(session.experiment, session.participant, held_out)
    passing = turn.spare or may_pass(parsed, choice)
    plan = make_plan(most=1) if passing else make_plan()
    if isinstance(plan, Repeated):
        plan = await _find_repeat(context, session, turn, parsed, plan)
    noted: dict[str, Any] = {"token": token, "probability": choice.probability, "now_ms": now_ms}
    if not isinstance(plan, Published):
        remember = partial(turns.remember_query, *at, turn=turn, may_pass=passing, **noted)
        given = await store.choose(remember(plan.candidates, unseen=True)) if passing else None
        if given is None:
            plan = cast("Fixed | Drawn", make_plan() if passing else plan)
            given = await store.choose(remember(plan.candidates))
        if given is None:
            raise ConflictError(
                f"The query of turn {turn.number} was answered meanwhile.", hint="Ask for the next one."
            )
        return given
    taken = await _in_time(store.choose(turns.take_query(*at, turn, **noted)))
    if taken is not None:
        return taken
    drawn = _fallback(parsed, session.participant, turn.number)
    remembered = await _in_time(store.choose(turns.remember_query(*at, drawn, turn, pending=True, **noted)))
    return remembered or GivenQuery(choice.sampler, choice.probability, token, now_ms, drawn[0])


def foresee(
    context: Context, session: Session, parsed: ServedExperiment, *, number: int, position: int
) -> turns.Choice | None:
    """Return how the query of a turn is chosen that will probably stand at this place in the order, so that it can
    begin and get its query at once; None where more has to be known first.
    """
    choice = choose_sampler(parsed.plan, participant=session.participant, trial=position)
    if number == 1 or not may_pass(parsed, choice):
        return None
    turn = Turn(
        number, "begun", position, parsed.state.revision, spare=False, given=None, answers=0, status=Status.ACTIVE
    )
    at = (session.experiment, session.participant, choice.sampler)
    noted: dict[str, Any] = {
        "token": context.nonce(),
        "probability": choice.probability,
        "now_ms": context.now_ms(),
    }
    plan = plan_query(parsed, choice, participant=session.participant, trial=position, number=number, most=1)
    if isinstance(plan, Published):
        return turns.take_query(*at, turn, **noted)
    return turns.remember_query(*at, plan.candidates, turn, **noted, unseen=True)


async def _find_repeat(
    context: Context, session: Session, turn: Turn, parsed: ParsedRevision, plan: Repeated
) -> Fixed | Drawn:
    """Return the plan of a repeat: an earlier query of the participant, or an ordinary
    trial where none is old enough.
    """
    try:
        answers = await context.store.export_reader.read_answers_of(
            session.experiment, session.participant, most=MOST_LOOKED_THROUGH
        )
    except DamagedError:
        answers = []  # the console says so; the participant gets an ordinary trial
    query = choose_repeat(parsed.plan, answers, participant=session.participant, number=turn.number)
    return Fixed(query) if query is not None else Drawn(plan.candidates)


async def anonymous_query(context: Context, experiment: ServedExperiment, sampler: str) -> Served | None:
    """Return a query for whoever answers it: of this sampler, or of one drawn by `sampling.probs`; None where the
    experiment has changed since it was read.

    Nothing is taken for it: a published query leaves its list when it is answered.
    """
    number, tag = await context.store.turns.count_anonymous_turn(experiment.id)
    if tag != experiment.state.tag:
        return None
    choice = choose_sampler(experiment.plan, participant=NOBODY, trial=number)
    if sampler:
        choice = SamplerChoice(sampler, 1.0)
    own_turn = number
    if not may_pass(experiment, choice):  # it asks its queries in rounds, so it counts its own turns
        own_turn = await context.store.turns.count_turn(experiment.id, NOBODY, choice.sampler)
    plan = plan_query(experiment, choice, participant=NOBODY, trial=number, number=number, own_turn=own_turn, most=1)
    if isinstance(plan, Published):
        published = await context.store.turns.peek_queries(experiment.id, plan.sampler, ANONYMOUS_AMONG)
        drawn = fallback(len(experiment.targets), participant=NOBODY, turn=number, seed=experiment.plan.seed, count=1)
        query = published[number % len(published)] if published else drawn[0]
    else:
        query = plan.candidates[0]
    given = GivenQuery(choice.sampler, choice.probability, context.nonce(), context.now_ms(), query)
    session = Session(experiment.id, NOBODY, SCRIPT)
    return serve(given, session=session, revision=experiment.state.revision, number=number, seed=experiment.plan.seed)


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
        match plan_query(parsed, choice, participant=participant, trial=trial, number=trial + spares, most=1):
            case Fixed(query):
                queries.append(query)
            case Drawn(drawn):
                queries.append(drawn[0])
            case Repeated():
                pass  # its targets were shown before
            case Published(sampler):
                if sampler not in published:
                    published[sampler] = await store.turns.peek_queries(experiment, sampler, trials)
                queries += islice(published[sampler], 1)
                del published[sampler][:1]
    return list(dict.fromkeys(target for query in queries for target in (query.head, *query.feet)))


def loads_ahead(targets: Sequence[TargetSpec]) -> bool:
    """Return whether the files are too many, or too large, to wait for all of them before the first trial."""
    files = {target.media: target.size_bytes for target in targets if target.media}
    return len(files) > MOST_FILES or sum(files.values()) > MOST_BYTES


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
    """Return a number in [0, 1) that depends on nothing but its arguments; a hash is 20
    times cheaper than a generator.
    """
    digest = hashlib.blake2b(f"{seed}:{participant}:{purpose}:{number}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


async def _in_time(query: Awaitable[GivenQuery | None]) -> GivenQuery | None:
    """Return what the store gives within the time that a participant may wait, or None.

    A query that the store takes after that time is pending under a token that nobody has, and is published again later.
    A fallback that could not be noted may be asked twice.
    """
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await query
    except TimeoutError:
        log.warning("the store is slow", extra=fields(seconds=PATIENCE_SECONDS))
        return None
