"""Answers that the recommended sampler collects in a simulated world, with the map that the console would show."""

import numpy as np
from numpy.typing import NDArray

from salmon.samplers.adaptive import Adaptive
from salmon.simulate import random_world, stream


def adaptive_study(
    n: int, seed: int, *, answers: int = 900, batch: int = 60
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the triplets of a study in the plane, and the map that was shown of them."""
    world, generator, sampler = random_world(n, 2, seed), stream(seed, "answers"), Adaptive()
    state, triplets = sampler.start(n, seed), np.zeros((0, 3), np.int32)
    while len(triplets) < answers:
        state = sampler.refit(state, triplets) if len(triplets) else state
        queries = sampler.search(state, triplets, triplets[:0], batch).queries
        triplets = np.concatenate([triplets, world.answer(queries, generator)]).astype(np.int32)
    return triplets, sampler.report(sampler.refit(state, triplets), triplets).coordinates
