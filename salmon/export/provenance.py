"""What made the data of an export, so that somebody else can tell: versions, seeds, targets, models, changes."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from salmon import __version__
from salmon.export.responses import moment
from salmon.export.table import Row, Table
from salmon.spec import Manifest, Spec, TargetSpec

#: Libraries whose version changes what a model comes out as.
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "dask")


@dataclass(frozen=True)
class RevisionRecord:
    """One revision of the experiment: `spec` as it is stored, with every default."""

    number: int
    created_ms: int
    spec: str
    app_version: str = ""

    @property
    def config_hash(self) -> str:
        """Names the description: the beginning of the SHA-256 of its text."""
        return sha256(self.spec.encode()).hexdigest()[:16]


def provenance(
    *,
    slug: str,
    spec: Spec,
    targets: Sequence[TargetSpec],
    manifest: Manifest | None,
    revisions: Sequence[RevisionRecord],
    models: tuple[Table, Iterable[Row]],
    exported_ms: int,
    as_of: str,
    filters: Mapping[str, str],
    commit: str | None,
) -> dict[str, Any]:
    """The content of provenance.json."""
    table, rows = models
    return {
        "experiment": slug,
        "exported": moment(exported_ms),
        "as_of": {"response_id": as_of, "meaning": "the last answer that the export saw"},
        "filters": dict(filters),
        "salmon": {"version": __version__, "commit": commit},
        "python": platform.python_version(),
        "libraries": {name: found for name in _LIBRARIES if (found := _version(name))},
        "seed": spec.seed,
        "config_hash": revisions[-1].config_hash,
        "revisions": [
            {
                "revision": revision.number,
                "stored": moment(revision.created_ms),
                "config_hash": revision.config_hash,
                "app_version": revision.app_version,
            }
            for revision in revisions
        ],
        "samplers": {
            name: {
                "class": sampler.sampler_class,
                "probability_percent": spec.probabilities[name],
                "test": sampler.test,
                "arguments": sampler.model_dump(mode="json")["arguments"],
            }
            for name, sampler in spec.samplers.items()
        },
        "targets": [
            asdict(manifest.entries[target.index])
            if manifest is not None
            else {"index": target.index, "name": target.filename, "kind": target.kind}
            for target in targets
        ],
        "models": [dict(zip(table.names, row, strict=True)) for row in rows],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
