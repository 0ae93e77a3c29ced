"""Crossbow against plain SGD with the same total batch, each at its best learning rate, and the number that is chosen automatically.

    python -m benchmarks.training.replicas [--seeds 5]

A small network on digits, on one core: m replicas with batches of 16 each, against one model with batches of 16 m.
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import digits
from salmon.errors import SalmonError
from salmon.training import Crossbow, VirtualGroup, fit
from salmon.training.batch_size import ConstantBatch
from salmon.training.loop import choose_replicas
from salmon.training.state import TrainingJob

BATCH, TARGET, LIMIT = 16, 0.97, 60
COUNTS = (1, 2, 4, 8)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
TRIALS = 5


def optimizer(rate: float) -> Any:
    """Return SGD with momentum."""
    return partial(torch.optim.SGD, lr=rate, momentum=0.9)


def race(problem: Any, rate: float, seed: int, options: dict[str, Any]) -> tuple[float, float, float]:
    """Return (epochs, updates, seconds) to the target; infinite if it is not reached."""
    try:
        history = fit(
            problem.fresh(), problem.train, optimizer(rate), loss=problem.loss, epochs=LIMIT, seed=seed, watch=problem.judge,
            watch_every=3, until=lambda row: row.get("test_accuracy", 0.0) >= TARGET, **options,
        ).history  # fmt: skip
    except SalmonError:
        return np.inf, np.inf, np.inf
    last = history.rows[-1]
    if last.get("test_accuracy", 0.0) < TARGET:
        return np.inf, np.inf, np.inf
    return last["epoch"], last["step"], last["seconds"]


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    torch.set_num_threads(1)
    problems = [digits(seed) for seed in range(given.seeds)]
    report = Report(
        "Crossbow on digits",
        ("total_batch", "method", "rate", "epochs", "updates", "seconds", "times_sgd", "epochs_sgd"),
    )
    curves: dict[str, Any] = {"one model": [], "Crossbow": []}
    for count in COUNTS:
        base = (np.inf, np.inf, np.inf)
        for method, options in (
            ("one model", {"batch_size": BATCH * count}),
            ("Crossbow", {"batch_size": BATCH, "averaging": Crossbow(count)}),
        ):
            medians = {
                rate: np.median([race(problem, rate, seed, options) for seed, problem in enumerate(problems)], axis=0)
                for rate in RATES
            }
            rate = min(medians, key=lambda each: (medians[each][0], medians[each][2]))
            epochs, updates, seconds = (float(each) for each in medians[rate])
            base = (epochs, updates, seconds) if method == "one model" else base
            report.add(
                total_batch=BATCH * count, replicas=count, method=method, rate=rate, epochs=epochs, updates=updates, seconds=seconds,
                times_sgd=seconds / base[2], epochs_sgd=epochs / base[0],
            )  # fmt: skip
            curves[method].append(epochs)
    raced = [row for row in report.rows if row["method"] == "Crossbow" and row["replicas"] > 1]
    won = [row["total_batch"] for row in raced if row["epochs_sgd"] < 0.95]
    lost = [row["total_batch"] for row in raced if row["epochs_sgd"] > 1.05]
    report.note(
        f"In epochs, Crossbow wins at total batches {won or 'none'} and loses at {lost or 'none'}; differences below 5 % count as neither."
    )
    for rate in (0.05, 0.2):
        job = TrainingJob(
            problems[0].fresh(), optimizer(rate), problems[0].loss, 20.0, ConstantBatch(BATCH), Crossbow()
        )
        chosen = [choose_replicas(job, problem.train, VirtualGroup()) for problem in problems[:TRIALS]]
        report.note(f"Replicas chosen by time to the target of a trial at learning rate {rate}: {chosen}.")
    report.note(
        f"Target: {TARGET:.0%} of the test digits, watched every three steps. Medians over {given.seeds} seeds; the learning rate of each is the "
        f"best of {', '.join(map(str, RATES))} in epochs."
    )
    finish(
        report, "replicas",
        [
            {"curves": {name: ([BATCH * count for count in COUNTS], found) for name, found in curves.items()}, "marks": "o",
             "xlabel": "total batch", "ylabel": f"epochs to {TARGET:.0%}", "xscale": "log"},
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
