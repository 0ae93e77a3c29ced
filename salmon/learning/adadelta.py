"""Adadelta over small batches: how the samplers of published experiments were fitted, kept to reproduce them.

`salmon.learning.fit` reaches a better embedding sooner. What this one does besides, stopping long before it converges,
keeps the coordinates small where the answers alone would let them grow.
"""

import numpy as np

from salmon.geometry import Coordinates
from salmon.learning.objective import block_of, loss_and_gradient
from salmon.learning.triplets import Triplets
from salmon.noise import NoiseModel

# Zeiler (2012): the memory of both running averages, and what keeps the first steps from being 0.
_MEMORY, _SMALLEST = 0.9, 1e-6


def adadelta(
    start: Coordinates,
    triplets: Triplets,
    model: NoiseModel,
    *,
    epochs: int,
    seed: int,
    batch: int = 512,
    rate: float = 1.0,
) -> Coordinates:
    """(n, d) coordinates after some epochs from a start (Zeiler 2012, algorithm 1), on the mean loss of each batch.

    A batch is drawn without replacement from all answers, in time that grows with the batch and not with the answers.
    """
    generator = np.random.default_rng(seed)
    coordinates = start.copy()
    slopes, steps = np.zeros_like(coordinates), np.zeros_like(coordinates)
    size = min(batch, len(triplets))
    for _ in range(epochs * -(-len(triplets) // max(1, size))):
        drawn = triplets[generator.choice(len(triplets), size, replace=False, shuffle=False)]
        gradient = loss_and_gradient(model, coordinates, (block_of(drawn),))[1] / size
        slopes = _MEMORY * slopes + (1 - _MEMORY) * gradient**2
        step = np.sqrt((steps + _SMALLEST) / (slopes + _SMALLEST)) * gradient
        steps = _MEMORY * steps + (1 - _MEMORY) * step**2
        coordinates -= rate * step
    return coordinates
