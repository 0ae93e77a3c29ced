"""How fast something comes, remembered for a few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf

#: The pace is remembered for about this long.
_PACE_SECONDS = 5.0


@dataclass(frozen=True)
class Pace:
    """Events a second, as remembered at a moment; it fades when nothing happens."""

    per_second: float = 0.0
    moment: float = -inf

    def at(self, now: float) -> float:
        """What is left of it by now."""
        return self.per_second * exp(-(now - self.moment) / _PACE_SECONDS) if self.moment > -inf else 0.0

    def add(self, count: int, now: float) -> Pace:
        """With these events."""
        return Pace(self.at(now) + count / _PACE_SECONDS, now)
