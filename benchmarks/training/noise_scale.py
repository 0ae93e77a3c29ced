"""The noise-scale policy against small and large constant batches: time to a target, and what monitors cost.

    python -m benchmarks.training.noise_scale [--seeds 5]

The linear network to 1.05 times the least test loss, and digits to a test loss of .15, with two ranks on one core and a constant
step size, as Mai et al. (2019, 3.2) fix it.
"""

import time
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, thinned
from benchmarks.training.problems import digits, linear_network
from salmon.distributed import FollowNoiseScale, GradientVariance, NoiseScale, SmoothedLoss, VirtualGroup, fit
from salmon.distributed.group import VirtualRanks
from salmon.distributed.loop import started
from salmon.distributed.steps import Steps

#: problem -> (how to make it, target, smallest batch, largest batch, optimiser).
RACES: dict[str, Any] = {
    "linear network": (linear_network, lambda p: 1.05 * p.least[1], 32, 2048, partial(torch.optim.SGD, lr=2.5e-3)),
    "digits": (digits, lambda _: 0.15, 16, 512, partial(torch.optim.SGD, lr=0.5)),
}


def options(small: int, large: int) -> dict[str, dict[str, Any]]:
    """Name -> options of fit."""
    return {
        f"constant {small}": {"batch_size": small},
        f"constant {large}": {"batch_size": large},
        "noise scale": {
            "batch_size": small,
            "monitors": [NoiseScale(0.9)],
            "policies": [FollowNoiseScale(small, large)],
        },
    }


def cost(problem: Any, optimizer: Any, batch: int, *, every: int = 1, turns: int = 2000) -> float:
    """What all three monitors add to the processor time of a step, as a share: median differences of steps taken in turn."""
    watching = (NoiseScale(every=every), GradientVariance(every=every), SmoothedLoss(every=every))
    took: dict[bool, list[float]] = {True: [], False: []}
    runs = {}
    for watched in took:
        job = fit(
            problem.fresh(), problem.train, optimizer, VirtualGroup(2), loss=problem.loss, epochs=0.01, batch_size=batch,
            monitors=watching if watched else [],
        ).job  # fmt: skip
        runs[watched] = Steps(job, problem.train, started(job), VirtualRanks(2, 2))
    for turn in range(turns):
        for watched in (True, False) if turn % 2 else (False, True):
            steps, before = runs[watched], time.process_time()
            steps.take(steps.plan())
            took[watched].append(time.process_time() - before)
    with_them, without = np.array(took[True]), np.array(took[False])
    # A step that measures and one that does not are different steps: each has its median, which forgets other work's moments.
    added = [np.median((with_them - without)[phase::every]) for phase in range(every)]
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
                reached += last.get("test_loss", np.inf) <= goal
                ends.append((last["seconds"], last["step"], last["epoch"], history["batch_size"].max()))
                if seed == 0:
                    losses, places = history.measured("test_loss")
                    curves[method] = thinned(history["seconds"][places].tolist(), losses.tolist())
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
    for name, batch, every, turns in (
        ("linear network", 1024, 1, 500), ("digits", 128, 1, 3000), ("digits", 128, 4, 3000),
    ):  # fmt: skip
        make, _, _, _, optimizer = RACES[name]
        often = "every step" if every == 1 else f"every {every} steps"
        share = cost(make(0), optimizer, batch, every=every, turns=turns)
        report.note(
            f"All three monitors, {often}, add {share:.1%} to the processor time of a step ({name}, batch {batch})."
        )
    share = cost(digits(0, convolutions=True), partial(torch.optim.SGD, lr=0.05), 128, turns=200)
    report.note(
        f"All three monitors, every step, add {share:.1%} to the processor time of a step (digits, convolutional network, batch 128)."
    )
    report.note(f"Medians over {given.seeds} seeds.")
    finish(report, "noise_scale", panels)


if __name__ == "__main__":
    main()
