"""What is wrong with a description, as scripts of the first Salmon look for it: each mistake with its line of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import yaml

from salmon.errors import Problem, SpecError
from salmon.spec.schema import Html, Spec


def complaint(source: bytes, error: SpecError) -> str:
    """A text that begins with the word that scripts look for, and has every mistake at its place."""
    lines = source.decode("utf-8-sig", errors="replace").splitlines()
    told = [part for problem in error.problems for part in _told(problem, error.name, lines)]
    return "\n".join(("Error!", "", *told, *_in_other_words(source, error.problems), "", "Nothing was changed.")) + "\n"


def _told(problem: Problem, name: str, lines: list[str]) -> Iterator[str]:
    yield problem.sentence(name)
    if 0 < problem.line <= len(lines):
        yield f"    {lines[problem.line - 1][:200]}"


def _in_other_words(source: bytes, problems: tuple[Problem, ...]) -> Iterator[str]:
    """The first Salmon's words for what files most often had wrong."""
    of_keys = [problem for problem in problems if problem.path.startswith("sampling.probs")]
    if any("add up to" not in problem.message for problem in of_keys):
        yield "The sampling.probs keys are not the same as samplers keys."
    misplaced = {key: value for key, value in _tree(source).items() if _belongs_under_html(key, value)}
    if misplaced:
        block = yaml.safe_dump({"html": dict(sorted(misplaced.items()))}, sort_keys=False, allow_unicode=True)
        yield f"Move keys {', '.join(map(str, misplaced))} under html: include this block of YAML in your file:\n\n{block}"


def _belongs_under_html(key: Any, value: Any) -> bool:
    return key in Html.model_fields and not (key in Spec.model_fields and isinstance(value, list)) and key != "title"


def _tree(source: bytes) -> dict[Any, Any]:
    try:
        tree = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return cast("dict[Any, Any]", tree) if isinstance(tree, dict) else {}
