"""Gathering and adding up by index, the dear part of a refit, on numpy arrays or on torch tensors of the same memory.

Everything else about a loss is written once, in operators that both understand. A noise model always sees numpy arrays:
a tensor of the processor and its array are two names of one piece of memory, so that nothing is copied on the way. (Where
the processor has AVX-512, numpy's logarithms and exponentials take less than half the time of torch's.) Work arrays are
not kept from call to call: the memory of the last ones comes back at once, and keeping them gained nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# From this many triplets in a block torch adds up by index so much sooner (27 µs for 65,536 numbers, numpy 65) that it
# outweighs the dearer calls. Below 10,000 numpy wins; `benchmarks/refit.py` prints both on either side of this line.
TENSORS_FROM = 1 << 14


class Arithmetic(Protocol):
    """What the loss needs besides operators; `values` and `total` are what `of` gave."""

    def of(self, array: NDArray[Any]) -> Any:
        """The array under this arithmetic, in the same memory."""
        ...

    def array(self, values: Any) -> NDArray[Any]:
        """Back to the array, in the same memory."""
        ...

    def gather(self, values: Any, places: Any) -> Any:
        """values[places], in new memory."""
        ...

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """total[place] += value for every pair of them, also where a place recurs."""
        ...

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total, elementwise."""
        ...

    def zeros(self, size: int) -> Any:
        """(size,) zeros."""
        ...


class Arrays:
    """With numpy: nothing to load, and the least to pay a call."""

    def of(self, array: NDArray[Any]) -> Any:
        """The array itself."""
        return array

    def array(self, values: Any) -> NDArray[Any]:
        """The array itself."""
        return values

    def gather(self, values: Any, places: Any) -> Any:
        """values[places]."""
        return values.take(places)

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """One count over all of `total`, weighted by the values."""
        total += np.bincount(places, values, len(total))

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total."""
        total += values * values

    def zeros(self, size: int) -> Any:
        """(size,) zeros, float64."""
        return np.zeros(size)


class Tensors:
    """With torch, on the processor and without autograd: the gradient is written down, not traced."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def of(self, array: NDArray[Any]) -> Any:
        """A tensor in the memory of the array."""
        return self._torch.from_numpy(array)

    def array(self, values: Any) -> NDArray[Any]:
        """The memory of the tensor, as an array."""
        return values.numpy()

    def gather(self, values: Any, places: Any) -> Any:
        """values[places]; of torch's several ways the quickest in one dimension."""
        return self._torch.index_select(values, 0, places)

    def add_at(self, total: Any, places: Any, values: Any) -> None:
        """In place; twice as quick as index_add_, and as a product with a sparse matrix without building one."""
        total.scatter_add_(0, places, values)

    def add_square(self, total: Any, values: Any) -> None:
        """Add values² to the total in one pass."""
        total.addcmul_(values, values)

    def zeros(self, size: int) -> Any:
        """(size,) zeros, float64."""
        return self._torch.zeros(size, dtype=self._torch.float64)


@contextmanager
def arithmetic_for(triplets: int) -> Generator[Arithmetic]:
    """The quicker arithmetic for blocks of so many triplets, on one thread: a caller with more cores has an executor."""
    if triplets < TENSORS_FROM:
        yield Arrays()
        return
    tensors, torch = _tensors()
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
def _tensors() -> tuple[Tensors, Any]:
    # Loaded with the first large block: importing torch takes longer than many a fit.
    import torch

    return Tensors(torch), torch
