"""Warnings about targets: duplicates, and pictures that differ from the others."""

import pytest

from frontend.console.dashboard import target_rows
from frontend.store.answers import Counts
from salmon.spec import Manifest, ManifestEntry
from salmon.spec.manifest import text_target

NOBODY = Counts.of({})


def entry(
    index: int, *, sha256: str = "", size_bytes: int = 1000, shape: tuple[int, int] = (100, 100)
) -> ManifestEntry:
    sha256 = sha256 or f"{index:064x}"
    return ManifestEntry(index, f"{index}.png", "image", sha256, size_bytes, "png", shape[0], shape[1])


def odd(*entries: ManifestEntry) -> list[str]:
    manifest = Manifest(tuple(entries))
    return [" ".join(row["odd"]) for row in target_rows(manifest.targets(), manifest, NOBODY)]


def test_ordinary_pictures_have_no_warnings() -> None:
    assert odd(*(entry(k) for k in range(5))) == [""] * 5


def test_the_second_of_two_equal_pictures_has_a_warning() -> None:
    found = odd(entry(0), entry(1), entry(2, sha256=f"{0:064x}"))
    assert found[:2] == ["", ""]
    assert "same as target 0" in found[2]


@pytest.mark.parametrize(
    ("unusual", "warning"),
    [
        (entry(5, shape=(200, 100)), "shape"),
        (entry(5, shape=(900, 900)), "size in pixels"),
        (entry(5, size_bytes=500_000), "much larger"),
    ],
)
def test_an_unusual_shape_size_or_file_size_has_a_warning(unusual: ManifestEntry, warning: str) -> None:
    assert warning in odd(*(entry(k) for k in range(5)), unusual)[5]


def test_a_repeated_text_has_one_warning() -> None:
    targets = [text_target(place, text) for place, text in enumerate(["red", "blue", "red"])]
    rows = target_rows(targets, None, Counts.of({"head:1": "4", "foot:1": "2", "won:1": "1"}))
    assert [bool(row["odd"]) for row in rows] == [False, False, True]
    assert (rows[1]["head"], rows[1]["foot"], rows[1]["won"]) == (4, 2, 1)
