"""The noise-scale policy against small and large constant batches: time to a target, and the cost of monitors.

    python -m benchmarks.training.noise_scale [--seeds 5]

The linear network to 1.05 times the least test loss, and digits to a test loss of 0.15, with two ranks on one core and
a constant learning rate, as in Mai et al. (2019, 3.2). Seconds are those of processor time, and do not count the
evaluation of the test set.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, thin
from benchmarks.training.problems import digits, judge_on_clock, linear_network
from salmon.training import FollowNoiseScale, GradientVariance, NoiseScale, SmoothedLoss, VirtualGroup, fit
from salmon.training.groups import VirtualRanks
from salmon.training.loop import initial_state
from salmon.training.steps import Steps

#: problem -> (factory, target, smallest batch, largest batch, optimiser).
RACES: dict[str, Any] = {
    "linear network": (linear_network, lambda p: 1.05 * p.least[1], 32, 2048, partial(torch.optim.SGD, lr=2.5e-3)),
    "digits": (digits, lambda _: 0.15, 16, 512, partial(torch.optim.SGD, lr=0.5)),
}
#: problem -> epochs after which a run has failed.
EPOCHS = {"linear network": 40, "digits": 150}


def options(small: int, large: int) -> dict[str, dict[str, Any]]:
    """Return name -> options of fit."""
    return {
        f"constant {small}": {"batch_size": small},
        f"constant {large}": {"batch_size": large},
        "noise scale": {
            "batch_size": small,
            "monitors": [NoiseScale(0.9)],
            "policies": [FollowNoiseScale(small, large)],
        },
    }


def measure_cost(problem: Any, optimizer: Any, batch: int, *, every: int | None = None, turns: int = 2000) -> float:
    """Return the relative CPU time that all three monitors add to a step, from median differences of alternating steps.

    They measure at their default intervals, or every `every` steps.
    """
    watching: tuple[Any, ...] = (NoiseScale(), GradientVariance(), SmoothedLoss())
    watching = tuple(replace(each, every=every or each.every) for each in watching)
    phases = every or max(each.every for each in watching)
    took: dict[bool, list[float]] = {True: [], False: []}
    runs = {}
    for watched in took:
        job = fit(
            problem.fresh(), problem.train, optimizer, VirtualGroup(2), loss=problem.loss, epochs=0.01, batch_size=batch,
            monitors=watching if watched else [],
        ).job  # fmt: skip
        runs[watched] = Steps(job, problem.train, initial_state(job), VirtualRanks(2, 2))
    for turn in range(turns):
        for watched in (True, False) if turn % 2 else (False, True):
            steps, before = runs[watched], time.process_time()
            steps.take(steps.plan())
            took[watched].append(time.process_time() - before)
    with_them, without = np.array(took[True]), np.array(took[False])
    # Steps that measure and steps that do not have separate medians, which are robust against other work on the
    # machine.
    added = [np.median((with_them - without)[phase::phases]) for phase in range(phases)]
    return float(np.mean(added) / np.median(without))


def measure_problem(report: Report, name: str, seeds: int) -> dict[str, Any]:
    """Add a row for each method; return a panel of test loss against seconds of the first seed."""
    make, target, small, large, optimizer = RACES[name]
    methods = options(small, large)
    ends: dict[str, list[tuple[float, ...]]] = {method: [] for method in methods}
    curves = {}
    for seed in range(seeds):
        problem = make(seed)
        goal = target(problem)
        for method, chosen in methods.items():
            history = fit(
                problem.fresh(), problem.train, optimizer, VirtualGroup(2), loss=problem.loss, epochs=EPOCHS[name], seed=seed,
                watch=judge_on_clock(problem), watch_every=5, until=lambda row, goal=goal: row.get("test_loss", np.inf) <= goal, **chosen,
            ).history  # fmt: skip
            losses, places = history.select_measured("test_loss")
            below = places[losses <= goal]
            row = history.rows[below[0]] if len(below) else dict.fromkeys(history.columns, np.inf)
            ends[method].append((row["cpu_s"], row["step"], row["epoch"], history["batch_size"].max()))
            if not seed:
                curves[method] = thin(history["cpu_s"][places].tolist(), losses.tolist())
    medians = {method: [float(each) for each in np.median(found, axis=0)] for method, found in ends.items()}
    constant = min(found[0] for method, found in medians.items() if method != "noise scale")
    for method, (seconds, updates, epochs, batch) in medians.items():
        report.add(
            problem=name, method=method, reached=f"{sum(np.isfinite(each[0]) for each in ends[method])}/{seeds}", seconds=seconds,
            updates=updates, epochs=epochs, last_batch=batch,
            sooner_than_best=f"{1 - seconds / constant:.0%}" if method == "noise scale" else None,
        )  # fmt: skip
    return {
        "curves": curves, "xlabel": "seconds of processor time", "ylabel": "test loss", "xscale": "log", "yscale": "log", "title": name,
    }  # fmt: skip


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    torch.set_num_threads(1)
    report = Report(
        "Noise scale",
        ("problem", "method", "reached", "seconds", "updates", "epochs", "last_batch", "sooner_than_best"),
    )
    panels = [measure_problem(report, name, given.seeds) for name in RACES]
    small = RACES["digits"][0](0), RACES["digits"][4]
    costs: dict[str, Callable[[], float]] = {
        "every second step (linear network, batch 1024)": partial(
            measure_cost, RACES["linear network"][0](0), RACES["linear network"][4], 1024, turns=500
        ),
        "every second step (digits, batch 128)": partial(measure_cost, *small, 128, turns=3000),
        "every step (digits, batch 128)": partial(measure_cost, *small, 128, every=1, turns=3000),
        "every 4 steps (digits, batch 128)": partial(measure_cost, *small, 128, every=4, turns=3000),
        "every second step (digits, convolutional network, batch 128)": partial(
            measure_cost, digits(0, convolutions=True), partial(torch.optim.SGD, lr=0.05), 128, turns=200
        ),
    }
    for where, measured in costs.items():
        report.note(f"Monitors that measure {where} add {measured():.1%} to the CPU time of a step.")
    report.note(f"Medians over {given.seeds} seeds.")
    finish(report, "noise_scale", panels)


if __name__ == "__main__":
    main()
