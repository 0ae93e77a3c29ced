"""ADPSGD against a constant period of 8, full synchronisation and 8-bit QSGD, with 16 virtual ranks.

    python -m benchmarks.training.periods [--seeds 3]

A convolutional network on digits (16 × 8 examples per step, momentum 0.9, learning rate 0.1 that falls by a factor of
ten after half and after three quarters of the run) for 30 epochs and for the 4,000 steps of Jiang and Agrawal (2020,
section IV-B); scattered digits with noise for the same 4,000 steps and 160 epochs (16 × 16 examples per step); and an
embedding of 10,000 targets from 1,000,000 answers (16 × 1,024 per step, Adam with learning rate 0.05 and the same
schedule).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import NOISE, Problem, answers, digits, scattered_digits
from salmon.learning import accuracy, log_loss
from salmon.learning.refit import random_start
from salmon.training import ADPSGD, CPSGD, QSGD, StepsAt, VirtualGroup, fit
from salmon.training.embedding import TripletLosses

RANKS = 16


@dataclass(frozen=True)
class DigitsRun:
    """A run on a kind of digits with `each` examples per rank and step."""

    name: str
    problem: Callable[[int], Problem]
    each: int
    steps: int
    steps_per_epoch: int
    left_out: frozenset[str] = frozenset()


RUNS = (
    DigitsRun("digits", partial(digits, convolutions=True), 8, 360, 12, frozenset({"ADPSGD, initial period 5"})),
    DigitsRun(
        "digits, 4,000 steps",
        partial(digits, convolutions=True),
        8,
        4_000,
        12,
        frozenset({"ADPSGD, initial period 5", "QSGD, 8 bits"}),
    ),
    DigitsRun("scattered digits", scattered_digits, 16, 4_000, 25),
)


def methods(steps: int, warmup: int) -> dict[str, dict[str, Any]]:
    """Return name -> options of fit. As published, ADPSGD samples C2 in the first quarter and averages in
    every step of the first epoch.
    """
    adaptive = {
        period: {"averaging": ADPSGD(sampling_steps=steps // 4, initial_period=period, warmup_steps=warmup)}
        for period in (4, 5)
    }
    return {
        "full synchronisation": {},
        "period 8": {"averaging": CPSGD(8)},
        "ADPSGD": adaptive[4],
        "ADPSGD, initial period 5": adaptive[5],
        "QSGD, 8 bits": {"compression": QSGD(8)},
        # Its period is set to synchronise as often as ADPSGD did.
        "constant, as many synchronisations": {},
    }


def match_synchronisations(history: Any) -> CPSGD:
    """Return the constant period with at least as many synchronisations as a run."""
    last = history.rows[-1]
    return CPSGD(max(1, int(last["step"] // last["synchronisations"])))


def weighted_variance(history: Any) -> float:
    """Return Σ γS / Σ γ over synchronisations, weighted by the steps between them, on which
    convergence depends (equation 9).
    """
    variance, places = history.select_measured("replica_variance")
    rates = history["learning_rate"][places] * np.diff(places, prepend=-1)
    return float((variance * rates).sum() / rates.sum())


def note(
    report: Report, problem: str, method: str, trained: list[Any], judged: list[tuple[float, float, float]]
) -> None:
    last = [each.history.rows[-1] for each in trained]
    differ = trained[0].job.averaging.differ
    report.add(
        problem=problem, method=method, train_loss=float(np.median([each[0] for each in judged])),
        least=min(each[0] for each in judged), most=max(each[0] for each in judged),
        test_loss=float(np.median([each[1] for each in judged])), test_accuracy=float(np.median([each[2] for each in judged])),
        steps=int(last[0]["step"]), synchronisations=float(np.median([row["synchronisations"] for row in last])),
        variance=float(np.median([weighted_variance(each.history) for each in trained])) if differ else None,
        last_period=float(np.median([row["period"] for row in last])) if differ else None,
    )  # fmt: skip


def on_digits(report: Report, seeds: int, run: DigitsRun) -> dict[str, Any]:
    """Train a network on digits with each method; return the histories of the first seed."""
    epochs = run.steps / run.steps_per_epoch
    problems = [run.problem(seed) for seed in range(seeds)]
    kept: dict[str, Any] = {}
    for method, options in methods(run.steps, warmup=run.steps_per_epoch).items():
        if method in run.left_out:
            continue
        if method == "constant, as many synchronisations":
            options = {"averaging": match_synchronisations(kept["ADPSGD"])}  # noqa: PLW2901 - known only now
        trained, judged = [], []
        for seed, problem in enumerate(problems):
            found = fit(
                problem.fresh(), problem.train, partial(torch.optim.SGD, lr=0.1, momentum=0.9), VirtualGroup(RANKS),
                loss=problem.loss, epochs=epochs, batch_size=RANKS * run.each, policies=[StepsAt((epochs / 2, epochs * 0.75))],
                seed=seed, **options,
            )  # fmt: skip
            with torch.no_grad():
                train_loss = float(problem.loss(found.module(*problem.train[:-1]), problem.train[-1]).mean())
                test = problem.judge(found.module)
            trained.append(found)
            judged.append((train_loss, test["test_loss"], test["test_accuracy"]))
        note(report, run.name, method, trained, judged)
        kept[method] = trained[0].history
    return kept


def on_embedding(report: Report) -> dict[str, Any]:
    n, m, epochs = 10_000, 1_000_000, 6
    rows = answers(0, n, m + 50_000)
    train, test = rows[:m], rows[m:]
    steps = epochs * -(-m // (RANKS * 1024))
    kept: dict[str, Any] = {}
    for name, options in methods(steps, warmup=8).items():
        if name == "ADPSGD, initial period 5":
            continue
        if name == "constant, as many synchronisations":
            options = {"averaging": match_synchronisations(kept["ADPSGD"])}  # noqa: PLW2901 - known only now
        module = TripletLosses(random_start(n, 2, 0), NOISE)
        found = fit(
            module, torch.from_numpy(train), partial(torch.optim.Adam, lr=0.05), VirtualGroup(RANKS), epochs=epochs,
            batch_size=RANKS * 1024, policies=[StepsAt((epochs / 2, epochs * 0.75))], **options,
        )  # fmt: skip
        placed = module.coordinates.detach().numpy()
        judged = (
            log_loss(placed, train[:100_000], noise=NOISE),
            log_loss(placed, test, noise=NOISE),
            accuracy(placed, test),
        )
        note(report, "embedding", name, [found], [judged])
        kept[name] = found.history
    return kept


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 3})
    torch.set_num_threads(1)
    columns = (
        *(
            "problem",
            "method",
            "train_loss",
            "least",
            "most",
            "test_loss",
            "test_accuracy",
            "steps",
            "synchronisations",
        ),
        *("variance", "last_period"),
    )
    report = Report("Synchronisation of 16 virtual ranks", columns)
    panels = []
    found = {run.name: on_digits(report, given.seeds, run) for run in RUNS}
    found["embedding"] = on_embedding(report)
    for problem, kept in found.items():
        differ = {name: kept[name] for name in ("period 8", "ADPSGD")}
        variance = {}
        for name, history in differ.items():
            values, places = history.select_measured("replica_variance")
            variance[name] = (history["step"][places].tolist(), values.tolist())
        panels.append(
            {
                "curves": variance,
                "xlabel": "steps",
                "ylabel": "variance of the replicas",
                "yscale": "log",
                "title": problem,
            }
        )
        periods = {name: (history["step"].tolist(), history["period"].tolist()) for name, history in differ.items()}
        panels.append({"curves": periods, "xlabel": "steps", "ylabel": "period", "title": problem})
    report.note(f"Medians over {given.seeds} seeds on digits, and one run of the embedding.")
    finish(report, "periods", panels)


if __name__ == "__main__":
    main()
