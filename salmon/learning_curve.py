"""How much accuracy further answers would bring: the learning curve of an experiment, carried on with its uncertainty.

The map predicts answers to random queries before it learns from them, so the predictions of an experiment are a curve of
accuracy against answers that no answer has flattered. The curve is taken as A − (A − ½)·(1 + m/s)^(−c) after m answers: half
at the beginning, A in the end, and near it the rate of a fit whose errors shrink as 1/√m, which costs accuracy in
proportion to 1/m (c = 1). A, s and c are not estimated but weighed: every combination on a grid counts by the
probability of what was seen, so an interval of what is still to gain includes what is not known about the curve.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Predictions until something is said.
LEAST_PREDICTIONS = 50
#: The probability with which `gain_high` is not exceeded.
SURE = 0.95
_BINS = 24
_ENDS = np.linspace(0.51, 0.99, 33)
_RATES = np.array([0.85, 1.0, 1.2])
_SCALES = np.geomspace(0.15, 80.0, 24)
#: Before anything is seen, ln(s / (n·d)) is taken as N(ln 1.5, .8²), and a rate of 1 as twice as likely as the others. In
#: simulated experiments s was .6 to 1.6 times n·d, less where queries are chosen; noisy answers give more.
_USUAL_SCALE, _SCALE_SPREAD = 1.5, 0.8
#: Looked at are futures of up to so many times the answers so far.
_FUTURE = 50.0


@dataclass(frozen=True)
class Outlook:
    """What further answers would bring: accuracy now, and what is still to gain, if one never stopped.

    `gain` is the median, `gain_high` exceeds the truth with 95 % probability. `more` is how many answers are needed until
    `gain_high` is no more than what was called worth having, as far as one can tell now; None if that is far away.
    """

    predictions: int
    accuracy: float
    gain: float
    gain_high: float
    more: int | None


def outlook(history: Iterable[tuple[float, float, float]], *, n: int, d: int, worth: float) -> Outlook | None:
    """Return the outlook of an experiment of n targets in d dimensions; None for fewer than 50 predictions.

    `history` holds, for each generation of the map, the answers it had seen, and how many predictions were right and
    were made until then.
    """
    seen, right, made = bins(history)
    if made.sum() < LEAST_PREDICTIONS:
        return None
    now = float(seen[-1])
    ends, scales, rates = (part.ravel() for part in np.meshgrid(_ENDS, n * d * _SCALES, _RATES, indexing="ij"))
    expected = np.clip(_accuracy(seen[None, :], ends[:, None], scales[:, None], rates[:, None]), 1e-6, 1 - 1e-6)
    evidence = (right * np.log(expected) + (made - right) * np.log1p(-expected)).sum(axis=1)
    evidence += np.where(rates == 1.0, np.log(2.0), 0.0)
    evidence -= 0.5 * (np.log(scales / (n * d * _USUAL_SCALE)) / _SCALE_SPREAD) ** 2
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    accuracy = float(weights @ _accuracy(now, ends, scales, rates))
    gains = ends - _accuracy(now, ends, scales, rates)
    gain_high = _quantile(gains, weights, SURE)
    more = 0 if gain_high <= worth else _more(now, ends, scales, rates, weights, worth)
    return Outlook(int(made.sum()), accuracy, _quantile(gains, weights, 0.5), gain_high, more)


def bins(history: Iterable[tuple[float, float, float]]) -> tuple[Floats, Floats, Floats]:
    """Return (answers seen, right, predictions) of at most 24 successive parts with about as many predictions each.

    Behind them stands the newest map, which has predicted nothing yet.
    """
    rows = np.array([row for row in history if row[2] > 0], dtype=np.float64).reshape(-1, 3)
    if not len(rows):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    each = max(1.0, rows[-1, 2] / _BINS)
    kept = np.union1d(np.flatnonzero(np.diff(np.floor(rows[:, 2] / each), prepend=0.0) > 0), [len(rows) - 1])
    ends = rows[kept]
    before = np.vstack([np.zeros(3), ends[:-1]])
    seen = (before[:, 0] + ends[:, 0]) / 2
    right, made = (np.append(ends[:, column] - before[:, column], 0.0) for column in (1, 2))
    return np.append(seen, rows[-1, 0]), right, made


def _accuracy(answers: Floats | float, ends: Floats, scales: Floats, rates: Floats) -> Floats:
    return ends - (ends - 0.5) * (1.0 + answers / scales) ** -rates


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    place = int(np.searchsorted(np.cumsum(weights[order]), share))
    return float(values[order][min(place, len(values) - 1)])


def _more(now: float, ends: Floats, scales: Floats, rates: Floats, weights: Floats, worth: float) -> int | None:
    """Return how many more answers bring what is left to gain down to `worth` with 95 % probability."""
    # The bound falls with every further answer, so that halving finds the place.
    least, most = 0.0, (_FUTURE - 1.0) * now
    for _ in range(12):
        middle = (least + most) / 2
        left = _quantile(ends - _accuracy(now + middle, ends, scales, rates), weights, SURE)
        least, most = (least, middle) if left <= worth else (middle, most)
    return round(most) if most < (_FUTURE - 1.0) * now else None
