"""Write what was ordered: one table or document of an experiment, or its bundle.

Documents are the exports that are no tables: the spec, the provenance, the data dictionary and two analysis scripts.

A bundle is a ZIP of every file and, for `salmon import`, of all that the store holds of the experiment. It is written
from front to end without going back, so that it can be sent while it is made. The manifest comes last, because it has
the SHA-256 of everything before it. Media that are missing, or are not what was uploaded, are left out and named in the
manifest and the README. The contents of the store are text as JSON lines, and arrays as .npy without
pickles:

machine/state.json          the fields of the experiment's state
machine/revisions.jsonl     [number, revision]
machine/arrivals.jsonl      [platform identity, participant]
machine/participants.jsonl  [participant, fields, queries seen]
machine/answers.jsonl       [stream id, fields]; the tokens answered and all counters follow from it
machine/events.jsonl        [stream id, fields]
machine/changes.jsonl       [stream id, fields]
machine/models.jsonl        [sampler, numbers, names of arrays]
machine/history.jsonl       [sampler, stream id, numbers, names of arrays]

The arrays are machine/models/SAMPLER/NAME.npy and machine/history/SAMPLER/ID/NAME.npy.
"""

import hashlib
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import EXTENSIONS
from frontend.transfer.tables import pages_of, table_of, table_pieces
from salmon import __version__
from salmon.export import Table, moment
from salmon.export.notebooks import notebook, r_script
from salmon.export.readme import provenance, readme
from salmon.spec import dump_spec
from salmon.wire import encode_json

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
    experiment = source.experiment
    content = provenance(
        slug=experiment.state.slug,
        spec=experiment.spec,
        targets=experiment.targets,
        manifest=source.experiment.manifest,
        revisions=await source.revisions(),
        models=(table, [row async for page in pages for row in page]),
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
        problems=tuple((await source.media_problems()).values()),
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


#: Version of the format; it changes when a bundle cannot be read as before, and an import refuses newer ones.
FORMAT = 1
MANIFEST = "manifest.json"
MEDIA = "media/"
#: A bundle of more answers than this may have members above 2 GB, which need the larger form of ZIP.
_LARGE_ANSWERS = 1_000_000
_PIECE_BYTES = 1 << 20
_DOCUMENTS = (("README", "md"), ("config", "yaml"), ("provenance", "json"), ("analysis", "ipynb"), ("analysis", "R"))
Pieces = AsyncIterator[bytes]
Member = tuple[str, Callable[[], Pieces]]
FOLDER = "machine/"


class _Outlet(io.RawIOBase):
    """File of the ZIP that passes its bytes on; it cannot be rewound."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        super().__init__()
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, piece: Any, /) -> int:
        content = bytes(piece)
        self._send(content)
        return len(content)


class _Bundle:
    """A ZIP that is being written, with the hashes of what is in it."""

    def __init__(self, archive: zipfile.ZipFile, *, now_ms: int, large: bool) -> None:
        self._archive = archive
        self._date = time.gmtime(now_ms / 1000)[:6]
        self._large = large
        self.members: dict[str, dict[str, Any]] = {}

    async def add(self, name: str, pieces: AsyncIterator[bytes], *, stored: bool = False) -> None:
        """Write one member; content that is compressed already is `stored` as it is."""
        info = zipfile.ZipInfo(name, self._date)
        info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        digest, size_bytes = hashlib.sha256(), 0
        with self._archive.open(info, "w", force_zip64=self._large) as member:
            async for piece in pieces:
                digest.update(piece)
                size_bytes += len(piece)
                member.write(piece)
        self.members[name] = {"sha256": digest.hexdigest(), "bytes": size_bytes}

    def close(self, **content: Any) -> None:
        """Write the manifest."""
        info = zipfile.ZipInfo(MANIFEST, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(
            info, json.dumps({**content, "members": self.members}, ensure_ascii=False, indent=1) + "\n"
        )


async def write_bundle(source: ExportSource, send: Callable[[bytes], object]) -> None:
    """Write the whole ZIP, piece by piece."""
    experiment, context = source.experiment, source.context
    answers = await context.store.answers.count(experiment.id)
    with zipfile.ZipFile(io.BufferedWriter(_Outlet(send), _PIECE_BYTES), "w", compresslevel=1) as archive:
        bundle = _Bundle(archive, now_ms=context.now_ms(), large=answers > _LARGE_ANSWERS)
        for name, extension in _DOCUMENTS:
            await bundle.add(f"{name}.{extension}", _content(await document_of(source, name, extension)))
        for name, extensions in BUNDLED.items():
            if name == "platform_ids" and not source.order.personal:
                continue
            for extension in extensions:
                await bundle.add(f"{name}.{extension}", table_pieces(source, name, extension))
        problems = await source.media_problems()
        for medium in sorted({file.media for file in experiment.files if file.media} - problems.keys()):
            await bundle.add(MEDIA + medium, _medium(source, medium), stored=True)
        if source.order.personal:
            async for name, pieces in members_of(source):
                await bundle.add(name, pieces())
        bundle.close(
            format=FORMAT,
            salmon=__version__,
            slug=experiment.state.slug,
            exported=moment(context.now_ms()),
            as_of=source.until,
            complete=source.order.personal,
            media_problems=problems,
        )


async def members_of(source: ExportSource) -> AsyncIterator[Member]:
    """Yield (name, pieces) of each member, in an order in which an import can check them."""
    store, reader, experiment = source.context.store, source.export_reader, source.experiment.id
    yield f"{FOLDER}state.json", lambda: _once(store.experiments.read_fields(experiment))
    yield f"{FOLDER}revisions.jsonl", lambda: _pairs(store.experiments.read_revisions(experiment))
    yield f"{FOLDER}arrivals.jsonl", lambda: _arrivals(source)
    yield f"{FOLDER}participants.jsonl", lambda: _people(source)
    yield f"{FOLDER}answers.jsonl", lambda: _pages(reader.read_entries(experiment, until=source.until))
    yield f"{FOLDER}events.jsonl", lambda: _pages(reader.read_events(experiment))
    yield f"{FOLDER}changes.jsonl", lambda: _list(store.experiments.read_change_entries(experiment))
    lines: list[bytes] = []
    for sampler in source.experiment.spec.samplers:
        model = await store.models.read(experiment, sampler)
        if model is not None:
            for name, content in sorted(model.arrays.items()):
                yield f"{FOLDER}models/{sampler}/{name}.npy", lambda content=content: _content(content)
            lines.append(_line([sampler, model.numbers, sorted(model.arrays)]))
    yield f"{FOLDER}models.jsonl", lambda lines=lines: _content(b"".join(lines))
    lines = []
    for sampler in source.experiment.spec.samplers:
        async for stream_id, model in store.models.read_history(experiment, sampler):
            for name, content in sorted(model.arrays.items()):
                yield f"{FOLDER}history/{sampler}/{stream_id}/{name}.npy", lambda content=content: _content(content)
            lines.append(_line([sampler, stream_id, model.numbers, sorted(model.arrays)]))
    yield f"{FOLDER}history.jsonl", lambda lines=lines: _content(b"".join(lines))


async def _content(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _medium(source: ExportSource, name: str) -> AsyncIterator[bytes]:
    with source.context.media.open(name) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


async def _once(found: Any) -> Pieces:
    yield encode_json(await found).encode()


async def _pairs(found: Any) -> Pieces:
    yield b"".join(_line(list(pair)) for pair in (await found).items())


async def _arrivals(source: ExportSource) -> Pieces:
    """Yield the arrivals of those who are among the participants: somebody may arrive while the bundle is written."""
    people = await source.people()
    found = await source.export_reader.read_arrivals(source.experiment.id)
    yield b"".join(_line([identity, name]) for identity, name in found.items() if name in people)


async def _people(source: ExportSource) -> Pieces:
    async for page in source.export_reader.read_people_entries(source.experiment.id, list(await source.people())):
        yield b"".join(_line([name, fields, sorted(seen)]) for name, fields, seen in page)


async def _pages(pages: AsyncIterator[list[Any]]) -> Pieces:
    async for page in pages:
        yield b"".join(_line(list(entry)) for entry in page)


async def _list(entries: Any) -> Pieces:
    yield b"".join(_line(list(entry)) for entry in await entries)


def _line(value: list[Any]) -> bytes:
    return encode_json(value).encode() + b"\n"
