"""Read a table of answers row by row, whichever program wrote it, and check what each row says.

The table may be CSV (separated by commas, semicolons, tabs or blanks), a JSON array of objects, or one JSON object a
line; plain, gzip-compressed, or in a ZIP. Only one row is held in memory at a time, so that a file may be longer than
memory. `read_table` finds out how the table names its targets and yields its rows; `read_outcome`, `query_origin` and
`note_texts` read the parts of a row that every kind of import and fit needs.
"""

import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, BinaryIO, cast

from salmon.errors import Problem, TripletError, shown
from salmon.records import NO_SCORE, NO_TRIPLETS, TRIAL_TYPES, TrialType

#: The values of a row by their column, whose name is in lower case.
Row = dict[str, str]
#: The rows of a table, each with the line on which it begins; a Problem stands in for a row that cannot be read.
NumberedRows = Iterator[tuple[int, Row | Problem]]

#: So many problems are written out; the rest are counted.
SHOWN_PROBLEMS = 20
#: The longest row: a row holds five targets' HTML, twice.
LONGEST_ROW = 1_000_000
#: The most that a compressed file may unpack to.
MOST_BYTES = 8_000_000_000
MOST_COLUMNS = 1_000

#: What a column may be called, in lower case; the first that holds anything is taken.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "head": ("head", "center", "target"),
    "winner": ("winner", "answer"),
    "loser": ("loser",),
    "left": ("left", "option1"),
    "right": ("right", "option2"),
    "sampler": ("sampler", "alg_ident", "samplealg"),
    "participant": ("puid", "participant", "worker_id", "session_id"),
}
#: The columns of labels in tables that may have indices beside them.
_LABELS = {"head": ("center", "target"), "winner": ("answer", "winner")}
#: Columns with the page's text for the target of a role, and with the name of its file.
_HTML = ("{}_html", "{}_object")
_FILE = "{}_filename"
_TARGETS = ("head", "winner", "loser")
_UNNAMED = "(unnamed)"

#: Samplers that choose without looking at answers, by the names that they have had in files.
_RANDOM_SAMPLER = re.compile(r"random|round.?robin|^test$", re.IGNORECASE)
#: What tripletTools calls the ways in which a query came to be asked.
_ALGORITHMS: Mapping[str, TrialType] = {
    "random": "random",
    "test": "random",
    "validation": "validation",
    "check": "catch",
    "adaptive": "active",
}

#: How many rows, and how many characters of them, decide whether a table names its targets by index or by label.
_SAMPLED_ROWS, _SAMPLED_CHARACTERS = 100, 1_000_000
_PIECE = 1 << 16
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX)")
_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


class ContainerError(ValueError):
    """The file cannot be opened or read to its end; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class AnswersFileError(TripletError):
    """A file of answers cannot be used; `problems` lists everything wrong with it, in the order of the file."""

    code = "bad_answers_file"

    def __init__(self, problems: Iterable[Problem], *, name: str = "") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        self.name = name
        sentences = [problem.sentence(name) for problem in self.problems[:SHOWN_PROBLEMS]]
        if len(self.problems) > SHOWN_PROBLEMS:
            sentences.append(f"… and {len(self.problems) - SHOWN_PROBLEMS:,} more problems.")
        super().__init__("\n".join(sentences))


@dataclass(frozen=True)
class Naming:
    """How a table names targets: by index or by `labels`, in which column for each role ("" where it has none).

    `beside` says that the columns hold indices while labels stand in others, where they only describe the targets.
    """

    labels: bool
    columns: Mapping[str, str]
    beside: bool = False


@dataclass(frozen=True)
class Outcome:
    """The targets of one row as the file names them, and the side of the winner (None where the row has no sides)."""

    head: str
    winner: str
    loser: str
    won_left: bool | None

    @property
    def targets(self) -> tuple[str, str, str]:
        """Head, winner, loser."""
        return self.head, self.winner, self.loser


def read_table(file: BinaryIO, *, prefer_labels: bool = False) -> tuple[Naming, NumberedRows]:
    """Return how a table names its targets, and an iterator over its rows.

    Where indices stand beside labels, the indices count unless `prefer_labels` is set. Raises AnswersFileError when the
    file has no answers, or no columns that say what was answered.
    """
    rows = read_rows(file)
    sample: list[tuple[int, Row | Problem]] = []
    characters = 0
    for line, row in rows:
        sample.append((line, row))
        characters += 0 if isinstance(row, Problem) else sum(map(len, row.values()))
        if len(sample) >= _SAMPLED_ROWS or characters > _SAMPLED_CHARACTERS:
            break
    problems = [row for _, row in sample if isinstance(row, Problem)]
    readable = [row for _, row in sample if not isinstance(row, Problem)]
    if not sample:
        problems.append(Problem("The file has no answers.", hint="It needs one answer per line."))
    if not readable:
        raise AnswersFileError(problems)
    naming = _find_naming(readable, prefer_labels=prefer_labels)
    if isinstance(naming, Problem):
        raise AnswersFileError([naming, *problems])
    return naming, chain(sample, rows)


def read_rows(file: BinaryIO) -> NumberedRows:
    """Yield every row of a table with its line; what cannot be read is yielded as a Problem at its place."""
    with ExitStack() as opened:
        try:
            text = _Text(cast("IO[bytes]", _Counted(_unpack(file, opened))))
            first = text.first_line()
            if first.lstrip()[:1] == "[":
                yield from map(_object_row, _array(first, text))
            elif first.lstrip()[:1] == "{":
                yield from map(_object_row, _object_lines(first, text))
            else:
                yield from _table(first, text)
        except ContainerError as error:
            yield error.problem.line, error.problem
        except _DAMAGED:
            problem = Problem("The file is damaged or cut off.", hint="Copy it again.")
            yield problem.line, problem


def read_outcome(row: Row, line: int, naming: Naming, *, may_repeat: bool = False) -> Outcome | list[Problem]:
    """Return who won over whom in a row, or everything that is wrong with that.

    The winner may be named as a foot, by "left" or "right", or without the folder and extension that its foot has; the
    loser may be left out where the row has both feet. `may_repeat` allows the head to be one of the feet.
    """
    head, winner, loser, left, right = (
        _target(row.get(naming.columns[role], ""), naming) for role in (*_TARGETS, "left", "right")
    )
    won_left: bool | None = None
    if left and right:
        won_left = winner == left or winner.lower() == "left" or (winner != right and same_label(winner, left))
        if not (won_left or winner.lower() == "right" or same_label(winner, right)):
            message = f"The winner is {shown(winner)} but the feet are {shown(left)} and {shown(right)}."
            return [_problem(row, line, naming, "winner", message)]
        winner, other = (left, right) if won_left else (right, left)
        if loser and not same_label(loser, other):
            message = f"The loser is {shown(loser)} but the foot that did not win is {shown(other)}."
            return [_problem(row, line, naming, "loser", message)]
        loser = other
    outcome = Outcome(head, winner, loser, won_left)
    return list(_target_problems(row, line, naming, outcome, may_repeat=may_repeat)) or outcome


def query_origin(row: Row, classes: Mapping[str, str] | None = None) -> tuple[TrialType, str]:
    """Return how the query of a row came to be asked, and the name of its sampler.

    `classes` gives the classes of samplers where a description tells them; otherwise their names are judged.
    """
    sampler = first_value(row, COLUMNS["sampler"])
    written = row.get("trial_type", "").lower()
    if written in NO_TRIPLETS or row.get("phase", "").lower() == "practice":
        return ("catch" if written == "catch" else "practice"), sampler
    if written in TRIAL_TYPES:
        return written, sampler
    if "samplealg" in row:
        return _ALGORITHMS.get(sampler.lower(), "active"), sampler
    known = (classes or {}).get(sampler, "")
    if known == "Validation" or (not known and re.search("validation", sampler, re.IGNORECASE)):
        return "validation", sampler
    if not sampler or known in {"Random", "RoundRobin"} or (not known and _RANDOM_SAMPLER.search(sampler)):
        return "random", sampler
    # The first Salmon gave this score to whatever it drew because nothing was ranked yet.
    return ("fallback" if _index(row.get("score", "")) == NO_SCORE else "active"), sampler


def note_texts(texts: dict[str, tuple[str, str]], row: Row, outcome: Outcome, naming: Naming) -> None:
    """Note in `texts`, target → (the page's text, file name), what a row adds to them; empty texts are unknown."""
    for role, target in zip(_TARGETS, outcome.targets, strict=True):
        html, file = texts.get(target, ("", ""))
        if not (html and file):
            html = html or first_value(row, (column.format(role) for column in _HTML))
            html = html or (_label_beside(row, role) if naming.beside else "")
            texts[target] = html, file or row.get(_FILE.format(role), "")


def first_value(row: Row, columns: Iterable[str]) -> str:
    """Return the value of the first of these columns that holds one, or ""."""
    return next((row[name] for name in columns if row.get(name)), "")


def same_label(one: str, other: str) -> bool:
    """Whether labels are equal, or equal without folder and extension."""
    return one == other or (bare(one) == bare(other) and not one.isdigit())


def bare(label: str) -> str:
    """Return a label without folder and extension: 'static/eggs/i22.png' becomes 'i22'. HTML stays as it is."""
    return label if "<" in label else re.sub(r"\.[A-Za-z]\w{1,4}$", "", label.rsplit("/", 1)[-1])


def _find_naming(sample: list[Row], *, prefer_labels: bool) -> Naming | Problem:
    header = dict.fromkeys(name for row in sample for name in row)
    labelled = "center" in header or {"option1", "target"} <= header.keys()
    beside = labelled and "answer" in header and set(_TARGETS) <= header.keys()
    options = dict(COLUMNS)
    if labelled and (prefer_labels or not beside):
        # A column `loser` beside `answer` holds an index.
        options |= _LABELS | ({"loser": ()} if "answer" in header else {})
    elif beside:
        options |= {"left": (), "right": ()}
    columns = {role: next((name for name in names if name in header), "") for role, names in options.items()}
    absent = [role for role in _TARGETS if not columns[role]]
    if columns["left"] and columns["right"]:
        absent = [role for role in absent if role != "loser"]
    if absent:
        named = ", ".join(" or ".join(COLUMNS[role]) for role in absent)
        found = ", ".join(list(header)[:30]) or "none"
        return Problem(
            f"There is no column {named}; the columns are {found}.",
            line=1,
            hint="A file of answers needs head, winner and loser, or head, left, right and winner.",
        )
    feet = ("left", "right") if columns["left"] and columns["right"] else ("winner", "loser")
    cells = [cell for row in sample for role in ("head", *feet) if (cell := row.get(columns[role], ""))]
    indices = sum(_index(cell) is not None for cell in cells)
    return Naming((labelled and prefer_labels) or 2 * indices < len(cells), columns, beside and not prefer_labels)


def _label_beside(row: Row, role: str) -> str:
    head, winner, left, right = (
        first_value(row, names) for names in (_LABELS["head"], ("answer",), COLUMNS["left"], COLUMNS["right"])
    )
    loser = (right if same_label(winner, left) else left) if left and right else ""
    return {"head": head, "winner": winner, "loser": loser}[role]


def _target(cell: str, naming: Naming) -> str:
    """Return a label as it is written, and an index without the zeros and points that spreadsheets add."""
    index = None if naming.labels else _index(cell)
    return cell if index is None else str(index)


def _target_problems(row: Row, line: int, naming: Naming, outcome: Outcome, *, may_repeat: bool) -> Iterator[Problem]:
    for role, target in zip(_TARGETS, outcome.targets, strict=True):
        index = None if naming.labels else _index(target)
        if not target:
            yield _problem(row, line, naming, role, f"The {role} is missing.")
        elif naming.labels:
            continue
        elif index is None:
            message = f"The {role} is {shown(target)}, which is not the index of a target (0, 1, 2, …)."
            yield _problem(row, line, naming, role, message)
        elif index < 0:
            yield _problem(row, line, naming, role, f"The {role} is {target}, below 0.", "Targets count from 0.")
        elif index >= 2**31:
            yield _problem(row, line, naming, role, f"The {role} is {target}, too large for the index of a target.")
    head, winner, loser = outcome.targets
    if winner and winner == loser:
        yield _problem(
            row, line, naming, "loser", f"The winner and the loser are both {shown(winner)}.", "Remove the row."
        )
    elif head and head in {winner, loser} and not may_repeat:
        role = "winner" if head == winner else "loser"
        yield _problem(row, line, naming, role, f"The {role} is {shown(head)}, the head itself.", "Remove the row.")


def _problem(row: Row, line: int, naming: Naming, role: str, message: str, hint: str = "") -> Problem:
    column = naming.columns[role]
    if column not in row:
        return Problem(message, line=line, hint=hint)
    place = list(row).index(column) + 1
    return Problem(f"In column {column!r}: {message}", line=line, column=place, path=column, hint=hint)


def _index(cell: str) -> int | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


class _Counted(io.RawIOBase):
    """A stream that raises ContainerError when it gives more than any table has."""

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


class _Text:
    """The UTF-8 text of a table; `line` counts the lines taken, for messages."""

    def __init__(self, stream: IO[bytes]) -> None:
        # Bytes that are no UTF-8 pass the decoder, so that they can be reported at their line.
        self._text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
        self.line = 0

    def first_line(self) -> str:
        """Take the first line that holds something, or as much of it as a row may have."""
        while line := self._line():
            if line.strip():
                return line
        return ""

    def lines(self, first: str) -> Iterator[str]:
        """Yield `first` and all lines after it."""
        line = first
        while line:
            if len(line) >= LONGEST_ROW:
                raise _refused(f"A line has more than {LONGEST_ROW:,} characters.", hint="Is this a table of answers?")
            yield line
            line = self._line()

    def piece(self) -> str:
        """Take some text, whatever its lines."""
        text = self._checked(self._text.read(_PIECE), self.line)
        self.line += text.count("\n")
        return text

    def _line(self) -> str:
        self.line += 1
        return self._checked(self._text.readline(LONGEST_ROW), self.line)

    @staticmethod
    def _checked(text: str, line: int) -> str:
        try:
            if not text.isascii():
                text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) - 0xDC00
            line += text.count("\n", 0, error.start)
            raise _refused(
                f"The file is not UTF-8 text: byte {byte:#04x} cannot be read.", line=line, hint="Save it as UTF-8."
            ) from error
        return text


def _unpack(file: BinaryIO, opened: ExitStack) -> IO[bytes]:
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
            hint="Pass the table of answers itself.",
        )
    return opened.enter_context(archive.open((answers or members)[0]))


def _table(first: str, text: _Text) -> NumberedRows:
    delimiter = max(",;\t", key=first.count)
    lines = text.lines(first)
    if delimiter not in first:
        # Rows written by numpy.savetxt stand apart by blanks, sometimes several.
        lines, delimiter = (re.sub(" +", " ", line.strip("\r\n ")) + "\n" for line in lines), " "
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    header: list[str] = []
    rows = 0
    # A quoted cell may hold line ends: a row begins on the line after the one on which the row before it ended.
    end = text.line - 1
    while (cells := _next_cells(reader, text)) is not None:
        line, end = end + 1, text.line
        values = [cell.strip() for cell in cells]
        if not any(values):
            continue
        if not header and not all(_is_number(value) for value in values):
            if len(values) > MOST_COLUMNS:
                raise _refused(f"The table has {len(values):,} columns.", line=line, hint="Is this a table of answers?")
            names = [value.lower() or _UNNAMED for value in values]
            # Of columns with the same name the first counts.
            header = [name if name not in names[:k] else f"{name} ({k + 1})" for k, name in enumerate(names)]
            continue
        # A list of numbers without a header can only be rows of head, winner, loser.
        header = header or list(_TARGETS)
        if len(values) == len(header) + 1 and not rows:
            header.insert(0, _UNNAMED)  # R writes row names without a name for their column
        rows += 1
        if len(values) == len(header):
            yield line, dict(zip(header, values, strict=True))
        else:
            message = f"The row has {len(values)} cells but the table has {len(header)} columns."
            hint = "Is a value with a comma not quoted?" if len(values) > len(header) else "Is the row cut off?"
            yield line, Problem(message, line=line, hint=hint)


def _next_cells(reader: Iterator[list[str]], text: _Text) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise _refused(f"The table breaks off here: {error}.", line=text.line) from error


def _array(first: str, text: _Text) -> Iterator[tuple[int, int, Any]]:
    """Yield (line, number, value) of the elements of one JSON array, as they come."""
    decoder = json.JSONDecoder()
    waiting, line, number, ended = first, text.line, 0, False
    while True:
        skipped = re.match(r"\s*,?\s*" if number else r"\s*\[\s*", waiting)
        start = skipped.end() if skipped else 0
        if waiting[start : start + 1] == "]":
            return
        try:
            value, end = decoder.raw_decode(waiting, start)
        except (ValueError, RecursionError) as error:
            more = "" if ended or len(waiting) > LONGEST_ROW else text.piece()
            if not more:
                line += waiting.count("\n", 0, start)
                raise _refused(f"Record {number + 1} is not JSON, or cut off.", line=line) from error
            waiting += more
            continue
        number += 1
        line += waiting.count("\n", 0, start)
        yield line, number, value
        line += waiting.count("\n", start, end)
        waiting = waiting[end:]
        while not ended and len(waiting) < _PIECE:
            more = text.piece()
            ended = not more
            waiting += more


def _object_lines(first: str, text: _Text) -> Iterator[tuple[int, int, Any]]:
    for number, line in enumerate(text.lines(first), start=1):
        if line.strip():
            try:
                yield text.line, number, json.loads(line)
            except json.JSONDecodeError as error:
                yield text.line, number, Problem(f"This is not JSON: {error.msg}.", line=text.line, column=error.colno)
            except (ValueError, RecursionError):
                yield text.line, number, Problem("This is not JSON that can be read.", line=text.line)


def _object_row(element: tuple[int, int, Any]) -> tuple[int, Row | Problem]:
    line, number, value = element
    if isinstance(value, Problem):
        return line, value
    if not isinstance(value, dict) or len(cast("Row", value)) > MOST_COLUMNS:
        return line, Problem(f"Record {number} is not an object with named values.", line=line)
    return line, {
        str(key).strip().lower() or _UNNAMED: _cell(item) for key, item in cast("dict[str, Any]", value).items()
    }


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).strip()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refused(message: str, *, line: int = 0, hint: str = "") -> ContainerError:
    return ContainerError(Problem(message, line=line, hint=hint))
