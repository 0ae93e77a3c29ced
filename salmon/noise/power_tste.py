"""Power t-STE: the heavy tail of t-STE with an exponent of its own, the model recommended for reported embeddings."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals, check_positive


@dataclass(frozen=True)
class PowerTSTE(NoiseModel):
    """Probability of a foot ∝ (1 + d2)^(−k).

    k = 1 is t-STE with α = 1, and t-STE(α) is k = (α+1)/2 on coordinates divided by √α. After van der Maaten and
    Weinberger (2012), equation 5, with the exponent freed from the scale.
    """

    k: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("k", self.k)

    def remoteness(self, d2: Reals) -> Reals:
        """Return k · log(1 + d2)."""
        felt = d2 + 1
        np.log(felt, out=felt)
        felt *= self.k
        return felt

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return k / (1 + d2)."""
        return self.k / (1 + d2)
