"""Bytes of compressed gradients: numbers, small integers in few bits, places of what is not zero."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DENSE, _SPARSE = 0, 1


class Writer:
    """Collects the bytes of one gradient."""

    def __init__(self) -> None:
        self._bytes = BytesIO()

    def finish(self) -> bytes:
        """Everything written."""
        return self._bytes.getvalue()

    def number(self, value: float) -> None:
        """One float32."""
        self._bytes.write(np.float32(value).tobytes())

    def count(self, value: int) -> None:
        """One whole number below 2³²."""
        self._bytes.write(np.uint32(value).tobytes())

    def floats(self, values: NDArray[np.floating[Any]]) -> None:
        """Float32 each; their number must be known to the reader."""
        self._bytes.write(values.astype(np.float32).tobytes())

    def bits(self, values: NDArray[np.uint8]) -> None:
        """One bit each."""
        self._bytes.write(np.packbits(values).tobytes())

    def signed(self, values: NDArray[np.int64], levels: int) -> None:
        """Whole numbers from −levels to levels, in the shorter of two codes: each in few bits, or only what is not 0."""
        width = (2 * levels).bit_length()
        present = np.flatnonzero(values)
        dense = -(-len(values) * width // 8)
        sparse = 4 + 4 * len(present) + -(-len(present) * width // 8)
        if dense <= sparse:
            self._bytes.write(bytes([_DENSE]))
            self._bytes.write(_packed(values + levels, width))
            return
        self._bytes.write(bytes([_SPARSE]))
        self.count(len(present))
        self._bytes.write(present.astype(np.uint32).tobytes())
        self._bytes.write(_packed(values[present] + levels, width))

    def places(self, places: NDArray[np.int64], size: int) -> None:
        """Indices below `size`, rising: as a list, or as a bit for each place where that is shorter."""
        if 4 + 4 * len(places) <= -(-size // 8):
            self._bytes.write(bytes([_SPARSE]))
            self.count(len(places))
            self._bytes.write(places.astype(np.uint32).tobytes())
            return
        self._bytes.write(bytes([_DENSE]))
        mask = np.zeros(size, dtype=np.uint8)
        mask[places] = 1
        self.bits(mask)


class Reader:
    """Reads what a `Writer` wrote, in the same order."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def number(self) -> float:
        """One float32."""
        return float(self._array(np.float32, 1)[0])

    def count(self) -> int:
        """One whole number."""
        return int(self._array(np.uint32, 1)[0])

    def floats(self, count: int) -> NDArray[np.float32]:
        """So many float32."""
        return self._array(np.float32, count)

    def bits(self, count: int) -> NDArray[np.uint8]:
        """So many bits, as 0 and 1."""
        return np.unpackbits(self._array(np.uint8, -(-count // 8)), count=count)

    def signed(self, count: int, levels: int) -> NDArray[np.int64]:
        """So many whole numbers from −levels to levels."""
        width = (2 * levels).bit_length()
        if self._kind() == _DENSE:
            return self._unpacked(count, width) - levels
        present = self.count()
        values = np.zeros(count, dtype=np.int64)
        places = self._array(np.uint32, present)
        values[places] = self._unpacked(present, width) - levels
        return values

    def places(self, size: int) -> NDArray[np.int64]:
        """Rising indices below `size`."""
        if self._kind() == _SPARSE:
            return self._array(np.uint32, self.count()).astype(np.int64)
        return np.flatnonzero(self.bits(size))

    def _kind(self) -> int:
        return int(self._array(np.uint8, 1)[0])

    def _unpacked(self, count: int, width: int) -> NDArray[np.int64]:
        if width == 8:
            return self._array(np.uint8, count).astype(np.int64)
        bits = np.unpackbits(self._array(np.uint8, -(-count * width // 8)), count=count * width)
        return bits.reshape(count, width).astype(np.int64) @ (1 << np.arange(width - 1, -1, -1))

    def _array(self, kind: Any, count: int) -> NDArray[Any]:
        size = np.dtype(kind).itemsize * count
        part = np.frombuffer(self._payload, dtype=kind, count=count, offset=self._at)
        self._at += size
        return part


def _packed(values: NDArray[np.int64], width: int) -> bytes:
    """Whole numbers from 0, the highest of their `width` bits first."""
    if width == 8:
        return values.astype(np.uint8).tobytes()
    shifts = np.arange(width - 1, -1, -1)
    return np.packbits(((values[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()
