"""Choose queries without a model: pure functions of the participant, how often they asked before, and the seed.

Because nothing else goes in, a run can be replayed: the same participant gets the same queries in the same order.
`turn` counts from 0 over the queries that this sampler gave this participant. `attempt` counts the candidates that
were refused because the participant had seen them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from salmon.records import NO_SCORE, Query


@dataclass(frozen=True)
class Random:
    """Any head with any two feet, uniformly; `targets` limits all three to a subset."""

    targets: tuple[int, ...] | None = None

    #: Whether a participant may see one of its queries twice.
    repeats = False

    def query(self, n: int, *, participant: str, turn: int, seed: int, attempt: int = 0) -> Query:
        """Return one of the (n-1)(n-2)n/2 queries, each as likely as any other."""
        allowed = _allowed_targets(n, self.targets)
        head, low, high = _stream("random", seed, participant, turn, attempt).sample(allowed, 3)
        return Query(head=head, feet=(low, high), probability=1.0 / count_queries(len(allowed)))


@dataclass(frozen=True)
class RoundRobin:
    """Every target is the head once before any is the head again, in each participant's own order; feet are random."""

    targets: tuple[int, ...] | None = None

    repeats = False

    def query(self, n: int, *, participant: str, turn: int, seed: int, attempt: int = 0) -> Query:
        """Return a query whose score is the larger distance between the head's index and a foot's, as in the first
        Salmon.
        """
        allowed = _allowed_targets(n, self.targets)
        lap, place = divmod(turn, len(allowed))
        order = list(allowed)
        _stream("heads", seed, participant, lap).shuffle(order)
        head = order[place]
        others = [target for target in allowed if target != head]
        low, high = _stream("feet", seed, participant, turn, attempt).sample(others, 2)
        gap = max(abs(head - low), abs(head - high))
        return Query(head, (low, high), score=float(gap), probability=1.0 / count_queries(len(allowed)))


@dataclass(frozen=True)
class Validation:
    """A fixed set of queries, the same for every participant, in a new order each time round.

    Without `queries`, `n_queries` of them are drawn from the experiment's seed.
    """

    n_queries: int = 20
    queries: tuple[tuple[int, int, int], ...] | None = None

    repeats = True

    def query(self, n: int, *, participant: str, turn: int, seed: int, attempt: int = 0) -> Query:
        """Return a query whose score is its place within this lap."""
        del attempt  # a check is asked again on purpose, so there is no second candidate
        chosen = self.all_queries(n, seed)
        lap, place = divmod(turn, len(chosen))
        order = list(range(len(chosen)))
        _stream("validation", seed, participant, lap).shuffle(order)
        head, low, high = chosen[order[place]]
        return Query(head, (low, high), score=float(place), trial_type="validation", probability=1.0 / len(chosen))

    def all_queries(self, n: int, seed: int) -> tuple[tuple[int, int, int], ...]:
        """Return every query [head, foot, foot] of the set."""
        return self.queries or validation_queries(n, self.n_queries, seed)


PassiveSampler = Random | RoundRobin | Validation

PASSIVE: dict[str, type[PassiveSampler]] = {"Random": Random, "RoundRobin": RoundRobin, "Validation": Validation}


def candidates(
    sampler: PassiveSampler, n: int, *, participant: str, turn: int, seed: int, count: int = 8
) -> tuple[Query, ...]:
    """Yield the query to ask, then those to ask instead if this participant has seen it; the first is asked if all
    were seen.
    """
    attempts = 1 if sampler.repeats else count
    queries = (sampler.query(n, participant=participant, turn=turn, seed=seed, attempt=i) for i in range(attempts))
    return tuple(islice({query.key: query for query in queries}.values(), count))


def validation_queries(n: int, count: int, seed: int) -> tuple[tuple[int, int, int], ...]:
    """Return `count` different queries (or all, if there are fewer) as [head, foot, foot], drawn from the experiment's
    seed.
    """
    stream = _stream("validation set", seed)
    wanted = min(count, count_queries(n))
    chosen: dict[tuple[int, int, int], None] = {}
    while len(chosen) < wanted:
        head, low, high = stream.sample(range(n), 3)
        chosen[head, min(low, high), max(low, high)] = None
    return tuple(chosen)


def fallback(n: int, *, participant: str, turn: int, seed: int, count: int = 8) -> tuple[Query, ...]:
    """Return random queries, marked as such, for an active sampler that has published nothing."""
    return tuple(
        Query(query.head, query.feet, score=NO_SCORE, trial_type="fallback", probability=query.probability)
        for query in candidates(Random(), n, participant=participant, turn=turn, seed=seed, count=count)
    )


def count_queries(n: int) -> int:
    """Return how many different queries n targets allow."""
    return n * (n - 1) * (n - 2) // 2


def _allowed_targets(n: int, targets: Sequence[int] | None) -> Sequence[int]:
    return range(n) if targets is None else targets


def _stream(*parts: object) -> random.Random:
    """Return a random stream for one purpose; a string seed is hashed whole, the same on every machine."""
    return random.Random(":".join(str(part) for part in parts))
