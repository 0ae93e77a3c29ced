"""Bytes on the sockets of 2, 4, 8 and 16 processes: all-reduce of dense gradients against
all-gather of compressed ones.

    python -m benchmarks.training.traffic

Every rank is a process, connected by gloo on loopback. Bytes are those that the kernel counts for the TCP connections
between the ranks (`tcpi_bytes_sent`, without what TCP sent again), next to those that the history of a run shows. The
gradient is that of the network with layers of 64, 256, 256 and 10.
"""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import Report, arguments
from benchmarks.training.compression import CODES, gradient_of, wide
from benchmarks.training.figure import finish
from benchmarks.training.problems import digits
from benchmarks.training.processes import fork_ranks, run_ranks
from salmon.training.groups import Meeting, ProcessRanks

RANKS = (2, 4, 8, 16)
STEPS = 4
#: What is exchanged; "dense, gathered" sends whole gradients in the way in which compressed ones are sent.
GATHERED = "dense, gathered"
#: The first entries of the gradient: so few that they are gathered, too, but without their length.
SHORT, SHORT_ENTRIES = "a thousand entries", 1000
CHOSEN = (
    "none",
    GATHERED,
    *(f"QSGD, {bits} bits" for bits in (1, 4, 8)),
    *(f"QSGD, {bits} bits, buckets of 512" for bits in (1, 4, 8)),
    "TernGrad",
    "entry-wise ATOMO, 10%",
    "spectral ATOMO, 2",
    "spectral ATOMO, 2, 4 bits",
)
TIMEOUT_S = 120.0
# Where `struct tcp_info` of Linux holds tcpi_bytes_sent and tcpi_bytes_retrans, and its length.
_SENT_AT, _SENT_AGAIN_AT, _INFO = 200, 208, 232


def count_sent(store_port: int) -> int:
    """Return the bytes that this process has sent over its TCP connections, without those to the store."""
    total = 0
    for path in Path("/proc/self/fd").iterdir():
        if not path.is_socket():
            continue
        with socket.socket(fileno=os.dup(int(path.name))) as copied:
            try:
                if copied.getpeername()[1] == store_port:
                    continue
                found = copied.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO)
            except (OSError, IndexError):
                continue  # not connected, or not TCP
        sent, again = (int.from_bytes(found[at : at + 8], sys.byteorder) for at in (_SENT_AT, _SENT_AGAIN_AT))
        total += sent - again
    return total


def exchange(name: str, gradient: Any, shapes: Any, ranks: ProcessRanks, step: int) -> None:
    """Exchange one gradient."""
    if name in {"none", SHORT}:
        ranks.reduce(torch.from_numpy(gradient[: SHORT_ENTRIES if name == SHORT else None].copy())[None])
        return
    code = CODES.get(name)
    rng = np.random.default_rng([step, ranks.local.start])
    payload = gradient.tobytes() if code is None else code.compress(gradient, shapes, rng)
    ranks.reduce_coded([payload], lambda received: np.zeros(1, dtype=np.float32) + len(received))


def run_rank(rank: int, size: int, port: int, names: list[str], folder: Path) -> dict[str, tuple[int, int]]:
    """Exchange gradients as one rank; return (bytes on its sockets, bytes that the history would show) of each code."""
    torch.set_num_threads(1)
    meeting = Meeting("127.0.0.1", port, "traffic", rank, size, size, TIMEOUT_S)
    _, process_group = meeting.join()
    ranks = ProcessRanks(process_group, None, meeting)
    gradient, shapes = np.load(folder / "gradient.npy"), [tuple(each.shape) for each in wide().parameters()]
    found: dict[str, tuple[int, int]] = {}
    for name in names:
        process_group.barrier().wait()
        before, counted = count_sent(port), ranks.bytes_sent
        for step in range(STEPS):
            exchange(name, gradient, shapes, ranks, step)
        found[name] = count_sent(port) - before, ranks.bytes_sent - counted
    process_group.barrier().wait()
    return found


def measure(sizes: Sequence[int], names: list[str], gradient: Any) -> list[dict[str, tuple[float, float]]]:
    """Return (bytes of a step on the sockets of all ranks, bytes of a step in the history) of each
    code, for each number of ranks.
    """
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "gradient.npy", gradient)
        ranks = run_ranks(
            "benchmarks.training.traffic", sizes, "--names", json.dumps(names), folder=folder, timeout_s=TIMEOUT_S
        )
    return [
        {name: (sum(each[name][0] for each in group) / STEPS, group[0][name][1] / STEPS) for name in names}
        for group in ranks
    ]


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0], groups={"type": json.loads}, folder={"type": Path}, names={"type": json.loads}
    )
    if given.groups is not None:
        fork_ranks(given.groups, given.folder, partial(run_rank, names=given.names, folder=given.folder))
    report = Report(
        "Bytes on the sockets", ("code", "ranks", "socket_bytes", "history_bytes", "history_share", "times_dense")
    )
    gradient = gradient_of(digits(0))[0]
    for size, found in zip(RANKS, measure(RANKS, list(CHOSEN), gradient), strict=True):
        for name, (sockets, history) in found.items():
            report.add(
                code=name, ranks=size, socket_bytes=sockets, history_bytes=history, history_share=history / sockets,
                times_dense=sockets / found["none"][0],
            )  # fmt: skip
    report.note(f"Bytes of all ranks in one step, means of {STEPS} steps. Gradients have {len(gradient):,} entries.")
    curves = {
        name: (list(RANKS), [row["times_dense"] for row in report.rows if row["code"] == name]) for name in CHOSEN
    }
    finish(
        report, "traffic",
        [{"curves": curves, "marks": "o", "xlabel": "ranks", "ylabel": "bytes / dense all-reduce", "xscale": "log", "yscale": "log"}],
    )  # fmt: skip


if __name__ == "__main__":
    main()
