"""The shuffled order of an epoch, any part of it by itself: no table as long as the data, and no rank shuffles for the others."""

import numpy as np
from numpy.typing import NDArray

# Two tables each. So many leave no place likelier than another also where there are few of them.
_ROUNDS = 3


class ShuffledOrder:
    """A permutation of range(n) that the seed alone decides: `part(start, stop)` costs a few operations an entry.

    A Feistel network: places are written as two digits of about √n, and each digit in turn is moved on by as much as a random table has for
    the other. That maps the square of both digits onto itself; what falls outside range(n) is mapped once more.
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
        """The entries from `start` to before `stop`."""
        found = self._mapped(np.arange(start, stop))
        while (outside := np.flatnonzero(found >= self._n)).size:
            found[outside] = self._mapped(found[outside])
        return found

    def _mapped(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        high = places // self._low
        low = places - high * self._low
        for for_high, for_low in self._tables:
            high += for_high.take(low)
            _wrap(high, self._high)
            low += for_low.take(high)
            _wrap(low, self._low)
        return high * self._low + low


def _wrap(digits: NDArray[np.int64], base: int) -> None:
    """Digits below twice the base, modulo it: as unsigned numbers those that are below it wrap to something huge."""
    unsigned = digits.view(np.uint64)
    np.minimum(unsigned, unsigned - np.uint64(base), out=unsigned)
