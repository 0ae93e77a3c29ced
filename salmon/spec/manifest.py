"""Number the targets of an experiment: the manifest made of a ZIP, and how a later ZIP is merged into it.

Pictures that texts of the experiment show are in the ZIP too; they are kept apart from the targets.

Answers name targets by their index, so an index may never come to mean something else. When a ZIP is uploaded again,
`merge_manifests` keeps the index of everything that it recognises, adds what is new at the end, and keeps the place of
what is missing; it reports which is which, so that the caller can refuse.
"""

import html
import json
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, Self, get_args
from urllib.parse import unquote

from salmon.errors import MediaError, Problem
from salmon.spec.feature_file import decode_row
from salmon.spec.media_files import MEDIA_TYPES

#: A file that some HTML shows; names of the ZIP have no folder and no scheme.
_SHOWN = re.compile(r"""(\bsrc\s*=\s*["']?)([^"'>\s/:?#]+)(?=["'>\s]|$)""", re.IGNORECASE)

TargetKind = Literal["text", "html", "image", "video", "audio"]


@dataclass(frozen=True)
class TargetSpec:
    """One target as a page shows it, or a picture of a text, whose `index` is -1.

    `filename` is the name in the ZIP, or the text where there is no file; exports contain it and pages must not,
    because names tell the condition. `media` is the name under which the file is stored, and `size_bytes` its length
    (0: there is no file). An empty `alt` means the page's own neutral name.
    """

    index: int
    kind: TargetKind
    html: str
    filename: str
    alt: str = ""
    media: str = ""
    width_px: int = 0
    height_px: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class ManifestEntry:
    """A file of a ZIP, or a row of its CSV, whose text is both `html` and `name`.

    Sizes are 0 where they are unknown. `features` is the target's row of numbers (`feature_file.encode_row`), empty
    where there is none.
    """

    index: int
    name: str
    kind: TargetKind
    sha256: str
    size_bytes: int
    extension: str = ""
    width_px: int = 0
    height_px: int = 0
    html: str = ""
    features: str = ""

    @property
    def media(self) -> str:
        """Return the name under which the file is stored; it is empty for a row of a CSV."""
        return f"{self.sha256}.{self.extension}" if self.extension else ""


@dataclass(frozen=True)
class Manifest:
    """All targets of an experiment in the order of their index, and the `pictures` of its texts, which are no targets.

    `warnings` says what was unusual about a ZIP that could still be used; warnings are not stored.
    """

    entries: tuple[ManifestEntry, ...]
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    pictures: tuple[ManifestEntry, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def targets(self) -> tuple[TargetSpec, ...]:
        """Return what pages show: the same HTML elements around the files as in the first Salmon."""
        return tuple(_target(entry) for entry in self.entries)

    def dump(self) -> str:
        """Return the manifest as JSON, which `Manifest.load` reads back."""
        content = {"entries": [_plain(entry) for entry in self.entries]}
        if self.pictures:
            content["pictures"] = [_plain(picture) for picture in self.pictures]
        return json.dumps(content, ensure_ascii=False)

    def with_pictures(self, named: Collection[str], *, fixed: int = 0) -> Self:
        """Return the manifest with the pictures of texts apart from the targets; `named` are the files that texts show.

        The first `fixed` targets have answers: they stay where they are. A picture that no text shows is a target
        again, the last.
        """
        known = {picture.name for picture in self.pictures}
        moved = [
            entry for entry in self.entries[fixed:] if entry.name in named and entry.media and entry.name not in known
        ]
        if not moved and known <= set(named):
            return self
        gone = {entry.index for entry in moved}
        targets = [entry for entry in self.entries if entry.index not in gone]
        targets += [picture for picture in self.pictures if picture.name not in named]
        pictures = [picture for picture in self.pictures if picture.name in named] + moved
        return replace(self, entries=_numbered(targets), pictures=_numbered(pictures))

    def features(self) -> tuple[tuple[float, ...], ...]:
        """Return the features of the targets, a row each; empty where they have none."""
        if not all(entry.features for entry in self.entries):
            return ()
        return tuple(decode_row(entry.features) for entry in self.entries)

    def picture_files(self) -> tuple[TargetSpec, ...]:
        """Return the pictures of texts."""
        return tuple(replace(_target(picture), index=-1) for picture in self.pictures)

    def files(self) -> dict[str, str]:
        """Return name in the ZIP → name under which the file is stored, of targets and pictures."""
        return {entry.name: entry.media for entry in (*self.entries, *self.pictures) if entry.media}

    def address_files(self, text: str) -> str:
        """Return some HTML with the addresses of the files that it shows by their names in the ZIP."""
        files = self.files()

        def address(found: re.Match[str]) -> str:
            medium = files.get(unquote(html.unescape(found[2])))
            return f"{found[1]}/media/{medium}" if medium else found[0]

        return _SHOWN.sub(address, text)

    @classmethod
    def load(cls, text: str | bytes) -> Self:
        """Return the manifest of some JSON; raise MediaError if it is not one."""
        try:
            content = json.loads(text)
            entries, pictures = (
                tuple(_check_entry(ManifestEntry(**entry), place) for place, entry in enumerate(written))
                for written in (content["entries"], content.get("pictures", ()))
            )
            return cls(entries, pictures=pictures)
        except (ValueError, TypeError, KeyError) as error:
            raise MediaError(
                (Problem(f"This is not a manifest of targets: {error}.", hint="Upload the ZIP again."),),
                name="manifest.json",
            ) from error


@dataclass(frozen=True)
class ManifestMerge:
    """The result of a second upload: `manifest` holds all targets, and the other fields are lists of names.

    `changed`: same name, other content. `renamed`: same content under another name (old name, new name).
    `missing`: in the old manifest only; such entries keep their place.
    """

    manifest: Manifest
    kept: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        """Whether every old target still shows what it showed, so that answers already given stay true."""
        return not self.changed and not self.missing


_NAME_AND_CONTENT = attrgetter("name", "sha256")


def merge_manifests(old: Manifest, new: Manifest) -> ManifestMerge:
    """Merge a new manifest into the old one without changing any index of the old one.

    A file is recognised by name and content, else by name, else by content. Each is recognised once: if two rows have
    the same text, they are matched in their order. A picture of a text is recognised by its name alone, and its content
    may change.
    """
    targets = {entry.name for entry in old.entries}
    pictures = {picture.name: picture for picture in old.pictures}
    pictures |= {entry.name: entry for entry in new.entries if entry.name in pictures and entry.name not in targets}
    pictures |= {picture.name: picture for picture in new.pictures if picture.name not in targets}
    written = (*new.entries, *(picture for picture in new.pictures if picture.name in targets))
    waiting = dict(enumerate(entry for entry in written if entry.name not in pictures or entry.name in targets))
    found: dict[int, ManifestEntry] = {}
    for same in (_NAME_AND_CONTENT, attrgetter("name"), attrgetter("sha256")):
        places: defaultdict[object, deque[int]] = defaultdict(deque)
        for place, entry in waiting.items():
            places[same(entry)].append(place)
        for entry in old.entries:
            if entry.index not in found and places[same(entry)]:
                found[entry.index] = waiting.pop(places[same(entry)].popleft())
    pairs = [(entry, found[entry.index]) for entry in old.entries if entry.index in found]
    merged = [replace(found.get(entry.index, entry), index=entry.index) for entry in old.entries]
    merged += [replace(entry, index=len(merged) + place) for place, entry in enumerate(waiting.values())]
    return ManifestMerge(
        Manifest(tuple(merged), pictures=_numbered(pictures.values())),
        kept=tuple(was.name for was, now in pairs if _NAME_AND_CONTENT(was) == _NAME_AND_CONTENT(now)),
        added=tuple(entry.name for entry in waiting.values()),
        changed=tuple(was.name for was, now in pairs if was.sha256 != now.sha256),
        renamed=tuple((was.name, now.name) for was, now in pairs if was.name != now.name),
        missing=tuple(entry.name for entry in old.entries if entry.index not in found),
    )


def _numbered(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    return tuple(replace(entry, index=place) for place, entry in enumerate(entries))


def text_target(index: int, row: str) -> TargetSpec:
    """Return a target written as text."""
    if text_kind(row) == "html":
        return TargetSpec(index, "html", row, row)
    return TargetSpec(index, "text", row, row, alt=row)


def names_shown_in(text: str) -> set[str]:
    """Return the names of files that some HTML shows, as far as they can be names in a ZIP."""
    return {unquote(html.unescape(found[2])) for found in _SHOWN.finditer(text)}


def text_kind(row: str) -> TargetKind:
    """Return "html" if the text holds a tag or a character reference, else "text".

    A browser would not show such HTML as it is written.
    """
    return "html" if html.unescape(row) != row or "<" in row else "text"


def _target(entry: ManifestEntry) -> TargetSpec:
    source = f"/media/{entry.media}"
    match entry.kind:
        case "image":
            element = f"<img src='{source}' alt='' />"
        case "video":
            # Browsers play by themselves only what is muted.
            video = f"<source src='{source}' type='{MEDIA_TYPES[entry.extension]}' />"
            element = f"<video autoplay muted loop playsinline controls>{video}</video>"
        case "audio":
            element = f"<audio controls src='{source}'></audio>"
        case _:
            return text_target(entry.index, entry.html)
    return TargetSpec(
        entry.index,
        entry.kind,
        element,
        entry.name,
        media=entry.media,
        width_px=entry.width_px,
        height_px=entry.height_px,
        size_bytes=entry.size_bytes,
    )


def _plain(entry: ManifestEntry) -> dict[str, Any]:
    return {key: value for key, value in asdict(entry).items() if key != "features" or value}


def _check_entry(entry: ManifestEntry, place: int) -> ManifestEntry:
    if entry.index != place or entry.kind not in get_args(TargetKind):
        raise ValueError(f"entry {place} has index {entry.index} and kind {entry.kind}")
    return entry
