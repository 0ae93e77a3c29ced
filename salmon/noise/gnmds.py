"""Generalised non-metric multidimensional scaling (GNMDS): a margin on squared distances."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals


@dataclass(frozen=True)
class GNMDS(NoiseModel):
    """Fitted with the hinge max(0, 1 − f), f = d2_loser − d2_winner; queries are searched with the probability σ(f).

    Agarwal, Wills, Cayton, Lanckriet, Kriegman and Belongie (2007), "Generalized non-metric multidimensional
    scaling", section 3. The hinge defines no probability: σ(f) is the logistic choice of the same f.
    """

    def remoteness(self, d2: Reals) -> Reals:
        """Return the squared distance d2 itself."""
        return d2

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return 1 for every distance."""
        return np.ones_like(d2)

    def loss_and_slope(self, log_odds: Reals) -> tuple[Reals, Reals]:
        """Return max(0, 1 − f) and its derivative by f, elementwise; the hinge has no lapse."""
        loss = np.maximum(1 - log_odds, 0)
        return loss, -(loss > 0).astype(log_odds.dtype)
