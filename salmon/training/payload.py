"""Write and read the bits of a compressed gradient, in few more bits than its entropy.

Gaps between rare entries are written in Golomb's code for a power of two (Golomb 1966; Rice and Plaunt 1971), or in
Elias's gamma code of order k (Elias 1975; Teuhola 1978), whichever is shorter. Rounded entries are written as a
sequence of masks: which are not 0, which of these are above the lowest level, and so on; a mask is written as the gaps
between the rarer of its two values. All codes are decoded with NumPy, without a loop over the numbers: their unary
parts precede their remainders.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint8]
Integers = NDArray[np.int64]
# Bits that hold the order of a code, and its largest order.
_ORDER_BITS, _MOST_ORDER = 5, 31
# About what a mask takes in addition to its entropy.
_MASK_BITS = 20


@dataclass(frozen=True)
class IntegerCode:
    """A code for numbers of at least 0: a unary part, then a remainder. `gamma` is Elias's code of an
    order, otherwise it is Rice's.

    Rice: v >> order in unary, then the lower `order` bits. Elias: with w = v + 2^order, the bits of w beyond order + 1
    in unary, then all bits of w but the first.
    """

    gamma: bool
    order: int

    def split(self, values: Integers) -> tuple[Integers, Integers, Integers]:
        """Return (unary parts, widths of the remainders in bits, remainders), each (m,)."""
        if not self.gamma:
            return values >> self.order, np.full(len(values), self.order), values & ((1 << self.order) - 1)
        shifted = values + (1 << self.order)
        # The exponent of a float64 counts the bits of a whole number below 2^53.
        longer = np.frexp(shifted.astype(np.float64))[1].astype(np.int64) - 1 - self.order
        return longer, longer + self.order, shifted - (np.int64(1) << (longer + self.order))

    def join(self, unary: Integers, remainders: Integers) -> Integers:
        """Return the numbers (m,) from both parts."""
        if not self.gamma:
            return (unary << self.order) + remainders
        return (np.int64(1) << (unary + self.order)) + remainders - (1 << self.order)

    def widths(self, unary: Integers) -> Integers:
        """Return the widths of the remainders (m,) that follow these unary parts."""
        return unary + self.order if self.gamma else np.full(len(unary), self.order)

    def count_bits(self, values: Integers) -> int:
        """Return the length of the numbers (m,) in this code."""
        if not self.gamma:
            return int((values >> self.order).sum()) + len(values) * (1 + self.order)
        longer = np.frexp((values + (1 << self.order)).astype(np.float64))[1].astype(np.int64) - 1 - self.order
        return 2 * int(longer.sum()) + len(values) * (1 + self.order)


_COUNTS = IntegerCode(gamma=True, order=0)


def choose_code(values: Integers) -> tuple[IntegerCode, int]:
    """Return the shortest code of orders near the mean of the numbers (m,), and the bits that they take in it."""
    if not len(values):
        return IntegerCode(gamma=False, order=0), 0
    middle = int(np.log2(1 + values.mean()))
    orders = range(max(0, middle - 1), min(_MOST_ORDER, middle + 1) + 1)
    codes = [IntegerCode(gamma, order) for gamma in (False, True) for order in orders]
    lengths = [code.count_bits(values) for code in codes]
    best = int(np.argmin(lengths))
    return codes[best], lengths[best]


class PayloadWriter:
    """Collect the bits of one gradient."""

    def __init__(self) -> None:
        self._parts: list[Bits] = []

    def __len__(self) -> int:
        """Return the number of bits so far."""
        return sum(map(len, self._parts))

    def finish(self) -> bytes:
        """Return everything written, padded to whole bytes."""
        return np.packbits(np.concatenate(self._parts)).tobytes() if self._parts else b""

    def number(self, value: float) -> None:
        """Write one float32."""
        self.floats(np.array([value]))

    def floats(self, values: NDArray[np.floating]) -> None:
        """Write float32 values; the reader must know how many."""
        self._parts.append(np.unpackbits(values.astype("<f4").ravel().view(np.uint8)))

    def bits(self, values: Bits) -> None:
        """Write one bit for each value."""
        self._parts.append(values)

    def count(self, value: int) -> None:
        """Write one whole number of at least 0; smaller ones take fewer bits."""
        self._code(_COUNTS, np.array([value]))

    def naturals(self, values: Integers) -> None:
        """Write numbers of at least 0 in the shortest code; the reader must know how many."""
        self._write_naturals(choose_code(values)[0], values)

    def positions(self, positions: Integers) -> None:
        """Write increasing indices as their number and the gaps between them."""
        self.count(len(positions))
        self.naturals(np.diff(positions, prepend=-1) - 1)

    def mask(self, values: NDArray[np.bool_]) -> None:
        """Write truth values: each in one bit, or the positions of the rarer value if that is shorter."""
        rarer = 2 * np.count_nonzero(values) <= len(values)
        listed = PayloadWriter()
        listed.positions(np.flatnonzero(values == rarer))
        short = len(listed) < len(values)
        self.bits(np.array([short, rarer], dtype=np.uint8))
        self._parts += listed._parts if short else [values.astype(np.uint8)]

    def levels(self, values: Integers) -> None:
        """Write numbers of at least 0, most of which are small: lower bits of all of them, then which
        are above 0, above 1, and so on.
        """
        order = _choose_order(values)
        self.bits(_to_bits(np.array([order]), _ORDER_BITS))
        if order:
            self.bits(_to_bits(values & ((1 << order) - 1), order))
        left = values >> order
        while len(left):
            more = left > 0
            self.mask(more)
            left = left[more] - 1

    def signed(self, values: Integers, levels: int) -> None:
        """Write integers from −levels to levels: all in equal width, or sizes and signs of those
        that are not 0 if that is shorter.
        """
        coded = PayloadWriter()
        present = values != 0
        coded.mask(present)
        coded.bits((values[present] < 0).astype(np.uint8))
        if levels > 1:
            coded.levels(np.abs(values[present]) - 1)
        width = (2 * levels).bit_length()
        short = len(coded) < len(values) * width
        self.bits(np.array([short], dtype=np.uint8))
        self._parts += coded._parts if short else [_to_bits(values + levels, width)]

    def _write_naturals(self, code: IntegerCode, values: Integers) -> None:
        if len(values):
            self.bits(_to_bits(np.array([2 * code.order + code.gamma]), 1 + _ORDER_BITS))
            self._code(code, values)

    def _code(self, code: IntegerCode, values: Integers) -> None:
        unary, widths, remainders = code.split(values)
        ends = np.cumsum(unary + 1)
        marks = np.zeros(int(ends[-1]), dtype=np.uint8)
        marks[ends - 1] = 1
        self.bits(marks)
        self.bits(_join_bits(remainders, widths))


class PayloadReader:
    """Read what a `PayloadWriter` wrote, in the same order."""

    def __init__(self, payload: bytes) -> None:
        self._bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
        self._at = 0

    def number(self) -> float:
        """Read one float32."""
        return float(self.floats(1)[0])

    def floats(self, count: int) -> NDArray[np.float32]:
        """Read this many float32 values."""
        return np.packbits(self.bits(32 * count)).view("<f4").astype(np.float32)

    def bits(self, count: int) -> Bits:
        """Read this many bits, as 0 and 1."""
        self._at += count
        return self._bits[self._at - count : self._at]

    def count(self) -> int:
        """Read one whole number."""
        return int(self._decode(_COUNTS, 1)[0])

    def naturals(self, count: int) -> Integers:
        """Read this many numbers of at least 0."""
        if not count:
            return np.zeros(0, dtype=np.int64)
        kind = int(_from_bits(self.bits(1 + _ORDER_BITS), 1 + _ORDER_BITS)[0])
        return self._decode(IntegerCode(bool(kind % 2), kind // 2), count)

    def positions(self) -> Integers:
        """Read increasing indices."""
        return np.cumsum(self.naturals(self.count()) + 1) - 1

    def mask(self, count: int) -> NDArray[np.bool_]:
        """Read this many truth values."""
        short, rarer = self.bits(2)
        if not short:
            return self.bits(count) == 1
        values = np.full(count, not rarer)
        values[self.positions()] = rarer
        return values

    def levels(self, count: int) -> Integers:
        """Read this many numbers of at least 0."""
        order = int(_from_bits(self.bits(_ORDER_BITS), _ORDER_BITS)[0])
        values = _from_bits(self.bits(count * order), order) if order else np.zeros(count, dtype=np.int64)
        left = np.arange(count)
        while len(left):
            left = left[self.mask(len(left))]
            values[left] += 1 << order
        return values

    def signed(self, count: int, levels: int) -> Integers:
        """Read this many integers from −levels to levels."""
        width = (2 * levels).bit_length()
        if not self.bits(1)[0]:
            return _from_bits(self.bits(count * width), width) - levels
        values = np.zeros(count, dtype=np.int64)
        present = self.mask(count)
        signs = 1 - 2 * self.bits(int(np.count_nonzero(present))).astype(np.int64)
        values[present] = signs * (1 + self.levels(len(signs))) if levels > 1 else signs
        return values

    def _decode(self, code: IntegerCode, count: int) -> Integers:
        unary = self._unary(count)
        widths = code.widths(unary)
        return code.join(unary, _split_bits(self.bits(int(widths.sum())), widths))

    def _unary(self, count: int) -> Integers:
        """Read the zeros before each of the next `count` ones."""
        window = 64 + 4 * count
        while True:
            ones = np.flatnonzero(self._bits[self._at : self._at + window])
            if len(ones) >= count or self._at + window >= len(self._bits):
                break
            window *= 2
        ends = ones[:count]
        self._at += int(ends[-1]) + 1
        return np.diff(ends, prepend=-1) - 1


def _choose_order(values: Integers) -> int:
    """Return how many lower bits to write as they are, so that lower bits and masks together are shortest."""
    if not len(values):
        return 0
    middle = int(np.log2(1 + values.mean()))
    orders = range(max(0, middle - 2), middle + 2)

    def count_bits(order: int) -> float:
        # How many of the numbers reach each mask, and how many of them go on to the next one.
        reached = np.cumsum(np.bincount(values >> order)[::-1])[::-1].astype(np.float64)
        on = np.append(reached[1:], 0)
        share = np.clip(on / reached, 1e-12, 1 - 1e-12)
        entropy = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
        return len(values) * order + float((reached * entropy).sum()) + len(reached) * _MASK_BITS

    return min(orders, key=count_bits)


def _to_bits(values: Integers, width: int) -> Bits:
    """Return numbers below 2^width (m,) as bits (m · width,), most significant bit first."""
    whole = 8 if width <= 8 else 16 if width <= 16 else 32
    return np.unpackbits(values.astype(f">u{whole // 8}").view(np.uint8)).reshape(-1, whole)[:, whole - width :].ravel()


def _from_bits(bits: Bits, width: int) -> Integers:
    """Return the numbers (m,) of these bits (m · width,)."""
    whole = 8 if width <= 8 else 16 if width <= 16 else 32
    padded = np.zeros((len(bits) // width, whole), dtype=np.uint8)
    padded[:, whole - width :] = bits.reshape(-1, width)
    return np.packbits(padded).view(f">u{whole // 8}").astype(np.int64)


def _join_bits(values: Integers, widths: Integers) -> Bits:
    """Return the lower `widths` bits (m,) of each number (m,), one after another."""
    ends = np.cumsum(widths)
    shifts = np.repeat(ends, widths) - 1 - np.arange(ends[-1])
    return ((np.repeat(values, widths) >> shifts) & 1).astype(np.uint8)


def _split_bits(bits: Bits, widths: Integers) -> Integers:
    """Return the numbers (m,) whose bits, `widths` (m,) each, follow one another."""
    ends = np.cumsum(widths)
    weighted = bits.astype(np.int64) << (np.repeat(ends, widths) - 1 - np.arange(len(bits)))
    sums = np.concatenate([[0], np.cumsum(weighted)])
    return sums[ends] - sums[ends - widths]
