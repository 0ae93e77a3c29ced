"""The embedding of 10,000 targets from 1,000,000 answers in 1 and 2 processes, against 2 processes that share nothing.

    python -m benchmarks.training.scaling [--rounds 3]

Two processes side by side slow each other down on one machine whatever they do; what both reach when they train apart is all that
can be had, and the share of it that a common run reaches is what the exchange of gradients leaves. The ring of `salmon.distributed.ring` and
torch's gloo are taken in turn.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import NOISE, answers
from salmon.distributed import CPSGD, Averaging, TorchGroup, fit
from salmon.distributed.triplets import TripletLosses
from salmon.learning.refit import random_start
from salmon.parallel.dask import local_cluster

N, M = 10_000, 1_000_000
OPTIMIZER = partial(torch.optim.Adam, lr=0.05)


def rate(group: TorchGroup, data: torch.Tensor, batch: int, averaging: Averaging | None = None) -> float:
    """Examples a second: all whole steps but the first."""
    # Sixty steps at least.
    found = fit(
        TripletLosses(random_start(N, 2, 0), NOISE), data, OPTIMIZER, group, batch_size=batch, epochs=max(1.0, 60 * batch / M),
        averaging=averaging,
    )  # fmt: skip
    took, whole = np.diff(found.history["seconds"]), found.history["batch_size"][1:] == batch
    return float(batch * whole.sum() / took[whole].sum())


def main() -> None:
    given = arguments(__doc__.splitlines()[0], rounds={"type": int, "default": 3})
    torch.set_num_threads(1)
    data = torch.from_numpy(answers(0, N, M))
    report = Report(
        "Scaling of an embedding",
        ("batch_each", "agreement", "one", "two_apart", "together", "share", "gloo", "gloo_share"),
    )
    with local_cluster(1) as first, local_cluster(1) as second, local_cluster(2) as both:
        groups = [TorchGroup(first), TorchGroup(second)]
        for batch, name, averaging in (
            (4_096, "every step", None), (16_384, "every step", None), (65_536, "every step", None), (16_384, "period 8", CPSGD(8)),
        ):  # fmt: skip
            found = []
            for _ in range(given.rounds):
                alone = rate(groups[0], data, batch)
                with ThreadPoolExecutor(2) as pool:
                    apart = sum(pool.map(lambda group, batch=batch: rate(group, data, batch), groups))
                common = [rate(TorchGroup(both, links=links), data, 2 * batch, averaging) for links in ("ring", "gloo")]
                found.append((alone, apart, *common))
            alone, apart, together, gloo = np.median(found, axis=0)
            share, gloo_share = np.median([(each[2] / each[1], each[3] / each[1]) for each in found], axis=0)
            report.add(
                batch_each=batch,
                agreement=name,
                one=float(alone),
                two_apart=float(apart),
                together=float(together),
                share=float(share),
                gloo=float(gloo),
                gloo_share=float(gloo_share),
            )
    report.note(f"Answers a second, medians over {given.rounds} rounds; share is of what two processes reach apart.")
    shown = [row for row in report.rows if row["agreement"] == "every step"]
    batches = [row["batch_each"] for row in shown]
    panel = {
        name: (batches, [row[key] for row in shown])
        for name, key in (
            ("one process", "one"),
            ("two apart", "two_apart"),
            ("two together", "together"),
            ("by gloo", "gloo"),
        )
    }
    finish(
        report,
        "scaling",
        [
            {
                "curves": panel,
                "marks": "o",
                "xscale": "log",
                "xlabel": "answers a step and process",
                "ylabel": "answers a second",
            }
        ],
    )


if __name__ == "__main__":
    main()
