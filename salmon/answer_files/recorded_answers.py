"""Read recorded answers for an import: every answer with its sides, times, sampler and participant.

`survey` looks through a file once and returns what it names, how many answers it has, or all that is wrong with it;
`read_recorded` then yields its answers. No answer is kept in memory, so that a file may be longer than memory. What a
row does not say stays unknown: -1 for times, "" for texts, None for sides.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from salmon.answer_files.rows import (
    COLUMNS,
    SHOWN_PROBLEMS,
    AnswersFileError,
    Naming,
    Outcome,
    Row,
    first_value,
    note_texts,
    query_origin,
    read_outcome,
    read_table,
)
from salmon.errors import Problem, shown
from salmon.records import NO_SCORE, NO_TRIPLETS, TrialType
from salmon.spec.kinds import MAX_TARGETS

_RECEIVED_SECONDS = "time_received"
_RECEIVED_DATE = "datetime_received"
#: Columns of durations in milliseconds, and in seconds.
_RESPONSE_TIME = (("rt_ms", "rt"), ("response_time", "response_time_s"))
_LATENCY = (("network_latency_ms",), ("network_latency",))
#: No answer came before there were computers, or comes after the year 5000.
_LATEST_SECONDS = 95_000_000_000
_LONGEST_ID = 512
#: Samplers and participants that one file may name.
_MOST_SAMPLERS = 1_000
_MOST_PARTICIPANTS = 1_000_000


@dataclass(frozen=True)
class RecordedAnswer(Outcome):
    """The answer of one row: targets as the file names them, the side of the winner, and what else the row says.

    `received_ms` is Unix time; -1 where the row has none, as for `rt_ms` and `network_latency_ms`.
    """

    sampler: str
    score: float
    trial_type: TrialType
    puid: str
    received_ms: int
    rt_ms: float
    network_latency_ms: float


@dataclass(frozen=True)
class Survey:
    """What a file of answers names and knows.

    `names` is target → (the page's text, file name); a target is the text of its index, or a label. `began_ms` is Unix
    time, 0 unknown; `untimed` and `sideless` count the answers of which the time of receipt or the sides are not known.
    `classes` is sampler → class, where a description tells it.
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


def survey(path: Path, *, name: str = "", classes: Mapping[str, str] | None = None) -> Survey:
    """Return what is in a file. AnswersFileError lists what is wrong with it; reading stops when that is too much."""
    counts = _Counts()
    known = classes or {}
    problems: list[Problem] = []
    try:
        with path.open("rb") as file:
            naming, rows = read_table(file, prefer_labels=True)
            for line, row in rows:
                if isinstance(row, Problem):
                    problems.append(row)
                else:
                    answer = _read_answer(row, line, naming, known)
                    if isinstance(answer, RecordedAnswer):
                        counts.add(row, answer, naming)
                    else:
                        problems += answer
                    problems += counts.excess(line)
                if len(problems) > SHOWN_PROBLEMS:
                    break
    except AnswersFileError as error:
        raise AnswersFileError(error.problems, name=name) from None
    if problems:
        raise AnswersFileError(problems, name=name)
    return Survey(
        path,
        naming,
        counts.answers,
        tuple(counts.samplers),
        counts.names,
        counts.began_ms,
        counts.untimed,
        counts.sideless,
        known,
    )


def read_recorded(known: Survey) -> Iterator[RecordedAnswer]:
    """Yield the answers of a file that was surveyed, in its order."""
    with known.path.open("rb") as file:
        for line, row in read_table(file, prefer_labels=True)[1]:
            if not isinstance(row, Problem):
                answer = _read_answer(row, line, known.naming, known.classes)
                if isinstance(answer, RecordedAnswer):
                    yield answer


@dataclass
class _Counts:
    """What the rows of a file have named so far."""

    answers: int = 0
    samplers: dict[str, None] = field(default_factory=dict[str, None])
    people: set[int] = field(default_factory=set[int])
    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    began_ms: int = 0
    untimed: int = 0
    sideless: int = 0

    def add(self, row: Row, answer: RecordedAnswer, naming: Naming) -> None:
        """Count an answer and note what its row names."""
        self.answers += 1
        self.samplers.setdefault(answer.sampler)
        self.people.add(hash(answer.puid))
        self.untimed += answer.received_ms < 0
        self.sideless += answer.won_left is None
        self.began_ms = self.began_ms or _began_ms(row)
        note_texts(self.names, row, answer, naming)

    def excess(self, line: int) -> list[Problem]:
        """Return a problem for everything of which the file names too many."""
        return [
            Problem(f"The file names more than {most:,} {what}.", line=line)
            for number, most, what in (
                (len(self.names), MAX_TARGETS, "targets"),
                (len(self.samplers), _MOST_SAMPLERS, "samplers"),
                (len(self.people), _MOST_PARTICIPANTS, "participants"),
            )
            if number > most
        ]


def _read_answer(row: Row, line: int, naming: Naming, classes: Mapping[str, str]) -> RecordedAnswer | list[Problem]:
    trial_type, sampler = query_origin(row, classes)
    outcome = read_outcome(row, line, naming, may_repeat=trial_type in NO_TRIPLETS)
    if not isinstance(outcome, Outcome):
        return outcome
    received_ms = _received_ms(row)
    if received_ms is None:
        written = first_value(row, (_RECEIVED_SECONDS, _RECEIVED_DATE))
        return [Problem(f"The time {shown(written)} cannot be read.", line)]
    puid = first_value(row, COLUMNS["participant"])
    if len(puid) > _LONGEST_ID or not puid.isprintable():
        message = f"{shown(puid)} is not the id of a participant."
        return [Problem(message, line, hint=f"Ids have at most {_LONGEST_ID} characters, all of them printable.")]
    return RecordedAnswer(
        *outcome.targets,
        outcome.won_left,
        sampler=sampler,
        score=_number(row, ("score",), NO_SCORE),
        trial_type=trial_type,
        puid=puid,
        received_ms=received_ms,
        rt_ms=_milliseconds(row, _RESPONSE_TIME),
        network_latency_ms=_milliseconds(row, _LATENCY),
    )


def _received_ms(row: Row) -> int | None:
    """Return Unix time in milliseconds, -1 where the row has none, None where it cannot be read."""
    if row.get(_RECEIVED_SECONDS):
        seconds = _number(row, (_RECEIVED_SECONDS,), float("nan"))
        return round(1000 * seconds) if 0 <= seconds < _LATEST_SECONDS else None
    written = row.get(_RECEIVED_DATE, "")
    if not written:
        return -1
    try:
        moment = datetime.fromisoformat(written)
        return max(0, round(1000 * (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        return None


def _milliseconds(row: Row, columns: tuple[Iterable[str], Iterable[str]]) -> float:
    for names, scale in zip(columns, (1.0, 1000.0), strict=True):
        value = _number(row, names, -1.0)
        if 0 <= value * scale < 1e12:
            return round(value * scale, 6)
    return -1.0


def _began_ms(row: Row) -> int:
    """Return when the experiment began, if the row says so; 0 otherwise."""
    seconds = _number(row, ("start_time",), 0.0)
    return round(1000 * seconds) if 0 < seconds < _LATEST_SECONDS else 0


def _number(row: Row, columns: Iterable[str], otherwise: float) -> float:
    try:
        value = float(first_value(row, columns))
    except ValueError:
        return otherwise
    return value if isfinite(value) else otherwise
