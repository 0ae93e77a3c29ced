"""The real program as a process: started on a free port and its own data directory, watched, killed."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import psutil

REPOSITORY = Path(__file__).parent.parent
START_SECONDS = 60
ADDRESS = re.compile(r"Salmon is running at (\S+)")
INVITATION = re.compile(r"invitation=(\S+)")


@dataclass
class Program:
    """`salmon serve` on one data directory while a `with` block runs; `start` may be called again after `kill`.

    `options` are more of its options, and `repository` is the checkout that runs.
    """

    data: Path
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    repository: Path = REPOSITORY
    port: int = 0
    address: str = ""
    invitation: str = ""
    log: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    def start(self) -> Self:
        """Start it and wait until it says where it is."""
        command = (sys.executable, "-m", "salmon", "serve", "--port", str(self.port), "--data", str(self.data))
        self._process = subprocess.Popen(
            (*command, *self.options),
            cwd=self.repository,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process, lines), daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        said_where = False
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            if found := ADDRESS.search(line):
                self.address = found[1].replace("localhost", "127.0.0.1")
                said_where = True
            if found := INVITATION.search(line):
                self.invitation = found[1]
            if said_where and not line.strip():
                return self
        raise AssertionError("The program did not start. It said:\n" + "\n".join(self.log))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0, "\n".join(self.log)

    def tree(self) -> list[psutil.Process]:
        """The supervisor and everything it started."""
        assert self._process is not None
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def child(self, name: str) -> psutil.Process:
        """One of the programs it supervises, by name."""
        return psutil.Process(int((self.data / "running" / f"{name}.pid").read_text().partition("\n")[0]))

    def kill(self) -> None:
        """kill -9 of the whole tree: nobody gets to say goodbye."""
        processes = self.tree()
        for process in processes:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=10)
        self._close()

    def kill_supervisor(self) -> None:
        """kill -9 of the supervisor alone; what its children still print is read on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> int:
        """Ctrl-C, and the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self._close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """A command of the command line on this data directory."""
        return subprocess.run(
            (sys.executable, "-m", "salmon", *arguments, "--data", str(self.data)),
            cwd=self.repository,
            env={**os.environ, **self.environment},
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def launch(self, spec: Path, *options: str) -> str:
        """Put an experiment on it; the address for participants."""
        done = self.run("launch", str(spec), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()[-1].replace("localhost", "127.0.0.1")

    def launch_text(self, name: str, text: str, *options: str) -> str:
        """The same with an experiment that is written as a text."""
        spec = self.data.parent / f"{name}.yaml"
        spec.write_text(text)
        return self.launch(spec, *options)

    def add_user(self, name: str = "ada", password: str = "correct horse") -> tuple[str, str]:
        """An experimenter's account, for HTTP Basic."""
        done = self.run("user", "add", name, text=password + "\n")
        assert done.returncode == 0, done.stderr
        return name, password

    def export(self, slug: str, name: str, login: tuple[str, str]) -> bytes:
        """A file of an experiment, as its experimenter downloads it."""
        url = f"{self.address}/api/experiments/{slug}/exports/{name}"
        return httpx.get(url, auth=login, timeout=60).raise_for_status().content

    def wait_until_ready(self) -> None:
        """Until the backend's heartbeat is there too."""
        poll(lambda: httpx.get(f"{self.address}/readyz").status_code == 200, "the program to be ready")

    def _close(self) -> int:
        """Wait for the end, and for the reader to have read all of it."""
        assert self._process is not None
        code = self._process.wait(30)
        assert self._reader is not None
        self._reader.join(10)
        return code

    def _read(self, process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self.log.append(line.rstrip())
                lines.put(line)
        lines.put(None)


def poll(condition: object, what: str, *, seconds: float = 30.0) -> None:
    """Ask again and again until something is so; the only way tests wait for another process."""
    deadline = time.monotonic() + seconds
    asking = threading.Event()
    while True:
        try:
            if condition():  # type: ignore[operator]
                return
        except (httpx.TransportError, OSError, psutil.NoSuchProcess):
            pass
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        asking.wait(0.02)
