"""Read the map from which a fit may start: an embedding's table, a report of a fit, a console's result, or a bundle."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError

#: The table of a bundle that holds the published maps.
MEMBER = "embeddings.csv"
_LARGEST_MEMBER = 1_000_000_000
_HINT = (
    "Give the embeddings.csv of a bundle, the bundle itself, an embedding.csv or -report.json of salmon fit, or the JSON"
    " of a request."
)


@dataclass(frozen=True)
class PublishedMap:
    """A map of targets, by the indices that files of answers give them, and where it comes from.

    `coordinates` (k, d) belong to `targets` (k,). `labels` (k,) are readable names, or empty where the file has none.
    """

    targets: tuple[int, ...]
    coordinates: NDArray[np.float64]
    source: str = ""
    labels: tuple[str, ...] = ()

    def rows_of(self, ids: Sequence[int], labels: Sequence[str]) -> NDArray[np.float64]:
        """Return the coordinates (n, d) of the targets of a table of answers; NaN for those that are not on the map.

        Targets are matched by their labels where both sides have unique ones, and by their indices otherwise.
        """
        rows = np.full((len(ids), self.coordinates.shape[1]), np.nan)
        by_label = bool(self.labels) and all(len(set(names)) == len(names) for names in (self.labels, labels))
        known = {name: row for row, name in enumerate(self.labels if by_label else self.targets)}
        for place, name in enumerate(labels if by_label else ids):
            if name in known:
                rows[place] = self.coordinates[known[name]]
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return plain values, which `read_published` reads back to the last digit."""
        named = {"labels": list(self.labels)} if self.labels else {}
        coordinates = self.coordinates.tolist()
        return {"source": self.source, "targets": list(self.targets), **named, "coordinates": coordinates}


def read_published(content: bytes, name: str) -> PublishedMap:
    """Return the map in a file; of several samplers' maps in a table the one that was fitted to most answers."""
    try:
        if content.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                found = published_in(archive, name)
            if found is None:
                raise SalmonError(f"{name} holds no published map.", hint=_HINT)
            return found
        text = content.decode("utf-8-sig")
        if text.lstrip().startswith("{"):
            return _of_json(json.loads(text), name)
        return _of_table(text, name)
    except (UnicodeDecodeError, csv.Error, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise SalmonError(f"{name} cannot be read as a map to start from.", hint=_HINT) from error


def published_in(archive: zipfile.ZipFile, name: str) -> PublishedMap | None:
    """Return the published map of an open bundle; None where it has none."""
    member = next((item for item in archive.infolist() if item.filename == MEMBER), None)
    if member is None or member.file_size > _LARGEST_MEMBER:
        return None
    text = archive.read(member).decode("utf-8-sig")
    return _of_table(text, name) if len(text.splitlines()) > 1 else None


def _of_table(text: str, name: str) -> PublishedMap:
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if not rows or "target_id" not in rows[0]:
        raise SalmonError(f"{name} has no column target_id with targets below it.", hint=_HINT)
    samplers = dict.fromkeys(row.get("sampler") or "" for row in rows)
    answers = {
        sampler: max(_answers(row) for row in rows if (row.get("sampler") or "") == sampler) for sampler in samplers
    }
    sampler = max(samplers, key=lambda one: answers[one])
    own = [row for row in rows if (row.get("sampler") or "") == sampler]
    prefix = "dim_" if "dim_0" in own[0] else ""
    axes = [f"{prefix}{axis}" for axis in range(len(own[0])) if own[0].get(f"{prefix}{axis}")]
    generation = own[0].get("generation")
    source = f"{sampler}, generation {generation}" if sampler and generation else sampler or name
    return _checked(
        [int(row["target_id"]) for row in own],
        [[float(row[axis]) for axis in axes] for row in own],
        source,
        name,
        [row["target"] for row in own] if "target" in own[0] else [],
    )


def _answers(row: Mapping[str, str]) -> int:
    return int(row.get("answers") or 0)


def _of_json(content: Any, name: str) -> PublishedMap:
    """Return the start in a report of `salmon fit`, or in the result of a request."""
    result: Any = content.get("result") or content
    start: Any = result.get("start")
    if not isinstance(start, dict):
        raise SalmonError(f"{name} holds no map that a fit has started from.", hint=_HINT)
    known = cast("dict[str, Any]", start)
    coordinates = known["coordinates"]
    targets = known.get("targets") or range(len(coordinates))
    return _checked(list(targets), coordinates, str(known.get("source", name)), name, known.get("labels") or [])


def _checked(
    targets: Sequence[int], coordinates: Sequence[Sequence[float]], source: str, name: str, labels: Sequence[str]
) -> PublishedMap:
    values = np.array(coordinates, dtype=np.float64)
    if values.ndim != 2 or not values.size or len(values) != len(targets) or not np.isfinite(values).all():
        raise SalmonError(f"{name} has targets without a position.", hint="Give finite coordinates of every target.")
    if len(set(targets)) != len(targets):
        raise SalmonError(f"{name} names a target twice.", hint="Give one row a target.")
    return PublishedMap(tuple(targets), values, source, tuple(labels))
