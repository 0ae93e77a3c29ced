"""The answers of one experiment as triplets: the log of its learners, and the set that a job reads.

All learners of an experiment share one log of immutable blocks, which are sent to the workers once, and a short tail. The
log only grows: every triplet is in it once, in the order of the stream, and its cursor is the id of the last stream entry
that was read. A job reads the answers again, with who gave each and whether its query was drawn blindly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from salmon.records import DRAWN_BLINDLY, REPEATABLE, Answer

#: Rows of a block: large enough that sending a block only once pays off, small enough that the tail stays short.
BLOCK = 4096

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Entry:
    """An answer that may be fitted, with its stream id.

    `random` says that its query was drawn uniformly, `repeatable` that it can show how much people agree (see
    `salmon.records.REPEATABLE`).
    """

    stream_id: str
    triplet: tuple[int, int, int]
    random: bool
    repeatable: bool


def to_entry(stream_id: str, answer: Answer, *, tests: frozenset[str]) -> Entry | None:
    """Return the entry of an answer, or None for catch and practice trials and for samplers marked `test`."""
    served = answer.served
    if served.trial_type in {"catch", "practice"} or served.sampler in tests:
        return None
    triplet = (served.head, answer.winner, answer.loser)
    return Entry(stream_id, triplet, served.trial_type == "random", served.trial_type in REPEATABLE)


@dataclass
class AnswerLog:
    """All triplets so far. `cursor` is the id of the last stream entry read, fitted or not."""

    cursor: str = "0"
    _blocks: list[Rows] = field(default_factory=list[Rows])
    _tail: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    _repeatable: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._tail)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add triplets at the end."""
        for entry in entries:
            self._tail.append(entry.triplet)
            if entry.repeatable:
                self._repeatable.append(entry.triplet)
        while len(self._tail) >= BLOCK:
            self._blocks.append(np.array(self._tail[:BLOCK], dtype=np.int32))
            del self._tail[:BLOCK]

    def parts(self) -> tuple[tuple[Rows, ...], Rows]:
        """Return (full blocks, tail). The blocks are the same objects every time, so each is sent to the workers once."""
        return tuple(self._blocks), _rows(self._tail)

    def repeatable(self) -> Rows:
        """Return the triplets (m, 3) from which a noise ceiling can be estimated."""
        return _rows(self._repeatable)


def _rows(triplets: list[tuple[int, int, int]]) -> Rows:
    return np.array(triplets, dtype=np.int32).reshape(-1, 3)


def join(blocks: Iterable[Rows]) -> Rows:
    """Return the rows of several blocks as one array."""
    return np.concatenate([*blocks, np.zeros((0, 3), np.int32)])


#: The progress is reported after every so many answers.
_PIECE = 5000


@dataclass(frozen=True)
class AnswerSet:
    """All answers that may be fitted, in the order of the stream.

    `triplets` (m, 3); `participants` (m,) counts into `names`; `random` (m,) where the query was chosen without looking
    at any answer, so that accuracy on it is unbiased; `repeatable` (m,) where it can come again by chance or on
    purpose, but not because people disagreed about it. `cursor` is the place of the last one in the stream.
    """

    triplets: Rows
    participants: NDArray[np.int32]
    random: NDArray[np.bool_]
    repeatable: NDArray[np.bool_]
    names: tuple[str, ...]
    cursor: str

    def __len__(self) -> int:
        return len(self.triplets)

    def given_by(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return (m,) whether one of these participants gave the answer."""
        places = [place for place, name in enumerate(self.names) if name in set(names)]
        return np.isin(self.participants, places)


def collect_answers(
    answers: Iterable[tuple[str, Answer]],
    *,
    tests: frozenset[str],
    n: int,
    at_most: int | None,
    on_progress: Callable[[int], None],
) -> AnswerSet:
    """Return the first `at_most` of the answers that may be fitted; `on_progress(count)` is called now and then."""
    rows: list[tuple[int, int, int]] = []
    people: list[int] = []
    kinds: list[str] = []
    names: dict[str, int] = {}
    cursor = "0"
    for stream_id, answer in answers:
        if at_most is not None and len(rows) >= at_most:
            break
        entry = to_entry(stream_id, answer, tests=tests)
        if entry is None or max(entry.triplet) >= n:
            continue
        cursor = stream_id
        rows.append(entry.triplet)
        people.append(names.setdefault(answer.served.participant, len(names)))
        kinds.append(answer.served.trial_type)
        if len(rows) % _PIECE == 0:
            on_progress(len(rows))
    random = np.isin(kinds, tuple(DRAWN_BLINDLY))
    return AnswerSet(
        triplets=np.array(rows, dtype=np.int32).reshape(-1, 3),
        participants=np.array(people, dtype=np.int32),
        random=random,
        repeatable=np.isin(kinds, tuple(REPEATABLE)),
        names=tuple(names),
        cursor=cursor,
    )
