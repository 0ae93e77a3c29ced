"""The answers of one experiment as triplets: immutable blocks that are sent to the workers once, and a short tail.

Every learner of an experiment reads the same log. A triplet is there once and in the order of the stream, whatever
happens in between: the log only grows, and its place in the stream is the id of its last entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from salmon.records import REPEATABLE, Answer

#: Rows of a block: large enough that sending blocks once pays, small enough that the tail stays light.
BLOCK = 4096

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Entry:
    """An answer that may be fitted, with its place in the stream; `random` where its query was a uniform draw.

    `repeatable` where it tells how much people agree, see `salmon.records.REPEATABLE`.
    """

    stream_id: str
    triplet: tuple[int, int, int]
    random: bool
    repeatable: bool


def entry_of(stream_id: str, answer: Answer, *, tests: frozenset[str]) -> Entry | None:
    """What the learners see of an answer; nothing of catch and practice trials and of samplers that are only tests."""
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

    def pieces(self) -> tuple[tuple[Rows, ...], Rows]:
        """(the full blocks, the tail): the blocks are the same objects every time, so they need to travel only once."""
        return tuple(self._blocks), _rows(self._tail)

    def repeatable(self) -> Rows:
        """The triplets that tell how much people agree."""
        return _rows(self._repeatable)


def _rows(triplets: list[tuple[int, int, int]]) -> Rows:
    return np.array(triplets, dtype=np.int32).reshape(-1, 3)


def join(blocks: Iterable[Rows]) -> Rows:
    """The rows of several blocks."""
    return np.concatenate([*blocks, np.zeros((0, 3), np.int32)])
