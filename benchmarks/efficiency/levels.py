"""From curves to tables: answers needed to reach a level, their standard errors, and paired ratios."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Curves:
    """What one sampler reached: `answers` (r,) in multiples of n, `values` (s, r) a run a row, `seeds` (s,)."""

    answers: Floats
    values: Floats
    seeds: tuple[int, ...]


def answers_needed(answers: Floats, mean: Floats, level: float, *, falling: bool = False) -> float:
    """Where a mean curve (r,) first reaches a level: its running best, with straight lines in between; inf if never.

    `falling` is for measures that get smaller, like a rank error.
    """
    sign = -1.0 if falling else 1.0
    best = np.maximum.accumulate(sign * mean)
    reached = np.flatnonzero(best >= sign * level)
    if not len(reached):
        return float("inf")
    at = int(reached[0])
    if at == 0:
        return float(answers[0])
    rise = best[at] - best[at - 1]
    return float(answers[at - 1] + (sign * level - best[at - 1]) / rise * (answers[at] - answers[at - 1]))


def resampled(curves: Curves, level: float, picks: NDArray[np.int64], *, falling: bool = False) -> Floats:
    """(b,) answers needed by the mean of each resample; picks (b, s) are rows of the curves."""
    return np.array(
        [answers_needed(curves.answers, curves.values[pick].mean(axis=0), level, falling=falling) for pick in picks]
    )


def needed_with_error(curves: Curves, level: float, *, falling: bool = False) -> tuple[float, float]:
    """Answers needed in multiples of n, and its standard error over seeds (bootstrap); nan where resamples miss it."""
    value = answers_needed(curves.answers, curves.values.mean(axis=0), level, falling=falling)
    picks = np.random.default_rng(0).integers(len(curves.values), size=(_RESAMPLES // 4, len(curves.values)))
    spread = resampled(curves, level, picks, falling=falling)
    return value, float(spread.std()) if np.isfinite(spread).all() else float("nan")


def paired_ratio(one: Curves, other: Curves, level: float, *, falling: bool = False) -> tuple[float, float, float]:
    """Answers that `one` needs divided by those `other` needs, with a 95 % bootstrap interval over common seeds.

    Seeds are drawn together, so that luck which both met cancels. Where `other` never arrives, the end of its curve
    stands for its answers, so that the ratio is too large rather than too small; where `one` never arrives it is inf.
    """
    common = sorted(set(one.seeds) & set(other.seeds))
    first, second = _rows(one, common), _rows(other, common)
    picks = np.random.default_rng(1).integers(len(common), size=(_RESAMPLES, len(common)))
    whole = np.arange(len(common))[None]
    ratios = [
        resampled(first, level, pick, falling=falling)
        / np.minimum(resampled(second, level, pick, falling=falling), second.answers[-1])
        for pick in (whole, picks)
    ]
    low, high = np.quantile(ratios[1], [0.025, 0.975], method="inverted_cdf")
    return float(ratios[0][0]), float(low), float(high)


def _rows(curves: Curves, seeds: list[int]) -> Curves:
    places = [curves.seeds.index(seed) for seed in seeds]
    return Curves(curves.answers, curves.values[places], tuple(seeds))
