"""What is remembered of the answers while they go by: one pass, and a bounded piece of memory for each participant.

An answer is packed into one whole number, so that a million of them take 8 MB. n targets must be fewer than a million.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from salmon.records import Answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Answers of one participant that are remembered; what comes later is counted, and left out of what needs each answer.
MOST_ANSWERS = 20_000

#: Kinds of trials that every participant is asked, so that they can be compared.
SHARED_TYPES = frozenset({"validation", "fixed"})
_NEVER_TRIPLETS = frozenset({"catch", "practice"})


@dataclass(slots=True)
class Trace:
    """One participant. `own` and `shared` hold packed answers in order; times in milliseconds, where known."""

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

    def packed(self) -> array[int]:
        """All remembered answers that are triplets."""
        return self.own + self.shared


class Evidence:
    """Takes answers in the order of the stream; `traces` is what became of them, by participant."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.traces: dict[str, Trace] = {}

    def add(self, answer: Answer) -> None:
        """One more answer. Practice leaves no trace, and catch trials are only counted."""
        served = answer.served
        if served.trial_type == "practice":
            return
        trace = self.traces.get(served.participant)
        if trace is None:
            trace = self.traces[served.participant] = Trace()
        trace.answers += 1
        winner = answer.winner
        self._note_side(trace, 1 if winner == served.left else 0)
        rt_ms = answer.timing.rt_ms
        if rt_ms >= 0 and len(trace.times_ms) < MOST_ANSWERS:
            trace.times_ms.append(rt_ms)
        if served.trial_type == "catch":
            self._note_catch(trace, answer)
            return
        kept = trace.shared if served.trial_type in SHARED_TYPES else trace.own
        if len(kept) < MOST_ANSWERS:
            kept.append(self.pack(served.head, served.left, served.right, winner))

    def pack(self, head: int, left: int, right: int, winner: int) -> int:
        """((head · n + low) · n + high) · 4 + 2 · [the low foot won] + [the low foot stood left]."""
        low, high = (left, right) if left < right else (right, left)
        return ((head * self.n + low) * self.n + high) * 4 + 2 * (winner == low) + (left == low)

    def unpack(self, packed: Sequence[int]) -> NDArray[Any]:
        """(m, 3) int64 rows [head, winner, loser] of packed answers."""
        import numpy as np

        numbers = np.asarray(packed, dtype=np.uint64).astype(np.int64)
        low_won, codes = (numbers >> 1) & 1 == 1, numbers >> 2
        high, low, heads = codes % self.n, codes // self.n % self.n, codes // self.n**2
        return np.stack([heads, np.where(low_won, low, high), np.where(low_won, high, low)], axis=1)

    def shared_counts(self, without: frozenset[str]) -> Mapping[int, tuple[int, int]]:
        """Shared query → (answers for its low foot, answers), of everybody but those left out."""
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

    @staticmethod
    def _note_catch(trace: Trace, answer: Answer) -> None:
        """A catch trial shows its head as one of the feet; nothing is nearer to the head than itself."""
        served = answer.served
        if served.head in {served.left, served.right}:
            trace.catch_trials += 1
            trace.catch_right += answer.winner == served.head
