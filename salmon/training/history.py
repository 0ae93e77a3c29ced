"""The history of a run: a table with one row per step, as numbers, CSV, DataFrame and chart."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.training.state import HistoryRow

# Blue of the Okabe–Ito palette.
_LINE = "#0072B2"


@dataclass(frozen=True)
class TrainingHistory:
    """Rows of a run: step, epoch, examples, batch size, learning rate, workers, loss, monitors, bytes sent, seconds."""

    rows: tuple[HistoryRow, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns in order of first occurrence."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """(steps,) one column; NaN if a row has no value."""
        if column not in self.columns:
            raise SalmonError(f"The history has no column {column!r}.", hint=f"It has {', '.join(self.columns)}.")
        return np.array([row.get(column, nan) for row in self.rows])

    def select_measured(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return (values, indices of their rows) of a column, without rows that have no value."""
        values = self[column]
        indices = np.flatnonzero(~np.isnan(values))
        return values[indices], indices

    def csv(self) -> str:
        """Return all rows as CSV."""
        text = StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def frame(self) -> Any:
        """Return all rows as a pandas DataFrame, if pandas is installed."""
        try:
            import pandas as pd  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise SalmonError("A DataFrame needs pandas.", hint="Install pandas, or use `rows` or `csv()`.") from error
        return pd.DataFrame(list(self.rows), columns=self.columns)

    def chart(
        self, columns: Sequence[str] = ("loss", "batch_size", "learning_rate"), *, across: str = "epoch"
    ) -> bytes:
        """Return an SVG with one panel for each column, plotted against `across`. The same rows give the same bytes."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context({"svg.hashsalt": "salmon", "svg.fonttype": "none", "font.family": "sans-serif"}):
            figure = Figure(figsize=(6.5, 1.8 * len(columns)), layout="constrained")
            panels = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
            for panel, column in zip(panels, columns, strict=True):
                values, indices = self.select_measured(column)
                panel.plot(self[across][indices], values, color=_LINE, linewidth=1)
                panel.set_ylabel(column.replace("_", " "), fontsize=8)
                panel.grid(color="#e6e6e6", linewidth=0.5)
                panel.tick_params(labelsize=7, length=0)
            panels[-1].set_xlabel(across, fontsize=8)
            svg = BytesIO()
            figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return svg.getvalue()
