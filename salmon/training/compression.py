"""Gradients in fewer bytes: right on average, at the price of some variance.

One interface: `compress` gives the bytes that travel, `expand` the gradient that they stand for. Each layer is coded for itself. Nothing
here is estimated: the length of the bytes is what a network carries.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from salmon.distributed.atoms import atomic_probabilities, atoms_of, matrix_of
from salmon.distributed.packing import Reader, Writer
from salmon.errors import SalmonError

Vector = NDArray[np.float32]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Compression(ABC):
    """A random code of a gradient (P,), one layer of the given shapes after the other."""

    def compress(self, gradient: Vector, shapes: Shapes, rng: np.random.Generator) -> bytes:
        """The bytes that travel."""
        if not np.isfinite(gradient).all():
            raise SalmonError(
                "A gradient that is not finite has no code.", hint="Training diverged: lower the learning rate."
            )
        writer = Writer()
        for layer in layers(gradient, shapes):
            self.encode(layer, writer, rng)
        return writer.finish()

    def expand(self, payload: bytes, shapes: Shapes) -> Vector:
        """The gradient (P,) that the bytes stand for."""
        reader = Reader(payload)
        return np.concatenate([self.decode(reader, shape).ravel() for shape in shapes])

    @abstractmethod
    def encode(self, layer: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """Write one layer."""

    @abstractmethod
    def decode(self, reader: Reader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Read one layer of this shape."""


@dataclass(frozen=True)
class QSGD(Compression):
    """Entries rounded at random to s levels of |g|₂ (Alistarh et al. 2017, section 3.1): sign and level in `bits` bits.

    1 bit stands for s = 1 level, which takes two bits with its sign; b ≥ 2 bits, sign included, for s = 2^(b−1) − 1.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise SalmonError(f"QSGD with {self.bits} bits has no code here.", hint="Give 1 to 16 bits.", where="bits")

    @property
    def levels(self) -> int:
        """Levels besides 0."""
        return max(1, _levels(self.bits))

    def encode(self, layer: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """The norm, then sign and level of each entry."""
        flat = layer.ravel()
        norm = float(np.linalg.norm(flat.astype(np.float64)))
        writer.number(norm)
        writer.signed(_rounded(flat, norm, self.levels, rng), self.levels)

    def decode(self, reader: Reader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Levels times norm / s."""
        norm = reader.number()
        return (reader.signed(prod(shape), self.levels) * (norm / self.levels)).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class NormQuantization(Compression):
    """|g|_q · sign(gᵢ) with chance |gᵢ| / |g|_q, else 0: E|ĝ|² = |g|₁ · |g|_q (Wang et al. 2018, theorem 10).

    Entry-wise atoms at the budget |g|₁ / |g|_q, for q ≥ 1: q = 2 is 1-bit QSGD, q = ∞ is TernGrad.
    """

    q: float = 2.0

    def encode(self, layer: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """The norm, then −1, 0 or 1 an entry."""
        flat = layer.ravel()
        norm = float(np.linalg.norm(flat.astype(np.float64), self.q))
        writer.number(norm)
        sent = rng.random(len(flat), dtype=np.float32) * norm < np.abs(flat)
        writer.signed(np.where(sent, np.sign(flat), 0).astype(np.int64), 1)

    def decode(self, reader: Reader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Signs times the norm."""
        norm = reader.number()
        return (reader.signed(prod(shape), 1) * norm).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class TernGrad(NormQuantization):
    """max|g| · sign(gᵢ) with chance |gᵢ| / max|g| (Wen et al. 2017, equation 1)."""

    q: float = inf


@dataclass(frozen=True)
class EntrywiseAtomo(Compression):
    """Entries sent with the chances of least variance (Wang et al. 2018, Algorithm 2 on the standard basis).

    `budget` is the number of entries sent on average from each layer, as a share of them when it is below 1.
    """

    budget: float = 0.05

    def __post_init__(self) -> None:
        _check_budget(self.budget)

    def encode(self, layer: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """Entries that are surely sent with their values; of the others only place and sign, as all have one size."""
        flat = layer.ravel()
        chances = atomic_probabilities(flat, self.budget_of(len(flat)))
        sure = np.flatnonzero(chances >= 1)
        lucky = np.flatnonzero((chances < 1) & (rng.random(len(flat)) < chances))
        writer.places(sure, len(flat))
        writer.floats(flat[sure])
        # λ/p is sign(λ) · Σ|λ| / budget: one number for all of them.
        writer.number(float(abs(flat[lucky[0]]) / chances[lucky[0]]) if len(lucky) else 0.0)
        writer.places(lucky, len(flat))
        writer.bits((flat[lucky] < 0).astype(np.uint8))

    def decode(self, reader: Reader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Zeros but for what was sent."""
        size = prod(shape)
        flat = np.zeros(size, dtype=np.float32)
        sure = reader.places(size)
        flat[sure] = reader.floats(len(sure))
        common = reader.number()
        lucky = reader.places(size)
        flat[lucky] = common * (1 - 2.0 * reader.bits(len(lucky)))
        return flat.reshape(shape)

    def budget_of(self, entries: int) -> float:
        """Entries sent on average from a layer of so many."""
        return self.budget if self.budget >= 1 else self.budget * entries


@dataclass(frozen=True)
class SpectralAtomo(Compression):
    """Singular vectors sent with the chances of least variance (Wang et al. 2018): `budget` of them on average.

    Their entries are rounded at random to `bits` bits of the largest, left and right independently, so that their product stays right
    on average; 32 sends them as they are, which is the code of its authors. Layers that are vectors, or matrices too small to
    gain, travel whole, rounded alike.
    """

    budget: float = 3.0
    bits: int = 8

    def __post_init__(self) -> None:
        _check_budget(self.budget)
        if not 2 <= self.bits <= 16 and self.bits != 32:
            raise SalmonError(
                f"Singular vectors of {self.bits} bits have no code here.",
                hint="Give 2 to 16 bits, or 32.",
                where="bits",
            )

    def encode(self, layer: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """Pairs of singular vectors with their σ, stretched by 1/p."""
        matrix = matrix_of(layer)
        if matrix is None or not self.gains(matrix.shape):
            self._write(layer.reshape(1, -1), writer, rng)
            return
        left, right = atoms_of(matrix)
        sizes = np.linalg.norm(left, axis=0) * np.linalg.norm(right, axis=0)
        chances = atomic_probabilities(sizes, self.budget)
        sent = np.flatnonzero(rng.random(len(sizes)) < chances)
        writer.count(len(sent))
        self._write((left[:, sent] / chances[sent].astype(np.float32)).T, writer, rng)
        self._write(right[:, sent].T, writer, rng)

    def decode(self, reader: Reader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The sum of the pairs that were sent."""
        matrix = matrix_of(np.empty(shape, dtype=np.float32))
        if matrix is None or not self.gains(matrix.shape):
            return self._read(reader, 1, prod(shape)).reshape(shape)
        rows, columns = matrix.shape
        count = reader.count()
        left = self._read(reader, count, rows)
        return (left.T @ self._read(reader, count, columns)).reshape(shape)

    def _write(self, vectors: NDArray[np.float32], writer: Writer, rng: np.random.Generator) -> None:
        """Vectors (k, n): the largest entry of each, then all of them in few bits."""
        if self.bits == 32:
            writer.floats(vectors.ravel())
            return
        levels = _levels(self.bits)
        largest = np.abs(vectors).max(axis=1, initial=0)
        writer.floats(largest)
        writer.signed(_rounded(vectors, largest[:, None], levels, rng).ravel(), levels)

    def _read(self, reader: Reader, count: int, length: int) -> NDArray[np.float32]:
        """What `_write` wrote of so many vectors (count, length)."""
        if self.bits == 32:
            return reader.floats(count * length).reshape(count, length)
        levels = _levels(self.bits)
        largest = reader.floats(count)
        return (reader.signed(count * length, levels).reshape(count, length) * (largest / levels)[:, None]).astype(
            np.float32
        )

    def gains(self, shape: tuple[int, ...]) -> bool:
        """Whether the vectors sent on average are smaller than the matrix."""
        rows, columns = shape
        return self.budget < min(rows, columns) and self.budget * (rows + columns) < rows * columns


def layers(gradient: Vector, shapes: Shapes) -> list[NDArray[np.float32]]:
    """The gradient (P,) cut into layers of these shapes."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(gradient, ends[:-1]), shapes, strict=True)]


def _levels(bits: int) -> int:
    """Levels besides 0 that fit into so many bits, one of them the sign."""
    return (1 << (bits - 1)) - 1


def _rounded(
    values: NDArray[np.float32], largest: float | NDArray[np.float32], levels: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Whole numbers from −levels to levels, at random so that level · largest / levels is right on average."""
    scale = np.divide(levels, largest, out=np.zeros_like(largest, dtype=np.float32), where=np.greater(largest, 0))
    # An entry may be the largest but for rounding: it must not end above the highest level.
    level = np.minimum(np.floor(np.abs(values) * scale + rng.random(values.shape, dtype=np.float32)), levels)
    return np.where(values < 0, -level, level).astype(np.int64)


def _check_budget(budget: float) -> None:
    if not budget > 0:
        raise SalmonError(f"A budget of {budget} atoms sends nothing.", hint="Give more than 0.", where="budget")
