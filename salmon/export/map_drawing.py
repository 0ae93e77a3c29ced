"""Draw maps for print: SVG, PDF and PNG at the width of one or two columns of a journal.

`draw_map` computes a layout with `map_layout.arrange` for each pair of axes and draws exactly that. Lengths are in
points (1/72 inch), so a drawing of 85 mm is 85 mm wide in print. Letters are outlines in SVG and an embedded font in
PDF, and pictures are embedded. matplotlib is loaded when a map is drawn and never used through its global state:
nothing opens a window, and other figures of the same program are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import combinations
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.export.map_layout import LayoutSizes, MapLayout, arrange
from salmon.spec import TargetSpec

Floats = NDArray[np.float64]
FigureKind = Literal["svg", "pdf", "png"]

#: Widths of one and two columns.
ONE_COLUMN_MM, TWO_COLUMNS_MM = 85.0, 174.0
#: Of more dimensions, only the widest are drawn against each other.
LARGEST_DRAWN = 4
#: The shapes and colours of groups, in order; more groups share the last one.
GROUP_MARKS = ("o", "s", "^", "D", "v", "P", "*", "X")
GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#808080")

_TAG = re.compile(r"<[^>]*>")
_POINTS_PER_MM = 72 / 25.4
_LONGEST_NAME = 28
_INK, _QUIET, _ELLIPSE = "#222222", "#8a8a8a", "#56B4E9"
_DPI = 300
# Half-axes, in standard deviations, of an ellipse that holds two normal variables with 68 %: √(−2 log .32).
_RADIUS_68 = 1.5096
# A panel is never flatter or taller than this, however thin the map.
_FLATTEST, _TALLEST = 0.5, 1.1
_BETWEEN = 10.0
# A picture of more pixels than this is not decoded; its target is a dot.
_MOST_PIXELS = 50_000_000
# Height of a label's box, in sizes of its font, and where the baseline lies in it.
_LINE, _BASELINE = 1.24, 0.29


@dataclass(frozen=True)
class MapGroups:
    """The group of each target (n,), −1 for none, and the names of the groups."""

    of: tuple[int, ...]
    names: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class MapPanel:
    """One pair of axes of a drawing: where its frame begins, its size, and the layout in
    it, in points from its top left.
    """

    axes: tuple[int, int]
    corner: tuple[float, float]
    frame: tuple[float, float]
    layout: MapLayout
    label_sizes: Floats


@dataclass(frozen=True)
class MapDrawing:
    """A drawn map, which notebooks show. `figure` is a matplotlib figure, `panels` say where everything stands."""

    figure: Any = field(repr=False)
    panels: tuple[MapPanel, ...] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)

    def content(self, kind: FigureKind) -> bytes:
        """Return the file: "svg", "pdf" or "png" (300 dpi). The same map gives the same bytes."""
        return figure_bytes(self.figure, kind)

    def save(self, path: str | Path) -> None:
        """Write a file; its ending says which kind: .svg, .pdf or .png."""
        Path(path).write_bytes(self.content(figure_kind(path)))

    def _repr_png_(self) -> bytes:
        return self.content("png")


def figure_bytes(figure: Any, kind: FigureKind) -> bytes:
    """Return the file of a matplotlib figure, without dates and versions: the same figure gives the same bytes."""
    from matplotlib import rc_context

    stream = BytesIO()
    metadata: dict[str, Any] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }[kind]
    with rc_context(
        {"svg.hashsalt": "salmon", "svg.fonttype": "path", "pdf.fonttype": 42, "image.composite_image": False}
    ):
        figure.savefig(stream, format=kind, dpi=_DPI, facecolor="white", metadata=metadata)
    return stream.getvalue()


def figure_kind(path: str | Path) -> FigureKind:
    """Return the kind of figure that the ending of a file names."""
    match PurePath(path).suffix.lower():
        case ".svg":
            return "svg"
        case ".pdf":
            return "pdf"
        case ".png":
            return "png"
        case ending:
            raise SalmonError(
                f"A figure cannot be written as {ending or 'a file without an ending'} ({path}).",
                hint="Use a name that ends in .svg, .pdf or .png.",
            )


def display_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of targets as a map shows them: without the ending of a file, unless two would be the same."""
    bare = [name[: -len(ending)] if (ending := _file_ending(name)) else name for name in names]
    counts = {name: bare.count(name) for name in set(bare)} if len(set(bare)) < len(bare) else {}
    return tuple(
        " ".join((name if counts.get(short, 1) > 1 else short).split()) for name, short in zip(names, bare, strict=True)
    )


def target_labels(targets: Sequence[TargetSpec]) -> tuple[str, ...]:
    """Return the names of an experiment's targets on a map: HTML without its tags."""
    plain = [
        (" ".join(_TAG.sub(" ", target.filename).split()) or target.alt or f"target {target.index}")
        if target.kind == "html"
        else target.filename
        for target in targets
    ]
    return display_names(plain)


def draw_map(
    coordinates: Floats,
    names: Sequence[str],
    *,
    pictures: Mapping[int, bytes | Path] | None = None,
    covariance: Floats | None = None,
    groups: MapGroups | None = None,
    width_mm: float = TWO_COLUMNS_MM,
    axes: tuple[int, int] | None = None,
    title: str = "",
) -> MapDrawing:
    """Return the map of (n, d) coordinates; d > 2 gives one panel for each pair of axes, unless `axes` names a pair.

    `pictures` are the files of targets by index (PNG, JPEG, GIF, WebP or SVG), and `names` are shown without the
    ending of a file. With `covariance` (n, d, d), ellipses hold each position with 68 %.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    d = coordinates.shape[1]
    drawn = min(d, LARGEST_DRAWN)
    pairs = [axes] if axes is not None else list(combinations(range(drawn), 2)) if d > 1 else [(0, 1)]
    shown = [shorten(name) for name in display_names(names)]
    thumbnails = {index: picture for index, file in (pictures or {}).items() if (picture := _decode(file)) is not None}
    width = width_mm * _POINTS_PER_MM
    columns = 1 if len(pairs) == 1 else 2 if width_mm < 120 else min(3, len(pairs))
    side = (width - (columns - 1) * _BETWEEN) / columns
    placed = [_project(coordinates, pair) for pair in pairs]
    heights = [side * _shape(points, one=len(pairs) == 1) for points in placed]
    rows = -(-len(pairs) // columns)
    head = 14.0 if title else 0.0
    foot = _legend_height(groups, width)
    caption = 0.0 if len(pairs) == 1 else 10.0
    height = head + rows * (heights[0] + caption + _BETWEEN) - _BETWEEN + foot
    with rc_context({"font.family": _families(), "svg.fonttype": "path", "pdf.fonttype": 42, "text.hinting": "none"}):
        figure = Figure(figsize=(width / 72, height / 72), dpi=_DPI)
        canvas = figure.add_axes((0, 0, 1, 1))
        canvas.set_xlim(0, width)
        canvas.set_ylim(height, 0)
        canvas.set_axis_off()
        size = 5.6 if side < 300 else 6.5
        panels: list[MapPanel] = []
        for place, (pair, points) in enumerate(zip(pairs, placed, strict=True)):
            corner = (place % columns * (side + _BETWEEN), head + place // columns * (heights[0] + caption + _BETWEEN))
            panel, scale = _arrange_panel(points, pair, corner, (side, heights[0]), thumbnails, shown, size)
            panels.append(panel)
            _Pen(canvas, corner).panel(panel, points, scale, shown, size, thumbnails, groups, covariance)
            if caption:
                text = f"dimensions {pair[0] + 1} and {pair[1] + 1}"
                _write(canvas, corner[0] + side / 2, corner[1] + heights[0] + 7, text, 5.5, color=_QUIET, ha="center")
        if title:
            _write(canvas, width / 2, 9, title, 8, color=_INK, ha="center")
        if groups is not None:
            _draw_legend(canvas, groups, width, height - foot)
    return MapDrawing(figure, tuple(panels), tuple(shown))


def shorten(name: str) -> str:
    """Return a name that is short enough for a label."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _file_ending(name: str) -> str:
    ending = PurePath(name).suffix
    return ending if ending.lower() in _ENDINGS and len(name) > len(ending) else ""


_ENDINGS = frozenset(
    [
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".webp",
        ".svg",
        ".avif",
        ".bmp",
        ".tif",
        ".tiff",
        ".mp3",
        ".wav",
        ".ogg",
        ".oga",
        ".flac",
        ".m4a",
        ".aac",
        ".mp4",
        ".webm",
        ".mov",
        ".ogv",
    ]
)


def _project(coordinates: Floats, pair: tuple[int, int]) -> Floats:
    """Return (n, 2) places with the second axis downwards; a single dimension becomes a horizontal line."""
    first, second = pair
    up = -coordinates[:, second] if second < coordinates.shape[1] else np.zeros(len(coordinates))
    return np.column_stack([coordinates[:, first], up])


def _shape(points: Floats, *, one: bool) -> float:
    """Return height by width of a panel: that of the map if there is one panel, square if axes are paired off."""
    extent = np.ptp(points, axis=0) if len(points) else np.zeros(2)
    return 1.0 if not one or extent[0] == 0 else float(np.clip(extent[1] / extent[0], _FLATTEST, _TALLEST))


def _arrange_panel(
    points: Floats,
    pair: tuple[int, int],
    corner: tuple[float, float],
    frame: tuple[float, float],
    thumbnails: Mapping[int, Any],
    names: Sequence[str],
    size: float,
) -> tuple[MapPanel, Callable[[Floats], Floats]]:
    """Return a panel and the function that scales places to points of its frame."""
    n = len(points)
    sizes = LayoutSizes(smallest=8.5 if frame[0] < 300 else 11.0, largest=0.13 * frame[0], dot=1.6, gap=1.8)
    aspects = np.zeros((n, 2))
    for index, picture in thumbnails.items():
        longer = max(picture.size)
        aspects[index] = picture.size[0] / longer, picture.size[1] / longer
    labels = np.array([(_text_width(name, size), _LINE * size) for name in names]).reshape(n, 2)
    margin = 0.045 * min(frame) + (sizes.smallest if thumbnails else 2 * sizes.dot)
    low, high = points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf)
    extent = np.maximum(high - low, 1e-9)
    factor = float(min((frame[0] - 2 * margin) / extent[0], (frame[1] - 2 * margin) / extent[1]))

    def scale(places: Floats) -> Floats:
        return (places - (low + high) / 2) * factor + np.array(frame) / 2

    layout = arrange(scale(points), frame, aspects, labels, sizes)
    return MapPanel(pair, corner, frame, layout, labels * layout.font), scale


class _Pen:
    """Draws one panel at its corner of the figure."""

    def __init__(self, canvas: Any, corner: tuple[float, float]) -> None:
        self._canvas = canvas
        self._corner = np.array(corner)

    def panel(
        self,
        panel: MapPanel,
        points: Floats,
        scale: Callable[[Floats], Floats],
        names: Sequence[str],
        size: float,
        thumbnails: Mapping[int, Any],
        groups: MapGroups | None,
        covariance: Floats | None,
    ) -> None:
        """Draw frame and grid, ellipses, lines, pictures, dots and labels."""
        places = scale(points)
        self._grid(panel, scale)
        if covariance is not None:
            self._ellipses(
                panel, places, covariance, factor=float((scale(np.ones((1, 2))) - scale(np.zeros((1, 2))))[0, 0])
            )
        layout = panel.layout
        lines = self._lines(layout, places)
        for index in range(len(points)):
            group = groups.of[index] if groups is not None else -1
            if layout.pictures[index]:
                self._picture(layout.centres[index], layout.side, thumbnails[index], group)
            else:
                self._dot(layout.centres[index], layout.dot, group)
            if layout.labelled[index]:
                x, y = self._corner + layout.corners[index]
                height = panel.label_sizes[index, 1]
                baseline = y + height * (1 - _BASELINE / _LINE)
                if len(lines):
                    self._ground(x, y, float(panel.label_sizes[index, 0]), float(height))
                _write(self._canvas, x, baseline, names[index], size * layout.font, color=_INK, ha="left")

    def _grid(self, panel: MapPanel, scale: Callable[[Floats], Floats]) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Rectangle

        (x0, y0), (width, height) = self._corner, panel.frame
        unit = float(np.diff(scale(np.array([[0.0, 0.0], [1.0, 0.0]]))[:, 0])[0])
        step = unit * _round_step(width / 8 / unit)
        origin = scale(np.zeros((1, 2)))[0]
        across = np.arange(origin[0] % step, width, step)
        down = np.arange(origin[1] % step, height, step)
        lines = [[(x0 + x, y0), (x0 + x, y0 + height)] for x in across]
        lines += [[(x0, y0 + y), (x0 + width, y0 + y)] for y in down]
        self._canvas.add_collection(LineCollection(lines, colors="#ededed", linewidths=0.4, zorder=0))
        half = 0.3
        edge = Rectangle((x0 + half, y0 + half), width - 2 * half, height - 2 * half, fill=False, edgecolor="#d5d5d5")
        edge.set_linewidth(0.6)
        self._canvas.add_patch(edge)

    def _ellipses(self, panel: MapPanel, places: Floats, covariance: Floats, factor: float) -> None:
        from matplotlib.patches import Ellipse, Rectangle

        first, second = panel.axes
        clip = Rectangle(tuple(self._corner), *panel.frame, transform=self._canvas.transData)
        for place, spread in zip(places, covariance, strict=True):
            if second < len(spread):
                block = spread[np.ix_([first, second], [first, second])] * np.array([[1, -1], [-1, 1]])
            else:
                block = np.diag([spread[first, first], 0.0])
            variances, axes = np.linalg.eigh(block)
            width, height = 2 * factor * _RADIUS_68 * np.sqrt(np.maximum(variances, 0.0))
            angle = float(np.degrees(np.arctan2(axes[1, 0], axes[0, 0])))
            ellipse = Ellipse(tuple(self._corner + place), width, height, angle=angle, facecolor=_ELLIPSE, alpha=0.12)
            ellipse.set_linewidth(0)
            ellipse.set_zorder(1)
            self._canvas.add_patch(ellipse)
            ellipse.set_clip_path(clip)

    def _ground(self, x: float, y: float, width: float, height: float) -> None:
        """Interrupt lines that pass below a label."""
        from matplotlib.patches import Rectangle

        self._canvas.add_patch(Rectangle((x, y), width, height, facecolor="white", linewidth=0, zorder=2.5))

    def _lines(self, layout: MapLayout, places: Floats) -> list[Floats]:
        """Draw lines from moved pictures to their targets, and from marks to labels; return the latter."""
        from matplotlib.collections import LineCollection

        moved = np.hypot(*(layout.centres - places).T) > max(1.0, 0.15 * layout.side)
        moved &= layout.pictures
        own = [
            [self._corner + place, self._corner + centre]
            for place, centre in zip(places[moved], layout.centres[moved], strict=True)
        ]
        self._canvas.add_collection(LineCollection(own, colors="#9a9a9a", linewidths=0.5, zorder=2))
        spots = self._corner + places[moved]
        self._canvas.scatter(*spots.T, s=2.2, color="#777777", linewidth=0, zorder=2)
        labels = [self._corner + line.reshape(2, 2) for line in layout.leaders[np.isfinite(layout.leaders[:, 0])]]
        self._canvas.add_collection(LineCollection(labels, colors="#b5b5b5", linewidths=0.35, zorder=2))
        return labels

    def _picture(self, centre: Floats, side: float, picture: Any, group: int) -> None:
        from matplotlib.patches import Rectangle

        longer = max(picture.size)
        width, height = side * picture.size[0] / longer, side * picture.size[1] / longer
        x, y = self._corner + centre - (width / 2, height / 2)
        # Twice as many pixels as the PNG has keep pictures sharp; more would only make files large.
        fitting = picture.copy()
        fitting.thumbnail((max(8, round(2 * _DPI / 72 * width)), max(8, round(2 * _DPI / 72 * height))))
        extent = (x, x + width, y + height, y)
        self._canvas.imshow(np.asarray(fitting), extent=extent, aspect="auto", zorder=3, interpolation="antialiased")
        self._canvas.set_xlim(*self._canvas.get_xlim())
        colour, line = ("#cfcfcf", 0.3) if group < 0 else (_group_colour(group), 0.9)
        edge = Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=line, zorder=4)
        self._canvas.add_patch(edge)
        if group >= 0:
            # The corner's shape tells groups apart without colours; it hides 2 % of the picture.
            size = 0.24 * min(width, height)
            _mark(self._canvas, x, y, size, group, zorder=5)

    def _dot(self, centre: Floats, radius: float, group: int) -> None:
        x, y = self._corner + centre
        _mark(self._canvas, x, y, 2 * radius, max(group, 0), zorder=3)


def _mark(canvas: Any, x: float, y: float, size: float, group: int, *, zorder: int) -> None:
    canvas.scatter(
        *([x], [y]),
        s=size**2,
        marker=GROUP_MARKS[min(group, len(GROUP_MARKS) - 1)],
        color=_group_colour(group),
        edgecolor="white",
        linewidth=0.08 * size,
        zorder=zorder,
        clip_on=False,
    )


def _group_colour(group: int) -> str:
    return GROUP_COLOURS[min(group, len(GROUP_COLOURS) - 1)]


def _legend_height(groups: MapGroups | None, width: float) -> float:
    return 0.0 if groups is None else 6.0 + 10.0 * len(_legend_rows(groups, width))


def _legend_rows(groups: MapGroups, width: float) -> list[list[tuple[int, float]]]:
    """Return rows of (group, where it begins) that fit the width."""
    rows: list[list[tuple[int, float]]] = [[]]
    x = 4.0
    for group, name in enumerate(groups.names):
        needed = 20.0 + _text_width(shorten(name), 6.0)
        if rows[-1] and x + needed > width:
            rows.append([])
            x = 4.0
        rows[-1].append((group, x))
        x += needed
    return rows


def _draw_legend(canvas: Any, groups: MapGroups, width: float, top: float) -> None:
    for row, items in enumerate(_legend_rows(groups, width)):
        y = top + 10 + 10 * row
        for group, x in items:
            _mark(canvas, x + 3, y - 2, 5, group, zorder=4)
            _write(canvas, x + 9, y, shorten(groups.names[group]), 6.0, color=_INK, ha="left")


def _write(canvas: Any, x: float, y: float, text: str, size: float, *, color: str, ha: str) -> None:
    # Dollar signs would start a formula.
    canvas.text(x, y, text, fontsize=size, color=color, ha=ha, va="baseline", zorder=6, parse_math=False)


def _text_width(text: str, size: float) -> float:
    """Return how wide a text is in points, in the font that it is drawn in."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    if not text:
        return 0.0
    # One per cent more: outlines and the metrics of the font differ by less.
    return 1.01 * float(
        TextToPath().get_text_width_height_descent(text, FontProperties(family=_families(), size=size), False)[0]
    )


def _families() -> list[str]:
    """Return the fonts of a map: DejaVu Sans, which comes with matplotlib, and for other scripts what is installed."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    others = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Noto Sans Arabic", "Noto Sans Devanagari")
    return ["DejaVu Sans", *(name for name in others if name in installed)]


def _round_step(wanted: float) -> float:
    power = 10 ** np.floor(np.log10(wanted))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted))


def _decode(file: bytes | Path) -> Any:
    """Return a picture as an RGBA image on white; None if the file is no picture that can be drawn."""
    from PIL import Image, UnidentifiedImageError

    try:
        content = file.read_bytes() if isinstance(file, Path) else file
        if b"<svg" in content[:4096]:
            content = _rasterise(content)
        with Image.open(BytesIO(content)) as opened:
            if opened.size[0] * opened.size[1] > _MOST_PIXELS:
                return None
            opened.draft("RGB", (800, 800))
            picture = opened.convert("RGBA")
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError):
        return None
    picture.thumbnail((800, 800))
    ground = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(ground, picture).convert("RGB")


def _rasterise(svg: bytes) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg.decode("utf-8", errors="replace"), width=600))
