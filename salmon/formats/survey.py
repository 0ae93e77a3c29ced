"""A first look through a file of recorded answers: what it names, how many answers it has, and all that is wrong with it.

Nothing is kept of an answer but what an experiment needs to be described: the file may be longer than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from salmon.errors import Problem
from salmon.formats.answers import SHOWN_PROBLEMS, AnswersFileError
from salmon.formats.recorded import Naming, Recorded, began_ms, names_of, naming_of, recorded
from salmon.formats.rows import rows_of
from salmon.formats.tables import ContainerError
from salmon.spec.kinds import MAX_TARGETS

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
