"""The noise-scale policy against small and large constant batches: time to a target, and the cost of monitors.

    python -m benchmarks.training.noise_scale [--seeds 5]

The linear network to 1.05 times the least test loss, and digits to a test loss of 0.15, with two ranks on one core and a constant
learning rate, as in Mai et al. (2019, 3.2).
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
from benchmarks.training.problems import digits, linear_network
from salmon.training import FollowNoiseScale, GradientVariance, NoiseScale, SmoothedLoss, VirtualGroup, fit
from salmon.training.groups import VirtualRanks
from salmon.training.loop import initial_state
from salmon.training.steps import Steps

#: problem -> (factory, target, smallest batch, largest batch, optimiser).
RACES: dict[str, Any] = {
    "linear network": (linear_network, lambda p: 1.05 * p.least[1], 32, 2048, partial(torch.optim.SGD, lr=2.5e-3)),
    "digits": (digits, lambda _: 0.15, 16, 512, partial(torch.optim.SGD, lr=0.5)),
}


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
    # Steps that measure and steps that do not have separate medians, which are robust against other work on the machine.
    added = [np.median((with_them - without)[phase::phases]) for phase in range(phases)]
    return float(np.mean(added) / np.median(without))


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    torch.set_num_threads(1)
    report = Report(
        "Noise scale",
        ("problem", "method", "reached", "seconds", "updates", "epochs", "last_batch", "sooner_than_best"),
    )
    panels = []
    for name, (make, target, small, large, optimizer) in RACES.items():
        curves, medians = {}, {}
        for method, chosen in options(small, large).items():
            ends, reached = [], 0
            for seed in range(given.seeds):
                problem = make(seed)
                goal = target(problem)
                history = fit(
                    problem.fresh(), problem.train, optimizer, VirtualGroup(2), loss=problem.loss, epochs=40 if name != "digits" else 150,
                    seed=seed, watch=problem.judge, watch_every=5, until=lambda row, goal=goal: row.get("test_loss", np.inf) <= goal,
                    **chosen,
                ).history  # fmt: skip
                last = history.rows[-1]
                # Two ranks end with the exchange after the one in which the target was reached.
                reached += bool((history.select_measured("test_loss")[0] <= goal).any())
                ends.append((last["seconds"], last["step"], last["epoch"], history["batch_size"].max()))
                if seed == 0:
                    losses, places = history.select_measured("test_loss")
                    curves[method] = thin(history["seconds"][places].tolist(), losses.tolist())
            medians[method] = np.median(ends, axis=0)
            seconds, updates, epochs, batch = (float(each) for each in medians[method])
            constants = [found[0] for each, found in medians.items() if each != "noise scale"]
            report.add(
                problem=name, method=method, reached=f"{reached}/{given.seeds}", seconds=seconds, updates=updates, epochs=epochs,
                last_batch=batch, sooner_than_best=f"{1 - seconds / min(constants):.0%}" if method == "noise scale" else None,
            )  # fmt: skip
        panels.append(
            {
                "curves": curves,
                "xlabel": "seconds",
                "ylabel": "test loss",
                "xscale": "log",
                "yscale": "log",
                "title": name,
            }
        )
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
