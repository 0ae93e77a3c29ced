"""Implement `salmon fit`, which turns a file of answers into an embedding, a report and a map."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from salmon.errors import SalmonError

if TYPE_CHECKING:
    from salmon.answer_files.answer_table import AnswerTable
    from salmon.estimator.report import FitReport, Progress
    from salmon.learning.features import Features
    from salmon.spec.feature_file import FeatureTable

#: Dimensions compared by `--cv` where `--dim` is not given.
COMPARED_DIMENSIONS = (1, 2, 3, 4, 5)
_DEFAULT_DIMENSION = 2
#: Larger files of a ZIP are no pictures for a map.
_LARGEST_PICTURE = 50_000_000

EXAMPLE = "Example: salmon fit responses.csv -o embedding.csv --cv"


def fit(
    responses: Annotated[Path, typer.Argument(help="The answers: CSV, JSON or JSON lines, plain, .gz or .zip.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write the embedding to.")] = Path(
        "embedding.csv"
    ),
    dim: Annotated[int | None, typer.Option("--dim", "-d", min=1, help="Dimensions; 2 unless --cv chooses.")] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="PowerTSTE with a learned exponent (unless --cv chooses), TSTE, STE, CKL, GNMDS, SOE or Logistic."
        ),
    ] = None,
    lapse: Annotated[
        float | None, typer.Option(min=0, max=0.49, help="Lapse rate: the share of answers given at random.")
    ] = None,
    cv: Annotated[
        bool, typer.Option("--cv", help="Choose dimension and noise model together on held-out answers.")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="Folds of cross-validation.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of cross-validation, each on new folds.")] = 1,
    random: Annotated[
        list[str] | None, typer.Option(help="A sampler whose queries were random; may be repeated.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(help="A sampler whose answers are only used for evaluation; may be repeated.")
    ] = None,
    ridge: Annotated[float, typer.Option(min=0, help="Penalty on large coordinates.")] = 0.03,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and starts.")] = 0,
    figure: Annotated[
        list[Path] | None,
        typer.Option(help="A file for the map: .svg, .pdf or .png; may be repeated. Without it, PNG and SVG."),
    ] = None,
    width_mm: Annotated[
        float, typer.Option("--width", min=30, max=1000, help="Width of the map in mm: 85 fits one column, 174 two.")
    ] = 174,
    targets: Annotated[Path | None, typer.Option(help="The ZIP of the targets: the map shows their pictures.")] = None,
    features: Annotated[
        Path | None, typer.Option(help="What is known about the targets: .csv, .npy or .parquet with one row a target.")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="The map that the console showed, one more start of the fit: a bundle or its embeddings.csv, the JSON of a"
            " request, or the embedding.csv or -report.json of an earlier fit."
        ),
    ] = None,
    uncertainty: Annotated[bool, typer.Option(help="Draw ellipses that hold each position with 68 %.")] = True,
) -> None:
    """Fit an embedding to a file of answers; write it with a report (JSON and text) and the map (PNG and SVG).

    Example: salmon fit responses.csv -o embedding.csv --cv
    """
    from salmon.answer_files.published_map import read_published
    from salmon.estimator.report import RECOMMENDED, FitOptions, analyse
    from salmon.export.map_drawing import FigureKind, draw_map, figure_kind
    from salmon.noise import noise_model

    if noise is not None:
        noise_model(noise)
    figures = figure or [_beside(output, "map.png"), _beside(output, "map.svg")]
    kinds: list[FigureKind] = [figure_kind(path) for path in figures]
    files = _read_pictures(targets) if targets is not None else {}
    table = read_table(responses)
    table = table.with_samplers(random=tuple(random or ()), test=tuple(test or ()))
    known = _features_of(table, features) if features is not None else None
    published = read_published(read_file(start), str(start)) if start is not None else None
    options = FitOptions(
        dimensions=(dim,) if dim is not None else COMPARED_DIMENSIONS if cv else (_DEFAULT_DIMENSION,),
        noise=noise or ("choose" if cv else RECOMMENDED),
        lapse=lapse,
        choose_lapse=cv and lapse is None,
        ridge=ridge,
        folds=folds,
        repeats=repeats,
        seed=seed,
    )
    with show_progress() as progress:
        report = analyse(table, options, progress, features=known, start=published)
        progress("drawing the map", 1, 0)
        drawn = draw_map(
            report.coordinates,
            table.labels,
            pictures=_pictures_of(table, files),
            covariance=report.covariance if uncertainty else None,
            width_mm=width_mm,
        )
        maps = {path: drawn.content(kind) for path, kind in zip(figures, kinds, strict=True)}
        progress("drawing the map", 1, 1)
    written = {
        output: embedding_csv(report, table).encode(),
        _beside(output, "report.json"): (json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n").encode(),
        _beside(output, "report.txt"): report.as_text().encode(),
        **maps,
    }
    write_files(written)
    print(report.as_text(), end="")
    print("Written: " + ", ".join(str(path) for path in written))


def embedding_csv(report: FitReport, table: AnswerTable) -> str:
    """Return one row a target: the columns of the first Salmon, the label, and the coordinates under names valid in R.

    `sd_k` is the standard deviation of the position along axis k.
    """
    n, d = report.coordinates.shape
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    axes = [str(axis) for axis in range(d)]
    writer.writerow(
        ["target_html", "target_id", "alg", *axes, "target", *(f"dim_{axis}" for axis in axes)]
        + [f"sd_{axis}" for axis in axes]
    )
    name = type(report.noise).__name__
    for target in range(n):
        place = [repr(float(value)) for value in report.coordinates[target]]
        spread = [f"{max(0.0, report.covariance[target, axis, axis]) ** 0.5:.6g}" for axis in range(d)]
        writer.writerow([table.html[target], table.ids[target], name, *place, table.labels[target], *place, *spread])
    return stream.getvalue()


def read_file(path: Path, example: str = EXAMPLE) -> bytes:
    """Return the content of a file of answers; an error shows how the command is called."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = "is a folder" if path.is_dir() else "does not exist" if not path.exists() else "cannot be read"
        raise SalmonError(f"{path} {reason}.", hint=f"Give the file with the answers. {example}") from error


def read_table(path: Path, example: str = EXAMPLE) -> AnswerTable:
    """Return the answers of a file; where some cannot be read, print a sentence for each and end the command."""
    from salmon.answer_files.answer_table import read_bytes
    from salmon.answer_files.rows import AnswersFileError

    try:
        return read_bytes(read_file(path, example), name=str(path))
    except AnswersFileError as error:
        # The sentences stand for themselves: each begins with its file and line.
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None


def with_ending(output: Path, ending: str) -> Path:
    """Return the name of a file that begins as the option --output says."""
    return output.with_name(output.name + ending)


def _read_pictures(archive: Path) -> dict[str, bytes]:
    """Return the files of a ZIP of targets (or a bundle) by their names without folders."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_file(archive))) as opened:
            members = [item for item in opened.infolist() if not item.is_dir() and item.file_size <= _LARGEST_PICTURE]
            return {Path(item.filename).name: opened.read(item) for item in members}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise SalmonError(f"{archive} is no ZIP that can be read.", hint="Give the ZIP of the targets.") from error


def _names_of(label: str, html: str) -> list[str]:
    """Return the names that a target may have in other files: its label, and the files that its HTML shows."""
    shown = [Path(part).name for part in re.findall(r"""src=["']?([^"'\s>]+)""", html)]
    return [label, *shown, *(Path(name).stem for name in [label, *shown])]


def _pictures_of(table: AnswerTable, files: dict[str, bytes]) -> dict[int, bytes]:
    """Return the picture of each target whose label, or the address in its HTML, is the name of a file."""
    found: dict[int, bytes] = {}
    for target, (label, html) in enumerate(zip(table.labels, table.html, strict=True)):
        stems = {Path(name).stem: name for name in files}
        names = [
            label,
            stems.get(label, ""),
            *(Path(part).name for part in re.findall(r"""src=["']?([^"'\s>]+)""", html)),
        ]
        name = next((name for name in names if name in files), None)
        if name is not None:
            found[target] = files[name]
    return found


def _features_of(table: AnswerTable, path: Path) -> Features:
    """Return the features of the table's targets, matched by their names or else by their
    numbers in the file of answers.
    """
    from salmon.learning.features import Features
    from salmon.spec.feature_file import missing_rows, read_features, rows_of_targets

    content = read_file(path)
    known = read_parquet(content) if path.suffix.lower() == ".parquet" else read_features(content, path.name)
    problems = list(known.problems)
    rows: list[tuple[float, ...] | None] = []
    if not problems and not known.names and len(known.rows) > max(table.ids):
        rows = [known.rows[number] for number in table.ids]
    elif not problems:
        names = [_names_of(label, html) for label, html in zip(table.labels, table.html, strict=True)]
        rows = rows_of_targets(known, names, path.name, problems, others=True)
        missing = [label for label, row in zip(table.labels, rows, strict=True) if row is None]
        if missing and not problems:
            problems.append(missing_rows(missing))
    if problems:
        print("\n".join(problem.sentence(str(path)) for problem in problems), file=sys.stderr)
        raise typer.Exit(1)
    return Features.of([row or () for row in rows])


def read_parquet(content: bytes) -> FeatureTable:
    """Return the rows of a Parquet file; a first column of text names the targets."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SalmonError(
            "Reading Parquet needs pyarrow, which is not installed.", hint="Install it, or save the features as CSV."
        ) from error
    from salmon.spec.feature_file import FeatureTable

    try:
        table = pq.read_table(pa.BufferReader(content))  # pyright: ignore[reportUnknownMemberType]
        columns = table.to_pydict()
        named = [name for name in list(columns)[:1] if all(isinstance(value, str) for value in columns[name])]
        numbers = [list(map(float, values)) for name, values in columns.items() if name not in named]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SalmonError(
            f"The Parquet file cannot be read as a table of numbers: {error}.",
            hint="Write one row a target, one column a feature, and at most a first column with the targets' names.",
        ) from error
    return FeatureTable(tuple(zip(*numbers, strict=True)), tuple(columns[named[0]]) if named else ())


def write_files(files: dict[Path, bytes]) -> None:
    """Write files, and the folders they are to be in."""
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise SalmonError(
                f"{path} cannot be written ({error.strerror}).", hint="Choose another file with --output."
            ) from error


def _beside(output: Path, ending: str) -> Path:
    """Return the path beside another: embedding.csv → embedding-report.json."""
    return output.with_name(f"{output.stem}-{ending}")


@contextmanager
def show_progress() -> Generator[Progress]:
    """Yield a function that moves a progress bar on standard error, one line a task; nothing is shown elsewhere than on
    a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as bar:
        tasks = {}

        def progress(what: str, total: int, done: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield progress
