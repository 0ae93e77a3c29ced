"""Soft ordinal embedding (SOE): a squared margin on distances."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals

# Below this squared distance the slope of the square root is cut off: two targets at one place have no direction to
# move.
_SMALLEST_D2 = 1e-24


@dataclass(frozen=True)
class SOE(NoiseModel):
    """Fitted with max(0, 1 − f)², f = √d2_loser − √d2_winner; queries are searched with the probability σ(f).

    Terada and von Luxburg (2014), "Local ordinal embedding", section 3. The margin defines no probability: σ(f) is the
    logistic choice of the same f.
    """

    def remoteness(self, d2: Reals) -> Reals:
        """Return the distance √d2."""
        return np.sqrt(d2)

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return 1 / (2 √d2)."""
        return 0.5 / np.sqrt(np.maximum(d2, _SMALLEST_D2))

    def loss_and_slope(self, log_odds: Reals) -> tuple[Reals, Reals]:
        """Return max(0, 1 − f)² and its derivative by f, elementwise; the margin has no lapse."""
        margin = np.maximum(1 - log_odds, 0)
        return margin * margin, -2 * margin
