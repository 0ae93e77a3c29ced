"""Document an export: the README of a bundle (what each file and column means) and its provenance.

The provenance says what made the data, for whoever wants to reproduce it: versions, seeds, targets, models, changes.
"""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from salmon import __version__
from salmon.export.responses import RevisionRecord, moment
from salmon.export.table import KINDS, Row, Table
from salmon.spec import Manifest, Spec, TargetSpec

_FILES = (
    ("config.yaml", "the description of the experiment with every default written out, without completion codes"),
    ("provenance.json", "how these data were produced: versions, seeds, targets, every model, changes during the run"),
    ("analysis.ipynb", "a notebook that reads these files with plain Python and draws the map"),
    ("analysis.R", "the same first steps in R, without any package"),
    ("media/", "the files of the targets; targets.csv lists their names"),
)
_MACHINE = (
    ("manifest.json", "the format of this bundle, and the SHA-256 of every other file"),
    ("machine/", "the exact contents of the store, for `salmon import`"),
)


def readme(
    *,
    title: str,
    slug: str,
    exported: str,
    tables: Sequence[tuple[Table, Sequence[str]]],
    whole: bool,
    problems: Sequence[str] = (),
) -> str:
    """Return Markdown with every file and every column; each table comes with its extensions.

    `problems` are sentences about files of targets that are not in the bundle.
    """
    lines = [
        f"# {' '.join(title.split())}",
        "",
        f"Data of the experiment `{slug}`, exported from Salmon on {exported}.",
        "",
        "Text files are UTF-8. Unknown values are empty cells in CSV, and null in JSON lines and Parquet. Targets are",
        "numbered from 0 as in `targets.csv`. The name of a column ends with the unit of its durations (`_ms`, `_s`). Times",
        "are in UTC. Rows of excluded participants are marked, not removed, unless you chose to leave them out.",
        "",
        *(
            [
                "`salmon import` restores the experiment from this file, also on another machine.",
                "",
            ]
            if whole
            else [
                "Platform ids are left out, and so are the parts that `salmon import` needs.",
                "",
            ]
        ),
        *(
            ["**Some files of targets are not in `media/`:**", "", *(f"- {each}" for each in problems), ""]
            if problems
            else ()
        ),
        "| file | what |",
        "|---|---|",
        *(f"| `{name}` | {what} |" for name, what in (*_FILES, *(_MACHINE if whole else ()))),
        *(
            f"| {', '.join(f'`{table.name}.{end}`' for end in ends)} | one row is {table.row} |"
            for table, ends in tables
        ),
    ]
    for table, _ in tables:
        lines += [
            "",
            f"## {table.name}",
            "",
            f"One row is {table.row}.",
            "",
            "| column | kind | meaning |",
            "|---|---|---|",
        ]
        lines += [f"| `{column.name}` | {KINDS[column.kind]} | {column.meaning} |" for column in table.columns]
    return "\n".join(lines) + "\n"


#: Libraries whose version changes what a model comes out as.
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "dask")


def provenance(
    *,
    slug: str,
    spec: Spec,
    targets: Sequence[TargetSpec],
    manifest: Manifest | None,
    revisions: Mapping[int, RevisionRecord],
    models: tuple[Table, Iterable[Row]],
    exported_ms: int,
    as_of: str,
    filters: Mapping[str, str],
    commit: str | None,
) -> dict[str, Any]:
    """Return the content of provenance.json."""
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
        "config_hash": revisions[max(revisions)].config_hash,
        "revisions": [
            {
                "revision": number,
                "stored": moment(revision.created_ms),
                "config_hash": revision.config_hash,
                "app_version": revision.app_version,
            }
            for number, revision in revisions.items()
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
