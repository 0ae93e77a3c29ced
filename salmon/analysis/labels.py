"""Where to write the names of targets so that they cover neither each other nor the points."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Directions in which a name may stand from its point, the most readable first: right, left, above, below, corners.
_DIRECTIONS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)], dtype=np.float64)
# Hiding a point is worse than touching a name.
_POINT_WEIGHT = 4.0
# Rings around the point: close by, then a little further out; beyond, nobody knows whose name it is.
_RINGS = (1.0, 2.0)
# A name of which more than this is covered cannot be read: it is left out, and its point stays.
_ILLEGIBLE = 0.25


def place_labels(points: Floats, sizes: Floats, gap: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Lower-left corners (n, 2) of names with `sizes` (n, 2) beside `points` (n, 2), all in pixels, and which are shown.

    Greedy: the most crowded names choose first, each the place where least of it is covered by names and points placed
    so far, then everybody chooses once more knowing all others. A name that is covered wherever it stands is left out.
    """
    n = len(points)
    corners = _candidates(points, sizes, gap)
    crowd = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)) < 6 * gap + sizes.mean()
    chosen = points + gap
    placed = np.zeros(n, dtype=np.bool_)
    order = np.argsort(-crowd.sum(axis=1), kind="stable")
    for index in (*order, *order):
        others = placed.copy()
        others[index] = False
        covered = _covered(corners[index], sizes[index], chosen[others], sizes[others])
        covered += _POINT_WEIGHT * _covered(corners[index], sizes[index], points - gap / 2, np.full((n, 2), gap))
        # Among equally free places the earlier direction wins, and the nearer ring.
        best = int(np.argmin(covered + 1e-3 * np.arange(len(covered))))
        chosen[index], placed[index] = corners[index, best], covered[best] < _ILLEGIBLE
    return chosen, placed


def _candidates(points: Floats, sizes: Floats, gap: float) -> Floats:
    """(n, places, 2) lower-left corners of every place that each name may take."""
    shifts = np.concatenate([ring * gap * _DIRECTIONS for ring in _RINGS])
    directions = np.tile(_DIRECTIONS, (len(_RINGS), 1))
    anchors = (directions - 1) / 2
    return points[:, None] + shifts[None] + anchors[None] * sizes[:, None]


def _covered(corners: Floats, size: Floats, others: Floats, other_sizes: Floats) -> Floats:
    """(places,) share of a name's area, at each place, that boxes (m, 2) of sizes (m, 2) cover."""
    if not len(others):
        return np.zeros(len(corners))
    low = np.maximum(corners[:, None], others[None])
    high = np.minimum(corners[:, None] + size, (others + other_sizes)[None])
    sides = np.clip(high - low, 0, None)
    return sides.prod(axis=2).sum(axis=1) / size.prod()
