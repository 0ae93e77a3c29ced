"""Read a file of features: what is known about the targets before anybody answers, as numbers in columns.

A CSV has one row a target. Its first column may name the targets, by their file names (with or without the ending) or
their texts; then the rows may stand in any order. Without names, and in a NumPy array (.npy), the rows are in the order
of the targets. A first row that holds a word where the others hold numbers is a header.
"""

import csv
import io
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from salmon.errors import Problem, did_you_mean, listed, shown

#: The names under which a ZIP of targets may hold features.
FEATURE_FILES = ("features.csv", "features.npy")
MAX_FEATURE_BYTES = 20_000_000
#: Numbers in a file: 2,000 targets with 500 features each. They are stored with every revision of an experiment.
MAX_NUMBERS = 1_000_000
#: Headers over a first column that names targets, also where the names are numbers.
_NAMING = frozenset({"target", "filename", "file", "name", "id"})
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class FeatureTable:
    """Rows of equally many finite numbers; `names` says whose they are, and is empty where
    rows are in the targets' order.

    `lines` are the rows' lines in the file, empty for an array.
    """

    rows: tuple[tuple[float, ...], ...] = ()
    names: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = field(default=(), kw_only=True)


def read_features(content: bytes, name: str) -> FeatureTable:
    """Return the rows of a file of features; `problems` says everything that is wrong with it."""
    try:
        table = _read_array(content) if name.lower().endswith(".npy") else _read_csv(content)
    except _UnreadableError as error:
        return FeatureTable(problems=(Problem(f"{shown(name)} {error.args[0]}.", path=name, hint=error.args[1]),))
    problems = [*table.problems, *_shape_problems(table, name)]
    return FeatureTable(table.rows, table.names, table.lines, problems=tuple(problems))


class _UnreadableError(Exception):
    """Raised when no row can be read; the arguments are what is wrong and what to do."""


def _read_array(content: bytes) -> FeatureTable:
    import numpy as np  # a CSV needs none of it

    try:
        values = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise _UnreadableError("is no NumPy array", "Save it with numpy.save, or as features.csv.") from error
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "biuf":
        raise _UnreadableError(
            "is not a table of numbers", "Save an array of numbers with one row a target and one column a feature."
        )
    rows = tuple(tuple(map(float, row)) for row in values[: MAX_NUMBERS + 1].tolist())
    problems = [
        Problem(f"Row {place} holds a value that is not a finite number.", hint="Give a number for every feature.")
        for place, row in enumerate(rows)
        if not all(map(math.isfinite, row))
    ]
    return FeatureTable(rows, problems=tuple(problems[:_MOST_PROBLEMS]))


def _read_csv(content: bytes) -> FeatureTable:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _UnreadableError(f"is not UTF-8 on line {line}", "Save it as CSV UTF-8.") from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise _UnreadableError(
            f"cannot be read on line {reader.line_num} ({error})", "Save it again as CSV UTF-8."
        ) from error
    if not lines:
        raise _UnreadableError("is empty", "Write one row a target and one column a feature.")
    first = lines[0][1]
    has_header = any(_number(cell) is None for cell in first[1:]) or first[0].casefold() in _NAMING
    body = lines[1:] if has_header or (len(first) == 1 and _number(first[0]) is None) else lines
    named = (has_header and first[0].casefold() in _NAMING) or any(_number(cells[0]) is None for _, cells in body)
    problems: list[Problem] = []
    rows = [_read_row(line, cells[named:], first[named:] if has_header else [], problems) for line, cells in body]
    return FeatureTable(
        tuple(rows),
        tuple(cells[0] for _, cells in body) if named else (),
        tuple(line for line, _ in body),
        problems=tuple(problems[:_MOST_PROBLEMS]),
    )


def _delimiter(text: str) -> str:
    """Return what separates the cells: spreadsheets write semicolons where the comma is the decimal sign."""
    first = text.split("\n", 1)[0]
    return max(",;\t", key=first.count)


def _read_row(line: int, cells: Sequence[str], header: Sequence[str], problems: list[Problem]) -> tuple[float, ...]:
    values: list[float] = []
    for place, cell in enumerate(cells):
        value = _number(cell)
        if value is None:
            column = shown(header[place]) if place < len(header) else f"{place + 1}"
            found = shown(cell) if cell else "empty"
            problems.append(
                Problem(f"Feature {column} is {found}, which is not a finite number.", line, hint="Write a number.")
            )
        values.append(value or 0.0)
    return tuple(values)


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _shape_problems(table: FeatureTable, name: str) -> Iterator[Problem]:
    width = len(table.rows[0]) if table.rows else 0
    if not width:
        yield Problem(
            f"{shown(name)} has no features.", path=name, hint="Write one row a target, one column a feature."
        )
        return
    for place, row in enumerate(table.rows):
        if len(row) != width:
            yield Problem(
                f"{shown(name)} has {len(row)} features here and {width} in its first row.",
                table.lines[place] if table.lines else 0,
                path=name,
                hint="Give every target the same features.",
            )
            return
    if width * len(table.rows) > MAX_NUMBERS:
        yield Problem(
            f"{shown(name)} holds {width * len(table.rows):,} numbers; {MAX_NUMBERS:,} are possible.",
            path=name,
            hint="Keep the principal components of the features.",
        )


def rows_of_targets(
    table: FeatureTable, targets: Sequence[Sequence[str]], name: str, problems: list[Problem], *, others: bool = False
) -> list[tuple[float, ...] | None]:
    """Return the row of each target, or None; `targets` are the names that each goes by.

    Names that belong to no target are a problem, unless `others` may be in the file too.
    """
    if not table.names:
        if len(table.rows) != len(targets):
            message = f"{shown(name)} has {len(table.rows):,} rows, but there are {len(targets):,} targets."
            hint = "Write one row a target, in their order, or their names in a first column called target."
            problems.append(Problem(message, path=name, hint=hint))
            return [None] * len(targets)
        return list(table.rows)
    known: dict[str, list[int]] = {}
    for target, words in enumerate(targets):
        for word in dict.fromkeys(words):
            known.setdefault(word, []).append(target)
    found: list[tuple[float, ...] | None] = [None] * len(targets)
    wrong: list[Problem] = []
    for place, (word, row) in enumerate(zip(table.names, table.rows, strict=True)):
        line = table.lines[place] if table.lines else 0
        meant = known.get(word) or known.get(word.rpartition(".")[0] or word, [])
        if not meant and not others:
            hint = did_you_mean(word, known) or "Write the name of a file of the ZIP, or the text of a target."
            wrong.append(Problem(f"There is no target {shown(word)}.", line, path=name, hint=hint))
        elif any(found[target] is not None for target in meant):
            wrong.append(Problem(f"{shown(word)} has a second row.", line, path=name, hint="Keep one of them."))
        for target in meant:
            found[target] = row
    problems += wrong[:_MOST_PROBLEMS]
    return found


def missing_rows(names: Sequence[str]) -> Problem:
    """Return the problem that some targets, by their names, have no features where others have."""
    named = [shown(name) for name in names[:5]] + ([f"{len(names) - 5:,} more"] if len(names) > 5 else [])
    return Problem(
        f"{listed(named, 'and')} {'has' if len(names) == 1 else 'have'} no row among the features.",
        hint="Write a row for every target, or leave the features out.",
    )


def feature_disagreements(targets: Sequence[tuple[str, str]]) -> Iterator[Problem]:
    """Yield what is wrong with all targets' features together, given each target's name and row as text."""
    without = [name for name, row in targets if not row]
    if without:
        yield missing_rows(without)
    elif len({len(row) for _, row in targets}) > 1:
        yield Problem(
            "Targets that were uploaded at different times have different numbers of features.",
            hint="Upload a ZIP with all targets and their features.",
        )
    elif len({row for _, row in targets}) == 1:
        yield Problem("The features of all targets are the same.", hint="Give features that tell targets apart.")


def encode_row(row: Sequence[float]) -> str:
    """Return a row as text: the base64 of its numbers in single precision."""
    return b64encode(struct.pack(f"<{len(row)}f", *row)).decode()


def decode_row(text: str) -> tuple[float, ...]:
    """Return the numbers of `encode_row`."""
    content = b64decode(text)
    return struct.unpack(f"<{len(content) // 4}f", content)
