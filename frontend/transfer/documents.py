"""Exports that are no tables: the description, the provenance, the data dictionary and two scripts of an analysis."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from frontend.transfer.orders import EXTENSIONS
from frontend.transfer.source import ExportSource
from frontend.transfer.tables import pages_of, table_of
from salmon.export import Row, Table, moment
from salmon.export.notebooks import notebook, r_script
from salmon.export.readme import provenance, readme
from salmon.spec import dump_spec

#: Tables of a bundle with the forms in which it holds them; analyses read CSV, large tables come in all forms.
BUNDLED: dict[str, tuple[str, ...]] = {
    "responses": ("csv", "jsonl", "parquet"),
    "participants": ("csv",),
    "platform_ids": ("csv",),
    "quality": ("csv",),
    "events": ("csv",),
    "targets": ("csv",),
    "models": ("csv",),
    "embeddings": ("csv",),
    "embedding_history": ("csv",),
    "triplettools_triplets": ("csv",),
    "triplettools_embeddings": ("csv",),
}


async def document_of(source: ExportSource, name: str, extension: str) -> bytes:
    """Return the content of a document."""
    return (await _MAKERS[name, extension](source)).encode()


async def _config(source: ExportSource) -> str:
    """Return the description without completion codes: whoever has them can be paid without having answered."""
    return dump_spec(source.experiment.spec, secrets=False)


async def _provenance(source: ExportSource) -> str:
    table, pages = await pages_of(source, "models")
    rows: list[Row] = [row async for page in pages for row in page]
    experiment = source.experiment
    content = provenance(
        slug=experiment.state.slug,
        spec=experiment.spec,
        targets=experiment.targets,
        manifest=source.experiment.manifest,
        revisions=await source.revisions(),
        models=(table, rows),
        exported_ms=source.context.now_ms(),
        as_of=source.until,
        filters=source.order.filters,
        commit=_commit(),
    )
    content["changes"] = [
        entry for _, entry in await source.context.store.experiments.read_change_entries(experiment.id)
    ]
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


async def _readme(source: ExportSource) -> str:
    tables: list[tuple[Table, tuple[str, ...]]] = []
    bundled = source.order.name == "bundle"
    names = BUNDLED if bundled else {name: ends for name, ends in EXTENSIONS.items() if "csv" in ends}
    for name, ends in names.items():
        if name == "platform_ids" and not source.order.personal:
            continue
        tables.append((await table_of(source, name), ends))
    return readme(
        title=source.experiment.spec.title,
        slug=source.experiment.state.slug,
        exported=moment(source.context.now_ms()),
        tables=tables,
        whole=source.order.personal,
    )


async def _notebook(source: ExportSource) -> str:
    return notebook(source.experiment.state.slug)


async def _r_script(source: ExportSource) -> str:
    return r_script(source.experiment.state.slug)


def _commit() -> str | None:
    """Return the commit of a checkout; None where the program was installed without one."""
    git = Path(__file__).parents[2] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None


_MAKERS: dict[tuple[str, str], Callable[[ExportSource], Awaitable[str]]] = {
    ("config", "yaml"): _config,
    ("provenance", "json"): _provenance,
    ("README", "md"): _readme,
    ("analysis", "ipynb"): _notebook,
    ("analysis", "R"): _r_script,
}
