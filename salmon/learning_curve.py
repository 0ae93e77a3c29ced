"""How much accuracy further answers would bring: the learning curve of an experiment, carried on with its uncertainty.

The map predicts answers to random queries before it learns from them, so the predictions of an experiment are a curve
of accuracy against answers that no answer has flattered. The curve is taken as A − (A − ½)·(1 + m/s)^(−c) after m
answers: half at the beginning, A in the end, and near it the rate of a fit whose errors shrink as 1/√m, which costs
accuracy in proportion to 1/m (c = 1). A, s and c are not estimated but weighed: every combination on a grid counts by
the probability of what was seen, so an interval of what is still to gain includes what is not known about the curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Predictions, and answers a target, until something is said: with fewer it is too early.
LEAST_PREDICTIONS = 200
LEAST_ANSWERS = 8
#: The probability with which `gain_high` is not exceeded, and that of the interval of further answers.
SURE = 0.95
#: A stopping rule is looked at whenever the answers have grown by this factor. Over all looks together, the probability
#: that it stops although the next answers would bring more than was called worth having is at most `ALPHA`.
LOOKS = 1.2
ALPHA = 0.05
_BINS = 24
_ENDS = np.linspace(0.51, 0.99, 33)
_RATES = np.array([0.85, 1.0, 1.2])
_SCALES = np.geomspace(0.15, 80.0, 24)
#: Before anything is seen, ln(s / (n·d)) is taken as N(ln 1.5, .8²), and a rate of 1 as twice as likely as the others.
#: In simulated experiments s was .6 to 1.6 times n·d, less where queries are chosen; noisy answers give more.
_USUAL_SCALE, _SCALE_SPREAD = 1.5, 0.8
#: Looked at are futures of up to so many times the answers so far.
_FUTURE = 50.0


@dataclass(frozen=True)
class LearningCurve:
    """The curves that an experiment may be on after `answers`, each with its probability given `predictions`."""

    answers: float
    predictions: int
    ends: Floats = field(repr=False)
    scales: Floats = field(repr=False)
    rates: Floats = field(repr=False)
    weights: Floats = field(repr=False)

    def accuracy(self) -> float:
        """Return the accuracy expected now."""
        return float(self.weights @ self._at(self.answers))

    def gain(self, share: float, *, more: float = inf) -> float:
        """Return what so many more answers bring; the truth is below it with this probability."""
        return _quantile(self._gains(more), self.weights, share)

    def chance_of_gain(self, worth: float, *, more: float) -> float:
        """Return the probability that so many more answers bring more than `worth`."""
        return float(self.weights[self._gains(more) > worth].sum())

    def more_answers(self, worth: float, share: float) -> float:
        """Return how many more answers are needed until no more than `worth` is left to gain; the truth is below it
        with this probability.
        """
        above = np.maximum(self.ends - 0.5, worth)
        needed = self.scales * ((above / worth) ** (1 / self.rates) - 1.0)
        return _quantile(np.maximum(0.0, needed - self.answers), self.weights, share)

    def _gains(self, more: float) -> Floats:
        return (self.ends if more == inf else self._at(self.answers + more)) - self._at(self.answers)

    def _at(self, answers: float) -> Floats:
        return _accuracy(answers, self.ends, self.scales, self.rates)


def learning_curve(history: Iterable[tuple[float, float, float]], *, n: int, d: int) -> LearningCurve | None:
    """Return the curve of an experiment of n targets in d dimensions; None where it is too early to draw one.

    `history` holds, for each generation of the map, the answers it had seen, and how many predictions were right and
    were made until then.
    """
    seen, right, made = bins(history)
    if made.sum() < LEAST_PREDICTIONS or seen[-1] < LEAST_ANSWERS * n:
        return None
    ends, scales, rates = (part.ravel() for part in np.meshgrid(_ENDS, n * d * _SCALES, _RATES, indexing="ij"))
    expected = np.clip(_accuracy(seen[None, :], ends[:, None], scales[:, None], rates[:, None]), 1e-6, 1 - 1e-6)
    evidence = (right * np.log(expected) + (made - right) * np.log1p(-expected)).sum(axis=1)
    evidence += np.where(rates == 1.0, np.log(2.0), 0.0)
    evidence -= 0.5 * (np.log(scales / (n * d * _USUAL_SCALE)) / _SCALE_SPREAD) ** 2
    weights = np.exp(evidence - evidence.max())
    return LearningCurve(float(seen[-1]), int(made.sum()), ends, scales, rates, weights / weights.sum())


@dataclass(frozen=True)
class Outlook:
    """What further answers would bring: accuracy now, and what is still to gain, if one never stopped.

    `gain` is the median, `gain_high` exceeds the truth with 95 % probability. `more` is how many answers are needed
    until no more than what was called worth having is left to gain, as far as one can tell now, and (`more_low`,
    `more_high`) its 95 % interval; None if that is far away.
    """

    predictions: int
    accuracy: float
    gain: float
    gain_high: float
    more: int | None
    more_low: int = 0
    more_high: int | None = None

    def bounded(self, gain: float, gain_high: float) -> Outlook:
        """Return this outlook with no more to gain than something else allows, and an upper bound no higher than that
        allows.
        """
        high = min(self.gain_high, max(0.0, gain_high))
        return replace(self, gain=min(self.gain, high, max(0.0, gain)), gain_high=high)


def outlook(history: Iterable[tuple[float, float, float]], *, n: int, d: int, worth: float) -> Outlook | None:
    """Return the outlook of an experiment, as `learning_curve` reads its history."""
    curve = learning_curve(history, n=n, d=d)
    if curve is None:
        return None
    low, more, high = (curve.more_answers(worth, share) for share in ((1 - SURE) / 2, 0.5, (1 + SURE) / 2))
    furthest = (_FUTURE - 1.0) * curve.answers
    return Outlook(
        curve.predictions,
        curve.accuracy(),
        curve.gain(0.5),
        curve.gain(SURE),
        round(more) if more < furthest else None,
        round(min(low, furthest)),
        round(high) if high < furthest else None,
    )


@dataclass(frozen=True)
class Look:
    """One look of a stopping rule: after `answers`, `chance` of a gain above the
    wanted one, allowed up to `allowed`.
    """

    answers: float
    chance: float
    allowed: float

    @property
    def stops(self) -> bool:
        """Whether the experiment has what it wanted."""
        return self.chance <= self.allowed


def last_look(history: Iterable[tuple[float, float, float]], *, n: int, d: int, worth: float, per: int) -> Look | None:
    """Return the last look at whether `per` more answers bring more than `worth`; None before the first.

    The first look is after `per` answers, and each sees only the answers until then. The k-th from 0 may be wrong with
    a probability of ALPHA / ((k + 1)(k + 2)), which sums to ALPHA however long one looks.
    """
    start, *rows = _since_the_last_start(history)
    if not rows or rows[-1][0] < per:
        return None
    number = int(log(rows[-1][0] / per) / log(LOOKS) + 1e-9)
    until = per * LOOKS**number + 0.5
    curve = learning_curve([start, *(row for row in rows if row[0] <= until)], n=n, d=d)
    if curve is None:
        return None
    return Look(curve.answers, curve.chance_of_gain(worth, more=per), ALPHA / ((number + 1) * (number + 2)))


def bins(history: Iterable[tuple[float, float, float]]) -> tuple[Floats, Floats, Floats]:
    """Return (answers seen, right, predictions) of at most 24 successive parts with about as many predictions each.

    Behind them stands the newest map, which has predicted nothing yet.
    """
    start, *lines = _since_the_last_start(history)
    rows = np.array(lines, dtype=np.float64).reshape(-1, 3)
    if not len(rows):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    each = max(1.0, rows[-1, 2] / _BINS)
    kept = np.union1d(np.flatnonzero(np.diff(np.floor(rows[:, 2] / each), prepend=0.0) > 0), [len(rows) - 1])
    ends = rows[kept]
    before = np.vstack([start, ends[:-1]])
    seen = (before[:, 0] + ends[:, 0]) / 2
    right, made = (np.append(ends[:, column] - before[:, column], 0.0) for column in (1, 2))
    return np.append(seen, rows[-1, 0]), right, made


def _since_the_last_start(history: Iterable[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Return the line at which the counters last began from 0, and the lines with predictions after it.

    The learning begins again after an erasure, and so do its counters. A difference between counters from before and
    after means nothing, so every line goes on from the one before it, or everything before it is dropped.
    """
    kept = [(0.0, 0.0, 0.0)]
    for line in history:
        if not _goes_on(kept[-1], line):
            kept = [(0.0, 0.0, 0.0)]
        if line[2] == 0:
            kept = [(line[0], 0.0, 0.0)]
        elif _goes_on(kept[-1], line):
            kept.append(line)
    return kept


def _goes_on(before: tuple[float, float, float], line: tuple[float, float, float]) -> bool:
    """Return whether no counter of a line is below the one before, and no more predictions were right than made."""
    seen, right, made = (now - then for now, then in zip(line, before, strict=True))
    return seen >= 0 and 0 <= right <= made


def _accuracy(answers: Floats | float, ends: Floats, scales: Floats, rates: Floats) -> Floats:
    return ends - (ends - 0.5) * (1.0 + answers / scales) ** -rates


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    place = int(np.searchsorted(np.cumsum(weights[order]), share))
    return float(values[order][min(place, len(values) - 1)])
