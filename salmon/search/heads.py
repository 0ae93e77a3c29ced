"""Where each head may sit among the targets, judged by its own answers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates, Reals
from salmon.learning import Triplets
from salmon.noise import NoiseModel

# Entries of one table of log-probabilities: what is summed at a time stays in cache.
_BLOCK = 1 << 18


def head_posterior(
    triplets: Triplets, coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None
) -> Coordinates:
    """(n, x) chance τ that each head sits at each of x places, given all of its answers under these coordinates.

    The places are the n targets' coordinates, or those whose indices are given; before any answer all are as likely.
    Tamuz et al. (2011), section 4.
    """
    return normalised(log_head_posterior(triplets, coordinates, model, places))


def normalised(log_posterior: Coordinates) -> Coordinates:
    """Chances (n, x) from their logarithms, which may all be off by a number a row.

    Less the largest of its row, no sum of logarithms underflows, however many answers a head has.
    """
    chance = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)


def log_head_posterior(
    triplets: Triplets, coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None
) -> Coordinates:
    """(n, x) Σ over the answers of each head of log p(winner, loser | head at x): log τ without its normaliser."""
    n = len(coordinates)
    felt = remoteness_table(coordinates, model, places)
    total = np.zeros((n, felt.shape[1]))
    ordered = triplets[np.argsort(triplets[:, 0], kind="stable")]
    step = max(1, _BLOCK // felt.shape[1])
    for start in range(0, len(ordered), step):
        heads, winners, losers = ordered[start : start + step].T
        chance = model.choice(felt[losers] - felt[winners])
        # An answer that the model calls impossible must not erase its head from everywhere.
        np.maximum(chance, 1e-300, out=chance)
        np.log(chance, out=chance)
        firsts = np.flatnonzero(np.diff(heads, prepend=-1))
        total[heads[firsts]] += np.add.reduceat(chance, firsts, axis=0)
    return total


def remoteness_table(coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None) -> Reals:
    """(n, x) remoteness of each target as a foot (rows) for a head at each place (columns)."""
    seats = coordinates if places is None else coordinates[places]
    d2 = np.zeros((len(coordinates), len(seats)))
    for foot, seat in zip(coordinates.T, seats.T, strict=True):
        difference = np.subtract.outer(foot, seat)
        difference *= difference
        d2 += difference
    return model.remoteness(d2)
