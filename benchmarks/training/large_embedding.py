"""The estimator on 10,000 targets and 10,000,000 answers: batches on two processes against one,
and against a fit to all answers.

    python -m benchmarks.training.large_embedding [--answers 10000000] [--all-iterations 30] [--epochs 4]

The fits in batches are made by the function that OrdinalEmbedding calls for them. All start from the same coordinates,
the spectral ones, whose time is not counted. Every 10 steps of the fits in batches, and after every iteration of the
fit to all answers, the log-loss of 100,000 other answers is computed, whose time is not counted either. The target is
1.005 times the least log-loss that any of them reached. CPU seconds of a process depend less on other programs than
those on the wall.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish, thin
from benchmarks.training.problems import NOISE, answers
from salmon import OrdinalEmbedding
from salmon.learning import fit as fit_to_all
from salmon.learning import log_loss
from salmon.learning.objective import objective_of
from salmon.learning.refit import best_scale, spectral_start
from salmon.parallel.dask import local_cluster
from salmon.training import CPSGD, GeoDamp, TorchGroup, VirtualGroup
from salmon.training.embedding import fit_embedding

N, HELD_OUT, WATCHED = 10_000, 100_000, 10
STEP_SIZE, RIDGE = 0.05, OrdinalEmbedding().ridge
#: Seconds, log-loss, and CPU seconds of the first process.
Place = tuple[float, float, float]
#: name -> (processes, options of fit). A batch is that of all processes together.
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {"batch_size": GeoDamp(65_536, delay=1, factor=4, maximum=262_144)}),
    "two processes, gradients averaged in every step": (2, {"batch_size": GeoDamp(65_536, delay=1, factor=4, maximum=262_144)}),
    "two processes, parameters averaged every 8 steps": (
        2, {"batch_size": GeoDamp(65_536, delay=1, factor=4, maximum=262_144), "averaging": CPSGD(8)}
    ),
}  # fmt: skip


def read_clocks() -> tuple[float, float]:
    """Return the seconds on the wall, and those of this process."""
    return time.perf_counter(), time.process_time()


@dataclass
class Clock:
    """(seconds, log-loss, CPU seconds) along a fit, without the time in which losses were computed."""

    held_out: np.ndarray
    path: list[Place] = field(default_factory=list)
    started: tuple[float, float] = field(default_factory=read_clocks)
    paused: tuple[float, float] = (0.0, 0.0)

    def note(self, coordinates: np.ndarray, _objective: float) -> None:
        """Add the log-loss of some coordinates."""
        before = read_clocks()
        loss = log_loss(coordinates, self.held_out, noise=NOISE)
        wall, cpu = (now - start - paused for now, start, paused in zip(before, self.started, self.paused, strict=True))
        self.path.append((wall, loss, cpu))
        after = read_clocks()
        self.paused = self.paused[0] + after[0] - before[0], self.paused[1] + after[1] - before[1]


@dataclass
class Judge:
    """The log-loss of other answers, and the CPU time of the first process so far without that of computing losses."""

    held_out: np.ndarray
    started_s: float | None = None
    paused_s: float = 0.0

    def __call__(self, module: Any) -> dict[str, float]:
        """Return the figures of a step."""
        before = time.process_time()
        loss = log_loss(module.coordinates.detach().numpy(), self.held_out, noise=NOISE)
        self.started_s = before if self.started_s is None else self.started_s
        spent = before - self.started_s - self.paused_s
        self.paused_s += time.process_time() - before
        return {"test_loss": loss, "cpu_s": spent}


def fit_all(rows: np.ndarray, start: np.ndarray, held_out: np.ndarray, iterations: int) -> list[Place]:
    """Return the path of a fit to all answers on one thread."""
    clock = Clock(held_out)
    fit_to_all(
        rows,
        N,
        start.shape[1],
        noise=NOISE,
        ridge=RIDGE,
        start=start,
        n_starts=0,
        max_iter=iterations,
        callback=clock.note,
    )
    return clock.path


def fit_batches(
    rows: np.ndarray, start: np.ndarray, held_out: np.ndarray, group: Any, epochs: float, options: dict[str, Any]
) -> list[Place]:
    """Return the path of a fit in batches."""
    _, trained = fit_embedding(
        rows, start, NOISE, ridge=RIDGE, step_size=STEP_SIZE, group=group, seed=0, epochs=epochs,
        watch=Judge(held_out), watch_every=WATCHED, **options,
    )  # fmt: skip
    losses, places = trained.history.select_measured("test_loss")
    columns = trained.history["seconds"][places], losses, trained.history["cpu_s"][places]
    return [(float(wall), float(loss), float(cpu)) for wall, loss, cpu in zip(*columns, strict=True)]


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0], answers={"type": int, "default": 10_000_000}, all_iterations={"type": int, "default": 30},
        epochs={"type": float, "default": 4.0},
    )  # fmt: skip
    torch.set_num_threads(1)
    rows = answers(0, N, given.answers + HELD_OUT)
    rows, held_out = rows[:-HELD_OUT], rows[-HELD_OUT:]
    before = time.perf_counter()
    start = best_scale(objective_of(rows, N, NOISE, ridge=RIDGE), spectral_start(rows, N, 2, 0))
    starting_s = time.perf_counter() - before
    paths: dict[str, list[Place]] = {}
    for name, (processes, options) in WAYS.items():
        if processes == 1:
            paths[name] = fit_batches(rows, start, held_out, VirtualGroup(1), given.epochs, options)
        else:
            with local_cluster(processes) as executor:
                paths[name] = fit_batches(rows, start, held_out, TorchGroup(executor), given.epochs, options)
        print(name, paths[name][-1], flush=True)
    paths["one thread, all answers in every step"] = fit_all(rows, start, held_out, given.all_iterations)
    target = 1.005 * min(loss for path in paths.values() for _, loss, _ in path)
    report = Report("A large embedding", ("method", "processes", "to_target_s", "cpu_s", "least", "seconds"))
    first = next((place for place in paths["one process"] if place[1] <= target), None)
    for name, path in paths.items():
        reached = next((place for place in path if place[1] <= target), None)
        report.add(
            method=name, processes=WAYS.get(name, (1, {}))[0], to_target_s=reached and reached[0], cpu_s=reached and reached[2],
            least=min(loss for _, loss, _ in path), seconds=path[-1][0], times_one=first[0] / reached[0] if first and reached else None,
            times_one_cpu=first[2] / reached[2] if first and reached else None,
        )  # fmt: skip
    report.note(
        f"{N:,} targets, {given.answers:,} answers, Adam with a step size of {STEP_SIZE}. Seconds to a log-loss of {target:.4f} of {HELD_OUT:,} other "
        f"answers, from the spectral start, which takes {starting_s:.0f} s. CPU seconds are those of the first process. One run each; "
        f"the fits in batches ended after {given.epochs:g} epochs, the fit to all answers after {given.all_iterations} iterations."
    )
    curves = {name: thin([place[2] for place in path], [place[1] for place in path]) for name, path in paths.items()}
    finish(
        report, "large_embedding",
        [{"curves": curves, "xlabel": "CPU seconds of the first process", "ylabel": "log-loss of other answers", "xscale": "log"}],
    )  # fmt: skip


if __name__ == "__main__":
    main()
