"""`fit`: train a torch module in a group, stretch by stretch, with checkpoints between them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from salmon.distributed.averaging import Averaging, Crossbow, FullSync
from salmon.distributed.batch_size import BatchSize, as_batch_size
from salmon.distributed.checkpoint import Checkpoint
from salmon.distributed.compression import Compression
from salmon.distributed.group import Group, VirtualGroup
from salmon.distributed.history import History
from salmon.distributed.monitors import Monitor, check_monitors
from salmon.distributed.policies import Policy
from salmon.distributed.progress import shown
from salmon.distributed.replicas import Replicas, flat_parameters
from salmon.distributed.state import Job, Row, TrainingState
from salmon.distributed.steps import Limits
from salmon.distributed.throughput import replicas_that_pay
from salmon.errors import SalmonError


@dataclass(frozen=True)
class Fit:
    """A trained module, the history of its training, and the state from which it could go on."""

    module: Any
    history: History
    state: TrainingState
    job: Job


def fit(
    module: torch.nn.Module,
    data: Sequence[Any] | Any,
    optimizer: Callable[[list[Any]], Any],
    group: Group | None = None,
    *,
    loss: Callable[..., Any] | None = None,
    epochs: float = 1.0,
    batch_size: BatchSize | int = 32,
    averaging: Averaging | None = None,
    compression: Compression | None = None,
    monitors: Sequence[Monitor] = (),
    policies: Sequence[Policy] = (),
    seed: int = 0,
    watch: Callable[[Any], Mapping[str, float]] | None = None,
    watch_every: int = 1,
    until: Callable[[Row], bool] | None = None,
    start: TrainingState | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_epochs: float = 1.0,
    progress: bool = False,
) -> Fit:
    """Train a module on data in a group; every method is a value, and all that make sense together can be combined.

    `data` is a tensor or several of the same length: the module sees all but the last, `loss(output, last)` gives a loss
    an example (`reduction="none"`). Without a loss the module sees all of them and gives the losses. `optimizer`
    makes a torch optimiser of a list of parameters: `functools.partial(torch.optim.SGD, lr=.1)`. The module is trained
    in place. With a `checkpoint` folder the state is saved every `checkpoint_epochs`, and a run that finds one there goes
    on from it. `watch(module)` adds figures to the history every `watch_every` steps; its time is not counted.
    """
    tensors = _tensors(data)
    group = VirtualGroup() if group is None else group
    job = Job(
        module, optimizer, loss, epochs, as_batch_size(batch_size), averaging or FullSync(), compression,
        tuple(monitors), tuple(policies), seed, watch, watch_every, until,
    )  # fmt: skip
    check_job(job, group.size)
    if isinstance(job.averaging, Crossbow) and not job.averaging.count:
        job = replace(job, averaging=replace(job.averaging, count=replicas_that_pay(job, tensors)))
    kept = Checkpoint(Path(checkpoint)) if checkpoint is not None else None
    state, rows = start or started(job), ()
    if kept is not None and (found := kept.load(description(job))) is not None:
        state, rows = found
    every = checkpoint_epochs if kept is not None or progress else np.inf
    with closing(group), shown(job, state, enabled=progress) as show:
        while True:
            limit = Limits(min(job.epochs, _next_multiple(state, every)))
            outcome = group.run(job, tensors, state, limit)
            state, rows = outcome.state, rows + outcome.rows
            show(outcome.rows)
            if kept is not None:
                kept.save(state, rows, description(job))
            if outcome.reason == "finished":
                break
            if outcome.workers is not None:
                group = group.resized(outcome.workers)
    write_into(module, state)
    return Fit(module, History(rows), state, job)


def started(job: Job) -> TrainingState:
    """The state of a job before its first step."""
    replicas = Replicas(job.module, job.optimizer, job.loss, 1)
    return TrainingState(replicas.arrays(), averaging=job.averaging.start(), monitors=tuple({} for _ in job.monitors))


def write_into(module: torch.nn.Module, state: TrainingState) -> None:
    """Write the parameters and buffers of a state into a module."""
    torch.nn.utils.vector_to_parameters(torch.from_numpy(state.weights.copy()), module.parameters())
    for name, buffer in module.named_buffers():
        kept = state.arrays[f"buffer/{name}"]
        buffer.copy_(torch.from_numpy(np.asarray(kept.mean(axis=0, dtype=np.float64), dtype=kept.dtype)))


def check_job(job: Job, workers: int) -> None:
    """Refuse what cannot be combined, all of it at once."""
    problems: list[str] = []
    name = type(job.averaging).__name__
    if job.compression is not None and job.averaging.differ:
        problems.append(
            f"{type(job.compression).__name__} compresses gradients, but {name} exchanges parameters: "
            "leave one of the two out, or take FullSync."
        )
    for monitor in job.monitors:
        if monitor.needs_gradients and job.averaging.differ:
            problems.append(f"The monitor {monitor.name} looks at averaged gradients, which {name} never forms.")
        if monitor.needs_gradients and workers < 2:
            problems.append(f"The monitor {monitor.name} compares workers and needs two of them at least.")
    if not job.epochs > 0:
        problems.append(f"{job.epochs} epochs are no training.")
    if job.watch_every < 1:
        problems.append(f"watch_every is {job.watch_every}, which is not 1 or more.")
    if problems:
        raise SalmonError(" ".join(problems), where="fit")
    check_monitors(job.monitors)
    flat_parameters(job.module)


def description(job: Job) -> str:
    """What a run is, in words: a checkpoint is only taken up by the run that left it. Epochs may be added."""
    parts = {
        "parameters": sum(parameter.numel() for parameter in job.module.parameters()),
        "batch_size": job.batch_size,
        "averaging": job.averaging,
        "compression": job.compression,
        "monitors": [monitor.name for monitor in job.monitors],
        "seed": job.seed,
    }
    return ", ".join(f"{name}={value}" for name, value in parts.items())


def _tensors(data: Sequence[Any] | Any) -> tuple[torch.Tensor, ...]:
    given = [data] if isinstance(data, torch.Tensor | np.ndarray) else list(data)
    tensors = tuple(torch.as_tensor(each) for each in given)
    lengths = {len(each) if each.ndim else 0 for each in tensors}
    if len(lengths) != 1 or 0 in lengths:
        raise SalmonError(
            f"Data of lengths {[len(each) if each.ndim else 0 for each in tensors]} cannot be trained on.",
            hint="Give one tensor or several of the same length, at least 1.",
            where="data",
        )
    return tensors


def _next_multiple(state: TrainingState, every: float) -> float:
    """The epoch of the next checkpoint."""
    if np.isinf(every):
        return np.inf
    return (np.floor(state.figures.get("epoch", 0.0) / every + 1e-9) + 1) * every
