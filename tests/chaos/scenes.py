"""What is done to the running program, scene by scene: each has a data directory, people and a ledger of its own.

A scene keeps people answering while its faults happen one after another; at the end everybody comes to rest, and the
ledger is compared with what is stored.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from salmon.cli.append_only_file import FOLDER, MANIFEST
from salmon.cli.data_directory import DataDirectory
from tests.chaos.ledger import Comparison, Ledger, compare
from tests.chaos.people import People
from tests.crash.test_operation import held_full
from tests.program import REPOSITORY, Program

TRIALS = 40
SPEC = f"targets: 30\nhtml: {{max_queries: {TRIALS}}}\nsamplers: {{Adaptive: {{}}, Random: {{}}}}\n"
#: After this time without an acknowledged answer the program has not recovered.
LONGEST_RECOVERY = 90.0
#: What is killed, and how often of 20 times.
KILLED = {"frontend": 5, "backend": 4, "redis": 4, "worker": 2, "supervisor": 3, "all": 2}


@dataclass
class Fault:
    """One injected fault: seconds until the first acknowledged answer that was sent after
    it, and until a new process ran.
    """

    kind: str
    recovery: float
    replaced: float | None = None


@dataclass
class Scene:
    """One running program, its people, and what was done to it."""

    name: str
    program: Program
    people: People
    chance: random.Random
    login: tuple[str, str] = ("", "")
    faults: list[Fault] = field(default_factory=list[Fault])
    notes: list[str] = field(default_factory=list[str])
    secrets: list[str] = field(default_factory=list[str])
    comparison: Comparison | None = None

    @property
    def ledger(self) -> Ledger:
        """What the people were told."""
        return self.people.ledger

    async def inject(
        self, kind: str, act: Callable[[], Awaitable[Any]], *, replaced: str = "", lasting: bool = False
    ) -> None:
        """Do something, and wait until an answer that was sent afterwards is acknowledged.

        The clock starts with the deed, or where that is `lasting` with its end. It may return a task that starts the
        program again. `replaced` is a child of the supervisor that has to be replaced by another process.
        """
        old, began = self.pid_of(replaced), time.monotonic()
        restarting = await act()
        if lasting:
            began = time.monotonic()
        async with asyncio.timeout(LONGEST_RECOVERY):
            recovery = await self.ledger.next_acknowledged(began) - began
            seconds = None
            if replaced:
                while self.pid_of(replaced) in {0, old}:
                    await asyncio.sleep(0.05)
                seconds = time.monotonic() - began
            if isinstance(restarting, asyncio.Task):
                await restarting
        self.faults.append(Fault(kind, recovery, seconds))
        print(f"{len(self.faults)}. {kind}: {recovery:.2f} s", flush=True)  # noqa: T201 - a run takes half an hour

    def pid_of(self, name: str) -> int:
        """Return the process that the supervisor runs under this name; 0 where none runs."""
        try:
            return self.program.child(name).pid
        except (psutil.NoSuchProcess, OSError, ValueError):
            return 0

    async def until_running(self, name: str) -> None:
        """Wait until the supervisor has replaced the process that was killed before."""
        async with asyncio.timeout(LONGEST_RECOVERY):
            while not self.pid_of(name):
                await asyncio.sleep(0.02)

    async def restart(self) -> None:
        """Start the program again, as a system's own service manager does."""
        await asyncio.to_thread(self.program.start)

    async def until_ready(self) -> None:
        """Wait until the backend is there again, too."""
        async with httpx.AsyncClient(base_url=self.program.address) as client, asyncio.timeout(LONGEST_RECOVERY):
            while True:
                try:
                    if (await client.get("/readyz")).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.1)


@asynccontextmanager
async def scene(
    name: str,
    folder: Path,
    *,
    people: int,
    seed: int,
    environment: dict[str, str] | None = None,
    spec: Path | None = None,
    trials: int = TRIALS,
) -> AsyncGenerator[Scene]:
    """Run the program with people on it while the block injects faults; compare afterwards."""
    slug = spec.parent.name if spec else "chaos"
    program = Program(folder / "data", environment=environment or {})
    await asyncio.to_thread(program.start)
    program.port = int(program.address.rpartition(":")[2])
    try:
        login = await asyncio.to_thread(program.add_user)
        await (asyncio.to_thread(program.launch, spec) if spec else asyncio.to_thread(program.launch_text, slug, SPEC))
        ledger = Ledger()
        crowd = People(program.address, slug, ledger, seed, trials=trials)
        made = Scene(name, program, crowd, random.Random(seed), login)
        made.secrets.append(DataDirectory(program.data).credentials().secret)
        living = asyncio.create_task(crowd.live(people))
        await ledger.next_acknowledged(time.monotonic())
        await made.until_ready()
        yield made
        crowd.ending.set()
        async with asyncio.timeout(LONGEST_RECOVERY):
            await living
        await made.until_ready()
        exported = await asyncio.to_thread(program.export, slug, "responses.csv", login)
        made.comparison = await compare(ledger, program.data, slug, exported, made.secrets)
        made.notes += failures_in(program.log)
    finally:
        if program.running:
            await asyncio.to_thread(program.stop)


def failures_in(log: list[str]) -> list[str]:
    """Return what the program logged of errors that it has no sentence for, each with its traceback."""
    places = [number for number, line in enumerate(log) if "request failed" in line]
    return ["\n".join(log[number : number + 40]) for number in places[:5]]


async def kill(at: Scene, kind: str) -> None:
    """Kill -9 one of the processes, or all."""
    program = at.program

    async def act() -> asyncio.Task[None] | None:
        if kind == "all":
            await asyncio.to_thread(program.kill)
        elif kind == "supervisor":
            await asyncio.to_thread(program.kill_supervisor)
        elif kind == "worker":
            at.chance.choice(workers_of(program)).kill()
        else:
            program.child(kind).kill()
        return asyncio.create_task(at.restart()) if kind in {"all", "supervisor"} else None

    if kind not in {"all", "supervisor", "worker"}:
        await at.until_running(kind)
    await at.inject(f"kill -9: {kind}", act)


async def kill_many(at: Scene, times: int, *, seconds: float = 600.0) -> None:
    """Kill one process after another, sometimes before the last one has come back, for so long at the most."""
    deadline = time.monotonic() + seconds
    kinds, often = list(KILLED), list(KILLED.values())
    for number in range(times):
        if time.monotonic() > deadline:
            return
        kind = kinds[number] if number < len(kinds) else at.chance.choices(kinds, often)[0]
        if kind == "worker" or at.chance.random() < 0.5:
            await at.until_ready()
        if kind == "worker" and not workers_of(at.program):
            kind = "backend"
        await kill(at, kind)
        await asyncio.sleep(at.chance.uniform(0.0, 2.0))


def workers_of(program: Program) -> list[psutil.Process]:
    """Return the Dask workers of the backend."""
    found = program.child("backend").children(recursive=True)
    return [process for process in found if "spawn_main" in " ".join(process.cmdline())]


async def hang(at: Scene, kind: str) -> None:
    """Stop a process with SIGSTOP: it lives, and does nothing."""
    await at.until_ready()
    if kind == "supervisor":
        process = at.program.tree()[0]

        async def pause() -> None:
            process.send_signal(signal.SIGSTOP)
            asyncio.get_running_loop().call_later(5.0, process.send_signal, signal.SIGCONT)

        await at.inject("SIGSTOP for 5 s: supervisor", pause)
        await asyncio.sleep(6.0)
        return
    process = at.program.child(kind)

    async def stop() -> None:
        process.send_signal(signal.SIGSTOP)

    await at.inject(f"SIGSTOP: {kind}", stop, replaced=kind)


async def terminate(at: Scene) -> None:
    """Ask the web process to end (SIGTERM) while requests are under way."""

    async def act() -> None:
        at.program.child("frontend").terminate()

    await at.until_ready()
    # The old process still answers while it ends.
    await at.inject("SIGTERM in requests: frontend", act, replaced="frontend")


async def starve(at: Scene, seconds: float = 8.0) -> None:
    """Leave the web process not one descriptor more than it has, for a while."""
    await at.until_ready()
    process = at.program.child("frontend")
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)

    async def act() -> None:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (process.num_fds(), before[1]))
        await asyncio.sleep(seconds)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)

    await at.inject(f"no descriptor left for {seconds:g} s: frontend", act, lasting=True)


async def fill_disk(at: Scene, disk: Path, seconds: float) -> None:
    """Hold the disk full for a while; the recovery counts from the moment at which there is room again."""

    async def act() -> None:
        with held_full(disk):
            await asyncio.sleep(seconds)

    await at.inject(f"disk full for {seconds:g} s", act, lasting=True)


async def make_read_only(at: Scene, disk: Path) -> None:
    """Start on a read-only disk, which is refused with a sentence; then it is writable again."""
    program = at.program

    async def act() -> asyncio.Task[None]:
        await asyncio.to_thread(program.kill)
        subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
        refused = await asyncio.to_thread(program.run, "serve", "--port", "0")
        subprocess.run(("mount", "-o", "remount,rw", str(disk)), check=True)
        at.notes.append(f"on a read-only disk: {refused.stderr.strip().splitlines()[-1]}")
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        return asyncio.create_task(at.restart())

    await at.inject("read-only disk, then kill -9: all", act)


async def damage(at: Scene, kind: str, change: Callable[[Path], Awaitable[None] | None]) -> None:
    """Kill everything, damage the store's last append-only file, and start again."""

    async def act() -> asyncio.Task[None]:
        await asyncio.to_thread(at.program.kill)
        file = max((at.program.data / "redis" / FOLDER).glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
        waiting = change(file)
        if waiting is not None:
            await waiting
        return asyncio.create_task(at.restart())

    await at.inject(f"{kind}, then kill -9: all", act)


async def refuse_without_manifest(at: Scene, file: Path) -> None:
    """Start without the list of files, which is refused; then with it."""
    listed = file.parent / MANIFEST
    content = listed.read_bytes()
    listed.unlink()
    refused = await asyncio.to_thread(at.program.run, "serve", "--port", "0")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    at.notes.append(f"without its list of files: {refused.stderr.strip().splitlines()[0]}")
    listed.write_bytes(content)


async def damage_all(at: Scene) -> None:
    """Damage the append-only file in each way that a power cut or a hand can."""

    def append(content: bytes) -> Callable[[Path], None]:
        def change(file: Path) -> None:
            with file.open("ab") as opened:
                opened.write(content)

        return change

    def halve(file: Path) -> None:
        """Append the first half of the last command again: a write that was cut short."""
        content = file.read_bytes()
        last = content.rfind(b"\r\n*") + 2
        with file.open("ab") as opened:
            opened.write(content[last : last + (len(content) - last) // 2])

    await damage(at, "half a command at the end", halve)
    await damage(at, "4 kB of zeros at the end", append(bytes(4096)))
    await damage(at, "no list of files", lambda file: refuse_without_manifest(at, file))


async def flip_byte(at: Scene) -> None:
    """Change the winner of one answer on disk: the export refuses and names it; then the file is restored."""
    kept = at.program.data.parent / "before.aof"

    def flip(file: Path) -> None:
        shutil.copyfile(file, kept)
        content = bytearray(file.read_bytes())
        place = content.find(b"$6\r\nwinner\r\n$1\r\n")
        assert place > 0
        content[place + 16] ^= 1
        file.write_bytes(content)

    await damage(at, "one flipped byte of an answer", flip)
    url = f"{at.program.address}/api/experiments/{at.people.slug}/exports/responses.csv"
    async with httpx.AsyncClient(timeout=60) as client:
        reply = await client.get(url, auth=at.login)
    assert reply.status_code == 409, reply.text[:300]
    at.notes.append(f"one flipped byte: {reply.json()['error']['message'][:120]}")

    def restore(file: Path) -> None:
        """Put the byte back where it was; what was appended since stays."""
        content, whole = bytearray(file.read_bytes()), kept.read_bytes()
        content[: len(whole)] = whole
        file.write_bytes(content)

    await damage(at, "the byte is put back", restore)


async def lose_credentials(at: Scene) -> None:
    """Remove the file of secrets: every participant opens the link again, and no acknowledged answer goes."""

    async def act() -> asyncio.Task[None]:
        await asyncio.to_thread(at.program.kill)
        (at.program.data / "credentials.json").unlink()
        at.secrets.append(DataDirectory(at.program.data).credentials().secret)
        return asyncio.create_task(at.restart())

    await at.inject("credentials.json lost, then kill -9: all", act)


async def lose_media(at: Scene) -> None:
    """Remove a target's file: answers go on, the bundle is written and names it."""

    async def act() -> None:
        next((at.program.data / "media").glob("*.*")).unlink()

    await at.inject("a medium is missing", act)
    url = f"{at.program.address}/api/experiments/{at.people.slug}/bundle"
    async with httpx.AsyncClient(timeout=60) as client:
        (await client.get(url, auth=at.login)).raise_for_status()
    at.notes.append("a medium is missing: the bundle was written all the same")


def build_shim(folder: Path, name: str = "unsynced") -> Path | None:
    """Compile the library that drops what is not synced, or another of this folder; None if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / f"{name}.so"
    source = REPOSITORY / "tests" / "chaos" / f"{name}.c"
    subprocess.run((compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"), check=True)
    return library


@asynccontextmanager
async def small_disk(path: Path, megabytes: int) -> AsyncGenerator[Path | None]:
    """Yield a file system of its own, or None where this user may not mount one."""
    path.mkdir(parents=True)
    command = ("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path))
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(("umount", "-l", str(path)), check=True)


def load_average() -> str:
    """Return the load of the machine, because every time depends on it."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def quantiles(seconds: Sequence[float]) -> str:
    """Return the median and the worst of some times."""
    return f"{statistics.median(seconds):.2f} / {max(seconds):.2f}"
