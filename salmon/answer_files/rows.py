"""The rows of a table of any length, one at a time: no more of the file is in memory than a row, whoever wrote it.

CSV (commas, semicolons or tabs), an array of JSON objects, or an object a line; plain, gzip, or alone in a ZIP.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

from salmon.answer_files.tables import ContainerError
from salmon.errors import Problem

Row = dict[str, str]

#: The longest row: a row holds five targets' HTML, twice.
LONGEST_ROW = 1_000_000
#: The most that a compressed file may unpack to.
MOST_BYTES = 8_000_000_000
MOST_COLUMNS = 1_000
_PIECE = 1 << 16
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX)")
_TRUTH = {True: "true", False: "false"}
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


def rows_of(path: Path) -> Iterator[tuple[int, Row]]:
    """(line, values by their column in small letters) of every row; ContainerError says what cannot be read, and where."""
    with ExitStack() as opened:
        try:
            text = io.TextIOWrapper(cast("IO[bytes]", _Counted(_unpacked(path, opened))), "utf-8-sig", newline="")
            first = _first_line(text)
            if first.lstrip()[:1] == "[":
                yield from _of_objects(_array(first, text))
            elif first.lstrip()[:1] == "{":
                yield from _of_objects(_object_lines(first, text))
            else:
                yield from _table(first, text)
        except UnicodeDecodeError as error:
            raise _refused("The file is not UTF-8 text.", hint="Save it as UTF-8.") from error
        except _DAMAGED as error:
            raise _refused("The file is damaged or cut off.", hint="Copy it again.") from error


class _Counted(io.RawIOBase):
    """A stream that ends with a sentence when it gives more than any table has."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream
        self._left = MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._stream.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise _refused(f"The file unpacks to more than {MOST_BYTES // 10**9} GB.")
        buffer[: len(piece)] = piece
        return len(piece)

    read1 = io.RawIOBase.read


def _unpacked(path: Path, opened: ExitStack) -> IO[bytes]:
    file = opened.enter_context(path.open("rb"))
    magic = file.read(4)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", opened.enter_context(gzip.GzipFile(fileobj=file)))
    if magic != b"PK\x03\x04":
        return file
    archive = opened.enter_context(zipfile.ZipFile(file))
    members = [name for name in archive.namelist() if not name.endswith("/") and not _HIDDEN.search(name)]
    answers = [name for name in members if re.search(r"(^|/)responses\.(csv|jsonl?)$", name)]
    if len(members) != 1 and not answers:
        raise _refused(
            f"The ZIP holds {len(members)} files and none of them is called responses.csv.",
            hint="Give the table of answers itself.",
        )
    return opened.enter_context(archive.open((answers or members)[0]))


def _first_line(text: IO[str]) -> str:
    """The first line that holds something, or as much of it as a row may have."""
    while line := text.readline(LONGEST_ROW):
        if line.strip():
            return line
    return ""


def _lines(first: str, text: IO[str]) -> Iterator[str]:
    line = first
    while line:
        if len(line) >= LONGEST_ROW:
            raise _refused(f"A line has more than {LONGEST_ROW:,} characters.", hint="Is this a table of answers?")
        yield line
        line = text.readline(LONGEST_ROW)


def _table(first: str, text: IO[str]) -> Iterator[tuple[int, Row]]:
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(_lines(first, text), delimiter=delimiter, skipinitialspace=True)
    header: list[str] = []
    line = 0
    try:
        for cells in reader:
            before, line = line + 1, reader.line_num
            values = [cell.strip() for cell in cells]
            if not any(values):
                continue
            if not header and all(_is_number(value) for value in values):
                # Numbers without a header can only be rows of head, winner, loser.
                header = ["head", "winner", "loser"]
            elif not header:
                header = [value.lower() for value in values]
                if len(header) > MOST_COLUMNS:
                    raise _refused(
                        f"The table has {len(header):,} columns.", line=1, hint="Is this a table of answers?"
                    )
                continue
            if len(values) == len(header) + 1:
                values = values[1:]  # R writes row names without a name for their column
            if len(values) != len(header):
                raise _refused(
                    f"The row has {len(values)} cells but the table has {len(header)} columns.",
                    line=before,
                    hint="Is a value with a comma not quoted, or the row cut off?",
                )
            yield before, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise _refused(f"The table breaks off here: {error}.", line=reader.line_num) from error


def _array(first: str, text: IO[str]) -> Iterator[tuple[int, Any]]:
    """The elements of one JSON array, as they come."""
    decoder = json.JSONDecoder()
    waiting, number, ended = first.lstrip().removeprefix("["), 0, False
    while True:
        waiting = waiting.lstrip().removeprefix(",").lstrip() if number else waiting.lstrip()
        if waiting[:1] == "]":
            return
        try:
            value, end = decoder.raw_decode(waiting)
        except (ValueError, RecursionError) as error:
            more = "" if ended or len(waiting) > LONGEST_ROW else text.read(_PIECE)
            if not more:
                raise _refused(
                    f"Record {number + 1} is not JSON, or cut off.", hint="Download the file again."
                ) from error
            waiting += more
            continue
        number += 1
        waiting = waiting[end:]
        yield number, value
        while not ended and len(waiting) < _PIECE:
            more = text.read(_PIECE)
            ended = not more
            waiting += more


def _object_lines(first: str, text: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(first, text), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _refused("This line is not JSON.", line=number) from error


def _of_objects(values: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Row]]:
    for number, value in values:
        if not isinstance(value, dict) or len(cast("Row", value)) > MOST_COLUMNS:
            raise _refused(f"Record {number} is not an object with named values.", line=number)
        yield number, {str(key).strip().lower(): _cell(item) for key, item in cast("dict[str, Any]", value).items()}


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return _TRUTH[value]
    return "" if value is None else str(value).strip()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refused(message: str, *, line: int = 0, hint: str = "") -> ContainerError:
    return ContainerError(Problem(message, line=line, hint=hint))
