"""Two real ranks that exchange gradients, and how long their run takes over a slow link.

    seconds of a step = processor time of the slower rank + bytes that a rank sends / bandwidth

The ranks are connected by gloo on loopback. Processor time and counted bytes do not depend on other work on the
machine, unlike time on the wall.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from salmon.training.groups import Meeting, ProcessRanks
from salmon.training.loop import initial_state
from salmon.training.state import TrainingJob
from salmon.training.steps import run_steps


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


@dataclass(frozen=True)
class TimedRun:
    """A run of one rank: seconds of processor time and bytes it sent in each step, and the
    test losses (steps taken, loss).
    """

    computed_s: list[float]
    sent: list[float]
    losses: list[tuple[int, float]]


def train_timed_rank(job: TrainingJob, data: Any, joined: tuple[Any, Any], meeting: Meeting) -> TimedRun:
    """Train as one of two ranks that have joined, and return what was measured."""
    store, process_group = joined
    ranks = TimedRanks(process_group, store, meeting)
    ranks.judge = TimedJudge(job.watch)
    ranks.marks_s = [time.process_time()]
    rows = run_steps(replace(job, watch=ranks.judge), data, initial_state(job), ranks).rows
    return TimedRun(
        np.diff(ranks.marks_s).tolist(),
        np.diff([row["bytes_sent"] / 2 for row in rows], prepend=0.0).tolist(),
        [(index + 1, row["test_loss"]) for index, row in enumerate(rows) if "test_loss" in row],
    )


def add_link(first: TimedRun, second: TimedRun, mbit_s: float) -> Any:
    """Return the seconds (steps,) since the start after each step of two ranks over a link of this bandwidth."""
    computed_s = np.maximum(first.computed_s, second.computed_s)
    return np.cumsum(computed_s + np.array(first.sent) / (mbit_s * 125_000))
