"""The figures of one participant: what can be said without comparing people, and how far they agree with others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import exp, fsum, log
from statistics import median
from typing import TYPE_CHECKING, Any

from salmon.quality.chance import at_least, chance_bound, two_sided
from salmon.quality.evidence import Evidence, Trace
from salmon.quality.thresholds import CHANCE_QUANTILE, CYCLES_BY_CHANCE, FAST_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Triads looked at for circles, of one participant.
_MOST_TRIADS = 100_000


@dataclass(frozen=True)
class Figures:
    """None where there is nothing to say: no such trials, no times, no model."""

    answers: int
    asked: int | None = None
    completeness: float | None = None
    catch_trials: int = 0
    catch_accuracy: float | None = None
    catch_p: float | None = None
    geometric_mean_rt_ms: float | None = None
    median_rt_ms: float | None = None
    fast_share: float | None = None
    shared_answers: int = 0
    agreement: float | None = None
    agreement_by_chance: float | None = None
    repeats: int = 0
    repeats_swapped: int = 0
    repeat_consistency: float | None = None
    left_share: float | None = None
    side_p: float | None = None
    longest_run: int = 0
    alternation: float | None = None
    triads: int = 0
    cycles: int = 0
    cycles_by_chance: float | None = None
    fit_answers: int = 0
    fit_accuracy: float | None = None


def figures_of(
    evidence: Evidence,
    trace: Trace,
    *,
    asked: int | None,
    others: Mapping[int, tuple[int, int]],
    counted: bool,
    coordinates: NDArray[Any] | None,
) -> Figures:
    """All figures of one trace.

    `others` holds how shared queries were answered, this participant included where `counted`. `coordinates` (n, d) is
    the newest embedding of the group.
    """
    return Figures(
        answers=trace.answers,
        asked=asked,
        completeness=min(1.0, trace.answers / asked) if asked else None,
        **_catches(trace),
        **_times(trace),
        **_agreement(trace, others, counted=counted),
        **_repeats(trace),
        **_sides(trace),
        **_circles(evidence, trace),
        **_fit(evidence, trace, coordinates),
    )


def _catches(trace: Trace) -> dict[str, Any]:
    trials, right = trace.catch_trials, trace.catch_right
    if not trials:
        return {}
    return {"catch_trials": trials, "catch_accuracy": right / trials, "catch_p": at_least(right, trials)}


def _times(trace: Trace) -> dict[str, Any]:
    """exp(mean of ln t) is less drawn by pauses than the mean; times below 1 ms count as 1 ms."""
    times = trace.times_ms
    if not times:
        return {}
    return {
        "geometric_mean_rt_ms": exp(fsum(log(max(time, 1.0)) for time in times) / len(times)),
        "median_rt_ms": median(times),
        "fast_share": sum(time < FAST_MS for time in times) / len(times),
    }


def _agreement(trace: Trace, others: Mapping[int, tuple[int, int]], *, counted: bool) -> dict[str, Any]:
    """Share of shared queries answered as the majority of the others; ties of the others are left out."""
    agreed = compared = 0
    own = dict.fromkeys(trace.shared, 0)
    for packed in trace.shared:
        own[packed] += 1
    for packed in trace.shared:
        code, low_won = packed >> 2, packed >> 1 & 1
        low, total = others.get(code, (0, 0))
        if counted:
            mine = [(other >> 1 & 1, own.get(other, 0)) for other in range(code * 4, code * 4 + 4)]
            low -= sum(won * count for won, count in mine)
            total -= sum(count for _, count in mine)
        if 2 * low != total:
            compared += 1
            agreed += (2 * low > total) == bool(low_won)
    if not compared:
        return {}
    return {
        "shared_answers": compared,
        "agreement": agreed / compared,
        "agreement_by_chance": chance_bound(compared, CHANCE_QUANTILE),
    }


def _repeats(trace: Trace) -> dict[str, Any]:
    """Each answer to a query that the same person had before, against the answer before it.

    A query that somebody met both as their own and as one that everybody is asked counts in this order.
    """
    before: dict[int, int] = {}
    repeats = same = swapped = 0
    for packed in chain(trace.own, trace.shared):
        code, detail = packed >> 2, packed & 3
        earlier = before.get(code)
        if earlier is not None:
            repeats += 1
            same += earlier >> 1 == detail >> 1
            swapped += earlier & 1 != detail & 1
        before[code] = detail
    if not repeats:
        return {}
    return {"repeats": repeats, "repeats_swapped": swapped, "repeat_consistency": same / repeats}


def _sides(trace: Trace) -> dict[str, Any]:
    if not trace.sided:
        return {}
    return {
        "left_share": trace.left / trace.sided,
        "side_p": two_sided(trace.left, trace.sided),
        "longest_run": trace.longest_run,
        "alternation": trace.alternations / (trace.sided - 1) if trace.sided > 1 else None,
    }


def _circles(evidence: Evidence, trace: Trace) -> dict[str, Any]:
    """Under one head, three feet compared pair by pair: a circle (a before b, b before c, c before a) cannot be ordered.

    Where a pair was compared more than once the last answer counts.
    """
    n = evidence.n
    wins: defaultdict[int, dict[tuple[int, int], bool]] = defaultdict(dict)
    for packed in chain(trace.own, trace.shared):
        code = packed >> 2
        wins[code // n**2][code // n % n, code % n] = bool(packed >> 1 & 1)
    triads = cycles = 0
    for pairs in wins.values():
        if len(pairs) < 3:
            continue
        above: defaultdict[int, list[int]] = defaultdict(list)
        for low, high in pairs:
            above[low].append(high)
        for low, mids in above.items():
            for mid in mids:
                for high in above.get(mid, ()):
                    if (low, high) in pairs and triads < _MOST_TRIADS:
                        triads += 1
                        # low before mid before high before low, or the other way round
                        cycles += pairs[low, mid] == pairs[mid, high] != pairs[low, high]
    return {"triads": triads, "cycles": cycles, "cycles_by_chance": CYCLES_BY_CHANCE * triads} if triads else {}


def _fit(evidence: Evidence, trace: Trace, coordinates: NDArray[Any] | None) -> dict[str, Any]:
    """Share of this person's triplets in which the group's embedding has the winner nearer than the loser."""
    packed = trace.packed()
    if coordinates is None or not packed:
        return {}
    heads, winners, losers = evidence.unpack(packed).T
    known = (heads < len(coordinates)) & (winners < len(coordinates)) & (losers < len(coordinates))
    heads, winners, losers = heads[known], winners[known], losers[known]
    if not len(heads):
        return {}
    d2_winner = ((coordinates[heads] - coordinates[winners]) ** 2).sum(axis=1)
    d2_loser = ((coordinates[heads] - coordinates[losers]) ** 2).sum(axis=1)
    return {"fit_answers": len(heads), "fit_accuracy": float((d2_winner < d2_loser).mean())}
