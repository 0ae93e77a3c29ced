"""Define the errors that a user of Salmon can meet: each is a sentence that says what, where and what to do.

The functions at the end write parts of such sentences: suggestions, lists and quoted values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

_SUGGESTS = "Did you mean "


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a file, at its place.

    Lines and columns count from 1; 0 means that the place is not known. `path` names the value inside the file
    (`samplers.ARR.R`), or the member of a ZIP.
    """

    message: str
    line: int = 0
    column: int = 0
    path: str = ""
    hint: str = ""
    warning: bool = False

    @property
    def suggestion(self) -> str:
        """The word that `did_you_mean` found; empty where there is none."""
        return self.hint[len(_SUGGESTS) : -1] if self.hint.startswith(_SUGGESTS) else ""

    def sentence(self, name: str = "") -> str:
        """Return `name:line:column: message (hint)`, the form that editors and terminals understand."""
        place = ":".join(str(part) for part in (name, self.line or "", self.column or "") if part)
        kind = "warning: " if self.warning else ""
        text = f"{kind}{self.message}" + (f" {self.hint}" if self.hint else "")
        return f"{place}: {text}" if place else text


class SalmonError(Exception):
    """An error that a user can act on. `hint` says what to do, `where` what it is about."""

    code = "error"

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class SpecError(SalmonError):
    """Raised for an experiment's file that cannot be used.

    `problems` lists everything wrong with it, in the order of the file.
    """

    code = "bad_spec"

    def __init__(self, problems: tuple[Problem, ...], *, name: str = "") -> None:
        self.problems = problems
        self.name = name
        super().__init__("\n".join(problem.sentence(name) for problem in problems))


class MediaError(SpecError):
    """Raised for a ZIP of targets that cannot be used; `problems` names each member and what is wrong with it."""

    code = "bad_media"


class TripletError(SalmonError, ValueError):
    """Raised for answers that cannot be fitted; the message names the row and the value."""

    code = "bad_triplets"


class StoreError(SalmonError):
    """Raised when the store refuses or cannot be reached; nothing was half-written."""

    code = "store"


class StartError(SalmonError):
    """Raised when the program cannot start on this machine."""

    code = "start"


_LONGEST_WORD = 60  # a longer text is no misspelt word, and comparing it would take long


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `Did you mean samplers?`, or nothing when no known word is near."""
    if len(word) > _LONGEST_WORD:
        return ""
    folded = {name.casefold().replace("-", "_"): name for name in known}
    near = get_close_matches(word.casefold().replace("-", "_"), folded, n=1, cutoff=0.7)
    return f"{_SUGGESTS}{folded[near[0]]}?" if near else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as they are listed in a sentence: `a, b or c`."""
    *rest, final = list(words) or [""]
    return f"{', '.join(rest)} {last} {final}" if rest else final


def shown(text: str, longest: int = 60) -> str:
    """Return a value as it can stand in a sentence: quoted, on one line, cut where it is long."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
