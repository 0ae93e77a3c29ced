"""Implement `salmon plan`, which says how many answers, people, hours and how much money a study needs."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from salmon.cli.fit import show_progress
from salmon.errors import SalmonError

if TYPE_CHECKING:
    from salmon.planning import Costs, Curve, Needed, Plan, PlannedStudy

#: Rows of the printed table at the most, the last among them.
_ROWS = 9
#: Columns of the terminal that the table takes.
_WIDTH = 120


def plan(
    spec: Annotated[
        Path | None, typer.Argument(help="The experiment's YAML file; or give --targets.", exists=True, dir_okay=False)
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Argument(
            help="The ZIP of targets; by default targets.zip next to the YAML file, if it exists.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    targets: Annotated[
        int | None, typer.Option("--targets", "-n", min=4, max=2000, help="Number of targets, without a file.")
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(
            "--dim",
            "-d",
            min=1,
            max=10,
            help="Dimensions of the targets and of the embedding; by default the sampler's, or 2.",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(min=0.5, max=1.0, help="The accuracy to reach; by default two points below what is possible."),
    ] = None,
    people: Annotated[
        str,
        typer.Option(help="How well people tell distances apart: typical (measured on human answers), clear or hard."),
    ] = "typical",
    world: Annotated[str, typer.Option(help="How the targets lie: random or clusters.")] = "random",
    lapse: Annotated[float, typer.Option(min=0, max=0.9, help="Share of answers given without looking.")] = 0.0,
    answers: Annotated[int, typer.Option(min=0, help="Answers to look ahead; 0: as many as random queries need.")] = 0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds that one answer takes.")] = 3.0,
    besides: Annotated[float, typer.Option(min=0, help="Minutes for instructions and questions.")] = 3.0,
    pay: Annotated[float, typer.Option(min=0, help="Pay for an hour.")] = 0.0,
    fee: Annotated[
        float, typer.Option(min=0, max=2, help="Share of the pay that a platform adds, such as 0.33.")
    ] = 0.0,
    runs: Annotated[
        int, typer.Option(min=2, max=1000, help="Simulated studies; more make the figures more certain.")
    ] = 6,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the simulations; by default that of the file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="A file for the figure: .svg, .pdf or .png; by default plan.png.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and write a figure only if one is named.")
    ] = False,
) -> None:
    """Simulate a study before it is run: accuracy against answers, and what an accuracy
    takes in people, hours and money.

    Bands hold 80 % of studies. Random queries and the file's sampler meet the same simulated people.

    Example: salmon plan experiment.yaml --accuracy 0.76 --pay 9
    """
    from salmon.export.curve_drawing import DrawnCurve, draw_curves
    from salmon.export.map_drawing import figure_bytes, figure_kind
    from salmon.planning import as_dict, simulate

    path = figure or (None if as_json else Path("plan.png"))
    kind = figure_kind(path) if path is not None else None
    assumed: dict[str, Any] = {"people": people, "world": world, "lapse": lapse, "most": answers}
    study, costs = _read(spec, archive, targets, dim, seed, assumed, (seconds, besides, pay, fee))
    with show_progress() as progress:
        *_, found = simulate(study, runs, lambda done, total: progress("simulating studies", total, done))
    level = accuracy if accuracy is not None else found.usual_level()
    if as_json:
        print(json.dumps(as_dict(found, costs, level), indent=2))
    else:
        _print(found, costs, level)
    if path is not None and kind is not None:
        drawn = draw_curves(
            [
                DrawnCurve(name, found.answers, curve.mean, curve.low, curve.high)
                for name, curve in found.accuracy.items()
            ],
            lines=[("most that is possible", found.best_possible)],
        )
        try:
            path.write_bytes(figure_bytes(drawn, kind))
        except OSError as error:
            raise SalmonError(
                f"{path} cannot be written ({error.strerror}).", hint="Choose another file with --figure."
            ) from error
        if not as_json:
            print(f"Written: {path}")


def _read(
    path: Path | None,
    archive: Path | None,
    targets: int | None,
    dim: int | None,
    seed: int | None,
    assumed: dict[str, Any],
    of_costs: tuple[float, float, float, float],
) -> tuple[PlannedStudy, Costs]:
    """Return the study of a file or of a number of targets, and what its answers take."""
    from dataclasses import replace

    from salmon.cli.check import find_archive
    from salmon.planning import Costs, PlannedStudy, costs_of, study_of
    from salmon.spec import SamplerSpec, check_archive, parse_spec, targets_of

    seconds, besides, pay, fee = of_costs
    if path is None:
        if targets is None:
            raise SalmonError(
                "There is nothing to plan.",
                hint="Give an experiment's file, or a number of targets: salmon plan --targets 30",
            )
        sampler = SamplerSpec(name="Adaptive", sampler_class="Adaptive")
        study = PlannedStudy(targets, 2, sampler, **assumed)
        costs = Costs(seconds=seconds, besides=besides, pay=pay, fee=fee)
    else:
        archive = find_archive(path, archive)
        manifest = None
        if archive is not None:
            manifest, problems = check_archive(archive, trusted=True)
            if manifest is None:
                raise SalmonError(problems[0].sentence(archive.name), hint=f"salmon check {path} lists all mistakes.")
        spec = parse_spec(path.read_bytes(), name=path.name, manifest=manifest).spec
        study = study_of(spec, targets or len(targets_of(spec, manifest)), **assumed)
        costs = costs_of(spec, seconds=seconds, besides=besides, pay=pay, fee=fee)
    if dim is not None and study.sampler is not None:
        arguments = {**study.sampler.arguments, "d": dim}
        study = replace(study, d=dim, sampler=study.sampler.model_copy(update={"arguments": arguments}))
    return replace(study, seed=seed) if seed is not None else study, costs


def _print(plan: Plan, costs: Costs, level: float) -> None:
    from salmon.planning import texts

    console = Console(highlight=False, soft_wrap=True, width=_WIDTH)
    study = plan.study
    console.print(
        f"{study.n} targets, d = {study.d}, {study.people} people, {study.world} targets; {plan.runs} simulated studies."
        f" At most {plan.best_possible:.1%} of answers can be predicted."
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    names = list(plan.accuracy)
    for column in ("answers", *names, "neighbours", "people", "hours", *(["money"] if costs.pay else [])):
        table.add_column(column, justify="right", no_wrap=True)
    places = sorted({round(k * (len(plan.answers) - 1) / (_ROWS - 1)) for k in range(_ROWS)})
    for place in places:
        answers = plan.answers[place]
        shown = [_range(plan.accuracy[name], place) for name in names]
        neighbours = f"{plan.neighbours[names[-1]].mean[place]:.0%}"
        money = [f"{costs.money(answers):,.2f}"] if costs.pay else []
        table.add_row(
            f"{answers:,}",
            *shown,
            neighbours,
            f"{costs.participants(answers):,}",
            f"{costs.hours(answers):.1f}",
            *money,
        )
    console.print(table)
    console.print(
        "Accuracy on new answers, with the band that holds 80 % of studies; neighbours: targets whose nearest one on the map"
        f" of {names[-1]} is truly among their three nearest."
    )
    console.print(f"\nTo reach an accuracy of {level:.1%}:")
    for name in names:
        console.print(f"  {name}: {_sentence(plan.needed(name, level), plan, costs)}")
    for title, text in texts(plan, costs, level).items():
        console.print(f"\nFor the {'ethics board' if title == 'ethics' else title}:\n{text}")


def _range(curve: Curve, place: int) -> str:
    return f"{curve.mean[place]:.1%} [{curve.low[place]:.1%}, {curve.high[place]:.1%}]"


def _sentence(needed: Needed, plan: Plan, costs: Costs) -> str:
    if not isfinite(needed.middle):
        return f"not reached within {plan.answers[-1]:,} answers."
    money = f", {costs.money(needed.middle):,.2f} to pay" if costs.pay else ""
    high = f"{needed.high:,.0f}" if isfinite(needed.high) else f"more than {plan.answers[-1]:,}"
    return (
        f"about {needed.middle:,.0f} answers (80 %: {needed.low:,.0f} to {high}), {costs.participants(needed.middle)} people,"
        f" {costs.hours(needed.middle):.1f} hours{money}."
    )
