"""The supervisor's decisions, and what it does with real programs."""

import io
import logging
import os
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon import logs
from salmon.cli.data_directory import DataDirectory, write_private_or_stop
from salmon.cli.supervisor import (
    FULL_DISK_PAUSE_SECONDS,
    HUNG_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PROVED_SECONDS,
    START_SECONDS,
    Program,
    Supervisor,
    cause_of,
    heard_after,
    is_hung,
    pause_before,
    responds,
)
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


def test_deaths_on_a_full_disk_are_not_counted_and_pauses_stay_short() -> None:
    assert pause_before(7, lived_seconds=0.1, disk_full=True) == (7, FULL_DISK_PAUSE_SECONDS)
    assert FULL_DISK_PAUSE_SECONDS <= 5


@pytest.mark.parametrize(
    ("said", "free_bytes", "free_inodes", "cause"),
    [
        (
            ["banner", "Error writing to the AOF file: Input/output error", "Exiting..."],
            10**9,
            10,
            "input/output error",
        ),
        (["Can't open the append-only file x.aof: Read-only file system"], 10**9, 10, "read-only file system"),
        (["Error writing: No space left on device"], 10**9, 10, "disk full"),
        (["Error writing: No space left on device"], 10**9, -1, "disk full"),
        (["Error writing: No space left on device"], 0, 0, "disk full"),
        (["Can't open: No space left on device"], 10**9, 0, "no inodes left"),
        (["Out Of Memory allocating 4096 bytes!", "Guru Meditation"], 10**9, 10, "out of memory"),
        (["fork: Cannot allocate memory", "fsync: Input/output error"], 10**9, 10, "input/output error"),
        ([], 1000, 10, "disk full"),
        ([], -1, -1, ""),
        (["banner", "bye bye"], 10**9, 0, ""),
    ],
)
def test_the_cause_is_what_was_said_last(said: list[str], free_bytes: int, free_inodes: int, cause: str) -> None:
    assert cause_of(said, free_bytes=free_bytes, free_inodes=free_inodes) == cause


def test_the_last_words_of_a_program_are_logged_and_others_learn_the_cause(
    tmp_path: Path,
) -> None:
    """Not its banner, also where it dies again and again."""
    heard = tmp_path / "heard"
    code = (
        "import os, time; from salmon import parent_watch; causes = {}; parent_watch.watch(os.environ, causes);"
        " print('ready', flush=True)\n"
        f"while True: open({str(heard)!r}, 'w').write(causes.get('dying', '-')); time.sleep(0.01)"
    )
    broken = tmp_path / "broken"
    dying = (
        f"import os, time; print(*(f'banner {{n}}' for n in range(15)), sep='\\n', flush=True)\n"
        f"print('ready', flush=True)\n"
        f"while not os.path.exists({str(broken)!r}): time.sleep(0.01)\n"
        "print('Error writing to the AOF file: Input/output error', 'Exiting...', sep='\\n', flush=True)"
    )
    handler = logging.StreamHandler(lines := io.StringIO())
    handler.setFormatter(logs.EventFormatter("supervisor"))
    handler.addFilter(logs.RepeatFilter())
    logging.getLogger().addHandler(handler)
    supervisor = Supervisor(tmp_path)
    try:
        supervisor.start(
            program("worker", code, wait_for_ready=True, alive="alive"), program("dying", dying, wait_for_ready=True)
        )
        watching = threading.Thread(target=supervisor.watch)
        watching.start()
        broken.touch()
        poll(lambda: heard.read_text() == "input/output error", "the cause to be told")
        poll(lambda: lines.getvalue().count("program died") > 1, "the second death")
        broken.unlink()
        poll(lambda: heard.read_text() == "", "the end of it to be told")
    finally:
        logging.getLogger().removeHandler(handler)
        supervisor.stop()
        watching.join(10)
        supervisor.shut_down()
    said = [line for line in lines.getvalue().splitlines() if "last words" in line]
    died = [line for line in lines.getvalue().splitlines() if "program died" in line]
    assert len(said) == len(died) > 1
    assert all("Input/output error | Exiting..." in line and "banner 3 " not in line for line in said)
    assert all('cause="input/output error"' in line for line in died)


def test_the_last_words_before_a_start_that_fails_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(tmp_path)
    code = "print('Can\\'t open the file: Read-only file system'); raise SystemExit(1)"
    with pytest.raises(StartError, match="before it was ready: read-only file system"):
        supervisor.start(program("broken", code, wait_for_ready=True))
    assert [record.fields["lines"] for record in caplog.records if record.message == "last words"] == [
        "Can't open the file: Read-only file system"
    ]
    supervisor.shut_down()


@given(st.floats(0, 1000))
def test_only_programs_that_can_show_life_hang_by_silence(silent: float) -> None:
    mute = program("mute", "")
    probed, beating = replace(mute, probe=lambda _: True), replace(mute, alive="alive")
    assert not is_hung(mute, ready=True, silent_seconds=silent)
    for each in (probed, beating):
        assert is_hung(each, ready=True, silent_seconds=silent) == (silent > HUNG_SECONDS)
        assert is_hung(each, ready=False, silent_seconds=silent) == (silent > START_SECONDS)


def test_a_supervisor_that_cannot_write_keeps_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(tmp_path)
    code = "import time; print('ready', flush=True); time.sleep(60)"
    supervisor.start(program("worker", code, wait_for_ready=True))
    first = (tmp_path / "worker.pid").read_text()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    watching = threading.Thread(target=supervisor.watch)
    watching.start()
    os.kill(int(first.split("\n")[0]), signal.SIGKILL)
    poll(lambda: (tmp_path / "worker.pid").read_text() != first, "the new process in the old file")
    assert watching.is_alive()
    pid = int((tmp_path / "worker.pid").read_text().split("\n")[0])
    assert psutil.Process(pid).ppid() == os.getpid()
    supervisor.stop()
    watching.join(10)
    supervisor.shut_down()


def test_orphans_end_together_with_what_they_started(tmp_path: Path) -> None:
    """One of them ignores the signal to stop, and has a child of its own."""
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        " child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        " print('ready', child.pid, flush=True); time.sleep(600)"
    )
    earlier = Supervisor(tmp_path)
    for name in ("one", "other"):
        earlier.start(program(name, code, wait_for_ready=True))
    orphans = [psutil.Process(int((tmp_path / f"{name}.pid").read_text().split("\n")[0])) for name in ("one", "other")]
    children = [psutil.Process(int(earlier.announced(name) or "")) for name in ("one", "other")]
    Supervisor(tmp_path).stop_orphans(gentle=("other",))
    assert list(tmp_path.glob("*.pid")) == []
    for process in (*orphans, *children):
        poll(lambda process=process: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "its end")
    earlier.shut_down()


def test_a_probe_needs_a_line_in_reply(tmp_path: Path) -> None:
    import socketserver

    class Reply(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if self.rfile.readline() == b"PING\r\n":
                self.wfile.write(b"-NOAUTH\r\n")

    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "socket"), Reply) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert responds(tmp_path / "socket", b"PING\r\n")
        assert not responds(tmp_path / "socket", b"nothing\r\n")
        server.shutdown()
    assert not responds(tmp_path / "missing", b"PING\r\n")


def test_a_private_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.conf"
    write_private_or_stop(path, "first")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    write_private_or_stop(path, "first")  # nothing to write
    with pytest.raises(StartError, match="No space left"):
        write_private_or_stop(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_program_that_hangs_is_found_by_a_supervisor_that_is_late_again_and_again() -> None:
    heard, now = 100.0, 100.0
    for _ in range(12):  # every look comes six seconds after the one before
        now += 6.0
        heard = heard_after(heard, now, late_seconds=6.0)
    assert now - heard == pytest.approx(24.0)
    assert heard_after(99.0, 160.0, late_seconds=61.0) <= 160.0


def test_a_directory_is_made_private_and_links_are_not_followed(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (directory.media / "link").symlink_to(outside)
    (directory.media / "gone").symlink_to(tmp_path / "nowhere")
    (directory.media / "a.svg").write_text("")
    for path in (directory.root, directory.media, directory.media / "a.svg"):
        path.chmod(0o775)
    assert directory.make_private() == ""
    assert [path.stat().st_mode & 0o777 for path in (directory.root, directory.media)] == [0o700, 0o700]
    assert (directory.media / "a.svg").stat().st_mode & 0o777 == 0o700
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_directory_that_cannot_be_made_private_is_a_sentence() -> None:
    """It belongs to somebody else, who lets us write."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user, so one that cannot be made private was not tried")
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        directory = DataDirectory(Path(folder, "data"))
        directory.prepare()
        for path in (Path(folder), directory.root, directory.media):
            path.chmod(0o777)
        os.seteuid(nobody)
        try:
            sentence = directory.make_private()
        finally:
            os.seteuid(0)
        assert sentence.startswith(f"{directory.root} cannot be made private (2 of the files and folders")
        assert f"chmod -R go= {directory.root}" in sentence
        assert directory.make_private() == ""
