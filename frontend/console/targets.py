"""The targets of an experiment as the console lists them: what each is, and what looks odd about it.

Pure functions of the list of targets, of the files behind them and of the counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from frontend.store.counters import Counts
from salmon.spec import Manifest, TargetSpec

Json = dict[str, Any]

#: Pictures whose shape or size differs from the middle one by more than this factor are reported.
ODD_SHAPE = 1.5
ODD_SIZE = 4.0
ODD_BYTES = 10.0


def target_rows(targets: Sequence[TargetSpec], manifest: Manifest | None, counts: Counts) -> list[Json]:
    """Return one row a target, by index, with sentences about what looks odd."""
    entries = {entry.index: entry for entry in manifest.entries} if manifest is not None else {}
    contents = [entries[t.index].sha256 if t.index in entries else t.html for t in targets]
    first = {content: place for place, content in reversed(list(enumerate(contents)))}
    shapes = _middle([t.width_px / t.height_px for t in targets if t.height_px > 0 and t.width_px > 0])
    areas = _middle([t.width_px * t.height_px for t in targets])
    sizes = _middle([entry.size_bytes for entry in entries.values()])
    rows: list[Json] = []
    for target, content in zip(targets, contents, strict=True):
        entry = entries.get(target.index)
        odd: list[str] = []
        if first[content] != target.index:
            odd.append(f"The same as target {first[content]}: participants cannot tell them apart.")
        if target.width_px and target.height_px:
            shape = target.width_px / target.height_px
            if _differs(shape, shapes, ODD_SHAPE):
                odd.append(
                    "Its shape differs from most pictures, so participants may compare shapes instead of contents."
                )
            if _differs(target.width_px * target.height_px, areas, ODD_SIZE):
                odd.append("Its size in pixels differs from most pictures.")
        if entry and _differs(entry.size_bytes, sizes, ODD_BYTES) and entry.size_bytes > sizes:
            odd.append("Its file is much larger than most, so it loads slowly on slow connections.")
        rows.append(
            {
                "index": target.index,
                "kind": target.kind,
                "name": target.filename,
                "html": "" if target.media else target.html,
                "media": f"/media/{target.media}" if target.media else "",
                "alt": target.alt,
                "sha256": entry.sha256 if entry else "",
                "bytes": entry.size_bytes if entry else 0,
                "width": target.width_px,
                "height": target.height_px,
                "head": counts.get("head").get(target.index, 0),
                "foot": counts.get("foot").get(target.index, 0),
                "won": counts.get("won").get(target.index, 0),
                "odd": odd,
            }
        )
    return rows


def _middle(values: Sequence[float]) -> float:
    known = [value for value in values if value > 0]
    return median(known) if known else 0.0


def _differs(value: float, middle: float, factor: float) -> bool:
    return middle > 0 and not middle / factor <= value <= middle * factor
