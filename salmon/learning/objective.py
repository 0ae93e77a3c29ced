"""What a refit makes small: the loss of all answers and a ridge, with its gradient, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates
from salmon.learning.arithmetic import Arithmetic, arithmetic_for
from salmon.learning.triplets import Triplets
from salmon.noise import NoiseModel
from salmon.parallel import Executor, SerialExecutor

# A block's arrays stay in a core's cache.
_BLOCK = 1 << 15
# Below this many answers one core counts sooner (25 ms for a million) than a cluster's messages come back (10 ms).
_WORTH_SENDING = 1 << 20

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Some triplets, as the distances that they compare.

    Where pairs of targets hardly recur, `near` and `far` are None: `first` (m,) are the heads, `second` (2m,) the
    winners and then the losers, row by row. Where they recur every distance is computed once: `first` and `second` (p,)
    are its two targets, and `near` and `far` (m,) say which distances each triplet compares.
    """

    first: Indices
    second: Indices
    near: Indices | None = None
    far: Indices | None = None

    def __len__(self) -> int:
        return len(self.first if self.near is None else self.near)

    def add_gradient(self, model: NoiseModel, axes: Sequence[Any], gradient: Sequence[Any], use: Arithmetic) -> float:
        """Σ loss over the triplets in nats; its gradient is added to `gradient`, d rows (n,) like `axes`.

        With f = u(far) − u(near) and u' the slope of the remoteness, ∂loss/∂d2 = ± loss'(f)·u'(d2), and a squared
        distance moves its two targets by ±2 (x_first − x_second).
        """
        first, second = use.of(self.first), use.of(self.second)
        differences: list[Any] = []
        for axis in axes:
            difference = use.gather(axis, second)
            # Winners and losers in a row each: one gathering of the heads serves both.
            parts = difference.reshape(-1, len(first))
            parts -= use.gather(axis, first)
            differences.append(difference)
        d2 = differences[0] * differences[0]
        for difference in differences[1:]:
            use.add_square(d2, difference)
        loss, pull = self._loss_and_pull(model, d2, use)
        for row, difference in zip(gradient, differences, strict=True):
            difference *= pull  # noqa: PLW2901 - in place on purpose: the differences are used up here
            use.add_at(row, second, difference)
            heads, *more = difference.reshape(-1, len(first))
            for part in more:
                heads += part
            heads *= -1
            use.add_at(row, first, heads)
        return loss

    def _loss_and_pull(self, model: NoiseModel, d2: Any, use: Arithmetic) -> tuple[float, Any]:
        """(Σ loss, twice its derivative by each squared distance)."""
        felt = use.of(model.remoteness(use.array(d2)))
        pull = use.of(2 * model.remoteness_slope(use.array(d2)))
        if self.near is None or self.far is None:
            m = len(self.first)
            loss, slope = model.loss_and_slope(use.array(felt[m:] - felt[:m]))
            near, far = pull[:m], pull[m:]
            far *= use.of(slope)
            near *= use.of(np.negative(slope, out=slope))
            return float(loss.sum()), pull
        near, far = use.of(self.near), use.of(self.far)
        log_odds = use.gather(felt, far)
        log_odds -= use.gather(felt, near)
        loss, slope = model.loss_and_slope(use.array(log_odds))
        weight = use.zeros(len(self.first))
        use.add_at(weight, far, use.of(slope))
        use.add_at(weight, near, use.of(np.negative(slope, out=slope)))
        pull *= weight
        return float(loss.sum()), pull


def blocks_of(triplets: Triplets, n: int, size: int = _BLOCK) -> Iterator[Block]:
    """The triplets cut into blocks of `size` rows, in their order."""
    for start in range(0, len(triplets), size):
        block = block_of(triplets[start : start + size])
        yield block if n * (n - 1) // 2 > len(block) else _merged(block, n)


def block_of(triplets: Triplets) -> Block:
    """A block of these triplets, each distance for itself."""
    rows = triplets.astype(np.int64)
    return Block(np.ascontiguousarray(rows[:, 0]), rows[:, 1:].T.ravel())


def _merged(block: Block, n: int) -> Block:
    """The same block with every distance computed once."""
    heads = np.tile(block.first, 2)
    keys = np.minimum(heads, block.second) * n + np.maximum(heads, block.second)
    pairs, which = np.unique(keys, return_inverse=True)
    first, second = np.divmod(pairs, n)
    return Block(first, second, which[: len(block)], which[len(block) :])


def loss_and_gradient(
    model: NoiseModel, coordinates: Coordinates, blocks: Sequence[Block]
) -> tuple[float, Coordinates]:
    """Σ loss over the triplets of some blocks in nats, and its gradient (n, d)."""
    with arithmetic_for(len(blocks[0]) if blocks else 0) as use:
        return evaluate(model, coordinates, blocks, use)


def evaluate(
    model: NoiseModel, coordinates: Coordinates, blocks: Sequence[Block], use: Arithmetic
) -> tuple[float, Coordinates]:
    """The same with an arithmetic of the caller's choice."""
    columns = np.ascontiguousarray(coordinates.T)
    total = np.zeros_like(columns)
    axes, gradient = [use.of(column) for column in columns], [use.of(row) for row in total]
    loss = sum(block.add_gradient(model, axes, gradient, use) for block in blocks)
    return float(loss), total.T


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
        parts = self.executor.map(partial(loss_and_gradient, self.model, coordinates), self.shares)
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
