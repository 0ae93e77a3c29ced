"""What a refit makes small: the loss of all answers and a ridge, with its gradient, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates
from salmon.learning.triplets import Triplets
from salmon.noise import NoiseModel
from salmon.parallel import Executor, SerialExecutor

# A block's arrays stay in a core's cache.
_BLOCK = 1 << 15
# Below this many answers one core counts sooner (25 ms for a million) than a cluster's messages come back (10 ms).
_WORTH_SENDING = 1 << 20

Indices = NDArray[np.int32]


@dataclass(frozen=True)
class Block:
    """Some triplets, as the distances that they compare.

    `first` and `second` (p,) are the two targets of each distance. Where pairs of targets recur, every distance is
    computed once: `near` and `far` (m,) say which one each triplet compares. Where they hardly recur, `near` and `far`
    are None: the first half of the distances are head to winner, the second half head to loser, row by row.
    """

    first: Indices
    second: Indices
    near: Indices | None
    far: Indices | None

    def loss_and_gradient(self, model: NoiseModel, coordinates: Coordinates) -> tuple[float, Coordinates]:
        """Σ loss over the triplets in nats, and its gradient (n, d).

        With f = u(far) − u(near) and u' the slope of the remoteness, ∂loss/∂d2 = ± loss'(f)·u'(d2), and a squared
        distance moves its two targets by ±2 (x_first − x_second).
        """
        axes = np.ascontiguousarray(coordinates.T)
        differences = [axis.take(self.first) - axis.take(self.second) for axis in axes]
        d2 = differences[0] * differences[0]
        for difference in differences[1:]:
            d2 += difference * difference
        felt = model.remoteness(d2)
        if self.near is None or self.far is None:
            half = len(felt) // 2
            loss, slope = model.loss_and_slope(felt[half:] - felt[:half])
            pull = np.concatenate([-slope, slope])
        else:
            loss, slope = model.loss_and_slope(felt.take(self.far) - felt.take(self.near))
            size = len(felt)
            pull = np.bincount(self.far, slope, size) - np.bincount(self.near, slope, size)
        pull *= model.remoteness_slope(d2)
        pull *= 2
        n = len(coordinates)
        gradient = np.empty_like(axes)
        for row, difference in zip(gradient, differences, strict=True):
            difference *= pull  # noqa: PLW2901 - in place on purpose: the differences are used up here
            np.subtract(np.bincount(self.first, difference, n), np.bincount(self.second, difference, n), out=row)
        return float(loss.sum()), gradient.T


def blocks_of(triplets: Triplets, n: int, size: int = _BLOCK) -> Iterator[Block]:
    """The triplets cut into blocks of `size` rows, in their order."""
    for start in range(0, len(triplets), size):
        heads, winners, losers = triplets[start : start + size].T
        first = np.concatenate([heads, heads])
        second = np.concatenate([winners, losers])
        if n * (n - 1) // 2 > len(heads):
            yield Block(np.ascontiguousarray(first), np.ascontiguousarray(second), None, None)
            continue
        low, high = np.minimum(first, second), np.maximum(first, second)
        keys, which = np.unique(low.astype(np.int64) * n + high, return_inverse=True)
        which = which.astype(np.int32)
        first, second = (part.astype(np.int32) for part in np.divmod(keys, n))
        yield Block(first, second, which[: len(heads)], which[len(heads) :])


@dataclass(frozen=True)
class Objective:
    """Mean over the m triplets of their loss, plus ridge/2 · |coordinates|² / m: a function to be made small.

    Dividing by m keeps one tolerance right for a hundred and for a million answers; the minimum is that of
    Σ loss + ridge/2 · |coordinates|². `shares` are groups of blocks, each where the executor put it.
    """

    model: NoiseModel
    ridge: float
    m: int
    shares: tuple[Any, ...]
    executor: Executor

    def __call__(self, coordinates: Coordinates) -> tuple[float, Coordinates]:
        """The value and its gradient (n, d) at (n, d) coordinates."""
        parts = self.executor.map(partial(_total, self.model, coordinates), self.shares)
        loss = sum(part[0] for part in parts)
        gradient = self.ridge * coordinates
        for part in parts:
            gradient += part[1]
        value = loss + self.ridge / 2 * float(np.vdot(coordinates, coordinates))
        gradient /= self.m
        return float(value / self.m), gradient


def objective_of(
    triplets: Triplets, n: int, model: NoiseModel, *, ridge: float = 0.0, executor: Executor | None = None
) -> Objective:
    """The objective of these triplets; an executor is used where there are enough of them to be worth the way."""
    if executor is None or len(triplets) < _WORTH_SENDING:
        share = tuple(blocks_of(triplets, n))
        return Objective(model, ridge, max(1, len(triplets)), (share,), SerialExecutor())
    parts = np.array_split(triplets, executor.workers)
    shares = tuple(executor.scatter(tuple(blocks_of(part, n))) for part in parts)
    return Objective(model, ridge, len(triplets), shares, executor)


def _total(model: NoiseModel, coordinates: Coordinates, share: tuple[Block, ...]) -> tuple[float, Coordinates]:
    loss, gradient = 0.0, np.zeros_like(coordinates)
    for block in share:
        part, slope = block.loss_and_gradient(model, coordinates)
        loss += part
        gradient += slope
    return loss, gradient
