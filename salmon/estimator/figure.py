"""Draw the map for publication: equal axes, labels that do not overlap, ellipses of uncertainty.

matplotlib is loaded when a figure is drawn and never used through its global state: nothing opens a window, and other
figures of the same program are not changed. `place_labels` decides where the names of targets stand so that they cover
neither each other nor the points.
"""

from io import BytesIO
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Of more dimensions, only the widest are drawn against each other.
LARGEST_DRAWN = 4
_LONGEST_NAME = 28
_MARK, _ELLIPSE, _INK = "#0072B2", "#56B4E9", "#222222"
_DPI = 300
# Half-axes, in standard deviations, of an ellipse that holds two normal variables with 68 %: √(−2 log .32).
_RADIUS_68 = 1.5096
# A panel is never flatter or taller than this, however thin the map.
_FLATTEST, _TALLEST = 0.45, 1.15


def map_figure(
    coordinates: Floats, labels: tuple[str, ...], covariance: Floats | None = None, *, title: str = ""
) -> dict[str, bytes]:
    """Return the map of (n, d) coordinates as "png" (300 dpi) and "svg" bytes; d > 2 as one panel a pair of axes.

    With `covariance` (n, d, d) ellipses are drawn that hold each position with 68 %. The same input gives the same
    bytes.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n, d = coordinates.shape
    pairs = list(combinations(range(min(d, LARGEST_DRAWN)), 2)) if d > 1 else [(0, 0)]
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    side = 6.5 if len(pairs) == 1 else 4.5
    height = 2.2 if d == 1 else rows * side * _shape(coordinates, len(pairs))
    with rc_context({"svg.hashsalt": "salmon", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(side * columns, height), dpi=_DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        panels = [figure.add_subplot(rows, columns, place + 1) for place in range(len(pairs))]
        for panel, (across, up) in zip(panels, pairs, strict=True):
            _draw_points(panel, coordinates, covariance, across, up)
        if title:
            figure.suptitle(title, fontsize=10)
        # The layout decides where the points lie; names are placed when that is known.
        canvas.draw()
        figure.set_layout_engine("none")
        for panel, (across, up) in zip(panels, pairs, strict=True):
            shown = coordinates[:, [across, up]] if d > 1 else np.column_stack([coordinates[:, 0], np.zeros(n)])
            _draw_labels(panel, canvas.get_renderer(), shown, labels)
        return {kind: _bytes(figure, kind) for kind in ("png", "svg")}


def _shape(coordinates: Floats, panels: int) -> float:
    """Return height by width of a panel: that of the map if there is one panel, square if axes are paired off."""
    extent = np.ptp(coordinates, axis=0)
    return 1.0 if panels > 1 or extent[0] == 0 else float(np.clip(extent[1] / extent[0], _FLATTEST, _TALLEST))


def _draw_points(panel: Any, coordinates: Floats, covariance: Floats | None, across: int, up: int) -> None:
    panel.set_axisbelow(True)
    panel.grid(color="#e6e6e6", linewidth=0.5)
    panel.tick_params(labelsize=7, colors="#666666", length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_xlabel(f"dimension {across + 1}", fontsize=8)
    if across == up:
        panel.scatter(coordinates[:, 0], np.zeros(len(coordinates)), s=9, color=_MARK, linewidth=0, zorder=3)
        panel.set_yticks([])
        panel.set_ylim(-1, 1)
        panel.margins(x=0.06)
        return
    panel.set_ylabel(f"dimension {up + 1}", fontsize=8)
    panel.scatter(coordinates[:, across], coordinates[:, up], s=9, color=_MARK, linewidth=0, zorder=3)
    if covariance is not None:
        _draw_ellipses(panel, coordinates, covariance, across, up)
    # Distances carry the meaning of the map, so both axes have the same scale.
    panel.set_aspect("equal", adjustable="datalim")
    panel.margins(0.1)


def _draw_ellipses(panel: Any, coordinates: Floats, covariance: Floats, across: int, up: int) -> None:
    from matplotlib.patches import Ellipse

    for position, spread in zip(coordinates, covariance, strict=True):
        variances, axes = np.linalg.eigh(spread[np.ix_([across, up], [across, up])])
        width, height = 2 * _RADIUS_68 * np.sqrt(np.maximum(variances, 0.0))
        angle = float(np.degrees(np.arctan2(axes[1, 0], axes[0, 0])))
        ellipse = Ellipse(
            (position[across], position[up]), width, height, angle=angle, facecolor=_ELLIPSE, alpha=0.12, linewidth=0
        )
        panel.add_artist(ellipse)


def _draw_labels(panel: Any, renderer: Any, shown: Floats, labels: tuple[str, ...]) -> None:
    n = len(labels)
    size = 7.0 if n <= 60 else 5.5 if n <= 150 else 4.0
    names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in labels]
    # Dollar signs would start a formula.
    texts = [
        panel.text(0, 0, name.replace("$", r"\$"), fontsize=size, color=_INK, va="bottom", ha="left", zorder=4)
        for name in names
    ]
    boxes = [text.get_window_extent(renderer) for text in texts]
    sizes = np.array([(max(1.0, box.width), max(1.0, box.height)) for box in boxes])
    pixels = panel.transData.transform(shown)
    corners, shown_names = place_labels(np.asarray(pixels, dtype=np.float64), sizes, gap=0.02 * _DPI)
    for text, place, visible in zip(texts, panel.transData.inverted().transform(corners), shown_names, strict=True):
        text.set_position(place)
        text.set_visible(bool(visible))
        text.set_in_layout(False)


def _bytes(figure: Any, kind: str) -> bytes:
    stream = BytesIO()
    # Without a date and the program's version the same map is the same file.
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(stream, format=kind, dpi=_DPI, facecolor="white", metadata=metadata)
    return stream.getvalue()


# Directions in which a name may stand from its point, the most readable first: right, left, above, below, corners.
_DIRECTIONS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)], dtype=np.float64)
# Hiding a point is worse than touching a name.
_POINT_WEIGHT = 4.0
# Rings around the point: close by, then a little further out; beyond, nobody knows whose name it is.
_RINGS = (1.0, 2.0)
# A name of which more than this is covered cannot be read: it is left out, and its point stays.
_ILLEGIBLE = 0.25


def place_labels(points: Floats, sizes: Floats, gap: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return lower-left corners (n, 2) of names with `sizes` (n, 2) beside `points` (n, 2), in pixels, and which are
    shown.

    Greedy: the most crowded names choose first, each the place where least of it is covered by names and points placed
    so far, then each chooses once more knowing all others. A name that is covered wherever it stands is left out.
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
        covered = _covered_share(corners[index], sizes[index], chosen[others], sizes[others])
        covered += _POINT_WEIGHT * _covered_share(corners[index], sizes[index], points - gap / 2, np.full((n, 2), gap))
        # Among equally free places the earlier direction wins, and the nearer ring.
        best = int(np.argmin(covered + 1e-3 * np.arange(len(covered))))
        chosen[index], placed[index] = corners[index, best], covered[best] < _ILLEGIBLE
    return chosen, placed


def _candidates(points: Floats, sizes: Floats, gap: float) -> Floats:
    """Return (n, places, 2) lower-left corners of every place that each name may take."""
    shifts = np.concatenate([ring * gap * _DIRECTIONS for ring in _RINGS])
    directions = np.tile(_DIRECTIONS, (len(_RINGS), 1))
    anchors = (directions - 1) / 2
    return points[:, None] + shifts[None] + anchors[None] * sizes[:, None]


def _covered_share(corners: Floats, size: Floats, others: Floats, other_sizes: Floats) -> Floats:
    """Return (places,) share of a name's area, at each place, that boxes (m, 2) of sizes (m, 2) cover."""
    if not len(others):
        return np.zeros(len(corners))
    low = np.maximum(corners[:, None], others[None])
    high = np.minimum(corners[:, None] + size, (others + other_sizes)[None])
    sides = np.clip(high - low, 0, None)
    return sides.prod(axis=2).sum(axis=1) / size.prod()
