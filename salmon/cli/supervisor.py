"""Start the programs of one Salmon, keep them running, and stop them all together.

A program that dies is started again after a pause that doubles each time; after ten seconds of running, earlier deaths
are forgotten. While the disk is full the pause stays short, so that everything is back soon after there is room. A
program that gives no sign of life for a while is killed and started again. `pause_before` and `is_hung`, pure
functions, decide what to do next; the rest carries it out.
"""

import asyncio
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from salmon.errors import StartError
from salmon.logs import fields
from salmon.parent_watch import SUPERVISED, cause_line

log = logging.getLogger("salmon.supervisor")

#: A program that ran this long has proved itself: its earlier deaths are forgotten.
PROVED_SECONDS = 10.0
#: The longest pause between two starts.
LONGEST_PAUSE_SECONDS = 30.0
#: The last lines of a program's standard output, which tell why it died, and how many of them are logged then, without
#: its banner.
LINES_KEPT = 20
LAST_WORDS = 5
#: How long a program may take to stop before it is ended at once.
STOP_SECONDS = 10.0
#: How long an orphan may take that asks to be stopped gently: what it has confirmed is on disk in any case.
ORPHAN_SECONDS = 1.0
#: The pause before a start while the disk is full, and the free space below which it is.
FULL_DISK_PAUSE_SECONDS = 2.0
FULL_DISK_BYTES = 4_000_000
#: What the system says, and the store itself when it gets no memory, and what that means.
_CAUSES = {
    "No space left on device": "disk full",
    "Disk quota exceeded": "disk quota used up",
    "Input/output error": "input/output error",
    "Read-only file system": "read-only file system",
    "Cannot allocate memory": "out of memory",
    "Out Of Memory": "out of memory",
}
_FULL = frozenset({"disk full", "disk quota used up", "no inodes left"})
#: How often a program is probed, how long a probe may take, and after which silence a program is taken to hang.
PROBE_EVERY_SECONDS = 2.0
PROBE_SECONDS = 3.0
HUNG_SECONDS = 15.0
#: How long a program that is started again may take until it is ready.
START_SECONDS = 300.0
#: Differences between two clocks from which this process, or the whole machine, must have been stopped for a while.
_STOPPED_SECONDS = 5.0


@dataclass(frozen=True)
class Program:
    """One program: how it is started, and what it prints on standard output when it is ready."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ready: str = "ready"
    wait_for_ready: bool = False
    #: Return whether the program, which printed this when it was ready, responds; it may take `PROBE_SECONDS`. A
    #: program without a probe prints lines that begin with `alive` instead.
    probe: Callable[[str], bool] | None = None
    alive: str = ""


@dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    started: float
    deaths: int = 0
    announced: str | None = None
    heard: float = 0.0
    restart_at: float | None = None
    said: deque[str] = field(default_factory=lambda: deque[str](maxlen=LINES_KEPT))


@dataclass(frozen=True)
class _Event:
    child: str
    pid: int
    line: str | None = None
    alive: bool = False


def pause_before(deaths: int, lived_seconds: float, *, disk_full: bool = False) -> tuple[int, float]:
    """Return (deaths counted so far, seconds to wait) for a program that has just died after `lived_seconds`.

    Deaths on a full disk are not counted: they say nothing about the program.
    """
    if disk_full:
        return deaths, FULL_DISK_PAUSE_SECONDS
    counted = 1 if lived_seconds >= PROVED_SECONDS else deaths + 1
    return counted, min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** (counted - 1))


def cause_of(said: Iterable[str], *, free_bytes: int, free_inodes: int) -> str:
    """Return why a program has died, as its last lines and the disk tell; "" if they do not.

    A disk without inodes fails in the same words as a full one. A number that the system does not say is -1.
    """
    words = [cause for line in said for word, cause in _CAUSES.items() if word in line]
    cause = words[-1] if words else "disk full" if 0 <= free_bytes < FULL_DISK_BYTES else ""
    return "no inodes left" if cause == "disk full" and free_inodes == 0 and free_bytes >= FULL_DISK_BYTES else cause


def responds(address: Path, request: bytes) -> bool:
    """Return whether something at a unix socket sends a line in reply to a request, in time."""

    async def ask() -> bool:
        reader, writer = await asyncio.open_unix_connection(address)
        try:
            writer.write(request)
            return bool(await reader.readline())
        finally:
            writer.close()

    try:
        return asyncio.run(asyncio.wait_for(ask(), PROBE_SECONDS))
    except (OSError, ValueError):  # a time-out is an OSError, too
        return False


def heard_after(heard: float, now: float, *, late_seconds: float) -> float:
    """Return when a program counts as heard last, after this process itself has not listened for so long.

    Nobody could be heard meanwhile, but what was silent before stays silent: on a busy machine this process is late
    again and again, and a program that hangs must be found all the same.
    """
    return min(now, heard + max(0.0, late_seconds - PROBE_EVERY_SECONDS))


def is_hung(program: Program, *, ready: bool, silent_seconds: float) -> bool:
    """Return whether a program has been silent for so long that it must hang."""
    if not ready:
        return silent_seconds > START_SECONDS
    return (program.probe is not None or bool(program.alive)) and silent_seconds > HUNG_SECONDS


@dataclass
class Supervisor:
    """Starts programs in the order given and stops them in the opposite order."""

    running: Path
    #: (seconds since some moment, Unix time): when they part, the machine was suspended or its clock was set.
    clocks: Callable[[], tuple[float, float]] = lambda: (time.monotonic(), time.time())
    _children: dict[str, _Child] = field(default_factory=dict[str, _Child])
    _events: queue.SimpleQueue[_Event | None] = field(default_factory=queue.SimpleQueue[_Event | None])
    #: Whether `stop` was called.
    stopping: bool = False
    #: Why programs that do not run at the moment have died, as far as it is known.
    _causes: dict[str, str] = field(default_factory=dict[str, str])
    _looked: tuple[float, float] = (0.0, 0.0)

    def stop_orphans(self, gentle: Iterable[str] = ()) -> None:
        """End, all at once, what an earlier supervisor of this directory started and could not stop.

        They are killed with the processes that they started; those called `gentle` are asked to stop first.
        """
        paths = sorted(self.running.glob("*.pid"))
        orphans: dict[str, int] = {}
        for path in paths:
            pid, _, command = path.read_text(errors="replace").partition("\n")
            if pid.isdigit() and command and _command_of(int(pid)) == command.rstrip("\n"):
                orphans[path.stem] = int(pid)
        for name, pid in orphans.items():
            log.warning("orphan stopped", extra=fields(program=name, pid=pid))
            _send(pid, signal.SIGTERM if name in set(gentle) else signal.SIGKILL)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (left := [pid for pid in orphans.values() if _command_of(pid) is not None]) and (
            time.monotonic() < deadline + STOP_SECONDS
        ):
            if time.monotonic() > deadline:
                for pid in left:
                    _send(pid, signal.SIGKILL)
            time.sleep(0.01)
        for path in paths:
            path.unlink(missing_ok=True)

    def start(self, *programs: Program, timeout_seconds: float = 60.0) -> None:
        """Start programs at the same time, and wait for those that announce when they are ready."""
        waiting = {program.name: self._spawn(program, deaths=0) for program in programs}
        self._children |= waiting
        deadline = time.monotonic() + timeout_seconds
        while left := [child for child in waiting.values() if child.program.wait_for_ready and child.announced is None]:
            self._take_event(max(0.0, deadline - time.monotonic()))
            for child in left:
                name, code = child.program.name, child.process.poll()
                if code is not None and child.announced is None:
                    self._take_last_words(child)
                    cause = f": {self._causes[name]}" if self._causes.get(name) else ""
                    raise StartError(
                        f"The program {name} ended with code {code} before it was ready{cause}.",
                        hint="The lines above say why.",
                    )
                if time.monotonic() > deadline:
                    raise StartError(f"The program {name} was not ready after {timeout_seconds:g} seconds.")

    def announced(self, name: str) -> str | None:
        """Return what a program printed when it became ready, or None if it is not ready yet."""
        return self._children[name].announced

    def amend(self, name: str, environment: Mapping[str, str]) -> None:
        """Set variables with which a program is started the next time."""
        child = self._children[name]
        child.program = replace(child.program, environment={**child.program.environment, **environment})

    def watch(self) -> None:
        """Keep everything running until `stop` is called (from a signal handler, for example)."""
        self._looked = self.clocks()
        while not self.stopping:
            self._take_event(self._seconds_to_next_restart())
            self._restart_due()
            self._kill_hung()

    def stop(self) -> None:
        """Ask `watch` to return; safe inside a signal handler, because putting into a SimpleQueue is reentrant."""
        self.stopping = True
        self._events.put(None)

    def shut_down(self) -> None:
        """Stop everything, the last started first."""
        for name, child in reversed(self._children.items()):
            if child.process.poll() is None:
                child.process.terminate()
                _send(child.process.pid, signal.SIGCONT)  # a stopped process would not notice
                try:
                    child.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    log.warning("program killed", extra=fields(program=name, after_seconds=STOP_SECONDS))
                    child.process.kill()
                    child.process.wait()
            child.reader.join(STOP_SECONDS)
            (self.running / f"{name}.pid").unlink(missing_ok=True)

    def _spawn(self, program: Program, deaths: int) -> _Child:
        process = subprocess.Popen(
            program.command,
            env={**os.environ, **program.environment, SUPERVISED: "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the rest in order
        )
        self._note_pid(program, process.pid)
        reader = threading.Thread(target=self._read, args=(program.name, process), daemon=True)
        reader.start()
        now = time.monotonic()
        child = _Child(program, process, reader, started=now, heard=now, deaths=deaths)
        for name, cause in self._causes.items():
            _write_cause(child, name, cause)
        return child

    def _note_pid(self, program: Program, pid: int) -> None:
        """Write down which process this is, for the supervisor that comes after this one."""
        path = self.running / f"{program.name}.pid"
        text = f"{pid}\n{' '.join(program.command)}\n"
        try:
            # Replaced at once: a reader never finds half a file.
            written = path.with_suffix(".new")
            written.write_text(text)
            written.replace(path)
        except OSError as error:
            log.error("process id not written", extra=fields(program=program.name, error=error.strerror or str(error)))
            # On a full disk, the old text can still be overwritten where it lies.
            with suppress(OSError), path.open("r+") as file:
                file.write(text)
                file.truncate()

    def _probe(self, child: _Child, probe: Callable[[str], bool]) -> None:
        """The thread that probes one process for as long as it lives."""
        while child.process.returncode is None and not self.stopping:
            if probe(child.announced or ""):
                self._events.put(_Event(child.program.name, child.process.pid, alive=True))
            time.sleep(PROBE_EVERY_SECONDS)

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None and process.stdin is not None:
            with process.stdin, process.stdout as output:
                for line in output:
                    self._events.put(_Event(name, process.pid, line.decode(errors="replace").rstrip()))
        process.wait()
        self._events.put(_Event(name, process.pid))

    def _take_last_words(self, child: _Child) -> None:
        """Take the events up to the death of a program that has ended."""
        deadline = time.monotonic() + STOP_SECONDS
        while not self.stopping and child.restart_at is None and (left := deadline - time.monotonic()) > 0:
            self._take_event(left)

    def _take_event(self, timeout_seconds: float | None) -> None:
        try:
            event = self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return
        if event is None:
            return
        child = self._children.get(event.child)
        if child is None or child.process.pid != event.pid:
            return
        if event.alive:
            child.heard = time.monotonic()
        elif event.line is None:
            self._note_death(child)
        elif child.program.alive and event.line == child.program.alive:
            child.heard = time.monotonic()
        elif child.program.ready in event.line and child.announced is None:
            child.announced = event.line.partition(child.program.ready)[2].strip()
            self._tell(event.child, "")
            child.heard = time.monotonic()
            if child.program.probe is not None:
                threading.Thread(target=self._probe, args=(child, child.program.probe), daemon=True).start()
            log.info(
                "program ready",
                extra=fields(program=event.child, seconds=round(time.monotonic() - child.started, 3)),
            )
        else:
            child.said.append(event.line)
            log.debug("program says", extra=fields(program=event.child, line=event.line))

    def _note_death(self, child: _Child) -> None:
        if self.stopping:
            return
        if child.said:  # in one event, because equal ones are damped
            log.error(
                "last words", extra=fields(program=child.program.name, lines=" | ".join(list(child.said)[-LAST_WORDS:]))
            )
        lived = time.monotonic() - child.started
        cause = self._cause_of(child)
        child.deaths, pause = pause_before(child.deaths, lived, disk_full=cause in _FULL)
        child.restart_at = time.monotonic() + pause
        log.error(
            "program died",
            extra=fields(
                program=child.program.name,
                code=child.process.returncode,
                **({"cause": cause} if cause else {}),
                lived_seconds=round(lived, 1),
                restart_in_seconds=pause,
            ),
        )
        self._tell(child.program.name, cause)

    def _cause_of(self, child: _Child) -> str:
        free_bytes = free_inodes = -1
        with suppress(OSError):
            disk = os.statvfs(self.running)
            free_bytes, free_inodes = disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else -1
        return cause_of(child.said, free_bytes=free_bytes, free_inodes=free_inodes)

    def _tell(self, program: str, cause: str) -> None:
        """Note why a program does not run, or that it runs, and tell those that read it, if that is new to them."""
        if self._causes.get(program, "") != cause:
            self._causes[program] = cause
            for child in self._children.values():
                _write_cause(child, program, cause)

    def _kill_hung(self) -> None:
        """Kill every program that has been silent for too long; its death is then noticed like any other."""
        (ran, clock), (ran_before, clock_before) = self.clocks(), self._looked
        self._looked = ran, clock
        passed = ran - ran_before
        suspended = abs(clock - clock_before - passed) > _STOPPED_SECONDS
        if suspended or passed > _STOPPED_SECONDS:
            now = time.monotonic()
            for child in self._children.values():
                child.heard = now if suspended else heard_after(child.heard, now, late_seconds=passed)
            return
        for name, child in self._children.items():
            if child.restart_at is not None or child.process.returncode is not None:
                continue
            silent = time.monotonic() - child.heard
            if is_hung(child.program, ready=child.announced is not None, silent_seconds=silent):
                log.error("program hangs, killed", extra=fields(program=name, silent_seconds=round(silent, 1)))
                child.heard = time.monotonic()
                _send(child.process.pid, signal.SIGKILL)

    def _seconds_to_next_restart(self) -> float:
        """Return how long to wait for an event: until the next restart, but not longer than between two probes."""
        due = [child.restart_at for child in self._children.values() if child.restart_at is not None]
        return max(0.0, min([PROBE_EVERY_SECONDS, *(each - time.monotonic() for each in due)]))

    def _restart_due(self) -> None:
        for name, child in list(self._children.items()):
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                try:
                    self._children[name] = self._spawn(child.program, deaths=child.deaths)
                except OSError as error:  # no memory or no descriptors at the moment
                    log.error("program not started", extra=fields(program=name, error=error.strerror or str(error)))
                    child.restart_at = time.monotonic() + FULL_DISK_PAUSE_SECONDS
                else:
                    log.info("program restarted", extra=fields(program=name, deaths=child.deaths))


def _write_cause(child: _Child, program: str, cause: str) -> None:
    """Tell one of our own programs why another does not run; the store would not read it."""
    if child.program.alive and child.process.stdin is not None:
        with suppress(OSError, ValueError):  # it has just ended
            child.process.stdin.write(cause_line(program, cause))
            child.process.stdin.flush()


def _command_of(pid: int) -> str | None:
    """Return the command line of a running process, as the system reports it, words separated by single spaces."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").replace("\0", " ") or None
        )
    shown = subprocess.run(("ps", "-o", "command=", "-p", str(pid)), capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that this or an earlier supervisor started; a kill
    reaches all that it started, too.
    """
    with suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
