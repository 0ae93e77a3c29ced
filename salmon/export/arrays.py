"""Tables as .npz: one array for each column, for programs that read arrays."""

from __future__ import annotations

import io
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from salmon.export.table import Row, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TYPES = {"integer": "q", "number": "d", "truth": "b", "text": "l", "moment": "l"}


class NpzFile:
    """Columns become arrays (m,); a text column becomes the numbers of its words, whose list is `<column>_names`.

    The arrays must be whole before they can be written: about 60 MB for a million rows. Unknown numbers are NaN.
    """

    def __init__(self, table: Table, stacks: Mapping[str, tuple[str, ...]], labels: Sequence[str]) -> None:
        self._table = table
        self._stacks = stacks
        self._labels = labels
        self._arrays = [array(_TYPES[column.kind]) for column in table.columns]
        self._words: list[dict[Any, int]] = [{} for _ in table.columns]

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Nothing yet: the rows are kept."""
        for place, column in enumerate(self._table.columns):
            cells = [row[place] for row in rows]
            if column.kind in {"text", "moment"}:
                words = self._words[place]
                self._arrays[place].extend(words.setdefault(cell, len(words)) for cell in cells)
            else:
                self._arrays[place].extend(float("nan") if cell is None else cell for cell in cells)  # type: ignore[misc]
        return b""

    def end(self) -> bytes:
        """The whole file; it holds no pickles."""
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {}
        for column, values, words in zip(self._table.columns, self._arrays, self._words, strict=True):
            found = np.frombuffer(values, dtype=values.typecode) if len(values) else np.zeros(0, values.typecode)
            arrays[column.name] = found.astype(bool) if column.kind == "truth" else found
            if column.kind in {"text", "moment"}:
                arrays[f"{column.name}_names"] = np.array([str(word) for word in words], dtype=np.str_)
        for name, parts in self._stacks.items():
            arrays[name] = np.stack([arrays[part] for part in parts], axis=1).astype(np.int32)
        arrays["labels"] = np.array(list(self._labels), dtype=np.str_)
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
        return file.getvalue()
