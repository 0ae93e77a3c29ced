"""What a run went through: a table with a row a step, as numbers, as a CSV, as a DataFrame and as a chart."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.distributed.state import Row
from salmon.errors import SalmonError

# Okabe and Ito's blue.
_LINE = "#0072B2"


@dataclass(frozen=True)
class History:
    """Rows of a run: step, epoch, examples, batch size, learning rate, workers, loss, monitors, bytes sent, seconds."""

    rows: tuple[Row, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in the order in which they first occur."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """(steps,) one column; NaN where a row has no value."""
        if column not in self.columns:
            raise SalmonError(f"The history has no column {column!r}.", hint=f"It has {', '.join(self.columns)}.")
        return np.array([row.get(column, nan) for row in self.rows])

    def measured(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(values, rows) of a column where it has a value."""
        values = self[column]
        places = np.flatnonzero(~np.isnan(values))
        return values[places], places

    def first(self, column: str, *, at_most: float) -> Row | None:
        """The first row whose column is at most this, None where none is."""
        return next((row for row in self.rows if row.get(column, nan) <= at_most), None)

    def csv(self) -> str:
        """All rows as CSV text."""
        text = StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def frame(self) -> Any:
        """All rows as a pandas DataFrame, where pandas is installed."""
        try:
            import pandas as pd  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise SalmonError("A DataFrame needs pandas.", hint="Install pandas, or use `rows` or `csv()`.") from error
        return pd.DataFrame(list(self.rows), columns=self.columns)

    def chart(
        self, columns: Sequence[str] = ("loss", "batch_size", "learning_rate"), *, across: str = "epoch"
    ) -> bytes:
        """The columns against `across`, one panel each, as SVG. The same rows give the same bytes."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context({"svg.hashsalt": "salmon", "svg.fonttype": "none", "font.family": "sans-serif"}):
            figure = Figure(figsize=(6.5, 1.8 * len(columns)), layout="constrained")
            panels = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
            for panel, column in zip(panels, columns, strict=True):
                values, places = self.measured(column)
                panel.plot(self[across][places], values, color=_LINE, linewidth=1)
                panel.set_ylabel(column.replace("_", " "), fontsize=8)
                panel.grid(color="#e6e6e6", linewidth=0.5)
                panel.tick_params(labelsize=7, length=0)
            panels[-1].set_xlabel(across, fontsize=8)
            drawn = BytesIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        return drawn.getvalue()
