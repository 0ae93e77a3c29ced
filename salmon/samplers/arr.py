"""Samplers that rank all queries by one score: `ARR`, `SRR`, `Greedy` and `Uncertainty`.

They share an embedding, which `RankingSampler` refits and searches, and differ in how they choose from the ranking.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError
from salmon.geometry import Coordinates
from salmon.learning import Triplets, check_triplets, fit, log_loss
from salmon.learning.refit import adadelta
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor
from salmon.samplers.state import (
    LeaveOut,
    Round,
    ShownEmbedding,
    State,
    chosen_round,
    random_queries,
    random_round,
    round_robin,
    start_state,
)
from salmon.search import Ranked, exact_search, information_gain, uncertain_search
from salmon.search.information import log_head_posterior

Scorer = Literal["infogain", "uncertainty"]
Priority = Literal["random", "scores", "approx"]


@dataclass(frozen=True)
class SearchTask:
    """The input of one round: the answers `rows` (m, 3), the pending queries `waiting` (p, 3), and how many to find."""

    state: State
    rows: Triplets
    waiting: Triplets
    count: int
    executor: Executor | None
    stop: Callable[[int], bool] | None

    def stop_ranking(self) -> bool:
        """Return whether a ranking should end: what it has ranked so far is enough for all queries."""
        return self.stop is not None and self.stop(self.count)

    def generator(self) -> np.random.Generator:
        """Return the generator of this round; equal tasks get equal random numbers."""
        return self.state.generator(1, len(self.rows), len(self.waiting))


@dataclass(frozen=True)
class RankingSampler(ABC):
    """The base of the ranking samplers: the embedding that they search with.

    `R`: random queries only until R·n answers are in. `scorer`: information gain about the head's place, or the
    uncertainty of the answer. `ridge` is the precision of a prior on every coordinate; with 0 the embedding is fitted
    by a few epochs of Adadelta, as the published sampler did, and does not converge. `fresh_posterior`: the posterior
    of each head's place is computed from all of its answers after each refit; otherwise each answer is used once,
    under the embedding of its time.
    """

    noise: str | NoiseModel = "TSTE"
    d: int = 2
    R: float = 1
    scorer: Scorer = "infogain"
    ridge: float = 1.0
    lapse: float = 0.0
    fresh_posterior: bool = True

    def __post_init__(self) -> None:
        noise_model(self.noise, lapse=self.lapse)
        _one_of("scorer", self.scorer, ("infogain", "uncertainty"))

    @property
    def leave_out(self) -> LeaveOut:
        """Return "nobody": as published, everybody's answers are fitted."""
        return "nobody"

    @property
    def model(self) -> NoiseModel:
        """Return the noise model of refit and search."""
        return noise_model(self.noise, lapse=self.lapse)

    def start(self, n: int, seed: int) -> State:
        """Return the state before any answer."""
        state = start_state(n, self.d, seed)
        # Adadelta's published start is a thousandth of ours.
        return replace(state, coordinates=1e-3 * state.coordinates) if self.ridge == 0 else state

    def refit(
        self,
        state: State,
        triplets: ArrayLike,
        executor: Executor | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> State:
        """Return the state after these answers, which are all there are; the last embedding is the start of the fit."""
        rows = check_triplets(triplets, state.n)
        coordinates, loss, converged = self._embedding(state, rows, executor, stop)
        log_posterior = None
        if not self.fresh_posterior:
            judged = 0 if state.log_posterior is None else state.absorbed
            log_posterior = log_head_posterior(rows[judged:], coordinates, self.model)
            if state.log_posterior is not None:
                log_posterior += state.log_posterior
        return replace(
            state,
            coordinates=coordinates,
            generation=state.generation + 1,
            absorbed=len(rows),
            loss=loss,
            converged=converged,
            log_posterior=log_posterior,
        )

    def search(
        self,
        state: State,
        triplets: ArrayLike,
        pending: ArrayLike,
        count: int,
        executor: Executor | None = None,
        stop: Callable[[int], bool] | None = None,
    ) -> Round:
        """Return `count` queries in the order of asking; `pending` (p, 3) are those posted and not answered yet."""
        rows, waiting = check_triplets(triplets, state.n), check_triplets(pending, state.n)
        if len(rows) < self.R * state.n:
            return random_round(state, count, len(rows), len(waiting))
        return self.choose(SearchTask(state, rows, waiting, count, executor, stop))

    @abstractmethod
    def choose(self, task: SearchTask) -> Round:
        """Return a round by this sampler's scores; called once there are answers enough."""

    def report(self, state: State, triplets: ArrayLike, executor: Executor | None = None) -> ShownEmbedding:
        """Return the embedding to be shown and judged: that of the search itself."""
        del triplets, executor  # the search's embedding has seen them already
        # Without a ridge Adadelta stopped long before it converged.
        return ShownEmbedding(state.coordinates, self.model, self.ridge or None)

    def rank(
        self,
        state: State,
        rows: Triplets,
        keep: int,
        executor: Executor | None,
        stop: Callable[[], bool] | None,
    ) -> Ranked:
        """Return the best queries of every head by this sampler's score."""
        if self.scorer == "uncertainty":
            return uncertain_search(state.coordinates, self.model, keep)
        return exact_search(
            state.coordinates,
            rows,
            self.model,
            keep,
            executor,
            stop=stop,
            seed=state.seed,
            log_posterior=state.log_posterior,
        )

    def _embedding(
        self, state: State, rows: Triplets, executor: Executor | None, stop: Callable[[], bool] | None
    ) -> tuple[Coordinates, float, bool]:
        if self.ridge == 0:
            epochs = _epochs(len(rows), state.n, state.d)
            coordinates = adadelta(
                state.coordinates, rows, self.model, epochs=epochs, seed=state.seed + state.generation
            )
            return coordinates, log_loss(coordinates, rows, noise=self.model), False
        found = fit(
            rows,
            state.n,
            state.d,
            noise=self.model,
            ridge=self.ridge,
            start=state.coordinates,
            seed=state.seed,
            executor=executor,
            stop=stop,
        )
        return found.coordinates, found.loss, found.converged


@dataclass(frozen=True)
class ARR(RankingSampler):
    """Asynchronous round robin: every head in turn, each with one of its `n_top` best queries.

    The published sampler (Sievert, Nowak and Rogers 2023) with its arguments. As published it has no prior and uses
    each answer once; `ridge=1, fresh_posterior=True` changes both and needs far fewer answers. `priority` orders a
    round at random, by score, or by score with Gaussian noise of a tenth of the scores' range.
    """

    ridge: float = 0.0
    fresh_posterior: bool = False
    n_top: int = 1
    priority: Priority = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("priority", self.priority, ("random", "scores", "approx"))
        if self.n_top < 1:
            raise SalmonError(f"n_top is {self.n_top}.", hint="Give 1 or more.", where="n_top")

    def choose(self, task: SearchTask) -> Round:
        """Return the queries in the order of asking, none of them waiting."""
        return _choose_by_head(self, task, self.n_top, self.priority)


@dataclass(frozen=True)
class Uncertainty(RankingSampler):
    """Every head in turn, each with the query whose answer the model predicts least confidently."""

    scorer: Scorer = "uncertainty"

    def choose(self, task: SearchTask) -> Round:
        """Return the queries in random order, none of them waiting."""
        return _choose_by_head(self, task, 1, "random")


@dataclass(frozen=True)
class Greedy(RankingSampler):
    """The best queries of all, whatever their heads."""

    def choose(self, task: SearchTask) -> Round:
        """Return the queries, best first, none of them waiting."""
        best = self.rank(task.state, task.rows, task.count + len(task.waiting), task.executor, task.stop_ranking)
        chosen = np.flatnonzero(~_is_among(best.queries, task.waiting))[: task.count]
        return chosen_round(
            task.state, best.queries[chosen], best.scores[chosen], exact=best.exact, complete=best.complete
        )


@dataclass(frozen=True)
class SRR(RankingSampler):
    """A random head, and the best of `n_search` random pairs of feet for it."""

    ridge: float = 0.0
    n_search: int = 400

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_search < 1:
            raise SalmonError(f"n_search is {self.n_search}.", hint="Give 1 or more.", where="n_search")

    def choose(self, task: SearchTask) -> Round:
        """Return the queries; one that is waiting may be drawn again. One head at a time needs no executor."""
        state, generator = task.state, task.generator()
        queries, scores = np.empty((task.count, 3), dtype=np.int32), np.empty(task.count)
        for turn in range(task.count):
            if task.stop is not None and task.stop(turn):
                return chosen_round(state, queries[:turn], scores[:turn], exact=False, complete=False)
            drawn = random_queries(state.n, self.n_search, generator, head=int(generator.integers(state.n)))
            about_head = task.rows[task.rows[:, 0] == drawn[0, 0]]
            gains = information_gain(drawn, state.coordinates, about_head, self.model)
            best = int(gains.argmax())
            queries[turn], scores[turn] = drawn[best], gains[best]
        return chosen_round(state, queries, scores, exact=False, complete=True)


def _choose_by_head(sampler: RankingSampler, task: SearchTask, n_top: int, priority: Priority) -> Round:
    """Give heads their turns; each takes one of its `n_top` best queries that are neither waiting nor taken already.

    A head of which all queries are taken loses its turn.
    """
    state, waiting, generator = task.state, task.waiting, task.generator()
    heads = round_robin(state.n, task.count, generator)
    crowded = int(np.bincount(waiting[:, 0], minlength=state.n).max(initial=0))
    keep = -(-task.count // state.n) + n_top - 1 + crowded
    best = sampler.rank(state, task.rows, keep, task.executor, task.stop_ranking)
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
    """Return which queries (k,) are among the others, whichever way round the feet are."""
    if not len(others) or not len(queries):
        return np.zeros(len(queries), dtype=np.bool_)
    n = int(max(queries.max(), others.max())) + 1
    return np.isin(_keys(queries, n), _keys(others, n))


def _keys(queries: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    head, first, second = queries.astype(np.int64).T
    return (head * n + np.minimum(first, second)) * n + np.maximum(first, second)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a SalmonError for a value that is none of the choices."""
    if value not in choices:
        raise SalmonError(f"{name} is {value!r}.", hint=f"Use one of {', '.join(choices)}.", where=name)


def _epochs(m: int, n: int, d: int) -> int:
    """Return the epochs of a published refit: 200, 120 or 50 as m is at most 1, at most 3 or more times n·d·ln n."""
    ratio = m / (n * d * log(n))
    return 200 if ratio <= 1 else 120 if ratio <= 3 else 50
