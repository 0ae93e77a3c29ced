"""Answers as other programs recorded them: rows of any of the known tables become answers by target, side and time.

Known are the responses of every Salmon, the tables of tripletTools and of the jsPsych template for triplets, and bare
rows of head, winner, loser. What a row does not say stays unknown: -1 for times, "" for texts, None for sides.

A first look through a file of recorded answers: what it names, how many answers it has, and all that is wrong with it.

Nothing is kept of an answer but what an experiment needs to be described: the file may be longer than memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from salmon.answer_files.answers import RANDOM_SAMPLER, SHOWN_PROBLEMS, AnswersFileError, same_label
from salmon.answer_files.rows import Row, rows_of
from salmon.answer_files.tables import COLUMNS, ContainerError
from salmon.errors import Problem
from salmon.records import NO_SCORE, TRIAL_TYPES, TrialType
from salmon.spec.schema import MAX_TARGETS

#: Where a row says something, beside the columns of `COLUMNS`; the first that holds anything is taken.
_SECONDS = {"received": ("time_received",), "rt": ("response_time", "response_time_s"), "network": ("network_latency",)}
_MILLISECONDS = {"rt": ("rt_ms", "rt"), "network": ("network_latency_ms",)}
#: Columns that name the target of a role by its page text or its file.
_HTML = ("{}_html", "{}_object")
_FILE = "{}_filename"
#: What tripletTools calls the ways in which a query came to be asked.
_ALGORITHMS: Mapping[str, TrialType] = {
    "random": "random",
    "validation": "validation",
    "check": "catch",
    "adaptive": "active",
}
#: Trials that may show one target twice, because they are no triplets.
_NO_TRIPLETS = frozenset({"catch", "practice"})
#: No answer came before there were computers, or comes after the year 5000.
_LATEST_SECONDS = 95_000_000_000
_LONGEST_ID = 512


@dataclass(frozen=True)
class Recorded:
    """One row: targets as the file names them, the side of the winner (None unknown), and what else it says.

    `received_ms` is Unix time; -1 where the row has none, as for `rt_ms` and `network_latency_ms`.
    """

    head: str
    winner: str
    loser: str
    won_left: bool | None
    sampler: str
    score: float
    trial_type: TrialType
    puid: str
    received_ms: int
    rt_ms: float
    network_latency_ms: float

    @property
    def targets(self) -> tuple[str, str, str]:
        """Head, winner, loser."""
        return self.head, self.winner, self.loser


@dataclass(frozen=True)
class Naming:
    """How a table names targets: by index, or by `labels` in the columns of these roles."""

    labels: bool
    roles: Mapping[str, str]


def naming_of(row: Row) -> Naming | Problem:
    """How this table names its targets, from its first row; a Problem where it has no columns for them."""
    by_label = "center" in row or ("option1" in row and "target" in row)
    roles = {role: next((name for name in _columns(role, by_label) if name in row), "") for role in _ROLES}
    pair = bool(roles["winner"] and roles["loser"])
    if not roles["head"] or not (pair or (roles["winner"] and roles["left"] and roles["right"])):
        found = ", ".join(name or "(unnamed)" for name in list(row)[:30]) or "none"
        return Problem(
            f"These columns do not say what was answered: {found}.",
            line=1,
            hint="A file of answers needs head, left, right and winner, or head, winner and loser.",
        )
    return Naming(by_label or _index(row[roles["head"]]) is None, roles)


def recorded(row: Row, line: int, naming: Naming, classes: Mapping[str, str] | None = None) -> Recorded | Problem:
    """The answer of one row, or what is wrong with it. `classes` are those of the samplers, where a config tells them."""
    head, winner, loser, left, right = (_label(row.get(naming.roles[role], ""), naming) for role in _ROLES)
    trial_type, sampler = _asked(row, classes or {})
    won_left: bool | None = None
    if left and right:
        if winner.lower() in {"left", "right"}:
            winner = left if winner.lower() == "left" else right
        won_left = same_label(winner, left)
        if not (won_left or same_label(winner, right)):
            return Problem(f"The winner is {_shown(winner)} but the feet are {_shown(left)} and {_shown(right)}.", line)
        winner, other = (left, right) if won_left else (right, left)
        if loser and not same_label(loser, other):
            return Problem(f"The loser is {_shown(loser)} but the foot that did not win is {_shown(other)}.", line)
        loser = other
    problem = _problem_of((head, winner, loser), line, naming, may_repeat=trial_type in _NO_TRIPLETS)
    if problem is not None:
        return problem
    received_ms = _received_ms(row)
    if received_ms is None:
        return Problem(f"The time {_shown(_first(row, ('time_received', 'datetime_received')))} cannot be read.", line)
    puid = _first(row, COLUMNS["participant"])
    if len(puid) > _LONGEST_ID or not puid.isprintable():
        return Problem(f"The participant {_shown(puid)} is no id.", line, hint="Ids have at most 512 characters.")
    return Recorded(
        head=head,
        winner=winner,
        loser=loser,
        won_left=won_left,
        sampler=sampler,
        score=_number(row, ("score",), NO_SCORE),
        trial_type=trial_type,
        puid=puid,
        received_ms=received_ms,
        rt_ms=_milliseconds(row, "rt"),
        network_latency_ms=_milliseconds(row, "network"),
    )


def names_of(row: Row, answer: Recorded) -> dict[str, tuple[str, str]]:
    """Target → (the page's text, file name), as far as this row says; empty texts where it does not."""
    found: dict[str, tuple[str, str]] = {}
    for role, target in zip(("head", "winner", "loser"), answer.targets, strict=True):
        html = next((row[name] for name in (column.format(role) for column in _HTML) if row.get(name)), "")
        found[target] = html, row.get(_FILE.format(role), "")
    return found


def began_ms(row: Row) -> int:
    """When the experiment began, if the row says so; 0 otherwise."""
    seconds = _number(row, ("start_time",), 0.0)
    return round(1000 * seconds) if 0 < seconds < _LATEST_SECONDS else 0


_ROLES = ("head", "winner", "loser", "left", "right")
_LABELLED = {"head": ("center", "target"), "winner": ("answer", "winner"), "loser": ()}


def _columns(role: str, by_label: bool) -> Iterable[str]:
    return _LABELLED.get(role, COLUMNS[role]) if by_label else COLUMNS[role]


def _label(cell: str, naming: Naming) -> str:
    """A label as it is written; an index without the zeros and points that spreadsheets add."""
    index = None if naming.labels else _index(cell)
    return cell if index is None else str(index)


def _problem_of(targets: tuple[str, ...], line: int, naming: Naming, *, may_repeat: bool) -> Problem | None:
    for role, target in zip(("head", "winner", "loser"), targets, strict=True):
        if not target:
            return Problem(f"The {role} is missing.", line)
        if not naming.labels and (_index(target) is None or not 0 <= int(target) < 2**31):
            return Problem(
                f"The {role} is {_shown(target)}, which is not the index of a target.", line, hint="They count from 0."
            )
    if len(set(targets)) < 3 and not (may_repeat and targets[1] != targets[2]):
        return Problem(f"The row names {_shown(targets[0])} or a foot twice.", line, hint="Remove the row.")
    return None


def _asked(row: Row, classes: Mapping[str, str]) -> tuple[TrialType, str]:
    """(how the query came to be asked, the name of its sampler)."""
    sampler = _first(row, COLUMNS["sampler"])
    written = row.get("trial_type", "")
    if written in TRIAL_TYPES:
        return written, sampler
    if row.get("phase", "") == "practice":
        return "practice", sampler
    if "samplealg" in row:
        return _ALGORITHMS.get(sampler.lower(), "active"), sampler
    known = classes.get(sampler, "")
    if known == "Validation" or (not known and re.search("validation", sampler, re.IGNORECASE)):
        return "validation", sampler
    if not sampler or known in {"Random", "RoundRobin"} or (not known and RANDOM_SAMPLER.search(sampler)):
        return "random", sampler
    # The first Salmon gave this score to whatever it drew because nothing was ranked yet.
    return ("fallback" if _number(row, ("score",), NO_SCORE) == NO_SCORE else "active"), sampler


def _received_ms(row: Row) -> int | None:
    """Unix time in milliseconds, -1 where the row has none, None where it cannot be read."""
    for column in _SECONDS["received"]:
        if row.get(column):
            seconds = _number(row, (column,), float("nan"))
            return round(1000 * seconds) if 0 <= seconds < _LATEST_SECONDS else None
    written = row.get("datetime_received", "")
    if not written:
        return -1
    try:
        moment = datetime.fromisoformat(written)
        return max(0, round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        return None


def _milliseconds(row: Row, what: str) -> float:
    for columns, scale in ((_MILLISECONDS[what], 1.0), (_SECONDS[what], 1000.0)):
        value = _number(row, columns, -1.0)
        if 0 <= value * scale < 1e12:
            return round(value * scale, 6)
    return -1.0


def _number(row: Row, columns: Iterable[str], otherwise: float) -> float:
    try:
        value = float(_first(row, columns))
    except ValueError:
        return otherwise
    return value if isfinite(value) else otherwise


def _first(row: Row, columns: Iterable[str]) -> str:
    return next((row[name] for name in columns if row.get(name)), "")


def _index(cell: str) -> int | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


#: Samplers and participants that one file may name.
_MOST_SAMPLERS = 1_000
_MOST_PARTICIPANTS = 1_000_000


@dataclass(frozen=True)
class Survey:
    """What a file of answers names and knows.

    `names` is target → (the page's text, file name); a target is the text of its index, or a label. `began_ms` is Unix
    time, 0 unknown; `untimed` and `sideless` are the answers of which the time of receipt or the sides are not known.
    """

    path: Path
    naming: Naming
    answers: int
    samplers: tuple[str, ...]
    names: Mapping[str, tuple[str, str]]
    began_ms: int
    untimed: int
    sideless: int
    classes: Mapping[str, str]


@dataclass
class _Seen:
    naming: Naming | None = None
    answers: int = 0
    samplers: dict[str, None] = field(default_factory=dict[str, None])
    people: set[int] = field(default_factory=set[int])
    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    began_ms: int = 0
    untimed: int = 0
    sideless: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])


def survey(path: Path, *, name: str = "", classes: Mapping[str, str] | None = None) -> Survey:
    """What is in a file; AnswersFileError lists what is wrong with it. `classes`: sampler → class, where they are known."""
    seen, known = _Seen(), classes or {}
    try:
        for line, row in rows_of(path):
            if seen.naming is None:
                naming = naming_of(row)
                if isinstance(naming, Problem):
                    seen.problems.append(naming)
                    break
                seen.naming = naming
            answer = recorded(row, line, seen.naming, known)
            if isinstance(answer, Problem):
                seen.problems.append(answer)
            else:
                _note(seen, answer, names_of(row, answer))
                seen.began_ms = seen.began_ms or began_ms(row)
            _check_sizes(seen, line)
            if len(seen.problems) > SHOWN_PROBLEMS:
                break
    except ContainerError as error:
        seen.problems.append(error.problem)
    if not seen.answers and not seen.problems:
        seen.problems.append(Problem("The file has no answers.", hint="It needs one answer a line."))
    if seen.problems or seen.naming is None:
        raise AnswersFileError(tuple(seen.problems), name=name)
    return Survey(
        path,
        seen.naming,
        seen.answers,
        tuple(seen.samplers),
        seen.names,
        seen.began_ms,
        seen.untimed,
        seen.sideless,
        known,
    )


def answers_of(known: Survey) -> Iterator[Recorded]:
    """The answers of a file that was surveyed, in its order."""
    for line, row in rows_of(known.path):
        answer = recorded(row, line, known.naming, known.classes)
        if isinstance(answer, Recorded):
            yield answer


def _note(seen: _Seen, answer: Recorded, names: Mapping[str, tuple[str, str]]) -> None:
    seen.answers += 1
    seen.samplers.setdefault(answer.sampler)
    seen.people.add(hash(answer.puid))
    seen.untimed += answer.received_ms < 0
    seen.sideless += answer.won_left is None
    for target, (html, file) in names.items():
        before = seen.names.get(target, ("", ""))
        if not (before[0] and before[1]):
            seen.names[target] = before[0] or html, before[1] or file


def _check_sizes(seen: _Seen, line: int) -> None:
    for found, most, what in (
        (len(seen.names), MAX_TARGETS, "targets"),
        (len(seen.samplers), _MOST_SAMPLERS, "samplers"),
        (len(seen.people), _MOST_PARTICIPANTS, "participants"),
    ):
        if found > most:
            raise ContainerError(Problem(f"The file names more than {most:,} {what}.", line=line))
