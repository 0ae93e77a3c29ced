"""Two real ranks that exchange gradients, and how long their run takes over a slow link.

    seconds of a step = processor time of the slower rank + bytes that a rank sends / bandwidth

The ranks are connected by gloo on loopback. Processor time and counted bytes do not depend on other work on the machine, unlike time on the wall.
"""

import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed import TCPStore

from salmon.training.groups import Meeting, ProcessRanks
from salmon.training.loop import initial_state
from salmon.training.state import TrainingJob
from salmon.training.steps import run_steps

TIMEOUT_S = 120.0


class TimedJudge:
    """A function for `watch` that counts its own seconds of processor time."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge
        self.spent_s = 0.0

    def __call__(self, module: nn.Module) -> dict[str, float]:
        """Judge a module."""
        before = time.process_time()
        found = self._judge(module)
        self.spent_s += time.process_time() - before
        return found


class TimedRanks(ProcessRanks):
    """A rank that notes its processor time after each step, without that of judging."""

    judge: TimedJudge
    marks_s: list[float]

    def report(self, row: dict[str, float]) -> None:
        """Note the time; nobody observes the run."""
        del row
        self.marks_s.append(time.process_time() - self.judge.spent_s)


def train_timed_rank(job: TrainingJob, data: Any, meeting: Meeting) -> tuple[list[dict[str, float]], list[float]]:
    """Return the rows of one rank of a run, and its seconds of processor time in each step."""
    torch.set_num_threads(1)
    store, process_group = meeting.join()
    ranks = TimedRanks(process_group, store, meeting)
    ranks.judge = TimedJudge(job.watch)
    ranks.marks_s = [time.process_time()]
    rows = run_steps(replace(job, watch=ranks.judge), data, initial_state(job), ranks).rows
    process_group.abort()
    return list(rows), np.diff(ranks.marks_s).tolist()


def train_two_ranks(executor: Any, job: TrainingJob, data: Any, name: str) -> tuple[list[dict[str, float]], Any]:
    """Train with two ranks in the workers of a cluster; return the rows of the first, and the slower one's seconds (steps,)."""
    store = TCPStore(executor.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=TIMEOUT_S))
    meeting = partial(Meeting, executor.host, store.port, name, size=2, largest=2, timeout_s=TIMEOUT_S)
    tasks = [
        executor.submit_at(address, train_timed_rank, job, data, meeting(rank=rank), name=f"timed-{rank}")
        for rank, address in enumerate(executor.addresses()[:2])
    ]
    (rows, first), (_, second) = (task.result() for task in tasks)
    return rows, np.maximum(first, second)


def add_link(rows: list[dict[str, float]], computed_s: Any, mbit_s: float) -> Any:
    """Return the seconds (steps,) since the start after each step, over a link of this bandwidth."""
    sent = np.diff([row["bytes_sent"] / 2 for row in rows], prepend=0.0)
    return np.cumsum(computed_s + sent / (mbit_s * 125_000))
