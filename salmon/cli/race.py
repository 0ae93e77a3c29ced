"""Implement `salmon race`, which says which of the samplers that an experiment lets race is ahead."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from salmon.cli.fit import read_table, show_progress

EXAMPLE = "Example: salmon race responses.csv"


def race(
    responses: Annotated[Path, typer.Argument(help="The answers: CSV, JSON or JSON lines, plain, .gz or .zip.")],
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="A sampler that races; may be repeated. All that have held-out answers without it."),
    ] = None,
    dim: Annotated[int, typer.Option("--dim", "-d", min=1, max=10, help="Dimensions of all maps.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, the course included.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of starts.")] = 0,
) -> None:
    """Compare the samplers of an experiment that lets them race (`sampling: {race: 20%}`), on the answers it held out.

    The interval is valid however often one looks, so that the command may be run while answers still come.

    Example: salmon race responses.csv
    """
    from salmon.estimator.race import judge, race_of

    table = read_table(responses, EXAMPLE)
    held_out = [name for name, held in zip(table.samplers, table.held_out, strict=True) if held]
    names = tuple(sampler or sorted(set(held_out)))
    with show_progress() as progress:
        found = judge(race_of(table, names, dict.fromkeys(names, dim), seed), progress)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    for lead in found.leads:
        print(lead.sentence)
    print(
        f"Judged on {found.judged:,} of {found.held_out:,} held-out answers by maps of {found.learned:,} answers each."
    )
    for name, answers, accuracy in zip(found.names, found.answers, found.accuracy, strict=True):
        print(f"{name}: {answers:,} answers" + (f", held-out accuracy {accuracy:.1%}" if found.judged else ""))
