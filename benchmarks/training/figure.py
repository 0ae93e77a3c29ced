"""Curves and bars of the training benchmarks, drawn alike."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

# Okabe and Ito's colours, told apart by everybody.
COLOURS = ("#000000", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#0072B2", "#999999", "#8C6BB1", "#A6761D")
FOLDER = Path("docs/training")
PANELS_A_ROW = 4
#: A legend of more curves than these stands beside its panel.
MOST_INSIDE = 6

Curve = tuple[Sequence[float], Sequence[float]]


def draw(path: Path, panels: Sequence[Mapping[str, Any]]) -> None:
    """Panels in rows of four at most: `curves` name -> (x, y), and what matplotlib's axes understand (xlabel, yscale, title …)."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "salmon", "svg.fonttype": "none", "font.family": "sans-serif"}):
        rows = ceil(len(panels) / PANELS_A_ROW)
        columns = ceil(len(panels) / rows)
        figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for unused in places[len(panels) :]:
            unused.set_axis_off()
        for axes, panel in zip(places, panels, strict=False):
            curves: Mapping[str, Curve] = panel["curves"]
            marks = panel.get("marks", "")
            for place, (name, (across, up)) in enumerate(curves.items()):
                again = place >= len(COLOURS)
                colour, dashes = COLOURS[place % len(COLOURS)], "--" if again else "-"
                axes.plot(
                    across,
                    up,
                    color=colour,
                    linestyle=dashes,
                    label=name,
                    linewidth=1.3,
                    marker=("s" if again else marks) if marks else None,
                    markersize=4,
                )
            axes.set(**{name: value for name, value in panel.items() if name not in {"curves", "marks"}})
            axes.grid(color="#e6e6e6", linewidth=0.5)
            axes.tick_params(labelsize=7)
            beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(curves) > MOST_INSIDE else {}
            axes.legend(fontsize=7, frameon=False, **beside)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def thinned(x: Sequence[float], y: Sequence[float], points: int = 400) -> Curve:
    """At most so many points of a curve."""
    stride = max(1, len(x) // points)
    return list(x[::stride]), list(y[::stride])


def finish(report: Any, name: str, panels: Sequence[Mapping[str, Any]]) -> None:
    """Write the figures beside each other: NAME.json and NAME.svg."""
    report.write(FOLDER / f"{name}.json")
    draw(FOLDER / f"{name}.svg", panels)
