"""Where a refit begins: from the answers' own spectrum, or at random."""

from typing import cast

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.linalg import eigsh

from salmon.geometry import Coordinates, centre
from salmon.learning.objective import Objective
from salmon.learning.triplets import Triplets

# Up to this many targets all eigenvectors are found at once, which is quicker than the few largest one by one.
_DENSE = 300
# Scales tried for a start whose shape is known and whose size is not.
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)


def spectral_start(triplets: Triplets, n: int, d: int, seed: int) -> Coordinates:
    """(n, d) coordinates from the signed co-answer matrix, of mean square norm d.

    S counts for each pair of targets how often they won together minus how often they lost together; degrees d_i are
    the answers that name target i. The eigenvectors of D^−½ S D^−½ with the largest eigenvalues place targets that
    win together side by side (compare Shi and Malik 2000 on normalised affinities).
    """
    heads, winners, losers = triplets.T
    rows = np.concatenate([heads, heads])
    columns = np.concatenate([winners, losers])
    signs = np.repeat([1.0, -1.0], len(heads))
    signed = coo_array((signs, (rows, columns)), shape=(n, n)).tocsr()
    signed = signed + signed.T
    degrees = np.bincount(rows, minlength=n) + np.bincount(columns, minlength=n)
    weights = 1 / np.sqrt(np.maximum(degrees, 1))
    scaled = signed.multiply(weights[:, None]).multiply(weights[None, :])
    generator = np.random.default_rng(seed)
    if n <= max(_DENSE, d + 1):
        values, vectors = np.linalg.eigh(scaled.toarray())
    else:
        # A loose tolerance: the refit that follows does the rest.
        values, vectors = eigsh(scaled.tocsr(), k=d, which="LA", tol=cast("int", 1e-2), v0=generator.standard_normal(n))
    order = np.argsort(values)[::-1][:d]
    coordinates = vectors[:, order] * np.sqrt(np.maximum(values[order], 1e-3)) * weights[:, None]
    if coordinates.shape[1] < d:
        # More dimensions than targets: the missing ones get next to nothing.
        extra = 1e-3 * generator.standard_normal((n, d - coordinates.shape[1]))
        coordinates = np.concatenate([coordinates, extra], axis=1)
    coordinates = centre(coordinates)
    spread = float(np.sqrt((coordinates**2).mean()))
    return coordinates / spread if spread > 0 else random_start(n, d, seed)


def random_start(n: int, d: int, seed: int) -> Coordinates:
    """(n, d) independent N(0, .1²) coordinates."""
    return 0.1 * np.random.default_rng(seed).standard_normal((n, d))


def best_scale(objective: Objective, coordinates: Coordinates) -> Coordinates:
    """The start stretched to whichever of a few sizes makes the objective smallest."""
    losses = [objective(scale * coordinates)[0] for scale in _SCALES]
    return _SCALES[int(np.argmin(losses))] * coordinates
