"""Ten problems on which a batch rule may stall or explode: the default rule, RadaDamp as
published, and constant batches.

    python -m benchmarks.training.default_batch [--seeds 3] [--problems ratings digits]

A rule stalls where its batch does not even grow by half although the training loss no longer falls (in the last third
of its steps by less than 1 % of what it was in the third before), and explodes where its batch exceeds a quarter of the
examples, or its test loss ends more than 10 % above that of the constant batch that it starts with. Loss floors come
from noise (Friedman, Markov chain, ratings, flipped labels, linear network). Every run takes the same number of epochs;
none was tuned but by one learning rate for each problem, the best of four for the constant batch. The figures are
written after each problem; with `--problems`, those of the other problems stay as they were.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, keep_rows, thin
from benchmarks.training.new_problems import PROBLEMS, split
from benchmarks.training.problems import (
    CROSS_ENTROPY,
    NOISE,
    Problem,
    answers,
    digits,
    linear_network,
    scattered_digits,
)
from salmon.errors import SalmonError
from salmon.learning.refit import random_start
from salmon.training import PadaDamp, RadaDamp, fit
from salmon.training.embedding import TripletLosses

FIRST, EPOCHS = 32, 30
RATES = (0.002, 0.01, 0.05, 0.25)
#: Problems whose batches are drawn.
SHOWN = ("noisy Friedman", "digits")
RULES: dict[str, Any] = {
    "constant": FIRST,
    "PlateauDamp (default)": None,
    "PadaDamp": PadaDamp(),
    "RadaDamp": RadaDamp(FIRST),
    "RadaDamp, memory .99": RadaDamp(FIRST, memory=0.99),
}


def flipped_labels(seed: int) -> Problem:
    """Return logistic regression on two Gaussians, a fifth of whose labels are wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=4000)
    inputs = rng.standard_normal((4000, 20)) + 0.5 * (2 * labels[:, None] - 1)
    wrong = rng.random(4000) < 0.2
    tensors = torch.from_numpy(inputs).float(), torch.from_numpy(np.where(wrong, 1 - labels, labels))
    return split(tensors, seed, lambda: nn.Linear(20, 2), CROSS_ENTROPY)


class EmbeddingProblem(Problem):
    """Triplets of an embedding; the module returns the losses itself."""

    def judge(self, module: nn.Module) -> dict[str, float]:
        """Return the loss on the test set."""
        return {"test_loss": float(module(*self.test).mean())}


def embedding(seed: int) -> Problem:
    """Return an embedding of 60 targets from 8,000 answers."""
    rows = torch.from_numpy(answers(seed, 60, 10_000))
    return EmbeddingProblem(
        (rows[:8000],), (rows[8000:],), lambda: TripletLosses(random_start(60, 2, seed), NOISE), None
    )


ALL: dict[str, Callable[[int], Problem]] = {
    **PROBLEMS,
    "linear network": partial(linear_network, n=5000, held_out=1000),
    "digits": digits,
    "scattered digits": partial(scattered_digits, rows=3000),
    "flipped labels": flipped_labels,
    "embedding": embedding,
}


def train(problem: Problem, rate: float, rule: Any, seed: int, name: str) -> Any:
    """Return the history of a run, or None if it diverged."""
    kind: Any = (
        partial(torch.optim.Adam, lr=rate) if name == "embedding" else partial(torch.optim.SGD, lr=rate, momentum=0.9)
    )
    every = 20
    try:
        return fit(
            problem.fresh(), problem.train, kind, loss=problem.loss, epochs=EPOCHS, batch_size=rule, seed=seed,
            watch=problem.judge, watch_every=every,
        ).history  # fmt: skip
    except SalmonError:
        return None


def last_loss(history: Any) -> float:
    """Return the mean of the last three measured test losses, infinite for a run that diverged."""
    return np.inf if history is None else float(history.select_measured("test_loss")[0][-3:].mean())


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0],
        seeds={"type": int, "default": 3},
        problems={"nargs": "+", "choices": list(ALL), "default": list(ALL)},
    )
    torch.set_num_threads(1)
    report = Report(
        "The default batch rule",
        ("problem", "rule", "first_batch", "last_batch", "updates", "test_loss", "share", "verdict"),
    )
    keep_rows(report, "default_batch", given.problems)
    for name in given.problems:
        measure_problem(report, name, given.seeds)
        report.rows.sort(key=lambda row: list(ALL).index(row["problem"]))
        report.notes.clear()
        measured = len({row["problem"] for row in report.rows})
        for rule in list(RULES)[1:]:
            found = [row["verdict"] for row in report.rows if row["rule"] == rule]
            report.note(
                f"{rule}: stalls on {found.count('stalls')} of {measured} problems, explodes on {found.count('explodes')}."
            )
        report.note(
            f"Medians over {given.seeds} seeds of {EPOCHS} epochs. Share is the last test loss relative to that of the constant batch."
        )
        finish(report, "default_batch", [panel(report.rows, each) for each in SHOWN])


def measure_problem(report: Report, name: str, seeds: int) -> None:
    """Add a row for each rule on one problem."""
    make = ALL[name]
    problems = [make(seed) for seed in range(seeds)]
    rate = min(RATES, key=lambda each: last_loss(train(make(1000), each, FIRST, 1000, name)))
    constant, updates = np.inf, np.inf
    for rule_name, rule in RULES.items():
        runs = [train(problem, rate, rule, seed, name) for seed, problem in enumerate(problems)]
        loss = float(np.median([last_loss(run) for run in runs]))
        steps = float(np.median([run["step"][-1] for run in runs if run is not None] or [np.nan]))
        largest = float(np.median([run["batch_size"].max() for run in runs if run is not None] or [np.nan]))
        constant, updates = (loss, steps) if rule_name == "constant" else (constant, updates)
        flat = sum(is_flat(run) for run in runs) > len(runs) / 2
        verdict = "–"
        if rule_name != "constant":
            verdict = judge(largest, loss / constant, len(problems[0].train[0]), flat=flat)
        first = runs[0]
        curve = thin(first["epoch"].tolist(), first["batch_size"].tolist(), 100) if first is not None else ([], [])
        report.add(
            problem=name, rule=rule_name, rate=rate, first_batch=FIRST, last_batch=largest, updates=steps, test_loss=loss,
            share=loss / constant, updates_share=steps / updates, verdict=verdict,
            **({"curve": curve} if name in SHOWN else {}),
        )  # fmt: skip


def panel(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a panel of the batch of each rule against epochs on one problem."""
    curves = {row["rule"]: row["curve"] for row in rows if row["problem"] == name}
    return {"curves": curves, "xlabel": "epochs", "ylabel": "batch", "yscale": "log", "title": name}


def is_flat(history: Any) -> bool:
    """Whether the training loss no longer fell at the end of a run."""
    if history is None:
        return False
    before, last = (part.mean() for part in np.array_split(history["loss"], 3)[1:])
    return bool(last > 0.99 * before)


def judge(largest: float, share: float, examples: int, *, flat: bool) -> str:
    """Return whether a rule stalls, explodes, or does neither."""
    if not np.isfinite(share) or share > 1.1 or largest > examples / 4:
        return "explodes"
    return "stalls" if flat and largest < 1.5 * FIRST else "–"


if __name__ == "__main__":
    main()
