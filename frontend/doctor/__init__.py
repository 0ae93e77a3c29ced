"""`salmon doctor`: look at a server from outside, and at the machine it runs on, and
say what is wrong and what to do.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from frontend.doctor.machine import examine_machine
from frontend.doctor.outside import Finding, examine_address
from salmon.cli.data_directory import DataDirectory
from salmon.cli.serve import DEFAULT_DATA, DataOption
from salmon.errors import StartError

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


def doctor(
    address: Annotated[
        str,
        typer.Argument(help="The address that participants use; by default that of the server on this data directory."),
    ] = "",
    upload_mb: Annotated[
        int, typer.Option(help="The size of an upload that proxies must let through, in MB.", min=1)
    ] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Look at a server from outside, and at this machine where it runs here; say what is wrong and what to do.

    Run it where participants are, on your own computer, as well as on the server. Nothing is changed and nothing is
    uploaded. The exit code is 1 if there is a problem.

    Example: salmon doctor https://lab.example.edu/salmon
    """
    directory = DataDirectory(data.expanduser().resolve())
    runs_here = directory.root.is_dir()
    asked = address or _running_address(directory)
    if not asked and not runs_here:
        raise StartError(
            f"There is no data directory {directory.root}, and no address was given.",
            hint="Name one: salmon doctor https://lab.example.edu/salmon",
        )
    found = list(asyncio.run(examine_address(asked, upload_mb=upload_mb))) if asked else []
    if runs_here:
        found += examine_machine(directory.root)
    if as_json:
        content = {"address": asked, "findings": [each.as_json() for each in found]}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        _show(found)
    if any(each.level == "problem" for each in found):
        raise typer.Exit(1)


def _running_address(directory: DataDirectory) -> str:
    path: Path = directory.running / "address"
    return path.read_text().strip() if path.is_file() else ""


def _show(found: list[Finding]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for each in found:
        mark, color = _MARKS[each.level]
        console.print(Text(f"{mark} ", style=color) + Text(f"{each.check}: ", style="bold") + Text(each.message))
        if each.hint:
            console.print(Text(f"    {each.hint}"))
    problems = sum(each.level == "problem" for each in found)
    warnings = sum(each.level == "warning" for each in found)
    console.print(
        f"{problems} {'problem' if problems == 1 else 'problems'}, {warnings} {'warning' if warnings == 1 else 'warnings'}."
    )
