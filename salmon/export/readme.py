"""The README of a bundle: what each file is, and what each column means."""

from __future__ import annotations

from collections.abc import Sequence

from salmon.export.table import KINDS, Table

_FILES = (
    ("config.yaml", "the description of the experiment with every default written out, without completion codes"),
    ("provenance.json", "what made these data: versions, seeds, targets, every model, what changed during the run"),
    ("analysis.ipynb", "a notebook that reads these files with plain Python and draws the map"),
    ("analysis.R", "the same first steps in R, without any package"),
    ("media/", "the files of the targets, under the names in targets.csv"),
)
_MACHINE = (
    ("manifest.json", "the form of this bundle, and the SHA-256 of every other file"),
    ("machine/", "the exact contents of the store, for `salmon import`"),
)


def readme(*, title: str, slug: str, exported: str, tables: Sequence[tuple[Table, Sequence[str]]], whole: bool) -> str:
    """Markdown with every file and every column; each table comes with its extensions."""
    lines = [
        f"# {' '.join(title.split())}",
        "",
        f"Data of the experiment `{slug}`, exported from Salmon on {exported}.",
        "",
        "Text files are UTF-8. In CSV a cell is empty where nothing is known; JSON lines and Parquet have null. Targets are",
        "numbered from 0 as in `targets.csv`. Times are in the unit that a column's name ends with (`_ms`, `_s`) and moments",
        "are in UTC. Rows of participants who are left out are marked, not removed, unless you asked for it.",
        "",
        *(
            [
                "`salmon import` restores the experiment from this file, on another machine too.",
                "",
            ]
            if whole
            else [
                "Ids by which platforms know participants are left out, and so is what `salmon import` needs.",
                "",
            ]
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
