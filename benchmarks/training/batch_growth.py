"""Updates and epochs to a given test loss: growing batches, their LR variants, SGD, gradient descent and AdaGrad.

    python -m benchmarks.training.batch_growth [--seeds 5]

The synthetic linear network of Sievert (2021, 3.1.4.1) with the settings of appendix B.4.1 (learning rate 2.5e-3;
AdaDamp from 2 examples, SGD with 64 and 10γ/k, AdaGrad with 64 and 0.01), to 1.02 times the test loss of the best
linear function; and digits with momentum for 30 epochs, and to a test loss of 0.15. The settings of growing batches
other than AdaDamp are not tuned further.
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, thin
from benchmarks.training.problems import Problem, digits, linear_network
from salmon.training import (
    AdaDamp,
    AdaDampLR,
    GeoDamp,
    GeoDampLR,
    InverseStep,
    PadaDamp,
    PadaDampLR,
    RadaDamp,
    RadaDampLR,
    fit,
)

RATE = 2.5e-3
NEAR = 1.02
#: Intermediate test losses, relative to the least one, and the methods compared at each.
ON_THE_WAY, COMPARED = (1.5, 1.2, 1.1, 1.05, 1.02), ("SGD", "AdaDamp", "RadaDamp")
#: The test loss at which the race on digits ends.
DIGITS_TARGET = 0.15


def linear_methods(problem: Problem) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return name -> (optimiser, options of fit)."""
    sgd, best = partial(torch.optim.SGD, lr=RATE), problem.least[0]
    rule: dict[str, Any] = {
        "AdaDamp": AdaDamp(2, optimum=best),
        "AdaDamp, initially 64": AdaDamp(64, optimum=best),
        "RadaDamp": RadaDamp(64, memory=0.9),
        "PadaDamp": PadaDamp(64, rate=4),
        "GeoDamp": GeoDamp(64, delay=0.5, factor=2),
        "AdaDampLR": AdaDampLR(64, optimum=best, dwell=10),
        "RadaDampLR": RadaDampLR(64, memory=0.9),
        "PadaDampLR": PadaDampLR(64, rate=4),
        "GeoDampLR": GeoDampLR(64, delay=0.5, factor=2),
    }
    found: dict[str, tuple[Any, dict[str, Any]]] = {name: (sgd, {"batch_size": each}) for name, each in rule.items()}
    # 10γ/k from the first step on.
    found["SGD"] = partial(torch.optim.SGD, lr=10 * RATE), {"batch_size": 64, "policies": [InverseStep(1.0)]}
    found["AdaGrad"] = partial(torch.optim.Adagrad, lr=0.01), {"batch_size": 64}
    found["gradient descent"] = sgd, {"batch_size": len(problem.train[0])}
    return found


def digit_methods() -> dict[str, Any]:
    """Return schedules of 30 epochs, shaped like the published ones of 200: a factor of 5 after 9, 18 and 27 epochs."""
    shape: dict[str, Any] = {"delay": 9, "factor": 5}
    return {
        "SGD (GeoDampLR)": GeoDampLR(16, **shape),
        "GeoDamp, at most 80": GeoDamp(16, maximum=80, **shape),
        "GeoDamp, at most 400": GeoDamp(16, maximum=400, **shape),
        "GeoDamp, initially 32, at most 640": GeoDamp(32, maximum=640, **shape),
        "PadaDamp": PadaDamp(16, maximum=400, rate=0.1),
        "PadaDampLR": PadaDampLR(16, rate=0.1),
        "RadaDamp": RadaDamp(16, maximum=400, memory=0.99),
        "RadaDampLR": RadaDampLR(16, memory=0.99),
    }


def race(problem: Problem, optimizer: Any, target: float, epochs: float, options: dict[str, Any]) -> Any:
    """Train until the target is reached and return the history."""
    size = options["batch_size"]
    every = 10 if isinstance(size, int) and size < 1000 else 1
    if getattr(size, "damps_rate", False):
        every = 5
    return fit(
        problem.fresh(), problem.train, optimizer, loss=problem.loss, epochs=epochs, watch=problem.judge, watch_every=every,
        until=lambda row: row.get("test_loss", np.inf) <= target, **options,
    ).history  # fmt: skip


def find_crossing(histories: list[Any], problems: list[Problem], share: float) -> tuple[float, float]:
    """Return the median (updates, epochs) at which runs first reach this multiple of the least test loss."""
    found = []
    for history, problem in zip(histories, problems, strict=True):
        losses, places = history.select_measured("test_loss")
        below = np.flatnonzero(losses <= share * problem.least[1])
        place = places[below[0]] if len(below) else -1
        found.append((history["step"][place], history["epoch"][place]))
    steps, epochs = (float(each) for each in np.median(found, axis=0))
    return steps, epochs


def on_linear_network(report: Report, seeds: int) -> list[dict[str, Any]]:
    """Measure updates and epochs to a test loss."""
    problems = [linear_network(seed) for seed in range(seeds)]
    updates, epochs, passed, base = {}, {}, {}, (0.0, 0.0)
    for method in sorted(linear_methods(problems[0]), key=lambda name: name != "SGD"):
        histories = []
        for problem in problems:
            optimizer, options = linear_methods(problem)[method]
            limit = 200.0 if method == "gradient descent" else 40.0
            histories.append(race(problem, optimizer, NEAR * problem.least[1], limit, options))
        ends = [history.rows[-1] for history in histories]
        goals = [NEAR * problem.least[1] for problem in problems]
        reached = sum(end.get("test_loss", np.inf) <= goal for end, goal in zip(ends, goals, strict=True))
        found = float(np.median([end["step"] for end in ends])), float(np.median([end["epoch"] for end in ends]))
        base = found if method == "SGD" else base
        report.add(
            problem="linear network", method=method, reached=f"{reached}/{seeds}", updates=found[0], epochs=found[1],
            largest_batch=float(np.median([history["batch_size"].max() for history in histories])),
            fewer=base[0] / found[0], more_epochs=found[1] / base[1],
        )  # fmt: skip
        if method in COMPARED:
            passed[method] = {share: find_crossing(histories, problems, share) for share in ON_THE_WAY}
        losses, places = histories[0].select_measured("test_loss")
        updates[method] = thin(histories[0]["step"][places].tolist(), losses.tolist())
        epochs[method] = thin(histories[0]["epoch"][places].tolist(), losses.tolist())
    for share in ON_THE_WAY:
        for method in COMPARED:
            steps, passes = passed[method][share]
            report.add(
                problem="linear network, on the way", method=method, share=share, updates=steps, epochs=passes,
                fewer=passed["SGD"][share][0] / steps, more_epochs=passes / passed["SGD"][share][1],
            )  # fmt: skip
    shared = {"xscale": "log", "yscale": "log", "ylabel": "test loss", "title": "linear network"}
    return [{"curves": updates, "xlabel": "updates", **shared}, {"curves": epochs, "xlabel": "epochs", **shared}]


def on_digits(report: Report, seeds: int) -> dict[str, Any]:
    """Measure updates and results of the same number of epochs."""
    curves, first = {}, 0.0
    for method, rule in digit_methods().items():
        last = []
        for seed in range(seeds):
            problem = digits(seed)
            history = fit(
                problem.fresh(), problem.train, partial(torch.optim.SGD, lr=0.05, momentum=0.9), loss=problem.loss, epochs=30,
                batch_size=rule, seed=seed, watch=problem.judge, watch_every=4,
            ).history  # fmt: skip
            losses, places = history.select_measured("test_loss")
            last.append(
                (
                    history.rows[-1]["step"],
                    losses[-1],
                    history["test_accuracy"][places[-1]],
                    history["batch_size"].max(),
                )
            )
            if seed == 0:
                curves[method] = thin(history["step"][places].tolist(), losses.tolist())
        updates, loss, share, batch = (float(each) for each in np.median(last, axis=0))
        first = first or updates
        report.add(
            problem="digits", method=method, updates=updates, epochs=30.0, largest_batch=batch, fewer=first / updates,
            more_epochs=1.0, test_loss=loss, test_accuracy=share,
        )  # fmt: skip
    return {
        "curves": curves,
        "xlabel": "updates",
        "ylabel": "test loss",
        "xscale": "log",
        "yscale": "log",
        "title": "digits, 30 epochs each",
    }


def race_on_digits(report: Report, seeds: int) -> None:
    """Measure updates and epochs of the same schedules to a test loss that SGD reaches early."""
    base = (0.0, 0.0)
    for method, rule in digit_methods().items():
        ends: list[tuple[float, float]] = []
        reached = 0
        for seed in range(seeds):
            problem = digits(seed)
            history = fit(
                problem.fresh(), problem.train, partial(torch.optim.SGD, lr=0.05, momentum=0.9), loss=problem.loss, epochs=30,
                batch_size=rule, seed=seed, watch=problem.judge, watch_every=4,
                until=lambda row: row.get("test_loss", np.inf) <= DIGITS_TARGET,
            ).history  # fmt: skip
            last = history.rows[-1]
            reached += last.get("test_loss", np.inf) <= DIGITS_TARGET
            ends.append((last["step"], last["epoch"]))
        updates, epochs = (float(each) for each in np.median(ends, axis=0))
        base = base if base[0] else (updates, epochs)
        report.add(
            problem="digits, race", method=method, reached=f"{reached}/{seeds}", updates=updates, epochs=epochs,
            fewer=base[0] / updates, more_epochs=epochs / base[1],
        )  # fmt: skip


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    torch.set_num_threads(1)
    columns = (
        "problem",
        "method",
        "reached",
        "updates",
        "epochs",
        "largest_batch",
        "fewer",
        "more_epochs",
        "test_loss",
        "test_accuracy",
    )
    report = Report("Batch growth", columns)
    panels = [*on_linear_network(report, given.seeds), on_digits(report, given.seeds)]
    race_on_digits(report, given.seeds)
    report.note(
        f"Medians over {given.seeds} seeds; fewer is SGD's updates divided by the method's, more_epochs the method's epochs divided by SGD's."
    )
    finish(report, "batch_growth", panels)


if __name__ == "__main__":
    main()
