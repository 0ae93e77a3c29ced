"""Compression without its bytes, for tests of what rounding and sampling do on average: writing
codes takes most of their time.

`encode` and `decode` are those of the program; between them, values pass through a list. Tests that use this compare
some gradients with those that pass through bytes.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from salmon.training import compression
from salmon.training.compression import Compression, decompose

# Gradients that are kept, at least as many as are sent in one step.
_KEPT = 64


class Uncoded:
    """Stands for both writer and reader: what is written is read back in the same order."""

    def __init__(self):
        self._parts, self._read = [], 0

    def rewound(self):
        """Return the same values, to be read from the first one."""
        again = Uncoded()
        again._parts = self._parts
        return again

    def _next(self):
        self._read += 1
        return self._parts[self._read - 1]

    def _pass(self, value, kind):
        return self._parts.append(value) if isinstance(value, kind) else self._next()

    def floats(self, values):
        """Write an array, or read as many as a number says."""
        return self._pass(values.astype(np.float32) if isinstance(values, np.ndarray) else values, np.ndarray)

    def signed(self, values, _levels):
        """Write or read integers."""
        return self._pass(values, np.ndarray)

    def bits(self, values):
        """Write or read bits."""
        return self._pass(values, np.ndarray)

    def number(self, *value):
        """Write or read one float32."""
        return self._parts.append(float(np.float32(value[0]))) if value else self._next()

    def positions(self, *positions):
        """Write or read indices."""
        return self._parts.append(positions[0]) if positions else self._next()

    def count(self, *value):
        """Write or read a whole number."""
        return self._parts.append(value[0]) if value else self._next()


def encode_layers(scheme, gradient, shapes, rng):
    """Return what would be coded."""
    parts = Uncoded()
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
    for layer, shape in zip(np.split(gradient, ends[:-1]), shapes, strict=True):
        scheme.encode(layer.reshape(shape), parts, rng)
    return parts


def decode_layers(scheme, parts, shapes):
    """Return the gradient."""
    again = parts.rewound()
    return np.concatenate([scheme.decode(again, shape).ravel() for shape in shapes])


@contextmanager
def without_codes() -> Iterator[None]:
    """Send the number of a gradient instead of its bytes. Singular vectors are not random: those
    of one matrix are computed once.
    """
    known, sent, numbers = {}, {}, itertools.count()

    def compress(self, gradient, shapes, rng):
        number = next(numbers).to_bytes(8)
        sent[number] = encode_layers(self, gradient, shapes, rng)
        sent.pop((int.from_bytes(number) - _KEPT).to_bytes(8, signed=True), None)
        return number

    def expand(self, payload, shapes):
        return decode_layers(self, sent[bytes(payload)], shapes)

    def decompose_once(matrix):
        key = matrix.shape, matrix.tobytes()
        if key not in known:
            known.clear()
            known[key] = decompose(matrix)
        return known[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Compression, "compress", compress)
        patched.setattr(Compression, "expand", expand)
        patched.setattr(compression, "decompose", decompose_once)
        yield
