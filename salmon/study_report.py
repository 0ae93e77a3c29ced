"""Write the report of a study: one HTML file without outside parts, or Markdown with its figures beside it.

A report is made of a bundle (`salmon export`), or of a file of answers alone, in which case it says less. It holds
design, participants, accuracy and how it grew, the choice of dimension and noise model, the map, a paragraph for the
section on methods with its citations, and versions and seeds. No moment of writing is in it: the same file gives the
same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import Any

import numpy as np

from salmon import __version__
from salmon.answer_files.answer_table import AnswerTable, read_bytes
from salmon.answer_files.published_map import MEMBER, PublishedMap, published_in
from salmon.errors import SalmonError, listed
from salmon.estimator.cross_validation import Interval, cross_validate
from salmon.estimator.methods import bibliography, methods_paragraph
from salmon.estimator.race import judge, race_of
from salmon.estimator.report import FitOptions, FitReport, Progress, analyse, choice_as_text, silent
from salmon.export.curve_drawing import DrawnCurve, draw_curves
from salmon.export.map_drawing import draw_map, figure_bytes
from salmon.spec import Spec, parse_spec

#: Dimensions that are compared.
DIMENSIONS = (1, 2, 3, 4)
#: The numbers of answers at which accuracy is measured, and the folds of each measurement and of the comparison.
_POINTS, _FOLDS = 8, 5
_LARGEST_MEMBER = 1_000_000_000
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "h1{font-size:1.7rem}h2{font-size:1.2rem;margin-top:2rem}table{border-collapse:collapse;font-size:.9rem}"
    "th,td{text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid #ddd;vertical-align:top}"
    "figure{margin:1rem 0}figure svg,figure img{max-width:100%;height:auto}figcaption{font-size:.85rem;color:#555}"
    "pre{white-space:pre-wrap;background:#f5f5f5;padding:.7rem;font-size:.8rem}.scroll{overflow-x:auto}"
)


@dataclass(frozen=True)
class StudyFiles:
    """What a report is made of: answers, and what a bundle holds beside them. Rows are as they stand in its tables.

    `start` is the map that was shown when the bundle was made.
    """

    name: str
    sha256: str
    answers: AnswerTable
    rows: tuple[Mapping[str, str], ...]
    participants: tuple[Mapping[str, str], ...] = ()
    spec: Spec | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pictures: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    start: PublishedMap | None = None


@dataclass(frozen=True)
class Figure:
    """A figure with its caption, the words for those who cannot see it, and its SVG."""

    name: str
    caption: str
    alt: str
    svg: bytes


@dataclass(frozen=True)
class Section:
    """A part of the report. `table` has a head and rows; `verbatim` is text whose lines stay as they are."""

    title: str
    paragraphs: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    figures: tuple[Figure, ...] = ()
    verbatim: str = ""


def read_study(content: bytes, name: str) -> StudyFiles:
    """Return what a bundle or a file of answers holds."""
    digest = hashlib.sha256(content).hexdigest()
    if not content.startswith(b"PK"):
        return StudyFiles(name, digest, read_bytes(content, name=name), ())
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read_bundle(archive, content, name, digest)
    except zipfile.BadZipFile as error:
        raise SalmonError(f"{name} is no ZIP that can be read.", hint="Download the bundle again.") from error


def _read_bundle(archive: zipfile.ZipFile, content: bytes, name: str, digest: str) -> StudyFiles:
    members = {item.filename: item for item in archive.infolist()}

    def member(wanted: str) -> bytes:
        item = members.get(wanted)
        if item is not None and item.file_size > _LARGEST_MEMBER:
            raise SalmonError(f"{wanted} in {name} is too large for a report ({item.file_size:,} bytes).")
        return archive.read(item) if item is not None else b""

    responses = member("responses.csv")
    if not responses:
        return StudyFiles(name, digest, read_bytes(content, name=name), ())
    answers = read_bytes(responses, name=f"responses.csv in {name}")
    config, noted = member("config.yaml"), member("provenance.json")
    provenance: dict[str, Any] = json.loads(noted) if noted else {}
    media: dict[int, str] = {
        int(target["index"]): f"media/{target['sha256']}.{target['extension']}"
        for target in provenance.get("targets", ())
        if target.get("kind") == "image" and target.get("sha256")
    }
    pictures = {place: picture for place, index in enumerate(answers.ids) if (picture := member(media.get(index, "")))}
    spec = parse_spec(config, name=f"config.yaml in {name}", zip_follows=True, stored=True).spec if config else None
    return StudyFiles(
        name,
        digest,
        answers,
        tuple(_rows(responses)),
        tuple(_rows(member("participants.csv"))),
        spec,
        provenance,
        pictures,
        published_in(archive, f"{MEMBER} in {name}"),
    )


def _rows(table: bytes) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(table.decode("utf-8"), newline=""))


def sections_of(study: StudyFiles, *, seed: int = 0, progress: Progress = silent) -> list[Section]:
    """Fit and judge the answers; return the parts of the report."""
    options = FitOptions(dimensions=DIMENSIONS, noise="choose", folds=_FOLDS, seed=seed)
    report = analyse(study.answers, options, progress, start=study.start)
    curve = learning_curve(study.answers, report, seed, progress)
    methods = methods_paragraph(report)
    parts = [
        _summary(study, report),
        _design(study),
        _participants(study),
        _accuracy(report, curve),
        _choice(report),
        _race(study, seed, progress),
        _map(study, report),
        Section("Methods", (methods,), verbatim=bibliography(methods)),
        _provenance(study, report),
    ]
    return [part for part in parts if part.paragraphs or part.table or part.figures or part.verbatim]


def learning_curve(
    answers: AnswerTable, report: FitReport, seed: int = 0, progress: Progress = silent
) -> list[tuple[int, Interval]]:
    """Return (answers, accuracy): the first answers alone, judged by cross-validation as all of them are."""
    rows, random = answers.triplets[~answers.test], answers.random[~answers.test]
    n, d = report.coordinates.shape
    points = sorted({round(size) for size in np.geomspace(min(2 * n, len(rows)), len(rows), _POINTS)})
    curve: list[tuple[int, Interval]] = []
    for done, size in enumerate(points):
        progress("measuring how accuracy grew", len(points), done)
        found = cross_validate(
            rows[:size], random[:size], n, d, report.noise, ridge=report.ridge, folds=_FOLDS, seed=seed
        )
        if found is not None:
            curve.append((size, found.accuracy))
    progress("measuring how accuracy grew", len(points), len(points))
    return curve


def _summary(study: StudyFiles, report: FitReport) -> Section:
    n, d = report.coordinates.shape
    people = len(set(study.answers.participants)) if any(study.answers.participants) else 0
    first = (
        f"{report.answers:,} answers{f' of {people:,} participants' if people else ''} about {n} targets are fitted by an"
        f" embedding in {d} dimension{'s' if d > 1 else ''}."
    )
    sentences = [first]
    if report.held_out is not None:
        sentences.append(f"It predicts {_percent(report.held_out)} of new answers to random queries.")
    if report.ceiling is not None:
        sentences.append(f"At most {_percent(report.ceiling.ceiling)} can be predicted.")
    return Section("Summary", (" ".join(sentences),))


def _design(study: StudyFiles) -> Section:
    if study.spec is None:
        return Section("Design")
    spec = study.spec
    samplers = [f"{name} ({one.sampler_class}) {spec.probabilities[name]} %" for name, one in spec.samplers.items()]
    trials = spec.html.max_queries
    rows: list[tuple[str, ...]] = [
        ("part", "setting"),
        ("title", spec.html.title),
        ("targets", str(study.answers.n)),
        ("trials of a participant", str(trials) if trials > 0 else "any number"),
        ("queries are chosen by", listed(samplers, "and")),
        ("seed", str(spec.seed)),
    ]
    checks = spec.checks
    shown = [
        f"{name} {share:.0%}" for name, share in (("catch trials", checks.catch), ("repeats", checks.repeat)) if share
    ]
    shown += [f"{checks.shared} shared queries"] if checks.shared else []
    if spec.sampling.race:
        rows.append(("held out to compare samplers", f"{spec.sampling.race:.0%} of the trials"))
    rows.append(("checks", listed(shown, "and") if shown else "none"))
    rows += [
        ("recruited through", str(spec.recruitment.platform)),
        ("consent", "asked for" if spec.consent else "none"),
    ]
    return Section("Design", table=tuple(rows))


def _participants(study: StudyFiles) -> Section:
    people = study.participants
    if not people:
        return Section("Participants")
    statuses = Counter(person.get("status", "") or "unknown" for person in people)
    left_out = [person for person in people if person.get("keep") == "false"]
    answered = [person for person in people if person.get("answers", "0") not in {"", "0"}]
    rows: list[tuple[str, ...]] = [("figure", "value")]
    rows += [(f"status {status}", f"{count:,}") for status, count in sorted(statuses.items())]
    rows.append(("answered at least once", f"{len(answered):,}"))
    times = [float(person["median_rt_ms"]) for person in answered if person.get("median_rt_ms")]
    if times:
        rows.append(("median response time, median over participants", f"{median(times) / 1000:.2f} s"))
    rows.append(("left out of all analyses", f"{len(left_out):,}"))
    reasons = Counter(person.get("note") or person.get("reasons") or "no reason was noted" for person in left_out)
    paragraphs = tuple(f"Left out ({count}): {reason}" for reason, count in sorted(reasons.items()))
    return Section("Participants", paragraphs, tuple(rows))


def _accuracy(report: FitReport, curve: Sequence[tuple[int, Interval]]) -> Section:
    if report.held_out is None or not curve:
        return Section(
            "Accuracy", ("Too few queries were chosen at random to say how accurate the embedding is on new answers.",)
        )
    lines = [("noise ceiling", report.ceiling.ceiling.value)] if report.ceiling is not None else []
    places, found = [size for size, _ in curve], [interval for _, interval in curve]
    drawn = draw_curves(
        [
            DrawnCurve(
                "held-out accuracy",
                places,
                [one.value for one in found],
                [one.low for one in found],
                [one.high for one in found],
            )
        ],
        quantity="held-out accuracy",
        lines=lines,
    )
    caption = (
        "Held-out accuracy of embeddings of the first answers alone, with its 95 % interval."
        " Cross-validation, with all answers about the same three targets held out together."
    )
    alt = f"Accuracy rises from {found[0].value:.0%} after {places[0]:,} answers to {found[-1].value:.0%} after {places[-1]:,}."
    text = f"Held-out accuracy after all answers: {_percent(report.held_out)}; log-loss {report.held_out_log_loss:.3f} nats."
    return Section("Accuracy", (text,), figures=(Figure("accuracy", caption, alt, figure_bytes(drawn, "svg")),))


def _choice(report: FitReport) -> Section:
    if report.choice is None:
        return Section("Dimension and noise model")
    return Section("Dimension and noise model", (report.choice.reason,), verbatim=choice_as_text(report))


def _race(study: StudyFiles, seed: int, progress: Progress) -> Section:
    """Return where the race between samplers ended; nothing where none was run."""
    spec = study.spec
    if spec is None or not spec.sampling.race or not study.answers.held_out.any():
        return Section("Sampler race")
    dimensions = {name: one.arguments.get("d", spec.sampling.common.get("d", 2)) for name, one in spec.samplers.items()}
    known = {name: d for name, d in dimensions.items() if isinstance(d, int)}
    found = judge(race_of(study.answers, tuple(spec.samplers), known, seed), progress)
    explained = (
        f"Each participant met one sampler. Of the answers, {found.held_out:,} were to random queries that were held out; {found.judged:,} of"
        f" them were predicted by maps of equally many answers to each sampler's queries, {found.learned:,} at the end. The intervals hold at"
        " every look at the race together."
    )
    rows = [
        ("sampler", "answers", "held-out accuracy"),
        *(
            (name, f"{answers:,}", f"{accuracy:.1%}" if found.judged else "–")
            for name, answers, accuracy in zip(found.names, found.answers, found.accuracy, strict=True)
        ),
    ]
    return Section("Sampler race", (*(lead.sentence for lead in found.leads), explained), table=tuple(rows))


def _map(study: StudyFiles, report: FitReport) -> Section:
    n, d = report.coordinates.shape
    if d == 1:
        shown = np.column_stack([report.coordinates, np.zeros(n)])
        covariance = None
    else:
        shown, covariance = report.coordinates, report.covariance
    drawn = draw_map(shown, study.answers.labels, pictures=study.pictures, covariance=covariance)
    ellipses = "" if covariance is None else " Ellipses hold each position with 68 %."
    caption = f"The embedding: similar targets are close. Axes are equal, and only distances have a meaning.{ellipses}"
    return Section("Map", figures=(Figure("map", caption, f"A map of {n} targets.", drawn.content("svg")),))


def _provenance(study: StudyFiles, report: FitReport) -> Section:
    noted = study.provenance
    rows: list[tuple[str, ...]] = [
        ("part", "value"),
        ("file", study.name),
        ("SHA-256 of the file", study.sha256),
        ("report made by", f"Salmon {__version__}"),
        ("seed of folds and starts", str(report.options.seed)),
    ]
    if report.start is not None:
        rows.append(("the fit starts also from", f"the published map of {report.start.source} ({MEMBER})"))
    if noted:
        made = noted.get("salmon", {})
        rows += [
            ("experiment", str(noted.get("experiment", ""))),
            ("exported", str(noted.get("exported", ""))),
            ("exported by", f"Salmon {made.get('version', '')}"),
            ("configuration", str(noted.get("config_hash", ""))),
            ("revisions", str(len(noted.get("revisions", ())))),
            ("libraries", listed([f"{name} {version}" for name, version in noted.get("libraries", {}).items()], "and")),
        ]
    notes = tuple(f"Note: {note}" for note in report.notes)
    return Section("Provenance", notes, tuple(rows))


def as_html(title: str, sections: Sequence[Section]) -> str:
    """Return the report as one HTML page that needs nothing else."""
    body = "\n".join(_html_of(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _html_of(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    if section.table:
        head, *rows = section.table
        cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        lines = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(
            f'<div class="scroll"><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table></div>'
        )
    for figure in section.figures:
        # As an image: nothing that a drawing holds can act or clash with another.
        address = "data:image/svg+xml;base64," + base64.b64encode(figure.svg).decode()
        parts.append(
            f'<figure>\n<img alt="{escape(figure.alt)}" src="{address}">\n<figcaption>{escape(figure.caption)}'
            f' <a download="{escape(figure.name)}.svg" href="{address}">SVG</a></figcaption>\n</figure>'
        )
    if section.verbatim:
        parts.append(f"<pre>{escape(section.verbatim.rstrip())}</pre>")
    return "\n".join((*parts, "</section>"))


def as_markdown(title: str, sections: Sequence[Section], file_of: Callable[[Figure], str]) -> str:
    """Return the report as Markdown; `file_of` names the file of a figure."""
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += section.paragraphs
        if section.table:
            head, *rows = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in section.table)
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            parts.append("\n".join(["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *lines]))
        parts += [f"![{figure.alt}]({file_of(figure)})\n\n*{figure.caption}*" for figure in section.figures]
        if section.verbatim:
            parts.append(f"```\n{section.verbatim.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def title_of(study: StudyFiles) -> str:
    """Return the title of the report."""
    name = str(study.provenance.get("experiment", "")) or study.name
    return f"{study.spec.html.title} ({name})" if study.spec is not None else f"Answers of {name}"


def _percent(found: Interval) -> str:
    return f"{100 * found.value:.1f} % (95 %: {100 * found.low:.1f} to {100 * found.high:.1f} %)"
