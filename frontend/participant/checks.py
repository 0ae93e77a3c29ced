"""Decide which trials of a participant are checks, which queries these show, and what a failed one leads to.

All but `follow_up` is pure: a function of the experiment, the participant and the trial. A session is divided into
blocks, as long as the experiment has trials, so that everybody meets as many checks; their places are drawn from the
seed for each participant. The first trial of a block is no check, and no check follows another.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Literal

from frontend.context import Context
from frontend.experiments import ParsedRevision, SamplingPlan
from frontend.schemas import Json
from frontend.store.statuses import Status
from frontend.store.step_changes import StepChange
from salmon.quality import is_caught
from salmon.records import DRAWN_BLINDLY, NEVER_FITTED, Answer, Query
from salmon.samplers.passive import Validation, count_queries
from salmon.spec.consistency import REPEATED_AFTER
from salmon.spec.schema import Checks
from salmon.wire.keys import NOBODY

Check = Literal["catch", "repeat", "shared", "held_out"]

#: Trials of a block where the experiment has no last one, and the most shared queries in it.
_ENDLESS, _MOST_SHARED = 100, 20
#: So often places are drawn again until enough of them are late enough for repeats.
_DRAWS = 100
#: Answers of one participant among which a query to repeat is found.
MOST_LOOKED_THROUGH = 400


def find_check(plan: SamplingPlan, *, participant: str, trial: int) -> tuple[Check, int] | None:
    """Return which check a trial is, and its number among those of its kind, from 0; None for an ordinary trial."""
    if plan.checks is None or participant == NOBODY:
        return None
    return _checks_of_block(plan, participant, (trial - 1) // _length(plan)).get(trial)


def catch_query(plan: SamplingPlan, targets: Sequence[int], *, participant: str, trial: int, number: int) -> Query:
    """Return the query of a catch trial: one that the experimenter calls obvious, or the head beside another target.

    Each obvious query is shown once before any is shown again.
    """
    obvious = [query for query in _checks(plan).obvious if set(query) <= set(targets)]
    if obvious:
        lap, place = divmod(number, len(obvious))
        order = _stream("obvious", plan.seed, participant, (trial - 1) // _length(plan), lap)
        head, nearer, farther = order.sample(obvious, len(obvious))[place]
        return Query(head, (nearer, farther), trial_type="catch", probability=1 / len(obvious))
    head, other = _stream("catch", plan.seed, participant, trial).sample(targets, 2)
    return Query(head, (head, other), trial_type="catch", probability=1 / (len(targets) * (len(targets) - 1)))


def shared_query(parsed: ParsedRevision, *, participant: str, number: int) -> Query | None:
    """Return one of the shared queries, in the participant's own order; None where there are no more of them."""
    queries = shared_queries(parsed)
    if number >= len(queries):
        return None
    order = _stream("shared order", parsed.plan.seed, participant).sample(queries, len(queries))
    head, low, high = order[number]
    return Query(head, (low, high), trial_type="shared", probability=1 / len(queries))


def shared_queries(parsed: ParsedRevision) -> tuple[tuple[int, int, int], ...]:
    """Return the queries [head, foot, foot] that everybody is asked who is shown these targets.

    None of them is among the queries that the experimenter has listed for everybody, which are fitted.
    """
    plan = parsed.plan
    if plan.checks is None or not plan.checks.shared:
        return ()
    listed = [query for _, _, query in plan.details if query is not None]
    for sampler in parsed.passive.values():
        if isinstance(sampler, Validation):
            listed += sampler.all_queries(len(parsed.targets), plan.seed)
    targets = parsed.shown_targets or tuple(range(len(parsed.targets)))
    return _draw_shared(plan.seed, plan.checks.shared, targets, frozenset(map(_sorted, listed)))


def keys_of_shared(parsed: ParsedRevision) -> frozenset[str]:
    """Return the keys of the shared queries: no other trial may ask them, because its answer would be fitted."""
    return frozenset(Query(head, (low, high)).key for head, low, high in shared_queries(parsed))


def choose_repeat(plan: SamplingPlan, answers: Sequence[Answer], *, participant: str, number: int) -> Query | None:
    """Return an earlier query of a participant with its sides swapped; None where none is old enough.

    Queries drawn at random come first: how often people repeat themselves there is the noise ceiling of the experiment.
    """
    again = {answer.served.key for answer in answers if answer.served.trial_type == "repeat"}
    old = [
        answer.served
        for answer in answers
        if answer.served.trial_type not in NEVER_FITTED
        and answer.served.trial <= number - REPEATED_AFTER
        and answer.served.key not in again
    ]
    pool = [served for served in old if served.trial_type in DRAWN_BLINDLY] or old
    if not pool:
        return None
    served = _stream("repeat", plan.seed, participant, number).choice(pool)
    feet = (min(served.left, served.right), max(served.left, served.right))
    return Query(served.head, feet, trial_type="repeat", probability=1 / len(pool), left=served.right)


def has_failed(checks: Checks, answer: Answer) -> bool:
    """Return whether an answer is a wrong one to a catch trial, and the experimenter wants
    something to follow from that.
    """
    live = checks.on_failure in {"warn", "screen_out"}
    return (
        live
        and answer.served.trial_type == "catch"
        and bool(is_caught(answer.served.head, answer.served.left, answer.served.right, answer.winner, checks.obvious))
    )


async def follow_up(context: Context, answer: Answer) -> Json:
    """Return what the page should do after a catch trial: warn, or end. An answer that is sent again counts once."""
    served, people = answer.served, context.store.participants
    checks = (await context.catalogue.revision(served.experiment, served.revision)).spec.checks
    if not has_failed(checks, answer):
        return {}
    participant = await people.note_failed_catch(served.experiment, served.participant, served.nonce)
    if checks.on_failure == "warn":
        return {"warn": True}
    status = participant.status.becomes(Status.FAILED_CHECKS)
    if participant.failed_catches <= checks.tolerate or status != Status.FAILED_CHECKS:
        return {"out": status} if status == participant.status == Status.FAILED_CHECKS else {}
    await people.change(served.experiment, served.participant, StepChange(status))
    return {"out": status}


def _checks(plan: SamplingPlan) -> Checks:
    return plan.checks or Checks()


def _length(plan: SamplingPlan) -> int:
    """Return how many trials a block has."""
    return plan.trials if plan.trials > 0 else _ENDLESS


@lru_cache(maxsize=4096)
def _checks_of_block(plan: SamplingPlan, participant: str, block: int) -> dict[int, tuple[Check, int]]:
    """Return trial → check, of one block of a participant's trials.

    Trials that the experimenter has fixed are no checks. Repeats are drawn among the places that are late enough.
    """
    checks, length = _checks(plan), _length(plan)
    rng = _stream("checks", plan.seed, participant, block)
    fixed = {trial for trial, _, _ in plan.details}
    free = [trial for trial in range(block * length + 2, (block + 1) * length + 1) if trial not in fixed]
    room = (len(free) + 1) // 2
    first_shared, shared = _shared_in_block(plan, block)
    shared = min(shared, room)
    point = rng.random()
    catches = min(_whole(checks.catch * length + point), room - shared)
    repeats = _whole((checks.catch + checks.repeat) * length + point) - _whole(checks.catch * length + point)
    repeats = min(repeats, room - shared - catches)
    late: list[int] = []
    slots: list[int] = []
    for _ in range(_DRAWS):
        slots = _apart(free, shared + catches + repeats, rng)
        late = [trial for trial in slots if trial > REPEATED_AFTER]
        if len(late) >= repeats:
            break
    again = set(rng.sample(late, min(repeats, len(late))))
    kinds: list[Check] = []
    kinds.extend("catch" for _ in range(catches))
    kinds.extend("shared" for _ in range(shared))
    rng.shuffle(kinds)
    numbers = {"catch": 0, "repeat": 0, "shared": first_shared}
    found: dict[int, tuple[Check, int]] = {}
    for trial in slots:
        if trial not in again and not kinds:
            continue  # too early for a repeat
        kind: Check = "repeat" if trial in again else kinds.pop()
        found[trial] = (kind, numbers[kind])
        numbers[kind] += 1
    return found


def _shared_in_block(plan: SamplingPlan, block: int) -> tuple[int, int]:
    """Return how many shared queries came in earlier blocks, and how many come in this one."""
    wanted = _checks(plan).shared
    if plan.trials > 0:
        return (0, wanted) if block == 0 else (wanted, 0)
    before = min(wanted, block * _MOST_SHARED)
    return before, min(wanted - before, _MOST_SHARED)


def _apart(free: Sequence[int], count: int, rng: Random) -> list[int]:
    """Return so many of the free trials, no two side by side: every choice is as likely as any other."""
    places = sorted(rng.sample(range(len(free) - max(count, 1) + 1), count))
    return [free[place + between] for between, place in enumerate(places)]


def _whole(number: float) -> int:
    return int(number + 1e-9)  # 3 % and 2 % of 100 are 5, whatever their sum in binary is


@lru_cache(maxsize=256)
def _draw_shared(
    seed: int, count: int, targets: tuple[int, ...], listed: frozenset[tuple[int, int, int]]
) -> tuple[tuple[int, int, int], ...]:
    stream = _stream("shared", seed, *targets)
    wanted = max(0, min(count, count_queries(len(targets)) - len(listed)))
    chosen: dict[tuple[int, int, int], None] = {}
    while len(chosen) < wanted:
        head, low, high = stream.sample(targets, 3)
        query = _sorted((head, low, high))
        if query not in listed:
            chosen[query] = None
    return tuple(chosen)


def _sorted(query: tuple[int, int, int]) -> tuple[int, int, int]:
    head, first, second = query
    return head, min(first, second), max(first, second)


def _stream(*parts: object) -> Random:
    """Return a random stream for one purpose; a string seed is hashed whole, the same on every machine."""
    return Random(":".join(map(str, parts)))
