"""`fit` trains a torch module in a group, segment by segment, with checkpoints in between."""

import itertools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset, default_collate

from salmon.errors import SalmonError
from salmon.training.averaging import Averaging, Crossbow, FullSync
from salmon.training.batch_size import BatchSize, PlateauDamp, as_batch_size
from salmon.training.compression import Compression
from salmon.training.groups import Group, VirtualGroup
from salmon.training.history import TrainingHistory
from salmon.training.monitors import Monitor, check_monitors
from salmon.training.policies import FollowNoiseScale, Policy
from salmon.training.replicas import Replicas, flatten_parameters, write_parameters
from salmon.training.shards import ShardedData
from salmon.training.state import Checkpoint, HistoryRow, TrainingJob, TrainingState

# The default batch grows up to this share of the examples; from then on the learning rate falls.
_STEPS_OF_EPOCH = 8
# Doubling the replicas must shorten the time to the target by this factor.
_REQUIRED_GAIN = 1.05
_MOST_REPLICAS = 32
# Steps of a single replica that set the target, and the weight of a new loss in the moving average.
_TRIAL_STEPS, _NEW_LOSS = 200, 0.1


@dataclass(frozen=True)
class TrainingResult:
    """A trained module, the history of its training, and the state from which training can continue."""

    module: Any
    history: TrainingHistory
    state: TrainingState
    job: TrainingJob


def fit(
    module: torch.nn.Module,
    data: Sequence[Any] | Any,
    optimizer: Callable[[list[Any]], Any],
    group: Group | None = None,
    *,
    loss: Callable[..., Any] | None = None,
    epochs: float = 1.0,
    batch_size: BatchSize | int | None = None,
    averaging: Averaging | None = None,
    compression: Compression | None = None,
    monitors: Sequence[Monitor] = (),
    policies: Sequence[Policy] = (),
    parameter_groups: Sequence[tuple[str, Mapping[str, Any]]] = (),
    clip_norm: float | None = None,
    seed: int = 0,
    watch: Callable[[Any], Mapping[str, float]] | None = None,
    watch_every: int = 1,
    until: Callable[[HistoryRow], bool] | None = None,
    start: TrainingState | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_epochs: float = 1.0,
    resume: bool = False,
    progress: bool = False,
) -> TrainingResult:
    """Train a module in place on data, in a group; methods that make sense together can be combined freely.

    Parameters
    ----------
    module
        What is trained.
    data
        A tensor, or several of the same length. The module is called with all but the last one, and
        `loss(output, last)` returns a loss for each example (`reduction="none"`). Without a loss, the module is called
        with all of them and returns the losses. A Dataset, or a DataLoader that shuffles one, is read into tensors
        once. `ShardedData`, and Dask arrays or data frames, are read by the workers, each of which holds only its
        share.
    optimizer
        A function that makes a torch optimiser from a list of parameters: `functools.partial(torch.optim.SGD, lr=.1)`.
    group
        `TorchGroup` or `VirtualGroup`; None is one rank in this process.
    loss, epochs, batch_size, averaging, compression, monitors, policies, seed
        How the module is trained. The default batch size is that of the DataLoader, otherwise `PlateauDamp(32)`: more
        than 32 examples once the loss no longer falls, up to an eighth of all examples.
    parameter_groups
        Pairs (pattern, options): parameters whose name matches, such as `*.bias`, are trained with
        these options of the optimiser.
    clip_norm
        The largest norm of a gradient: that of all workers together or, where parameters are
        averaged, that of each replica.
    watch, watch_every
        `watch(module)` adds figures to the history every `watch_every` steps; its time is not counted.
    until
        The run ends when `until(row)` is true: at once with one worker, otherwise with the next exchange. The loss of a
        row is that of all workers; with averaged parameters it changes only when they agree.
    start
        The state of an earlier run to continue from.
    checkpoint, checkpoint_epochs
        A folder in which the state is saved every `checkpoint_epochs`. An older checkpoint in it is replaced.
    resume
        Continue from the checkpoint in the folder, if there is one. It is refused, and the differences are named,
        unless data, module, loss, optimiser, settings and versions are those of the run that saved it. Epochs and
        workers may change.
    progress
        Whether to show a progress bar on the terminal.
    """
    examples, usual = _read_data(data)
    group = VirtualGroup() if group is None else group
    job = TrainingJob(
        module, optimizer, loss, epochs, as_batch_size(usual if batch_size is None else batch_size),
        averaging or FullSync(), compression, tuple(monitors), tuple(policies), seed, watch, watch_every, until,
        tuple(parameter_groups), clip_norm,
    )  # fmt: skip
    _check_job(job, group.size)
    _check_resume(checkpoint, start, resume=resume)
    kept = Checkpoint(Path(checkpoint)) if checkpoint is not None else None
    run = job.describe(examples) if kept is not None else {}
    found = kept.load(run) if kept is not None and resume else None
    if found is not None:
        start = found[0]
    if isinstance(job.averaging, Crossbow) and not job.averaging.count:
        count = choose_replicas(job, examples, group) if start is None else _count_replicas(start)
        job = replace(job, averaging=replace(job.averaging, count=count))
    state, rows = start or initial_state(job), () if found is None else found[1]
    every = checkpoint_epochs if kept is not None or progress else inf
    with closing(group), _show_progress(job, state, enabled=progress) as show:
        while True:
            outcome = group.run(job, examples, state, min(job.epochs, _next_multiple(state, every)))
            state, rows = outcome.state, rows + outcome.rows
            show(outcome.rows)
            if kept is not None:
                kept.save(state, rows, run)
            if outcome.reason == "finished":
                break
            if outcome.workers is not None:
                group = group.resize(outcome.workers)
    _load_state(module, state)
    return TrainingResult(module, TrainingHistory(rows), state, job)


def initial_state(job: TrainingJob) -> TrainingState:
    """Return the state of a job before its first step."""
    return TrainingState(
        Replicas(job, 1).arrays(),
        averaging=job.averaging.start(),
        monitors=tuple({} for _ in job.monitors),
    )


def choose_replicas(job: TrainingJob, data: Any, group: Group) -> int:
    """Return the number of replicas with which the workers of a group reach a loss soonest,
    found by trials that are discarded.

    A single replica sets the target: the smoothed loss after some steps. Replicas are doubled as long
    as that makes the time shorter.
    """
    trial = replace(job, watch=None, until=None, monitors=(), policies=())
    length = min(job.epochs, _TRIAL_STEPS * job.batch_size.initial * group.size / count_examples(data))
    best, target, fastest_s = 1, nan, inf
    for count in itertools.takewhile(lambda each: each <= _MOST_REPLICAS, (1 << power for power in itertools.count())):
        until = None if count == 1 else UntilLoss(target, fastest_s)
        of_count = replace(trial, averaging=replace(cast("Crossbow", job.averaging), count=count), until=until)
        # A larger batch takes fewer steps from as many examples: the trial ends at the target, or when it has taken
        # longer.
        try:
            rows = group.run(of_count, data, initial_state(of_count), length if count == 1 else job.epochs).rows
        except SalmonError:
            if count == 1:
                raise
            break
        if not rows:
            break
        smoothed = smooth_losses(rows)
        target = smoothed[-1] if count == 1 else target
        reached = next((row["seconds"] for row, loss in zip(rows, smoothed, strict=True) if loss <= target), inf)
        if reached - rows[0]["seconds"] > fastest_s / _REQUIRED_GAIN:
            break
        best, fastest_s = count, reached - rows[0]["seconds"]
    return best


def count_examples(data: Any) -> int:
    """Return the number of examples in tensors or shards."""
    return len(data) if isinstance(data, ShardedData) else len(data[0])


def smooth_losses(rows: Iterable[HistoryRow]) -> list[float]:
    """Return the moving average of the losses of rows."""
    return list(
        itertools.accumulate((row["loss"] for row in rows), lambda mean, loss: mean + (loss - mean) * _NEW_LOSS)
    )


class UntilLoss:
    """End a run when the moving average of its loss has reached a target, or when it
    has taken longer than `limit_s`.
    """

    def __init__(self, target: float, limit_s: float) -> None:
        self._target, self._limit_s = target, limit_s
        self._mean = self._start_s = nan

    def __call__(self, row: HistoryRow) -> bool:
        """Whether the run ends after this row."""
        first = isnan(self._mean)
        self._mean = row["loss"] if first else self._mean + (row["loss"] - self._mean) * _NEW_LOSS
        self._start_s = row["seconds"] if first else self._start_s
        return self._mean <= self._target or row["seconds"] - self._start_s > self._limit_s


def describe_row(row: HistoryRow) -> str:
    """Return a step in one line."""
    workers = f"{row['workers']:.0f} worker{'' if row['workers'] == 1 else 's'}"
    return (
        f"epoch {row['epoch']:.2f}, step {row['step']:,.0f}, loss {row['loss']:.4g}, batch {row['batch_size']:,.0f}, "
        f"rate {row['learning_rate']:.3g}, {workers}"
    )


def _read_data(data: Any) -> tuple[tuple[torch.Tensor, ...] | ShardedData, BatchSize | int]:
    """Return tensors of the same length or shards, and the default batch size."""
    collections = list(data) if isinstance(data, list | tuple) else [data]
    if isinstance(data, DataLoader):
        _check_loader(data)
        return _check_tensors(_read_dataset(data.dataset, data.collate_fn)), cast("int", data.batch_size)
    if isinstance(data, ShardedData):
        examples = data
    elif any(hasattr(each, "to_delayed") for each in collections):
        examples = ShardedData.from_dask(*collections)
    elif isinstance(data, TensorDataset):
        examples = _check_tensors(data.tensors)
    elif isinstance(data, Dataset):
        examples = _check_tensors(_read_dataset(data, default_collate))
    else:
        examples = _check_tensors([data] if isinstance(data, torch.Tensor | np.ndarray) else list(data))
    first = PlateauDamp()
    return examples, replace(first, maximum=max(first.initial, count_examples(examples) // _STEPS_OF_EPOCH))


def _check_loader(loader: DataLoader[Any]) -> None:
    """Refuse a loader whose order or batches would be ignored."""
    sampler, examples = loader.sampler, len(cast("Any", loader.dataset))
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == examples
    if not shuffled or loader.drop_last or loader.batch_size is None:
        raise SalmonError(
            "The DataLoader has a sampler or batches of its own, but every epoch visits all examples once in a random order.",
            hint="Give a DataLoader with shuffle=True and drop_last=False, or its dataset.",
            where="data",
        )


def _read_dataset(dataset: Any, collate: Callable[[list[Any]], Any]) -> list[Any]:
    """Return the examples of a dataset as tensors."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise SalmonError(
            f"{type(dataset).__name__} has no length, but workers divide the examples among themselves.",
            hint="Give a dataset with __len__ and __getitem__.",
            where="data",
        )
    found = collate([dataset[index] for index in range(len(dataset))])
    parts = [found] if isinstance(found, torch.Tensor) else found
    if not isinstance(parts, list | tuple) or not all(isinstance(each, torch.Tensor) for each in parts):
        raise SalmonError(
            f"The examples of {type(dataset).__name__} are not tensors.",
            hint="Return a tensor, or a tuple of tensors and numbers, for each example.",
            where="data",
        )
    return list(parts)


def _check_tensors(given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    tensors = tuple(torch.as_tensor(each) for each in given)
    lengths = {len(each) if each.ndim else 0 for each in tensors}
    if len(lengths) != 1 or 0 in lengths:
        raise SalmonError(
            f"Data of lengths {[len(each) if each.ndim else 0 for each in tensors]} cannot be trained on.",
            hint="Give one tensor, or several of the same length, which is at least 1.",
            where="data",
        )
    return tensors


def _check_job(job: TrainingJob, workers: int) -> None:
    """Refuse combinations that do not work, and report all of them at once."""
    problems: list[str] = []
    name = type(job.averaging).__name__
    if job.compression is not None and job.averaging.differ:
        problems.append(
            f"{type(job.compression).__name__} compresses gradients, but {name} exchanges parameters: "
            "omit one of them, or use FullSync."
        )
    for monitor in job.monitors:
        if monitor.needs_gradients and job.averaging.differ:
            problems.append(f"The monitor {monitor.name} needs averaged gradients, which {name} never computes.")
        if monitor.needs_gradients and workers < 2:
            problems.append(f"The monitor {monitor.name} compares workers and needs at least two of them.")
        if monitor.every > 1 and job.averaging.differ and not isinstance(job.averaging, Crossbow):
            problems.append(
                f"The monitor {monitor.name} measures every {monitor.every} steps, but with {name} figures travel only "
                "when parameters are averaged: give it every=1."
            )
    names = [monitor.name for monitor in job.monitors]
    problems += [
        f"{type(policy).__name__} follows the monitor {policy.monitor}, which is not among the monitors."
        for policy in job.policies
        if isinstance(policy, FollowNoiseScale) and policy.monitor not in names
    ]
    if job.clip_norm is not None and not job.clip_norm > 0:
        problems.append(f"clip_norm is {job.clip_norm}, which is not above 0.")
    if not job.epochs > 0:
        problems.append(f"epochs is {job.epochs}, which is not above 0.")
    if job.watch_every < 1:
        problems.append(f"watch_every is {job.watch_every}, which is not 1 or more.")
    if problems:
        raise SalmonError(" ".join(problems), where="fit")
    check_monitors(job.monitors)
    flatten_parameters(job.module)


def _check_resume(checkpoint: str | Path | None, start: TrainingState | None, *, resume: bool) -> None:
    """Refuse `resume` without a folder, and two states to start from."""
    if resume and checkpoint is None:
        raise SalmonError(
            "There is no checkpoint to resume from.", hint="Give its folder as checkpoint.", where="resume"
        )
    if resume and start is not None:
        raise SalmonError(
            "The run cannot continue both from start and from the checkpoint.",
            hint="Leave out start, or give resume=False.",
            where="resume",
        )


def _count_replicas(state: TrainingState) -> int:
    """Return how many replicas each worker trained in an earlier run."""
    return max(1, len(state.arrays["weights"]) // max(1, int(state.figures.get("workers", 1))))


def _next_multiple(state: TrainingState, every: float) -> float:
    """Return the epoch of the next checkpoint; infinity if `every` is infinite."""
    return (np.floor(state.figures.get("epoch", 0.0) / every + 1e-9) + 1) * every


@contextmanager
def _show_progress(
    job: TrainingJob, state: TrainingState, *, enabled: bool
) -> Generator[Callable[[tuple[HistoryRow, ...]], None]]:
    """Yield a function that takes the rows of each segment and, if enabled, advances a progress bar of epochs."""
    if not enabled:
        yield lambda _rows: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, transient=False) as bar:
        task = bar.add_task("", total=job.epochs, completed=int(state.figures.get("epoch", 0.0)))

        def show(rows: tuple[HistoryRow, ...]) -> None:
            if rows:
                bar.update(task, completed=rows[-1]["epoch"], description=describe_row(rows[-1]))

        yield show


def _load_state(module: torch.nn.Module, state: TrainingState) -> None:
    """Write the parameters and buffers of a state into a module."""
    write_parameters(module, torch.from_numpy(state.weights.copy()))
    for name, buffer in module.named_buffers():
        kept = state.arrays[f"buffer/{name}"]
        buffer.copy_(torch.from_numpy(np.asarray(kept.mean(axis=0, dtype=np.float64), dtype=kept.dtype)))
