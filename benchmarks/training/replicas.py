"""Crossbow: throughput and epochs to a target with 1, 2, 4 and 8 replicas, and the number that is chosen automatically.

    python -m benchmarks.training.replicas [--seeds 5]

A small network on digits, with batches of 16 for each replica, on one core.
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import digits
from salmon.training import Crossbow, fit
from salmon.training.batch_size import ConstantBatch
from salmon.training.loop import choose_replicas, measure_throughput
from salmon.training.state import TrainingJob

BATCH, TARGET = 16, 0.97
COUNTS = (1, 2, 4, 8, 16, 24, 32)
RATES = (0.05, 0.2)


def optimizer(rate: float) -> Any:
    """Return SGD with momentum."""
    return partial(torch.optim.SGD, lr=rate, momentum=0.9)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    torch.set_num_threads(1)
    problems = [digits(seed) for seed in range(given.seeds)]
    first = problems[0]
    # Throughput is measured on twenty copies of the data, so that even 32 replicas have full batches.
    data = tuple(each.repeat(20, *([1] * (each.ndim - 1))) for each in first.train)
    job = TrainingJob(first.fresh(), optimizer(RATES[0]), first.loss, 1.0, ConstantBatch(BATCH), Crossbow(1))
    report = Report(
        "Crossbow on digits", ("rate", "replicas", "examples_s", "times_one", "epochs", "seconds", "times_sooner")
    )
    rates = {count: [] for count in COUNTS}
    for _ in range(5):
        for count, found in rates.items():
            found.append(measure_throughput(job, data, count))
    speeds = {count: float(np.median(found)) for count, found in rates.items()}
    curves = {}
    for rate in RATES:
        raced = []
        for count in COUNTS[:4]:
            ends = []
            for seed, problem in enumerate(problems):
                history = fit(
                    problem.fresh(), problem.train, optimizer(rate), loss=problem.loss, epochs=60, batch_size=BATCH,
                    averaging=Crossbow(count), seed=seed, watch=problem.judge, watch_every=5,
                    until=lambda row: row.get("test_accuracy", 0.0) >= TARGET,
                ).history  # fmt: skip
                ends.append((history.rows[-1]["epoch"], history.rows[-1]["seconds"]))
            raced.append(np.median(ends, axis=0))
            report.add(
                rate=rate, replicas=count, examples_s=speeds[count], times_one=speeds[count] / speeds[1],
                epochs=float(raced[-1][0]), seconds=float(raced[-1][1]), times_sooner=float(raced[0][1] / raced[-1][1]),
            )  # fmt: skip
        curves[f"learning rate {rate}"] = list(COUNTS[:4]), [float(each[0]) for each in raced]
    for count in COUNTS[4:]:
        report.add(replicas=count, examples_s=speeds[count], times_one=speeds[count] / speeds[1])
    shares, chosen = [], []
    for _ in range(7):
        chosen.append(choose_replicas(job, data))
        # All are measured at the same time, as throughput varies between minutes on a shared machine.
        now = {count: measure_throughput(job, data, count) for count in (*COUNTS, chosen[-1])}
        shares.append(now[chosen[-1]] / max(now.values()))
    report.note(
        f"Numbers chosen automatically in {len(chosen)} trials: {chosen}; their throughput is {np.median(shares):.0%} (median; range "
        f"{min(shares):.0%} to {max(shares):.0%}) of the best of {', '.join(map(str, COUNTS))} measured at the same time."
    )
    report.note(f"Target: {TARGET:.0%} of the test digits. Medians over {given.seeds} seeds.")
    finish(
        report, "replicas",
        [
            {"curves": {"measured": (list(COUNTS), list(speeds.values()))}, "marks": "o", "xlabel": "replicas", "ylabel": "examples per second"},
            {"curves": curves, "marks": "o", "xlabel": "replicas", "ylabel": f"epochs to {TARGET:.0%}", "yscale": "log"},
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
