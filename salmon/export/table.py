"""What a table of an export is: its columns, each with a kind and a sentence. Files and data dictionary are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["integer", "number", "text", "truth", "moment"]
Cell = str | int | float | bool | None
Row = list[Cell]

#: How a kind is written in text files.
KINDS: dict[Kind, str] = {
    "integer": "whole number",
    "number": "number",
    "text": "text",
    "truth": "true or false",
    "moment": "moment, ISO 8601 in UTC",
}


@dataclass(frozen=True)
class Column:
    """One column; `meaning` is its line in the data dictionary. A cell is None where nothing is known."""

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
        """The header."""
        return tuple(column.name for column in self.columns)


def columns(kind: Kind, **meanings: str) -> tuple[Column, ...]:
    """Several columns of one kind."""
    return tuple(Column(name, kind, meaning) for name, meaning in meanings.items())


def dimensions(names: Sequence[str], what: str) -> tuple[Column, ...]:
    """Columns of coordinates."""
    return tuple(Column(name, "number", f"{what} {place}") for place, name in enumerate(names))
