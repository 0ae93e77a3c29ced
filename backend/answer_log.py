"""The answers of one experiment as triplets: immutable blocks, which are sent to the workers once, and a short tail.

All learners of an experiment share one log. It only grows: every triplet is in it once, in the order of the stream, and
its cursor is the id of the last stream entry that was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from salmon.records import REPEATABLE, Answer

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
