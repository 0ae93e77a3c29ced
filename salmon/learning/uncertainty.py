"""Compute how certain the position of each target is: a Laplace posterior whose size is
calibrated on halves of the answers.

The Laplace posterior knows which targets were asked about and in which directions, but not its own size: it takes the
noise model to be true and the log-odds to be linear, so that its ellipses are too wide with few answers and too narrow
where the noise model is wrong. A fit of half of the answers tells the size. To first order its difference from the fit
of all has the covariance of the fit of all itself: the half's variance is twice that, and the answers that both share
take one part away (a jackknife that leaves out half; Shao and Wu 1989). So all covariances are multiplied by the factor
with which 68 % of these differences lie inside their 68 % ellipses, less what halves vary beyond first order.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from salmon.geometry import Coordinates, align
from salmon.learning.objective import Precision, check_triplets
from salmon.learning.posterior import laplace
from salmon.learning.refit import fit
from salmon.noise import NoiseModel
from salmon.parallel import Executor

#: The share of positions that the ellipses of maps hold.
SHOWN_SHARE = 0.68
# Every division gives two halves to compare.
_DIVISIONS = 2
# A half varies by more than twice as much as the whole, because log-odds are not linear: measured by this factor for 10
# to 60 answers a target (`benchmarks/uncertainty.py`).
_EXCESS_OF_HALVES = 1.1
# With fewer answers than this a half says nothing.
_FEWEST = 20
# A factor beyond these says that the halves could not be fitted, not how certain the positions are.
_SMALLEST_FACTOR, _LARGEST_FACTOR = 0.05, 20.0


def position_covariance(
    coordinates: ArrayLike,
    triplets: ArrayLike,
    noise: NoiseModel,
    *,
    ridge: float,
    precision: Precision | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> Coordinates:
    """Return (n, d, d) covariances of the positions of a fit, up to shifts, rotations and the size of the whole map.

    `coordinates` (n, d) are those that a fit of these triplets found with this noise model and ridge (or `precision`).
    Halves of the answers are fitted with the same model, from these coordinates and from the spectral start, and laid
    over them.
    """
    placed = np.array(coordinates, dtype=np.float64)
    rows = check_triplets(triplets, len(placed))
    own = laplace_covariance(placed, rows, noise, ridge=ridge, precision=precision)
    if len(rows) < _FEWEST:
        return own
    generator = np.random.default_rng([seed, len(rows)])
    distances: list[NDArray[np.float64]] = []
    for _ in range(_DIVISIONS):
        order = generator.permutation(len(rows))
        for half in np.array_split(order, 2):
            found = fit(
                rows[np.sort(half)], len(placed), placed.shape[1], noise=noise, ridge=ridge, precision=precision,
                start=placed, n_starts=1, seed=seed, executor=executor,
            )  # fmt: skip
            moved = align(found.coordinates, placed, scale=True).coordinates - placed
            distances.append(squared_ellipse_distances(moved, own))
    inside = float(np.quantile(np.concatenate(distances), SHOWN_SHARE))
    factor = inside / float(chi2.ppf(SHOWN_SHARE, placed.shape[1])) / _EXCESS_OF_HALVES
    return own * float(np.clip(factor, _SMALLEST_FACTOR, _LARGEST_FACTOR))


def laplace_covariance(
    coordinates: ArrayLike,
    triplets: ArrayLike,
    noise: NoiseModel,
    *,
    ridge: float,
    precision: Precision | None = None,
) -> Coordinates:
    """Return the (n, d, d) covariances under the Laplace posterior alone, up to shifts, rotations and size.

    The prior of a position is as wide as the map is, at most: a target that nobody was
    asked about lies somewhere on it.
    """
    placed = np.asarray(coordinates, dtype=np.float64)
    size = float((placed**2).sum())
    hold = max(ridge, placed.size / size) if size > 0 else max(ridge, 1.0)
    prior = precision and Precision(max(hold, precision.rest), precision.directions, np.maximum(hold, precision.values))
    return laplace(placed, triplets, noise, ridge=hold, precision=prior).target_covariance(size=True)


def squared_ellipse_distances(moved: Coordinates, covariance: Coordinates) -> NDArray[np.float64]:
    """Return (n,) squared Mahalanobis distances of (n, d) differences under (n, d, d) covariances.

    If the covariances are right they follow the chi-squared distribution with d degrees of freedom.
    """
    n, d = moved.shape
    # A target on the axis of a rotation may have no variance left in one direction.
    least = 1e-9 * (np.trace(covariance, axis1=1, axis2=2).mean() + 1e-12)
    solved = np.linalg.solve(covariance + least * np.eye(d), moved.reshape(n, d, 1))
    return np.einsum("ni,ni->n", moved, solved[:, :, 0])
