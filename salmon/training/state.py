"""Everything that defines a run between two steps, as values that can be sent to workers and saved to disk.

A checkpoint consists of the arrays as .npz and the rest as JSON, so that loading one cannot execute code. The JSON file
names the arrays and is moved into place last: a process that is killed while it writes leaves the previous checkpoint
intact.

It also describes the run by digests, so that only a run with the same data, module and settings can continue from it.
"""

import hashlib
import json
import os
import platform
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import salmon
from salmon.errors import SalmonError
from salmon.training.averaging import Averaging, AveragingState, FullSync
from salmon.training.batch_size import BatchSize, BatchSizeMemory, ConstantBatch
from salmon.training.compression import Compression
from salmon.training.monitors import Monitor
from salmon.training.policies import Policy
from salmon.training.shards import ShardedData

#: One step in the history: name of a column -> value.
HistoryRow = dict[str, float]

# Names, or beginnings of names, of the arrays that have one row for each replica.
_PER_REPLICA = ("weights", "optimizer/", "buffer/", "since_agreement")
_FORMAT = 2
_NAME = "training.json"
# Values up to this length are shown in an error message; of longer ones it says only that they differ.
_SHOWN = 100


@dataclass(frozen=True)
class TrainingJob:
    """What to train and how; the same for every worker.

    `optimizer` makes a torch optimiser from a list of parameters. `loss(output, last tensor of the data)` returns a
    loss for each example, (b,); if it is None, the module's output is taken as the losses. `watch(module)` returns
    figures for the history every `watch_every` steps, and its time is not counted. The run ends when `until(row)` is
    true.
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
    parameter_groups: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    clip_norm: float | None = None

    def describe(self, data: Sequence[torch.Tensor] | ShardedData) -> dict[str, str]:
        """Return what a run must share with a checkpoint to continue from it. Epochs may be
        added, and workers may change.
        """
        made = self.optimizer([torch.nn.Parameter(torch.zeros(1))])
        options = [{name: group[name] for name in group if name != "params"} for group in made.param_groups]
        return {
            "data": data.describe() if isinstance(data, ShardedData) else _describe_tensors(data),
            "module": f"{type(self.module).__qualname__} {_digest('; '.join(_describe_structure(self.module)))}",
            "loss": describe_value(self.loss),
            "optimizer": f"{type(made).__qualname__}({describe_value(options[0] if len(options) == 1 else options)})",
            "parameter_groups": describe_value(self.parameter_groups),
            "clip_norm": str(self.clip_norm),
            "batch_size": describe_value(self.batch_size),
            "averaging": describe_value(self.averaging),
            "compression": describe_value(self.compression),
            "monitors": describe_value(self.monitors),
            "policies": describe_value(self.policies),
            "seed": str(self.seed),
            "versions": f"Python {platform.python_version()}, torch {torch.__version__}, Salmon {salmon.__version__}",
        }


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

    `arrays` holds the parameters (r, P), one row for each replica or one for all, and the state of the optimiser.
    `figures` are those of the last row that all ranks share, which policies see.
    """

    arrays: Mapping[str, NDArray[Any]]
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    memory: BatchSizeMemory = field(default_factory=BatchSizeMemory)
    averaging: AveragingState = field(default_factory=AveragingState)
    monitors: tuple[Mapping[str, float], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def weights(self) -> NDArray[Any]:
        """(P,) the central average or, if there is none, the mean of the replicas' parameters."""
        centre = self.arrays.get("centre")
        return self.arrays["weights"].mean(axis=0) if centre is None else centre[0]


@dataclass(frozen=True)
class SegmentOutcome:
    """The result of a segment, a sequence of steps by the same workers: the state after it, its rows, and why it ended.

    `reason` is "limit" (the requested epoch is reached), "finished", "regroup" (workers have changed, or a policy
    requests `workers`) or "lost" (a worker was lost).
    """

    state: TrainingState
    rows: tuple[HistoryRow, ...]
    reason: str
    workers: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the last state of one run. Only a run with the same description can load it."""

    folder: Path

    def save(self, state: TrainingState, rows: tuple[HistoryRow, ...], run: Mapping[str, str]) -> None:
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
            "run": dict(run),
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

    def load(self, run: Mapping[str, str]) -> tuple[TrainingState, tuple[HistoryRow, ...]] | None:
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
            kept = {str(name): str(value) for name, value in document["run"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, OSError, zipfile.BadZipFile) as error:
            raise SalmonError(
                f"The checkpoint in {self.folder} cannot be read: {error}.",
                hint="Move the folder away to start over.",
                where=str(path),
            ) from error
        if differences := list(_list_differences(kept, run)):
            raise SalmonError(
                f"The checkpoint in {self.folder} belongs to another run: {'; '.join(differences)}.",
                hint="Continue with what it was saved with, give another folder, or start anew with resume=False.",
                where=str(path),
            )
        return state, _read_rows(arrays)


def describe_value(value: Any) -> str:
    """Return a text that is equal for equal settings in every process: no addresses, and code and arrays as digests.

    Objects are described by their class and attributes, functions by their name, code, defaults and enclosed values.
    """
    return _describe(value, ())


def _describe(value: Any, above: tuple[int, ...]) -> str:
    if id(value) in above:
        return "..."

    def inner(each: Any) -> str:
        return _describe(each, (*above, id(value)))

    return next(describe for kinds, describe in _DESCRIBED if isinstance(value, kinds))(value, inner)


def _describe_tensors(data: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{tuple(each.shape)} {_digest(describe_value(each))}" for each in data)


def _describe_tensor(value: torch.Tensor, _: Callable[[Any], str]) -> str:
    entries = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"tensor({value.dtype}, {tuple(value.shape)}, {_digest(entries)})"


def _describe_mapping(value: Mapping[Any, Any], inner: Callable[[Any], str]) -> str:
    return "{" + ", ".join(f"{inner(key)}: {inner(each)}" for key, each in value.items()) + "}"


def _describe_partial(value: partial[Any], inner: Callable[[Any], str]) -> str:
    named = [f"{name}={inner(each)}" for name, each in value.keywords.items()]
    return f"{inner(value.func)}({', '.join([*map(inner, value.args), *named])})"


def _describe_function(value: FunctionType, inner: Callable[[Any], str]) -> str:
    enclosed = [cell.cell_contents for cell in value.__closure__ or ()]
    return f"{value.__qualname__} {_digest(_describe_code([value]) + inner([enclosed, value.__defaults__, value.__kwdefaults__]))}"


def _describe_object(value: Any, inner: Callable[[Any], str]) -> str:
    if is_dataclass(value):
        attributes = {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
    elif isinstance(value, torch.nn.Module):
        attributes = {"structure": repr(value), **value.state_dict(), **_plain_attributes(value)}
    else:
        attributes = getattr(value, "__dict__", {})
    code = _describe_class(type(value))
    listed = ", ".join(f"{name}={inner(each)}" for name, each in attributes.items())
    return f"{type(value).__qualname__}({listed}){' ' * bool(code)}{code}"


def _describe_class(kind: type) -> str:
    """Return a digest of a class's own methods; the code of Salmon, torch and built-in
    types follows from their versions.
    """
    if kind.__module__.partition(".")[0] in {"salmon", "torch", "builtins"}:
        return ""
    return _digest(_describe_code([each for each in vars(kind).values() if isinstance(each, FunctionType)]))


_DESCRIBED: tuple[tuple[Any, Callable[[Any, Callable[[Any], str]], str]], ...] = (
    ((bool, int, float, complex, str, bytes, Path, type(None)), lambda value, _: repr(value)),
    (torch.Tensor, _describe_tensor),
    (np.ndarray, lambda value, _: f"array({value.dtype}, {value.shape}, {_digest(np.ascontiguousarray(value))})"),
    (Mapping, _describe_mapping),
    ((set, frozenset), lambda value, inner: "{" + ", ".join(sorted(map(inner, value))) + "}"),
    ((list, tuple), lambda value, inner: "[" + ", ".join(map(inner, value)) + "]"),
    (partial, _describe_partial),
    (MethodType, lambda value, inner: f"{inner(value.__self__)}.{inner(value.__func__)}"),
    (FunctionType, _describe_function),
    (type, lambda value, _: value.__qualname__),
    (object, _describe_object),
)


def _describe_structure(module: torch.nn.Module) -> Iterator[str]:
    """Yield what defines a module apart from the values of its parameters, which training changes."""
    yield repr(module)
    for name, parameter in module.named_parameters():
        yield f"{name} {tuple(parameter.shape)} {parameter.dtype} {parameter.requires_grad}"
        if not parameter.requires_grad:
            yield describe_value(parameter)
    for name, buffer in module.named_buffers():
        yield f"{name} {tuple(buffer.shape)} {buffer.dtype}"
    for each in module.modules():
        if code := _describe_class(type(each)):
            yield code + describe_value(_plain_attributes(each))


def _plain_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that its author has set, without submodules, parameters and buffers."""
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}


def _describe_code(functions: Sequence[FunctionType | CodeType]) -> str:
    """Return bytecode, names and constants, without line numbers."""
    codes = [each if isinstance(each, CodeType) else each.__code__ for each in functions]
    constants = [[each for each in code.co_consts if not isinstance(each, CodeType)] for code in codes]
    inside = [_describe_code([each for each in code.co_consts if isinstance(each, CodeType)]) for code in codes]
    return repr([(code.co_code, code.co_names) for code in codes]) + describe_value(constants) + "".join(inside)


def _digest(content: str | NDArray[Any]) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content.data).hexdigest()[:16]


def _list_differences(kept: Mapping[str, str], run: Mapping[str, str]) -> Iterator[str]:
    """Yield in words what a checkpoint and a run do not share."""
    for name in dict.fromkeys([*run, *kept]):
        before, now = kept.get(name, "nothing"), run.get(name, "nothing")
        if before == now:
            continue
        if name in {"data", "module"} or len(before) + len(now) > 2 * _SHOWN:
            yield f"{name} differs"
        else:
            yield f"{name} was {before} and is {now}"


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
    """Return the arrays for another number of replicas, each of which starts from the mean;
    unchanged if the number is right.
    """
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
