"""Stochastic triplet embedding (STE): a light tail; a far foot is as good as never chosen."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals


@dataclass(frozen=True)
class STE(NoiseModel):
    """Chance ∝ exp(−d2).

    van der Maaten and Weinberger (2012), "Stochastic triplet embedding", equation 1.
    """

    def remoteness(self, d2: Reals) -> Reals:
        """The squared distance itself."""
        return d2

    def remoteness_slope(self, d2: Reals) -> Reals:
        """1 everywhere."""
        return np.ones_like(d2)
