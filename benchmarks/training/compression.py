"""Compressed gradients: variance against bytes, loss against bytes, and time to a loss over a slow link.

    python -m benchmarks.training.compression [--rounds 3] [--keep-rates]

Digits with layers of 64, 256, 256 and 10; seconds over a link follow from processor time and bytes of two gloo ranks (`slow_link.py`). Spectral ATOMO
sends singular vectors with 32 bits per entry, as its authors do, or rounded to 4 and 8 bits. With `--keep-rates`, the learning rates are those of the
recorded figures; otherwise six are tried for each compression, which takes most of the time.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import Report, arguments
from benchmarks.training.figure import FOLDER, finish, thin
from benchmarks.training.problems import CROSS_ENTROPY, Problem, build_seeded, digits
from benchmarks.training.slow_link import add_link, train_two_ranks
from salmon.errors import SalmonError
from salmon.parallel.dask import local_cluster
from salmon.training import QSGD, EntrywiseAtomo, SpectralAtomo, TernGrad, VirtualGroup, fit
from salmon.training.batch_size import ConstantBatch
from salmon.training.state import TrainingJob

TARGET = 0.15
#: Mbit/s of the two links.
FASTER, SLOWER = 4.0, 1.0
RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
EPOCHS = 40.0
CODES: dict[str, Any] = {
    "none": None,
    **{f"QSGD, {bits} bits": QSGD(bits) for bits in (1, 4, 8)},
    **{f"QSGD, {bits} bits, buckets of 512": QSGD(bits, bucket=512) for bits in (1, 4, 8)},
    "TernGrad": TernGrad(),
    **{f"entry-wise ATOMO, {share:.0%}": EntrywiseAtomo(share) for share in (0.1,)},
    **{f"spectral ATOMO, {budget}": SpectralAtomo(budget, bits=32) for budget in (1, 2, 3, 4)},
    **{
        f"spectral ATOMO, {budget}, {bits} bits": SpectralAtomo(budget, bits) for bits in (8, 4) for budget in (1, 2, 3)
    },
}
#: The compressions whose curves are drawn.
CURVES = (
    "none",
    "QSGD, 1 bits",
    "QSGD, 4 bits",
    "QSGD, 8 bits",
    "TernGrad",
    "spectral ATOMO, 2",
    "spectral ATOMO, 2, 4 bits",
)


def optimizer(rate: float) -> Any:
    """Return plain SGD, as used by the authors."""
    return partial(torch.optim.SGD, lr=rate)


def wide() -> nn.Module:
    """Return a network whose gradients are matrices worth compressing."""
    return build_seeded(
        lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), 0
    )


def gradient_of(problem: Problem) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """Return a gradient (P,) after an epoch of training, and the shapes of its layers."""
    module = fit(wide(), problem.train, optimizer(0.2), loss=problem.loss, epochs=1, batch_size=32).module
    chosen = [each[:128] for each in problem.train]
    problem.loss(module(chosen[0]), chosen[1]).mean().backward()
    shapes = [tuple(each.shape) for each in module.parameters()]
    return torch.cat([each.grad.reshape(-1) for each in module.parameters()]).numpy(), shapes


def variances(problem: Problem) -> dict[str, tuple[float, float]]:
    """Return (bytes, variance / |g|²) of each compression for one gradient after an epoch of training."""
    gradient, shapes = gradient_of(problem)
    found = {}
    for name, code in CODES.items():
        if code is None:
            continue
        payloads = [code.compress(gradient, shapes, np.random.default_rng(seed)) for seed in range(60)]
        errors = [float(((code.expand(each, shapes) - gradient) ** 2).sum()) for each in payloads]
        found[name] = float(np.mean([len(each) for each in payloads])), float(np.mean(errors) / (gradient @ gradient))
    return found


def reached_target(row: dict[str, float]) -> bool:
    """Whether a run has reached the target."""
    return row.get("test_loss", np.inf) <= TARGET


def train_at_rate(rate: float, code: Any, rounds: int) -> list[Any]:
    """Train to the target once for each seed with two virtual ranks; return the histories up to the first failure."""
    torch.set_num_threads(1)
    problem, found = digits(0), []
    for seed in range(rounds):
        try:
            history = fit(
                wide(), problem.train, optimizer(rate), VirtualGroup(2), loss=CROSS_ENTROPY, batch_size=128, epochs=EPOCHS,
                compression=code, watch=problem.judge, watch_every=5, seed=seed, until=reached_target,
            ).history  # fmt: skip
        except SalmonError:
            break
        # Two ranks end with the exchange after the one in which the target was reached.
        if not any(map(reached_target, history.rows)):
            break
        found.append(history)
    return found


def read_rates() -> dict[str, float]:
    """Return the learning rates of the recorded figures."""
    return {row["code"]: row["rate"] for row in json.loads((FOLDER / "compression.json").read_text())["rows"]}


def choose_best(tried: dict[float, list[Any]], rounds: int) -> tuple[float, list[Any]]:
    """Return (learning rate, its histories) with the fewest bytes, of those with which every seed reached the target."""
    kilobytes = {
        rate: np.median([history["bytes_sent"][-1] for history in found])
        for rate, found in tried.items()
        if len(found) == rounds
    }
    if not kilobytes:
        raise SystemExit(f"All runs reached {TARGET} at none of the learning rates {', '.join(map(str, tried))}.")
    rate = min(kilobytes, key=lambda each: kilobytes[each])
    return rate, tried[rate]


def measure_over_links(executor: Any, job: TrainingJob, data: Any, name: str, rounds: int) -> tuple[list[float], Any]:
    """Return (median seconds to the target over each link, test loss against seconds over the faster one in the first run)."""
    found: list[list[float]] = []
    path: Any = None
    for seed in range(rounds):
        rows, computed_s = train_two_ranks(executor, replace(job, seed=seed), data, f"{name} {seed}")
        clocks = [add_link(rows, computed_s, mbit) for mbit in (FASTER, SLOWER)]
        measured = [index for index, row in enumerate(rows) if "test_loss" in row]
        path = path or (clocks[0][measured].tolist(), [rows[index]["test_loss"] for index in measured])
        found.append([float(clock[measured[-1]]) for clock in clocks])
    return np.median(found, axis=0).tolist(), path


def describe_fastest(seconds: dict[str, float], mbit: float, kind: str) -> str:
    """Describe the fastest spectral ATOMO of a kind, and how many times as long the others take."""
    spectral = [name for name in seconds if name.startswith("spectral")]
    best = min(
        (name for name in spectral if kind == "with rounded entries" or "bits" not in name), key=seconds.__getitem__
    )
    others = ", ".join(
        f"{name} {taken / seconds[best]:.1f}"
        for name, taken in seconds.items()
        if name not in spectral and "ATOMO" not in name
    )
    return (
        f"Over {mbit:g} Mbit/s, the fastest spectral ATOMO {kind} to a test loss of {TARGET} is {best}. "
        f"Times of the others relative to it: {others}."
    )


def main() -> None:
    given = arguments(__doc__.splitlines()[0], rounds={"type": int, "default": 3}, keep_rates={"action": "store_true"})
    torch.set_num_threads(1)
    problem = digits(0)
    kept = read_rates() if given.keep_rates else {}
    report = Report(
        "Compressed gradients on digits",
        ("code", "bytes", "variance", "rate", "steps_to", "kilobytes_to", "link_s", "times_none", "slower_s"),
    )
    codes, curves, paths = variances(problem), {}, {}

    slow: dict[tuple[float, str], float] = {}
    with local_cluster(2) as executor:
        # Learning rates are chosen without the link, on both workers.
        tries = [(name, rate) for name in CODES for rate in ([kept[name]] if kept else RATES)]
        found = executor.map(
            train_at_rate, *zip(*((rate, CODES[name], given.rounds) for name, rate in tries), strict=True)
        )
        tried = dict(zip(tries, found, strict=True))
        # The first run of two ranks takes longer.
        train_two_ranks(
            executor,
            TrainingJob(wide(), optimizer(0.1), CROSS_ENTROPY, 1.0, ConstantBatch(128), watch=problem.judge),
            problem.train,
            "first",
        )
        for name, code in CODES.items():
            at_rates = {rate: histories for (each, rate), histories in tried.items() if each == name}
            rate, histories = choose_best(at_rates, given.rounds)
            losses, places = histories[0].select_measured("test_loss")
            curves[name] = thin((histories[0]["bytes_sent"][places] / 1e3).tolist(), losses.tolist())
            last = [history.rows[-1] for history in histories]
            job = TrainingJob(
                wide(), optimizer(rate), CROSS_ENTROPY, EPOCHS, ConstantBatch(128), compression=code, until=reached_target,
                watch=problem.judge, watch_every=5,
            )  # fmt: skip
            (faster_s, slower_s), paths[name] = measure_over_links(executor, job, problem.train, name, given.rounds)
            slow[FASTER, name], slow[SLOWER, name] = faster_s, slower_s
            size, variance = codes.get(name, (4.0 * sum(each.numel() for each in wide().parameters()), 0.0))
            report.add(
                code=name, bytes=size, variance=variance, rate=rate, steps_to=int(np.median([row["step"] for row in last])),
                kilobytes_to=float(np.median([row["bytes_sent"] for row in last])) / 1e3, link_s=faster_s,
                times_none=slow[FASTER, "none"] / faster_s, slower_s=slower_s, slower_times_none=slow[SLOWER, "none"] / slower_s,
            )  # fmt: skip
    for mbit, kind in (
        (FASTER, "with entries of 32 bits"),
        (FASTER, "with rounded entries"),
        (SLOWER, "with entries of 32 bits"),
        (SLOWER, "with rounded entries"),
    ):
        report.note(describe_fastest({name: s for (link, name), s in slow.items() if link == mbit}, mbit, kind))
    report.note(
        f"The learning rate of each is the best of {', '.join(map(str, RATES))}. The variance is relative to ‖g‖². Seconds are medians of {given.rounds} runs: "
        "in each step the processor time of the slower rank, and the time in which the link carries its bytes."
    )
    finish(report, "compression", panels(codes, curves, paths))


def panels(
    codes: dict[str, tuple[float, float]], curves: dict[str, Any], paths: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return panels of variance against bytes of all compressions, and of loss against bytes and seconds of a few."""
    scales = {"xscale": "log", "yscale": "log"}
    loss = {**scales, "ylabel": "test loss"}
    dots = {name: ([size], [variance]) for name, (size, variance) in codes.items()}
    return [
        {"curves": dots, "marks": "o", "xlabel": "bytes of a gradient", "ylabel": "variance / |g|²", **scales},
        {"curves": {name: curves[name] for name in CURVES}, "xlabel": "kilobytes sent", **loss},
        {"curves": {name: paths[name] for name in CURVES}, "xlabel": f"seconds over {FASTER:g} Mbit/s", **loss},
    ]


if __name__ == "__main__":
    main()
