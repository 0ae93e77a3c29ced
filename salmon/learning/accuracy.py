"""Measure how well an embedding agrees with answers: the share of them that it predicts, and how surely.

Accuracy counts which target lies nearer and needs no noise model; log-loss judges the probabilities of one. Both are
biased if the answers were also fitted, or if a sampler chose their queries because the embedding was unsure of them.
"""

import numpy as np
from numpy.typing import ArrayLike

from salmon.geometry import Reals
from salmon.learning.triplets import Triplets, check_triplets
from salmon.noise import NoiseModel, noise_model


def accuracy(coordinates: Reals, triplets: ArrayLike) -> float:
    """Return the share of triplets whose winner lies nearer the head than the loser.

    A tie counts half. Without triplets the result is NaN.
    """
    rows = check_triplets(triplets, len(coordinates))
    if not len(rows):
        return float("nan")
    d2_winner, d2_loser = compared_distances(coordinates, rows)
    return float(np.mean((d2_winner < d2_loser) + 0.5 * (d2_winner == d2_loser)))


def log_loss(
    coordinates: Reals, triplets: ArrayLike, *, noise: str | NoiseModel = "TSTE", lapse: float | None = None
) -> float:
    """Return the mean of −log p(winner) over the triplets, in nats, with p at least 1e-12.

    Guessing gives log 2. Without triplets the result is NaN.
    """
    rows = check_triplets(triplets, len(coordinates))
    if not len(rows):
        return float("nan")
    d2_winner, d2_loser = compared_distances(coordinates, rows)
    chance = noise_model(noise, lapse=lapse).probability(d2_winner, d2_loser)
    return float(-np.log(np.maximum(chance, 1e-12)).mean())


def compared_distances(coordinates: Reals, triplets: Triplets) -> tuple[Reals, Reals]:
    """Return the squared distances (m,) from the heads to the winners, and those to the losers."""
    placed = np.asarray(coordinates, dtype=np.float64)
    heads = placed[triplets[:, 0]]
    d2_winner = ((heads - placed[triplets[:, 1]]) ** 2).sum(axis=1)
    d2_loser = ((heads - placed[triplets[:, 2]]) ** 2).sum(axis=1)
    return d2_winner, d2_loser
