"""Draw curves, as of accuracy against answers, for print: SVG, PDF and PNG at the width of
one or two columns of a journal.

Curves differ by colour and by dash, bands are the same colour, lighter. Letters are outlines in SVG and an embedded
font in PDF. matplotlib is loaded when a figure is drawn and never used through its global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from salmon.export.map_drawing import GROUP_COLOURS, GROUP_MARKS, TWO_COLUMNS_MM

_DASHES = ("-", "--", "-.", ":")
_MM_PER_INCH = 25.4
_HEIGHT = 0.56
_INK, _QUIET = "#222222", "#8a8a8a"
_MARKED: dict[str, Any] = {"markersize": 4, "linewidth": 1, "elinewidth": 0.8, "capsize": 2}
# How far the marks of two curves stand apart at one place.
_BETWEEN = 0.08


@dataclass(frozen=True)
class DrawnCurve:
    """A curve: `values` (p,) at `places` (p,), and the band between `low` and `high` where it is known."""

    name: str
    places: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def draw_curves(
    series: Sequence[DrawnCurve],
    *,
    against: str = "answers",
    quantity: str = "accuracy",
    lines: Sequence[tuple[str, float]] = (),
    marks: bool = False,
    width_mm: float = TWO_COLUMNS_MM,
) -> Any:
    """Return a matplotlib figure of several curves, with a horizontal line for each (name, value) of `lines`.

    With `marks` there are few places, of whole numbers: each is marked, and bands are bars beside one another.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = width_mm / _MM_PER_INCH
    figure = Figure(figsize=(width, width * _HEIGHT), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for number, one in enumerate(series):
        colour, dash = GROUP_COLOURS[number % len(GROUP_COLOURS)], _DASHES[number % len(_DASHES)]
        if marks:
            beside = (number - (len(series) - 1) / 2) * _BETWEEN
            bars = [
                [value - low for value, low in zip(one.values, one.low, strict=True)],
                [high - value for value, high in zip(one.values, one.high, strict=True)],
            ]
            mark = GROUP_MARKS[number % len(GROUP_MARKS)]
            axes.errorbar(
                [place + beside for place in one.places],
                one.values,
                yerr=bars if one.low else None,
                fmt=mark + dash,
                color=colour,
                label=one.name,
                **_MARKED,
            )
        else:
            axes.plot(one.places, one.values, dash, color=colour, label=one.name, linewidth=1.5)
            if one.low:
                axes.fill_between(one.places, one.low, one.high, color=colour, alpha=0.18, linewidth=0)
    right = max(max(one.places) for one in series)
    for name, value in lines:
        axes.axhline(value, color=_QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            name, (right, value), xytext=(0, 2), textcoords="offset points", ha="right", color=_INK, fontsize=7
        )
    if marks:
        axes.set_xticks(sorted({place for one in series for place in one.places}))
        axes.margins(x=0.06)
    else:
        axes.set_xlim(0, right)
    axes.set_xlabel(against)
    axes.set_ylabel(quantity)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    return figure
