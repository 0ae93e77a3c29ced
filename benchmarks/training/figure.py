"""Draw the figures of the training benchmarks in one style."""

import json
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

# The Okabe–Ito palette, distinguishable with any colour vision.
COLOURS = ("#000000", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#0072B2", "#999999", "#8C6BB1", "#A6761D")
FOLDER = Path("docs/training")
PANELS_A_ROW = 4
#: The legend of a panel with more curves is placed beside it.
MOST_INSIDE = 6

Curve = tuple[Sequence[float], Sequence[float]]


def draw(path: Path, panels: Sequence[Mapping[str, Any]]) -> None:
    """Draw panels in rows of at most four; each has `curves`, name -> (x, y), and properties of
    matplotlib axes (xlabel, title …).
    """
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
            axes.tick_params(which="both", labelsize=7)
            beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(curves) > MOST_INSIDE else {}
            if curves:
                axes.legend(fontsize=7, frameon=False, **beside)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def thin(x: Sequence[float], y: Sequence[float], points: int = 400) -> Curve:
    """Return a curve with about `points` points."""
    stride = max(1, len(x) // points)
    return list(x[::stride]), list(y[::stride])


def keep_rows(report: Any, name: str, problems: Sequence[str]) -> None:
    """Put the rows of NAME.json into a report, except those of the problems that are measured again."""
    path = FOLDER / f"{name}.json"
    if path.exists():
        earlier = json.loads(path.read_text())["rows"]
        report.rows.extend(row for row in earlier if row["problem"] not in problems)


def finish(report: Any, name: str, panels: Sequence[Mapping[str, Any]]) -> None:
    """Write NAME.json and NAME.svg."""
    report.write(FOLDER / f"{name}.json")
    draw(FOLDER / f"{name}.svg", panels)
