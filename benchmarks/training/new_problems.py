"""Every system against its plain twin with the same total batch, on five problems on which none of them was tuned.

    python -m benchmarks.training.new_problems [--seeds 5] [--problems ratings spirals]

The problems, the systems and this procedure were written down before the first run:

* breast cancer: logistic regression on scikit-learn's 569 rows with 30 features;
* noisy Friedman: regression of Friedman's first function with noise of variance 1, which no network can go below;
* spirals: two intertwined spirals, a network with two hidden layers;
* Markov chain: the next of 30 symbols from the last two, with an embedding layer; its entropy is above 0;
* ratings: a matrix of rank 5 with noise, factorised; gradients are matrices.

The plain twin is SGD with momentum and a constant batch of 64, of which each of four ranks takes 16, and gradients are
averaged in every step. Its learning rate is the best of four on seeds that are not used again; all systems use this
rate. The target of a seed is the test loss that its twin has reached after half of its epochs, or better. Other systems
have twice as many epochs as the twin to reach it. The figures are written after each problem; with `--problems`, those
of the other problems stay as they were.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, make_friedman1
from torch import nn

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, keep_rows
from benchmarks.training.problems import CROSS_ENTROPY, SQUARED, Problem, build_seeded
from salmon.errors import SalmonError
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    Crossbow,
    EntrywiseAtomo,
    FollowNoiseScale,
    GeoDamp,
    NoiseScale,
    PadaDamp,
    RadaDamp,
    SpectralAtomo,
    TernGrad,
    VirtualGroup,
    fit,
)

RANKS, BATCH, EPOCHS = 4, 64, 12
RATES = (0.005, 0.02, 0.08, 0.32)
#: Seeds with which the twin's learning rate is chosen; the measured ones count from 0.
TUNING_SEEDS = (1000, 1001)
#: system -> options of fit. All have a total batch of 64 at first.
SYSTEMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "PadaDamp": {"batch_size": PadaDamp(BATCH, rate=0.2)},
    "GeoDamp": {"batch_size": GeoDamp(BATCH, delay=8, factor=2)},
    "RadaDamp": {"batch_size": RadaDamp(BATCH, memory=0.99)},
    "AdaDamp": {"batch_size": AdaDamp(BATCH, dwell=20)},
    "CPSGD(8)": {"averaging": CPSGD(8)},
    "ADPSGD": {"averaging": ADPSGD(sampling_steps=200)},
    "Crossbow(1) on 4 ranks": {"averaging": Crossbow(1), "batch_size": BATCH // RANKS},
    "QSGD, 4 bits": {"compression": QSGD(4)},
    "QSGD, 4 bits, buckets of 512": {"compression": QSGD(4, bucket=512)},
    "QSGD, 8 bits": {"compression": QSGD(8)},
    "TernGrad": {"compression": TernGrad()},
    "entry-wise ATOMO, 10%": {"compression": EntrywiseAtomo(0.1)},
    "spectral ATOMO, 2, 4 bits": {"compression": SpectralAtomo(2, bits=4)},
    "noise scale": {"monitors": [NoiseScale()], "policies": [FollowNoiseScale(BATCH, 16 * BATCH)]},
}
#: Figures of a run; fewer is better.
FIGURES = ("updates", "epochs", "agreements", "bytes")


def split(tensors: tuple[torch.Tensor, ...], seed: int, module: Callable[[], nn.Module], loss: Any) -> Problem:
    """Return a problem whose test set is a fifth of the examples."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(tensors[0])))
    cut = len(order) * 4 // 5
    train, test = (tuple(each[part] for each in tensors) for part in (order[:cut], order[cut:]))
    return Problem(train, test, partial(build_seeded, module, seed), loss)


def breast_cancer(seed: int) -> Problem:
    """Return logistic regression of tumours."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    return split(
        (torch.from_numpy(inputs).float(), torch.from_numpy(labels)), seed, lambda: nn.Linear(30, 2), CROSS_ENTROPY
    )


def friedman(seed: int) -> Problem:
    """Return regression of a smooth function of ten features."""
    inputs, values = make_friedman1(4000, noise=1.0, random_state=seed)
    tensors = torch.from_numpy(inputs).float(), torch.from_numpy((values - 14.4) / 5)[:, None].float()
    layers = lambda: nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))  # noqa: E731
    return split(tensors, seed, layers, SQUARED)


def spirals(seed: int) -> Problem:
    """Return two classes on intertwined spirals."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=4000)
    angle = 3 * np.pi * np.sqrt(rng.random(4000))
    turned = angle + np.pi * labels
    inputs = np.stack([angle * np.cos(turned), angle * np.sin(turned)], axis=1) / 5 + rng.normal(0, 0.05, (4000, 2))
    layers = lambda: nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))  # noqa: E731
    return split((torch.from_numpy(inputs).float(), torch.from_numpy(labels)), seed, layers, CROSS_ENTROPY)


def markov_chain(seed: int) -> Problem:
    """Return the prediction of symbols from the last two."""
    rng = np.random.default_rng(seed)
    chances = np.cumsum(rng.dirichlet(np.full(30, 0.1), (30, 30)), axis=2)
    symbols = [0, 1]
    for draw in rng.random(6000):
        symbols.append(min(29, int(np.searchsorted(chances[symbols[-2], symbols[-1]], draw))))
    text = torch.tensor(symbols)
    layers = lambda: nn.Sequential(nn.Embedding(30, 16), nn.Flatten(), nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 30))  # noqa: E731
    return split((torch.stack([text[:-2], text[1:-1]], 1), text[2:]), seed, layers, CROSS_ENTROPY)


class Factors(nn.Module):
    """Predict a rating as the inner product of the vectors of person and thing."""

    def __init__(self) -> None:
        super().__init__()
        self.people, self.things = nn.Embedding(120, 8), nn.Embedding(80, 8)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return predictions (b,) for pairs (b, 2)."""
        return (self.people(pairs[:, 0]) * self.things(pairs[:, 1])).sum(dim=1)


def ratings(seed: int) -> Problem:
    """Return the factorisation of a noisy matrix of low rank."""
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((120, 5)) @ rng.standard_normal((5, 80))
    pairs = np.stack([rng.integers(120, size=6000), rng.integers(80, size=6000)], axis=1)
    values = full[pairs[:, 0], pairs[:, 1]] + rng.normal(0, 0.5, 6000)
    return split((torch.from_numpy(pairs), torch.from_numpy(values).float()), seed, Factors, SQUARED)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "breast cancer": breast_cancer,
    "noisy Friedman": friedman,
    "spirals": spirals,
    "Markov chain": markov_chain,
    "ratings": ratings,
}


def train(problem: Problem, rate: float, seed: int, epochs: float, target: float = -np.inf, **options: Any) -> Any:
    """Return the history of a run that ends at the target, or None if it diverged."""
    try:
        return fit(
            problem.fresh(), problem.train, partial(torch.optim.SGD, lr=rate, momentum=0.9), VirtualGroup(RANKS), loss=problem.loss,
            epochs=epochs, seed=seed, watch=problem.judge, watch_every=4, until=lambda row: row.get("test_loss", np.inf) <= target,
            **{"batch_size": BATCH, **options},
        ).history  # fmt: skip
    except SalmonError:
        return None


def choose_rate(make: Callable[[int], Problem]) -> float:
    """Return the learning rate with which the twin reaches the least test loss, on seeds that are not used again."""

    def least(rate: float) -> float:
        runs = [train(make(seed), rate, seed, EPOCHS) for seed in TUNING_SEEDS]
        return float(np.mean([np.inf if run is None else run.select_measured("test_loss")[0].min() for run in runs]))

    return min(RATES, key=least)


def measure(history: Any, target: float) -> tuple[float, ...]:
    """Return the figures of a run when it reached the target; infinite if it never did."""
    if history is None:
        return (np.inf,) * len(FIGURES)
    losses, places = history.select_measured("test_loss")
    below = np.flatnonzero(losses <= target)
    if not len(below):
        return (np.inf,) * len(FIGURES)
    row = history.rows[places[below[0]]]
    return row["step"], row["epoch"], row["synchronisations"], row["bytes_sent"]


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0],
        seeds={"type": int, "default": 5},
        problems={"nargs": "+", "choices": list(PROBLEMS), "default": list(PROBLEMS)},
    )
    torch.set_num_threads(1)
    report = Report("New problems", ("problem", "system", "reached", *FIGURES, *(f"{name}_share" for name in FIGURES)))
    keep_rows(report, "new_problems", given.problems)
    for name in given.problems:
        measure_problem(report, name, given.seeds)
        report.rows.sort(key=lambda row: list(PROBLEMS).index(row["problem"]))
        report.notes.clear()
        describe_wins(report)
        plain = [row for row in report.rows if row["system"] == "plain"]
        report.note(
            f"Medians over {given.seeds} seeds, {RANKS} virtual ranks, a total batch of {BATCH}. Learning rates of the twins: "
            + ", ".join(f"{row['problem']} {row['rate']:g}" for row in plain)
            + "."
        )
        finish(report, "new_problems", [panel(report.rows, "updates"), panel(report.rows, "bytes")])


def measure_problem(report: Report, name: str, seeds: int) -> None:
    """Add a row for each system on one problem."""
    make = PROBLEMS[name]
    rate = choose_rate(make)
    ends: dict[str, list[tuple[float, ...]]] = {system: [] for system in SYSTEMS}
    for seed in range(seeds):
        problem = make(seed)
        plain = train(problem, rate, seed, EPOCHS)
        losses, places = plain.select_measured("test_loss")
        target = float(losses[plain["epoch"][places] <= EPOCHS / 2].min())
        ends["plain"].append(measure(plain, target))
        for system, options in SYSTEMS.items():
            if options:
                ends[system].append(measure(train(problem, rate, seed, 2 * EPOCHS, target, **options), target))
    base = np.median(ends["plain"], axis=0)
    for system, found in ends.items():
        middle = np.median(found, axis=0)
        reached = sum(np.isfinite(each[0]) for each in found)
        finite = np.isfinite(middle)
        shown = {key: float(value) if seen else None for key, value, seen in zip(FIGURES, middle, finite, strict=True)}
        against = {
            f"{key}_share": float(value / first) if seen else None
            for key, value, first, seen in zip(FIGURES, middle, base, finite, strict=True)
        }
        report.add(problem=name, system=system, reached=f"{reached}/{seeds}", rate=rate, **shown, **against)


def describe_wins(report: Report) -> None:
    """Add a note for each system: on how many problems it needs at least 5 % fewer, or
    more, of each figure than its twin.
    """
    for system in SYSTEMS:
        rows = [row for row in report.rows if row["system"] == system]
        if system == "plain":
            continue
        parts = []
        for figure in FIGURES:
            shares = [row[f"{figure}_share"] for row in rows]
            wins = sum(share is not None and share < 0.95 for share in shares)
            losses = sum(share is None or share > 1.05 for share in shares)
            parts.append(f"{figure} {wins} won, {losses} lost")
        report.note(f"{system}: {'; '.join(parts)}.")


def panel(rows: list[dict[str, Any]], figure: str) -> dict[str, Any]:
    """Return a panel of a figure relative to the twin's, for each problem."""
    problems = list(PROBLEMS)
    curves = {}
    for system in SYSTEMS:
        shares = [row[f"{figure}_share"] for row in rows if row["system"] == system]
        # A gap where the target was not reached.
        curves[system] = [list(range(len(shares))), [share or np.nan for share in shares]]
    return {
        "curves": curves, "marks": "o", "xticks": range(len(problems)), "xticklabels": [name.replace(" ", "\n") for name in problems], "ylabel": f"{figure} / twin's",
        "xlabel": "", "yscale": "log",
    }  # fmt: skip


if __name__ == "__main__":
    main()
