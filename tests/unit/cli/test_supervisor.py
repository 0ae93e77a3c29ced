"""The supervisor's decisions, and what it does with real programs."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.cli.data_directory import DataDirectory
from salmon.cli.supervisor import LONGEST_PAUSE_SECONDS, PROVED_SECONDS, Program, Supervisor, pause_before
from salmon.errors import StartError
from tests.program import poll


def test_pauses_double_up_to_a_limit_and_good_work_is_remembered() -> None:
    deaths, pauses = 0, []
    for _ in range(10):
        deaths, pause = pause_before(deaths, lived_seconds=0.1)
        pauses.append(pause)
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert pause_before(deaths, lived_seconds=PROVED_SECONDS) == (1, 0.25)


@given(st.integers(0, 60), st.floats(0, 1e6))
def test_a_pause_is_never_negative_nor_longer_than_the_limit(deaths: int, lived: float) -> None:
    counted, pause = pause_before(deaths, lived)
    assert counted >= 1
    assert 0 < pause <= LONGEST_PAUSE_SECONDS


def program(name: str, code: str, **options: object) -> Program:
    return Program(name=name, command=(sys.executable, "-c", code), environment={}, **options)  # type: ignore[arg-type]


def test_a_program_that_ends_before_it_is_ready_is_a_sentence(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    with pytest.raises(StartError, match="The program broken ended with code 3 before it was ready"):
        supervisor.start(program("broken", "raise SystemExit(3)", wait_for_ready=True))
    supervisor.shut_down()


def test_a_program_that_dies_comes_back_and_all_end_together(tmp_path: Path) -> None:
    marks = tmp_path / "starts"
    code = f"import time; open({str(marks)!r}, 'a').write('x'); print('ready at once', flush=True); time.sleep(60)"
    supervisor = Supervisor(tmp_path)
    supervisor.start(program("worker", code, wait_for_ready=True))
    assert supervisor.announced("worker") == "at once"
    watching = threading.Thread(target=supervisor.watch)
    watching.start()
    os.kill(int((tmp_path / "worker.pid").read_text().split("\n")[0]), signal.SIGKILL)
    poll(lambda: marks.read_text() == "xx", "the second start")
    supervisor.stop()
    watching.join(10)
    assert not watching.is_alive()
    supervisor.shut_down()
    assert list(tmp_path.glob("*.pid")) == []


def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot be used"):
        DataDirectory(tmp_path / "file" / "data").prepare()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / ("x" * 100) / "data")
    assert len(str(directory.socket)) < 100
    assert directory.socket == DataDirectory(directory.root).socket


def test_secrets_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    assert directory.credentials() == directory.credentials()
    assert (directory.root / "credentials.json").stat().st_mode & 0o077 == 0
    (directory.root / "credentials.json").write_text("{")
    with pytest.raises(StartError, match="cannot be read"):
        directory.credentials()
