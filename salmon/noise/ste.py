"""Stochastic triplet embedding (STE): a light tail, under which a far foot is practically never chosen."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals


@dataclass(frozen=True)
class STE(NoiseModel):
    """Probability of a foot ∝ exp(−d2).

    van der Maaten and Weinberger (2012), "Stochastic triplet embedding", equation 1.
    """

    def remoteness(self, d2: Reals) -> Reals:
        """Return the squared distance d2 itself."""
        return d2

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return 1 for every distance."""
        return np.ones_like(d2)
