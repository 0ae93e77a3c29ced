"""Compressed gradients: variance against bytes, loss against bytes, and time to a loss over a slow link.

    python -m benchmarks.training.compression [--rounds 3] [--keep-rates]

Digits with layers of 64, 256, 256 and 10; seconds over a link follow from processor time and bytes of two gloo ranks
(`slow_link.py`). Spectral ATOMO sends singular vectors with 32 bits per entry, as its authors do, or rounded to 4 and 8
bits. With `--keep-rates`, the learning rates are those of the recorded figures; otherwise six are tried for each
compression, which takes most of the time.
"""

import json
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import Report, arguments
from benchmarks.training.figure import FOLDER, finish, thin
from benchmarks.training.problems import CROSS_ENTROPY, Problem, build_seeded, digits
from benchmarks.training.processes import fork_ranks, run_ranks
from benchmarks.training.slow_link import TimedRun, add_link, train_timed_rank
from salmon.errors import SalmonError
from salmon.training import QSGD, EntrywiseAtomo, SpectralAtomo, TernGrad, VirtualGroup, fit
from salmon.training.batch_size import ConstantBatch
from salmon.training.groups import Meeting
from salmon.training.state import TrainingJob

TARGET = 0.15
#: Mbit/s of the two links.
FASTER, SLOWER = 4.0, 1.0
TIMEOUT_S = 3000.0
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


def choose_rate(code: Any, rounds: int) -> float:
    """Return the learning rate with the fewest bytes, of those with which every seed reaches the target."""
    kilobytes: dict[float, float] = {}
    for rate in RATES:
        found = train_at_rate(rate, code, rounds)
        if len(found) == rounds:
            kilobytes[rate] = float(np.median([history["bytes_sent"][-1] for history in found]))
    if not kilobytes:
        raise SystemExit(f"All runs reached {TARGET} at none of the learning rates {', '.join(map(str, RATES))}.")
    return min(kilobytes, key=lambda each: kilobytes[each])


def run_rank(rank: int, size: int, port: int, rates: dict[str, float], rounds: int) -> dict[str, list[Any]]:
    """Train with each compression as one of two ranks, once for each seed."""
    torch.set_num_threads(1)
    meeting = Meeting("127.0.0.1", port, "slow link", rank, size, size, TIMEOUT_S)
    joined = meeting.join()
    problem = digits(0)

    def train(name: str, seed: int) -> TimedRun:
        job = TrainingJob(
            wide(), optimizer(rates[name]), CROSS_ENTROPY, EPOCHS, ConstantBatch(128), compression=CODES[name], until=reached_target,
            watch=problem.judge, watch_every=5, seed=seed,
        )  # fmt: skip
        return train_timed_rank(job, problem.train, joined, meeting)

    # The first run of a process takes longer.
    train(next(iter(rates)), 0)
    return {name: [asdict(train(name, seed)) for seed in range(rounds)] for name in rates}


def measure_ranks(rates: dict[str, float], rounds: int) -> dict[str, list[tuple[TimedRun, TimedRun]]]:
    """Return what both ranks have measured with each compression at its learning rate, for each seed."""
    options = "--rates", json.dumps(rates), "--rounds", str(rounds)
    with tempfile.TemporaryDirectory() as folder:
        (found,) = run_ranks("benchmarks.training.compression", (2,), *options, folder=folder, timeout_s=TIMEOUT_S)
    first, second = ({name: [TimedRun(**run) for run in runs] for name, runs in each.items()} for each in found)
    return {name: list(zip(first[name], second[name], strict=True)) for name in rates}


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
    given = arguments(
        __doc__.splitlines()[0], rounds={"type": int, "default": 3}, keep_rates={"action": "store_true"},
        groups={"type": json.loads}, folder={"type": Path}, rates={"type": json.loads},
    )  # fmt: skip
    if given.groups is not None:
        fork_ranks(given.groups, given.folder, partial(run_rank, rates=given.rates, rounds=given.rounds))
    torch.set_num_threads(1)
    report = Report(
        "Compressed gradients on digits",
        ("code", "bytes", "variance", "rate", "steps_to", "kilobytes_to", "link_s", "times_none", "slower_s"),
    )
    rates = (
        read_rates() if given.keep_rates else {name: choose_rate(code, given.rounds) for name, code in CODES.items()}
    )
    codes, curves, paths = variances(digits(0)), {}, {}
    slow: dict[tuple[float, str], float] = {}
    for name, runs in measure_ranks({name: rates[name] for name in CODES}, given.rounds).items():
        if any(first.losses[-1][1] > TARGET for first, _ in runs):
            raise SystemExit(f"{name} did not reach {TARGET} at the learning rate {rates[name]}.")
        clocks = {mbit: [add_link(*pair, mbit) for pair in runs] for mbit in (FASTER, SLOWER)}
        ends = [first.losses[-1][0] - 1 for first, _ in runs]
        for mbit, each in clocks.items():
            slow[mbit, name] = float(np.median([clock[end] for clock, end in zip(each, ends, strict=True)]))
        at = [steps - 1 for steps, _ in runs[0][0].losses]
        losses = [loss for _, loss in runs[0][0].losses]
        curves[name] = thin((2 * np.cumsum(runs[0][0].sent)[at] / 1e3).tolist(), losses)
        paths[name] = clocks[FASTER][0][at].tolist(), losses
        size, variance = codes.get(name, (4.0 * sum(each.numel() for each in wide().parameters()), 0.0))
        report.add(
            code=name, bytes=size, variance=variance, rate=rates[name], steps_to=int(np.median([end + 1 for end in ends])),
            kilobytes_to=float(np.median([2 * sum(first.sent[: end + 1]) for (first, _), end in zip(runs, ends, strict=True)])) / 1e3,
            link_s=slow[FASTER, name], times_none=slow[FASTER, "none"] / slow[FASTER, name], slower_s=slow[SLOWER, name],
            slower_times_none=slow[SLOWER, "none"] / slow[SLOWER, name],
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
