"""Define the state of an active sampler and the rounds that it proposes: plain values that can be sent and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates
from salmon.learning.features import Features
from salmon.learning.objective import Precision
from salmon.noise import NoiseModel
from salmon.records import TrialType

#: Whose answers are left out of a model.
LeaveOut = Literal["clickers", "nobody"]


@dataclass(frozen=True)
class State:
    """A sampler's embedding between two refits.

    `coordinates` (n, d); `generation` counts the refits; `absorbed` the answers that the last one saw; `loss` is its
    mean loss. `log_posterior` (n, n) is only there where a sampler keeps the places of heads from refit to refit.
    `features` are what is known about the targets, and `feature_weight` is how much the last refit found them to
    explain.
    """

    coordinates: Coordinates
    seed: int
    generation: int = 0
    absorbed: int = 0
    loss: float = float("nan")
    converged: bool = True
    log_posterior: Coordinates | None = None
    features: Features | None = None
    feature_weight: float | None = None

    @property
    def n(self) -> int:
        """Return the number of targets."""
        return self.coordinates.shape[0]

    @property
    def d(self) -> int:
        """Return the dimensions of the embedding."""
        return self.coordinates.shape[1]

    def generator(self, *occasion: int) -> np.random.Generator:
        """Return random numbers that depend on the seed, the generation, the answers absorbed and the occasion, on
        nothing else.

        What makes two rounds differ (answers in, queries pending) belongs to the occasion: without it a second round
        from the same state would draw the same random queries again.
        """
        return np.random.default_rng([self.seed, self.generation, self.absorbed, *occasion])


@dataclass(frozen=True)
class ShownEmbedding:
    """The embedding that is shown and judged: `coordinates` (n, d), and the noise model and ridge of its fit.

    `ridge` is None where the coordinates are not those of a converged fit; `precision`
    replaces it where features are known.
    """

    coordinates: Coordinates
    noise: NoiseModel
    ridge: float | None
    precision: Precision | None = None


@dataclass(frozen=True)
class Round:
    """Queries to be asked, in this order.

    `queries` (k, 3) int32 [head, foot, foot]; `scores` (k,); `trial_types` says of each whether it was chosen
    ("active") or drawn ("random"); `probabilities` (k,) are those with which a turn draws exactly this query, 0
    where it was chosen. `exact` is False where only a part of all queries was scored, `complete` where the search was
    cut short: there are fewer queries than were asked for, or fewer were scored.
    """

    queries: NDArray[np.int32]
    scores: NDArray[np.float64]
    trial_types: tuple[TrialType, ...]
    probabilities: NDArray[np.float64]
    generation: int
    exact: bool = True
    complete: bool = True

    def __len__(self) -> int:
        return len(self.queries)


def start_state(n: int, d: int, seed: int) -> State:
    """Return the state before any answer: N(0, .1²) coordinates."""
    return State(0.1 * np.random.default_rng([seed, n, d]).standard_normal((n, d)), seed)


def number_of_queries(n: int) -> int:
    """Return the number of all queries about n targets: each head with each unordered pair of the others."""
    return n * (n - 1) * (n - 2) // 2


def random_queries(n: int, count: int, generator: np.random.Generator, head: int | None = None) -> NDArray[np.int32]:
    """Return (count, 3) queries drawn independently, each of all queries (of this head, if it is given) equally
    likely.
    """
    heads = generator.integers(0, n, count) if head is None else np.full(count, head)
    first = generator.integers(0, n - 1, count)
    second = generator.integers(0, n - 2, count)
    # The k-th target that is not the head; then the k-th that is neither the head nor the first foot.
    first += first >= heads
    low, high = np.minimum(heads, first), np.maximum(heads, first)
    second += second >= low
    second += second >= high
    feet = np.sort(np.stack([first, second], axis=1), axis=1)
    return np.concatenate([heads[:, None], feet], axis=1).astype(np.int32)


def round_robin(n: int, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Return (count,) heads: all n in random order, then all again in another."""
    rounds = -(-count // n)
    return np.concatenate([generator.permutation(n) for _ in range(rounds)] or [np.zeros(0, int)])[:count].astype(
        np.int32
    )


def random_round(state: State, count: int, answers: int = 0, pending: int = 0) -> Round:
    """Return a round of random queries only, marked as such.

    Other queries are drawn for every number of answers and of pending queries.
    """
    return Round(
        queries=random_queries(state.n, count, state.generator(0, answers, pending)),
        scores=np.zeros(count),
        trial_types=("random",) * count,
        probabilities=np.full(count, 1 / number_of_queries(state.n)),
        generation=state.generation,
    )


def chosen_round(
    state: State,
    queries: NDArray[np.int32],
    scores: Sequence[float] | NDArray[np.float64],
    *,
    exact: bool,
    complete: bool,
) -> Round:
    """Return a round of queries that were chosen by their scores."""
    return Round(
        queries=queries,
        scores=np.asarray(scores, dtype=np.float64),
        trial_types=("active",) * len(queries),
        probabilities=np.zeros(len(queries)),
        generation=state.generation,
        exact=exact,
        complete=complete,
    )
