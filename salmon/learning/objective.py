"""Compute the objective of a refit and its gradient, and how well an embedding agrees with answers.

The objective is the loss of all answers plus a ridge, summed block by block. The expensive part is gathering and adding
up by index. It is done on NumPy arrays, or on torch tensors of the same memory; everything else about a loss is written
once, in operators that both understand. A noise model always gets NumPy arrays: a CPU tensor and its array share their
memory, so that nothing is copied. (With AVX-512, NumPy's logarithms and exponentials take less than half the time of
torch's.) Work arrays are not kept from call to call: the memory of the last ones is reused at once, and keeping them
gained nothing.

Accuracy counts which target lies nearer and needs no noise model; log-loss judges the probabilities of one. Both are
biased if the answers were also fitted, or if a sampler chose their queries because the embedding was unsure of them.

Triplets are checked by `check_triplets` where they enter the library, and never again inside.
"""

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import TripletError
from salmon.geometry import Coordinates, Reals
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor, SerialExecutor

Triplets = NDArray[np.int32]

# How many faulty rows a sentence names before it says how many more there are.
_NAMED_ROWS = 3

# From this many triplets in a block torch adds up by index so much sooner (27 µs for 65,536 numbers, numpy 65) that it
# outweighs the more expensive calls. Below 10,000 numpy wins; `benchmarks/refit.py` prints both on either side of this
# line.
TENSORS_FROM = 1 << 14


class Arithmetic(Protocol):
    """The operations that the loss needs besides operators; `values` and `total` are results of `of`."""

    def of(self, array: NDArray[Any]) -> Any:
        """Return the array under this arithmetic, in the same memory."""
        ...

    def array(self, values: Any) -> NDArray[Any]:
        """Return the NumPy array of some values, in the same memory."""
        ...

    def gather(self, values: Any, places: Any) -> Any:
        """Return values[places], in new memory."""
        ...

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """Do total[place] += value for every pair of them, also where a place recurs."""
        ...

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total, elementwise."""
        ...

    def zeros(self, size: int) -> Any:
        """Return (size,) zeros."""
        ...


class NumpyArithmetic:
    """Arithmetic with NumPy: nothing to load, and the smallest cost a call."""

    def of(self, array: NDArray[Any]) -> Any:
        """Return the array itself."""
        return array

    def array(self, values: Any) -> NDArray[Any]:
        """Return the array itself."""
        return values

    def gather(self, values: Any, places: Any) -> Any:
        """Return values[places]."""
        return values.take(places)

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """Count over all of `total` at once, weighted by the values."""
        total += np.bincount(places, values, len(total))

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total."""
        total += values * values

    def zeros(self, size: int) -> Any:
        """Return (size,) zeros, float64."""
        return np.zeros(size)


class TorchArithmetic:
    """Arithmetic with torch, on the CPU and without autograd: the gradient is written down, not traced."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def of(self, array: NDArray[Any]) -> Any:
        """Return a tensor in the memory of the array."""
        return self._torch.from_numpy(array)

    def array(self, values: Any) -> NDArray[Any]:
        """Return the memory of the tensor, as an array."""
        return values.numpy()

    def gather(self, values: Any, places: Any) -> Any:
        """Return values[places]; the fastest of torch's several ways in one dimension."""
        return self._torch.index_select(values, 0, places)

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """Add in place; twice as fast as index_add_.

        It is as fast as a product with a sparse matrix, without building one.
        """
        total.scatter_add_(0, places, values)

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total in one pass."""
        total.addcmul_(values, values)

    def zeros(self, size: int) -> Any:
        """Return (size,) zeros, float64."""
        return self._torch.zeros(size, dtype=self._torch.float64)


@contextmanager
def arithmetic_for(triplets: int) -> Generator[Arithmetic]:
    """Return the faster arithmetic for blocks of so many triplets, on one thread.

    Callers with more cores use an executor.
    """
    found = _tensors() if triplets >= TENSORS_FROM else None
    if found is None:
        yield NumpyArithmetic()
        return
    tensors, torch = found
    threads = torch.get_num_threads()
    try:
        if threads != 1:
            torch.set_num_threads(1)
        with torch.no_grad():
            yield tensors
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


@cache
def _tensors() -> tuple[TorchArithmetic, Any] | None:
    # Loaded with the first large block: importing torch takes longer than many a fit.
    try:
        import torch
    except ImportError:
        warnings.warn(
            "torch is not installed, so fits of many answers take longer than they need to."
            ' Install it: pip install "salmon-triplets[training]"',
            stacklevel=2,
        )
        return None
    return TorchArithmetic(torch), torch


# A block's arrays stay in a core's cache.
_BLOCK = 1 << 15
# Below this many answers one core counts sooner (25 ms for a million) than a cluster's messages come back (10 ms).
_WORTH_SENDING = 1 << 20

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Some triplets, as the distances that they compare.

    Where pairs of targets hardly recur, `near` and `far` are None: `first` (m,) are the heads, `second` (2m,) the
    winners and then the losers, row by row. Where they recur every distance is computed once: `first` and `second`
    (p,) are its two targets, and `near` and `far` (m,) say which distances each triplet compares.
    """

    first: Indices
    second: Indices
    near: Indices | None = None
    far: Indices | None = None

    def __len__(self) -> int:
        return len(self.first if self.near is None else self.near)

    def add_gradient(self, model: NoiseModel, axes: Sequence[Any], gradient: Sequence[Any], use: Arithmetic) -> float:
        """Return Σ loss over the triplets in nats, and add its gradient to `gradient`, d rows (n,) like `axes`.

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
    """Cut the triplets into blocks of `size` rows, in their order."""
    for start in range(0, len(triplets), size):
        block = block_of(triplets[start : start + size])
        yield block if n * (n - 1) // 2 > len(block) else _merge_pairs(block, n)


def block_of(triplets: Triplets) -> Block:
    """Return a block of these triplets, each distance for itself."""
    rows = triplets.astype(np.int64)
    return Block(np.ascontiguousarray(rows[:, 0]), rows[:, 1:].T.ravel())


def _merge_pairs(block: Block, n: int) -> Block:
    """Return the same block with every distance computed once."""
    heads = np.tile(block.first, 2)
    keys = np.minimum(heads, block.second) * n + np.maximum(heads, block.second)
    pairs, which = np.unique(keys, return_inverse=True)
    first, second = np.divmod(pairs, n)
    return Block(first, second, which[: len(block)], which[len(block) :])


def loss_and_gradient(
    model: NoiseModel, coordinates: Coordinates, blocks: Sequence[Block]
) -> tuple[float, Coordinates]:
    """Return Σ loss over the triplets of some blocks in nats, and its gradient (n, d)."""
    with arithmetic_for(len(blocks[0]) if blocks else 0) as use:
        return evaluate(model, coordinates, blocks, use)


def evaluate(
    model: NoiseModel, coordinates: Coordinates, blocks: Sequence[Block], use: Arithmetic
) -> tuple[float, Coordinates]:
    """Return the same with an arithmetic of the caller's choice."""
    columns = np.ascontiguousarray(coordinates.T)
    total = np.zeros_like(columns)
    axes, gradient = [use.of(column) for column in columns], [use.of(row) for row in total]
    loss = sum(block.add_gradient(model, axes, gradient, use) for block in blocks)
    return float(loss), total.T


@dataclass(frozen=True, eq=False)
class Precision:
    """The precision of a prior on each axis of n coordinates: `rest` in all directions but some, which have `values`.

    `directions` (n, r) are orthonormal, `values` (r,).
    """

    rest: float
    directions: NDArray[np.float64]
    values: NDArray[np.float64]

    def times(self, coordinates: Coordinates) -> Coordinates:
        """Return P·X for (n, d) coordinates."""
        within = self.directions.T @ coordinates
        return self.rest * coordinates + self.directions @ ((self.values - self.rest)[:, None] * within)

    def scaled(self, factor: float) -> "Precision":
        """Return the precision times a factor."""
        return Precision(factor * self.rest, self.directions, factor * self.values)

    @property
    def matrix(self) -> Coordinates:
        """Return the (n, n) matrix P."""
        low = (self.directions * (self.values - self.rest)) @ self.directions.T
        low[np.diag_indices(len(low))] += self.rest
        return low

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """Return the (n,) diagonal of P."""
        return self.rest + (self.directions**2) @ (self.values - self.rest)


@dataclass(frozen=True)
class Objective:
    """The mean loss of the m triplets plus ½ tr(XᵀPX) / m, the function that a fit minimises; P is ridge·I without a
    `precision`.

    Dividing by m keeps one tolerance right for a hundred and for a million answers; the minimum is that of
    Σ loss + ridge/2 · |coordinates|². `shares` are groups of blocks, each where the executor put it.
    """

    model: NoiseModel
    ridge: float
    m: int
    shares: tuple[Any, ...]
    executor: Executor
    precision: Precision | None = None

    def __call__(self, coordinates: Coordinates) -> tuple[float, Coordinates]:
        """Return the value and its gradient (n, d) at (n, d) coordinates."""
        parts = self.executor.map(partial(loss_and_gradient, self.model, coordinates), self.shares)
        loss = sum(part[0] for part in parts)
        gradient = self._pull(coordinates)
        value = loss + float(np.vdot(coordinates, gradient)) / 2
        for part in parts:
            gradient += part[1]
        gradient /= self.m
        return float(value / self.m), gradient

    def penalty(self, coordinates: Coordinates) -> float:
        """Return ½ tr(XᵀPX) at (n, d) coordinates."""
        return float(np.vdot(coordinates, self._pull(coordinates))) / 2

    def _pull(self, coordinates: Coordinates) -> Coordinates:
        return self.ridge * coordinates if self.precision is None else self.precision.times(coordinates)


def objective_of(
    triplets: Triplets,
    n: int,
    model: NoiseModel,
    *,
    ridge: float = 0.0,
    precision: Precision | None = None,
    executor: Executor | None = None,
) -> Objective:
    """Return the objective of these triplets; an executor is used if there are enough of them to be worth sending."""
    if executor is None or len(triplets) < _WORTH_SENDING:
        share = tuple(blocks_of(triplets, n))
        return Objective(model, ridge, max(1, len(triplets)), (share,), SerialExecutor(), precision)
    parts = np.array_split(triplets, executor.workers)
    shares = tuple(executor.scatter(tuple(blocks_of(part, n))) for part in parts)
    return Objective(model, ridge, len(triplets), shares, executor, precision)


def accuracy(coordinates: Reals, triplets: ArrayLike) -> float:
    """Return the share of triplets whose winner lies nearer the head than the loser.

    A tie counts half. Without triplets the result is NaN.
    """
    rows = check_triplets(triplets, len(coordinates))
    if not len(rows):
        return float("nan")
    d2_winner, d2_loser = compared_distances(coordinates, rows)
    return float(np.mean((d2_winner < d2_loser) + 0.5 * (d2_winner == d2_loser)))


def log_loss(
    coordinates: Reals, triplets: ArrayLike, *, noise: str | NoiseModel = "TSTE", lapse: float | None = None
) -> float:
    """Return the mean of −log p(winner) over the triplets, in nats, with p at least 1e-12.

    Guessing gives log 2. Without triplets the result is NaN.
    """
    rows = check_triplets(triplets, len(coordinates))
    if not len(rows):
        return float("nan")
    d2_winner, d2_loser = compared_distances(coordinates, rows)
    chance = noise_model(noise, lapse=lapse).probability(d2_winner, d2_loser)
    return float(-np.log(np.maximum(chance, 1e-12)).mean())


def compared_distances(coordinates: Reals, triplets: Triplets) -> tuple[Reals, Reals]:
    """Return the squared distances (m,) from the heads to the winners, and those to the losers."""
    placed = np.asarray(coordinates, dtype=np.float64)
    heads = placed[triplets[:, 0]]
    d2_winner = ((heads - placed[triplets[:, 1]]) ** 2).sum(axis=1)
    d2_loser = ((heads - placed[triplets[:, 2]]) ** 2).sum(axis=1)
    return d2_winner, d2_loser


def check_triplets(triplets: ArrayLike, n: int | None = None) -> Triplets:
    """Return (m, 3) int32 rows [head, winner, loser] over n targets, or raise a TripletError that names each kind of
    fault.

    Without `n` there are as many targets as the largest index says. Floats are accepted if they are whole numbers.
    """
    rows = _as_rows(triplets)
    if n is None:
        n = int(rows.max(initial=-1)) + 1
    if n < 3 and len(rows):
        raise TripletError(
            f"{n} target{'' if n == 1 else 's'} cannot make a triplet.", hint="A head and two feet need three targets."
        )
    head, winner, loser = rows.T
    problems = [
        _sentence(rows, (rows < 0).any(axis=1) | (rows >= n).any(axis=1), f"names a target outside 0 to {n - 1}"),
        _sentence(rows, head == winner, "has its head as the winner"),
        _sentence(rows, head == loser, "has its head as the loser"),
        _sentence(rows, winner == loser, "has the same foot twice"),
    ]
    found = [problem for problem in problems if problem]
    if found:
        raise TripletError(" ".join(found), hint="Each row is [head, winner, loser], three different targets.")
    return np.ascontiguousarray(rows, dtype=np.int32)


def _as_rows(triplets: ArrayLike) -> NDArray[np.int64]:
    try:
        table: NDArray[Any] = np.asarray(triplets)
    except ValueError as error:
        raise TripletError("The rows of the triplets differ in length.", hint="Each needs three columns.") from error
    if table.size == 0 and table.ndim <= 2:
        return np.zeros((0, 3), dtype=np.int64)
    if table.ndim != 2 or table.shape[1] != 3:
        raise TripletError(
            f"Triplets of shape {table.shape} cannot be read.",
            hint="Give one row [head, winner, loser] for each answer.",
        )
    if table.dtype.kind in "iub":
        return table.astype(np.int64)
    if table.dtype.kind != "f":
        raise TripletError(f"Triplets hold {table.dtype} values.", hint="Targets are whole numbers that count from 0.")
    # NaN and infinity are no whole numbers either: they fail the same comparison.
    with np.errstate(invalid="ignore"):
        broken = ~(np.isfinite(table) & (table == np.floor(table))).all(axis=1)
    problem = _sentence(table, broken, "holds something other than whole numbers")
    if problem:
        raise TripletError(problem, hint="Targets are whole numbers that count from 0.")
    return table.astype(np.int64)


def _sentence(rows: NDArray[Any], faulty: NDArray[np.bool_] | np.bool_, fault: str) -> str:
    found = np.flatnonzero(faulty)
    if not len(found):
        return ""
    named = ", ".join(f"{row} {rows[row].tolist()}" for row in found[:_NAMED_ROWS])
    rest = len(found) - _NAMED_ROWS
    more = f" and {rest} more" if rest > 0 else ""
    return f"Row {named}{more} {fault}."
