"""Compressed gradients: variance against bytes, loss against bytes, and time to a loss over a slow link.

    python -m benchmarks.training.compression [--mbit 4]

Digits by layers of 64, 256, 256 and 10; the link is a token bucket in each of two real gloo ranks on loopback.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, thinned
from benchmarks.training.links import over_slow_link
from benchmarks.training.problems import CROSS_ENTROPY, Problem, digits, started
from salmon.distributed import QSGD, EntrywiseAtomo, SpectralAtomo, TernGrad, VirtualGroup, fit
from salmon.distributed.batch_size import ConstantBatch
from salmon.distributed.state import Job
from salmon.errors import SalmonError
from salmon.parallel.cluster import local_cluster

TARGET = 0.15
RATES = (0.2, 0.4, 0.8, 1.6)
EPOCHS = 15.0
CODES: dict[str, Any] = {
    "none": None,
    **{f"QSGD, {bits} bits": QSGD(bits) for bits in (1, 4, 8)},
    "TernGrad": TernGrad(),
    **{f"entry-wise ATOMO, {share:.0%}": EntrywiseAtomo(share) for share in (0.1,)},
    **{f"spectral ATOMO, {budget}": SpectralAtomo(budget) for budget in (1, 2, 3, 4)},
}


def optimizer(rate: float) -> Any:
    """Plain SGD, as the source has it."""
    return partial(torch.optim.SGD, lr=rate)


def wide(problem: Problem) -> nn.Module:
    """A network whose gradients are matrices worth compressing."""
    del problem
    return started(
        lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), 0
    )


def variances(problem: Problem) -> dict[str, tuple[float, float]]:
    """(bytes, variance as a share of |g|²) of each code of one gradient after an epoch of training."""
    module = fit(wide(problem), problem.train, optimizer(RATES[0]), loss=problem.loss, epochs=1).module
    chosen = [each[:128] for each in problem.train]
    problem.loss(module(chosen[0]), chosen[1]).mean().backward()
    shapes = [tuple(each.shape) for each in module.parameters()]
    gradient = torch.cat([each.grad.reshape(-1) for each in module.parameters()]).numpy()
    found = {}
    for name, code in CODES.items():
        if code is None:
            continue
        payloads = [code.compress(gradient, shapes, np.random.default_rng(seed)) for seed in range(60)]
        errors = [float(((code.expand(each, shapes) - gradient) ** 2).sum()) for each in payloads]
        found[name] = float(np.mean([len(each) for each in payloads])), float(np.mean(errors) / (gradient @ gradient))
    return found


def best_rate(problem: Problem, code: Any, mbit_s: float) -> tuple[float, Any, int | None]:
    """(step size, history, steps) that should reach the target soonest over the link, of a few step sizes."""
    found: list[tuple[float, float, Any, int | None]] = []
    for rate in RATES:
        try:
            history = fit(
                wide(problem), problem.train, optimizer(rate), VirtualGroup(2), loss=CROSS_ENTROPY, batch_size=128, epochs=EPOCHS,
                compression=code, watch=problem.judge, watch_every=5,
            ).history  # fmt: skip
        except SalmonError:
            continue
        losses, places = history.measured("test_loss")
        steps = next(
            (int(history["step"][place]) for loss, place in zip(losses, places, strict=True) if loss <= TARGET), None
        )
        link_s = np.inf if steps is None else history["bytes_sent"][steps - 1] / 2 / (mbit_s * 125_000)
        found.append((link_s, rate, history, steps))
    _, rate, history, steps = min(found, key=lambda each: each[:2])
    return rate, history, steps


def main() -> None:
    given = arguments(__doc__.splitlines()[0], mbit={"type": float, "default": 4.0})
    torch.set_num_threads(1)
    problem = digits(0)
    report = Report(
        "Compressed gradients on digits",
        ("code", "bytes", "variance", "rate", "steps_to", "kilobytes_to", "link_s", "times_none"),
    )
    codes, curves, paths = variances(problem), {}, {}

    def there(row: dict[str, float]) -> bool:
        return row.get("test_loss", np.inf) <= TARGET

    slow: dict[str, float] = {}
    with local_cluster(2) as executor:
        for name, code in CODES.items():
            rate, history, steps = best_rate(problem, code, given.mbit)
            losses, places = history.measured("test_loss")
            curves[name] = thinned((history["bytes_sent"][places] / 1e3).tolist(), losses.tolist())
            sent = None if steps is None else float(history["bytes_sent"][steps - 1] / 1e3)
            if steps is not None:
                job = Job(
                    wide(problem), optimizer(rate), CROSS_ENTROPY, EPOCHS, ConstantBatch(128), compression=code, until=there,
                    watch=problem.judge, watch_every=5,
                )  # fmt: skip
                rows = over_slow_link(executor, job, problem.train, given.mbit, name)
                slow[name] = rows[-1]["seconds"]
                measured = [row for row in rows if "test_loss" in row]
                paths[name] = [row["seconds"] for row in measured], [row["test_loss"] for row in measured]
            size, variance = codes.get(name, (4.0 * sum(each.numel() for each in wide(problem).parameters()), 0.0))
            report.add(
                code=name, bytes=size, variance=variance, rate=rate, steps_to=steps, kilobytes_to=sent, link_s=slow.get(name),
                times_none=slow["none"] / slow[name] if name in slow else None,
            )  # fmt: skip
    best = {
        kind: min((s for name, s in slow.items() if name.startswith(kind)), default=float("nan"))
        for kind in ("spectral", "QSGD", "TernGrad")
    }
    report.note(
        f"Over {given.mbit:g} Mbit/s, to a test loss of {TARGET}: TernGrad takes {best['TernGrad'] / best['spectral']:.2f} times as long as the best "
        f"spectral ATOMO, the best QSGD {best['QSGD'] / best['spectral']:.2f} times, 8-bit QSGD {slow['QSGD, 8 bits'] / best['spectral']:.2f} times."
    )
    report.note(
        f"The step size of each is the best of {', '.join(map(str, RATES))}; variance is a share of |g|². One run of each."
    )
    finish(
        report, "compression",
        [
            {"curves": {name: ([size], [variance]) for name, (size, variance) in codes.items()}, "marks": "o", "xscale": "log", "yscale": "log",
             "xlabel": "bytes of a gradient", "ylabel": "variance / |g|²"},
            {"curves": curves, "xscale": "log", "yscale": "log", "xlabel": "kilobytes sent", "ylabel": "test loss"},
            {"curves": paths, "xscale": "log", "yscale": "log", "xlabel": f"seconds over {given.mbit:g} Mbit/s", "ylabel": "test loss"},
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
