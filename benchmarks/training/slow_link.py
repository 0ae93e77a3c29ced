"""Two real ranks that exchange gradients over a simulated slow link: a token bucket in each, over gloo on loopback."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed import TCPStore

from salmon.training.groups import Meeting, ProcessRanks, is_gathered
from salmon.training.loop import initial_state
from salmon.training.state import TrainingJob
from salmon.training.steps import run_steps

TIMEOUT_S = 120.0


class TokenBucket:
    """Limit the bytes per second; up to a tenth of a second's worth accumulates while nothing is sent."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._tokens, self._at = 0.0, time.perf_counter()

    def spend(self, amount: float) -> None:
        """Wait until this many bytes could have been sent."""
        now = time.perf_counter()
        self._tokens = min(self._bytes_s / 10, self._tokens + (now - self._at) * self._bytes_s) - amount
        self._at = now
        if self._tokens < 0:
            time.sleep(-self._tokens / self._bytes_s)


class SlowRanks(ProcessRanks):
    """A rank that waits for its bytes: an all-reduce sends 2(w − 1)/w times a dense vector, an all-gather w − 1 vectors or payloads."""

    bucket: TokenBucket

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """Wait, then all-reduce."""
        if not is_gathered(self.size, vectors[0]):
            self.bucket.spend(2 * (self.size - 1) / self.size * vectors[0].nbytes)
        return super().reduce(vectors)

    def gather(self, vectors: torch.Tensor) -> torch.Tensor | None:
        """Wait, then all-gather."""
        if is_gathered(self.size, vectors[0]):
            self.bucket.spend((self.size - 1) * vectors[0].nbytes)
        return super().gather(vectors)

    def reduce_coded(self, payloads: Sequence[bytes], expand: Callable[[bytes], Any]) -> np.ndarray:
        """Wait, then all-gather."""
        self.bucket.spend((self.size - 1) * len(payloads[0]))
        return super().reduce_coded(payloads, expand)


def train_slow_rank(job: TrainingJob, data: Any, meeting: Meeting, bytes_s: float) -> list[dict[str, float]]:
    """Return the rows of one rank of a run."""
    torch.set_num_threads(1)
    store, process_group = meeting.join()
    ranks = SlowRanks(process_group, store, meeting)
    ranks.bucket = TokenBucket(bytes_s)
    rows = run_steps(job, data, initial_state(job), ranks).rows
    process_group.abort()
    return list(rows)


def train_over_slow_link(
    executor: Any, job: TrainingJob, data: Any, mbit_s: float, name: str
) -> list[dict[str, float]]:
    """Train with two ranks in the workers of a cluster; return the rows of the first."""
    store = TCPStore(executor.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=TIMEOUT_S))
    meeting = partial(Meeting, executor.host, store.port, name, size=2, largest=2, timeout_s=TIMEOUT_S)
    tasks = [
        executor.submit_at(
            address, train_slow_rank, job, data, meeting(rank=rank), mbit_s * 125_000, name=f"slow-{rank}"
        )
        for rank, address in enumerate(executor.addresses()[:2])
    ]
    first, _ = (task.result() for task in tasks)
    return first
