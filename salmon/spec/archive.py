"""A ZIP of targets, read once from end to end: its files checked against their names, numbered, hashed and handed on.

Reading is pure but for the file itself: whoever wants to keep the contents gives a `begin` that returns a Sink for each
file. Nothing is kept unless everything is right.
"""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from salmon.errors import MediaError, Problem
from salmon.spec.directory import Member, members
from salmon.spec.manifest import Manifest, ManifestEntry, text_kind
from salmon.spec.media_kinds import KIND_OF, fits, told_by_content
from salmon.spec.pictures import HEAD_BYTES, picture_size
from salmon.spec.suggestions import shown
from salmon.spec.svg import SvgReader

MAX_ARCHIVE_BYTES = 4_000_000_000
_MAX_DIRECTORY_BYTES = 20_000_000  # far more than 20,000 members need; zipfile reads it whole
_PIECE_BYTES = 1_048_576
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


class _DamagedError(Exception):
    """The bytes of a member do not unpack to what the directory says."""


class Sink(Protocol):
    """Takes the bytes of one file; then it is kept under a name, or discarded."""

    def write(self, piece: bytes, /) -> object:
        """The next bytes."""
        ...

    def finish(self) -> None:
        """There are no more bytes."""
        ...

    def keep(self, name: str) -> None:
        """Keep what was written, under this name."""
        ...

    def discard(self) -> None:
        """Forget what was written; harmless after `keep`."""
        ...


class _NoSink:
    """For those who only check."""

    def write(self, piece: bytes, /) -> object:
        return len(piece)

    def finish(self) -> None:
        pass

    def keep(self, name: str) -> None:
        del name

    def discard(self) -> None:
        pass


def read_archive(path: Path, *, trusted: bool = False, begin: Callable[[], Sink] = _NoSink) -> Manifest:
    """The manifest of a ZIP; MediaError lists everything that is wrong with it, and then nothing is kept.

    `trusted` lets SVG pass that runs scripts or refers to other places.
    """
    problems: list[Problem] = []
    sinks: list[tuple[Sink, str]] = []
    try:
        entries = tuple(_entries(path, trusted, begin, sinks, problems))
        if any(not problem.warning for problem in problems):
            raise MediaError(tuple(problems), name=path.name)
        for sink, name in sinks:
            sink.keep(name)
    finally:
        for sink, _ in sinks:
            sink.discard()
    return Manifest(entries, warnings=tuple(problems))


def check_archive(path: Path, *, trusted: bool = False) -> tuple[Manifest | None, tuple[Problem, ...]]:
    """The manifest, if there can be one, and everything wrong or worth knowing; nothing is kept."""
    try:
        manifest = read_archive(path, trusted=trusted)
    except MediaError as error:
        return None, error.problems
    return manifest, manifest.warnings


def _entries(
    path: Path, trusted: bool, begin: Callable[[], Sink], sinks: list[tuple[Sink, str]], problems: list[Problem]
) -> Iterator[ManifestEntry]:
    refusal = _refusal(path)
    if refusal:
        problems.append(refusal)
        return
    try:
        archive = zipfile.ZipFile(path)
    except _BROKEN:
        problems.append(Problem("The file is no ZIP, or it is damaged.", hint="Make it anew and upload it again."))
        return
    with archive:
        for index, member in enumerate(members(archive.infolist(), problems)):
            if member.extension == "csv":
                yield from _rows(archive, member, problems)
                continue
            sink = begin()
            sinks.append((sink, ""))
            entry = _file(archive, member, index, trusted, sink, problems)
            sink.finish()
            if entry is not None:
                sinks[-1] = (sink, entry.media)
                yield entry


def _refusal(path: Path) -> Problem | None:
    """What can be seen without reading the directory, which is read whole."""
    size_bytes = path.stat().st_size
    if size_bytes > MAX_ARCHIVE_BYTES:
        hint = f"At most {MAX_ARCHIVE_BYTES / 1e9:.0f} GB are possible."
        return Problem(f"The ZIP has {size_bytes / 1e9:,.1f} GB.", hint=hint)
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - 65_557))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    is_zip64 = end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07"
    directory_bytes = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    if is_zip64:
        message = "The ZIP is written in the form for more than 65,535 files or 4 GB (ZIP64)."
        return Problem(message, hint="Make it anew with fewer files; write texts into one CSV file.")
    if directory_bytes > _MAX_DIRECTORY_BYTES:
        message = "The ZIP's directory is made for more files than can be targets."
        return Problem(message, hint="Write texts into one CSV file.")
    return None


def _file(
    archive: zipfile.ZipFile, member: Member, index: int, trusted: bool, sink: Sink, problems: list[Problem]
) -> ManifestEntry | None:
    """One member, copied to its sink; None if it cannot be taken."""
    digest = hashlib.sha256()
    svg = SvgReader() if member.extension == "svg" else None
    head = b""
    size_bytes = 0
    try:
        for piece in _pieces(archive, member):
            head += piece[: max(0, HEAD_BYTES - len(head))]
            size_bytes += len(piece)
            if size_bytes == len(piece) and _wrong_content(member, piece, problems):
                return None
            digest.update(piece)
            sink.write(piece)
            if svg is not None:
                svg.feed(piece)
    except _DamagedError:
        problems.append(_damaged(member))
        return None
    if svg is not None and not trusted:
        findings = svg.findings()
        problems.extend(
            Problem(
                f"{shown(member.name)} {finding}.",
                path=member.name,
                hint="Save it as a plain SVG or as png; or write trusted: true under page.",
            )
            for finding in findings
        )
        if findings:
            return None
    width_px, height_px = svg.size if svg is not None else picture_size(member.extension, head)
    return ManifestEntry(
        index,
        member.name,
        KIND_OF[member.extension],
        digest.hexdigest(),
        size_bytes,
        member.extension,
        width_px,
        height_px,
    )


def _pieces(archive: zipfile.ZipFile, member: Member) -> Iterator[bytes]:
    """The unpacked bytes, never more than the directory says."""
    try:
        with archive.open(member.info) as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except _BROKEN as error:
        raise _DamagedError from error


def _damaged(member: Member) -> Problem:
    hint = "Make the ZIP anew and upload it again."
    return Problem(f"{shown(member.name)} is damaged in the ZIP.", path=member.name, hint=hint)


def _wrong_content(member: Member, head: bytes, problems: list[Problem]) -> bool:
    """Whether the first bytes contradict the name."""
    told = told_by_content(head)
    if fits(member.extension, told):
        return False
    holds = (
        "is a ZIP inside the ZIP"
        if told == "zip"
        else f"holds {told}"
        if told
        else f"does not begin as {member.extension} files do"
    )
    message = f"{shown(member.name)} {holds}, though its name ends in .{member.name.rpartition('.')[2]}."
    problems.append(Problem(message, path=member.name, hint="Save it again in the format of its name."))
    return True


def _rows(archive: zipfile.ZipFile, member: Member, problems: list[Problem]) -> Iterator[ManifestEntry]:
    """Each row of the CSV is one target. Words such as NA and null are targets like any other."""
    content = b""
    try:
        content = b"".join(_pieces(archive, member))
        text = content.decode("utf-8-sig")
    except _DamagedError:
        problems.append(_damaged(member))
        return
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problems.append(
            Problem(f"{shown(member.name)} is not UTF-8.", line, path=member.name, hint="Save it as CSV UTF-8.")
        )
        return
    reader = csv.reader(io.StringIO(text, newline=""))
    index = 0
    try:
        for row in reader:
            if len(row) > 1:
                message = (
                    f"{shown(member.name)} has {len(row)} columns in line {reader.line_num}; a list of targets has one."
                )
                hint = "Put quotes around text that contains commas."
                problems.append(Problem(message, reader.line_num, path=member.name, hint=hint))
            elif row:
                encoded = row[0].encode()
                yield ManifestEntry(
                    index, row[0], text_kind(row[0]), hashlib.sha256(encoded).hexdigest(), len(encoded), html=row[0]
                )
                index += 1
    except csv.Error as error:
        message = f"{shown(member.name)} cannot be read in line {reader.line_num}: {error}."
        problems.append(Problem(message, reader.line_num, path=member.name, hint="Save it again as CSV UTF-8."))
    if not index and not any(problem.path == member.name for problem in problems):
        problems.append(
            Problem(f"{shown(member.name)} holds no targets.", path=member.name, hint="Write one in each line.")
        )
