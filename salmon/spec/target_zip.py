"""Read a ZIP of targets once from end to end, checking, numbering and hashing its files.

The directory of the ZIP decides which members are targets and which cannot be taken; nothing is unpacked before that.
Then each file is compared with its name, and the size of pictures is read from their first bytes (0, 0 if unknown).
Reading has no effect but that: a caller that wants to keep the contents passes `begin`, which returns a Sink for each
file. Nothing is kept unless everything is right.
"""

import csv
import hashlib
import io
import lzma
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from salmon.errors import MediaError, Problem, listed, shown
from salmon.spec.decoding import try_picture
from salmon.spec.feature_file import (
    FEATURE_FILES,
    MAX_FEATURE_BYTES,
    encode_row,
    read_features,
    rows_of_targets,
)
from salmon.spec.manifest import Manifest, ManifestEntry, text_kind
from salmon.spec.media_files import (
    EXTENSIONS,
    HEAD_BYTES,
    KIND_OF,
    detect_extension,
    extension_fits,
    extension_of,
    picture_size,
)
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
    """Raised when the bytes of a member do not unpack to what the directory says."""


@dataclass(frozen=True)
class Member:
    """A file of the ZIP that becomes a target, the CSV that holds them, or their features;
    `name` is without its folders.
    """

    info: zipfile.ZipInfo
    name: str
    extension: str  # as it is stored; `csv` for the list of targets, `features` for their features


class Sink(Protocol):
    """Receives the bytes of one file, which is then kept under a name or discarded."""

    def write(self, piece: bytes, /) -> object:
        """Add the next bytes."""
        ...

    def finish(self) -> None:
        """Note that all bytes were written."""
        ...

    def keep(self, name: str) -> None:
        """Keep what was written, under this name."""
        ...

    def discard(self) -> None:
        """Remove what was written; harmless after `keep`."""
        ...


class _NoSink:
    """A Sink for callers that only check."""

    def write(self, piece: bytes, /) -> object:
        return len(piece)

    def finish(self) -> None:
        pass

    def keep(self, name: str) -> None:
        del name

    def discard(self) -> None:
        pass


def read_archive(path: Path, *, trusted: bool = False, begin: Callable[[], Sink] = _NoSink) -> Manifest:
    """Return the manifest of a ZIP; MediaError lists everything that is wrong with it, and then nothing is kept.

    `trusted` allows SVG that runs scripts or refers to other places.
    """
    problems: list[Problem] = []
    sinks: list[tuple[Sink, str]] = []
    try:
        entries = _entries(path, trusted, begin, sinks, problems)
        if any(not problem.warning for problem in problems):
            raise MediaError(tuple(problems), name=path.name)
        for sink, name in sinks:
            sink.keep(name)
    finally:
        for sink, _ in sinks:
            sink.discard()
    return Manifest(entries, warnings=tuple(problems))


def check_archive(path: Path, *, trusted: bool = False) -> tuple[Manifest | None, tuple[Problem, ...]]:
    """Return the manifest, if there can be one, and everything wrong or worth knowing; nothing is kept."""
    try:
        manifest = read_archive(path, trusted=trusted)
    except MediaError as error:
        return None, error.problems
    return manifest, manifest.warnings


def _entries(
    path: Path, trusted: bool, begin: Callable[[], Sink], sinks: list[tuple[Sink, str]], problems: list[Problem]
) -> tuple[ManifestEntry, ...]:
    if refusal := _refusal(path):
        problems.append(refusal)
        return ()
    try:
        archive = zipfile.ZipFile(path)
    except _BROKEN:
        problems.append(
            Problem("The file is not a ZIP, or it is damaged.", hint="Create it again and upload it again.")
        )
        return ()
    found: list[ManifestEntry] = []
    features: Member | None = None
    with archive:
        for index, member in enumerate(members(archive.infolist(), problems)):
            if member.extension == _FEATURES:
                features = member
            elif member.extension == "csv":
                found += _rows(archive, member, problems)
            else:
                sink = begin()
                sinks.append((sink, ""))
                entry = _file(archive, member, index, trusted, sink, problems)
                sink.finish()
                if entry is not None:
                    sinks[-1] = (sink, entry.media)
                    found.append(entry)
        if features is not None and not any(not problem.warning for problem in problems):
            return tuple(_with_features(archive, features, found, problems))
    return tuple(found)


def _with_features(
    archive: zipfile.ZipFile, member: Member, entries: list[ManifestEntry], problems: list[Problem]
) -> Iterator[ManifestEntry]:
    """Yield the entries with their rows of the file of features; those without a row stay as they are."""
    try:
        table = read_features(b"".join(_pieces(archive, member)), member.name)
    except _DamagedError:
        problems.append(_damage_problem(member))
        return
    problems += [replace(problem, path=member.name) for problem in table.problems]
    if table.problems:
        return
    names = [(entry.name, entry.name.rpartition(".")[0]) if entry.media else (entry.name,) for entry in entries]
    for entry, row in zip(entries, rows_of_targets(table, names, member.name, problems), strict=True):
        yield entry if row is None else replace(entry, features=encode_row(row))


def _refusal(path: Path) -> Problem | None:
    """Return what can be refused before the directory is read, because the directory is read as a whole."""
    size_bytes = path.stat().st_size
    if size_bytes > MAX_ARCHIVE_BYTES:
        return Problem(
            f"The ZIP has {size_bytes / 1e9:,.1f} GB.", hint=f"At most {MAX_ARCHIVE_BYTES / 1e9:.0f} GB are possible."
        )
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - 65_557))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    is_zip64 = end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07"
    directory_bytes = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    if is_zip64:
        return Problem(
            "The ZIP uses the ZIP64 format, which is meant for more than 65,535 files or 4 GB.",
            hint="Create it again with fewer files; write texts into one CSV file.",
        )
    if directory_bytes > _MAX_DIRECTORY_BYTES:
        return Problem(
            "The ZIP's directory is too large: it lists more files than an experiment can have targets.",
            hint="Write texts into one CSV file.",
        )
    return None


def _file(
    archive: zipfile.ZipFile, member: Member, index: int, trusted: bool, sink: Sink, problems: list[Problem]
) -> ManifestEntry | None:
    """Copy one member to its sink; return None if it cannot be taken."""
    digest = hashlib.sha256()
    svg = SvgReader() if member.extension == "svg" else None
    kind = KIND_OF[member.extension]
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
        problems.append(_damage_problem(member))
        return None
    if svg is not None:
        findings = svg.findings() if not trusted else svg.damage()
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
    if kind == "image" and svg is None and not _is_shown(archive, member, problems):
        return None
    return ManifestEntry(
        index,
        member.name,
        kind,
        digest.hexdigest(),
        size_bytes,
        member.extension,
        width_px,
        height_px,
    )


def _is_shown(archive: zipfile.ZipFile, member: Member, problems: list[Problem]) -> bool:
    """Whether a browser can show a picture, as far as can be told; one that is too large to be tried is a warning."""
    found = try_picture(member.extension, lambda: archive.open(member.info))
    if found == "too large":
        what = "has so many pixels that it was not tried and that phones may not show it"
        problems.append(
            _member_problem(member.name, what, "Save it smaller: two megapixels fill a screen.", warning=True)
        )
    elif found == "damaged":
        what = f"is damaged: it begins as {member.extension} files do, but cannot be decoded to its end, so participants would see a part of it or nothing"
        problems.append(
            _member_problem(member.name, what, "Save it again with a program that shows it, or leave it out.")
        )
    return found != "damaged"


def _pieces(archive: zipfile.ZipFile, member: Member) -> Iterator[bytes]:
    """Yield the unpacked bytes, never more than the directory says."""
    try:
        with archive.open(member.info) as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except _BROKEN as error:
        raise _DamagedError from error


def _damage_problem(member: Member) -> Problem:
    return Problem(
        f"{shown(member.name)} is damaged in the ZIP.",
        path=member.name,
        hint="Create the ZIP again and upload it again.",
    )


def _wrong_content(member: Member, head: bytes, problems: list[Problem]) -> bool:
    """Whether the first bytes contradict the name."""
    told = detect_extension(head)
    if extension_fits(member.extension, told):
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
    """Read each row of the CSV as one target. Words such as NA and null are targets like any other."""
    content = b""
    try:
        content = b"".join(_pieces(archive, member))
        text = content.decode("utf-8-sig")
    except _DamagedError:
        problems.append(_damage_problem(member))
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
                problems.append(
                    Problem(
                        f"{shown(member.name)} has {len(row)} columns on line {reader.line_num}; a list of targets has one.",
                        reader.line_num,
                        path=member.name,
                        hint="Put quotes around text that contains commas.",
                    )
                )
            elif row:
                encoded = row[0].encode()
                yield ManifestEntry(
                    index, row[0], text_kind(row[0]), hashlib.sha256(encoded).hexdigest(), len(encoded), html=row[0]
                )
                index += 1
    except csv.Error as error:
        message = f"{shown(member.name)} cannot be read on line {reader.line_num}: {error}."
        problems.append(Problem(message, reader.line_num, path=member.name, hint="Save it again as CSV UTF-8."))
    if not index and not any(problem.path == member.name for problem in problems):
        problems.append(
            Problem(f"{shown(member.name)} holds no targets.", path=member.name, hint="Write one in each line.")
        )


#: What stands for an extension where a file holds features.
_FEATURES = "features"
MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 500_000_000
MAX_TOTAL_BYTES = 4_000_000_000
MAX_CSV_BYTES = 5_000_000
#: A white picture of 10 MB packs 1,000 to 1, so small files may; large ones that do are made to fill a disk.
MAX_RATIO = 200
_RATIO_COUNTS_FROM_BYTES = 20_000_000

_UTF_8_FLAG = 0x800
_ENCRYPTED_FLAG = 0x1
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA})
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})


def members(infos: Iterable[zipfile.ZipInfo], problems: list[Problem]) -> tuple[Member, ...]:
    """Return the members that become targets, in the order of their index, and then the
    file of features, if there is one.

    What is wrong is added to `problems`.
    """
    infos = list(infos)
    if len(infos) > MAX_MEMBERS:
        problems.append(
            Problem(
                f"The ZIP holds {len(infos):,} files; {MAX_MEMBERS:,} are possible.",
                hint="Write texts into one CSV file.",
            )
        )
        return ()
    problems += _overlaps(infos)
    found: list[Member] = []
    for info in infos:
        path, refusal = _path(info)
        if refusal:
            problems.append(_member_problem(info.filename, *refusal))
        elif not _is_skipped(path):
            refusal = _member_refusal(info, path)
            if refusal:
                problems.append(_member_problem(path, *refusal))
            else:
                name = path.rpartition("/")[2]
                found.append(Member(info, name, _extension(name)))
    problems += _same_names(found)
    features = [member for member in found if member.extension == _FEATURES]
    found = [member for member in found if member.extension != _FEATURES]
    if len(features) > 1:
        names = listed((member.name for member in features), "and")
        problems.append(Problem(f"The ZIP holds {names}.", path=features[1].name, hint="Keep one file of features."))
    problems += _mixture(found)
    total_bytes = sum(member.info.file_size for member in found)
    if total_bytes > MAX_TOTAL_BYTES:
        hint = f"Together they may have {MAX_TOTAL_BYTES / 1e9:.0f} GB."
        problems.append(Problem(f"The files of the ZIP have {total_bytes / 1e9:,.1f} GB.", hint=hint))
        return ()
    if not found and not problems:
        problems.append(
            Problem(
                "The ZIP holds no targets.",
                hint=f"Put pictures, videos or sounds into it ({listed(EXTENSIONS)}), or one CSV.",
            )
        )
    return (*sorted(found, key=_order), *features)


def _extension(name: str) -> str:
    return _FEATURES if name.lower() in FEATURE_FILES else extension_of(name) or "csv"


def _order(member: Member) -> tuple[bool, int, str]:
    """Sort numbers first, by value; then names, by code point."""
    stem = member.name.split(".", 1)[0]
    is_number = stem.isascii() and stem.isdigit()
    return not is_number, int(stem) if is_number else 0, member.name


def _path(info: zipfile.ZipInfo) -> tuple[str, tuple[str, str] | None]:
    """Return the member's path with / between folders, and why it cannot be taken."""
    name = info.filename
    if not info.flag_bits & _UTF_8_FLAG and not name.isascii():
        # Programs that forget the flag write UTF-8 all the same, or the alphabet of some country.
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:
            return name, ("has a name that is not UTF-8", "Rename it with plain letters and digits.")
    name = unicodedata.normalize("NFC", name.replace("\\", "/"))
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        return name, ("has a control character in its name", "Rename it.")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return name, ("has an absolute path", "Make the ZIP from inside the folder.")
    if ".." in name.split("/"):
        return name, ("points outside the ZIP with ..", "Make the ZIP from inside the folder.")
    return name, None


def _is_skipped(path: str) -> bool:
    """Whether a member is a folder, or a file that operating systems leave behind."""
    hidden = path.startswith((".", "__MACOSX/")) or "/." in path
    return hidden or path.endswith("/") or path.rpartition("/")[2].lower() in _SYSTEM_FILES


def _member_refusal(info: zipfile.ZipInfo, path: str) -> tuple[str, str] | None:
    """Return why a member cannot be taken (what is wrong, what to do), or None."""
    name = path.rpartition("/")[2]
    has_features = name.lower() in FEATURE_FILES
    is_csv = name.lower().endswith(".csv")
    most_bytes = MAX_FEATURE_BYTES if has_features else MAX_CSV_BYTES if is_csv else MAX_MEMBER_BYTES
    refusals = (
        (len(name) > 200, "has a name of more than 200 characters", "Give it a shorter one."),
        (stat.S_ISLNK(info.external_attr >> 16), "is a link to another file", "Put the file itself into the ZIP."),
        (bool(info.flag_bits & _ENCRYPTED_FLAG), "is encrypted", "Make the ZIP without a password."),
        (
            info.compress_type not in _METHODS,
            "uses an unsupported compression method",
            "Create the ZIP with deflate, the usual method.",
        ),
        (name.lower().endswith(".zip"), "is a ZIP inside the ZIP", "Put its files directly into the outer one."),
        (
            name.lower() == "features.parquet",
            "is a Parquet file, which experiments do not read",
            "Save the features as features.csv or features.npy.",
        ),
        (
            not is_csv and not has_features and extension_of(name) is None,
            "is not a file type that pages can show",
            f"Possible are {listed(EXTENSIONS)}, or one csv.",
        ),
        (info.file_size == 0, "is empty", "Remove it, or put the right file there."),
        (
            info.file_size > most_bytes,
            f"has {info.file_size / 1e6:,.0f} MB",
            f"At most {most_bytes / 1e6:,.0f} MB are possible.",
        ),
        (
            _is_bomb(info),
            "unpacks to more than 200 times its size",
            "Save it in a format that compresses, such as png or jpg.",
        ),
    )
    return next(((what, todo) for applies, what, todo in refusals if applies), None)


def _is_bomb(info: zipfile.ZipInfo) -> bool:
    return info.file_size > _RATIO_COUNTS_FROM_BYTES and info.file_size > MAX_RATIO * max(info.compress_size, 1)


def _overlaps(infos: Iterable[zipfile.ZipInfo]) -> Iterator[Problem]:
    """Find members that share their bytes, which unpack to far more than the file holds."""
    for before, after in pairwise(sorted(infos, key=lambda info: info.header_offset)):
        if before.header_offset + before.compress_size > after.header_offset:
            yield _member_problem(after.filename, "shares its bytes with another member", "Create the ZIP again.")
            return


def _same_names(found: list[Member]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    folded: dict[str, str] = {}
    for member in found:
        path = member.info.filename
        if member.name in first:
            yield _member_problem(
                path, f"has the same name as {shown(first[member.name])}; folders do not tell them apart", "Rename one."
            )
        elif member.name.casefold() in folded:
            other = shown(folded[member.name.casefold()])
            yield _member_problem(
                path, f"differs from {other} only by capital letters", "Rename one if they are the same.", warning=True
            )
        first.setdefault(member.name, path)
        folded.setdefault(member.name.casefold(), path)


def _mixture(found: list[Member]) -> Iterator[Problem]:
    lists = [member.name for member in found if member.extension == "csv"]
    if len(lists) > 1:
        yield Problem(
            f"The ZIP holds {len(lists)} CSV files: {listed(lists, 'and')}.",
            path=lists[1],
            hint="Put all targets into one.",
        )
    elif lists and len(found) > 1:
        yield Problem(
            f"The ZIP holds the list of targets {shown(lists[0])} and {len(found) - 1:,} other files.",
            path=lists[0],
            hint="Keep either the list or the files.",
        )


def _member_problem(path: str, what: str, todo: str, *, warning: bool = False) -> Problem:
    return Problem(f"{shown(path)} {what}.", path=path, hint=todo, warning=warning)
