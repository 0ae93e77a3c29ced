"""Everything that defines a run between two steps, as values that can be sent to workers and saved to disk.

A checkpoint consists of the arrays as .npz and the rest as JSON, so that loading one cannot execute code. The JSON file names the
arrays and is moved into place last: a process that is killed while it writes leaves the previous checkpoint intact.
"""

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.training.averaging import Averaging, AveragingState, FullSync
from salmon.training.batch_size import BatchSize, BatchSizeMemory, ConstantBatch
from salmon.training.compression import Compression
from salmon.training.monitors import Monitor
from salmon.training.policies import Policy

#: One step in the history: name of a column -> value.
HistoryRow = dict[str, float]

# Names, or beginnings of names, of the arrays that have one row for each replica.
_PER_REPLICA = ("weights", "optimizer/", "buffer/")
_FORMAT = 1
_NAME = "training.json"


@dataclass(frozen=True)
class TrainingJob:
    """What to train and how; the same for every worker.

    `optimizer` makes a torch optimiser from a list of parameters. `loss(output, last tensor of the data)` returns a loss for each
    example, (b,); if it is None, the module's output is taken as the losses. `watch(module)` returns figures for the history every
    `watch_every` steps, and its time is not counted. The run ends when `until(row)` is true.
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
    until: Callable[[HistoryRow], bool] | None = None

    def describe(self) -> str:
        """Return the settings that a run must share with a checkpoint to continue from it. Epochs may be added."""
        parts = {
            "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
            "batch_size": self.batch_size,
            "averaging": self.averaging,
            "compression": self.compression,
            "monitors": [monitor.name for monitor in self.monitors],
            "seed": self.seed,
        }
        return ", ".join(f"{name}={value}" for name, value in parts.items())


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run is: `examples` in all epochs, `position` in the current one, and totals of bytes and seconds."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    examples: int = 0
    bytes_sent: int = 0
    synchronisations: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingState:
    """A run between two steps.

    `arrays` holds the parameters (r, P), one row for each replica or one for all, and the state of the optimiser. `figures` is the last
    row of the history, which policies see.
    """

    arrays: Mapping[str, NDArray[Any]]
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    memory: BatchSizeMemory = field(default_factory=BatchSizeMemory)
    averaging: AveragingState = field(default_factory=AveragingState)
    monitors: tuple[Mapping[str, float], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def weights(self) -> NDArray[np.float32]:
        """(P,) the central average or, if there is none, the mean of the replicas' parameters."""
        centre = self.arrays.get("centre")
        return self.arrays["weights"].mean(axis=0, dtype=np.float32) if centre is None else centre[0]


@dataclass(frozen=True)
class SegmentOutcome:
    """The result of a segment, a sequence of steps by the same workers: the state after it, its rows, and why it ended.

    `reason` is "limit" (the requested epoch is reached), "finished", "regroup" (workers have changed, or a policy requests `workers`)
    or "lost" (a worker was lost).
    """

    state: TrainingState
    rows: tuple[HistoryRow, ...]
    reason: str
    workers: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the last state of one run. Only a job with the same description can load it."""

    folder: Path

    def save(self, state: TrainingState, rows: tuple[HistoryRow, ...], job: str) -> None:
        """Replace the checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = self.folder / f"step-{state.progress.step}.npz"
        columns = dict.fromkeys(name for row in rows for name in row)
        table = {f"rows/{name}": np.array([row.get(name, np.nan) for row in rows]) for name in columns}
        stored = BytesIO()
        np.savez(stored, allow_pickle=False, **state.arrays, **table)
        _replace_file(arrays, stored.getvalue())
        document = {
            "format": _FORMAT,
            "job": job,
            "arrays": arrays.name,
            "progress": asdict(state.progress),
            "memory": asdict(state.memory),
            "averaging": asdict(state.averaging),
            "monitors": [dict(each) for each in state.monitors],
            "figures": dict(state.figures),
        }
        _replace_file(self.folder / _NAME, (json.dumps(document, indent=1) + "\n").encode())
        for old in self.folder.glob("step-*.npz"):
            if old != arrays:
                old.unlink()

    def load(self, job: str) -> tuple[TrainingState, tuple[HistoryRow, ...]] | None:
        """Return the state and all rows before it, or None if there is no checkpoint yet."""
        path = self.folder / _NAME
        if not path.exists():
            return None
        try:
            document: dict[str, Any] = json.loads(path.read_text())
            _check_format(document)
            with (self.folder / document["arrays"]).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            state = TrainingState(
                {name: array for name, array in arrays.items() if not name.startswith("rows/")},
                TrainingProgress(**document["progress"]),
                BatchSizeMemory(**document["memory"]),
                AveragingState(**document["averaging"]),
                tuple(document["monitors"]),
                document["figures"],
            )
        except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
            raise SalmonError(
                f"The checkpoint in {self.folder} cannot be read: {error}.",
                hint="Move the folder away to start over.",
                where=str(path),
            ) from error
        if document["job"] != job:
            raise SalmonError(
                f"The checkpoint in {self.folder} belongs to another run.",
                hint=f"It was {document['job']}; this is {job}. Give another folder, or the same settings.",
                where=str(path),
            )
        return state, _read_rows(arrays)


def take_replicas(arrays: Mapping[str, NDArray[Any]], first: int, count: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of `count` replicas starting at `first`; shared arrays are kept whole."""
    return {
        name: array[first : first + count] if name.startswith(_PER_REPLICA) and array.ndim and len(array) > 1 else array
        for name, array in arrays.items()
    }


def join_replicas(parts: list[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all replicas, concatenated in the order of the parts."""
    return {
        name: np.concatenate([part[name] for part in parts]) if name.startswith(_PER_REPLICA) and array.ndim else array
        for name, array in parts[0].items()
    }


def resize_replicas(arrays: Mapping[str, NDArray[Any]], count: int) -> dict[str, NDArray[Any]]:
    """Return the arrays for another number of replicas, each of which starts from the mean; unchanged if the number is right."""
    return {
        name: np.repeat(array.mean(axis=0, keepdims=True, dtype=np.float64).astype(array.dtype), count, axis=0)
        if name.startswith(_PER_REPLICA) and array.ndim and len(array) != count
        else array
        for name, array in arrays.items()
    }


def _check_format(document: dict[str, Any]) -> None:
    if document.get("format") != _FORMAT:
        raise ValueError(f"its format is {document.get('format')!r} and not {_FORMAT}")


def _read_rows(arrays: dict[str, Any]) -> tuple[HistoryRow, ...]:
    columns = {name.removeprefix("rows/"): array for name, array in arrays.items() if name.startswith("rows/")}
    length = len(next(iter(columns.values()), ()))
    # A value that was not measured in a step is missing from its row.
    return tuple(
        {name: float(array[step]) for name, array in columns.items() if not np.isnan(array[step])}
        for step in range(length)
    )


def _replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file next to this one, flush it to disk and rename it."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
