"""t-distributed stochastic triplet embedding (t-STE): a heavy tail, under which answers about far feet are never
certain.
"""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals, check_positive


@dataclass(frozen=True)
class TSTE(NoiseModel):
    """Probability of a foot ∝ (1 + d2/α)^(−(α+1)/2), the kernel of Student's t with α degrees of freedom.

    van der Maaten and Weinberger (2012), "Stochastic triplet embedding", equation 5.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("alpha", self.alpha)

    def remoteness(self, d2: Reals) -> Reals:
        """Return (α+1)/2 · log(1 + d2/α)."""
        felt = d2 / self.alpha
        felt += 1
        np.log(felt, out=felt)
        felt *= (self.alpha + 1) / 2
        return felt

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return (α+1)/2 / (α + d2)."""
        return (self.alpha + 1) / 2 / (self.alpha + d2)
