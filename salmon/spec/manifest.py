"""Number the targets of an experiment: the manifest made of a ZIP, and how a later ZIP is merged into it.

Answers name targets by their index, so an index may never come to mean something else. When a ZIP is uploaded again,
`merge_manifests` keeps the index of everything that it recognises, adds what is new at the end, and keeps the place of
what is missing; it reports which is which, so that the caller can refuse.
"""

import html
import json
from collections import defaultdict, deque
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Literal, Self, get_args

from salmon.errors import MediaError, Problem
from salmon.spec.media_files import MEDIA_TYPES

TargetKind = Literal["text", "html", "image", "video", "audio"]


@dataclass(frozen=True)
class TargetSpec:
    """One target as a page shows it.

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

    Sizes are 0 where they are unknown.
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

    @property
    def media(self) -> str:
        """Return the name under which the file is stored; it is empty for a row of a CSV."""
        return f"{self.sha256}.{self.extension}" if self.extension else ""


@dataclass(frozen=True)
class Manifest:
    """All targets of an experiment in the order of their index.

    `warnings` says what was unusual about a ZIP that could still be used; warnings are not stored.
    """

    entries: tuple[ManifestEntry, ...]
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.entries)

    def targets(self) -> tuple[TargetSpec, ...]:
        """Return what pages show: the same HTML elements around the files as in the first Salmon."""
        return tuple(_target(entry) for entry in self.entries)

    def dump(self) -> str:
        """Return the manifest as JSON, which `Manifest.load` reads back."""
        return json.dumps({"entries": [asdict(entry) for entry in self.entries]}, ensure_ascii=False)

    @classmethod
    def load(cls, text: str | bytes) -> Self:
        """Return the manifest of some JSON; raise MediaError if it is not one."""
        try:
            return cls(
                tuple(
                    _check_entry(ManifestEntry(**entry), place)
                    for place, entry in enumerate(json.loads(text)["entries"])
                )
            )
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
    the same text, they are matched in their order.
    """
    waiting = dict(enumerate(new.entries))
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
        Manifest(tuple(merged)),
        kept=tuple(was.name for was, now in pairs if _NAME_AND_CONTENT(was) == _NAME_AND_CONTENT(now)),
        added=tuple(entry.name for entry in waiting.values()),
        changed=tuple(was.name for was, now in pairs if was.sha256 != now.sha256),
        renamed=tuple((was.name, now.name) for was, now in pairs if was.name != now.name),
        missing=tuple(entry.name for entry in old.entries if entry.index not in found),
    )


def text_target(index: int, row: str) -> TargetSpec:
    """Return a target written as text."""
    if text_kind(row) == "html":
        return TargetSpec(index, "html", row, row)
    return TargetSpec(index, "text", row, row, alt=row)


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


def _check_entry(entry: ManifestEntry, place: int) -> ManifestEntry:
    if entry.index != place or entry.kind not in get_args(TargetKind):
        raise ValueError(f"entry {place} has index {entry.index} and kind {entry.kind}")
    return entry
