"""Start the programs of one Salmon, keep them running, and stop them all together.

A program that dies is started again after a pause that doubles each time; after a minute of running, earlier deaths
are forgotten. `pause_before`, a pure function, decides what to do next; the rest carries it out.
"""

import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from salmon.errors import StartError
from salmon.logs import fields
from salmon.parent_watch import SUPERVISED

log = logging.getLogger("salmon.supervisor")

#: A program that ran this long has proved itself: its earlier deaths are forgotten.
PROVED_SECONDS = 60.0
#: The longest pause between two starts.
LONGEST_PAUSE_SECONDS = 30.0
#: The last lines of a program's standard output, shown if it dies.
LINES_KEPT = 20
#: How long a program may take to stop before it is ended at once.
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Program:
    """One program: how it is started, and what it prints on standard output when it is ready."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ready: str = "ready"
    wait_for_ready: bool = False


@dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    started: float
    deaths: int = 0
    announced: str | None = None
    restart_at: float | None = None
    said: deque[str] = field(default_factory=lambda: deque[str](maxlen=LINES_KEPT))


@dataclass(frozen=True)
class _Event:
    child: str
    pid: int
    line: str | None = None


def pause_before(deaths: int, lived_seconds: float) -> tuple[int, float]:
    """Return (deaths counted so far, seconds to wait) for a program that has just died after `lived_seconds`."""
    counted = 1 if lived_seconds >= PROVED_SECONDS else deaths + 1
    return counted, min(LONGEST_PAUSE_SECONDS, 0.25 * 2 ** (counted - 1))


@dataclass
class Supervisor:
    """Starts programs in the order given and stops them in the opposite order."""

    running: Path
    _children: dict[str, _Child] = field(default_factory=dict[str, _Child])
    _events: queue.SimpleQueue[_Event | None] = field(default_factory=queue.SimpleQueue[_Event | None])
    #: Whether `stop` was called.
    stopping: bool = False

    def stop_orphans(self) -> None:
        """Stop what an earlier supervisor of this directory started and could not stop."""
        for path in sorted(self.running.glob("*.pid")):
            pid, _, command = path.read_text().partition("\n")
            if pid.isdigit() and command and _command_of(int(pid)) == command:
                log.warning("orphan stopped", extra=fields(program=path.stem, pid=pid))
                _stop(int(pid))
            path.unlink(missing_ok=True)

    def start(self, program: Program, *, timeout_seconds: float = 60.0) -> None:
        """Start a program and, if it announces when it is ready, wait for that."""
        child = self._spawn(program, deaths=0)
        self._children[program.name] = child
        deadline = time.monotonic() + timeout_seconds
        while program.wait_for_ready and child.announced is None:
            self._take_event(max(0.0, deadline - time.monotonic()))
            if child.process.poll() is not None and child.announced is None:
                raise StartError(
                    f"The program {program.name} ended with code {child.process.returncode} before it was ready.",
                    hint="The lines above say why.",
                )
            if time.monotonic() > deadline:
                raise StartError(f"The program {program.name} was not ready after {timeout_seconds:g} seconds.")

    def announced(self, name: str) -> str | None:
        """Return what a program printed when it became ready, or None if it is not ready yet."""
        return self._children[name].announced

    def amend(self, name: str, environment: Mapping[str, str]) -> None:
        """Set variables with which a program is started the next time."""
        child = self._children[name]
        child.program = replace(child.program, environment={**child.program.environment, **environment})

    def watch(self) -> None:
        """Keep everything running until `stop` is called (from a signal handler, for example)."""
        while not self.stopping:
            self._take_event(self._seconds_to_next_restart())
            self._restart_due()

    def stop(self) -> None:
        """Ask `watch` to return; safe inside a signal handler, because putting into a SimpleQueue is reentrant."""
        self.stopping = True
        self._events.put(None)

    def shut_down(self) -> None:
        """Stop everything, the last started first."""
        for name, child in reversed(self._children.items()):
            if child.process.poll() is None:
                child.process.terminate()
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
        # Replaced at once: a reader never finds half a file.
        written = self.running / f"{program.name}.new"
        written.write_text(f"{process.pid}\n{' '.join(program.command)}")
        written.replace(self.running / f"{program.name}.pid")
        reader = threading.Thread(target=self._read, args=(program.name, process), daemon=True)
        reader.start()
        return _Child(program, process, reader, started=time.monotonic(), deaths=deaths)

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None and process.stdin is not None:
            with process.stdin, process.stdout as output:
                for line in output:
                    self._events.put(_Event(name, process.pid, line.decode(errors="replace").rstrip()))
        process.wait()
        self._events.put(_Event(name, process.pid))

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
        if event.line is None:
            self._note_death(child)
        elif child.program.ready in event.line and child.announced is None:
            child.announced = event.line.partition(child.program.ready)[2].strip()
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
        for line in child.said:
            log.error("last words", extra=fields(program=child.program.name, line=line))
        lived = time.monotonic() - child.started
        child.deaths, pause = pause_before(child.deaths, lived)
        child.restart_at = time.monotonic() + pause
        log.error(
            "program died",
            extra=fields(
                program=child.program.name,
                code=child.process.returncode,
                lived_seconds=round(lived, 1),
                restart_in_seconds=pause,
            ),
        )

    def _seconds_to_next_restart(self) -> float | None:
        due = [child.restart_at for child in self._children.values() if child.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _restart_due(self) -> None:
        for name, child in list(self._children.items()):
            if child.restart_at is not None and child.restart_at <= time.monotonic():
                self._children[name] = self._spawn(child.program, deaths=child.deaths)
                log.info("program restarted", extra=fields(program=name, deaths=child.deaths))


def _command_of(pid: int) -> str | None:
    """Return the command line of a running process, as the system reports it, words separated by single spaces."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").replace("\0", " ") or None
        )
    shown = subprocess.run(("ps", "-o", "command=", "-p", str(pid)), capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def _stop(pid: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    os.kill(pid, signal.SIGTERM)
    while _command_of(pid) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)
