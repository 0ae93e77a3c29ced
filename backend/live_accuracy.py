"""Live held-out accuracy: the last published model predicts every answer to a random query before it is absorbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from salmon.learning.accuracy import compared_distances

#: Recent predictions are the later half of all, at least LEAST_RECENT and at most RECENT. The mistakes of an early model
#: say little about the present one.
LEAST_RECENT = 50
RECENT = 500
_Z = 1.959964  # 95 %


@dataclass(frozen=True)
class LiveAccuracy:
    """Predictions so far: `right` of `total` (ties count half); `recent` holds the last ones as letters r, w and t."""

    right: float = 0.0
    total: int = 0
    recent: str = ""

    def judge(self, coordinates: NDArray[np.float64], triplets: Sequence[tuple[int, int, int]]) -> LiveAccuracy:
        """Return this with the predictions of random answers by an embedding that has not seen them."""
        if not triplets:
            return self
        d2_winner, d2_loser = compared_distances(coordinates, np.array(triplets, dtype=np.int32))
        letters = "".join(np.where(d2_winner == d2_loser, "t", np.where(d2_winner < d2_loser, "r", "w")))
        return replace(
            self,
            right=self.right + letters.count("r") + letters.count("t") / 2,
            total=self.total + len(letters),
            recent=(self.recent + letters)[-RECENT:],
        )

    def numbers(self) -> dict[str, float | int | str]:
        """Return the fields to store."""
        return {"held_right": self.right, "held_total": self.total, "held_recent": self.recent}

    @staticmethod
    def of(numbers: dict[str, str]) -> LiveAccuracy:
        """Return the value of stored fields."""
        return LiveAccuracy(
            float(numbers.get("held_right", 0)), int(numbers.get("held_total", 0)), numbers.get("held_recent", "")
        )

    def recent_interval(self) -> tuple[float, float, float]:
        """Return (accuracy, low, high) of the recent predictions with Wilson's 95 % interval; NaN before the first."""
        recent = self.recent[-max(LEAST_RECENT, self.total // 2) :]
        count = len(recent)
        if not count:
            return float("nan"), float("nan"), float("nan")
        share = (recent.count("r") + recent.count("t") / 2) / count
        middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
        half = _Z / (1 + _Z**2 / count) * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
        return share, middle - half, middle + half
