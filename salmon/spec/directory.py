"""What the directory of a ZIP says before anything is unpacked: which members are targets, and which cannot be taken."""

from __future__ import annotations

import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from salmon.errors import Problem
from salmon.spec.media_kinds import EXTENSIONS, extension_of
from salmon.spec.suggestions import listed, shown

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


@dataclass(frozen=True)
class Member:
    """A file of the ZIP that becomes a target, or the CSV that holds them; `name` is without its folders."""

    info: zipfile.ZipInfo
    name: str
    extension: str  # as it is stored; `csv` for the list of targets


def members(infos: Iterable[zipfile.ZipInfo], problems: list[Problem]) -> tuple[Member, ...]:
    """The members that become targets, in the order of their index; what is wrong with any goes to `problems`."""
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
            problems.append(_refused(info.filename, *refusal))
        elif not _is_skipped(path):
            refusal = _refusal(info, path)
            if refusal:
                problems.append(_refused(path, *refusal))
            else:
                name = path.rpartition("/")[2]
                found.append(Member(info, name, extension_of(name) or "csv"))
    problems += _same_names(found)
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
    return tuple(sorted(found, key=_order))


def _order(member: Member) -> tuple[bool, int, str]:
    """Numbers first, by value; then names, by code point."""
    stem = member.name.split(".", 1)[0]
    is_number = stem.isascii() and stem.isdigit()
    return not is_number, int(stem) if is_number else 0, member.name


def _path(info: zipfile.ZipInfo) -> tuple[str, tuple[str, str] | None]:
    """The member's path with / between folders, and why it cannot be taken."""
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
        return name, ("leads out of the ZIP by ..", "Make the ZIP from inside the folder.")
    return name, None


def _is_skipped(path: str) -> bool:
    """Folders and what operating systems leave behind."""
    hidden = path.startswith((".", "__MACOSX/")) or "/." in path
    return hidden or path.endswith("/") or path.rpartition("/")[2].lower() in _SYSTEM_FILES


def _refusal(info: zipfile.ZipInfo, path: str) -> tuple[str, str] | None:
    """Why a member cannot be taken (what it does, what to do), or None."""
    name = path.rpartition("/")[2]
    is_csv = name.lower().endswith(".csv")
    most_bytes = MAX_CSV_BYTES if is_csv else MAX_MEMBER_BYTES
    refusals = (
        (len(name) > 200, "has a name of more than 200 characters", "Give it a shorter one."),
        (stat.S_ISLNK(info.external_attr >> 16), "is a link to another file", "Put the file itself into the ZIP."),
        (bool(info.flag_bits & _ENCRYPTED_FLAG), "is encrypted", "Make the ZIP without a password."),
        (
            info.compress_type not in _METHODS,
            "is packed by an unusual method",
            "Make the ZIP with the usual one (deflate).",
        ),
        (name.lower().endswith(".zip"), "is a ZIP inside the ZIP", "Put its files directly into the outer one."),
        (
            not is_csv and extension_of(name) is None,
            "is no kind of file that pages can show",
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
    """Members that share their bytes unpack to far more than the file holds."""
    ordered = sorted(infos, key=lambda info: info.header_offset)
    for before, after in pairwise(ordered):
        if before.header_offset + before.compress_size > after.header_offset:
            yield _refused(after.filename, "shares its bytes with another member", "Make the ZIP anew.")
            return


def _same_names(found: list[Member]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    folded: dict[str, str] = {}
    for member in found:
        path = member.info.filename
        if member.name in first:
            yield _refused(
                path, f"has the same name as {shown(first[member.name])}; folders do not tell them apart", "Rename one."
            )
        elif member.name.casefold() in folded:
            other = shown(folded[member.name.casefold()])
            yield _refused(
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
        message = f"The ZIP holds the list of targets {shown(lists[0])} and {len(found) - 1:,} other files."
        yield Problem(message, path=lists[0], hint="Keep either the list or the files.")


def _refused(path: str, what: str, todo: str, *, warning: bool = False) -> Problem:
    return Problem(f"{shown(path)} {what}.", path=path, hint=todo, warning=warning)
