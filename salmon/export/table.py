"""Define the tables of an export and write them as CSV, JSON, JSON lines, Parquet and .npz.

A table has columns, each with a kind and a sentence; files and the data dictionary are made of them. Files are written
piece by piece, so that no file is ever whole in memory, except .npz: one array for each column, for programs that read
arrays. Text is UTF-8 without a byte-order mark. Unknown values are empty in CSV, and null in JSON and Parquet.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["integer", "number", "text", "written", "truth", "moment"]
Cell = str | int | float | bool | None
Row = list[Cell]

#: How a kind is written in text files.
KINDS: dict[Kind, str] = {
    "integer": "whole number",
    "number": "number",
    "text": "text",
    "written": "text that participants or their links bring",
    "truth": "true or false",
    "moment": "moment, ISO 8601 in UTC",
}


@dataclass(frozen=True)
class Column:
    """One column; `meaning` is its line in the data dictionary. A cell is None if its value is not known."""

    name: str
    kind: Kind
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table: its name, what one row is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)


def columns(kind: Kind, **meanings: str) -> tuple[Column, ...]:
    """Return several columns of one kind."""
    return tuple(Column(name, kind, meaning) for name, meaning in meanings.items())


def dimensions(names: Sequence[str], what: str) -> tuple[Column, ...]:
    """Return columns of coordinates."""
    return tuple(Column(name, "number", f"{what} {place}") for place, name in enumerate(names))


#: How a cell begins that a spreadsheet would compute.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TRUTH = {True: "true", False: "false", None: ""}


class TableFile(Protocol):
    """The bytes of one file: `begin`, then `rows` as often as there are pieces, then `end`."""

    def begin(self) -> bytes:
        """Return what comes before the rows: nothing, where the first row begins the file."""
        return b""

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return some rows."""
        ...

    def end(self) -> bytes:
        """Return what comes after the last row: nothing, where that row ends the file."""
        return b""


class CsvFile(TableFile):
    """RFC 4180: commas, CRLF, quotes where they are needed.

    What participants wrote is never the formula of a spreadsheet: an apostrophe comes
    before a text that would begin one.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def begin(self) -> bytes:
        """Return the header."""
        return _lines([_quoted([name]) for name in self._table.names])

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return lines of text."""
        if not rows:
            return b""
        cells = zip(self._table.columns, zip(*rows, strict=True), strict=True)
        return _lines([_texts_of(column.kind, given) for column, given in cells])


class JsonLinesFile(TableFile):
    """One JSON object a line, with the columns in order."""

    def __init__(self, table: Table) -> None:
        self._names = table.names
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return lines of JSON."""
        names, encode = self._names, self._encode
        return "".join(encode(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


class JsonFile(TableFile):
    """One JSON array of objects with the columns in order."""

    def __init__(self, table: Table) -> None:
        self._lines = JsonLinesFile(table)
        self._began = False

    def begin(self) -> bytes:
        """Return the opening bracket."""
        return b"["

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return objects, with a comma before each but the first."""
        objects = self._lines.rows(rows).rstrip(b"\n").replace(b"\n", b",\n")
        comma = b",\n" if self._began and objects else b"\n"
        self._began = self._began or bool(objects)
        return comma + objects if objects else b""

    def end(self) -> bytes:
        """Return the closing bracket."""
        return b"\n]\n"


class ParquetFile(TableFile):
    """Parquet with one row group for a fixed number of rows; pyarrow is loaded only here."""

    ROWS_A_GROUP = 20_000

    def __init__(self, table: Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        kinds: Mapping[Kind, Any] = {
            "integer": pa.int64(),
            "number": pa.float64(),
            "text": pa.string(),
            "written": pa.string(),
            "truth": pa.bool_(),
            "moment": pa.string(),
        }
        self._arrow: Any = pa
        self._schema = pa.schema([(column.name, kinds[column.kind]) for column in table.columns])
        self._pipe = _Pipe()
        self._writer = pyarrow.parquet.ParquetWriter(self._pipe, self._schema, compression="zstd")
        self._waiting: list[Row] = []

    def begin(self) -> bytes:
        """Return the magic number."""
        return self._pipe.take()

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Return a row group, as soon as there are rows for one."""
        self._waiting.extend(rows)
        if len(self._waiting) >= self.ROWS_A_GROUP:
            self._write()
        return self._pipe.take()

    def end(self) -> bytes:
        """Return the last row group and the directory."""
        self._write()
        self._writer.close()
        return self._pipe.take()

    def _write(self) -> None:
        if self._waiting:
            arrays = [
                self._arrow.array([row[place] for row in self._waiting], type=kind)
                for place, kind in enumerate(self._schema.types)
            ]
            self._writer.write_table(self._arrow.table(arrays, schema=self._schema))
            self._waiting = []


#: Extension -> the file it names.
FILES: dict[str, Callable[[Table], TableFile]] = {
    "csv": CsvFile,
    "json": JsonFile,
    "jsonl": JsonLinesFile,
    "parquet": ParquetFile,
}

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "yaml": "application/yaml",
    "npz": "application/x-npz",
    "zip": "application/zip",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ipynb": "application/x-ipynb+json",
    "R": "text/x-r-source; charset=utf-8",
}


class _Pipe(io.RawIOBase):
    """A file that is only written to, and whose bytes are taken as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, piece: Any, /) -> int:
        content = bytes(piece)
        self._pieces.append(content)
        self._written += len(content)
        return len(content)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


#: What a cell of CSV may hold only between quotes.
_SPECIAL = re.compile('[",\\r\\n]')


def _texts_of(kind: Kind, cells: Sequence[Cell]) -> Sequence[str]:
    """Return the cells of one column as they are written in CSV."""
    if kind == "truth":
        return [_TRUTH[cell] for cell in cells]  # type: ignore[index]
    texts = list(map(str, cells)) if None not in cells else ["" if cell is None else str(cell) for cell in cells]
    if kind in {"integer", "number"}:
        return texts
    if kind == "written":
        texts = [f"'{text}" if text.startswith(_FORMULA) else text for text in texts]
    return _quoted(texts)


def _quoted(texts: Sequence[str]) -> Sequence[str]:
    """Return texts with quotes where they need them: a column is looked through as a whole first."""
    if not _SPECIAL.search("".join(texts)):
        return texts
    return ['"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text for text in texts]


def _lines(columns: Sequence[Sequence[str]]) -> bytes:
    return "".join(",".join(line) + "\r\n" for line in zip(*columns, strict=True)).encode()


#: Kinds whose cells are texts.
_WORDS = frozenset({"text", "written", "moment"})
_TYPES = {"integer": "q", "number": "d", "truth": "b", "text": "l", "written": "l", "moment": "l"}


class NpzFile(TableFile):
    """Columns become arrays (m,); a text column becomes the numbers of its words, whose list is `<column>_names`.

    The arrays must be whole before they can be written: about 60 MB for a million rows. Unknown numbers are NaN.
    """

    def __init__(self, table: Table, stacks: Mapping[str, tuple[str, ...]], labels: Sequence[str]) -> None:
        self._table = table
        self._stacks = stacks
        self._labels = labels
        self._arrays = [array(_TYPES[column.kind]) for column in table.columns]
        self._words: list[dict[Any, int]] = [{} for _ in table.columns]

    def rows(self, rows: Sequence[Row]) -> bytes:
        """Keep the rows and return nothing."""
        for place, column in enumerate(self._table.columns):
            cells = [row[place] for row in rows]
            if column.kind in _WORDS:
                words = self._words[place]
                self._arrays[place].extend(words.setdefault(cell, len(words)) for cell in cells)
            else:
                self._arrays[place].extend(float("nan") if cell is None else cell for cell in cells)  # type: ignore[misc]
        return b""

    def end(self) -> bytes:
        """Return the whole file; it contains no pickles."""
        import numpy as np

        arrays: dict[str, NDArray[Any]] = {}
        for column, values, words in zip(self._table.columns, self._arrays, self._words, strict=True):
            found = np.frombuffer(values, dtype=values.typecode) if len(values) else np.zeros(0, values.typecode)
            arrays[column.name] = found.astype(bool) if column.kind == "truth" else found
            if column.kind in _WORDS:
                arrays[f"{column.name}_names"] = np.array([str(word) for word in words], dtype=np.str_)
        for name, parts in self._stacks.items():
            arrays[name] = np.stack([arrays[part] for part in parts], axis=1).astype(np.int32)
        arrays["labels"] = np.array(list(self._labels), dtype=np.str_)
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
        return file.getvalue()
