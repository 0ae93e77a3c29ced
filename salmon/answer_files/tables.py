"""The text of a file as rows of cells, whichever container it came in; every row knows its line."""

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from salmon.errors import Problem

#: What a column may be called, in lower case; the first name found in a file is taken.
COLUMNS: dict[str, tuple[str, ...]] = {
    "head": ("head", "center", "target"),
    "winner": ("winner", "answer"),
    "loser": ("loser",),
    "left": ("left", "option1"),
    "right": ("right", "option2"),
    "sampler": ("sampler", "alg_ident", "samplealg"),
    "participant": ("puid", "participant", "worker_id", "session_id"),
    "trial_type": ("trial_type",),
    "phase": ("phase",),
    "set": ("sampleset",),
    "score": ("score",),
    "excluded": ("excluded",),
}


class ContainerError(ValueError):
    """The file cannot be opened as text; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass
class Rows:
    """A table of text: lower-case header, rows of stripped cells, the line in the file where each row begins."""

    header: list[str] = field(default_factory=list[str])
    cells: list[list[str]] = field(default_factory=list[list[str]])
    lines: list[int] = field(default_factory=list[int])
    problems: list[Problem] = field(default_factory=list[Problem])

    def place(self, role: str) -> int | None:
        """The position of a column, None where the file has none. A role outside `COLUMNS` is a column's own name."""
        names = COLUMNS.get(role, (role,))
        return next((self.header.index(name) for name in names if name in self.header), None)

    def column(self, role: str) -> list[str] | None:
        """The cells of a column, None where the file has none."""
        place = self.place(role)
        return None if place is None else [row[place] for row in self.cells]

    def problem(self, row: int, role: str, message: str, hint: str = "") -> None:
        """Note what is wrong with a row, at its line and column."""
        place = self.place(role)
        if place is None:
            self.problems.append(Problem(message, line=self.lines[row], hint=hint))
            return
        path = self.header[place]
        message = f"In column {path!r}: {message}"
        self.problems.append(Problem(message, line=self.lines[row], column=place + 1, path=path, hint=hint))

    def keep(self, wanted: list[bool]) -> None:
        """Leave out the rows that are not wanted."""
        self.cells = [row for row, keep in zip(self.cells, wanted, strict=True) if keep]
        self.lines = [line for line, keep in zip(self.lines, wanted, strict=True) if keep]


def decoded(data: bytes) -> str:
    """The text of a file as it lies on a disk: plain, gzip, or a ZIP with one table in it; UTF-8, BOM or not."""
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        elif data[:4] == b"PK\x03\x04":
            data = _only_member(data)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"The file is not UTF-8 text: byte {data[error.start]:#04x} cannot be read."
        raise ContainerError(Problem(message, line=line, hint="Save it as UTF-8.")) from error
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ContainerError(Problem("The compressed file is damaged or cut off.", hint="Copy it again.")) from error


def _only_member(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        hidden = re.compile(r"(^|/)(\.|__MACOSX)")
        members = [member for member in archive.namelist() if not member.endswith("/") and not hidden.search(member)]
        answers = [member for member in members if re.search(r"(^|/)responses\.(csv|jsonl?)$", member)]
        if len(members) == 1 or answers:
            return archive.read((answers or members)[0])
    message = f"The ZIP holds {len(members)} files and none of them is called responses.csv."
    raise ContainerError(Problem(message, hint="Pass the table of answers itself."))


def table(text: str) -> Rows:
    """The text as rows: separated by commas, semicolons, tabs or blanks, or JSON objects."""
    if text.lstrip()[:1] in {"[", "{"}:
        return _records(text)
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    if delimiter not in first:
        # Rows written by numpy.savetxt stand apart by blanks, sometimes several.
        text, delimiter = re.sub(r"(?m)^[ ]+|[ ]+$", "", re.sub(r"[ ]+", " ", text)), " "
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    rows = Rows()
    try:
        for line, cells in _lines(reader):
            if rows.header:
                _append(rows, line, cells)
            elif all(_is_number(cell) for cell in cells):
                # A list of numbers without a header can only be rows of head, winner, loser.
                rows.header = ["head", "winner", "loser"]
                _append(rows, line, cells)
            else:
                rows.header = [cell.strip().lower() for cell in cells]
    except csv.Error as error:
        rows.problems.append(Problem(f"The table breaks off here: {error}.", line=reader.line_num))
    return rows


def _lines(reader: Any) -> Iterator[tuple[int, list[str]]]:
    line = 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield line, [cell.strip() for cell in cells]
        # A quoted cell may hold line ends: a row begins where the one before it ended.
        line = int(reader.line_num) + 1


def _append(rows: Rows, line: int, cells: list[str]) -> None:
    if len(cells) == len(rows.header) + 1 and not rows.cells and "winner" in rows.header:
        # R writes row names without a name for their column.
        rows.header.insert(0, "")
    if len(cells) != len(rows.header):
        hint = "Is a value with a comma not quoted?" if len(cells) > len(rows.header) else "Is the row cut off?"
        message = f"The row has {len(cells)} cells but the table has {len(rows.header)} columns."
        rows.problems.append(Problem(message, line=line, hint=hint))
        return
    rows.cells.append(cells)
    rows.lines.append(line)


def _records(text: str) -> Rows:
    rows = Rows()
    records: list[tuple[int, Any]] = []
    whole = text.lstrip().startswith("[")
    pieces = [(1, text)] if whole else list(enumerate(text.splitlines(), start=1))
    for line, piece in pieces:
        try:
            found = json.loads(piece) if piece.strip() else []
        except json.JSONDecodeError as error:
            place = Problem(f"This is not JSON: {error.msg}.", line=line + error.lineno - 1, column=error.colno)
            rows.problems.append(place)
            continue
        records += [(line, record) for record in (found if whole else [found] if piece.strip() else [])]
    for number, (line, record) in enumerate(records, start=1):
        if not isinstance(record, dict):
            rows.problems.append(Problem(f"Record {number} is not an object with named values.", line=line))
    if rows.problems:
        return rows
    named = [(line, {str(key).lower(): value for key, value in record.items()}) for line, record in records]
    rows.header = list(dict.fromkeys(key for _, record in named for key in record))
    for line, record in named:
        values = [cast("object", record.get(key)) for key in rows.header]
        rows.cells.append(["" if value is None else str(value).strip() for value in values])
        rows.lines.append(line)
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
