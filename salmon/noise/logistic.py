"""Logistic choice on squared distances with a slope: STE under the name that older experiment files use."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals, check_positive


@dataclass(frozen=True)
class Logistic(NoiseModel):
    """Probability of a foot ∝ exp(−slope · d2).

    The slope need not be searched for: coordinates X with slope β give the same probabilities as √β·X with slope 1, so
    a fit at slope 1 learns it as the scale of its coordinates, and `learned` separates the two afterwards. van der
    Maaten and Weinberger (2012), "Stochastic triplet embedding", equation 1.
    """

    slope: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("slope", self.slope)

    def remoteness(self, d2: Reals) -> Reals:
        """Return slope · d2."""
        return self.slope * d2

    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return the slope, which is the same for every distance."""
        return np.full_like(d2, self.slope)

    def learned(self, coordinates: Reals) -> tuple[Reals, "Logistic"]:
        """Return (n, d) coordinates of mean square norm 1, and the model with the slope that gives the same
        probabilities.
        """
        scale = float(np.sqrt((coordinates**2).sum(axis=1).mean()))
        if scale == 0:
            return coordinates, self
        return coordinates / scale, Logistic(lapse=self.lapse, slope=self.slope * scale**2)
