"""What `salmon doctor` looks at on the machine itself: versions, memory, and the disk of the data directory."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from frontend.doctor.outside import Finding
from salmon.cli.redis_server import find_server
from salmon.errors import StartError

#: Free memory that the learning process and its workers need for some hundred targets.
_MEMORY_MB = 1000
#: Free space below which an experiment with pictures may not fit.
_DISK_MB = 2000
#: Times for one write to the disk: above the first, answers wait noticeably; above the second, they queue.
_SLOW_MS, _TOO_SLOW_MS = 20.0, 200.0
_WRITES = 15
_OLDEST_STORE = (7, 0)
_OLDEST_TORCH = 2


def examine_machine(data: Path) -> list[Finding]:
    """Return what there is to say about the machine that a data directory lies on."""
    return [_python(), *_torch(), _store(), *_memory(), *_disk(data), *_secrets(data)]


def _python() -> Finding:
    return Finding("python", "ok", f"Python {sys.version.split()[0]}.")


def _torch() -> Iterator[Finding]:
    try:
        found = version("torch")
    except PackageNotFoundError:
        yield Finding(
            "torch",
            "warning",
            "PyTorch is not installed, so no embedding can be fitted here.",
            "That is right on a machine for web processes alone. Elsewhere: requirements/install serve",
        )
        return
    if int(found.partition(".")[0]) < _OLDEST_TORCH:
        yield Finding("torch", "problem", f"PyTorch {found} is too old.", "requirements/install serve")
    else:
        yield Finding("torch", "ok", f"PyTorch {found}.")


def _store() -> Finding:
    if os.environ.get("SALMON_REDIS_URL"):
        return Finding("store", "ok", "SALMON_REDIS_URL names a store of your own.")
    try:
        program = find_server()
        said = subprocess.run(  # noqa: S603 - the program that the server starts
            (program, "--version"), capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (StartError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("store", "problem", f"The store's program does not run: {error}", "Install valkey or redis.")
    found = re.search(r"(\w+) server v=(\d+)\.(\d+)\S*", said)
    if found is None:
        return Finding("store", "warning", f"{program} does not say its version.")
    name = f"{found[1]} {found[2]}.{found[3]}"
    if (int(found[2]), int(found[3])) < _OLDEST_STORE:
        return Finding("store", "problem", f"{name} is too old.", "Install Redis 7.0 or newer, or Valkey.")
    return Finding("store", "ok", f"{name}.")


def _memory() -> Iterator[Finding]:
    with suppress(OSError, ValueError):
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free_mb = int(lines["MemAvailable"].split()[0]) / 1024
        if free_mb < _MEMORY_MB:
            yield Finding(
                "memory",
                "warning",
                f"{free_mb:,.0f} MB of memory are available.",
                f"The learning process and its workers need about {_MEMORY_MB:,} MB.",
            )
        else:
            yield Finding("memory", "ok", f"{free_mb:,.0f} MB of memory are available.")


def _disk(data: Path) -> Iterator[Finding]:
    free_mb = shutil.disk_usage(data).free / 1e6
    if free_mb < _DISK_MB:
        level = "problem" if free_mb < _DISK_MB / 10 else "warning"
        yield Finding(
            "disk",
            level,
            f"The disk of {data} has {free_mb:,.0f} MB left.",
            "Free some space: no answer is confirmed while the disk is full.",
        )
    else:
        yield Finding("disk", "ok", f"The disk of {data} has {free_mb:,.0f} MB left.")
    try:
        typical_ms = measure_writes(data)
    except OSError as error:
        yield Finding(
            "fsync",
            "problem",
            f"Nothing can be written to {data}: {error.strerror or error}.",
            "Let the user that runs Salmon own the data directory.",
        )
        return
    said = f"Writing to the disk takes {typical_ms:.1f} ms; every answer is on disk before it is confirmed."
    if typical_ms > _SLOW_MS:
        yield Finding(
            "fsync",
            "problem" if typical_ms > _TOO_SLOW_MS else "warning",
            said,
            "Put the data directory on a local solid-state disk, not on a network share or a memory card.",
        )
    else:
        yield Finding("fsync", "ok", said)


def measure_writes(folder: Path) -> float:
    """Return the median time that a small write takes until it is on the disk of a folder, in milliseconds."""
    path = folder / f".doctor-{os.getpid()}"
    times: list[float] = []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(_WRITES):
                began = time.perf_counter()
                file.write(b"\0" * 512)
                os.fsync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
    finally:
        path.unlink(missing_ok=True)
    return statistics.median(times)


def _secrets(data: Path) -> Iterator[Finding]:
    path = data / "credentials.json"
    if path.is_file() and path.stat().st_mode & 0o077:
        yield Finding(
            "secrets",
            "problem",
            f"Other users of this machine can read {path}: whoever reads it can forge logins and answers.",
            f"chmod 600 {path}",
        )
