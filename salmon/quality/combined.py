"""Combine what speaks for carelessness into one probability, so that no single figure decides about anybody.

Each `Sign` is the probability that a careful person looks as careless in one respect: fit to the map, agreement with
others, catch trials, repeated queries, sides, runs, changes of side and times. What careful people are like is
estimated from the group, by medians that a minority of careless people cannot move. `combine` makes one probability of
all signs. Whether the answers carry information at all is a second question (`MapFit.guess_p`): who answers far better
than a guesser is looking at the targets, however fast, and whichever side they prefer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, erfc, expm1, log, pi, sqrt, tan
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from salmon.quality import thresholds as limit
from salmon.quality.figures import Evidence, Figures, at_least, below

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Answers are grouped by the margin between both distances, into this many groups of equal size.
_MARGINS = 10
#: A combined probability is not looked at below this value, nor a single one above the other.
_LEAST_P, _MOST_P = 1e-15, 0.9


@dataclass(frozen=True)
class Sign:
    """One respect in which a careful person looks as careless with probability `p`, and why, in a sentence."""

    name: str
    p: float
    reason: str


@dataclass(frozen=True)
class MapFit:
    """How well the group's map predicts one person's answers.

    `expected` is the share that it predicts of careful people with the same queries, `z` how far this person is below
    them (in standard deviations, between people included; None for too small a group), `guess_p` the probability that
    a guesser fits as well, and `against_p` that a guesser fits as badly.
    """

    answers: int
    accuracy: float
    expected: float
    z: float | None
    guess_p: float
    against_p: float


def combine(signs: Sequence[Sign]) -> float:
    """Return the probability that a careful person has signs as strong: the Cauchy combination (Liu and Xie, 2020).

    It holds for signs that depend on one another as these do. Signs that answer the question itself weigh more.
    """
    if not signs:
        return 1.0
    weights = [limit.WEIGHTS.get(sign.name, 1.0) for sign in signs]
    values = [tan((0.5 - min(max(sign.p, _LEAST_P), _MOST_P)) * pi) for sign in signs]
    mean = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
    return atan2(1.0, mean) / pi


def fits(answered: Margins, *, without: frozenset[str]) -> dict[str, MapFit]:
    """Return the fit of everybody who has answered triplets; those left out are judged, and no part of the group.

    An answer counts by how surely people answer queries of its margin, |ln of the ratio of the distances|: an answer
    against a small margin says little. How surely is estimated from the group's own answers, without those people
    whom a guesser describes better.
    """
    names, people, margins, right = answered.names, answered.people, answered.margins, answered.right
    if not names:
        return {}
    counts = np.bincount(people, minlength=len(names))
    edges = np.quantile(margins, np.linspace(0, 1, _MARGINS + 1)[1:-1])
    groups = np.searchsorted(edges, margins, side="right")
    in_group = np.array([name not in without for name in names])
    q, gain, loss = _sureness(groups, right, in_group[people])
    in_group &= np.bincount(people, np.where(right, gain, loss)) > 0
    q, gain, loss = _sureness(groups, right, in_group[people])
    evidence_for = np.bincount(people, np.where(right, gain, loss))
    careful = np.bincount(people, q * gain + (1 - q) * loss)
    careful_sd = np.sqrt(np.bincount(people, q * (1 - q) * (gain - loss) ** 2))
    guess = np.bincount(people, 0.5 * (gain + loss))
    guess_sd = np.sqrt(np.bincount(people, 0.25 * (gain - loss) ** 2))
    # The map has learned from these answers: each of its numbers is worth about one unit of evidence to its makers.
    optimism = counts * answered.numbers / len(people)
    z = (evidence_for - careful) / np.maximum(careful_sd, 1e-12)
    counted = [float(value) for value, name in zip(z, names, strict=True) if name not in without]
    centre, spread = centre_and_spread(counted, least=1.0)
    large = len(counted) >= limit.GROUP_LEAST
    above_guess = (evidence_for - optimism - guess) / np.maximum(guess_sd, 1e-12)
    accuracy, expected = np.bincount(people, right) / counts, np.bincount(people, q) / counts
    return {
        name: MapFit(
            answers=int(counts[place]),
            accuracy=float(accuracy[place]),
            expected=float(expected[place]),
            z=(float(z[place]) - centre) / spread if large and careful_sd[place] > 0 else None,
            guess_p=normal_tail(float(above_guess[place])),
            against_p=normal_tail(-float(above_guess[place])),
        )
        for place, name in enumerate(names)
    }


@dataclass(frozen=True)
class Margins:
    """All answers that a map predicts or contradicts: (m,) arrays over the answers of all people.

    `people` says whose each is, as an index of `names`; `margins` are |ln of the ratio of the squared distances|,
    `right` whether the map predicts the answer, and `times_ms` the response times, -1 where none is known. `numbers` is
    how many numbers the map has.
    """

    names: list[str]
    people: NDArray[np.int64]
    margins: NDArray[np.float64]
    right: NDArray[np.bool_]
    times_ms: NDArray[np.float64]
    numbers: int


def margins_of(evidence: Evidence, coordinates: NDArray[Any]) -> Margins:
    """Return the margin of every remembered answer in a map (n, d)."""
    names: list[str] = []
    parts: list[tuple[NDArray[Any], ...]] = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool), np.zeros(0))]
    for name, trace in evidence.traces.items():
        rows, times = evidence.unpack(trace.packed()), np.asarray(trace.packed_ms(), dtype=np.float64)
        inside = (rows < len(coordinates)).all(axis=1)
        if not inside.any():
            continue
        head, winner, loser = (coordinates[rows[inside, column]] for column in range(3))
        near, far = ((head - winner) ** 2).sum(axis=1), ((head - loser) ** 2).sum(axis=1)
        least = np.finfo(float).tiny
        margins = np.abs(np.log(np.maximum(far, least)) - np.log(np.maximum(near, least)))
        parts.append((np.full(len(near), len(names)), margins, near < far, times[inside]))
        names.append(name)
    people, margins, right, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Margins(names, people, margins, right, times, coordinates.size)


def _sureness(
    groups: NDArray[np.int64], right: NDArray[np.bool_], counted: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return for each answer the share that the map predicts at its margin, between ½ and .99, and what an answer with
    the map and one against it say for a careful person and against a guesser (nats).
    """
    predicted = np.bincount(groups[counted & right], minlength=_MARGINS)
    total = np.bincount(groups[counted], minlength=_MARGINS)
    sure = np.clip((predicted + 1) / (total + 2), 0.5, 0.99)
    return sure[groups], np.log(2 * sure)[groups], np.log(2 * (1 - sure))[groups]


def centre_and_spread(values: Sequence[float], *, least: float) -> tuple[float, float]:
    """Return the median of a group, and its standard deviation by the median absolute deviation; at least `least`."""
    if len(values) < limit.GROUP_LEAST:
        return 0.0, least
    centre = median(values)
    return centre, max(least, limit.MAD_SCALE * median(abs(value - centre) for value in values))


@dataclass(frozen=True)
class Hesitation:
    """The rank correlation of one person's response times with the margins of their queries, and its 95 % interval.

    People need longer where the map hardly tells the feet apart, so it is negative; times that come from a program, or
    from somebody who does not look, know nothing of the margins. It is evidence, never a verdict.
    """

    answers: int
    correlation: float
    low: float
    high: float


def hesitations(answered: Margins) -> dict[str, Hesitation]:
    """Return the hesitation of everybody with enough answers whose times are known and differ.

    The interval is Fisher's, with the variance (1 + ρ²/2)/(m − 3) for ranks (Bonett and Wright, 2000).
    """
    found: dict[str, Hesitation] = {}
    for place, name in enumerate(answered.names):
        own = (answered.people == place) & (answered.times_ms >= 0)
        count = int(own.sum())
        if count < limit.HESITATION_LEAST:
            continue
        times, margins = _ranks(answered.times_ms[own]), _ranks(answered.margins[own])
        spread = float(times.std() * margins.std())
        if spread == 0:
            continue
        rho = float(((times - times.mean()) * (margins - margins.mean())).mean()) / spread
        centre = np.arctanh(np.clip(rho, -0.999999, 0.999999))
        half = 1.96 * sqrt((1 + rho**2 / 2) / (count - 3))
        found[name] = Hesitation(count, rho, float(np.tanh(centre - half)), float(np.tanh(centre + half)))
    return found


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of values, from 0; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[which]


def normal_tail(z: float) -> float:
    """Return P(Z ≥ z) for Z ~ N(0, 1)."""
    return 0.5 * erfc(z / sqrt(2.0))


def longest_run_p(longest: int, flips: int) -> float:
    """Return about P(a longest run ≥ `longest`) of a fair coin: runs so long begin as seldom as rare events."""
    if longest <= 1 or flips < longest:
        return 1.0
    begins = (flips - longest) / 2.0**longest + 1.0 / 2.0 ** (longest - 1)
    return -expm1(-begins)


class Usual:
    """The share that is usual in a group, `share`, and how far people differ from it beyond chance."""

    def __init__(self, found: Sequence[tuple[float, int]], least: int) -> None:
        known = [(share, trials) for share, trials in found if trials >= least]
        self.least = least
        self.large = len(known) >= limit.GROUP_LEAST
        self.share = min(0.98, max(0.02, median(share for share, _ in known))) if known else 0.5
        self.centre, self.spread = centre_and_spread([self._z(*each) for each in known], least=1.0)

    def p_below(self, share: float | None, trials: int) -> float | None:
        """Return the probability that a usual person has so small a share; None for too few trials or people."""
        if share is None or trials < self.least or not self.large:
            return None
        return normal_tail((self.centre - self._z(share, trials)) / self.spread)

    def _z(self, share: float, trials: int) -> float:
        return (share - self.share) * sqrt(trials / (self.share * (1.0 - self.share)))


class CarefulGroup:
    """What careful people are like, by the medians of a group of figures."""

    def __init__(self, figures: Sequence[Figures]) -> None:
        times = [log(own.geometric_mean_rt_ms) for own in figures if own.geometric_mean_rt_ms]
        large = len(times) >= limit.GROUP_LEAST
        centre, self.time_spread = centre_and_spread(times, least=limit.TIME_SPREAD)
        self.time_centre = centre if large else log(limit.USUAL_MS)
        self.agreement = Usual(
            [(own.agreement, own.shared_answers) for own in figures if own.agreement is not None], limit.AGREEMENT_LEAST
        )
        self.consistency = Usual(
            [(own.repeat_consistency, own.repeats) for own in figures if own.repeat_consistency is not None],
            limit.REPEATS_LEAST,
        )
        self.side_spread = centre_and_spread([_side_z(own) for own in figures if own.sided], least=1.0)[1]
        self.change_spread = centre_and_spread(
            [_change_z(own) for own in figures if own.alternation is not None], least=1.0
        )[1]

    def signs(self, own: Figures, fit: MapFit | None) -> tuple[Sign, ...]:
        """Return all signs that can be looked at in one person's figures."""
        return (*_fit_signs(fit), *self._answer_signs(own), *self._side_signs(own), *self._time_signs(own))

    def _answer_signs(self, own: Figures) -> list[Sign]:
        signs: list[Sign] = []
        if own.catch_accuracy is not None:
            right = round(own.catch_accuracy * own.catch_trials)
            signs.append(
                Sign(
                    "catch",
                    below(right, own.catch_trials, limit.CATCH_RIGHT),
                    f"Right in {right} of {own.catch_trials} catch trials, of which careful people miss one in twenty.",
                )
            )
        p = self.agreement.p_below(own.agreement, own.shared_answers)
        if own.agreement is not None and p is not None:
            signs.append(
                Sign(
                    "agreement",
                    p,
                    f"Agrees with the others in {percent(own.agreement)} of {own.shared_answers} shared queries;"
                    f" half of the others in {percent(self.agreement.share)} or more.",
                )
            )
        p = self.consistency.p_below(own.repeat_consistency, own.repeats)
        if own.repeat_consistency is not None and p is not None:
            signs.append(
                Sign(
                    "repeats",
                    p,
                    f"Answered {percent(own.repeat_consistency)} of {own.repeats} repeated queries as before;"
                    f" half of the others {percent(self.consistency.share)} or more.",
                )
            )
        return signs

    def _side_signs(self, own: Figures) -> list[Sign]:
        signs: list[Sign] = []
        if own.left_share is not None:
            left = own.left_share >= 0.5
            share = own.left_share if left else 1.0 - own.left_share
            signs.append(
                Sign(
                    "side",
                    2.0 * normal_tail(abs(_side_z(own)) / self.side_spread),
                    f"Chose the {'left' if left else 'right'} side in {percent(share)} of {own.sided} answers.",
                )
            )
            signs.append(
                Sign(
                    "run",
                    longest_run_p(own.longest_run, own.sided),
                    f"Chose the same side {own.longest_run} times in a row.",
                )
            )
        if own.alternation is not None:
            signs.append(
                Sign(
                    "changes",
                    2.0 * normal_tail(abs(_change_z(own)) / self.change_spread),
                    f"Changed the side after {percent(own.alternation)} of the answers; a coin does after 50 %.",
                )
            )
        return signs

    def _time_signs(self, own: Figures) -> list[Sign]:
        if own.geometric_mean_rt_ms is None or own.fast_share is None:
            return []
        z = (self.time_centre - log(own.geometric_mean_rt_ms)) / self.time_spread
        fast = round(own.fast_share * own.timed)
        return [
            Sign(
                "fast",
                normal_tail(z),
                f"Answers in {own.geometric_mean_rt_ms:.0f} ms (geometric mean); half of the others take"
                f" {np.exp(self.time_centre):.0f} ms or more.",
            ),
            Sign(
                "fast_share",
                1.0 - below(fast - 1, own.timed, limit.FAST_USUAL),
                f"{percent(own.fast_share)} of the answers came within {limit.FAST_MS:.0f} ms.",
            ),
        ]


def better_than_guessing(own: Figures, fit: MapFit | None) -> float | None:
    """Return the probability that a guesser does as well in what tells most; None where nothing tells.

    The smallest of several probabilities is multiplied by their number (Bonferroni).
    """
    found = [fit.guess_p] if fit is not None else []
    if own.agreement is not None:
        found.append(at_least(round(own.agreement * own.shared_answers), own.shared_answers))
    if own.catch_p is not None:
        found.append(own.catch_p)
    return min(1.0, len(found) * min(found)) if found else None


def percent(share: float) -> str:
    """Return a share as it is written in sentences."""
    return f"{100 * share:.0f} %"


def _fit_signs(fit: MapFit | None) -> list[Sign]:
    if fit is None or fit.z is None:
        return []
    return [
        Sign(
            "fit",
            normal_tail(-fit.z),
            f"The group's map predicts {percent(fit.accuracy)} of {fit.answers} answers; of careful people with"
            f" such queries about {percent(fit.expected)}.",
        )
    ]


def _side_z(own: Figures) -> float:
    return 2.0 * sqrt(own.sided) * ((own.left_share or 0.0) - 0.5)


def _change_z(own: Figures) -> float:
    return 2.0 * sqrt(max(1, own.sided - 1)) * ((own.alternation or 0.0) - 0.5)


__all__ = [
    "CarefulGroup",
    "Hesitation",
    "MapFit",
    "Margins",
    "Sign",
    "better_than_guessing",
    "combine",
    "fits",
    "hesitations",
    "margins_of",
]
