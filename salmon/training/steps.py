"""The training loop: plan a step, take it, synchronise the replicas, add a row; the same for every kind of group."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, isfinite, isnan, nan
from typing import Any

import torch

from salmon.errors import SalmonError
from salmon.training.batch_size import BatchSizeInputs
from salmon.training.examples import Batch, open_examples
from salmon.training.exchange import Ranks
from salmon.training.monitors import Monitor, MonitorMemory, StepMeasurement
from salmon.training.policies import SharedFigures, StepPlan
from salmon.training.replicas import Replicas, Synchronisation, choose_synchronisation
from salmon.training.state import (
    HistoryRow,
    SegmentOutcome,
    TrainingJob,
    TrainingProgress,
    TrainingState,
    resize_replicas,
    take_replicas,
)

# Layers that normalise by the statistics of a batch.
_NORMALISED = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)


class LostWorkerError(Exception):
    """A rank of the group is lost, so that this step cannot be finished."""


def run_steps(
    job: TrainingJob, data: Any, state: TrainingState, ranks: Ranks, end_epoch: float = inf
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

    def __init__(self, job: TrainingJob, data: Any, state: TrainingState, ranks: Ranks) -> None:
        self._job, self._ranks = job, ranks
        self._examples = open_examples(data, job.seed, ranks.local, ranks.size, job.averaging.replicas)
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
        self._counted = ranks.bytes_sent
        # (epoch, position, size) of examples that were drawn while an exchange was under way, and the examples.
        self._ahead: tuple[tuple[int, int, int], tuple[Batch, torch.Tensor]] | None = None

    @property
    def passes(self) -> float:
        """Return the passes over the data so far."""
        return self._progress.epoch + self._progress.position / self._examples.count

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
        size = self._count_examples(plan, before.position)
        batch, counted = self._draw((before.epoch, before.position, size))
        # If the batch stays the same, the examples of the next step are drawn instead of waiting for the other ranks.
        steady = plan.batch_size == self._figures.get("planned_batch_size")
        self._ranks.while_waiting((lambda: self._draw_ahead(plan, *self._advance(size))) if steady else None)
        with _seed_torch(hash((self._job.seed, before.step, self._ranks.local.start)) % (1 << 62)):
            sums, gradients = self._replicas.gradients(batch, counted, self.synchronisation.begin_exchange(size))
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
        epoch, position = self._advance(size)
        self._progress = TrainingProgress(
            step=before.step + 1,
            epoch=epoch,
            position=position,
            examples=before.examples + size,
            bytes_sent=before.bytes_sent + self._ranks.bytes_sent - self._counted,
            synchronisations=before.synchronisations + result.synchronised,
            seconds=before.seconds + self._planned_s + time.perf_counter() - started,
        )
        self._counted = self._ranks.bytes_sent
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
        """Return a row: the shared figures, the time and, on the first rank, what is
        watched; ask to finish if it says so.
        """
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

    def _draw(self, place: tuple[int, int, int]) -> tuple[Batch, torch.Tensor]:
        """Return the examples of an (epoch, position, size) and their mask, if possible those drawn ahead."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] == place else self._examples.draw(*place)

    def _draw_ahead(self, plan: StepPlan, epoch: int, position: int) -> None:
        """Draw the examples of the next step, expecting that it has the batch of this plan."""
        place = epoch, position, self._count_examples(plan, position)
        self._ahead = place, self._examples.draw(*place)

    def _advance(self, size: int) -> tuple[int, int]:
        """Return (epoch, position) after a step of this many examples."""
        position = self._progress.position + size
        over = position >= self._examples.count
        return self._progress.epoch + over, 0 if over else position

    def _count_examples(self, plan: StepPlan, position: int) -> int:
        """Return the examples of a step at a position; the last one of an epoch has those that are left."""
        parts = self._job.averaging.replicas * self._ranks.size
        left = self._examples.count - position
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

    def _evaluate_training_set(self, needs: str) -> tuple[float, float]:
        """Return (loss, squared norm of the gradient) over all examples, whichever is needed;
        each rank evaluates its share.
        """
        if not needs:
            return nan, nan
        gradient = needs == "gradient"
        width = self._replicas.weights.shape[1] if gradient else 1
        total = torch.zeros(len(self._ranks.local), width, dtype=torch.float64)
        for row in range(len(self._ranks.local)):
            for batch in self._examples.share(row):
                loss, slope = self._replicas.evaluate(self.synchronisation.place(row), batch, gradient=gradient)
                total[row] += loss if slope is None else slope
        mean = self._ranks.reduce(total) / self._examples.count
        return (float(mean[0]), nan) if needs == "loss" else (nan, float(mean @ mean))


@contextmanager
def _seed_torch(seed: int) -> Generator[None]:
    """Seed torch's random numbers within the block and restore their state afterwards.

    Only the generator of the CPU is touched. `torch.manual_seed` also records a call, with its traceback, for each kind
    of device that is missing; this took a quarter of the time of a small step, and memory in every one.
    """
    generator = torch.default_generator
    kept = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(kept)
