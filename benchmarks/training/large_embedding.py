"""An embedding of 10,000 targets from 10,000,000 answers: batches in one process and in two, and all answers in every step.

    python -m benchmarks.training.large_embedding [--answers 10000000] [--epochs 4]

Each fit has one thread in each process, and is judged on 200,000 other answers. One run takes about a quarter of an hour.
"""

import time

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import FOLDER
from benchmarks.training.problems import NOISE, answers
from salmon import OrdinalEmbedding
from salmon.parallel.dask import local_cluster
from salmon.training import CPSGD

N, HELD_OUT, BATCH = 10_000, 200_000, 65_536


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0], answers={"type": int, "default": 10_000_000}, epochs={"type": float, "default": 4.0}
    )  # fmt: skip
    torch.set_num_threads(1)
    rows = answers(0, N, given.answers + HELD_OUT)
    train, test = rows[HELD_OUT:], rows[:HELD_OUT]
    report = Report("A large embedding", ("method", "seconds", "times_one", "objective", "accuracy"))
    common = {"noise": NOISE, "n_targets": N, "random_state": 0, "n_init": 1}
    first = None
    with local_cluster(2) as two:
        for method, options in (
            ("one process, batches", {"batch_size": BATCH, "epochs": given.epochs}),
            ("two processes, batches", {"batch_size": 2 * BATCH, "epochs": given.epochs, "executor": two}),
            (
                "two processes, batches, averaged every 8 steps",
                {"batch_size": 2 * BATCH, "epochs": given.epochs, "executor": two, "averaging": CPSGD(8)},
            ),
            ("one process, all answers (L-BFGS)", {}),
            ("two processes, all answers (L-BFGS)", {"executor": two}),
        ):
            started = time.perf_counter()
            model = OrdinalEmbedding(**common, **options).fit(train)
            seconds = time.perf_counter() - started
            first = first or seconds
            report.add(
                method=method, seconds=seconds, times_one=first / seconds, objective=float(model.objective_),
                accuracy=float(np.mean([model.score(part) for part in np.array_split(test, 4)])),
            )  # fmt: skip
    report.note(
        f"{N:,} targets, {given.answers:,} answers, {given.epochs:g} epochs in batches. Seconds include the common start, which one process computes."
    )
    report.write(FOLDER / "large_embedding.json")


if __name__ == "__main__":
    main()
