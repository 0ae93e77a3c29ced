"""Compute distances, centre, turn and align embeddings. Rigid motions change no answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError

Reals = NDArray[np.floating[Any]]
Coordinates = NDArray[np.float64]


def squared_distances(coordinates: Reals) -> Reals:
    """Return the (n, n) squared distances |x_i − x_j|² of (n, d) coordinates, in their precision.

    They are summed from differences, axis by axis: |x|² + |y|² − 2x·y would cancel where targets lie close together.
    """
    n = len(coordinates)
    total = np.zeros((n, n), dtype=coordinates.dtype)
    difference = np.empty_like(total)
    for axis in coordinates.T:
        np.subtract.outer(axis, axis, out=difference)
        difference *= difference
        total += difference
    return total


def centre(coordinates: Reals) -> Coordinates:
    """Return (n, d) coordinates moved so that their mean is the origin."""
    moved = np.array(coordinates, dtype=np.float64)
    moved -= moved.mean(axis=0)
    return moved


def principal_axes(coordinates: Reals, d: int | None = None) -> Coordinates:
    """Return centred coordinates turned to their principal axes, widest first; the first `d` of them if `d` is given.

    Each axis points so that its entry of largest magnitude is positive: the same embedding always looks the same.
    """
    centred = centre(coordinates)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    largest = np.abs(turned).argmax(axis=0)
    signs = np.sign(turned[largest, np.arange(turned.shape[1])])
    turned *= np.where(signs == 0, 1, signs)
    return turned if d is None else np.ascontiguousarray(turned[:, :d])


@dataclass(frozen=True)
class Alignment:
    """Coordinates laid over a reference, and how far apart they stay.

    `coordinates` (n, d) in the reference's frame; `residual` is the sum of squared differences left over, as a share
    of the reference's sum of squares about its mean: 0 is the same shape. `distance` = 1 − √(1 − residual).
    """

    coordinates: Coordinates
    rotation: Coordinates
    scale: float
    residual: float

    @property
    def distance(self) -> float:
        """Return 1 − √(1 − residual), from 0 (the same shape) to 1 (nothing in common)."""
        return 1 - float(np.sqrt(max(0.0, 1 - self.residual)))


def align(coordinates: Reals, reference: Reals, *, scale: bool = False) -> Alignment:
    """Move, turn, mirror (and with `scale` stretch) coordinates so that they lie as near the reference as they can.

    Orthogonal Procrustes (Schönemann 1966): with both centred and AᵀB = U S Vᵀ, the rotation is U Vᵀ and the best
    scale tr(S) / |A|². Both are (n, d) arrays over the same targets.
    """
    if coordinates.shape != reference.shape:
        raise SalmonError(
            f"Coordinates of shape {coordinates.shape} cannot be aligned to a reference of shape {reference.shape}.",
            hint="Both need the same targets and the same number of dimensions.",
        )
    origin = np.asarray(reference, dtype=np.float64).mean(axis=0)
    moving, fixed = centre(coordinates), centre(reference)
    left, singular, right = np.linalg.svd(moving.T @ fixed)
    rotation = left @ right
    size = float((moving**2).sum())
    factor = float(singular.sum()) / size if scale and size > 0 else 1.0
    placed = factor * (moving @ rotation)
    total = float((fixed**2).sum())
    residual = float(((placed - fixed) ** 2).sum()) / total if total > 0 else 0.0
    return Alignment(placed + origin, rotation, factor, residual)


def rigid_motions(coordinates: Reals) -> Coordinates:
    """Return an orthonormal basis (n·d, r) of the infinitesimal translations and rotations at (n, d) coordinates.

    r = d(d+1)/2, or fewer where the targets lie in a subspace that a rotation leaves alone. Rows run over targets
    first, then axes, like coordinates.ravel().
    """
    n, d = coordinates.shape
    motions: list[Reals] = [np.tile(np.eye(d)[axis], (n, 1)) for axis in range(d)]
    centred = centre(coordinates)
    for first in range(d):
        for second in range(first + 1, d):
            turn = np.zeros((n, d))
            turn[:, first] = -centred[:, second]
            turn[:, second] = centred[:, first]
            motions.append(turn)
    basis, singular, _ = np.linalg.svd(np.stack([motion.ravel() for motion in motions], axis=1), full_matrices=False)
    return basis[:, singular > 1e-10 * singular.max()]


def similarity_motions(coordinates: Reals) -> Coordinates:
    """Return an orthonormal basis (n·d, r) of the rigid motions and of a change of size at (n, d) coordinates."""
    basis = rigid_motions(coordinates)
    growth = centre(coordinates).ravel()
    # Growth is orthogonal to translations and rotations; where all targets coincide there is none.
    length = float(np.linalg.norm(growth))
    return basis if length == 0 else np.concatenate([basis, growth[:, None] / length], axis=1)
