"""Compute the figures by which participants are judged, from one pass over the answers.

`Evidence` remembers a bounded number of answers of each participant, each packed into one whole number, so that a
million answers take 8 MB, and their times 12; n must be below a million. `figures_of` computes what can be said about
one participant without comparing people, and how far they agree with others. The first functions give what guessing
explains.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import exp, fsum, lgamma, log, log1p
from statistics import median
from typing import TYPE_CHECKING, Any

from salmon.quality.thresholds import CHANCE_QUANTILE, CYCLES_BY_CHANCE, FAST_MS
from salmon.records import Answer

if TYPE_CHECKING:
    from numpy.typing import NDArray


def at_least(successes: int, trials: int) -> float:
    """Return P(X ≥ k) for X ~ Binomial(n, ½): the probability that a guesser does as well."""
    return _tail(trials - successes, trials)


def two_sided(successes: int, trials: int) -> float:
    """Return P(|X − n/2| ≥ |k − n/2|) for X ~ Binomial(n, ½), exactly: the binomial test of a fair coin."""
    return min(1.0, 2.0 * _tail(min(successes, trials - successes), trials))


def chance_bound(trials: int, quantile: float) -> float:
    """Return the smallest share k/n with P(X ≤ k) ≥ `quantile` for X ~ Binomial(n, ½): most guessers do no better."""
    successes = (trials + 1) // 2
    while successes < trials and _tail(successes, trials) < quantile:
        successes += 1
    return successes / trials if trials else 1.0


def below(successes: int, trials: int, share: float) -> float:
    """Return P(X ≤ k) for X ~ Binomial(n, share), 0 < share < 1."""
    terms = (
        exp(lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) + k * log(share) + (trials - k) * log1p(-share))
        for k in range(successes + 1)
    )
    return min(1.0, fsum(terms))


def _tail(successes: int, trials: int) -> float:
    """Return P(X ≤ k) for X ~ Binomial(n, ½), summed from the largest term outwards so that nothing is lost."""
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


#: Answers of one participant that are remembered; what comes later is counted, and left out of what needs each answer.
MOST_ANSWERS = 20_000

#: Kinds of trials that every participant is asked, so that they can be compared.
SHARED_TYPES = frozenset({"validation", "shared", "fixed"})


@dataclass(slots=True)
class Trace:
    """What is remembered of one participant.

    `own` and `shared` hold packed answers in order, and `own_ms` and `shared_ms` their response times, -1 where none is
    known. `times_ms` holds all known ones.
    """

    answers: int = 0
    catch_trials: int = 0
    catch_right: int = 0
    sided: int = 0
    left: int = 0
    alternations: int = 0
    run: int = 0
    longest_run: int = 0
    last_left: int = -1
    times_ms: array[float] = field(default_factory=lambda: array("d"))
    own: array[int] = field(default_factory=lambda: array("Q"))
    shared: array[int] = field(default_factory=lambda: array("Q"))
    own_ms: array[float] = field(default_factory=lambda: array("f"))
    shared_ms: array[float] = field(default_factory=lambda: array("f"))

    def packed(self) -> array[int]:
        """Return all remembered answers that are triplets."""
        return self.own + self.shared

    def packed_ms(self) -> array[float]:
        """Return the response times of the same answers."""
        return self.own_ms + self.shared_ms


class Evidence:
    """Collects answers in the order of the stream; `traces` holds what is remembered, by participant.

    `obvious` are the queries [head, nearer, farther] that the experimenter names for catch trials.
    """

    def __init__(self, n: int, obvious: Sequence[tuple[int, int, int]] = ()) -> None:
        self.n = n
        self._obvious = obvious
        self.traces: dict[str, Trace] = defaultdict(Trace)

    def add(self, answer: Answer) -> None:
        """Add one more answer. Practice is ignored, and catch trials are only counted."""
        served = answer.served
        self.add_columns(
            [served.participant],
            [served.trial_type],
            [served.head],
            [served.left],
            [served.right],
            [answer.winner],
            [answer.timing.rt_ms],
        )

    def add_columns(
        self,
        participants: Sequence[str],
        trial_types: Sequence[str],
        heads: Sequence[int],
        lefts: Sequence[int],
        rights: Sequence[int],
        winners: Sequence[int],
        times_ms: Sequence[float],
    ) -> None:
        """Add answers, each given by its fields."""
        given = zip(participants, trial_types, heads, lefts, rights, winners, times_ms, strict=True)
        for participant, trial_type, head, left, right, winner, rt_ms in given:
            if trial_type == "practice":
                continue
            trace = self.traces[participant]
            trace.answers += 1
            self._note_side(trace, 1 if winner == left else 0)
            if rt_ms >= 0 and len(trace.times_ms) < MOST_ANSWERS:
                trace.times_ms.append(rt_ms)
            if trial_type == "catch":
                self._note_catch(trace, head, left, right, winner)
                continue
            shared = trial_type in SHARED_TYPES
            kept, kept_ms = (trace.shared, trace.shared_ms) if shared else (trace.own, trace.own_ms)
            if len(kept) < MOST_ANSWERS:
                kept.append(self.pack(head, left, right, winner))
                kept_ms.append(max(rt_ms, -1.0))

    def pack(self, head: int, left: int, right: int, winner: int) -> int:
        """Return ((head · n + low) · n + high) · 4 + 2 · [the low foot won] + [the low foot stood left]."""
        low, high = (left, right) if left < right else (right, left)
        return ((head * self.n + low) * self.n + high) * 4 + 2 * (winner == low) + (left == low)

    def unpack(self, packed: Sequence[int]) -> NDArray[Any]:
        """Return (m, 3) int64 rows [head, winner, loser] of packed answers."""
        import numpy as np

        numbers = np.asarray(packed, dtype=np.uint64).astype(np.int64)
        low_won, codes = (numbers >> 1) & 1 == 1, numbers >> 2
        high, low, heads = codes % self.n, codes // self.n % self.n, codes // self.n**2
        return np.stack([heads, np.where(low_won, low, high), np.where(low_won, high, low)], axis=1)

    def shared_counts(self, without: frozenset[str]) -> Mapping[int, tuple[int, int]]:
        """Return shared query → (answers for its low foot, answers), of everybody but those left out."""
        counts: dict[int, tuple[int, int]] = {}
        for participant, trace in self.traces.items():
            if participant not in without:
                for packed in trace.shared:
                    low, total = counts.get(packed >> 2, (0, 0))
                    counts[packed >> 2] = (low + (packed >> 1 & 1), total + 1)
        return counts

    @staticmethod
    def _note_side(trace: Trace, left: int) -> None:
        trace.sided += 1
        trace.left += left
        if left == trace.last_left:
            trace.run += 1
        else:
            trace.alternations += trace.last_left >= 0
            trace.run = 1
            trace.last_left = left
        trace.longest_run = max(trace.longest_run, trace.run)

    def _note_catch(self, trace: Trace, head: int, left: int, right: int, winner: int) -> None:
        caught = is_caught(head, left, right, winner, self._obvious)
        if caught is not None:
            trace.catch_trials += 1
            trace.catch_right += not caught


def is_caught(head: int, left: int, right: int, winner: int, obvious: Sequence[tuple[int, int, int]]) -> bool | None:
    """Return whether a catch trial was answered wrongly; None where nothing says what is right.

    Nothing is nearer to the head than itself; otherwise one of the `obvious` queries [head, nearer, farther] was shown.
    """
    if head in {left, right}:
        return winner != head
    for known, nearer, farther in obvious:
        if known == head and {nearer, farther} == {left, right}:
            return winner != nearer
    return None


#: Triads looked at for circles, of one participant.
_MOST_TRIADS = 100_000


@dataclass(frozen=True)
class Figures:
    """The figures of one participant; None where there are no such trials, no times or no model.

    `fit_expected` is the share that the map predicts of careful people's answers to the same queries. `guess_p` is the
    probability that a guesser does as well, and `careless_p` that a careful person looks as careless: all that is
    known, combined. `hesitation` is the rank correlation of response times with the map's margins, negative where easy
    queries are answered faster, with its 95 % interval.
    """

    answers: int
    asked: int | None = None
    completeness: float | None = None
    catch_trials: int = 0
    catch_accuracy: float | None = None
    catch_p: float | None = None
    geometric_mean_rt_ms: float | None = None
    median_rt_ms: float | None = None
    fast_share: float | None = None
    timed: int = 0
    shared_answers: int = 0
    agreement: float | None = None
    agreement_by_chance: float | None = None
    repeats: int = 0
    repeats_swapped: int = 0
    repeat_consistency: float | None = None
    sided: int = 0
    left_share: float | None = None
    side_p: float | None = None
    longest_run: int = 0
    alternation: float | None = None
    triads: int = 0
    cycles: int = 0
    cycles_by_chance: float | None = None
    fit_answers: int = 0
    fit_accuracy: float | None = None
    fit_expected: float | None = None
    guess_p: float | None = None
    careless_p: float | None = None
    hesitation_answers: int = 0
    hesitation: float | None = None
    hesitation_low: float | None = None
    hesitation_high: float | None = None


def figures_of(
    evidence: Evidence,
    trace: Trace,
    *,
    asked: int | None,
    others: Mapping[int, tuple[int, int]],
    counted: bool,
) -> Figures:
    """Return the figures of one trace, without those that compare it with a map or a group.

    `others` holds how shared queries were answered, this participant included where `counted`.
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
    )


def _catches(trace: Trace) -> dict[str, Any]:
    trials, right = trace.catch_trials, trace.catch_right
    if not trials:
        return {}
    return {"catch_trials": trials, "catch_accuracy": right / trials, "catch_p": at_least(right, trials)}


def _times(trace: Trace) -> dict[str, Any]:
    """Return exp(mean of ln t), which pauses move less than the mean; times below 1 ms count as 1 ms."""
    times = trace.times_ms
    if not times:
        return {}
    return {
        "geometric_mean_rt_ms": exp(fsum(log(max(time, 1.0)) for time in times) / len(times)),
        "median_rt_ms": median(times),
        "fast_share": sum(time < FAST_MS for time in times) / len(times),
        "timed": len(times),
    }


def _agreement(trace: Trace, others: Mapping[int, tuple[int, int]], *, counted: bool) -> dict[str, Any]:
    """Return the share of shared queries answered as the majority of the others; ties of the others are left out."""
    agreed = compared = 0
    own = Counter(trace.shared)
    for packed in trace.shared:
        code, low_won = packed >> 2, packed >> 1 & 1
        low, total = others.get(code, (0, 0))
        if counted:
            mine = [(other >> 1 & 1, own[other]) for other in range(code * 4, code * 4 + 4)]
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
    """Compare each answer to a query that the same person had before with the answer before it.

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
        "sided": trace.sided,
        "left_share": trace.left / trace.sided,
        "side_p": two_sided(trace.left, trace.sided),
        "longest_run": trace.longest_run,
        "alternation": trace.alternations / (trace.sided - 1) if trace.sided > 1 else None,
    }


def _circles(evidence: Evidence, trace: Trace) -> dict[str, Any]:
    """Count circles: under one head, three feet compared pair by pair so that they cannot be ordered (a < b < c < a).

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
