"""Start the ranks of a measurement, each in a process of its own, and read what they have found.

A benchmark that measures processes is started again as `python -m MODULE --groups … --folder …`. That process forks
into the ranks of one group after the other, so that torch is imported only once; each of them writes what it has found
into the folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from salmon.training.groups import open_store


def run_ranks(module: str, sizes: Sequence[int], *options: str, folder: str, timeout_s: float) -> list[list[Any]]:
    """Start a benchmark again with these options, and return what the ranks of each
    group have found, in their order.
    """
    stores = [open_store("127.0.0.1", timeout_s) for _ in sizes]
    groups = json.dumps([(size, store.port) for size, store in zip(sizes, stores, strict=True)])
    command = (sys.executable, "-m", module, "--groups", groups, "--folder", folder, *options)
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True) as running:
        try:
            if running.wait(timeout=timeout_s):
                raise SystemExit("A rank failed.")
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
    return [[json.loads((Path(folder) / f"{size}-{rank}.json").read_text()) for rank in range(size)] for size in sizes]


def fork_ranks(groups: Sequence[tuple[int, int]], folder: Path, run: Callable[[int, int, int], Any]) -> NoReturn:
    """Write what `run(rank, size, port)` returns for the ranks of each group (size, port), and
    end: with an error if one fails.
    """
    for size, port in groups:
        children: list[int] = []
        for rank in range(size):
            # Forking is safe, because this process never starts a thread.
            if not (child := os.fork()):
                (folder / f"{size}-{rank}.json").write_text(json.dumps(run(rank, size, port)))
                os._exit(0)  # without ending torch's threads, which occasionally hangs
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
        if failed:
            os._exit(1)
    os._exit(0)
