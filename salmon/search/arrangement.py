"""Turning scores into a round of queries: each one is chosen as if those before it had been answered."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates
from salmon.learning.posterior import fisher_weight
from salmon.search.design import (
    Forms,
    Linearised,
    Single,
    forms_of,
    information_weights,
    quadratic_forms,
    variances,
)

# K = ΣMΣ is brought up to date this many times while every head has one turn.
_REFRESHES = 10


@dataclass(frozen=True)
class Arrangement:
    """Queries (k, 3) in the order of their turns, the score (k,) of each, and the posterior covariance after all.

    `complete` is False where the arrangement was cut short and k is less than the number of turns.
    """

    queries: NDArray[np.int32]
    scores: NDArray[np.float64]
    covariance: Coordinates
    complete: bool


def arrange(
    linear: Linearised,
    covariance: Coordinates,
    target: Coordinates,
    turns: NDArray[np.int32],
    *,
    stop: Callable[[], bool] | None = None,
) -> Arrangement:
    """Choose the feet of each turn, and count each query as asked before the next turn.

    `turns` (k, 3) has a head a row, and feet where they are settled already; feet of −1 are to be chosen, as those
    with the highest score, the fall of tr(MΣ). A query posted needs no answer to make its neighbours less urgent:
    Σ loses w/(1 + w·v) (Σg)(Σg)ᵀ. M stays for the round; K = ΣMΣ follows Σ ten times while the heads go round once.
    `stop` is asked as often.
    """
    period = max(1, round(linear.n / _REFRESHES))
    queries, scores = turns.copy(), np.zeros(len(turns))
    covariance = covariance.copy()
    spread = covariance @ target @ covariance
    for start in range(0, len(turns), period):
        if stop is not None and stop():
            return Arrangement(queries[:start], scores[:start], covariance, complete=False)
        part = slice(start, start + period)
        posted = _arrange_period(linear, covariance, spread, queries[part], scores[part])
        _deflate_spread(spread, covariance, target, posted)
        covariance -= posted @ posted.T
    return Arrangement(queries, scores, covariance, complete=True)


def _deflate_spread(spread: Coordinates, covariance: Coordinates, target: Coordinates, posted: Coordinates) -> None:
    """K = ΣMΣ after Σ has lost qqᵀ, in place: K − wqᵀ − qwᵀ with w = ΣMq − ½ q(qᵀMq), for all columns q at once."""
    moved = target @ posted
    w = covariance @ moved - 0.5 * posted @ (posted.T @ moved)
    change = w @ posted.T
    spread -= change
    spread -= change.T


def _arrange_period(
    linear: Linearised,
    covariance: Coordinates,
    spread: Coordinates,
    queries: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> Coordinates:
    """Fill in the queries and scores of some turns; returns (n·d, k) columns q with Σ_after = Σ − q qᵀ."""
    n, d = linear.coordinates.shape
    forms, spread_forms = forms_of(linear, covariance), forms_of(linear, spread)
    posted = np.zeros((n * d, len(queries)))
    posted_single = np.zeros((len(queries), d, n), dtype=np.float32)
    for rows in linear.chunks(np.arange(len(queries))):
        table = _ChunkTable.of(linear, forms, spread_forms, queries[rows, 0])
        for place, row in enumerate(rows):
            query = queries[row]
            if query[1] < 0:
                query[1:] = table.best_feet(place, posted_single[:row])
            feet = _Feet.of(linear, query)
            earlier = posted[:, :row]
            moved = feet.product(covariance) - earlier @ feet.product(earlier)
            v, kv, w = feet.product(moved), feet.product(feet.product(spread)), feet.weight
            scores[row] = w * kv / (1 + w * v)
            posted[:, row] = np.sqrt(w / (1 + w * v)) * moved
            posted_single[row] = posted[:, row].reshape(n, d).T
    return posted


@dataclass(frozen=True)
class _ChunkTable:
    """The scores of a few heads' queries, up to what was posted since: `y` (k, n, d), the rest (k, n, n)."""

    heads: NDArray[np.int32]
    y: Single
    forms: Single
    gains: Single
    weights: Single

    @classmethod
    def of(cls, linear: Linearised, forms: Forms, spread_forms: Forms, heads: NDArray[np.int32]) -> "_ChunkTable":
        y = linear.pulls(heads)
        weights = information_weights(linear, heads)
        gains = variances(quadratic_forms(linear, spread_forms, heads, y))
        gains *= weights
        return cls(heads, y, quadratic_forms(linear, forms, heads, y), gains, weights)

    def best_feet(self, place: int, posted: Single) -> tuple[int, int]:
        """The feet of the highest score; `posted` (j, d, n) are the columns of the queries since the forms were made.

        A column q takes (a_bᵀq)(a_cᵀq) from the form of b and c, and a_bᵀq = y_bᵀ(q_b − q_h).
        """
        scores = self.forms[place]
        if len(posted):
            relative = posted - posted[:, :, self.heads[place], None]
            relative *= self.y[place].T
            falls = relative.sum(axis=1)
            scores -= falls.T @ falls
        diagonal = scores.diagonal().copy()
        scores *= -2
        scores += diagonal[:, None]
        scores += diagonal
        np.maximum(scores, 0, out=scores)
        scores *= self.weights[place]
        scores += 1
        np.divide(self.gains[place], scores, out=scores)
        low, high = sorted(divmod(int(scores.argmax()), len(scores)))
        return low, high


@dataclass(frozen=True)
class _Feet:
    """A query's gradient g, its 3·d entries `values` and where they stand, and the Fisher information of its answer."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]
    weight: float

    @classmethod
    def of(cls, linear: Linearised, query: NDArray[np.int32]) -> "_Feet":
        head, first, second = query
        x = linear.coordinates[query].astype(np.float64)
        y_first = float(linear.pull[head, first]) * (x[0] - x[1])
        y_second = float(linear.pull[head, second]) * (x[0] - x[2])
        d = x.shape[1]
        places = (query.astype(np.int64)[:, None] * d + np.arange(d)).ravel()
        values = np.concatenate([y_second - y_first, y_first, -y_second])
        f = np.array([float(linear.felt[head, second]) - float(linear.felt[head, first])])
        return cls(places, values, float(fisher_weight(f, linear.lapse)[0]))

    def product(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient gᵀ times the array, over the array's first axis."""
        return self.values @ array[self.places]
