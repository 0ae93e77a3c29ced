"""The note of the store's files, from which a later start finds out what was lost."""

import shutil
import threading
from pathlib import Path

import pytest

from salmon.cli.append_only_file import FOLDER, MANIFEST
from salmon.cli.data_directory import DataDirectory
from salmon.cli.store_note import keep_note, read_note, write_note


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    """A data directory whose store has one file."""
    made = DataDirectory(tmp_path)
    made.prepare()
    (made.redis / FOLDER).mkdir()
    (made.redis / FOLDER / "appendonly.aof.1.incr.aof").write_bytes(b"*1\r\n$4\r\nPING\r\n")
    (made.redis / FOLDER / MANIFEST).write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    return made


def test_a_note_is_read_as_it_was_written_by_its_owner_only(directory: DataDirectory) -> None:
    assert read_note(directory.noted_files) == {}
    assert write_note(directory, {}) == read_note(directory.noted_files) == {"appendonly.aof.1.incr.aof": 14}
    assert directory.noted_files.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": null}', "null"])
def test_a_note_that_cannot_be_read_refuses_no_start(directory: DataDirectory, text: str) -> None:
    directory.noted_files.write_text(text)
    assert read_note(directory.noted_files) == {}


def test_a_loss_while_the_store_runs_stays_noted(directory: DataDirectory) -> None:
    noted = write_note(directory, {})
    shutil.rmtree(directory.redis / FOLDER)
    assert write_note(directory, noted) == noted == read_note(directory.noted_files)


def test_what_was_written_last_is_noted_when_the_store_has_stopped(directory: DataDirectory) -> None:
    stopped = threading.Event()
    noting = threading.Thread(target=keep_note, args=(directory, stopped))
    noting.start()
    with (directory.redis / FOLDER / "appendonly.aof.1.incr.aof").open("ab") as file:
        file.write(b"*1\r\n$4\r\nPING\r\n")
    stopped.set()
    noting.join()
    assert read_note(directory.noted_files) == {"appendonly.aof.1.incr.aof": 28}
