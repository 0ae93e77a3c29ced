"""The nearest thing that would have been right, for "did you mean …?"."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_WORD = 60  # a longer text is no misspelt word, and comparing it would take long


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean samplers?`, or nothing when no known word is near."""
    if len(word) > _LONGEST_WORD:
        return ""
    folded = {name.casefold().replace("-", "_"): name for name in known}
    near = get_close_matches(word.casefold().replace("-", "_"), folded, n=1, cutoff=0.7)
    return f"Did you mean {folded[near[0]]}?" if near else ""


def listed(words: Iterable[str], last: str = "or") -> str:
    """`a, b or c`: a list as it stands in a sentence."""
    *rest, final = list(words) or [""]
    return f"{', '.join(rest)} {last} {final}" if rest else final


def shown(text: str, longest: int = 60) -> str:
    """A value as it can stand in a sentence: quoted, on one line, cut where it is long."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
