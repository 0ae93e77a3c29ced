"""Randomness by name: one seed gives each purpose a stream of its own.

A true embedding and the start of a fit that are drawn from the same numbers *are the same embedding*: the fit begins
at the answer and every figure measured with it is worthless. Streams with different names never meet.
"""

import numpy as np

#: The purposes, in an order that may only grow: a stream's place in this tuple is part of every recorded result.
STREAMS: tuple[str, ...] = ("truth", "queries", "answers", "start", "sampler", "folds", "judge", "sides")


def stream(seed: int, name: str, *which: int) -> np.random.Generator:
    """The generator of one purpose. Equal arguments give equal numbers; any others are independent of them.

    `which` divides a purpose further: ("answers", 7) is the seventh participant.
    """
    if name not in STREAMS:
        raise KeyError(f"There is no stream named {name!r}; the streams are {', '.join(STREAMS)}.")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAMS.index(name), *which)))
