"""Two real ranks whose exchanges pass a slow link: a token bucket in each, over gloo on loopback."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed import PrefixStore, TCPStore

from salmon.distributed.links import GlooLinks
from salmon.distributed.loop import started
from salmon.distributed.rank import Place, ProcessRanks
from salmon.distributed.state import Job
from salmon.distributed.steps import Limits, run_steps


class TokenBucket:
    """Bytes flow in at a constant rate, up to a tenth of a second's worth; whoever sends waits until there are enough."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._tokens, self._at = 0.0, time.perf_counter()

    def spend(self, amount: float) -> None:
        """Wait until so many bytes have passed."""
        now = time.perf_counter()
        self._tokens = min(self._bytes_s / 10, self._tokens + (now - self._at) * self._bytes_s) - amount
        self._at = now
        if self._tokens < 0:
            time.sleep(-self._tokens / self._bytes_s)


class SlowRanks(ProcessRanks):
    """A rank whose every exchange pays for its bytes: a ring sends 2(w − 1)/w of a dense vector, a gather w − 1 payloads."""

    bucket: TokenBucket

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """All-reduce, after its bytes have passed."""
        self.bucket.spend(2 * (self.size - 1) / self.size * vectors.element_size() * vectors.shape[1])
        return super().reduce(vectors)

    def reduce_coded(self, payloads: Sequence[bytes], expand: Callable[[bytes], Any]) -> np.ndarray:
        """All-gather, after its bytes have passed."""
        self.bucket.spend((self.size - 1) * len(payloads[0]))
        return super().reduce_coded(payloads, expand)


def slow_rank(job: Job, data: Any, place: Place, bytes_s: float) -> list[dict[str, float]]:
    """The rows of one rank of a run."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=120)
    store = TCPStore(place.host, place.port, is_master=False, timeout=timeout)
    links = GlooLinks.meet(PrefixStore(place.name, store), place.rank, place.size, host=place.here, timeout_s=120)
    ranks = SlowRanks(links, store, place)
    ranks.bucket = TokenBucket(bytes_s)
    rows = run_steps(job, data, started(job), ranks, Limits()).rows
    links.close()
    return list(rows)


def over_slow_link(executor: Any, job: Job, data: Any, mbit_s: float, name: str) -> list[dict[str, float]]:
    """The rows of the first of two ranks in the workers of a cluster."""
    store = TCPStore(executor.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=120))
    place = partial(Place, executor.host, store.port, name, size=2, largest=2, timeout_s=120.0)
    tasks = [
        executor.submit_at(address, slow_rank, job, data, place(rank=rank), mbit_s * 125_000, name=f"slow-{rank}")
        for rank, address in enumerate(executor.addresses()[:2])
    ]
    first, _ = (task.result() for task in tasks)
    return first
