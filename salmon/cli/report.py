"""Implement `salmon report`, which writes the report of a study from its bundle."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from salmon import parent_watch
from salmon.cli.fit import read_file, show_progress, write_files
from salmon.errors import SalmonError

EXAMPLE = "Example: salmon report colors-bundle.zip"


def report(
    bundle: Annotated[
        Path, typer.Argument(help="A bundle of an experiment (salmon export), or a file of its answers.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write: .html, or .md with figures beside it; by default BUNDLE-report.html.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and starts.")] = 0,
) -> None:
    """Write a report: design, participants, accuracy, choice of the dimension, map, methods and provenance.

    One HTML file needs nothing else; Markdown has its figures in SVG files. The same bundle gives the same bytes.

    Example: salmon report colors-bundle.zip
    """
    parent_watch.watch(os.environ)
    from salmon.answer_files.rows import AnswersFileError
    from salmon.study_report import Figure, as_html, as_markdown, read_study, sections_of, title_of

    path = output or bundle.with_name(f"{bundle.stem}-report.html")
    if path.suffix not in {".html", ".md"}:
        raise SalmonError(f"A report cannot be written as {path.name}.", hint="Use a name that ends in .html or .md.")
    try:
        study = read_study(read_file(bundle, EXAMPLE), bundle.name)
    except AnswersFileError as error:
        # The sentences stand for themselves: each begins with its file and line.
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None
    with show_progress() as progress:
        sections = sections_of(study, seed=seed, progress=progress)
    title = title_of(study)
    written: dict[Path, bytes] = {}
    if path.suffix == ".html":
        written[path] = as_html(title, sections).encode()
    else:

        def file_of(figure: Figure) -> str:
            return f"{path.stem}-{figure.name}.svg"

        written[path] = as_markdown(title, sections, file_of).encode()
        for section in sections:
            written |= {path.with_name(file_of(figure)): figure.svg for figure in section.figures}
    write_files(written)
    print("Written: " + ", ".join(str(file) for file in written))
