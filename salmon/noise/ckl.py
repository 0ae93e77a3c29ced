"""Crowd kernel learning (CKL): the odds of the feet are their squared distances, softened by μ."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals, check_positive


@dataclass(frozen=True)
class CKL(NoiseModel):
    """Probability of the winner (μ + d2_loser) / (2μ + d2_winner + d2_loser).

    Tamuz, Liu, Belongie, Shamir and Kalai (2011), "Adaptively learning the crowd kernel", section 2. A CKL embedding
    is √μ times the t-STE embedding with α = 1.
    """

    mu: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("mu", self.mu)

    def remoteness(self, d2: Reals) -> Reals:
        """Return log(μ + d2)."""
        felt = d2 + self.mu
        return np.log(felt, out=felt)

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return 1 / (μ + d2)."""
        return 1 / (self.mu + d2)
