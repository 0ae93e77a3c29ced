"""torch's own PowerSGD, half-precision and model-averaging hooks beside our compression and averaging,
to equal test loss on two ranks.

    python -m benchmarks.training.torch_hooks [--seeds 3] [--problems digits]

Two problems: digits with layers of 64, 256, 256 and 10, and the Markov chain of `benchmarks/training/new_problems.py`,
of whose problems it has the largest weight matrices. Its target, learning rates and limit were set from runs of
averaged gradients alone, before any other method was run on it.

Ranks of torch's methods are two processes with DistributedDataParallel over gloo, and their bytes are those that the
kernel counts on the sockets of the first one; ours run as two virtual ranks, whose bytes are the same as on the sockets
(`benchmarks/training/traffic.py`), and of which the half is shown. All see the same examples in the same order, start
from the same parameters, and take plain SGD steps with a total batch of 128. Every fifth step the average of both
ranks' parameters is evaluated, without counting its bytes; with torch's methods one update later than with ours. The
learning rate of each method is the one of three with which it needs the fewest updates on a seed that is not used
again.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_hooks
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from benchmarks.report import Report, arguments
from benchmarks.training.compression import wide
from benchmarks.training.figure import finish, keep_rows
from benchmarks.training.new_problems import markov_chain
from benchmarks.training.problems import CROSS_ENTROPY, Problem, digits
from benchmarks.training.processes import fork_ranks, run_ranks
from benchmarks.training.traffic import count_sent
from salmon.errors import SalmonError
from salmon.training import ADPSGD, CPSGD, QSGD, SpectralAtomo, VirtualGroup, fit
from salmon.training.compression import rounding_hook
from salmon.training.examples import open_examples

BATCH, WATCHED = 128, 5
TIMEOUT_S = 3000.0
#: Seed with which the learning rates are chosen; the measured ones count from 0.
TUNING_SEED = 1000
#: Steps with exact gradients before PowerSGD begins, which its authors recommend, and before replicas are averaged less
#: often.
WARMUP = 10


@dataclass(frozen=True)
class Race:
    """A problem, the test loss to reach, the steps after which a run has failed, and the
    learning rates that are tried.
    """

    problem: Callable[[int], Problem]
    target: float
    steps: int
    rates: tuple[float, ...]


def wide_digits(seed: int) -> Problem:
    """Return digits with layers of 64, 256, 256 and 10."""
    plain = digits(seed)
    return Problem(plain.train, plain.test, wide, CROSS_ENTROPY)


RACES = {
    "digits": Race(wide_digits, 0.15, 300, (0.4, 0.8, 0.2)),
    "Markov chain": Race(markov_chain, 3.15, 400, (1.6, 0.8, 3.2)),
}
#: Our systems -> options of fit.
OURS: dict[str, dict[str, Any]] = {
    "averaged gradients": {},
    "QSGD(4)": {"compression": QSGD(4)},
    "QSGD(8)": {"compression": QSGD(8)},
    "SpectralAtomo(2, bits=4)": {"compression": SpectralAtomo(2, bits=4)},
    "CPSGD(8)": {"averaging": CPSGD(8)},
    "ADPSGD": {"averaging": ADPSGD(sampling_steps=50)},
}


def power_sgd(seed: int, rank: int, exact: int = WARMUP) -> tuple[Any, Any]:
    """Return the state and the hook of PowerSGD with error feedback, after some steps with exact gradients."""
    state = power_hooks.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=exact, min_compression_rate=1, random_seed=seed
    )
    return state, power_hooks.powerSGD_hook


def post_local(start: int) -> tuple[Any, Any]:
    """Return the state and the hook of post-local SGD: exact gradients at first, then none."""
    state = local_hooks.PostLocalSGDState(None, None, start, post_local_gradient_allreduce=False)
    return state, local_hooks.post_localSGD_hook


#: torch's methods -> (function of the seed that makes state and hook or None, makes an averager or None).
THEIRS: dict[str, tuple[Any, Any]] = {
    "DistributedDataParallel": (None, None),
    "PowerSGD, rank 1": (partial(power_sgd, rank=1), None),
    "PowerSGD, rank 2": (partial(power_sgd, rank=2), None),
    # torch takes no fewer with error feedback.
    "PowerSGD, rank 1, 2 exact steps": (partial(power_sgd, rank=1, exact=2), None),
    "PowerSGD, rank 2, 2 exact steps": (partial(power_sgd, rank=2, exact=2), None),
    "fp16_compress_hook": (lambda _seed: (None, default_hooks.fp16_compress_hook), None),
    "PeriodicModelAverager(8)": (lambda _seed: post_local(0), partial(PeriodicModelAverager, 8)),
    "post-local SGD, 8": (lambda _seed: post_local(WARMUP), partial(PeriodicModelAverager, 8, warmup_steps=WARMUP)),
    # Ours, too, but as a hook of DistributedDataParallel.
    "rounding_hook(8)": (lambda seed: (None, rounding_hook(8, seed=seed)), None),
}


Ends = list[tuple[float, ...] | None]


def measure(race: Race, run: Callable[..., tuple[float, ...] | None], seeds: int) -> tuple[float | None, Ends]:
    """Return the learning rate with which a method needs the fewest updates, and what it needs with it on each seed."""
    chosen, most = None, race.steps
    for rate in race.rates:
        # A run that needs more updates than another learning rate is not finished.
        found = run(race, rate, TUNING_SEED, most)
        if found and found[0] <= most:
            chosen, most = rate, int(found[0])
    if chosen is None:
        return None, [None] * seeds
    return chosen, [run(race, chosen, seed, race.steps) for seed in range(seeds)]


def run_ours(race: Race, rate: float, seed: int, most: int, *, options: dict[str, Any]) -> tuple[float, ...] | None:
    """Return (updates, epochs, agreements, bytes) to the target, or None after `most` updates."""
    problem = race.problem(seed)
    epochs = most * BATCH / len(problem.train[0])
    try:
        history = fit(
            problem.fresh(), problem.train, partial(torch.optim.SGD, lr=rate), VirtualGroup(2), loss=problem.loss, batch_size=BATCH,
            epochs=epochs, seed=seed, watch=problem.judge, watch_every=WATCHED, until=lambda row: row.get("test_loss", np.inf) <= race.target,
            **options,
        ).history  # fmt: skip
    except SalmonError:
        return None
    losses, places = history.select_measured("test_loss")
    below = np.flatnonzero(losses <= race.target)
    if not len(below):
        return None
    row = history.rows[places[below[0]]]
    return row["step"], row["epoch"], row["synchronisations"], row["bytes_sent"] / 2


def run_theirs(
    race: Race, rate: float, seed: int, most: int, *, method: str, rank: int, port: int, kept: list[Any]
) -> tuple[float, ...] | None:
    """Return (updates, epochs, agreements, bytes that this rank sent) to the target, or None after `most` updates."""
    problem = race.problem(seed)
    make_hook, make_averager = THEIRS[method]
    module: nn.Module = nn.parallel.DistributedDataParallel(problem.fresh())
    if make_hook is not None:
        module.register_comm_hook(*make_hook(seed))
    averager = None if make_averager is None else make_averager()
    kept.append(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    examples = open_examples(problem.train, seed, range(rank, rank + 1), 2, 1)
    epoch = position = sent = agreements = 0
    before = count_sent(port)
    for step in range(1, most + 1):
        size = min(BATCH, examples.count - position)
        batch, _ = examples.draw(epoch, position, size)
        optimizer.zero_grad()
        # Halves of a batch may differ by one example; the hooks average over ranks.
        losses = problem.loss(module(*(part[0] for part in batch[:-1])), batch[-1][0])
        (losses.sum() * 2 / (size * losses[0].numel())).backward()
        optimizer.step()
        due = averager is None or averager.step < averager.warmup_steps
        if averager is not None:
            due = due or (averager.step - averager.warmup_steps) % averager.period == 0
            averager.average_parameters(module.parameters())
        agreements += due
        position += size
        if position >= examples.count:
            epoch, position = epoch + 1, 0
        if (step - 1) % WATCHED == 0:
            sent += count_sent(port) - before
            loss = judge_average(module, problem)
            before = count_sent(port)
            if not np.isfinite(loss):
                return None
            if loss <= race.target:
                return step, epoch + position / examples.count, agreements, sent
    return None


def judge_average(module: Any, problem: Problem) -> float:
    """Return the test loss of the average of both ranks' parameters, which is the same number on both."""
    flat = nn.utils.parameters_to_vector(module.parameters()).detach()
    dist.all_reduce(flat)
    average = problem.fresh()
    nn.utils.vector_to_parameters(flat / 2, average.parameters())
    with torch.no_grad():
        return problem.judge(average)["test_loss"]


def run_rank(rank: int, size: int, port: int, name: str, seeds: int, kept: list[Any]) -> list[Any]:
    """Train all of torch's methods on one problem as one rank; return (problem, method, rate, figures of each seed)."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=TIMEOUT_S)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
    found: list[Any] = []
    for method in THEIRS:
        run = partial(run_theirs, method=method, rank=rank, port=port, kept=kept)
        found.append((name, method, *measure(RACES[name], run, seeds)))
        if not rank:
            print(*found[-1], flush=True)
    dist.barrier()
    return found


def measure_theirs(name: str, seeds: int) -> list[Any]:
    """Return what the first of two ranks has found, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = "--problems", name, "--seeds", str(seeds)
        return run_ranks("benchmarks.training.torch_hooks", (2,), *options, folder=folder, timeout_s=TIMEOUT_S)[0][0]


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0],
        seeds={"type": int, "default": 3},
        problems={"nargs": "+", "choices": list(RACES), "default": list(RACES)},
        groups={"type": json.loads},
        folder={"type": Path},
    )
    torch.set_num_threads(1)
    if given.groups is not None:
        # torch occasionally hangs while it destroys a model with a hook: all are kept until the process ends.
        run = partial(run_rank, name=given.problems[0], seeds=given.seeds, kept=[])
        fork_ranks(given.groups, given.folder, run)
    columns = (
        "problem",
        "method",
        "rate",
        "reached",
        "updates",
        "epochs",
        "agreements",
        "kilobytes",
        "updates_share",
        "share",
    )
    report = Report("torch's hooks beside ours", columns)
    keep_rows(report, "torch_hooks", given.problems)
    for name in given.problems:
        runs = measure_theirs(name, given.seeds)
        runs += [
            (name, method, *measure(RACES[name], partial(run_ours, options=options), given.seeds))
            for method, options in OURS.items()
        ]
        add_rows(report, name, runs, given.seeds)
        report.rows.sort(key=lambda row: list(RACES).index(row["problem"]))
        report.notes.clear()
        report.note(
            f"Medians over {given.seeds} seeds; bytes that one of two ranks sends. Plain SGD, a total batch of {BATCH}; to test losses of "
            + " and ".join(
                f"{RACES[each].target:g} ({each})" for each in dict.fromkeys(row["problem"] for row in report.rows)
            )
            + f". PowerSGD and post-local SGD send exact gradients in the first {WARMUP} steps where nothing else is said."
        )
        finish(
            report,
            "torch_hooks",
            [panel(report.rows, each) for each in dict.fromkeys(row["problem"] for row in report.rows)],
        )


def add_rows(report: Report, name: str, runs: list[Any], seeds: int) -> None:
    """Add a row for each method, relative to averaged gradients; infinite figures count as the largest."""
    found: dict[str, tuple[float | None, Ends]] = {method: (rate, ends) for _, method, rate, ends in runs}
    dense = middle_of(found["averaged gradients"][1])
    for method in (*OURS, *THEIRS):
        rate, ends = found[method]
        updates, epochs, agreements, sent = middle_of(ends)
        shown = {} if np.isinf(updates) else {
            "updates": updates, "epochs": epochs, "agreements": agreements, "kilobytes": sent / 1e3,
            "updates_share": updates / dense[0], "share": sent / dense[3],
        }  # fmt: skip
        report.add(
            problem=name, method=method, rate=rate, reached=f"{sum(map(bool, ends))}/{seeds}", of_torch=method in THEIRS and not method.startswith("rounding_hook"), **shown
        )  # fmt: skip


def middle_of(ends: Ends) -> list[float]:
    """Return the median of each figure; a run that did not reach the target counts as infinite."""
    return [float(each) for each in np.median([end or (np.inf,) * 4 for end in ends], axis=0)]


def panel(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a panel of updates against kilobytes; methods that did not reach the target have
    no point, but keep their colour.
    """
    raced = [row for row in rows if row["problem"] == name]
    points = {
        row["method"]: [[row[key]] if "updates" in row else [] for key in ("kilobytes", "updates")] for row in raced
    }
    return {
        "curves": points,
        "marks": "o", "xscale": "log", "xlabel": "kilobytes to the target", "ylabel": "updates", "title": name,
    }  # fmt: skip


if __name__ == "__main__":
    main()
