"""Which examples a rank sees in each step: all ranks draw from one order of all
examples, or each from its own shards.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.training.shards import ShardedData, ShardRows

Batch = tuple[torch.Tensor, ...]
# Examples that go through the module at once when the whole training set is evaluated.
_EVALUATED_AT_ONCE = 1 << 13
# Each round uses two tables. With three, every position is equally likely, even for small n.
_ROUNDS = 3


class Examples(Protocol):
    """The examples of one process of a group."""

    @property
    def count(self) -> int:
        """Return the number of examples of the whole group."""
        ...

    def draw(self, epoch: int, position: int, size: int) -> tuple[Batch, torch.Tensor]:
        """Return our parts (r, b, …) of the next `size` examples of an epoch, and a
        mask (r, b) that is 0 for padding.
        """
        ...

    def share(self, row: int) -> Iterator[Batch]:
        """Yield the examples of which the local rank of this index evaluates the loss;
        each example belongs to one rank.
        """
        ...


class SharedExamples:
    """Every process has all examples. The order of an epoch follows from the seed, and each rank
    takes an equal part of a step.
    """

    def __init__(self, data: Batch, seed: int, local: range, ranks: int, every: int) -> None:
        self._data, self._seed, self._ranks, self._local = data, seed, ranks, local
        self._parts, self._own = every * ranks, range(every * local.start, every * local.stop)
        self.count = len(data[0])
        self._order = (-1, ShuffledOrder(1, [0]))

    def draw(self, epoch: int, position: int, size: int) -> tuple[Batch, torch.Tensor]:
        """Split the examples into equal parts and return our own."""
        if self._order[0] != epoch:
            self._order = epoch, ShuffledOrder(self.count, [self._seed, epoch])
        ends = [position + size * part // self._parts for part in range(self._own.start, self._own.stop + 1)]
        examples = self._order[1].part(ends[0], ends[-1])
        own = np.split(examples, np.subtract(ends[1:-1], ends[0]))
        index, counted = _pad(own)
        flat = torch.from_numpy(index.ravel())
        return tuple(part.index_select(0, flat).view(*index.shape, *part.shape[1:]) for part in self._data), counted

    def share(self, row: int) -> Iterator[Batch]:
        """Yield every `ranks`-th example."""
        share = np.arange(self._local[row], self.count, self._ranks)
        for start in range(0, len(share), _EVALUATED_AT_ONCE):
            index = torch.from_numpy(share[start : start + _EVALUATED_AT_ONCE])
            yield tuple(part.index_select(0, index) for part in self._data)


class ShardedExamples:
    """Each rank has its own shards, and takes as large a part of every step as it has of all
    examples, in an order of its own.
    """

    def __init__(self, data: ShardedData, seed: int, local: range, ranks: int, every: int) -> None:
        self._seed, self._local, self._every = seed, local, every
        assigned = data.assign(ranks)
        self.count = len(data)
        self._rows = [ShardRows([data.shards[index] for index in assigned[rank]]) for rank in local]
        self._orders: tuple[int, list[ShuffledOrder]] = (-1, [])

    def draw(self, epoch: int, position: int, size: int) -> tuple[Batch, torch.Tensor]:
        """Return the part of each local rank, divided equally among its replicas."""
        if self._orders[0] != epoch:
            seeds = [[self._seed, epoch, rank] for rank in self._local]
            self._orders = epoch, [ShuffledOrder(len(rows), seed) for rows, seed in zip(self._rows, seeds, strict=True)]
        own: list[NDArray[np.int64]] = []
        for rows, order in zip(self._rows, self._orders[1], strict=True):
            # Whole numbers: over an epoch, every example is drawn exactly once.
            start, stop = (end * len(rows) // self.count for end in (position, position + size))
            ends = [start + (stop - start) * part // self._every for part in range(self._every + 1)]
            own += np.split(order.part(start, stop), np.subtract(ends[1:-1], start))
        index, counted = _pad(own)
        drawn = [self._rows[part // self._every].select(rows) for part, rows in enumerate(index)]
        return tuple(torch.stack(each) for each in zip(*drawn, strict=True)), counted

    def share(self, row: int) -> Iterator[Batch]:
        """Yield all examples of the rank's own shards."""
        rows = self._rows[row]
        for start in range(0, len(rows), _EVALUATED_AT_ONCE):
            yield rows.select(np.arange(start, min(len(rows), start + _EVALUATED_AT_ONCE)))


def open_examples(data: Any, seed: int, local: range, ranks: int, every: int) -> Examples:
    """Return the examples of these ranks, each of which trains `every` replicas."""
    if isinstance(data, ShardedData):
        return ShardedExamples(data, seed, local, ranks, every)
    return SharedExamples(data, seed, local, ranks, every)


def _pad(own: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], torch.Tensor]:
    """Return indices (r, b) padded to one length, and a mask (r, b) that is 0 for padding."""
    longest = max(1, *(len(each) for each in own)) if len(own) > 1 else max(1, len(own[0]))
    index = np.zeros((len(own), longest), dtype=np.int64)
    counted = np.zeros((len(own), longest), dtype=np.float32)
    for row, each in enumerate(own):
        index[row, : len(each)] = each
        counted[row, : len(each)] = 1
    return index, torch.from_numpy(counted)


class ShuffledOrder:
    """A permutation of range(n) that depends only on the seed: `part(start, stop)` takes a few operations per entry.

    No table of length n is needed, and each rank computes only its own part. It is a Feistel network: a position is
    written as two digits of about √n, and each digit in turn is shifted by the entry of a random table for the other
    one. This permutes the square of both digits; results outside range(n) are mapped again.
    """

    def __init__(self, n: int, seed: list[int]) -> None:
        self._n = n
        self._high = max(1, int(np.ceil(np.sqrt(n))))
        self._low = -(-n // self._high)
        rng = np.random.default_rng(seed)
        self._tables = [
            (rng.integers(0, self._high, self._low), rng.integers(0, self._low, self._high)) for _ in range(_ROUNDS)
        ]

    def part(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the entries from `start` up to, but not including, `stop`."""
        entries = self._map(np.arange(start, stop))
        while (outside := np.flatnonzero(entries >= self._n)).size:
            entries[outside] = self._map(entries[outside])
        return entries

    def _map(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        high = positions // self._low
        low = positions - high * self._low
        for for_high, for_low in self._tables:
            high += for_high.take(low)
            _wrap(high, self._high)
            low += for_low.take(high)
            _wrap(low, self._low)
        return high * self._low + low


def _wrap(digits: NDArray[np.int64], base: int) -> None:
    """Reduce digits below twice the base modulo it, in place: subtracting the base from a
    smaller unsigned number overflows.
    """
    unsigned = digits.view(np.uint64)
    np.minimum(unsigned, unsigned - np.uint64(base), out=unsigned)
