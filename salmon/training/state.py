"""Everything that a run is, between two steps: values that can be saved, sent and taken up again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.distributed.averaging import Averaging, AveragingState, FullSync
from salmon.distributed.batch_size import BatchSize, ConstantBatch, Memory
from salmon.distributed.compression import Compression
from salmon.distributed.monitors import Monitor
from salmon.distributed.policies import Policy

Row = dict[str, float]
#: Arrays of a state that hold a row for each replica.
OWN = ("weights", "optimizer/", "buffer/")


@dataclass(frozen=True)
class Job:
    """What to train and how; the same for every worker.

    `optimizer` makes a torch optimiser of a list of parameters. `loss(output, last tensor of the data)` gives a loss for each
    example, (b,); None where the module's output is the losses. `watch(module)` gives figures for the history
    every `watch_every` steps, on the time of nobody; `until(row)` ends the run where it is true.
    """

    module: Any
    optimizer: Callable[[list[Any]], Any]
    loss: Callable[..., Any] | None
    epochs: float
    batch_size: BatchSize = field(default_factory=ConstantBatch)
    averaging: Averaging = field(default_factory=FullSync)
    compression: Compression | None = None
    monitors: tuple[Monitor, ...] = ()
    policies: tuple[Policy, ...] = ()
    seed: int = 0
    watch: Callable[[Any], Mapping[str, float]] | None = None
    watch_every: int = 1
    until: Callable[[Row], bool] | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is: `examples` of all epochs, `position` within this one, bytes and seconds since the start."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    examples: int = 0
    bytes_sent: int = 0
    synchronisations: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingState:
    """A run between two steps. `arrays` holds the parameters (r, P), one row a replica or one for all, and what optimisers keep.

    `figures` is the last row of the history, which policies look at.
    """

    arrays: Mapping[str, NDArray[Any]]
    progress: Progress = field(default_factory=Progress)
    memory: Memory = field(default_factory=Memory)
    averaging: AveragingState = field(default_factory=AveragingState)
    monitors: tuple[Mapping[str, float], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def weights(self) -> NDArray[np.float32]:
        """(P,) the parameters on which the replicas agree, or their mean."""
        centre = self.arrays.get("centre")
        return self.arrays["weights"].mean(axis=0, dtype=np.float32) if centre is None else centre[0]


@dataclass(frozen=True)
class Outcome:
    """What a stretch of steps came to: the state after it, its rows, and why it ended.

    `reason`: "limit" (as far as asked), "finished", "regroup" (workers changed, or `workers` are wanted), "lost" (a worker was).
    """

    state: TrainingState
    rows: tuple[Row, ...]
    reason: str
    workers: int | None = None


def own_rows(arrays: Mapping[str, NDArray[Any]], first: int, count: int) -> dict[str, NDArray[Any]]:
    """The arrays of `count` replicas from `first` on; what all share stays whole."""
    return {
        name: array[first : first + count] if name.startswith(OWN) and array.ndim and len(array) > 1 else array
        for name, array in arrays.items()
    }


def joined_rows(parts: list[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of all replicas, those of each part after the other."""
    first = parts[0]
    return {
        name: np.concatenate([part[name] for part in parts]) if name.startswith(OWN) and array.ndim else array
        for name, array in first.items()
    }


def with_replicas(arrays: Mapping[str, NDArray[Any]], count: int) -> dict[str, NDArray[Any]]:
    """The arrays for another number of replicas: they agree on their mean first; nothing happens where the number fits."""
    fitted: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if name.startswith(OWN) and array.ndim and len(array) != count:
            mean = array.mean(axis=0, keepdims=True, dtype=np.float64).astype(array.dtype)
            fitted[name] = np.repeat(mean, count, axis=0)
        else:
            fitted[name] = array
    return fitted
