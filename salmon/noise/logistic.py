"""Logistic choice on squared distances with a slope: STE under the name that older experiment files use."""

from dataclasses import dataclass

import numpy as np

from salmon.noise.model import NoiseModel, Reals, positive


@dataclass(frozen=True)
class Logistic(NoiseModel):
    """Chance ∝ exp(−slope · d2).

    The slope need not be searched for: coordinates X with slope β give the same chances as √β·X with slope 1, so a
    fit at slope 1 learns it as the scale of its coordinates, and `learned` tells the two apart afterwards.
    van der Maaten and Weinberger (2012), "Stochastic triplet embedding", equation 1.
    """

    slope: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("slope", self.slope)

    def remoteness(self, d2: Reals) -> Reals:
        """The squared distance, times the slope."""
        return self.slope * d2

    def remoteness_slope(self, d2: Reals) -> Reals:
        """The slope, everywhere."""
        return np.full_like(d2, self.slope)

    def learned(self, coordinates: Reals) -> tuple[Reals, "Logistic"]:
        """The same chances told apart: (n, d) coordinates of mean square norm 1, and the model with their slope."""
        scale = float(np.sqrt((coordinates**2).sum(axis=1).mean()))
        if scale == 0:
            return coordinates, self
        return coordinates / scale, Logistic(lapse=self.lapse, slope=self.slope * scale**2)
