"""The loop: plan a step, take it, let the replicas agree, write a row; the same for every kind of group."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.distributed.agreement import Agreement, agreement_for
from salmon.distributed.batch_size import Seen
from salmon.distributed.monitors import Measured, Monitor, Remembered
from salmon.distributed.order import ShuffledOrder
from salmon.distributed.policies import Plan
from salmon.distributed.replicas import Replicas
from salmon.distributed.state import Job, Outcome, Progress, Row, TrainingState, own_rows, with_replicas
from salmon.errors import SalmonError

# Examples that go through the module at once where the whole training set is judged.
_JUDGED_AT_ONCE = 1 << 13


class LostWorkerError(Exception):
    """A rank of the group is gone: this step cannot be finished."""


@dataclass(frozen=True)
class Limits:
    """Where a stretch of steps ends at the latest: an epoch (of the whole run)."""

    epoch: float = inf


class Ranks(Protocol):
    """What a step sees of its group."""

    @property
    def size(self) -> int:
        """Ranks of the group."""
        ...

    @property
    def largest(self) -> int:
        """Ranks that the group could grow to."""
        ...

    @property
    def local(self) -> range:
        """The ranks that live in this process."""
        ...

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """(K,) the sum of a vector of each local rank (r, K), over all ranks of the group."""
        ...

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """(K,) the sum of what every rank's payload stands for."""
        ...

    def asked_to_regroup(self) -> bool:
        """Whether the driver wants to change who takes part."""
        ...

    def report(self, row: Row) -> None:
        """Show a row to whoever watches."""
        ...


def run_steps(job: Job, data: tuple[Any, ...], state: TrainingState, ranks: Ranks, limits: Limits) -> Outcome:
    """Carry a run from a state to its limits in the ranks that live here."""
    steps = Steps(job, data, state, ranks)
    rows: list[Row] = []
    reason, workers = "limit", None
    while True:
        if steps.passes >= min(job.epochs, limits.epoch) - 1e-9:
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
        if steps.agreement.finish:
            reason = "finished"
            break
        if steps.agreement.regroup:
            reason = "regroup"
            break
    return Outcome(steps.state(), tuple(rows), reason, workers)


class Steps:
    """A run in progress in this process: tensors that change, and the pure states that decide how."""

    def __init__(self, job: Job, data: tuple[Any, ...], state: TrainingState, ranks: Ranks) -> None:
        self._job, self._data, self._ranks = job, data, ranks
        self._n = len(data[0])
        self._progress, self._memory = state.progress, state.memory
        self._monitors = list(state.monitors) or [{} for _ in job.monitors]
        self._monitored: Row = {}
        for monitor, memory in zip(job.monitors, self._monitors, strict=True):
            self._show(monitor, memory)
        self._figures = dict(state.figures)
        every = job.averaging.replicas
        here = every * len(ranks.local) if job.averaging.differ else 1
        whole = every * ranks.size if job.averaging.differ else 1
        self._replicas = Replicas(job.module, job.optimizer, job.loss, here)
        arrays = own_rows(with_replicas(state.arrays, whole), every * ranks.local.start, here)
        self._replicas.restore(arrays)
        #: How replicas come to agree, with what every rank knows of this step.
        self.agreement: Agreement = agreement_for(job, self._replicas, ranks, state)
        self._planned_s = 0.0
        self._order = (-1, ShuffledOrder(1, [0]))

    @property
    def passes(self) -> float:
        """Passes over the data so far."""
        return self._progress.epoch + self._progress.position / self._n

    def plan(self) -> Plan:
        """What the next step takes: the rule for the batch first, then each policy."""
        started = time.perf_counter()
        rule = self._job.batch_size
        seen = Seen(
            self._progress.step,
            self.passes,
            self._figures.get("loss", nan),
            self._figures.get("gradient_norm2", nan),
            *self._whole_training_set(rule.needs if self._progress.step % rule.dwell == 0 else ""),
        )
        self._memory = rule.remember(self._memory, seen)
        size, factor = rule.batch_and_rate(self._memory.growth)
        plan = Plan(size, factor)
        figures = {**self._figures, "step": self._progress.step, "epoch": self.passes}
        for policy in self._job.policies:
            plan = policy(figures, plan)
        self._planned_s = time.perf_counter() - started
        return plan

    def take(self, plan: Plan) -> Row:
        """One step, and its row."""
        started = time.perf_counter()
        before = self._progress
        every, local = self._job.averaging.replicas, self._ranks.local
        parts = every * self._ranks.size
        size = min(self._job.averaging.step_batch(plan.batch_size, parts), self._n - before.position)
        batch, counted = self._gathered(self._chosen(size, parts, range(every * local.start, every * local.stop)))
        with _random_numbers_of(hash((self._job.seed, before.step, local.start)) % (1 << 62)):
            sums, gradients = self._replicas.gradients(batch, counted)
        agreed = self.agreement.reach(before.step, sums, gradients, counted.sum(dim=1), size, plan.rate_factor)
        if not isfinite(agreed.loss):
            raise SalmonError(
                f"Training diverged at step {before.step}: the loss is {agreed.loss}.",
                hint="Lower the learning rate, or start with a larger batch.",
                where="optimizer",
            )
        measured = Measured(before.step, size, size / self._ranks.size, agreed.loss, agreed.local_norm2, agreed.norm2)
        for place, monitor in enumerate(self._job.monitors):
            if before.step % monitor.every == 0:
                self._monitors[place] = monitor.update(self._monitors[place], measured)
                self._show(monitor, self._monitors[place])
        position = before.position + size
        over = position >= self._n
        self._progress = Progress(
            step=before.step + 1,
            epoch=before.epoch + over,
            position=0 if over else position,
            examples=before.examples + size,
            bytes_sent=before.bytes_sent + agreed.bytes_sent,
            synchronisations=before.synchronisations + agreed.synchronised,
            seconds=before.seconds + self._planned_s + time.perf_counter() - started,
        )
        row = self._row(plan, size, agreed.columns)
        # The last batch of an epoch is what was left of it; policies go on from what was planned.
        self._figures = {**row, **agreed.shared, "planned_batch_size": plan.batch_size}
        return row

    def state(self) -> TrainingState:
        """Everything needed to go on from here."""
        return TrainingState(
            {**self._replicas.arrays(), **self.agreement.arrays()},
            self._progress,
            self._memory,
            self.agreement.state,
            tuple(dict(each) for each in self._monitors),
            self._figures,
        )

    def _row(self, plan: Plan, batch_size: int, columns: Row) -> Row:
        now = self._progress
        row: Row = {
            "step": now.step,
            "epoch": self.passes,
            "examples": now.examples,
            "batch_size": batch_size,
            "learning_rate": self._replicas.rate * plan.rate_factor,
            "workers": self._ranks.size,
            **columns,
            "bytes_sent": now.bytes_sent,
            "synchronisations": now.synchronisations,
            "seconds": now.seconds,
            **self._monitored,
        }
        here = 0 in self._ranks.local
        if self._job.watch is not None and here and now.step % self._job.watch_every == 0:
            module = self._replicas.module_at(self.agreement.centre()).eval()
            with torch.no_grad():
                row.update(self._job.watch(module))
            module.train()
        if self._job.until is not None and here and self._job.until(row):
            self.agreement.ask_to_finish()
        return row

    def _show(self, monitor: Monitor, memory: Remembered) -> None:
        """Keep a monitor's value for the rows until it measures again; what it cannot say has no column."""
        if isnan(value := monitor.value(memory)):
            self._monitored.pop(monitor.name, None)
        else:
            self._monitored[monitor.name] = value

    def _chosen(self, size: int, parts: int, own: range) -> list[NDArray[np.int64]]:
        """Of the next examples in the order of this epoch, which every rank knows by the seed alone, those of some equal parts."""
        epoch, position = self._progress.epoch, self._progress.position
        if self._order[0] != epoch:
            self._order = epoch, ShuffledOrder(self._n, [self._job.seed, epoch])
        ends = [position + size * part // parts for part in range(own.start, own.stop + 1)]
        examples = self._order[1].part(ends[0], ends[-1])
        return np.split(examples, np.subtract(ends[1:-1], ends[0]))

    def _gathered(self, own: list[NDArray[np.int64]]) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """The examples of each slice (r, b, …), short ones filled up, and 1 (r, b) where an example counts, 0 where it fills."""
        longest = max(1, *(len(each) for each in own)) if len(own) > 1 else max(1, len(own[0]))
        index = np.zeros((len(own), longest), dtype=np.int64)
        counted = np.zeros((len(own), longest), dtype=np.float32)
        for row, each in enumerate(own):
            index[row, : len(each)] = each
            counted[row, : len(each)] = 1
        flat = torch.from_numpy(index.ravel())
        batch = tuple(part.index_select(0, flat).view(len(own), longest, *part.shape[1:]) for part in self._data)
        return batch, torch.from_numpy(counted)

    def _whole_training_set(self, needs: str) -> tuple[float, float]:
        """(loss, squared norm of the gradient) over all examples, whichever is needed, each rank judging its share."""
        if not needs:
            return nan, nan
        width = 1 if needs == "loss" else self._replicas.weights.shape[1]
        total = torch.zeros(len(self._ranks.local), width, dtype=torch.float64)
        for row, rank in enumerate(self._ranks.local):
            share = range(self._n)[rank :: self._ranks.size]
            for start in range(0, len(share), _JUDGED_AT_ONCE):
                chosen = np.asarray(share[start : start + _JUDGED_AT_ONCE])
                batch, counted = self._gathered([chosen])
                if needs == "loss":
                    total[row] += self._replicas.loss_sums(tuple(part[0] for part in batch))
                else:
                    total[row] += self._replicas.gradients(batch, counted)[1][0]
        mean = self._ranks.reduce(total) / self._n
        return (float(mean[0]), nan) if needs == "loss" else (nan, float(mean @ mean))


@contextmanager
def _random_numbers_of(seed: int) -> Generator[None]:
    """Random numbers of this seed inside, outside as if nothing had happened.

    On the processor's generator alone: torch's own function also notes a call for each kind of device that is not there,
    with its traceback, which took a quarter of a small step and memory in every one.
    """
    generator = torch.default_generator
    kept = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(kept)
