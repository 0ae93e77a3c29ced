"""Accuracy against answers, as one figure for the manual."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.efficiency.levels import Curves

# Okabe and Ito's colours, told apart by everybody.
_COLOURS = ("#000000", "#E69F00", "#D55E00", "#56B4E9", "#CC79A7", "#009E73", "#0072B2")


def draw_curves(path: Path, curves: Mapping[str, Curves], ceiling: float, title: str) -> None:
    """Mean curves with a band of one standard error on either side."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "salmon", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for (name, each), colour in zip(curves.items(), _COLOURS, strict=False):
            mean, error = each.values.mean(axis=0), each.values.std(axis=0, ddof=1) / len(each.values) ** 0.5
            axes.plot(each.answers, mean, color=colour, label=name, linewidth=1.4)
            axes.fill_between(each.answers, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(ceiling, color="#888888", linewidth=0.8, linestyle=":", label="Bayes accuracy")
        axes.set(xlabel="answers / n", ylabel="accuracy on fresh answers", title=title, ylim=(0.7, ceiling + 0.005))
        axes.set_xlim(0, max(each.answers[-1] for each in curves.values()))
        axes.grid(color="#e6e6e6", linewidth=0.5)
        axes.legend(fontsize=8, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
