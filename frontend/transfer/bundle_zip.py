"""The ZIP of a bundle: opened only if it can be one, and every member held against the manifest before it is used."""

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from frontend.errors import BundleError
from frontend.transfer.bundle_writer import FOLDER, FORMAT, MANIFEST, MEDIA

#: The largest bundle, packed and unpacked; a million answers take about 200 MB and 4 GB.
MOST_PACKED_BYTES = 50_000_000_000
MOST_UNPACKED_BYTES = 400_000_000_000
#: The directory of the ZIP is read whole, and so is the manifest.
_MOST_DIRECTORY_BYTES = 50_000_000
_MOST_MANIFEST_BYTES = 50_000_000
#: Text is compressed to a tenth or, where rows are alike, a hundredth; more is a ZIP bomb. Small members may be
#: anything.
_MOST_RATIO = 500
_SMALL_BYTES = 1_000_000
#: The longest line of JSON: an answer or event has less than a thousand characters, a participant has a list of
#: queries, a revision holds a whole description.
_LONGEST_LINES = {"participants.jsonl": 4_000_000, "revisions.jsonl": 32_000_000}
_LONGEST_LINE = 200_000
#: What is read whole: revisions, and one array at a time.
_MOST_REVISIONS_BYTES = 200_000_000
_LONGEST_ARRAY = 500_000_000
_PIECE_BYTES = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
_MANY = 10


class BundleZip:
    """A bundle whose manifest fits its members. Their contents are held against it by `check`."""

    def __init__(self, path: Path) -> None:
        self._zip = _open_zip(path)
        try:
            self.manifest = self._manifest()
            self._compare()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Give the file back."""
        self._zip.close()

    @property
    def digest(self) -> str:
        """Digest of the contents: two bundles of the same digest hold the same."""
        return hashlib.sha256(json.dumps(self.manifest["members"], sort_keys=True).encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """All members but the manifest."""
        return tuple(self.manifest["members"])

    def check(self) -> None:
        """Read every member once; BundleError names those that are not what the manifest says."""
        wrong: list[str] = []
        for name, wanted in self.manifest["members"].items():
            digest = hashlib.sha256()
            try:
                for piece in self.pieces(name):
                    digest.update(piece)
            except BundleError:
                wrong.append(name)
                continue
            if digest.hexdigest() != wanted["sha256"]:
                wrong.append(name)
        if wrong:
            raise BundleError(
                f"These files of the bundle are damaged or were changed: {_list_names(wrong)}.",
                hint="Nothing was imported. Export it again, or use another copy.",
                where=wrong[0],
            )

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member, never more than the manifest says."""
        left = self.manifest["members"][name]["bytes"]
        try:
            with self._zip.open(name) as member:
                while piece := member.read(_PIECE_BYTES):
                    left -= len(piece)
                    if left < 0:
                        break
                    yield piece
        except _BROKEN as error:
            raise BundleError(f"{name} is damaged.", hint="Nothing was imported.", where=name) from error
        if left:
            raise BundleError(f"The length of {name} differs from the manifest.", where=name)

    def lines(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield (number, value) of each line of JSON; a file that is not there has none."""
        if FOLDER + name not in self.manifest["members"]:
            return
        if name == "revisions.jsonl" and self.manifest["members"][FOLDER + name]["bytes"] > _MOST_REVISIONS_BYTES:
            raise BundleError(f"{FOLDER}{name} is larger than any list of revisions.", where=FOLDER + name)
        longest = _LONGEST_LINES.get(name, _LONGEST_LINE)
        for number, line in enumerate(self._split(FOLDER + name, longest), 1):
            yield number, _parse_json(line, f"{FOLDER}{name}:{number}")

    def _split(self, name: str, longest: int) -> Iterator[bytes]:
        """Yield the lines of a member."""
        number, rest = 0, b""
        with self._zip.open(name) as member:
            while piece := member.read(_PIECE_BYTES):
                *lines, rest = (rest + piece).split(b"\n")
                for line in (*lines, rest):  # the rest is a part of a line, and may be too long already
                    number += 1
                    if len(line) >= longest:
                        raise BundleError(f"{name}:{number} is too long.", where=f"{name}:{number}")
                number -= 1
                yield from lines
        if rest:
            yield rest

    def text(self, name: str) -> Any:
        """Return the value of a member that is one piece of JSON."""
        return _parse_json(self._whole(FOLDER + name, _LONGEST_LINE), FOLDER + name)

    def array(self, name: str) -> bytes:
        """Return the bytes of an array."""
        return self._whole(FOLDER + name, _LONGEST_ARRAY)

    def _whole(self, name: str, most_bytes: int) -> bytes:
        found = self.manifest["members"].get(name)
        if found is None or found["bytes"] > most_bytes:
            raise BundleError(f"{name} is missing or too large.", hint="Export the experiment again.", where=name)
        return b"".join(self.pieces(name))

    def _manifest(self) -> dict[str, Any]:
        try:
            info = self._zip.getinfo(MANIFEST)
            content = self._zip.read(MANIFEST) if info.file_size <= _MOST_MANIFEST_BYTES else b""
        except (KeyError, *_BROKEN):
            content = b""
        if not content:
            raise BundleError(
                "This ZIP is not a Salmon bundle: it has no readable manifest.json.",
                hint="`salmon export` and the console make bundles; targets are uploaded with a new experiment.",
                where=MANIFEST,
            )
        manifest = _parse_json(content, MANIFEST)
        if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
            raise BundleError("manifest.json is not the manifest of a Salmon bundle.", where=MANIFEST)
        if manifest["format"] > FORMAT:
            raise BundleError(
                f"This bundle was made by a later version of Salmon ({manifest.get('salmon')}).",
                hint="Import it with that version or a newer one.",
                where=MANIFEST,
            )
        if not manifest.get("complete"):
            raise BundleError(
                "This bundle was made to be published: it leaves out what an import needs.",
                hint="Export it without personal=no.",
                where=MANIFEST,
            )
        return manifest

    def _compare(self) -> None:
        """Raise BundleError unless the members and the manifest name each other, and no member
        unpacks to more than it can be.
        """
        members = self.manifest.get("members")
        infos = self._zip.infolist()
        found = [info.filename for info in infos if info.filename != MANIFEST]
        if not isinstance(members, dict) or not all(_is_entry(entry) for entry in members.values()):
            raise BundleError("The list of files in manifest.json cannot be read.", where=MANIFEST)
        if len(set(found)) < len(found) or set(found) != set(members):
            differing = sorted(set(found) ^ set(members)) or found
            raise BundleError(
                f"manifest.json and the files do not match: {_list_names(differing)}.",
                hint="A file is missing, was added, or is there twice: use the bundle as it was exported.",
                where=MANIFEST,
            )
        for info in infos:
            if info.filename == MANIFEST:
                continue
            odd = not _NAME.fullmatch(info.filename) or ".." in info.filename.split("/") or info.flag_bits & 1
            if odd or info.file_size != members[info.filename]["bytes"] or _is_bomb(info):
                raise BundleError(
                    f"{info.filename[:100]!r} is not a file that Salmon writes, or not as long as it says.",
                    hint="Nothing was imported.",
                    where=info.filename[:100],
                )
        if sum(entry["bytes"] for entry in members.values()) > MOST_UNPACKED_BYTES:
            raise BundleError("The bundle unpacks to more than 400 GB.", where=MANIFEST)


def _open_zip(path: Path) -> zipfile.ZipFile:
    size_bytes = path.stat().st_size
    if size_bytes > MOST_PACKED_BYTES or _directory_bytes(path, size_bytes) > _MOST_DIRECTORY_BYTES:
        raise BundleError("The file is larger than any bundle.", hint="Nothing was imported.")
    try:
        return zipfile.ZipFile(path)
    except _BROKEN as error:
        raise BundleError(
            "The file is not a ZIP, or it is incomplete.", hint="Download or copy it again; nothing was imported."
        ) from error


def _directory_bytes(path: Path, size_bytes: int) -> int:
    """Return how long the ZIP says its directory is, which is read whole; 0 where it has none."""
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - 65_557 - 76))
        tail = file.read()
    large = tail.rfind(b"PK\x06\x06")
    if large >= 0 and len(tail) >= large + 48:
        return int.from_bytes(tail[large + 40 : large + 48], "little")
    end = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0


def _is_bomb(info: zipfile.ZipInfo) -> bool:
    return info.file_size > max(_SMALL_BYTES, _MOST_RATIO * info.compress_size) or (
        info.filename.startswith(MEDIA) and info.file_size > MOST_PACKED_BYTES
    )


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and isinstance(entry.get("bytes"), int)
        and entry["bytes"] >= 0
    )


def _parse_json(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"{where} cannot be read: it is not JSON.", hint="Nothing was imported.", where=where
        ) from error


def _list_names(names: list[str]) -> str:
    shown = ", ".join(name[:100] for name in names[:_MANY])
    return f"{shown} and {len(names) - _MANY} more" if len(names) > _MANY else shown
