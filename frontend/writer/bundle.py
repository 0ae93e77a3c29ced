"""The bundle: every file of an experiment and, for `salmon import`, all that the store holds of it, as one ZIP.

It is written from front to end without going back, so that it can be sent while it is made. The manifest comes last,
because it has the SHA-256 of everything before it.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from typing import IO, Any

from frontend.writer import machine
from frontend.writer.collection import Collection
from frontend.writer.documents import BUNDLED, document_of
from frontend.writer.tables import pages_of
from salmon import __version__
from salmon.export import FILES, moment

#: Changes when a bundle cannot be read as before; import refuses what is newer than it knows.
FORMAT = 1
MANIFEST = "manifest.json"
MEDIA = "media/"

#: A bundle of more answers than this may have members above 2 GB, which need the larger form of ZIP.
_LARGE_ANSWERS = 1_000_000
_PIECE_BYTES = 1 << 20
_DOCUMENTS = (("README", "md"), ("config", "yaml"), ("provenance", "json"), ("analysis", "ipynb"), ("analysis", "R"))


class _Outlet(io.RawIOBase):
    """Where the bytes of the ZIP go; it cannot go back."""

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
        """One member; what is compressed already is `stored` as it is."""
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
        """The manifest, and the end."""
        info = zipfile.ZipInfo(MANIFEST, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED
        text = json.dumps({**content, "members": self.members}, ensure_ascii=False, indent=1)
        self._archive.writestr(info, text + "\n")


async def write_bundle(collection: Collection, send: Callable[[bytes], object]) -> None:
    """The whole ZIP, piece by piece."""
    experiment, context = collection.experiment, collection.context
    answers = await context.store.answers.count(experiment.id)
    with zipfile.ZipFile(_outlet(send), "w", allowZip64=True, compresslevel=1) as archive:
        bundle = _Bundle(archive, now_ms=context.now_ms(), large=answers > _LARGE_ANSWERS)
        for name, extension in _DOCUMENTS:
            await bundle.add(f"{name}.{extension}", _content(await document_of(collection, name, extension)))
        for name, extensions in BUNDLED.items():
            if name == "platform_ids" and not collection.order.personal:
                continue
            for extension in extensions:
                await bundle.add(f"{name}.{extension}", table_pieces(collection, name, extension))
        for medium in sorted({target.media for target in experiment.targets if target.media}):
            await bundle.add(MEDIA + medium, _medium(collection, medium), stored=True)
        if collection.order.personal:
            async for name, pieces in machine.members_of(collection):
                await bundle.add(name, pieces())
        bundle.close(
            format=FORMAT,
            salmon=__version__,
            slug=experiment.state.slug,
            exported=moment(context.now_ms()),
            as_of=collection.until,
            complete=collection.order.personal,
        )


async def table_pieces(collection: Collection, name: str, extension: str) -> AsyncIterator[bytes]:
    """The bytes of a table as a file."""
    table, pages = await pages_of(collection, name)
    file = FILES[extension](table)
    yield file.begin()
    async for rows in pages:
        yield file.rows(rows)
    yield file.end()


def _outlet(send: Callable[[bytes], object]) -> IO[bytes]:
    return io.BufferedWriter(_Outlet(send), _PIECE_BYTES)


async def _content(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _medium(collection: Collection, name: str) -> AsyncIterator[bytes]:
    with collection.context.media.open(name) as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
