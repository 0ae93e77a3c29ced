"""Files behind targets, each kept under the hash of its content wherever fsspec can reach; and uploads on disk.

A file is written under a temporary name and renamed when it is complete, so there is never half a file under a final
name; a file that exists already is kept as it is. If the process is killed between the two, the temporary file stays
behind, and the first upload after a day removes it. If the disk is full nothing is kept and the upload is refused.

The methods of `MediaStore` block: callers in the event loop run them in a thread.
"""

import asyncio
import errno
import os
import re
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import fsspec.implementations.local
from fastapi import UploadFile

from salmon.errors import StoreError
from salmon.spec import Manifest, Sink, read_archive

_MEDIUM = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_INCOMING = ".incoming-"
_STALE_SECONDS = 86_400


class MediaStore:
    """Store of the media of all experiments, at a local path or any other location of fsspec (`s3://bucket/media`)."""

    def __init__(self, location: str, *, clock: Callable[[], float] = time.time) -> None:
        filesystem, root = fsspec.core.url_to_fs(location)
        self._filesystem: Any = filesystem
        self._root: str = root.rstrip("/")
        self._clock = clock

    def unpack(self, archive_path: str | os.PathLike[str], *, trusted: bool = False) -> Manifest:
        """Store every target of a ZIP; MediaError lists what is wrong with it, and then nothing is stored."""
        try:
            self._filesystem.makedirs(self._root, exist_ok=True)
            self._remove_stale()
            manifest = read_archive(Path(archive_path), trusted=trusted, begin=self._begin)
            self._settle()
        except OSError as error:
            self._refuse_if_full(error)
            raise
        return manifest

    def keep(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a medium whose content was checked against its name; one that is there already stays."""
        if self._filesystem.exists(self._place(name)):
            return
        self._filesystem.makedirs(self._root, exist_ok=True)
        incoming = self._begin()
        try:
            for piece in pieces:
                incoming.write(piece)
            incoming.finish()
            incoming.keep(name)
            self._settle()
        except OSError as error:
            self._refuse_if_full(error)
            raise
        finally:
            incoming.discard()

    def open(self, name: str) -> BinaryIO:
        """Return the bytes of a medium; FileNotFoundError if there is none of this name."""
        return self._filesystem.open(self._place(name), "rb")

    def path(self, name: str) -> Path | None:
        """Return where a medium lies on this machine; None if media are kept elsewhere. FileNotFoundError if there is
        none.
        """
        place = self._place(name)
        if not self._is_local:
            return None
        if not Path(place).is_file():
            raise FileNotFoundError(name)
        return Path(place)

    def _refuse_if_full(self, error: OSError) -> None:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreError(
                "There is not enough disk space for the files of the ZIP; none of them was stored.",
                hint="Free some disk space and upload the ZIP again.",
                where=self._root,
            ) from error

    @property
    def _is_local(self) -> bool:
        return isinstance(self._filesystem, fsspec.implementations.local.LocalFileSystem)

    def _place(self, name: str) -> str:
        if not _MEDIUM.fullmatch(name):
            raise FileNotFoundError(name)
        return f"{self._root}/{name}"

    def _begin(self) -> Sink:
        return _Incoming(self._filesystem, self._root, is_local=self._is_local)

    def _settle(self) -> None:
        """Sync the directory, so that new names are as durable as the files."""
        if self._is_local:
            directory = os.open(self._root, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _remove_stale(self) -> None:
        """Remove old temporary files of uploads that were killed; young ones may still be written."""
        if self._is_local:
            for left in Path(self._root).glob(f"{_INCOMING}*"):
                if left.stat().st_mtime < self._clock() - _STALE_SECONDS:
                    left.unlink(missing_ok=True)


class _Incoming:
    """A file that is being written into the store."""

    def __init__(self, filesystem: Any, root: str, *, is_local: bool) -> None:
        self._filesystem = filesystem
        self._root = root
        self._is_local = is_local
        self._temporary = f"{root}/{_INCOMING}{uuid.uuid4().hex}"
        self._file: Any = filesystem.open(self._temporary, "wb")

    def write(self, piece: bytes, /) -> object:
        """Write the next bytes."""
        return self._file.write(piece)

    def finish(self) -> None:
        """Sync and close the file; thousands of files are not kept open until the last one is read."""
        if self._file is not None:
            if self._is_local:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def keep(self, name: str) -> None:
        """Give the file its name, unless the same content is there already."""
        place = f"{self._root}/{name}"
        if not self._filesystem.exists(place):
            if self._is_local:
                Path(self._temporary).replace(place)
            else:
                self._filesystem.mv(self._temporary, place)

    def discard(self) -> None:
        """Remove the temporary file if it was not kept."""
        if self._file is not None:
            with suppress(OSError):  # closing writes what is buffered, and the disk may be full
                self._file.close()
            self._file = None
        if self._filesystem.exists(self._temporary):
            self._filesystem.rm(self._temporary)


_PIECE = 1 << 20


@asynccontextmanager
async def spool_upload(upload: UploadFile | None) -> AsyncGenerator[Path | None]:
    """Yield an upload as a file, copied piece by piece; None where nothing was uploaded."""
    if upload is None or not upload.filename:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="salmon-upload-", suffix=".zip") as file:
        while piece := await upload.read(_PIECE):
            await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(file.flush)
        yield Path(file.name)
