"""Files behind targets are stored whole, once, under the hash of their content, or not at all."""

import errno
import hashlib
import os
import tracemalloc
import uuid
from pathlib import Path
from unittest.mock import Mock

import pytest

from frontend.media import MediaStore
from salmon.errors import MediaError, StoreError
from salmon.spec import Manifest
from tests.archives import WAV, picture, write_zip


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MediaStore:
    return MediaStore(str(tmp_path / "media") if request.param == "local" else f"memory://{uuid.uuid4().hex}/media")


def test_what_was_uploaded_can_be_opened_by_the_hash_of_its_content(store: MediaStore, tmp_path: Path):
    files = [(f"{k}.png", picture(k)) for k in range(3)]
    manifest = store.unpack(write_zip(tmp_path / "t.zip", files))
    assert [entry.media for entry in manifest.entries] == [
        f"{hashlib.sha256(content).hexdigest()}.png" for _, content in files
    ]
    for entry, (_, content) in zip(manifest.entries, files, strict=True):
        assert entry.size_bytes == len(content)
        with store.open(entry.media) as file:
            assert file.read() == content
    assert Manifest.load(manifest.dump()) == manifest


def test_uploading_again_keeps_what_is_there(tmp_path: Path):
    store = MediaStore(str(tmp_path / "media"))
    path = write_zip(tmp_path / "t.zip", [("a.png", picture(1)), ("copy.png", picture(1)), ("b.png", picture(2))])
    manifest = store.unpack(path)
    before = {file.name: file.stat().st_ino for file in (tmp_path / "media").iterdir()}
    assert len(before) == 2, "the same content is stored once"
    assert store.unpack(path) == manifest
    assert {file.name: file.stat().st_ino for file in (tmp_path / "media").iterdir()} == before


def test_nothing_is_stored_of_a_zip_that_is_refused(tmp_path: Path):
    store = MediaStore(str(tmp_path / "media"))
    with pytest.raises(MediaError):
        store.unpack(write_zip(tmp_path / "t.zip", [("a.png", picture()), ("b.png", b"no picture")]))
    assert list((tmp_path / "media").iterdir()) == []


def test_a_full_disk_is_a_sentence_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = MediaStore(str(tmp_path / "media"))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(StoreError, match="not enough disk space"):
        store.unpack(write_zip(tmp_path / "t.zip", [("a.png", picture()), ("b.png", picture(1))]))
    assert list((tmp_path / "media").iterdir()) == []


def test_what_a_killed_upload_left_is_removed_after_a_day_and_not_before(tmp_path: Path):
    now = 1_800_000_000.0
    (tmp_path / "media").mkdir()
    for name, age_hours in ((".incoming-old", 25), (".incoming-new", 1), ("other", 99)):
        (tmp_path / "media" / name).write_bytes(b"")
        os.utime(tmp_path / "media" / name, (now - age_hours * 3600,) * 2)
    archive = write_zip(tmp_path / "t.zip", [("a.png", picture())])
    MediaStore(str(tmp_path / "media"), clock=lambda: now).unpack(archive)
    left = {path.name for path in (tmp_path / "media").iterdir()}
    assert {".incoming-old", ".incoming-new", "other"} & left == {".incoming-new", "other"}


@pytest.mark.parametrize(
    "name", ["../secret.png", "a.png", "", f"{'0' * 64}.png", f"{'0' * 64}.png/../x", f"{'0' * 64}"]
)
def test_a_name_that_is_no_medium_is_not_found(store: MediaStore, name: str):
    with pytest.raises(FileNotFoundError):
        store.open(name)


def test_only_a_local_store_has_paths(tmp_path: Path):
    path = write_zip(tmp_path / "t.zip", [("a.png", picture())])
    local = MediaStore(str(tmp_path / "media"))
    (entry,) = local.unpack(path).entries
    assert local.path(entry.media) == tmp_path / "media" / entry.media
    remote = MediaStore(f"memory://{uuid.uuid4().hex}")
    assert remote.path(remote.unpack(path).entries[0].media) is None


def test_a_large_file_is_never_in_memory_as_a_whole(tmp_path: Path):
    path = write_zip(tmp_path / "t.zip", [("a.wav", WAV + os.urandom(60_000_000))], method=0)
    tracemalloc.start()
    try:
        MediaStore(str(tmp_path / "media")).unpack(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 15_000_000
