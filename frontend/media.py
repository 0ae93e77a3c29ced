"""Files behind targets, each kept under the hash of its content wherever fsspec can reach; and uploads on disk.

A file is written under a temporary name and renamed when it is complete, so there is never half a file under a final
name; a file that exists already is kept as it is. If the process is killed between the two, the temporary file stays
behind, and the first upload after a day removes it. If the disk is full nothing is kept and the upload is refused.

A file that was altered is not served: its content is compared with its name when it is first used, and again when its
size or time of change is another. Uploading or importing the same content again replaces it.

The methods of `MediaStore` block: callers in the event loop run them in a thread.
"""

import asyncio
import errno
import hashlib
import os
import re
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, Literal

import fsspec
import fsspec.implementations.local
from fastapi import UploadFile

from salmon.errors import SalmonError, StoreError
from salmon.spec import Manifest, Sink, TargetSpec, read_archive

_MEDIUM = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_INCOMING = ".incoming-"
_PIECE = 1 << 20
_STALE_SECONDS = 86_400
#: How often the media of an experiment that somebody watches are looked at.
LOOK_SECONDS = 20.0

#: What is wrong with a medium, if anything.
MediumProblem = Literal["", "missing", "altered"]


class MediaStore:
    """Store of the media of all experiments, at a local path or any other location of fsspec (`s3://bucket/media`)."""

    def __init__(self, location: str, *, clock: Callable[[], float] = time.time) -> None:
        # What another web process stored a moment ago must be found: no listings are remembered.
        remembered = {} if "://" not in location else {"use_listings_cache": False}
        filesystem, root = fsspec.core.url_to_fs(location, **remembered)
        self._filesystem: Any = filesystem
        self._root: str = root.rstrip("/")
        self._clock = clock
        # Name → (size and time of change of the file that was compared, what is wrong with it).
        self._compared: dict[str, tuple[tuple[Any, ...], MediumProblem]] = {}
        # Experiment → (when its media were last looked at, sentences about them).
        self._looked: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}

    def unpack(self, archive_path: str | os.PathLike[str], *, trusted: bool = False) -> Manifest:
        """Store every target of a ZIP; MediaError lists what is wrong with it, and then nothing is stored."""
        with self._reaching():
            self._filesystem.makedirs(self._root, exist_ok=True)
            self._remove_stale()
            manifest = read_archive(Path(archive_path), trusted=trusted, begin=self._begin)
            self._settle()
        return manifest

    def keep(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a medium whose content was checked against its name; one that is there
        already stays, unless it was altered.
        """
        if not self.problem(name):
            return
        with self._reaching():
            self._filesystem.makedirs(self._root, exist_ok=True)
            incoming = self._begin()
            try:
                for piece in pieces:
                    incoming.write(piece)
                incoming.finish()
                incoming.keep(name)
                self._settle()
            finally:
                incoming.discard()

    def problem(self, name: str) -> MediumProblem:
        """Return whether a medium is missing or was altered; nothing where it is as it was stored."""
        place = self._place(name)
        try:
            with self._reaching():
                mark = self._mark(place)
                known = self._compared.get(name)
                if known is None or known[0] != mark:
                    digest = hashlib.sha256()
                    with self._filesystem.open(place, "rb") as file:
                        while piece := file.read(_PIECE):
                            digest.update(piece)
                    known = mark, "" if name.startswith(digest.hexdigest()) else "altered"
                    self._compared[name] = known
        except FileNotFoundError:
            return "missing"
        return known[1]

    def _mark(self, place: str) -> tuple[Any, ...]:
        """Return what is another when a file was changed: its size and its time of change,
        or the tag of an object store.
        """
        about = self._filesystem.info(place)
        return about["size"], about.get("mtime"), about.get("ETag"), about.get("LastModified")

    def is_compared(self, name: str) -> bool:
        """Return whether a medium on this machine was compared already, and has not changed
        since: quick enough to ask anywhere.
        """
        known = self._compared.get(name)
        if known is None or not self._is_local:
            return False
        try:
            return known == (self._mark(self._place(name)), "")
        except FileNotFoundError:
            return False

    def problems(self, targets: Iterable[TargetSpec]) -> dict[str, str]:
        """Return name of the medium → sentence, for the media of targets that are missing or were altered."""
        found: dict[str, str] = {}
        for target in targets:
            if target.media and target.media not in found and (problem := self.problem(target.media)):
                what = "is missing" if problem == "missing" else "was altered"
                owner = f"target {target.index} ({target.filename})" if target.index >= 0 else target.filename
                found[target.media] = f"The file of {owner} {what}: {target.media}."
        return found

    def watch(self, experiment: str, targets: Sequence[TargetSpec]) -> tuple[str, ...]:
        """Return what was last seen to be wrong with the media of an experiment, at once; look again in a while.

        The first look takes as long as reading the files, so nobody waits for it.
        """
        at, sentences = self._looked.get(experiment, (-inf, ()))
        running = self._looks.get(experiment)
        if self._clock() - at > LOOK_SECONDS and (running is None or running.done()):

            async def look() -> None:
                with suppress(OSError, StoreError):  # where media are kept is away: it is asked again
                    found = await asyncio.to_thread(self.problems, targets)
                    self._looked[experiment] = self._clock(), tuple(found.values())

            self._looks[experiment] = asyncio.create_task(look())
        return sentences

    def open(self, name: str) -> BinaryIO:
        """Return the bytes of a medium; FileNotFoundError if there is none of this name."""
        with self._reaching():
            return self._filesystem.open(self._place(name), "rb")

    def size(self, name: str) -> int:
        """Return how many bytes a medium has; FileNotFoundError if there is none of this name."""
        with self._reaching():
            return int(self._filesystem.info(self._place(name))["size"])

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of a medium from `start` up to `end` in pieces."""
        with self.open(name) as file:
            file.seek(start)
            while start < end and (piece := file.read(min(_PIECE, end - start))):
                start += len(piece)
                yield piece

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

    @contextmanager
    def _reaching(self) -> Generator[None]:
        """Turn a disk that is full, and storage elsewhere that cannot be used, into a StoreError."""
        try:
            yield
        except (SalmonError, FileNotFoundError):
            raise
        except Exception as error:  # each implementation of fsspec has errors of its own
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise StoreError(
                    "There is not enough disk space for the files of the ZIP; none of them was stored.",
                    hint="Free some disk space and upload the ZIP again.",
                    where=self._root,
                ) from error
            if self._is_local:
                raise
            raise StoreError(
                f"The storage of media cannot be used ({type(error).__name__}: {error}).",
                hint="Check SALMON_DATA and the login for it, and try again.",
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
        return _Incoming(self._filesystem, self._root, self.problem, is_local=self._is_local)

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

    def __init__(self, filesystem: Any, root: str, problem: Callable[[str], MediumProblem], *, is_local: bool) -> None:
        self._problem = problem
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
        if self._problem(name):
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
