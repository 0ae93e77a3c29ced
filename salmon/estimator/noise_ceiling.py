"""Estimate how well any embedding could predict: people who get the same query again do not always agree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salmon.estimator.cross_validation import Interval
from salmon.learning import Triplets


@dataclass(frozen=True)
class NoiseCeiling:
    """The noise ceiling from `queries` that were answered more than once, `answers` in all.

    `agreement` is the probability that two answers to one query agree; no embedding predicts better than `ceiling`.
    """

    agreement: Interval
    ceiling: Interval
    queries: int
    answers: int


def noise_ceiling(triplets: Triplets) -> NoiseCeiling | None:
    """Return the ceiling from repeated queries among these answers; None if there are fewer than two repeated queries.

    If a query's likelier answer has the probability p, two answers agree with the probability a = p² + (1 − p)², so
    that p = (1 + √(2a − 1)) / 2. That is concave in a: with the mean of a in its place the result is an upper bound of
    the mean of p, and may not be reached. Each query's a is estimated without bias from the pairs of its answers.
    """
    if not len(triplets):
        return None
    counts, wins = _answers_by_query(triplets)
    repeated = counts > 1
    if repeated.sum() < 2:
        return None
    counts, wins = counts[repeated], wins[repeated]
    pairs = counts * (counts - 1)
    agreement = (wins * (wins - 1) + (counts - wins) * (counts - wins - 1)) / pairs
    # Queries count by their answers: accuracy, too, is taken over answers.
    weights = counts / counts.sum()
    mean = float(weights @ agreement)
    error = float(np.sqrt((weights**2 * (agreement - mean) ** 2).sum()))
    low, high = max(0.0, mean - 1.96 * error), min(1.0, mean + 1.96 * error)
    return NoiseCeiling(
        agreement=Interval(mean, low, high),
        ceiling=Interval(*(_likelier(share) for share in (mean, low, high))),
        queries=int(repeated.sum()),
        answers=int(counts.sum()),
    )


def _likelier(agreement: float) -> float:
    return (1.0 + float(np.sqrt(max(0.0, 2.0 * agreement - 1.0)))) / 2.0


def _answers_by_query(triplets: Triplets) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each query (q,) how many answers it has, and how often its foot of smaller index won."""
    heads, winners, losers = triplets.astype(np.int64).T
    low, high = np.minimum(winners, losers), np.maximum(winners, losers)
    n = int(triplets.max()) + 1
    _, which = np.unique((heads * n + low) * n + high, return_inverse=True)
    first_won = winners == low
    return np.bincount(which).astype(np.float64), np.bincount(which[first_won], minlength=which.max() + 1).astype(
        np.float64
    )
