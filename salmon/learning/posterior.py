"""Compute how certain an embedding is given the answers: its Laplace posterior.

MacKay (1992), "Information-based objective functions for active data selection", for the posterior and its use.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import get_lapack_funcs

from salmon.errors import SalmonError
from salmon.geometry import Coordinates, Reals, rigid_motions, similarity_motions
from salmon.learning.objective import Precision, Triplets, check_triplets
from salmon.noise import NoiseModel, noise_model

# Above this many coordinates the covariance keeps only each target's own block.
LARGEST_FULL = 2_000


@dataclass(frozen=True)
class Posterior:
    """The covariance of the coordinates given the answers, about a fitted embedding.

    `coordinates` (n, d); `covariance` (n·d, n·d) over coordinates.ravel() where `full`, else one (n, d, d) block a
    target. `ridge` is the precision of the prior that both came from.
    """

    coordinates: Coordinates
    covariance: Coordinates
    full: bool
    ridge: float

    def target_covariance(self, *, size: bool = False) -> Coordinates:
        """Return the (n, d, d) covariance of each target, with the rigid motions of the whole embedding projected out.

        With `size`, so is a growth of the whole embedding, which heavy-tailed noise models hardly determine.
        Answers say nothing about where the embedding lies or how it is turned: without the projection, d(d+1)/2
        directions would add the prior's variance to every target.
        """
        n, d = self.coordinates.shape
        motions = similarity_motions(self.coordinates) if size else rigid_motions(self.coordinates)
        parts = motions.reshape(n, d, -1)
        if self.full:
            spread = (self.covariance @ motions).reshape(n, d, -1)
            own = self.covariance.reshape(n, d, n, d)[np.arange(n), :, np.arange(n), :]
            inner = motions.T @ self.covariance @ motions
        else:
            spread = self.covariance @ parts
            own = self.covariance
            inner = np.einsum("tir,tis->rs", parts, spread)
        cross = spread @ parts.transpose(0, 2, 1)
        return own - cross - cross.transpose(0, 2, 1) + parts @ inner @ parts.transpose(0, 2, 1)


def laplace(
    coordinates: ArrayLike,
    triplets: ArrayLike,
    noise: str | NoiseModel = "TSTE",
    *,
    lapse: float | None = None,
    ridge: float = 1.0,
    precision: Precision | None = None,
    pending: ArrayLike | None = None,
    full: bool | None = None,
) -> Posterior:
    """Return the posterior with Σ = (ridge·I + Σ_t w_t g_t g_tᵀ)⁻¹ over answered triplets and over `pending` queries.

    g is the gradient of a triplet's log-odds f and w the Fisher information that its answer gives about f. Neither
    depends on which foot won, so queries (p, 3) [head, foot, foot] that were posted and not answered count as well.
    `full` = False keeps one block a target; None does so above 2,000 coordinates.
    """
    placed = np.array(coordinates, dtype=np.float64)
    n, d = placed.shape
    if ridge <= 0:
        raise SalmonError(
            f"A ridge of {ridge} leaves the position of the whole embedding free.", hint="Give a number above 0."
        )
    rows = check_triplets(triplets, n)
    if pending is not None:
        rows = np.concatenate([rows, check_triplets(pending, n)])
    model = noise_model(noise, lapse=lapse)
    if full is None:
        full = n * d <= LARGEST_FULL
    if full:
        total = information(placed, rows, model)
        if precision is None:
            total[np.diag_indices(n * d)] += ridge
        else:
            add_precision(total, precision, d)
        return Posterior(placed, _inverse(total), full=True, ridge=ridge)
    blocks = block_information(placed, rows, model)
    blocks += (ridge if precision is None else precision.diagonal[:, None, None]) * np.eye(d)
    return Posterior(placed, np.asarray(np.linalg.inv(blocks), dtype=np.float64), full=False, ridge=ridge)


def _inverse(precision: Coordinates) -> Coordinates:
    """Return the inverse of a symmetric positive definite matrix, exactly symmetric.

    By its Cholesky factor, in half of the time of `np.linalg.inv`, which stands in where rounding has left no factor.
    """
    factorise, invert = get_lapack_funcs(("potrf", "potri"), (precision,))
    factor, failed = factorise(precision.T, clean=1)
    if failed:
        inverse = np.linalg.inv(precision)
        return (inverse + inverse.T) / 2
    inverse, _ = invert(factor, overwrite_c=1)
    inverse += inverse.T.copy()
    inverse[np.diag_indices(len(inverse))] /= 2
    return np.ascontiguousarray(inverse.T)


def fisher_weight(log_odds: Reals, lapse: float) -> Reals:
    """Return the Fisher information w = p'(f)² / (p (1 − p)) that one answer gives about its log-odds f, elementwise.

    With s = σ(f) the spread s (1 − s) is z/(1 + z)² for z = exp(−|f|), and p (1 − p) is lapse (1 − lapse) +
    (1 − 2·lapse)² s (1 − s): nothing cancels. At most ¼; without lapses w is s (1 − s) itself.
    """
    z = np.abs(log_odds)
    np.negative(z, out=z)
    np.exp(z, out=z)
    spread = z + 1
    spread *= spread
    np.divide(z, spread, out=spread)
    if lapse == 0:
        return spread
    spread *= (1 - 2 * lapse) ** 2
    np.add(spread, lapse * (1 - lapse), out=z)
    spread *= spread
    spread /= z
    spread /= (1 - 2 * lapse) ** 2
    return spread


def log_odds_gradient(
    coordinates: Coordinates, triplets: Triplets, model: NoiseModel
) -> tuple[Coordinates, NDArray[np.float64]]:
    """Return gradients (m, 3, d) of the triplets' log-odds by head, winner and loser, and the log-odds (m,).

    With y_b = 2 u'(d2_hb) (x_h − x_b), the gradient of the remoteness of foot b by the head: the head's part is
    y_loser − y_winner, the winner's +y_winner, the loser's −y_loser.
    """
    heads, winners, losers = coordinates[triplets.T]
    to_winner, to_loser = heads - winners, heads - losers
    d2_winner, d2_loser = (to_winner**2).sum(axis=1), (to_loser**2).sum(axis=1)
    y_winner = 2 * model.remoteness_slope(d2_winner)[:, None] * to_winner
    y_loser = 2 * model.remoteness_slope(d2_loser)[:, None] * to_loser
    gradient = np.stack([y_loser - y_winner, y_winner, -y_loser], axis=1)
    return gradient, model.remoteness(d2_loser) - model.remoteness(d2_winner)


def add_precision(total: Coordinates, precision: Precision, d: int) -> None:
    """Add a prior's precision on each of d axes to (n·d, n·d) information, in place."""
    n = len(total) // d
    parts = total.reshape(n, d, n, d)
    prior = precision.matrix
    for axis in range(d):
        parts[:, axis, :, axis] += prior


def information(coordinates: Coordinates, rows: Triplets, model: NoiseModel) -> Coordinates:
    """Return Σ w g gᵀ (n·d, n·d), the Fisher information of the answers about the coordinates."""
    n, d = coordinates.shape
    size = n * d
    total = np.zeros(size * size)
    # A block's products stay near 20 MB.
    step = max(1, 2_500_000 // (9 * d * d))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        gradient, log_odds = log_odds_gradient(coordinates, part, model)
        flat = gradient.reshape(len(part), 3 * d)
        weighted = fisher_weight(log_odds, model.lapse)[:, None] * flat
        places = (part.astype(np.int64)[:, :, None] * d + np.arange(d)).reshape(len(part), 3 * d)
        cells = places[:, :, None] * size + places[:, None, :]
        products = weighted[:, :, None] * flat[:, None, :]
        total += np.bincount(cells.ravel(), products.ravel(), size * size)
    return total.reshape(size, size)


def block_information(coordinates: Coordinates, rows: Triplets, model: NoiseModel) -> Coordinates:
    """Return the (n, d, d) blocks of `information` on its diagonal."""
    n, d = coordinates.shape
    total = np.zeros((d, d, n))
    step = 1 << 18
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        gradient, log_odds = log_odds_gradient(coordinates, part, model)
        weight = fisher_weight(log_odds, model.lapse)
        for role in range(3):
            slope = gradient[:, role]
            for first in range(d):
                for second in range(d):
                    entry = weight * slope[:, first] * slope[:, second]
                    total[first, second] += np.bincount(part[:, role], entry, n)
    return np.ascontiguousarray(total.transpose(2, 0, 1))
