"""Implement `salmon check`, which reports everything wrong with an experiment's files before anybody uploads them, and
`salmon schema`, with which editors do the same.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from salmon.errors import Problem, SpecError, listed
from salmon.spec import check as check_spec
from salmon.spec import check_archive, editor_schema, parse_spec, targets_of
from salmon.spec.yaml_tree import MAX_BYTES


def check(
    spec: Annotated[Path, typer.Argument(help="The experiment's YAML file.", exists=True, dir_okay=False)],
    targets: Annotated[
        Path | None,
        typer.Argument(
            help="The ZIP of targets; by default targets.zip next to the YAML file, if it exists.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Check an experiment's files without starting anything.

    Each mistake is one line, `file:line:column: sentence`; the exit code is 1 if there is any.

    Example: salmon check experiment.yaml targets.zip
    """
    console = Console(soft_wrap=True, highlight=False)
    targets = find_archive(spec, targets)
    with spec.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    manifest = None
    found: list[Problem] = []
    found_in_spec: tuple[Problem, ...] = ()
    if targets is not None:
        trusted, found_in_spec = _read_before_zip(text)
        manifest, found_in_zip = check_archive(targets, trusted=trusted)
        _show(console, found_in_zip, targets.name)
        found += found_in_zip
    if targets is None or manifest is not None:
        found_in_spec = check_spec(text, spec.name, manifest)
    _show(console, found_in_spec, spec.name)
    found += found_in_spec
    wrong = sum(not problem.warning for problem in found)
    if wrong:
        console.print(f"{wrong} {'mistake' if wrong == 1 else 'mistakes'}.", style="bold red")
        raise typer.Exit(1)
    parsed = parse_spec(text, name=spec.name, manifest=manifest)
    samplers = ", ".join(f"{name} {share}%" for name, share in parsed.spec.probabilities.items())
    count = f"{len(targets_of(parsed.spec, parsed.manifest)):,} targets"
    if parsed.manifest is not None and (pictures := parsed.manifest.pictures):
        count += f" and, for texts, {listed((picture.name for picture in pictures), 'and')}"
    console.print(f"{spec.name} is ready: {count}; {samplers}.", style="green")


def schema() -> None:
    """Print the JSON schema of experiment files, with which editors complete, explain and check keys.

    The first line of a file tells its editor: `# yaml-language-server: $schema=salmon.schema.json`.

    Example: salmon schema > salmon.schema.json
    """
    print(json.dumps(editor_schema(), indent=2, ensure_ascii=False))


def find_archive(spec: Path, given: Path | None) -> Path | None:
    """Return the ZIP of targets that was given, or else the targets.zip beside an
    experiment's file, if there is one.
    """
    beside = spec.parent / "targets.zip"
    return given or (beside if beside.exists() else None)


def _read_before_zip(text: bytes) -> tuple[bool, tuple[Problem, ...]]:
    """Return whether the spec lets targets hold anything, and what is wrong with it but
    for the numbers of its targets.
    """
    try:
        parsed = parse_spec(text, zip_follows=True)
    except SpecError as error:
        return False, error.problems
    return parsed.spec.page.trusted, parsed.warnings


def _show(console: Console, problems: Iterable[Problem], name: str) -> None:
    for problem in problems:
        console.print(Text(problem.sentence(name), style="yellow" if problem.warning else ""))
