"""Samplers that rank all queries by one score: `ARR`, `SRR`, `Greedy` and `Uncertainty`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.learning import Triplets
from salmon.parallel import Executor
from salmon.samplers.active.ranking_sampler import RankingSampler, Scorer, one_of
from salmon.samplers.active.state import Round, State, chosen_round, random_queries, round_robin
from salmon.search import information_gain

Priority = Literal["random", "scores", "approx"]


@dataclass(frozen=True)
class ARR(RankingSampler):
    """Asynchronous round robin: every head in turn, each with one of its `n_top` best queries.

    The published sampler (Sievert, Nowak and Rogers 2023) with its arguments. As published it has no
    prior and judges each answer once; `ridge=1, fresh_posterior=True` repairs both and needs far fewer answers. `priority`: the order of a round is random, by score, or by score with Gaussian
    noise of a tenth of the scores' range.
    """

    ridge: float = 0.0
    fresh_posterior: bool = False
    n_top: int = 1
    priority: Priority = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("priority", self.priority, ("random", "scores", "approx"))
        if self.n_top < 1:
            raise SalmonError(f"n_top is {self.n_top}.", hint="Give 1 or more.", where="n_top")

    def choose(
        self,
        state: State,
        rows: Triplets,
        waiting: Triplets,
        count: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Round:
        """`count` queries in the order of asking, none of them `waiting`."""
        return _round_of_heads(self, state, rows, waiting, count, self.n_top, self.priority, executor, stop)


@dataclass(frozen=True)
class Uncertainty(RankingSampler):
    """Every head in turn, each with the query whose answer the embedding finds hardest to foretell."""

    scorer: Scorer = "uncertainty"

    def choose(
        self,
        state: State,
        rows: Triplets,
        waiting: Triplets,
        count: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Round:
        """`count` queries in the order of asking, none of them `waiting`."""
        return _round_of_heads(self, state, rows, waiting, count, 1, "random", executor, stop)


@dataclass(frozen=True)
class Greedy(RankingSampler):
    """The best queries of all, whatever their heads."""

    def choose(
        self,
        state: State,
        rows: Triplets,
        waiting: Triplets,
        count: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Round:
        """`count` queries, best first, none of them `waiting`."""
        best = self.ranked(state, rows, count + len(waiting), executor, stop)
        chosen = np.flatnonzero(~_is_among(best.queries, waiting))[:count]
        return chosen_round(state, best.queries[chosen], best.scores[chosen], exact=best.exact, complete=best.complete)


@dataclass(frozen=True)
class SRR(RankingSampler):
    """A random head, and the best of `n_search` random pairs of feet for it."""

    ridge: float = 0.0
    n_search: int = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_search < 1:
            raise SalmonError(f"n_search is {self.n_search}.", hint="Give 1 or more.", where="n_search")

    def choose(
        self,
        state: State,
        rows: Triplets,
        waiting: Triplets,
        count: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Round:
        """`count` queries; a query that is waiting may be drawn again."""
        del executor  # one head at a time is too little to send anywhere
        generator = state.generator(1, len(rows), len(waiting))
        queries, scores = np.empty((count, 3), dtype=np.int32), np.empty(count)
        for turn in range(count):
            if stop is not None and stop():
                return chosen_round(state, queries[:turn], scores[:turn], exact=False, complete=False)
            drawn = random_queries(state.n, self.n_search, generator, head=int(generator.integers(state.n)))
            gains = information_gain(drawn, state.coordinates, rows[rows[:, 0] == drawn[0, 0]], self.model)
            best = int(gains.argmax())
            queries[turn], scores[turn] = drawn[best], gains[best]
        return chosen_round(state, queries, scores, exact=False, complete=True)


def _round_of_heads(
    sampler: RankingSampler,
    state: State,
    rows: Triplets,
    waiting: Triplets,
    count: int,
    n_top: int,
    priority: Priority,
    executor: Executor | None,
    stop: Callable[[], bool] | None,
) -> Round:
    """Heads in turn; each takes one of its `n_top` best queries that are neither pending nor taken in this round.

    A head of which all queries are taken loses its turn.
    """
    generator = state.generator(1, len(rows), len(waiting))
    heads = round_robin(state.n, count, generator)
    crowded = int(np.bincount(waiting[:, 0], minlength=state.n).max(initial=0))
    best = sampler.ranked(state, rows, -(-count // state.n) + n_top - 1 + crowded, executor, stop)
    free = np.flatnonzero(~_is_among(best.queries, waiting))
    of_head = [free[best.queries[free, 0] == head].tolist() for head in range(state.n)]
    chosen: list[int] = []
    for head in heads:
        top = of_head[head][:n_top]
        if top:
            chosen.append(top[int(generator.integers(len(top)))])
            of_head[head].remove(chosen[-1])
    order = np.array(chosen, dtype=int)
    scores = best.scores[order]
    if priority == "scores":
        order = order[np.argsort(-scores, kind="stable")]
    elif priority == "approx":
        blurred = scores + 0.1 * np.ptp(scores) * generator.standard_normal(len(scores)) if len(scores) else scores
        order = order[np.argsort(-blurred, kind="stable")]
    return chosen_round(state, best.queries[order], best.scores[order], exact=best.exact, complete=best.complete)


def _is_among(queries: NDArray[np.int32], others: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which queries (k,) are among the others, whichever way round the feet are."""
    if not len(others) or not len(queries):
        return np.zeros(len(queries), dtype=np.bool_)
    n = int(max(queries.max(), others.max())) + 1
    return np.isin(_keys(queries, n), _keys(others, n))


def _keys(queries: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    head, first, second = queries.astype(np.int64).T
    return (head * n + np.minimum(first, second)) * n + np.maximum(first, second)
