"""Implement `salmon choose`, which compares dimensions and noise models on answers that no fit has seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from salmon.cli.fit import COMPARED_DIMENSIONS, read_table, show_progress, with_ending, write_files
from salmon.errors import SalmonError

if TYPE_CHECKING:
    from salmon.estimator.cross_validation import Pair, Selection
    from salmon.export.curve_drawing import DrawnCurve

EXAMPLE = "Example: salmon choose responses.csv"


def choose(
    responses: Annotated[Path, typer.Argument(help="The answers: CSV, JSON or JSON lines, plain, .gz or .zip.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="How the files begin that are written, such as results/choice.")
    ] = Path("choice"),
    dim: Annotated[
        list[int] | None,
        typer.Option("--dim", "-d", min=1, help="A number of dimensions; may be repeated. 1 to 5 without it."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="Compare dimensions with this noise model only; all are compared without it.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of cross-validation.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of cross-validation, each on new folds.")] = 1,
    random: Annotated[
        list[str] | None, typer.Option(help="A sampler whose queries were random; may be repeated.")
    ] = None,
    all_answers: Annotated[
        bool, typer.Option("--all", help="Judge on all answers, where the file does not say which queries were random.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and starts.")] = 0,
) -> None:
    """Choose the number of dimensions and the noise model of an embedding, both at once, on held-out answers.

    Prints a table with the reason, and writes it with a figure, a paragraph for the
    section on methods and its citations.

    Example: salmon choose responses.csv
    """
    from salmon.estimator.methods import bibliography, methods_paragraph
    from salmon.estimator.report import FitOptions, analyse, choice_as_json, choice_as_text
    from salmon.export.curve_drawing import draw_curves
    from salmon.export.map_drawing import figure_bytes

    table = read_table(responses, EXAMPLE)
    table = table.with_samplers(random=table.samplers if all_answers else tuple(random or ()))
    options = FitOptions(
        dimensions=tuple(dim or COMPARED_DIMENSIONS),
        noise=noise or "choose",
        folds=folds,
        repeats=repeats,
        seed=seed,
    )
    with show_progress() as progress:
        report = analyse(table, options, progress)
    if report.choice is None:
        raise SalmonError(
            "Nothing can be compared: fewer than two candidates, or no answers that are known to be random.",
            hint="Name more dimensions with --dim; name samplers whose queries were random with --random, or judge on --all.",
        )
    methods = methods_paragraph(report)
    text = choice_as_text(report)
    if all_answers:
        text += (
            "All answers were judged, whoever chose their queries: queries that a sampler chose are harder to predict, so accuracy"
            " on new answers may be higher. Their order is what counts.\n"
        )
    ceiling = [("noise ceiling", report.ceiling.ceiling.value)] if report.ceiling else []
    drawn = draw_curves(
        curves_of(report.choice), against="dimensions", quantity="held-out accuracy", lines=ceiling, marks=True
    )
    written = {
        with_ending(output, ".txt"): text.encode(),
        with_ending(output, ".json"): (
            json.dumps(choice_as_json(report.choice), indent=2, ensure_ascii=False) + "\n"
        ).encode(),
        with_ending(output, "-methods.md"): (methods + "\n").encode(),
        with_ending(output, ".bib"): bibliography(methods).encode(),
        with_ending(output, ".svg"): figure_bytes(drawn, "svg"),
        with_ending(output, ".png"): figure_bytes(drawn, "png"),
    }
    write_files(written)
    print(text + "\nFor the section on methods:\n" + methods)
    print("\nWritten: " + ", ".join(str(path) for path in written))


def curves_of(choice: Selection[Pair]) -> list[DrawnCurve]:
    """Return the accuracy of each noise model against dimensions, with its 95 % interval."""
    from salmon.export.curve_drawing import DrawnCurve

    curves: list[DrawnCurve] = []
    for name in dict.fromkeys(pair[1] for pair in choice.accuracy):
        own = sorted((pair[0], found) for pair, found in choice.accuracy.items() if pair[1] == name)
        dimensions, found = [d for d, _ in own], [interval for _, interval in own]
        curves.append(
            DrawnCurve(
                name,
                dimensions,
                [one.value for one in found],
                [one.low for one in found],
                [one.high for one in found],
            )
        )
    return curves
