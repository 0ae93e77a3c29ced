"""Crossbow against plain SGD with the same total batch, each at its best learning rate, and the
number that is chosen automatically.

    python -m benchmarks.training.replicas [--seeds 5] [--problems spirals]

Small networks on digits and on two intertwined spirals, on one core: m replicas with batches of 16 each, against one
model with batches of 16 m. Spirals, and the same target for them, were chosen before they were run. With `--problems`,
the figures of the others stay as they were.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, keep_rows
from benchmarks.training.new_problems import spirals
from benchmarks.training.problems import Problem, digits, judge_on_clock
from salmon.errors import SalmonError
from salmon.training import Crossbow, VirtualGroup, fit
from salmon.training.batch_size import ConstantBatch
from salmon.training.loop import choose_replicas
from salmon.training.state import TrainingJob

BATCH, TARGET, LIMIT = 16, 0.97, 60
COUNTS = (1, 2, 4, 8)
RATES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
PROBLEMS: dict[str, Callable[[int], Problem]] = {"digits": digits, "spirals": spirals}
#: Learning rates at which the number of replicas is chosen: one that suits a single replica on digits, and one that is
#: too large for it.
TRIAL_RATES = (0.05, 0.2)
TRIALS = 5


def optimizer(rate: float) -> Any:
    """Return SGD with momentum."""
    return partial(torch.optim.SGD, lr=rate, momentum=0.9)


def race(problem: Problem, rate: float, seed: int, options: dict[str, Any]) -> tuple[float, float, float]:
    """Return (epochs, updates, seconds of processor time) to the target; infinite if it is not reached."""
    try:
        last = fit(
            problem.fresh(), problem.train, optimizer(rate), loss=problem.loss, epochs=LIMIT, seed=seed, watch=judge_on_clock(problem),
            watch_every=3, until=lambda row: row.get("test_accuracy", 0.0) >= TARGET, **options,
        ).history.rows[-1]  # fmt: skip
    except SalmonError:
        return np.inf, np.inf, np.inf
    if last.get("test_accuracy", 0.0) < TARGET:
        return np.inf, np.inf, np.inf
    return last["epoch"], last["step"], last["cpu_s"]


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0],
        seeds={"type": int, "default": 5},
        problems={"nargs": "+", "choices": list(PROBLEMS), "default": list(PROBLEMS)},
    )
    torch.set_num_threads(1)
    columns = ("problem", "total_batch", "method", "rate", "epochs", "updates", "seconds", "times_sgd", "epochs_sgd")
    report = Report("Crossbow against one model", columns)
    keep_rows(report, "replicas", given.problems)
    for name in given.problems:
        measure_problem(report, name, given.seeds)
        report.rows.sort(key=lambda row: list(PROBLEMS).index(row["problem"]))
        report.notes.clear()
        for each in dict.fromkeys(row["problem"] for row in report.rows):
            describe_problem(report, each)
        report.note(
            f"Target: {TARGET:.0%} of the test examples, watched every three steps. The learning rate of each is the "
            f"best of {', '.join(map(str, RATES))} in epochs."
        )
        finish(
            report,
            "replicas",
            [panel(report.rows, each) for each in dict.fromkeys(row["problem"] for row in report.rows)],
        )


def measure_problem(report: Report, name: str, seeds: int) -> None:
    """Add a row for one model and for Crossbow with each total batch, and the numbers
    of replicas that trials choose.
    """
    problems = [PROBLEMS[name](seed) for seed in range(seeds)]
    chosen = {str(rate): choose_numbers(problems[:TRIALS], rate) for rate in TRIAL_RATES}
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
            reached = {} if np.isinf(epochs) else {
                "rate": rate, "epochs": epochs, "updates": updates, "seconds": seconds, "times_sgd": seconds / base[2],
                "epochs_sgd": epochs / base[0],
            }  # fmt: skip
            report.add(
                problem=name,
                total_batch=BATCH * count,
                replicas=count,
                method=method,
                chosen=chosen,
                seeds=seeds,
                **reached,
            )


def choose_numbers(problems: list[Problem], rate: float) -> list[int]:
    """Return the number of replicas that `Crossbow()` chooses for each problem."""
    job = TrainingJob(problems[0].fresh(), optimizer(rate), problems[0].loss, 20.0, ConstantBatch(BATCH), Crossbow())
    return [choose_replicas(job, problem.train, VirtualGroup()) for problem in problems]


def describe_problem(report: Report, name: str) -> None:
    """Add notes on one problem: where Crossbow wins and loses, and the numbers of replicas that trials choose."""
    rows = [row for row in report.rows if row["problem"] == name]
    raced = [row for row in rows if row["method"] == "Crossbow" and row["replicas"] > 1]
    won = [row["total_batch"] for row in raced if row.get("epochs_sgd", np.inf) < 0.95]
    lost = [row["total_batch"] for row in raced if row.get("epochs_sgd", np.inf) > 1.05]
    report.note(
        f"In epochs on {name} (medians over {rows[0]['seeds']} seeds), Crossbow wins at total batches {won or 'none'} and loses at {lost or 'none'}; "
        "differences below 5 % count as neither."
    )
    for rate, chosen in rows[0]["chosen"].items():
        report.note(f"Replicas chosen on {name} by time to the target of a trial at learning rate {rate}: {chosen}.")


def panel(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a panel of epochs against the total batch."""
    curves: dict[str, tuple[list[int], list[float]]] = {"one model": ([], []), "Crossbow": ([], [])}
    for row in rows:
        if row["problem"] == name and "epochs" in row:
            for values, value in zip(curves[row["method"]], (row["total_batch"], row["epochs"]), strict=True):
                values.append(value)
    return {
        "curves": curves, "marks": "o", "xlabel": "total batch", "ylabel": f"epochs to {TARGET:.0%}", "xscale": "log", "title": name,
    }  # fmt: skip


if __name__ == "__main__":
    main()
