"""Read the answers of a file as columns in memory: what a fit needs."""

import io
import re
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from salmon.answer_files.rows import (
    COLUMNS,
    AnswersFileError,
    Naming,
    Outcome,
    Row,
    bare,
    first_value,
    note_texts,
    query_origin,
    read_outcome,
    read_table,
)
from salmon.errors import Problem, TripletError
from salmon.records import DRAWN_BLINDLY, NO_TRIPLETS, REPEATABLE, TrialType

Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

_YES = frozenset({"true", "1", "yes"})


@dataclass(frozen=True)
class AnswerTable:
    """The answers of a file that may be used, as columns of equal length m.

    `triplets` (m, 3) int32 rows [head, winner, loser] over the n targets that have answers; `ids` (n,) the index that
    the file gives each of them, `labels` (n,) readable names and `html` (n,) what the page showed; `random` (m,) chosen
    without looking at answers, so that accuracy on them is unbiased; `test` (m,) may only be judged, never fitted;
    `repeatable` (m,) from queries that are asked again on purpose or by chance, from which a noise ceiling can be
    estimated; `notes` says in sentences what was left out or assumed.

    `held_out` (m,) are answers that compare samplers which race. `second` (k, 3) holds the second answers to queries
    that were repeated on purpose: they belong to the noise ceiling and are neither fitted nor judged.
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
    held_out: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    second: Ints = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int32))
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """The number of targets that have answers."""
        return len(self.ids)

    @property
    def for_ceiling(self) -> Ints:
        """The triplets from which a noise ceiling can be estimated."""
        return np.concatenate([self.triplets[self.repeatable], self.second])

    def with_samplers(self, *, random: tuple[str, ...] = (), test: tuple[str, ...] = ()) -> Self:
        """Return the same answers, with those of the named samplers marked as random or held back as a test set."""
        unknown = [name for name in (*random, *test) if name not in self.samplers]
        if unknown:
            found = ", ".join(sorted(set(self.samplers))) or "(none)"
            raise TripletError(f"No answer has the sampler {', '.join(unknown)}.", hint=f"The file has {found}.")
        samplers = np.array(self.samplers)
        test_rows = self.test | np.isin(samplers, test)
        random_rows = self.random | np.isin(samplers, random) | np.isin(samplers, test)
        return replace(self, random=random_rows, test=test_rows, repeatable=self.repeatable | random_rows)


def read_answers(text: str, *, name: str = "") -> AnswerTable:
    """Return the columns of the text of a file of answers, which messages call `name`."""
    return read_bytes(text.encode(), name=name)


def read_bytes(data: bytes, *, name: str = "") -> AnswerTable:
    """Return the columns of a file as it lies on a disk, plain or compressed; all its problems are raised at once."""
    columns = _Columns()
    try:
        naming, rows = read_table(io.BytesIO(data))
    except AnswersFileError as error:
        raise AnswersFileError(error.problems, name=name) from None
    for line, row in rows:
        if isinstance(row, Problem):
            columns.problems.append(row)
        else:
            columns.add(row, line, naming)
    if not columns.outcomes and not columns.problems:
        columns.problems.append(Problem("No answer is left: all are catch, practice or excluded trials."))
    if columns.problems:
        raise AnswersFileError(columns.problems, name=name)
    return columns.table(naming)


@dataclass
class _Columns:
    """The columns of a table while its rows are read."""

    outcomes: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    second: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    trial_types: list[TrialType] = field(default_factory=list[TrialType])
    samplers: list[str] = field(default_factory=list[str])
    participants: list[str] = field(default_factory=list[str])
    test: list[bool] = field(default_factory=list[bool])
    texts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    problems: list[Problem] = field(default_factory=list[Problem])
    no_triplets: int = 0
    excluded: int = 0
    unexplained: int = 0

    def add(self, row: Row, line: int, naming: Naming) -> None:
        """Add what a row says, unless it is left out; nothing in a row that is left out can be wrong."""
        trial_type, sampler = query_origin(row)
        if trial_type in NO_TRIPLETS:
            self.no_triplets += 1
            return
        if row.get("excluded", "").lower() in _YES:
            self.excluded += 1
            return
        outcome = read_outcome(row, line, naming)
        if not isinstance(outcome, Outcome):
            self.problems += outcome
            return
        if trial_type == "repeat":
            self.second.append(outcome.targets)
            note_texts(self.texts, row, outcome, naming)
            return
        self.outcomes.append(outcome.targets)
        self.trial_types.append(trial_type)
        self.samplers.append(sampler)
        self.participants.append(first_value(row, COLUMNS["participant"]))
        self.test.append(trial_type == "shared" or row.get("sampleset") == "test" or sampler.lower() == "test")
        self.unexplained += not (sampler or row.get("trial_type"))
        note_texts(self.texts, row, outcome, naming)

    def table(self, naming: Naming) -> AnswerTable:
        """Return the table of all rows. Targets without an answer get no place: the
        others are numbered without gaps.
        """
        names = sorted(self.texts, key=str if naming.labels else int)
        place = {name: index for index, name in enumerate(names)}
        ids = range(len(names)) if naming.labels else map(int, names)
        if naming.labels:
            labels, html = [bare(name) for name in names], names
        else:
            labels = [_readable(name, *self.texts[name]) for name in names]
            html = [self.texts[name][0] or label for name, label in zip(names, labels, strict=True)]
        return AnswerTable(
            triplets=np.array([[place[name] for name in row] for row in self.outcomes], dtype=np.int32),
            ids=tuple(ids),
            labels=tuple(labels),
            html=tuple(html),
            participants=tuple(self.participants),
            samplers=tuple(self.samplers),
            random=np.isin(self.trial_types, tuple(DRAWN_BLINDLY)),
            test=np.array(self.test, dtype=np.bool_),
            repeatable=np.isin(self.trial_types, tuple(REPEATABLE - {"fixed"})),
            held_out=np.array([kind == "held_out" for kind in self.trial_types], dtype=np.bool_),
            second=np.array([[place[name] for name in row] for row in self.second], dtype=np.int32).reshape(-1, 3),
            notes=tuple(self._notes(1 + int(names[-1]) if not naming.labels else len(names))),
        )

    def _notes(self, n: int) -> list[str]:
        unanswered = n - len(self.texts)
        test = sum(self.test)
        notes = (
            (self.no_triplets, f"Left out: catch and practice trials ({self.no_triplets:,})."),
            (self.excluded, f"Left out: answers marked as excluded ({self.excluded:,})."),
            (unanswered, f"Left out: targets without any answer ({unanswered:,} of {n:,})."),
            (
                self.unexplained,
                f"No column says how the queries of {self.unexplained:,} answers were chosen; they are taken to be random.",
            ),
            (test, f"Used only for evaluation: answers of a test set ({test:,})."),
            (len(self.second), f"Used only for the noise ceiling: repeated queries ({len(self.second):,})."),
        )
        return [sentence for count, sentence in notes if count]


def _readable(index: str, html: str, file: str) -> str:
    """Return a target's label: the name of its file before the page's text without tags, either before its index."""
    return bare(file) or " ".join(re.sub(r"<[^>]*>", " ", html).split()) or index
