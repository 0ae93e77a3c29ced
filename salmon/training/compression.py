"""Unbiased compression of gradients: fewer bytes, at the price of additional variance.

`compress` returns the bytes that are sent, and `expand` the gradient that they encode. Each layer is encoded
separately, and rounded entries take fewer bits the closer to zero they are (`salmon.training.payload`). The size of a
compressed gradient is the length of its bytes.

ATOMO writes a gradient as a sum of atoms λᵢaᵢ with |aᵢ| = 1: its entries, or pairs of singular vectors. Atom i is sent
with probability pᵢ and scaled by 1/pᵢ, so that the result is unbiased; if the atoms are orthogonal, its mean squared
norm is Σ λᵢ²/pᵢ.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage] - where torch documents it

from salmon.errors import SalmonError
from salmon.training.payload import PayloadReader, PayloadWriter

Vector = NDArray[np.float32]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Compression(ABC):
    """A randomised encoding of a gradient (P,), whose layers of the given shapes follow each other."""

    def compress(self, gradient: Vector, shapes: Shapes, rng: np.random.Generator) -> bytes:
        """Return the bytes to send; refuse a gradient of which not even the norm fits into float32."""
        writer = PayloadWriter()
        try:
            with np.errstate(over="raise", invalid="raise"):
                finite = bool(np.isfinite(gradient).all())
                for layer in _split_layers(gradient, shapes) if finite else ():
                    self.encode(layer, writer, rng)
        except FloatingPointError:
            finite = False
        if not finite:
            raise SalmonError("The gradient is not finite.", hint="Training diverged: lower the learning rate.")
        return writer.finish()

    def expand(self, payload: bytes, shapes: Shapes) -> Vector:
        """Return the gradient (P,) that the bytes encode."""
        reader = PayloadReader(payload)
        return np.concatenate([self.decode(reader, shape).ravel() for shape in shapes])

    @abstractmethod
    def encode(self, layer: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write one layer."""

    @abstractmethod
    def decode(self, reader: PayloadReader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Read one layer of this shape."""


@dataclass(frozen=True)
class QSGD(Compression):
    """Round entries stochastically to s levels of the norm of their bucket (Alistarh et al. 2017, sections 3.1 to 3.3).

    b ≥ 2 bits, including the sign, stand for s = 2^(b−1) − 1 levels; 1 bit means s = 1. Levels near 0 are the most
    frequent ones and are written with fewer bits. A `bucket` is a number of consecutive entries with a norm of their
    own, 512 for example: smaller buckets add less variance and take more bytes. By default, each layer is one bucket.
    """

    bits: int = 8
    bucket: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise SalmonError(f"QSGD does not support {self.bits} bits.", hint="Give 1 to 16 bits.", where="bits")
        if self.bucket is not None and self.bucket < 1:
            raise SalmonError(f"A bucket of {self.bucket} entries is empty.", hint="Give at least 1.", where="bucket")

    @property
    def levels(self) -> int:
        """Return the number of levels besides 0."""
        return max(1, _count_levels(self.bits))

    def encode(self, layer: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write the norms of all buckets, then the levels of all entries."""
        flat = layer.ravel()
        starts = np.arange(0, len(flat), self._entries(len(flat)))
        norms = np.sqrt(np.add.reduceat(flat.astype(np.float64) ** 2, starts)).astype(np.float32)
        writer.floats(norms)
        writer.signed(_round_at_random(flat, self._spread(norms, len(flat)), self.levels, rng), self.levels)

    def decode(self, reader: PayloadReader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return levels times norm / s."""
        size = prod(shape)
        norms = reader.floats(-(-size // self._entries(size)))
        steps = self._spread(norms, size) / np.float32(self.levels)
        return (reader.signed(size, self.levels) * steps).astype(np.float32).reshape(shape)

    def _spread(self, norms: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        """Return the norm of each entry's bucket (size,)."""
        return np.repeat(norms, self._entries(size))[:size]

    def _entries(self, size: int) -> int:
        """Return the entries of a bucket in a layer of this size."""
        return self.bucket or max(1, size)


@dataclass(frozen=True)
class NormQuantization(Compression):
    """Send |g|_q · sign(gᵢ) with probability |gᵢ| / |g|_q, else 0: E|ĝ|² = |g|₁ · |g|_q (Wang et al. 2018, theorem 10).

    This is entry-wise ATOMO with the budget |g|₁ / |g|_q, for q ≥ 1: q = 2 is 1-bit QSGD, q = ∞ is TernGrad.
    """

    q: float = 2.0

    def encode(self, layer: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write the norm, then −1, 0 or 1 for each entry."""
        flat = layer.ravel()
        norm = float(np.linalg.norm(flat.astype(np.float64), self.q))
        writer.number(norm)
        sent = rng.random(len(flat), dtype=np.float32) * norm < np.abs(flat)
        writer.signed(np.where(sent, np.sign(flat), 0).astype(np.int64), 1)

    def decode(self, reader: PayloadReader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return signs times the norm."""
        norm = reader.number()
        return (reader.signed(prod(shape), 1) * norm).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class TernGrad(NormQuantization):
    """Send max|g| · sign(gᵢ) with probability |gᵢ| / max|g|, else 0 (Wen et al. 2017, equation 1)."""

    q: float = inf


@dataclass(frozen=True)
class EntrywiseAtomo(Compression):
    """Send entries with the probabilities of least variance (Wang et al. 2018, Algorithm 2 on the standard basis).

    `budget` is the expected number of entries sent from each layer; below 1 it is a share of the entries.
    """

    budget: float = 0.05

    def __post_init__(self) -> None:
        _check_budget(self.budget)

    def encode(self, layer: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write position and value of entries with probability 1; of the others position and
        sign, as they share one magnitude.
        """
        flat = layer.ravel()
        probabilities = atomic_probabilities(flat, self.expected_entries(len(flat)))
        certain = np.flatnonzero(probabilities >= 1)
        sampled = np.flatnonzero((probabilities < 1) & (rng.random(len(flat)) < probabilities))
        writer.positions(certain)
        writer.floats(flat[certain])
        # λ/p is sign(λ) · Σ|λ| / budget: one magnitude for all of them.
        writer.number(float(abs(flat[sampled[0]]) / probabilities[sampled[0]]) if len(sampled) else 0.0)
        writer.positions(sampled)
        writer.bits((flat[sampled] < 0).astype(np.uint8))

    def decode(self, reader: PayloadReader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the entries that were sent, and zeros elsewhere."""
        size = prod(shape)
        flat = np.zeros(size, dtype=np.float32)
        certain = reader.positions()
        flat[certain] = reader.floats(len(certain))
        common = reader.number()
        sampled = reader.positions()
        flat[sampled] = common * (1 - 2.0 * reader.bits(len(sampled)))
        return flat.reshape(shape)

    def expected_entries(self, entries: int) -> float:
        """Return the expected number of entries sent from a layer with this many."""
        return self.budget if self.budget >= 1 else self.budget * entries


@dataclass(frozen=True)
class SpectralAtomo(Compression):
    """Send pairs of singular vectors with the probabilities of least variance (Wang et al.
    2018): `budget` of them on average.

    Their entries are rounded stochastically to `bits` bits of the largest one, left and right vectors independently, so
    that the product stays unbiased. 32 bits send them unrounded, as the authors do. Vectors, and matrices that are too
    small to benefit, are sent whole, with the same rounding.
    """

    budget: float = 3.0
    bits: int = 8

    def __post_init__(self) -> None:
        _check_budget(self.budget)
        if not 2 <= self.bits <= 16 and self.bits != 32:
            raise SalmonError(
                f"SpectralAtomo does not support {self.bits} bits.",
                hint="Give 2 to 16 bits, or 32.",
                where="bits",
            )

    def encode(self, layer: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write pairs of singular vectors, scaled by σ/p."""
        matrix = reshape_to_matrix(layer)
        if matrix is None or not self.pays(matrix.shape):
            self._write(layer.reshape(1, -1), writer, rng)
            return
        left, right = decompose(matrix)
        # In float64, because squares of large entries do not fit into float32.
        sizes = np.prod([np.linalg.norm(side.astype(np.float64), axis=0) for side in (left, right)], axis=0)
        probabilities = atomic_probabilities(sizes, self.budget)
        sent = np.flatnonzero(rng.random(len(sizes)) < probabilities)
        writer.count(len(sent))
        self._write((left[:, sent] / probabilities[sent].astype(np.float32)).T, writer, rng)
        self._write(right[:, sent].T, writer, rng)

    def decode(self, reader: PayloadReader, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the sum of the pairs that were sent."""
        matrix = reshape_to_matrix(np.empty(shape, dtype=np.float32))
        if matrix is None or not self.pays(matrix.shape):
            return self._read(reader, 1, prod(shape)).reshape(shape)
        rows, columns = matrix.shape
        count = reader.count()
        left = self._read(reader, count, rows)
        return (left.T @ self._read(reader, count, columns)).reshape(shape)

    def _write(self, vectors: NDArray[np.float32], writer: PayloadWriter, rng: np.random.Generator) -> None:
        """Write vectors (k, n): the largest entry of each, then all entries in `bits` bits."""
        if self.bits == 32:
            writer.floats(vectors.ravel())
            return
        levels = _count_levels(self.bits)
        largest = np.abs(vectors).max(axis=1, initial=0)
        writer.floats(largest)
        writer.signed(_round_at_random(vectors, largest[:, None], levels, rng).ravel(), levels)

    def _read(self, reader: PayloadReader, count: int, length: int) -> NDArray[np.float32]:
        """Read vectors (count, length) written by `_write`."""
        if self.bits == 32:
            return reader.floats(count * length).reshape(count, length)
        levels = _count_levels(self.bits)
        largest = reader.floats(count)
        return (reader.signed(count * length, levels).reshape(count, length) * (largest / levels)[:, None]).astype(
            np.float32
        )

    def pays(self, shape: tuple[int, ...]) -> bool:
        """Whether the expected size of the vectors is below that of the matrix."""
        rows, columns = shape
        return self.budget < min(rows, columns) and self.budget * (rows + columns) < rows * columns


def atomic_probabilities(magnitudes: NDArray[np.floating[Any]], budget: float) -> NDArray[np.float64]:
    """Return probabilities p (k,) that minimise Σ λ²/p subject to Σ p = budget and p ≤ 1
    (Wang et al. 2018, Algorithm 2).

    p = budget · |λ| / Σ|λ|; if that exceeds 1 for the largest atom, it is always sent and the others share the rest of
    the budget. A budget of k or more sends everything; atoms of magnitude 0 have probability 0.
    """
    sizes = np.abs(magnitudes).astype(np.float64)
    probabilities = np.zeros(len(sizes))
    present = int(np.count_nonzero(sizes))
    if budget >= present:
        probabilities[sizes > 0] = 1
        return probabilities
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order][:present]
    # Budget left for atom i and all smaller ones, and the sum of their magnitudes, if every larger one is always sent.
    left = budget - np.arange(present)
    remainder = np.cumsum(ordered[::-1])[::-1]
    balanced = np.flatnonzero((ordered * left <= remainder) & (left > 0))
    certain = int(balanced[0]) if len(balanced) else int(budget)
    probabilities[order[:certain]] = 1
    if left[certain] > 0:
        probabilities[order[certain:present]] = np.minimum(1, ordered[certain:] * left[certain] / remainder[certain])
    return probabilities


def decompose(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (rows, k) and (columns, k) vectors L and R with LR' = M: singular vectors, the longer ones times σ.

    They come from the eigenvectors of the smaller of M'M and MM', which takes a quarter of the time of an SVD. That
    squares singular values, and the smallest are lost to rounding; but Σ (Mv)v' = M for any orthonormal basis v, so the
    product is still exact.
    """
    if matrix.shape[0] < matrix.shape[1]:
        right, left = decompose(np.ascontiguousarray(matrix.T))
        return left, right
    given = torch.from_numpy(matrix)
    # Scaled to entries of at most 1, so that their squares fit in float32.
    scaled = given / given.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    try:
        right = torch.linalg.eigh(scaled.T @ scaled)[1]
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage] - where torch documents it
        # Happens rarely, with entries of very different magnitude. The SVD of M is slower, but more robust.
        right = torch.linalg.svd(given, full_matrices=False)[2].T
    return (given @ right).numpy(), right.numpy()


def reshape_to_matrix(layer: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]] | None:
    """Return a layer's gradient as the matrix whose singular vectors are its atoms; None for a vector.

    Convolutions (x, y, k, k) become (xy/2, 2k²) if xy is even, as in Sievert (2021, 3.3.5).
    """
    if layer.ndim < 2:
        return None
    if layer.ndim == 4 and layer.shape[0] * layer.shape[1] % 2 == 0:
        return layer.reshape(layer.shape[0] * layer.shape[1] // 2, -1)
    return layer.reshape(layer.shape[0], -1)


def _split_layers(gradient: Vector, shapes: Shapes) -> list[NDArray[np.float32]]:
    """Split a gradient (P,) into layers of these shapes."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(gradient, ends[:-1]), shapes, strict=True)]


def _count_levels(bits: int) -> int:
    """Return the number of levels besides 0 that fit into this many bits, one of which is the sign."""
    return (1 << (bits - 1)) - 1


def _round_at_random(
    values: NDArray[np.float32], largest: NDArray[np.float32], levels: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Round stochastically to integers from −levels to levels, so that integer · largest / levels is unbiased."""
    # In float64, so that a norm that is hardly above 0 does not overflow.
    scale = np.divide(np.float64(levels), largest, out=np.zeros(np.shape(largest)), where=np.greater(largest, 0))
    # Rounding error must not lift the largest entry above the highest level.
    level = np.minimum(np.floor(np.abs(values) * scale + rng.random(values.shape, dtype=np.float32)), levels)
    return np.where(values < 0, -level, level).astype(np.int64)


def _check_budget(budget: float) -> None:
    if not budget > 0:
        raise SalmonError(
            f"With a budget of {budget} atoms nothing would be sent.", hint="Give a budget above 0.", where="budget"
        )


def compression_hook(compression: Compression, *, seed: int = 0, group: Any = None) -> Callable[[Any, Any], Any]:
    """Return a hook for `model.register_comm_hook(None, hook)`: ranks gather all compressed gradients and average them.

    `group` is a process group whose backend sends tensors of the CPU, such as gloo; None is the default one. Gradients
    are compressed on the CPU; for graphics cards use `rounding_hook`. Each bucket of each step uses different random
    numbers.
    """
    calls = itertools.count(1)

    # torch checks these two annotations and refuses others.
    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        del state
        gradients = bucket.gradients()
        shapes = [tuple(each.shape) for each in gradients]
        flat = torch.cat([each.detach().reshape(-1) for each in gradients]).float().cpu().numpy()
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        payload = compression.compress(flat, shapes, np.random.default_rng([seed, next(calls), rank]))
        payloads = gather_bytes(payload, size, partial(dist.all_gather, group=group))
        total = np.stack([compression.expand(each, shapes) for each in payloads]).sum(axis=0, dtype=np.float32)
        start = 0
        for each in gradients:
            each.copy_(torch.from_numpy(total[start : start + each.numel()] / size).view_as(each))
            start += each.numel()
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    return hook


def rounding_hook(
    bits: int = 8, bucket_size: int = 512, *, seed: int = 0, group: Any = None
) -> Callable[[Any, Any], Any]:
    """Return a hook for `model.register_comm_hook(None, hook)` that rounds gradients as QSGD does,
    on the device on which they are.

    Nothing is copied to the CPU, and the exchange of one bucket of gradients runs while the next ones are computed.
    Each entry takes a byte, and each bucket of entries a norm; without codes of variable length, which a graphics card
    cannot write quickly.
    """
    if not 2 <= bits <= 8 or bucket_size < 1:
        raise SalmonError(
            f"Entries cannot be rounded to {bits} bits in buckets of {bucket_size}.",
            hint="Give 2 to 8 bits and at least 1 entry.",
            where="rounding_hook",
        )
    levels = _count_levels(bits)
    calls = itertools.count(1)

    # torch checks these two annotations and refuses others.
    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        del state
        buffer = bucket.buffer()
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        random = torch.Generator(buffer.device)
        random.manual_seed(hash((seed, next(calls), rank)) % (1 << 62))
        rows = torch.nn.functional.pad(buffer, (0, -len(buffer) % bucket_size)).view(-1, bucket_size).float()
        norms = torch.linalg.vector_norm(rows, dim=1)
        scaled = rows.abs() * (levels / norms.clamp(min=torch.finfo(torch.float32).tiny))[:, None]
        drawn = torch.rand(rows.shape, generator=random, device=rows.device)
        rounded = ((scaled + drawn).floor().clamp(max=levels) * rows.sign()).to(torch.int8)
        # Norms and entries travel in one exchange, as bytes.
        own = torch.cat([norms.view(torch.int8), rounded.view(-1)])
        received = [torch.empty_like(own) for _ in range(size)]
        future = dist.all_gather(received, own, group=group, async_op=True).get_future()  # pyright: ignore[reportOptionalMemberAccess]

        def average(_: torch.futures.Future[Any]) -> torch.Tensor:
            total = torch.zeros_like(rows)
            for each in received:
                scales = each[: 4 * len(norms)].view(torch.float32) / (levels * size)
                total += each[4 * len(norms) :].view(rows.shape) * scales[:, None]
            return buffer.copy_(total.view(-1)[: len(buffer)])

        return future.then(average)

    return hook


def gather_bytes(
    payload: bytes, size: int, all_gather: Callable[[list[torch.Tensor], torch.Tensor], Any]
) -> list[bytes]:
    """Gather the payloads of all ranks in rank order: first their lengths, then their bytes, padded to the longest."""
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    all_gather(lengths, torch.tensor([len(payload)]))
    longest = max(int(each) for each in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(size)]
    all_gather(parts, padded)
    return [part[: int(length)].numpy().tobytes() for part, length in zip(parts, lengths, strict=True)]
