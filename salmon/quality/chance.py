"""What a fair coin would do, and what is far from the rest of a group."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma, log
from statistics import median

from salmon.quality.thresholds import DEVIATIONS, GROUP_LEAST, MAD_SCALE


def at_least(successes: int, trials: int) -> float:
    """P(X ≥ k) for X ~ Binomial(n, ½): the chance that a guesser does as well."""
    return _tail(trials - successes, trials)


def two_sided(successes: int, trials: int) -> float:
    """P(|X − n/2| ≥ |k − n/2|) for X ~ Binomial(n, ½), exact: the binomial test of a fair coin."""
    return min(1.0, 2.0 * _tail(min(successes, trials - successes), trials))


def chance_bound(trials: int, quantile: float) -> float:
    """The smallest share k/n with P(X ≤ k) ≥ `quantile` for X ~ Binomial(n, ½): most guessers do no better."""
    successes = (trials + 1) // 2
    while successes < trials and _tail(successes, trials) < quantile:
        successes += 1
    return successes / trials if trials else 1.0


def outlier_bound(values: Sequence[float]) -> float | None:
    """Median − 3 · 1.4826 · MAD (Leys et al. 2013); None for too small a group, or one without any spread."""
    if len(values) < GROUP_LEAST:
        return None
    centre = median(values)
    deviation = MAD_SCALE * median(abs(value - centre) for value in values)
    return centre - DEVIATIONS * deviation if deviation > 0 else None


def _tail(successes: int, trials: int) -> float:
    """P(X ≤ k) for X ~ Binomial(n, ½), summed from the largest term outwards so that nothing is lost."""
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    if 2 * successes > trials:
        return 1.0 - _tail(trials - successes - 1, trials)
    term = exp(lgamma(trials + 1) - lgamma(successes + 1) - lgamma(trials - successes + 1) - trials * log(2.0))
    total = 0.0
    for k in range(successes, -1, -1):
        total += term
        term *= k / (trials - k + 1)
        if term < 1e-18 * total:
            break
    return min(1.0, total)
