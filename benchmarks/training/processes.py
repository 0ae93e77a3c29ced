"""Start the ranks of a measurement, each in a process of its own, and read what they have found.

A benchmark that measures processes is started again as `python -m MODULE --port … --folder …`. That process forks into the ranks; each of them
writes what it has found into the folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from salmon.training.groups import open_store


def run_ranks(module: str, *options: str, folder: str, timeout_s: float) -> list[Any]:
    """Start a benchmark again with these options, and return what each of its ranks has found, in their order."""
    store = open_store("127.0.0.1", timeout_s)
    command = (sys.executable, "-m", module, "--port", str(store.port), "--folder", folder, *options)
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True) as running:
        try:
            if running.wait(timeout=timeout_s):
                raise SystemExit("A rank failed.")
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
    found = sorted(Path(folder).glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in found]


def fork_ranks(size: int, folder: Path, run: Callable[[int], Any]) -> NoReturn:
    """Fork into this many ranks, write what `run` returns for each of them, and end with an error if one of them fails."""
    # torch is imported only once; forking is safe because no thread has been started yet.
    children: list[int] = []
    for rank in range(1, size):
        if not (child := os.fork()):
            _write(folder, rank, run)
            os._exit(0)
        children.append(child)
    _write(folder, 0, run)
    failed = any(os.waitpid(child, 0)[1] for child in children)
    # Without ending torch's threads, which occasionally hangs.
    os._exit(int(failed))


def _write(folder: Path, rank: int, run: Callable[[int], Any]) -> None:
    (folder / f"{rank}.json").write_text(json.dumps(run(rank)))
