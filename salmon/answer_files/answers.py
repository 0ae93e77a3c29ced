"""Rows of a file of answers become columns: who is head, winner and loser, under which name, and how it was asked."""

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from salmon.answer_files.tables import COLUMNS, ContainerError, Rows, decoded, table
from salmon.errors import Problem, TripletError

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

#: Where the page's text for a target and the name of its file may stand, for each role.
_HTML = ("{}_html", "{}_object")
_FILE = "{}_filename"
#: Samplers that choose without looking at answers, by the names that they have had in files.
RANDOM_SAMPLER = re.compile(r"random|round.?robin|^test$", re.IGNORECASE)
#: The score that the old program and ours give to a query that nobody ranked.
UNRANKED = -9999.0
#: So many problems are written out; the rest are counted.
SHOWN_PROBLEMS = 20


class AnswersFileError(TripletError):
    """A file of answers cannot be used; `problems` lists everything wrong with it, in the order of the file."""

    code = "bad_answers_file"

    def __init__(self, problems: tuple[Problem, ...], *, name: str = "") -> None:
        self.problems = problems
        self.name = name
        shown = [problem.sentence(name) for problem in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            shown.append(f"… and {len(problems) - SHOWN_PROBLEMS:,} more problems.")
        super().__init__("\n".join(shown))


@dataclass(frozen=True)
class AnswerTable:
    """The answers of a file that may be used, as columns of equal length m.

    `triplets` (m, 3) int32 rows [head, winner, loser] over the n targets that have answers; `ids` (n,) the index that
    the file gives each of them, `labels` (n,) readable names and `html` (n,) what the page showed; `random` (m,) chosen without looking at answers, so that accuracy on them is unbiased; `test` (m,)
    may only be judged, never fitted; `repeatable` (m,) from queries that are asked again on purpose or by chance, from
    which a noise ceiling can be had; `notes` says in sentences what was left out or assumed.
    """

    triplets: Ints
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    html: tuple[str, ...]
    participants: tuple[str, ...]
    samplers: tuple[str, ...]
    random: Bools
    test: Bools
    repeatable: Bools
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """How many targets have answers."""
        return len(self.ids)

    def with_samplers(self, *, random: tuple[str, ...] = (), test: tuple[str, ...] = ()) -> "AnswerTable":
        """The same answers, where the named samplers are known to be random, or are held back as a test set."""
        unknown = [name for name in (*random, *test) if name not in self.samplers]
        if unknown:
            found = ", ".join(sorted(set(self.samplers))) or "(none)"
            raise TripletError(f"No answer has the sampler {', '.join(unknown)}.", hint=f"The file has {found}.")
        samplers = np.array(self.samplers)
        test_rows = self.test | np.isin(samplers, test)
        random_rows = self.random | np.isin(samplers, random) | np.isin(samplers, test)
        return replace(self, random=random_rows, test=test_rows, repeatable=self.repeatable | random_rows)


def read_bytes(data: bytes, *, name: str = "") -> AnswerTable:
    """Columns of a file as it lies on a disk: plain, gzip, or a ZIP with one table in it."""
    try:
        return read_answers(decoded(data), name=name)
    except ContainerError as error:
        raise AnswersFileError((error.problem,), name=name) from error


def read_answers(text: str, *, name: str = "") -> AnswerTable:
    """Columns of the text of a file of answers; every problem of the file is reported at once."""
    rows = table(text)
    if not rows.cells and not rows.problems:
        rows.problems.append(Problem("The file has no answers.", hint="It needs one answer a line."))
    _merge_label_columns(rows)
    _require_columns(rows)
    if not rows.cells:
        _raise(rows, name)
    notes = _leave_out(rows)
    _split_winners(rows)
    indices, names = _numbered(rows)
    _raise(rows, name)
    # A target without an answer has no place: the others are numbered without gaps.
    ids, triplets = np.unique(indices, return_inverse=True)
    triplets = triplets.reshape(-1, 3).astype(np.int32)
    missing = int(ids[-1]) + 1 - len(ids)
    if missing:
        notes += (f"Left out: targets without any answer ({missing:,} of {int(ids[-1]) + 1:,}).",)
    labels, html = _target_names(rows, triplets, ids, names)
    return _columns(rows, triplets, ids, labels, html, notes)


def _raise(rows: Rows, name: str) -> None:
    if rows.problems:
        raise AnswersFileError(tuple(sorted(rows.problems, key=lambda problem: problem.line)), name=name)


def _merge_label_columns(rows: Rows) -> None:
    """Tables with indices and labels side by side (head and Center, winner and Answer): the labels only name targets."""
    if not {"head", "winner", "loser", "center", "answer"} <= set(rows.header):
        return
    renamed = {"center": "head_object", "answer": "winner_object", "left": "left_object", "right": "right_object"}
    rows.header = [renamed.get(name, name) for name in rows.header]
    winners, left, right = (rows.column(f"{role}_object") for role in ("winner", "left", "right"))
    if winners and left and right:
        rows.header.append("loser_object")
        for row, winner, a, b in zip(rows.cells, winners, left, right, strict=True):
            row.append(b if same_label(winner, a) else a)


def _require_columns(rows: Rows) -> None:
    absent = [role for role in ("head", "winner", "loser") if rows.place(role) is None]
    if rows.place("left") is not None and rows.place("right") is not None:
        absent = [role for role in absent if role != "loser"]
    if not rows.cells or not absent:
        return
    # Nothing can be said about rows whose columns are unknown.
    rows.cells, rows.lines = [], []
    named = ", ".join(" or ".join(COLUMNS[role]) for role in absent)
    found = ", ".join(name or "(unnamed)" for name in rows.header[:30]) or "none"
    hint = "A file of answers needs head, winner and loser, or head, left, right and winner."
    rows.problems.append(Problem(f"There is no column {named}; the columns are {found}.", line=1, hint=hint))


def _leave_out(rows: Rows) -> tuple[str, ...]:
    """Trials that are never triplets go before anything is checked: a catch trial shows its head as a foot."""
    notes: list[str] = []
    for role, words, sentence in (
        ("trial_type", {"catch", "practice"}, "Left out: catch and practice trials ({})."),
        ("phase", {"practice"}, "Left out: practice trials ({})."),
        ("samplealg", {"check"}, "Left out: check trials ({})."),
        ("excluded", {"true", "1", "yes"}, "Left out: answers marked as excluded ({})."),
    ):
        column = rows.column(role)
        if column is None:
            continue
        wanted = [cell.lower() not in words for cell in column]
        if not all(wanted):
            notes.append(sentence.format(f"{wanted.count(False):,}"))
            rows.keep(wanted)
    if not rows.cells:
        rows.problems.append(Problem("No answer is left: all are catch, practice or excluded trials."))
    return tuple(notes)


def _split_winners(rows: Rows) -> None:
    """Make the winner one of the feet and the loser the other, or say in which row they are not."""
    winners, losers, left, right = (rows.column(role) for role in ("winner", "loser", "left", "right"))
    if winners is None or left is None or right is None:
        return
    winner_place, loser_place = rows.place("winner"), rows.place("loser")
    good: list[bool] = []
    if loser_place is None:
        rows.header.append("loser")
    for row, (winner, a, b) in enumerate(zip(winners, left, right, strict=True)):
        won = a if same_label(winner, a) or winner.lower() == "left" else b
        lost = b if won == a else a
        before = len(rows.problems)
        if not (same_label(winner, won) or winner.lower() in {"left", "right"}):
            rows.problem(row, "winner", f"The winner is {winner!r} but the feet are {a!r} and {b!r}.")
        elif losers is not None and not same_label(losers[row], lost):
            rows.problem(row, "loser", f"The loser is {losers[row]!r} but the foot that did not win is {lost!r}.")
        if winner_place is not None:
            rows.cells[row][winner_place] = won
        if loser_place is None:
            rows.cells[row].append(lost)
        else:
            rows.cells[row][loser_place] = lost
        good.append(len(rows.problems) == before)
    rows.keep(good)


def same_label(one: str, other: str) -> bool:
    """Labels are equal, or equal without folder and extension."""
    return one == other or (bare(one) == bare(other) and not one.isdigit())


def bare(label: str) -> str:
    """'static/eggs/i22.png' is 'i22'; HTML is itself."""
    return label if "<" in label else re.sub(r"\.[A-Za-z]\w{1,4}$", "", label.rsplit("/", 1)[-1])


def _numbered(rows: Rows) -> tuple[Ints, tuple[str, ...] | None]:
    """(m, 3) indices, and the labels they stand for where the file names its targets instead of numbering them."""
    roles = [rows.column(role) or [] for role in ("head", "winner", "loser")]
    numeric = [[_index(cell) for cell in column] for column in roles]
    known = sum(index is not None for column in numeric for index in column)
    if known * 2 < 3 * len(rows.cells):
        names = tuple(sorted({cell for column in roles for cell in column}))
        place = {name: index for index, name in enumerate(names)}
        numeric = [[place[cell] if cell else None for cell in column] for column in roles]
    else:
        names = None
    for row, indices in enumerate(zip(*numeric, strict=True)):
        _check_row(rows, row, [column[row] for column in roles], indices)
    if rows.problems:
        return np.empty((0, 3), dtype=np.int32), None
    return np.array(numeric, dtype=np.int32).T.copy(), names


def _check_row(rows: Rows, row: int, cells: list[str], indices: tuple[int | None, ...]) -> None:
    for role, cell, index in zip(("head", "winner", "loser"), cells, indices, strict=True):
        if not cell:
            rows.problem(row, role, f"The {role} is missing.")
        elif index is None:
            rows.problem(row, role, f"The {role} is {cell!r}, which is not the index of a target (0, 1, 2, …).")
        elif index < 0:
            rows.problem(row, role, f"The {role} is {cell}, below 0.", "Targets count from 0.")
        elif index >= 2**31:
            rows.problem(row, role, f"The {role} is {cell}, too large for the index of a target.")
    head, winner, loser = indices
    if head is not None and head in {winner, loser}:
        role = "winner" if head == winner else "loser"
        rows.problem(row, role, f"The {role} is {cells[0]!r}, the head itself.", "Remove the row.")
    elif winner is not None and winner == loser:
        rows.problem(row, "loser", f"The winner and the loser are both {cells[1]!r}.", "Remove the row.")


def _index(cell: str) -> int | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _target_names(
    rows: Rows, triplets: Ints, ids: Ints, names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(n,) labels and (n,) page texts: a file's name before the page's text, either before the bare index."""
    if names is not None:
        return tuple(bare(name) for name in names), names
    n = len(ids)
    files, html = [""] * n, [""] * n
    for position, role in enumerate(("head", "winner", "loser")):
        for column, found in ((_FILE, files), *((name, html) for name in _HTML)):
            for index, cell in zip(
                triplets[:, position].tolist(), rows.column(column.format(role)) or (), strict=False
            ):
                found[index] = found[index] or cell
    labels = [
        bare(name) or " ".join(re.sub(r"<[^>]*>", " ", text).split()) or str(index)
        for index, name, text in zip(ids.tolist(), files, html, strict=True)
    ]
    return tuple(labels), tuple(text or label for text, label in zip(html, labels, strict=True))


def _columns(
    rows: Rows, triplets: Ints, ids: Ints, labels: tuple[str, ...], html: tuple[str, ...], notes: tuple[str, ...]
) -> AnswerTable:
    m = len(triplets)
    samplers = rows.column("sampler") or [""] * m
    trial_types = rows.column("trial_type")
    if trial_types is not None:
        random = np.isin(trial_types, ["random", "fallback"])
        repeatable = random | np.isin(trial_types, ["validation", "repeat"])
    elif rows.place("sampler") is not None:
        unranked = [_index(cell) == UNRANKED for cell in rows.column("score") or [""] * m]
        validation = np.array([re.search("validation", name, re.IGNORECASE) is not None for name in samplers])
        random = np.array([RANDOM_SAMPLER.search(name) is not None for name in samplers]) | unranked & ~validation
        repeatable = random | validation
    else:
        random = repeatable = np.ones(m, dtype=np.bool_)
        notes += ("No column says how the queries were chosen; all of them are taken to be random.",)
    test = np.isin(rows.column("set") or [""] * m, ["test"]) | np.isin([name.lower() for name in samplers], ["test"])
    if test.any():
        notes += (f"Only judged, not fitted: answers of a test set ({int(test.sum()):,}).",)
    return AnswerTable(
        triplets=triplets,
        ids=tuple(ids.tolist()),
        labels=labels,
        html=html,
        participants=tuple(rows.column("participant") or [""] * m),
        samplers=tuple(samplers),
        random=np.asarray(random, dtype=np.bool_),
        test=np.asarray(test, dtype=np.bool_),
        repeatable=np.asarray(repeatable, dtype=np.bool_),
        notes=notes,
    )
