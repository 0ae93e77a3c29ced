"""The base of every noise model: how the probability of an answer follows from two squared distances."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError

#: float32 or float64, of any shape; a noise model returns the precision that it was given.
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class NoiseModel(ABC):
    """The probability that a foot is judged nearer, for feet at squared distances d2_winner and d2_loser from the head.

        p = lapse + (1 − 2·lapse)·σ(f),   f = remoteness(d2_loser) − remoteness(d2_winner)

    A model is one increasing function of the squared distance, its `remoteness` (how far a foot *feels*), and the
    slope of that function. A new model is a frozen dataclass with these two methods; probability, loss, gradient and
    search follow. With a `lapse` of .05 no answer is more than 95 % certain: one in ten is given without looking, and
    half of those are right by luck.
    """

    lapse: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.lapse < 0.5:
            raise SalmonError(
                f"A lapse of {self.lapse} is not a lapse rate.", hint="Give a number from 0 up to, not including, 0.5."
            )

    @abstractmethod
    def remoteness(self, d2: Reals) -> Reals:
        """Return how far a foot at squared distance `d2` feels; finite for every d2 ≥ 0, and increasing."""

    @abstractmethod
    def remoteness_slope(self, d2: Reals) -> Reals:
        """Return the derivative of `remoteness` by the squared distance; finite for every d2 ≥ 0."""

    def probability(self, d2_winner: Reals, d2_loser: Reals) -> Reals:
        """Return the probability that the winner wins; if the arguments are swapped, 1 minus it."""
        return self.choice(self.remoteness(d2_loser) - self.remoteness(d2_winner))

    def choice(self, log_odds: Reals) -> Reals:
        """Return the probability p = lapse + (1 − 2·lapse)·σ(f) for log-odds f, elementwise."""
        return self.lapse + (1 - 2 * self.lapse) * sigmoid(log_odds)

    def loss(self, log_odds: Reals) -> Reals:
        """Return −log p elementwise, in nats."""
        return self.loss_and_slope(log_odds)[0]

    def loss_and_slope(self, log_odds: Reals) -> tuple[Reals, Reals]:
        """Return −log p and its derivative by the log-odds f, elementwise.

        Without lapses −log σ(f) = max(−f, 0) + log(1 + exp(−|f|)) never overflows, and its derivative is −σ(−f).
        With lapses p is at least the lapse, so that its logarithm is safe.
        """
        # z = exp(−|f|) serves both; log1p is not vectorised in numpy, and 1 + z loses nothing that a loss would show.
        z = np.abs(log_odds)
        np.negative(z, out=z)
        np.exp(z, out=z)
        denominator = z + 1
        # s = ½ + sign(f)·(½ − σ(−|f|)) is σ(f) to the last bit of 1: choosing entries by their sign takes far longer.
        z /= denominator
        np.subtract(0.5, z, out=z)
        s = np.copysign(z, log_odds, out=z)
        if self.lapse == 0:
            s -= 0.5
            loss = np.log(denominator, out=denominator)
            loss -= np.minimum(log_odds, 0)
            return loss, s
        s += 0.5
        share = 1 - 2 * self.lapse
        p = share * s
        p += self.lapse
        slope = 1 - s
        slope *= s
        slope *= -share
        slope /= p
        loss = np.log(p, out=p)
        return np.negative(loss, out=loss), slope


def sigmoid(f: Reals) -> Reals:
    """Return σ(f) = 1 / (1 + exp(−f)) elementwise; the exponent is never positive, so nothing overflows."""
    z = np.exp(-np.abs(f))
    return np.where(f >= 0, 1, z) / (1 + z)


def check_positive(name: str, value: float) -> None:
    """Raise a SalmonError for a parameter that is not a finite number above 0."""
    if not (isfinite(value) and value > 0):
        raise SalmonError(f"{name} is {value}, but must be a number above 0.", where=name)
