"""What the machine does to the running program: programs that hang, idle connections, a full disk, damaged files."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx
import psutil
import pytest
import redis

from frontend.__main__ import READ_SECONDS
from salmon.cli.append_only_file import FOLDER, MANIFEST, whole_until
from salmon.cli.data_directory import DataDirectory
from tests.bundles import rows_of
from tests.crash.test_living_program import dask_process
from tests.program import Program, poll

pytestmark = pytest.mark.crash

#: How long the disk is held full: the long form is minutes.
FULL_SECONDS = float(os.environ.get("SALMON_TEST_FULL_DISK_SECONDS", "10"))
#: How often the supervisor, or a scheduler, is killed.
KILLS = int(os.environ.get("SALMON_TEST_KILLS", "2"))
SPEC = "targets: 10\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\n"
LEARNING = "targets: 10\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {}}\n"


class Answering:
    """One participant who answers as fast as possible, sends again what was not confirmed, and counts what was."""

    def __init__(self, program: Program, slug: str, name: str = "ada") -> None:
        self.client = httpx.Client(base_url=f"{program.address}/e/{slug}/", timeout=10)
        self.confirmed: set[str] = set()
        self.ended = threading.Event()
        arrival = self.client.post("arrive", json={"parameters": {"puid": name}}).raise_for_status().json()
        self.session = {"X-Salmon-Session": arrival["session"]}
        self.thread = threading.Thread(target=self._go_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def one(self) -> None:
        query = self.client.get("query", headers=self.session).raise_for_status().json()
        body = {"token": query["token"], "winner": query["left"]}
        self.client.post("answers", json=body).raise_for_status()
        self.confirmed.add(query["token"])

    def _go_on(self) -> None:
        while not self.ended.is_set():
            try:
                self.one()
            except httpx.HTTPError:
                self.ended.wait(0.2)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        self.thread.start()
        try:
            yield
        finally:
            self.ended.set()
            self.thread.join(30)


def answers_in(program: Program, slug: str, login: tuple[str, str]) -> int:
    return len(rows_of(program.export(slug, "responses.csv", login)))


@pytest.mark.parametrize("name", ["frontend", "backend", "redis"])
def test_a_program_that_hangs_is_replaced(tmp_path: Path, name: str) -> None:
    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        hung = program.child(name)
        others = {each: program.child(each).pid for each in {"frontend", "backend", "redis"} - {name}}
        hung.send_signal(signal.SIGSTOP)
        poll(lambda: program.child(name).pid != hung.pid, f"{name} to be replaced", seconds=60)
        program.wait_until_ready()
        assert {each: program.child(each).pid for each in others} == others  # who only waited for it lives on
        assert any("program hangs" in line and f"program={name}" in line for line in program.log)


def test_programs_that_were_stopped_together_with_their_supervisor_are_kept(tmp_path: Path) -> None:
    """As when a laptop is closed: nobody could respond, and nobody hangs."""
    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        tree = program.tree()
        for process in tree:
            process.send_signal(signal.SIGSTOP)
        time.sleep(20)
        for process in reversed(tree):
            process.send_signal(signal.SIGCONT)
        program.wait_until_ready()
        assert not any("program hangs" in line for line in program.log)
        assert {process.pid for process in tree} >= {program.child(each).pid for each in ("frontend", "redis")}


def test_many_idle_connections_stop_nobody_and_are_closed(tmp_path: Path) -> None:
    async def hold() -> tuple[int, int]:
        host, port = program.address.removeprefix("http://").split(":")
        streams = [await asyncio.open_connection(host, int(port)) for _ in range(2000)]
        for place, (_, writer) in enumerate(streams):
            if place % 4 == 1:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")  # half a request
            if place % 4 == 2:
                writer.write(b"POST /api/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        async with httpx.AsyncClient(base_url=program.address) as client:
            answered = sum([(await client.get("/healthz")).status_code == 200 for _ in range(20)])

        async def until_closed(reader: asyncio.StreamReader) -> int:
            try:
                while await reader.read(1000):
                    pass
            except ConnectionError:
                pass
            return 1

        closed = await asyncio.wait_for(
            asyncio.gather(*(until_closed(reader) for reader, _ in streams)), READ_SECONDS * 3
        )
        for _, writer in streams:
            writer.close()
        return answered, sum(closed)

    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        before = len(program.log)
        assert asyncio.run(hold()) == (20, 2000)
        said = "\n".join(program.log[before:])
        assert len(said) < 20_000
        assert "Traceback" not in said


def test_a_scheduler_that_is_killed_and_started_again_is_joined_again(tmp_path: Path) -> None:
    options = ("--no-dashboard", "--host", "127.0.0.1")

    @contextmanager
    def cluster(port: str) -> Iterator[tuple[psutil.Process, str]]:
        with dask_process("scheduler", "--port", port, "--no-show", *options, ready="Scheduler at:") as (process, line):
            address = re.search(r"tcp://\S+", line)[0]  # type: ignore[index]
            with dask_process("worker", address, "--nthreads", "1", "--no-nanny", *options, ready="Registered to:"):
                yield process, address

    with cluster("0") as (first, address):
        port = address.rpartition(":")[2]
        with (
            Program(tmp_path / "data", environment={"SALMON_SCHEDULER": address}) as program,
            ExitStack() as stack,
        ):
            program.launch_text("cluster", LEARNING)
            program.wait_until_ready()
            participant = stack.enter_context(Answering(program, "cluster"))
            for _ in range(20):
                participant.one()
            first.kill()
            first.wait(10)
            for _ in range(KILLS):
                with cluster(port) as (scheduler, _):
                    for _ in range(20):
                        participant.one()
                    # Longer than a heartbeat lives: it is a new one that makes it ready.
                    deadline = time.monotonic() + 16
                    while time.monotonic() < deadline:
                        assert httpx.get(f"{program.address}/readyz").status_code == 200
                        time.sleep(0.5)
                    scheduler.kill()
                    scheduler.wait(10)


@contextmanager
def small_disk(path: Path, megabytes: int, *options: str) -> Iterator[Path]:
    """A file system of its own; skipped where this user may not mount one."""
    path.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", ",".join((f"size={megabytes}m", *options)), "tmpfs", str(path))
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this user may not mount a small file system, so the full disk was not tried: {mounted.stderr}")
    try:
        yield path
    finally:
        subprocess.run(("umount", "-l", str(path)), check=True)


@contextmanager
def held_full(disk: Path) -> Iterator[None]:
    """A greedy writer takes every byte that is free, again and again."""
    ended = threading.Event()

    def write() -> None:
        with (disk / "greedy").open("ab", buffering=0) as file:
            while not ended.is_set():
                size = 1 << 16
                while size:
                    try:
                        file.write(bytes(size))
                    except OSError:
                        size //= 2
                ended.wait(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        (disk / "greedy").unlink()


def test_a_full_disk_stops_answers_and_nothing_else(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 40) as disk, Program(disk / "data") as program:
        login = program.add_user()
        program.launch_text("full", SPEC)
        program.wait_until_ready()
        supervisor, web = program.tree()[0], program.child("frontend")
        with Answering(program, "full") as participant, participant.in_background():
            poll(lambda: len(participant.confirmed) > 50, "the first answers")
            with held_full(disk):
                end = time.monotonic() + FULL_SECONDS
                poll(lambda: httpx.get(f"{program.address}/readyz").json()["status"] == "disk full", "the full disk")
                assert "full: free some space" in httpx.get(f"{program.address}/readyz").json()["hint"]
                while time.monotonic() < end:
                    assert httpx.get(f"{program.address}/healthz").status_code == 200
                    time.sleep(0.2)
                page = httpx.get(f"{program.address}/console/", auth=login, headers={"Accept": "text/html"})
                assert "The disk with the data directory is full" in page.text
                at_the_end = len(participant.confirmed)
            freed = time.monotonic()
            poll(lambda: len(participant.confirmed) > at_the_end + 20, "answers to flow again", seconds=60)
            sys.stderr.write(f"answers flow {time.monotonic() - freed:.1f} s after there is room\n")
        assert supervisor.is_running()
        assert web.is_running()
        program.wait_until_ready()
        assert answers_in(program, "full", login) >= len(participant.confirmed)


def killed_with_answers(program: Program) -> tuple[tuple[str, str], int, Path]:
    """Start, record some answers and kill everything; return (login, answers, the last append-only file)."""
    program.start()
    login = program.add_user()
    program.launch_text("damaged", LEARNING)
    with Answering(program, "damaged") as participant:
        for _ in range(15):
            participant.one()
    program.kill()
    return login, len(participant.confirmed), max((program.data / "redis" / FOLDER).glob("*.incr.aof"))


def test_zeros_at_the_end_of_the_file_are_cut_with_a_sentence(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    login, confirmed, file = killed_with_answers(program)
    with file.open("ab") as opened:
        opened.write(bytes(4096))
    with program:
        assert any("did not end in a whole command" in line for line in program.log)
        assert answers_in(program, "damaged", login) == confirmed
        (copy,) = (tmp_path / "data" / "damaged").iterdir()
        assert copy.read_bytes().endswith(bytes(4096))


def test_the_place_of_damage_in_the_middle_is_said(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    _, _, file = killed_with_answers(program)
    content = file.read_bytes()
    place = content.index(b"*", len(content) // 2)
    place, _ = whole_until(content[:place])
    ping = b"*1\r\n$4\r\nPING\r\n"
    file.write_bytes(content[:place] + bytes(50) + content[place:] + ping * (2_000_000 // len(ping)))
    program.log.clear()
    with pytest.raises(AssertionError, match=f"is damaged at byte {place:,}, and whole commands follow at byte"):
        program.start()
    assert program.stop() == 1
    assert any("truncate -s" in line for line in program.log)


def test_a_store_without_its_list_of_files_does_not_start_empty(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    login, confirmed, file = killed_with_answers(program)
    listed = (file.parent / MANIFEST).read_bytes()
    (file.parent / MANIFEST).unlink()
    program.log.clear()
    with pytest.raises(AssertionError, match="is missing or empty"):
        program.start()
    assert program.stop() == 1
    assert not any("invitation=" in line or "Traceback" in line for line in program.log)
    (file.parent / MANIFEST).write_bytes(listed)
    with program:
        assert answers_in(program, "damaged", login) == confirmed


def list_the_base_alone(store: Path) -> None:
    listed = store / FOLDER / MANIFEST
    base = [line for line in listed.read_text().splitlines() if line.endswith("type b")]
    listed.write_text("\n".join(base) + "\n")


def empty_the_newest_file(store: Path) -> None:
    os.truncate(max((store / FOLDER).glob("*.incr.aof")), 0)


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (list_the_base_alone, "does not name it"),
        (empty_the_newest_file, "is empty"),
        (lambda store: shutil.rmtree(store / FOLDER), "are gone"),
        (shutil.rmtree, "is missing"),
    ],
    ids=["list names the base alone", "newest file empty", "no files", "no folder"],
)
def test_a_store_that_lost_its_answers_does_not_start_empty(
    tmp_path: Path, lose: Callable[[Path], None], said: str
) -> None:
    with Program(tmp_path / "data") as program:
        program.add_user()
        program.launch_text("lost", SPEC)
        with Answering(program, "lost") as participant:
            for _ in range(15):
                participant.one()
    secrets = (program.data / "credentials.json").read_bytes()
    whole = {path.name: path.read_bytes() for path in (program.data / "redis" / FOLDER).glob("*.incr.aof")}
    lose(program.data / "redis")
    for _ in range(2):  # a refused start changes nothing, so the next one refuses, too
        program.log.clear()
        with pytest.raises(AssertionError, match=said):
            program.start()
        assert program.stop() == 1
        assert not any("invitation=" in line or "Traceback" in line for line in program.log)
    assert any("--start-empty" in line for line in program.log)
    left = {path.name: path.read_bytes() for path in (program.data / "redis").rglob("*.incr.aof")}
    program.options = ("--start-empty",)
    with program:
        assert program.invitation
    kept = {path.name.rsplit(".", 1)[0]: path.read_bytes() for path in (program.data / "damaged").glob("*.incr.aof.*")}
    assert kept == (left if left == whole else {})  # what was there is moved aside, not written over
    assert (program.data / "credentials.json").read_bytes() == secrets
    program.options, program.invitation = (), ""
    with program:  # and it is the store of today
        assert program.invitation


def test_a_store_that_holds_what_it_held_starts_again(tmp_path: Path) -> None:
    """Stopped before anything came, killed at once, deleted to the last experiment, rewritten and killed."""
    program = Program(tmp_path / "data")
    for end in (program.stop, program.stop, program.kill):
        program.start()
        assert program.invitation
        end()
    program.start()
    login = program.add_user()
    assert program.run("user", "role", login[0], "owner").returncode == 0
    program.launch_text("gone", SPEC)
    with Answering(program, "gone") as participant:
        for _ in range(15):
            participant.one()
    program.stop()
    program.start()
    with httpx.Client(base_url=program.address, auth=login, timeout=60) as client:
        client.put("/api/experiments/gone/state", json={"state": "closed"}).raise_for_status()
        client.request("DELETE", "/api/experiments/gone", json={"name": "gone"}).raise_for_status()
        poll(lambda: client.get("/api/experiments").json() == [], "the experiment to go")
    program.kill()
    program.start()
    directory = DataDirectory(program.data)
    with redis.Redis.from_url(directory.redis_url("eraser", directory.credentials().eraser)) as client:
        before = {path.name for path in (directory.redis / FOLDER).glob("*.base.rdb")}
        client.bgrewriteaof()
        poll(
            lambda: before.isdisjoint(path.name for path in (directory.redis / FOLDER).glob("*.base.rdb")),
            "the rewrite",
        )
    program.kill()
    program.invitation = ""
    with program:
        assert program.invitation == ""
        assert httpx.get(f"{program.address}/api/experiments", auth=login).json() == []


def test_a_flipped_byte_of_an_answer_is_told_by_every_export(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    login, confirmed, file = killed_with_answers(program)
    content = bytearray(file.read_bytes())
    winner = re.compile(rb"\$6\r\nwinner\r\n\$1\r\n(\d)").search(content)
    assert winner is not None
    content[winner.start(1)] ^= 1
    file.write_bytes(content)
    with program:
        url = f"{program.address}/api/experiments/damaged"
        for what in ("exports/responses.csv", "exports/salmon_responses.json", "bundle"):
            reply = httpx.get(f"{url}/{what}", auth=login, timeout=60)
            assert reply.status_code == 409, reply.text[:500]
            assert re.search(r"not as they were recorded: \d+-\d+\.", reply.json()["error"]["message"])
        rest = httpx.get(f"{url}/exports/responses.csv?damaged=leave_out", auth=login, timeout=60)
        assert len(rows_of(rest.raise_for_status().content)) == confirmed - 1
        # It does not end the learning, either.
        program.wait_until_ready()
        assert any("damaged answer left out" in line for line in program.log)
        verified = program.run("verify")
        assert verified.returncode == 1
        assert re.search(r"damaged: 1 damaged answers: \d+-\d+", verified.stdout)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_after_the_supervisor_is_killed_the_next_one_serves(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    program.start()
    program.launch_text("again", SPEC)
    program.wait_until_ready()
    seconds: list[float] = []
    for number in range(KILLS):
        children = program.tree()[1:]
        program.kill_supervisor()
        started = time.monotonic()
        program.start()
        with Answering(program, "again", f"p{number}") as participant:
            participant.one()
        seconds.append(time.monotonic() - started)
        poll(lambda children=children: not any(map(is_alive, children)), "the orphans to end")
    sys.stderr.write(f"kill of the supervisor to the first answer, s: {sorted(round(each, 2) for each in seconds)}\n")
    assert program.stop() == 0
