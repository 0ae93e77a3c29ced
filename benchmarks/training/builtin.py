"""torch's own ways to send less, beside ours: PowerSGD and averaging by periods, to a test loss, in bytes on the sockets.

    python -m benchmarks.training.builtin [--seeds 5]

Two processes connected by gloo train digits with layers of 64, 256, 256 and 10. DistributedDataParallel takes the built-in communication
hooks; PeriodicModelAverager averages the parameters of two models that train apart. The same batches and the same learning rates are tried
for all.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from benchmarks.report import Report, arguments
from benchmarks.training.compression import wide
from benchmarks.training.figure import finish
from benchmarks.training.problems import digits
from benchmarks.training.traffic import count_sent
from salmon.training import QSGD, SpectralAtomo, compression_hook
from salmon.training.examples import ShuffledOrder
from salmon.training.groups import open_store

TARGET, BATCH, LIMIT, WATCH = 0.15, 128, 600, 5
RATES = (0.1, 0.2, 0.4, 0.8)
TIMEOUT_S = 900.0
METHODS = (
    "all-reduce",
    "float16",
    "PowerSGD, rank 1",
    "PowerSGD, rank 2",
    "averaged every 8 steps",
    "QSGD, 4 bits",
    "spectral ATOMO, 2, 4 bits",
)


def hook_of(method: str, seed: int) -> tuple[Any, Any]:
    """Return the state of a communication hook, and the hook; None is the built-in all-reduce."""
    if method == "float16":
        return None, default_hooks.fp16_compress_hook
    if method.startswith("PowerSGD"):
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=int(method[-1]), start_powerSGD_iter=2, random_seed=seed
        )
        return state, powerSGD_hook.powerSGD_hook
    codes = {"QSGD, 4 bits": QSGD(4), "spectral ATOMO, 2, 4 bits": SpectralAtomo(2, bits=4)}
    return (None, compression_hook(codes[method], seed=seed)) if method in codes else (None, None)


def train(method: str, rate: float, seed: int, rank: int, port: int) -> tuple[int, int, float]:
    """Return (steps, bytes that this rank has sent, seconds) until the target; steps are the limit if it is not reached."""
    problem, module = digits(seed), wide()
    model = torch.nn.parallel.DistributedDataParallel(module) if method != "averaged every 8 steps" else module
    state, hook = hook_of(method, seed)
    if hook is not None:
        model.register_comm_hook(state, hook)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    averager = PeriodicModelAverager(period=8) if method == "averaged every 8 steps" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    examples = len(problem.train[0])
    steps_per_epoch = examples // BATCH
    sent, seconds = 0, 0.0
    for step in range(LIMIT):
        order = ShuffledOrder(examples, [seed, step // steps_per_epoch])
        start = step % steps_per_epoch * BATCH + rank * BATCH // 2
        chosen = torch.from_numpy(order.part(start, start + BATCH // 2))
        before, started = count_sent(port), time.perf_counter()
        optimizer.zero_grad()
        loss = problem.loss(model(problem.train[0][chosen]), problem.train[1][chosen]).mean()
        loss.backward()
        optimizer.step()
        if averager is not None:
            averager.average_parameters(model.parameters())
        sent, seconds = sent + count_sent(port) - before, seconds + time.perf_counter() - started
        if step % WATCH == 0:
            judged = torch.tensor([problem.judge(module)["test_loss"]])
            # Averaged models differ between two agreements: both must stop at the same step.
            dist.all_reduce(judged)
            if not torch.isfinite(judged) or float(judged) / 2 <= TARGET:
                return (step + 1 if torch.isfinite(judged) else LIMIT), sent, seconds
    return LIMIT, sent, seconds


def run_rank(rank: int, port: int, seeds: int, folder: Path) -> None:
    """Train with all methods, rates and seeds as one rank, and write what it has sent."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=TIMEOUT_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timeout)
    found = [
        (method, rate, seed, *train(method, rate, seed, rank, port))
        for method in METHODS
        for rate in RATES
        for seed in range(seeds)
    ]
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    # torch sometimes hangs while it destroys a model with a hook in Python.
    os._exit(0)


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0], seeds={"type": int, "default": 5}, port={"type": int}, rank={"type": int}, folder={"type": Path}
    )  # fmt: skip
    if given.port is not None:
        run_rank(given.rank, given.port, given.seeds, given.folder)
    store = open_store("127.0.0.1", TIMEOUT_S)
    with tempfile.TemporaryDirectory() as folder:
        start = partial(subprocess.Popen, env={**os.environ, "OMP_NUM_THREADS": "1"})
        common = (sys.executable, "-m", "benchmarks.training.builtin", "--port", str(store.port), "--folder", folder)
        running = [start((*common, "--rank", str(rank), "--seeds", str(given.seeds))) for rank in (0, 1)]
        try:
            statuses = [each.wait() for each in running]
            if any(statuses):
                raise SystemExit("A rank failed.")
        finally:
            for each in running:
                if each.returncode is None:
                    each.send_signal(signal.SIGKILL)
        ranks = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in (0, 1)]
    report = Report("torch's own methods", ("method", "rate", "reached", "steps", "kilobytes", "bytes_step", "seconds"))
    for method in METHODS:
        runs = {
            rate: [
                (one[3], one[4] + two[4], max(one[5], two[5]))
                for one, two in zip(*ranks, strict=True)
                if one[0] == method and one[1] == rate
            ]
            for rate in RATES
        }
        middle = {rate: np.median(found, axis=0) for rate, found in runs.items()}
        rate = min(middle, key=lambda each: (sum(run[0] >= LIMIT for run in runs[each]), middle[each][1]))
        steps, sent, seconds = (float(each) for each in middle[rate])
        reached = sum(run[0] < LIMIT for run in runs[rate])
        report.add(
            method=method, rate=rate, reached=f"{reached}/{given.seeds}", steps=steps, kilobytes=sent / 1e3, bytes_step=sent / steps,
            seconds=seconds,
        )  # fmt: skip
    report.note(
        f"To a test loss of {TARGET}, batches of {BATCH}; medians over {given.seeds} seeds. The rate of each is the one of "
        f"{', '.join(map(str, RATES))} with the fewest bytes at which the most seeds reached it. Bytes are those of both sockets."
    )
    finish(
        report, "builtin",
        [{"curves": {row["method"]: ([row["kilobytes"]], [row["seconds"]]) for row in report.rows}, "marks": "o", "xlabel": "kilobytes",
          "ylabel": "seconds on loopback", "xscale": "log", "yscale": "log"}],
    )  # fmt: skip


if __name__ == "__main__":
    main()
