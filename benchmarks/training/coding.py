"""Bytes of rounded gradients at 1, 4 and 8 bits, with buckets and without, beside dense ones and spectral ATOMO.

    python -m benchmarks.training.coding [--seeds 3]

Digits with layers of 64, 256, 256 and 10, two virtual ranks, to a test loss of 0.15: the bytes of a gradient, the
variance that rounding adds, and the bytes of a run at the learning rate with the fewest of them.
"""

from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.compression import CODES, TARGET, train_at_rate, variances, wide
from benchmarks.training.figure import finish
from benchmarks.training.problems import digits

RATES = (0.1, 0.2, 0.4, 0.8)
CHOSEN = (
    "none",
    *(f"QSGD, {bits} bits{buckets}" for bits in (1, 4, 8) for buckets in ("", ", buckets of 512")),
    "TernGrad",
    *(f"spectral ATOMO, {budget}, 4 bits" for budget in (1, 2, 3)),
    *(f"spectral ATOMO, {budget}, 8 bits" for budget in (1, 2)),
)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 3})
    torch.set_num_threads(1)
    entries = sum(each.numel() for each in wide().parameters())
    measured = variances(digits(0))
    report = Report(
        "Coded gradients", ("code", "bytes", "bits_entry", "variance", "rate", "steps", "kilobytes", "share")
    )
    dense = 0.0
    for name in CHOSEN:
        size, variance = measured.get(name, (4.0 * entries, 0.0))
        ends: dict[float, Any] = {}
        for rate in RATES:
            found = train_at_rate(rate, CODES[name], given.seeds)
            if len(found) == given.seeds:
                last = [history.rows[-1] for history in found]
                ends[rate] = np.median([(row["bytes_sent"] / 1e3, row["step"]) for row in last], axis=0)
        rate = min(ends, key=lambda each: ends[each][0])
        kilobytes, steps = (float(each) for each in ends[rate])
        dense = dense or kilobytes
        report.add(
            code=name, bytes=size, bits_entry=8 * size / entries, variance=variance, rate=rate, steps=steps, kilobytes=kilobytes,
            share=kilobytes / dense,
        )  # fmt: skip
    kinds = {kind: [row for row in report.rows if row["code"].startswith(kind)] for kind in ("QSGD", "spectral")}
    best = {kind: min(rows, key=lambda row: row["kilobytes"]) for kind, rows in kinds.items()}
    lead = best["QSGD"]["kilobytes"] / best["spectral"]["kilobytes"]
    report.note(
        f"The fewest bytes to the target: {best['QSGD']['code']} with {best['QSGD']['kilobytes']:,.0f} kB, "
        f"{best['spectral']['code']} with {best['spectral']['kilobytes']:,.0f} kB; the first takes {lead:.2f} times as many as the second."
    )
    report.note(
        f"To a test loss of {TARGET}; medians over {given.seeds} seeds. The rate is the one of {', '.join(map(str, RATES))} with the fewest bytes "
        "at which every seed reached it. Bytes to the target are those of both ranks, with gloo's headers."
    )
    dots = {row["code"]: ([row["bytes"]], [row["variance"]]) for row in report.rows if row["variance"]}
    finish(
        report, "coding",
        [{"curves": dots, "marks": "o", "xlabel": "bytes of a gradient", "ylabel": "variance / |g|²", "xscale": "log", "yscale": "log"}],
    )  # fmt: skip


if __name__ == "__main__":
    main()
