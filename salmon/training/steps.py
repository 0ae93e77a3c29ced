"""The training loop: plan a step, take it, synchronise the replicas, add a row; the same for every kind of group."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, isfinite, isnan, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.training.batch_size import BatchSizeInputs
from salmon.training.monitors import Monitor, MonitorMemory, StepMeasurement
from salmon.training.policies import SharedFigures, StepPlan
from salmon.training.replicas import Ranks, Replicas, Synchronisation, choose_synchronisation
from salmon.training.state import (
    HistoryRow,
    SegmentOutcome,
    TrainingJob,
    TrainingProgress,
    TrainingState,
    resize_replicas,
    take_replicas,
)

# Examples that go through the module at once when the whole training set is evaluated.
_EVALUATED_AT_ONCE = 1 << 13
# Layers that normalise by the statistics of a batch.
_NORMALISED = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
# Each round uses two tables. With three, every position is equally likely, even for small n.
_ROUNDS = 3


class LostWorkerError(Exception):
    """A rank of the group is lost, so that this step cannot be finished."""


def run_steps(
    job: TrainingJob, data: tuple[Any, ...], state: TrainingState, ranks: Ranks, end_epoch: float = inf
) -> SegmentOutcome:
    """Run the local ranks from a state to an epoch, or until something else ends the segment."""
    steps = Steps(job, data, state, ranks)
    rows: list[HistoryRow] = []
    reason, workers = "limit", None
    while True:
        if steps.passes >= min(job.epochs, end_epoch) - 1e-9:
            reason = "finished" if steps.passes >= job.epochs - 1e-9 else "limit"
            break
        try:
            plan = steps.plan()
            if plan.workers is not None and min(plan.workers, ranks.largest) != ranks.size:
                reason, workers = "regroup", min(plan.workers, ranks.largest)
                break
            row = steps.take(plan)
        except LostWorkerError:
            reason = "lost"
            break
        rows.append(row)
        ranks.report(row)
        if steps.synchronisation.finish:
            reason = "finished"
            break
        if steps.synchronisation.regroup:
            reason = "regroup"
            break
    return SegmentOutcome(steps.state(), tuple(rows), reason, workers)


class Steps:
    """A run in progress in this process: the tensors that change, and the pure states that decide how."""

    def __init__(self, job: TrainingJob, data: tuple[Any, ...], state: TrainingState, ranks: Ranks) -> None:
        self._job, self._data, self._ranks = job, data, ranks
        self._n = len(data[0])
        self._progress, self._memory = state.progress, state.memory
        self._monitors = list(state.monitors) or [{} for _ in job.monitors]
        self._monitored: HistoryRow = {}
        for monitor, memory in zip(job.monitors, self._monitors, strict=True):
            self._show(monitor, memory)
        self._figures = dict(state.figures)
        every = job.averaging.replicas
        here = every * len(ranks.local) if job.averaging.differ else 1
        whole = every * ranks.size if job.averaging.differ else 1
        self._replicas = Replicas(job, here)
        own = take_replicas(resize_replicas(state.arrays, whole), every * ranks.local.start, here)
        self._replicas.restore(own)
        #: Synchronises the replicas, and knows whether any rank has asked to end the segment.
        self.synchronisation: Synchronisation = choose_synchronisation(
            job, self._replicas, ranks, replace(state, arrays=own)
        )
        # BatchNorm needs two examples to compute a variance.
        self._fewest = 2 if any(isinstance(each, _NORMALISED) for each in job.module.modules()) else 1
        self._planned_s = 0.0
        self._order = (-1, ShuffledOrder(1, [0]))

    @property
    def passes(self) -> float:
        """Return the passes over the data so far."""
        return self._progress.epoch + self._progress.position / self._n

    def plan(self) -> StepPlan:
        """Plan the next step: apply the batch-size rule first, then each policy."""
        started = time.perf_counter()
        rule = self._job.batch_size
        inputs = BatchSizeInputs(
            self._progress.step,
            self.passes,
            self._figures.get("loss", nan),
            self._figures.get("gradient_norm2", nan),
            *self._evaluate_training_set(rule.needs if self._progress.step % rule.dwell == 0 else ""),
        )
        self._memory = rule.remember(self._memory, inputs)
        size, factor = rule.batch_and_rate(self._memory.growth)
        plan = StepPlan(size, factor)
        figures = SharedFigures({**self._figures, "step": self._progress.step, "epoch": self.passes})
        for policy in self._job.policies:
            plan = policy(figures, plan)
        self._planned_s = time.perf_counter() - started
        return plan

    def take(self, plan: StepPlan) -> HistoryRow:
        """Take one step and return its row."""
        started = time.perf_counter()
        before = self._progress
        every, local = self._job.averaging.replicas, self._ranks.local
        parts = every * self._ranks.size
        size = self._count_examples(plan, parts)
        batch, counted = self._gather(
            self._choose_examples(size, parts, range(every * local.start, every * local.stop))
        )
        with _seed_torch(hash((self._job.seed, before.step, local.start)) % (1 << 62)):
            sums, gradients = self._replicas.gradients(batch, counted)
        result = self.synchronisation.finish_step(
            before.step, sums, gradients, counted.sum(dim=1), size, plan.rate_factor
        )
        if not isfinite(result.loss):
            raise SalmonError(
                f"Training diverged at step {before.step}: the loss is {result.loss}.",
                hint="Lower the learning rate, or start with a larger batch.",
                where="optimizer",
            )
        measurement = StepMeasurement(
            before.step, size, size / self._ranks.size, result.columns["loss"], result.local_norm2, result.norm2
        )
        for index, monitor in enumerate(self._job.monitors):
            # Only what has travelled may be measured: another loss would be different on each rank.
            if result.synchronised and before.step % monitor.every == 0:
                self._monitors[index] = monitor.update(self._monitors[index], measurement)
                self._show(monitor, self._monitors[index])
        position = before.position + size
        over = position >= self._n
        self._progress = TrainingProgress(
            step=before.step + 1,
            epoch=before.epoch + over,
            position=0 if over else position,
            examples=before.examples + size,
            bytes_sent=before.bytes_sent + result.bytes_sent,
            synchronisations=before.synchronisations + result.synchronised,
            seconds=before.seconds + self._planned_s + time.perf_counter() - started,
        )
        shared = self._shared_figures(plan, size, result.columns)
        # The last batch of an epoch may be cut short: policies continue from the size that was planned.
        self._figures = {**shared, "planned_batch_size": plan.batch_size}
        return self._row(shared)

    def state(self) -> TrainingState:
        """Return everything needed to continue from here."""
        return TrainingState(
            {**self._replicas.arrays(), **self.synchronisation.arrays()},
            self._progress,
            self._memory,
            self.synchronisation.state,
            tuple(dict(each) for each in self._monitors),
            self._figures,
        )

    def _shared_figures(self, plan: StepPlan, batch_size: int, columns: HistoryRow) -> HistoryRow:
        """Return the figures of the last step that are equal on all ranks, from which the next one may be decided."""
        now = self._progress
        return {
            "step": now.step,
            "epoch": self.passes,
            "examples": now.examples,
            "batch_size": batch_size,
            "learning_rate": self._replicas.rate * plan.rate_factor,
            "workers": self._ranks.size,
            **columns,
            "bytes_sent": now.bytes_sent,
            "synchronisations": now.synchronisations,
            **self._monitored,
        }

    def _row(self, shared: HistoryRow) -> HistoryRow:
        """Return a row: the shared figures, the time and, on the first rank, what is watched; ask to finish if it says so."""
        now = self._progress
        row: HistoryRow = {**shared, "seconds": now.seconds}
        is_first = 0 in self._ranks.local
        if self._job.watch is not None and is_first and now.step % self._job.watch_every == 0:
            module = self._replicas.module_at(self.synchronisation.centre()).eval()
            with torch.no_grad():
                row.update(self._job.watch(module))
            module.train()
        if self._job.until is not None and is_first and self._job.until(row):
            self.synchronisation.ask_to_finish()
        return row

    def _show(self, monitor: Monitor, memory: MonitorMemory) -> None:
        """Keep a monitor's value for the rows until it measures again; a NaN has no column."""
        if isnan(value := monitor.value(memory)):
            self._monitored.pop(monitor.name, None)
        else:
            self._monitored[monitor.name] = value

    def _count_examples(self, plan: StepPlan, parts: int) -> int:
        """Return the examples of the next step; the last one of an epoch has those that are left."""
        left = self._n - self._progress.position
        size = min(self._job.averaging.step_batch(plan.batch_size, parts), left)
        if self._fewest == 1:
            return size
        # A rest that is too small for a step of its own joins the last one.
        size = left if left - size < self._fewest * parts else size
        if size < self._fewest * parts:
            raise SalmonError(
                f"A step of {size} examples in {parts} parts leaves a single example in one of them, which BatchNorm cannot normalise.",
                hint=f"Give a batch of at least {self._fewest * parts} examples.",
                where="batch_size",
            )
        return size

    def _choose_examples(self, size: int, parts: int, own: range) -> list[NDArray[np.int64]]:
        """Split the next `size` examples of the epoch into equal parts and return our own; the order follows from the seed."""
        epoch, position = self._progress.epoch, self._progress.position
        if self._order[0] != epoch:
            self._order = epoch, ShuffledOrder(self._n, [self._job.seed, epoch])
        ends = [position + size * part // parts for part in range(own.start, own.stop + 1)]
        examples = self._order[1].part(ends[0], ends[-1])
        return np.split(examples, np.subtract(ends[1:-1], ends[0]))

    def _gather(self, own: list[NDArray[np.int64]]) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the examples of each part (r, b, …), padded to one length, and a mask (r, b) that is 0 for padding."""
        longest = max(1, *(len(each) for each in own)) if len(own) > 1 else max(1, len(own[0]))
        index = np.zeros((len(own), longest), dtype=np.int64)
        counted = np.zeros((len(own), longest), dtype=np.float32)
        for row, each in enumerate(own):
            index[row, : len(each)] = each
            counted[row, : len(each)] = 1
        flat = torch.from_numpy(index.ravel())
        batch = tuple(part.index_select(0, flat).view(len(own), longest, *part.shape[1:]) for part in self._data)
        return batch, torch.from_numpy(counted)

    def _evaluate_training_set(self, needs: str) -> tuple[float, float]:
        """Return (loss, squared norm of the gradient) over all examples, whichever is needed; each rank evaluates its share."""
        if not needs:
            return nan, nan
        gradient = needs == "gradient"
        width = self._replicas.weights.shape[1] if gradient else 1
        total = torch.zeros(len(self._ranks.local), width, dtype=torch.float64)
        for row, rank in enumerate(self._ranks.local):
            share = np.arange(rank, self._n, self._ranks.size)
            for start in range(0, len(share), _EVALUATED_AT_ONCE):
                index = torch.from_numpy(share[start : start + _EVALUATED_AT_ONCE])
                batch = tuple(part.index_select(0, index) for part in self._data)
                loss, slope = self._replicas.evaluate(self.synchronisation.place(row), batch, gradient=gradient)
                total[row] += loss if slope is None else slope
        mean = self._ranks.reduce(total) / self._n
        return (float(mean[0]), nan) if needs == "loss" else (nan, float(mean @ mean))


class ShuffledOrder:
    """A permutation of range(n) that depends only on the seed: `part(start, stop)` takes a few operations per entry.

    No table of length n is needed, and each rank computes only its own part. It is a Feistel network: a position is written as two
    digits of about √n, and each digit in turn is shifted by the entry of a random table for the other one. This permutes the square
    of both digits; results outside range(n) are mapped again.
    """

    def __init__(self, n: int, seed: list[int]) -> None:
        self._n = n
        self._high = max(1, int(np.ceil(np.sqrt(n))))
        self._low = -(-n // self._high)
        rng = np.random.default_rng(seed)
        self._tables = [
            (rng.integers(0, self._high, self._low), rng.integers(0, self._low, self._high)) for _ in range(_ROUNDS)
        ]

    def part(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the entries from `start` up to, but not including, `stop`."""
        entries = self._map(np.arange(start, stop))
        while (outside := np.flatnonzero(entries >= self._n)).size:
            entries[outside] = self._map(entries[outside])
        return entries

    def _map(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        high = positions // self._low
        low = positions - high * self._low
        for for_high, for_low in self._tables:
            high += for_high.take(low)
            _wrap(high, self._high)
            low += for_low.take(high)
            _wrap(low, self._low)
        return high * self._low + low


def _wrap(digits: NDArray[np.int64], base: int) -> None:
    """Reduce digits below twice the base modulo it, in place: subtracting the base from a smaller unsigned number overflows."""
    unsigned = digits.view(np.uint64)
    np.minimum(unsigned, unsigned - np.uint64(base), out=unsigned)


@contextmanager
def _seed_torch(seed: int) -> Generator[None]:
    """Seed torch's random numbers within the block and restore their state afterwards.

    Only the generator of the CPU is touched. `torch.manual_seed` also records a call, with its traceback, for each kind of device
    that is missing; this took a quarter of the time of a small step, and memory in every one.
    """
    generator = torch.default_generator
    kept = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(kept)
