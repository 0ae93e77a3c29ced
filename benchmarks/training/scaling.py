"""Throughput of one and two processes on an embedding of 10,000 targets from 1,000,000 answers.

    python -m benchmarks.training.scaling [--minutes 20]

Two processes on one machine slow each other down even if they share nothing. The throughput of two processes that train
separately is therefore the upper limit; the share of it that two processes reach together is what the exchange of
gradients leaves. Each round measures one process, two apart, two together and again two apart; the share is computed
within the round, from the mean of both. Only the third of the rounds in which other programs used the least CPU time is
evaluated.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import NOISE, answers
from salmon.learning.refit import random_start
from salmon.parallel.dask import local_cluster
from salmon.training import CPSGD, Averaging, TorchGroup, fit
from salmon.training.embedding import TripletLosses

N, M = 10_000, 1_000_000
OPTIMIZER = partial(torch.optim.Adam, lr=0.05)
#: Answers that each process sees in a step, and the period with which two processes average parameters (None:
#: gradients, every step).
CASES = ((4_096, None), (4_096, 8), (16_384, None), (16_384, 8), (65_536, None))


def rate(group: TorchGroup, data: torch.Tensor, batch: int, averaging: Averaging | None = None) -> float:
    """Return the answers per second of at least sixty steps, without the first and without shorter ones."""
    history = fit(
        TripletLosses(random_start(N, 2, 0), NOISE), data, OPTIMIZER, group, batch_size=batch, epochs=max(1.0, 60 * batch / M),
        averaging=averaging,
    ).history  # fmt: skip
    took, whole = np.diff(history["seconds"]), history["batch_size"][1:] == batch
    return float(batch * whole.sum() / took[whole].sum())


def rate_apart(groups: list[TorchGroup], data: torch.Tensor, batch: int) -> float:
    """Return the answers per second of two processes that train separately at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda group: rate(group, data, batch), groups))


def used_s() -> tuple[float, float]:
    """Return the CPU seconds used so far by the whole machine, and by this process and its children."""
    machine, process = psutil.cpu_times(), psutil.Process()
    own = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(machine) - machine.idle - machine.iowait, sum(each.user + each.system for each in own)


def measure(
    separate: list[TorchGroup], common: TorchGroup, data: torch.Tensor, case: tuple[int, int | None]
) -> tuple[float, float, float, float]:
    """Return the answers per second of (one process, two apart, two together), and the cores used by other programs."""
    batch, period = case
    started, (all_before, own_before) = time.perf_counter(), used_s()
    alone = rate(separate[0], data, batch)
    before = rate_apart(separate, data, batch)
    together = rate(common, data, 2 * batch, CPSGD(period) if period else None)
    apart = (before + rate_apart(separate, data, batch)) / 2
    all_after, own_after = used_s()
    others = (all_after - all_before - (own_after - own_before)) / (time.perf_counter() - started)
    return alone, apart, together, others


def main() -> None:
    given = arguments(__doc__.splitlines()[0], minutes={"type": float, "default": 20.0})
    torch.set_num_threads(1)
    data = torch.from_numpy(answers(0, N, M))
    report = Report(
        "Scaling of an embedding",
        ("batch_each", "synchronised", "one", "two_apart", "together", "share", "share_q1", "share_q3", "others"),
    )
    rounds: dict[tuple[int, int | None], list[tuple[float, ...]]] = {case: [] for case in CASES}
    with local_cluster(1) as first, local_cluster(1) as second, local_cluster(2) as both:
        separate, common = [TorchGroup(first), TorchGroup(second)], TorchGroup(both)
        end = time.monotonic() + 60 * given.minutes
        while time.monotonic() < end:
            for case, measured in rounds.items():
                measured.append(measure(separate, common, data, case))
    total = len(rounds[CASES[0]])
    kept = max(1, total // 3)
    for (batch, period), measured in rounds.items():
        quiet = sorted(measured, key=lambda each: each[3])[:kept]
        alone, apart, together, others = (float(each) for each in np.median(quiet, axis=0))
        low, middle, high = np.quantile([each[2] / each[1] for each in quiet], (0.25, 0.5, 0.75))
        report.add(
            batch_each=batch, synchronised=f"every {period} steps" if period else "every step", one=alone, two_apart=apart,
            together=together, share=float(middle), share_q1=float(low), share_q3=float(high), others=others,
        )  # fmt: skip
    report.note(
        f"Answers per second, medians of the {kept} of {total} rounds with the least other work on the machine. The ratio "
        "together / apart is that of the same round; its median and quartiles are shown."
    )
    others = [row["others"] for row in report.rows]
    report.note(f"In these rounds other programs used {max(0.0, *others):.1f} of the two cores at most (medians).")
    finish(report, "scaling", [draw_panel(report.rows)])


def draw_panel(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a panel of the throughput relative to one process, against the answers per step."""
    batches = sorted({row["batch_each"] for row in rows})
    synchronised = {"every step": "two together, every step", "every 8 steps": "two together, every 8 steps"}
    columns = {"two apart": ("every step", "two_apart")} | {
        label: (name, "together") for name, label in synchronised.items()
    }
    return {
        "curves": {
            label: (
                [batches.index(row["batch_each"]) for row in rows if row["synchronised"] == name],
                [row[column] / row["one"] for row in rows if row["synchronised"] == name],
            )
            for label, (name, column) in columns.items()
        },
        "marks": "o",
        "xticks": range(len(batches)),
        "xticklabels": [f"{batch:,}" for batch in batches],
        "xlabel": "answers per step and process",
        "ylim": (0, 2),
        "ylabel": "throughput / one process",
    }


if __name__ == "__main__":
    main()
