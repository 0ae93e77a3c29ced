"""Define the tables about everything but people: targets, events of the pages, embeddings and how they were fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from salmon.export.responses import TargetNames, moment
from salmon.export.table import Column, Row, Table, columns, dimensions
from salmon.spec import Manifest, TargetSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

TARGETS = Table(
    "targets",
    "a target, by its index",
    (
        *columns("integer", target_id="the index by which answers and embeddings name the target"),
        *columns("text", filename="its file name; its text where it has no file"),
        Column("kind", "text", "text, html, image, video or audio"),
        *columns(
            "text",
            html="what the page shows",
            alt="what a screen reader says",
            media="name of the file in the folder media of a bundle",
            sha256="SHA-256 of the file or text",
        ),
        *columns("integer", bytes="size of the file", width_px="width, where it is known", height_px="height"),
    ),
)

EVENTS = Table(
    "events",
    "something that happened on a participant's page; skips are here and never among the responses",
    (
        *columns(
            "text",
            event_id="the event's place in the log: milliseconds and a number; unique",
            participant="the participant's id inside this experiment",
        ),
        *columns("integer", trial_index="the trial that was on the screen; 0 before the first"),
        *columns("written", event="what happened: blur, focus, resize, opened, skip, load_failed, ..."),
        *columns("number", client_ms="when, in milliseconds of the page's clock; -1 for events the server saw"),
        *columns("moment", received_time="when the server received it"),
        *columns("written", detail="more about it"),
    ),
)

MODELS = Table(
    "models",
    "a generation: one refit of one sampler's model",
    (
        *columns("text", sampler="name of the sampler"),
        *columns("integer", generation="number of the refit, from 1"),
        *columns("moment", published_time="when it was published"),
        *columns("integer", answers="answers it was fitted to"),
        *columns(
            "number",
            loss="the final objective, divided by the number of answers",
            accuracy="share of recent random answers that were predicted before they were learned, an average while the map grew",
            accuracy_low="lower end of its 95 % interval",
            accuracy_high="upper end",
            ceiling="noise ceiling: the highest accuracy that any embedding can reach, estimated from repeated queries",
            refit_ms="how long the refit took",
            search_ms="how long the last search took",
        ),
        *columns("truth", coordinates_kept="whether embedding_history has its coordinates"),
    ),
)


def first_embeddings_table(d: int) -> Table:
    """Return the table of each sampler's newest embedding with the columns of the first Salmon alone."""
    whole = embeddings_table(d)
    return Table("salmon_embeddings", whole.row, whole.columns[: 3 + d])


def embeddings_table(d: int) -> Table:
    """Return the table of each sampler's newest embedding.

    The columns `0`, `1`, … are the first Salmon's, `dim_0`, … the same under names valid in R.
    """
    return Table(
        "embeddings",
        "a target in one sampler's embedding",
        (
            *columns("text", target_html="what the page shows"),
            *columns("integer", target_id="index of the target"),
            *columns("text", alg="name of the sampler, in the column name of Salmon 1"),
            *dimensions([str(k) for k in range(d)], "coordinate"),
            *columns("text", target_filename="file name of the target", sampler="name of the sampler"),
            *columns("integer", generation="the refit it comes from", answers="answers it was fitted to"),
            *columns("moment", published_time="when it was published"),
            *dimensions([f"dim_{k}" for k in range(d)], "the same as column"),
        ),
    )


def embedding_history_table(d: int) -> Table:
    """Return the table of all embeddings that were kept, one below the other."""
    return Table(
        "embedding_history",
        "a target in one sampler's embedding at one generation",
        (
            *columns("text", sampler="name of the sampler"),
            *columns("integer", generation="the refit it comes from"),
            *columns("moment", published_time="when it was published"),
            *columns("integer", answers="answers it was fitted to", target_id="index of the target"),
            *columns("text", target_filename="file name of the target"),
            *dimensions([f"dim_{k}" for k in range(d)], "coordinate"),
        ),
    )


@dataclass(frozen=True)
class Generation:
    """One line of a sampler's history: its numbers as they are written, and its
    coordinates (n, d) if they were kept.
    """

    sampler: str
    numbers: Mapping[str, str]
    coordinates: NDArray[Any] | None = None

    @property
    def number(self) -> int:
        """Return which refit this was."""
        return int(float(self.numbers.get("generation", 0)))

    @property
    def answers(self) -> int:
        """Return how many answers it was fitted to."""
        return int(float(self.numbers.get("absorbed", 0)))

    @property
    def published(self) -> str | None:
        """Return when it was published."""
        published_ms = int(float(self.numbers.get("published_ms", 0)))
        return moment(published_ms) if published_ms else None


def target_rows(targets: Sequence[TargetSpec], manifest: Manifest | None) -> Iterator[Row]:
    """Return all rows of targets."""
    for target in targets:
        entry = manifest.entries[target.index] if manifest is not None else None
        yield [
            target.index,
            target.filename,
            target.kind,
            target.html,
            target.alt,
            target.media,
            entry.sha256 if entry else "",
            entry.size_bytes if entry else None,
            target.width_px or None,
            target.height_px or None,
        ]


def event_row(stream_id: str, entry: Mapping[str, str]) -> Row:
    """Return one row of events."""
    return [
        stream_id,
        entry.get("participant", ""),
        int(entry.get("trial", 0)),
        entry.get("event", ""),
        float(entry.get("client_ms", -1)),
        moment(int(entry.get("received_ms", "") or stream_id.partition("-")[0])),
        entry.get("detail", ""),
    ]


def model_row(generation: Generation, *, kept: bool) -> Row:
    """Return one row of models."""
    return [
        generation.sampler,
        generation.number,
        generation.published,
        generation.answers,
        *(
            _number(generation.numbers.get(name))
            for name in ("loss", "accuracy", "accuracy_low", "accuracy_high", "ceiling", "refit_ms", "search_ms")
        ),
        kept,
    ]


def embedding_rows(generation: Generation, targets: Sequence[TargetNames], d: int) -> Iterator[Row]:
    """Return the rows of one sampler's embedding in embeddings."""
    for index, point in _points(generation, targets, d):
        name = targets[index]
        yield [
            name.html,
            index,
            generation.sampler,
            *point,
            name.filename,
            generation.sampler,
            generation.number,
            generation.answers,
            generation.published,
            *point,
        ]


def embedding_history_rows(generation: Generation, targets: Sequence[TargetNames], d: int) -> Iterator[Row]:
    """Return the rows of one generation in embedding_history."""
    for index, point in _points(generation, targets, d):
        yield [
            generation.sampler,
            generation.number,
            generation.published,
            generation.answers,
            index,
            targets[index].filename,
            *point,
        ]


def _points(generation: Generation, targets: Sequence[TargetNames], d: int) -> Iterator[tuple[int, list[float | None]]]:
    """Yield (target, its coordinates), filled up to d columns if another sampler has more dimensions."""
    if generation.coordinates is None:
        return
    for index, point in enumerate(generation.coordinates[: len(targets)].tolist()):
        yield index, [*point, *([None] * (d - len(point)))]


def _number(text: str | None) -> float | None:
    return None if text in {None, "", "nan"} else float(str(text))
