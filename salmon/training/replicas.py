"""Replicas of a module, and how they are synchronised at the end of a step.

The parameters of each replica are one row of a table, which is the only parameter of the optimiser: an optimiser that
treats every entry separately then treats every replica separately. Several replicas, or the batches of several ranks,
go through the module together (`torch.vmap`), which costs little more than one.

A few numbers travel with every exchange: the summed loss, the gradient norms that monitors need, and requests to end
the segment. The columns of a row come only from what has travelled, so that every rank has the same ones: between two
agreements, the loss is that of the last agreement.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import isnan, nan, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from salmon.errors import SalmonError
from salmon.training.averaging import AveragingState, Crossbow
from salmon.training.exchange import NOTES, LayerExchange, Ranks, divide_layers
from salmon.training.state import HistoryRow, TrainingJob, TrainingState

# Optimisers that combine entries or look at matrices: a table of replicas would change their meaning.
_NOT_ELEMENTWISE = {"LBFGS", "Adafactor", "Muon", "SparseAdam"}


class Replicas:
    """`count` copies of a module, trained by one optimiser. The module itself is not modified."""

    def __init__(self, job: TrainingJob, count: int) -> None:
        module: torch.nn.Module = job.module
        self._module = module.train()
        self._loss, self._clip_norm = job.loss, job.clip_norm
        named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self._names = list(named)
        self._dtypes = [parameter.dtype for parameter in named.values()]
        #: Shape of each layer, in the order of the table's columns.
        self.shapes = [tuple(parameter.shape) for parameter in named.values()]
        self._sizes = [prod(shape) for shape in self.shapes]
        flat = flatten_parameters(module)
        #: (count, P) the parameters.
        self.weights = torch.nn.Parameter(flat.expand(count, -1).clone())
        self._buffers = [{name: buffer.clone() for name, buffer in module.named_buffers()} for _ in range(count)]
        # Modules that torch.vmap cannot transform, such as recurrent ones, go through one batch at a time.
        self._together = not self._buffers[0] and not any(
            isinstance(each, torch.nn.RNNBase) for each in module.modules()
        )
        # Parts of the parameters through which the last batch has gone.
        self._layers: tuple[torch.Tensor, ...] = ()
        groups = group_columns(self._names, self._sizes, job.parameter_groups)
        self._columns = [columns for _, runs in groups for columns in runs]
        # Parts of the table that share its memory; the table itself if there is only one group.
        whole = len(groups) == 1 and not groups[0][0]
        self._parts = (
            [self.weights] if whole else [torch.nn.Parameter(self.weights.detach()[:, each]) for each in self._columns]
        )
        parts = iter(self._parts)
        self._optimizer = job.optimizer(
            [self.weights]
            if whole
            else [{"params": [next(parts) for _ in runs], **options} for options, runs in groups]
        )
        if type(self._optimizer).__name__ in _NOT_ELEMENTWISE:
            raise SalmonError(
                f"{type(self._optimizer).__name__} does not treat every parameter separately.",
                hint="Use an element-wise optimiser, such as SGD, Adam, AdamW or Adagrad.",
                where="optimizer",
            )
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def rate(self) -> float:
        """The learning rate before any reduction."""
        return self._rates[0]

    def gradients(
        self,
        batch: tuple[torch.Tensor, ...],
        counted: torch.Tensor,
        ready: Callable[[int, torch.Tensor | None], None] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return summed losses (r,) and their gradients (r, P) for batches (r, b, …), weighted by `counted` (r, b).

        With one replica and r batches, each batch has its own gradient at the same parameters. With a single batch,
        `ready(layer, gradient)` is called for layers as soon as their gradients are known, while the backward pass goes
        on.
        """
        ranks = len(counted)
        self._layers = ()
        leaf = self.weights.detach().expand(ranks, -1).clone().requires_grad_()
        sums = None if ranks == 1 or not self._together else self._sum_together(leaf, batch, counted)
        if sums is None:
            lengths = counted.sum(dim=1).int().tolist()
            sums = torch.stack([self._sum_part(leaf, batch, each, length) for each, length in enumerate(lengths)])
        if ready is not None and ranks == 1:
            for layer, part in enumerate(self._layers):
                part.register_hook(partial(ready, layer))
        (gradients,) = torch.autograd.grad(sums.sum(), leaf)
        self._layers = ()
        return sums.detach(), gradients

    def evaluate(
        self, weights: torch.Tensor, batch: tuple[torch.Tensor, ...], *, gradient: bool
    ) -> tuple[float, torch.Tensor | None]:
        """Return the summed loss of a batch (b, …) at some parameters (P,) and, if wanted, its gradient (P,)."""
        leaf = weights.detach().clone().requires_grad_(gradient)
        buffers = {name: buffer.clone() for name, buffer in self._buffers[0].items()}
        with torch.set_grad_enabled(gradient):
            losses = self._losses(leaf, *batch, buffers=buffers)
        slope = torch.autograd.grad(losses.sum(), leaf)[0] if gradient else None
        return float(losses.detach().sum(dtype=torch.float64)), slope

    def step(self, gradients: torch.Tensor, factor: float) -> None:
        """Take one optimiser step with gradients (count, P) and the learning rate times `factor`."""
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        if self._clip_norm is not None:
            norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
            gradients = gradients * (self._clip_norm / norms.clamp(min=self._clip_norm))
        for part, columns in zip(self._parts, self._columns, strict=True):
            part.grad = gradients if part is self.weights else gradients[:, columns].contiguous()
        self._optimizer.step()
        for part in self._parts:
            part.grad = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of parameters, optimiser state and buffers, one row for each replica."""
        kept = {
            f"optimizer/{index}/{name}": _copy(torch.as_tensor(value))
            for index, part in enumerate(self._parts)
            for name, value in self._optimizer.state.get(part, {}).items()
            if value is not None
        }
        return {
            "weights": _copy(self.weights),
            **kept,
            **{f"buffer/{name}": np.stack([_copy(each[name]) for each in self._buffers]) for name in self._buffers[0]},
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        with torch.no_grad():
            self.weights.copy_(torch.from_numpy(arrays["weights"].copy()))
        for name, array in arrays.items():
            if name.startswith("optimizer/"):
                _, index, field = name.split("/", 2)
                self._optimizer.state[self._parts[int(index)]][field] = torch.from_numpy(np.array(array))
        for name in self._buffers[0]:
            for each, row in zip(self._buffers, arrays[f"buffer/{name}"], strict=True):
                each[name] = torch.from_numpy(np.array(row)).to(each[name].dtype)

    def module_at(self, weights: torch.Tensor) -> torch.nn.Module:
        """Return the module with these parameters (P,) and the buffers of the first replica written into it."""
        write_parameters(self._module, weights)
        for name, buffer in self._module.named_buffers():
            buffer.copy_(self._buffers[0][name])
        return self._module

    def _buffers_of(self, batch: int) -> dict[str, torch.Tensor]:
        """Return the buffers that a batch updates; with one replica for several ranks,
        those of the first rank are kept.
        """
        if batch < len(self):
            return self._buffers[batch]
        return {name: buffer.clone() for name, buffer in self._buffers[0].items()}

    def _sum_together(
        self, leaf: torch.Tensor, batch: tuple[torch.Tensor, ...], counted: torch.Tensor
    ) -> torch.Tensor | None:
        """Return the summed losses (r,) of all batches at once, or None if torch.vmap cannot transform the module."""
        try:
            losses = torch.vmap(self._losses, randomness="different")(leaf, *batch)
        except RuntimeError:
            # If the module itself is wrong, one batch at a time raises the same error without vmap's.
            self._together = False
            return None
        return (losses * counted).sum(dim=1)

    def _sum_part(self, leaf: torch.Tensor, batch: tuple[torch.Tensor, ...], each: int, length: int) -> torch.Tensor:
        """Return the summed loss of the first `length` examples of one batch; the others are padding."""
        if not length:
            return leaf[each].sum() * 0
        examples = (part[each, :length] for part in batch)
        return self._losses(leaf[each], *examples, buffers=self._buffers_of(each)).sum()

    def _losses(self, flat: torch.Tensor, *batch: torch.Tensor, buffers: dict[str, Any] | None = None) -> torch.Tensor:
        self._layers = flat.split(self._sizes)
        named = {
            name: part.view(shape).to(dtype)
            for name, part, shape, dtype in zip(self._names, self._layers, self.shapes, self._dtypes, strict=True)
        }
        if self._loss is None:
            losses = functional_call(self._module, {**named, **(buffers or {})}, batch)
        else:
            losses = self._loss(functional_call(self._module, {**named, **(buffers or {})}, batch[:-1]), batch[-1])
        examples = len(batch[0])
        if not losses.ndim or len(losses) != examples:
            raise SalmonError(
                f"The loss of {examples} examples has shape {tuple(losses.shape)}.",
                hint='Give a loss for each example: reduction="none".',
                where="loss",
            )
        losses = losses.to(flat.dtype)
        return losses if losses.ndim == 1 else losses.reshape(examples, -1).mean(dim=1)


@dataclass(frozen=True)
class ReplicaStep:
    """The result of a step: `loss` is that of the local ranks; `columns` are for its row and equal on all ranks."""

    loss: float
    synchronised: int
    columns: HistoryRow
    local_norm2: float = nan
    norm2: float = nan


class Synchronisation:
    """Common part of the three ways to synchronise replicas: exchanges, and the numbers that travel with them."""

    def __init__(self, job: TrainingJob, replicas: Replicas, ranks: Ranks, state: TrainingState) -> None:
        self._job, self._replicas, self._ranks = job, replicas, ranks
        self.state: AveragingState = state.averaging
        self.regroup = False
        self.finish = False
        self._asked_to_finish = False
        self._intervals = {monitor.every for monitor in job.monitors if monitor.needs_gradients}

    def begin_exchange(self, batch_size: int) -> Callable[[int, torch.Tensor | None], None] | None:
        """Return what takes the gradient of each layer during the backward pass of a step, or None if
        nothing is exchanged meanwhile.
        """
        del batch_size
        return None

    def ask_to_finish(self) -> None:
        """Request the end of the run: immediately if there is one rank, otherwise with the next exchange."""
        self._asked_to_finish = True
        self.finish = self.finish or self._ranks.size == 1

    def finish_step(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> ReplicaStep:
        """Update the local replicas from their summed losses (r,), summed gradients (r, P) and examples (r,)."""
        raise NotImplementedError

    def centre(self) -> torch.Tensor:
        """Return the parameters (P,) that represent all local replicas."""
        return self._replicas.weights.detach().mean(dim=0)

    def place(self, rank: int) -> torch.Tensor:
        """Return the parameters (P,) at which the local rank of this index evaluates its share of the training set."""
        return self._replicas.weights[min(rank, len(self._replicas) - 1)]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that must be saved in addition to the replicas."""
        return {}

    def _notes(self, sums: torch.Tensor, counts: torch.Tensor, gradients: torch.Tensor | None = None) -> torch.Tensor:
        """Return the numbers (r, 5) that travel with each local rank's vector; norms
        only for given gradients (r, P).
        """
        ranks = len(self._ranks.local)
        losses = sums.view(ranks, -1).sum(dim=1).tolist()
        examples = counts.view(ranks, -1).sum(dim=1).tolist()
        norms2 = [0.0] * ranks if gradients is None else [_norm2(each) for each in gradients]
        # Python floats: for so few numbers, the overhead of torch calls would dominate.
        rows = [
            [a, b, norm2 / max(1.0, b) ** 2, 0.0, 0.0] for a, b, norm2 in zip(losses, examples, norms2, strict=True)
        ]
        rows[0][3:] = [float(self._ranks.asked_to_regroup()), float(self._asked_to_finish)]
        return torch.tensor(rows, dtype=torch.float32)

    def _exchange(self, vectors: torch.Tensor, notes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (sum of the vectors (P,), sum of the notes)."""
        total = self._ranks.reduce(torch.cat([vectors, notes], dim=1))
        self._read_requests(total[-NOTES:].tolist())
        return total[:-NOTES], total[-NOTES:]

    def _read_requests(self, notes: list[float]) -> None:
        self.regroup, self.finish = notes[3] > 0, notes[4] > 0


class GradientAveraging(Synchronisation):
    """Full synchronisation: all ranks take the same step along the gradient of the whole batch, exact or compressed."""

    def __init__(self, job: TrainingJob, replicas: Replicas, ranks: Ranks, state: TrainingState) -> None:
        super().__init__(job, replicas, ranks, state)
        sizes = [prod(shape) for shape in replicas.shapes]
        in_parts = job.compression is None and ranks.size > 1 and len(divide_layers(sizes)) > 1
        self._by_layer = LayerExchange(sizes, ranks, replicas.weights.dtype) if in_parts else None

    def begin_exchange(self, batch_size: int) -> Callable[[int, torch.Tensor | None], None] | None:
        """Return what takes the gradient of each layer if there is more than one part to send."""
        return None if self._by_layer is None else self._by_layer.begin(batch_size)

    def finish_step(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> ReplicaStep:
        """Average gradients and take one step; see `Synchronisation`."""
        measured = any(step % every == 0 for every in self._intervals)
        notes = self._notes(sums, counts, gradients if measured else None)
        exact_norm2 = nan
        if self._by_layer is not None:
            gradient, total_notes = self._by_layer.finish(gradients, notes)
            self._read_requests(total_notes.tolist())
        elif self._job.compression is None:
            gradient, total_notes = self._exchange(gradients / batch_size, notes)
        else:
            gradient, total_notes, exact_norm2 = self._exchange_coded(step, gradients / batch_size, notes, batch_size)
        norm2 = _norm2(gradient)
        exact_norm2 = norm2 if isnan(exact_norm2) else exact_norm2
        loss = float(total_notes[0]) / batch_size
        self._replicas.step(gradient[None], factor)
        return ReplicaStep(
            loss,
            1,
            {"loss": loss, "gradient_norm2": norm2},
            local_norm2=float(total_notes[2]) / self._ranks.size if measured else nan,
            norm2=exact_norm2,
        )

    def _exchange_coded(
        self, step: int, vectors: torch.Tensor, notes: torch.Tensor, batch_size: int
    ) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Return (sum of the decoded vectors (P,), sum of the notes, |Σ vᵢ|² of the vectors before compression).

        The norm is estimated without bias as Σ |vᵢ|² + Σ_{i≠j} v̂ᵢ·v̂ⱼ: the norms of single ranks travel uncompressed,
        and the errors of two ranks are independent. It is only meaningful in steps in which these norms travel.
        """
        compression = self._job.compression
        assert compression is not None  # noqa: S101 - only called with a compression
        shapes, head = self._replicas.shapes, 4 * NOTES
        payloads = [
            note.numpy().tobytes()
            + compression.compress(vector.float().numpy(), shapes, np.random.default_rng([self._job.seed, step, rank]))
            for rank, vector, note in zip(self._ranks.local, vectors, notes, strict=True)
        ]
        single_norms2: list[float] = []

        def expand(payload: bytes) -> NDArray[np.float32]:
            received = np.frombuffer(payload[:head], dtype=np.float32)
            decoded = compression.expand(payload[head:], shapes)
            examples, mean_norm2 = float(received[1]), float(received[2])
            single_norms2.append(mean_norm2 * (examples / batch_size) ** 2 - float(decoded @ decoded))
            return np.concatenate([decoded, received])

        # What overflows here, in a run that diverges, makes the next loss infinite or NaN, and that ends the run with a
        # sentence.
        with np.errstate(over="ignore", invalid="ignore"):
            total = torch.from_numpy(self._ranks.reduce_coded(payloads, expand))
        self._read_requests(total[-NOTES:].tolist())
        gradient = total[:-NOTES].to(vectors.dtype)
        return gradient, total[-NOTES:], _norm2(gradient) + sum(single_norms2)


class ParameterAveraging(Synchronisation):
    """Each replica steps alone; when the averaging method decides so, all replicas are set to their mean."""

    def __init__(self, job: TrainingJob, replicas: Replicas, ranks: Ranks, state: TrainingState) -> None:
        super().__init__(job, replicas, ranks, state)
        # Losses and examples of each replica since the last agreement, and the mean loss at that agreement.
        self._since = torch.zeros(len(replicas), 2)
        if (kept := state.arrays.get("since_agreement")) is not None:
            self._since = torch.from_numpy(np.array(kept))
        self._loss = float(state.figures.get("loss", nan))

    def finish_step(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> ReplicaStep:
        """Take a step with each replica and average them if it is time; see `Synchronisation`."""
        del batch_size
        self._replicas.step(gradients / counts.clamp(min=1)[:, None], factor)
        self._since += torch.stack([sums.to(counts.dtype), counts], dim=1)
        local = float(sums.sum() / counts.sum().clamp(min=1))
        self.state, due = self._job.averaging.decide(self.state, step)
        if not due:
            if isnan(self._loss):
                self._share_first_loss()
            return ReplicaStep(local, 0, {"loss": self._loss, "period": self.state.period})
        weights = self._replicas.weights.detach()
        mean, variance, notes = self._average(weights)
        with torch.no_grad():
            self._replicas.weights.copy_(mean.expand_as(weights))
        self.state = self._job.averaging.learn(self.state, step, variance, self._replicas.rate * factor)
        self._since.zero_()
        self._loss = float(notes[0] / notes[1].clamp(min=1))
        columns: HistoryRow = {"loss": self._loss, "period": self.state.period, "replica_variance": variance}
        return ReplicaStep(local, 1, columns)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return losses and examples since the last agreement, so that a run can continue between two agreements."""
        return {"since_agreement": _copy(self._since)}

    def _average(self, weights: torch.Tensor) -> tuple[torch.Tensor, float, torch.Tensor]:
        """Return the mean (P,) of all replicas (r, P), their mean squared distance
        from it, and the sum of the notes.
        """
        own, ranks = torch.cat([weights, self._notes(*self._since.T)], dim=1), self._ranks.size
        if (gathered := self._ranks.gather(own)) is None:
            total = self._ranks.reduce(own)
            mean = total[:-NOTES] / ranks
            variance = float(self._ranks.reduce(_distances2(weights, mean))[0]) / ranks
        else:
            # Every rank has all replicas: the variance needs no exchange of its own.
            total = gathered.sum(dim=0)
            mean = total[:-NOTES] / ranks
            variance = float(_distances2(gathered[:, :-NOTES], mean).sum(dim=0)) / ranks
        self._read_requests(total[-NOTES:].tolist())
        return mean, variance, total[-NOTES:]

    def _share_first_loss(self) -> None:
        """Exchange the loss of the first step alone, so that there is one before the first agreement."""
        notes = self._ranks.reduce(self._notes(*self._since.T))
        self._read_requests(notes.tolist())
        self._loss = float(notes[0] / notes[1].clamp(min=1))


class CentralAveraging(Synchronisation):
    """Crossbow: independent replicas, each pulled towards a central average that follows them."""

    def __init__(self, job: TrainingJob, replicas: Replicas, ranks: Ranks, state: TrainingState) -> None:
        super().__init__(job, replicas, ranks, state)
        kept = state.arrays.get("centre")
        mean = replicas.weights.detach().mean(dim=0)
        self._centre = mean.clone() if kept is None else torch.from_numpy(kept[0].copy())
        self._before = self._centre.clone() if kept is None else torch.from_numpy(kept[1].copy())

    def finish_step(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> ReplicaStep:
        """Take a step with each replica and exchange corrections; see `Synchronisation`."""
        del step, batch_size
        method = self._job.averaging
        assert isinstance(method, Crossbow)  # noqa: S101 - guaranteed by `choose_synchronisation`
        every = method.replicas
        corrections = method.strength(every * self._ranks.size) * (self._replicas.weights.detach() - self._centre)
        total, notes = self._exchange(
            corrections.view(len(self._ranks.local), every, -1).sum(dim=1), self._notes(sums, counts)
        )
        self._replicas.step(gradients / counts.clamp(min=1)[:, None], factor)
        with torch.no_grad():
            self._replicas.weights.sub_(corrections)
        moved = self._centre + total + method.momentum * (self._centre - self._before)
        self._before, self._centre = self._centre, moved
        loss = float(notes[0] / notes[1].clamp(min=1))
        return ReplicaStep(loss, 1, {"loss": loss})

    def centre(self) -> torch.Tensor:
        """Return the central average."""
        return self._centre

    def place(self, rank: int) -> torch.Tensor:
        """Return the central average, which is the same for all ranks."""
        del rank
        return self._centre

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the central average and the previous one."""
        return {"centre": torch.stack([self._centre, self._before]).numpy().copy()}


def choose_synchronisation(job: TrainingJob, replicas: Replicas, ranks: Ranks, state: TrainingState) -> Synchronisation:
    """Return the synchronisation for a job's averaging method."""
    # A single replica has no others to be corrected towards: its central average would only lag behind it.
    alone = isinstance(job.averaging, Crossbow) and job.averaging.replicas * ranks.size == 1
    if not job.averaging.differ or alone:
        return GradientAveraging(job, replicas, ranks, state)
    if isinstance(job.averaging, Crossbow):
        return CentralAveraging(job, replicas, ranks, state)
    return ParameterAveraging(job, replicas, ranks, state)


def flatten_parameters(module: torch.nn.Module) -> torch.Tensor:
    """Return a copy of all parameters that require a gradient as one vector (P,), in float64 if
    one of them is, else in float32.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise SalmonError(
            "The module has no parameters to train.", hint="Let some of them require a gradient.", where="module"
        )
    wide = any(parameter.dtype == torch.float64 for parameter in parameters)
    flat = torch.cat([parameter.detach().reshape(-1).double() for parameter in parameters])
    return flat if wide else flat.float()


def write_parameters(module: torch.nn.Module, flat: torch.Tensor) -> None:
    """Write a vector (P,) into the parameters that require a gradient; each keeps its own dtype."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter, part in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
            parameter.copy_(part.view(parameter.shape))


def group_columns(
    names: Sequence[str], sizes: Sequence[int], groups: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[tuple[dict[str, Any], list[slice]]]:
    """Return (options, columns of the table) of each group of parameters; the first one has no options of its own.

    A parameter belongs to the first group whose pattern matches its name. Neighbouring
    layers of one group share a slice.
    """
    found: list[tuple[dict[str, Any], list[slice]]] = [({}, []), *((dict(options), []) for _, options in groups)]
    start = 0
    for name, size in zip(names, sizes, strict=True):
        matching = (index for index, (pattern, _) in enumerate(groups, start=1) if fnmatchcase(name, pattern))
        runs = found[next(matching, 0)][1]
        if runs and runs[-1].stop == start:
            runs[-1] = slice(runs[-1].start, start + size)
        else:
            runs.append(slice(start, start + size))
        start += size
    for (pattern, _), (_, runs) in zip(groups, found[1:], strict=True):
        if not runs:
            raise SalmonError(
                f"No parameter that is trained and not in an earlier group matches {pattern!r}.",
                hint=f"The parameters are {', '.join(names)}.",
                where="parameter_groups",
            )
    return [group for group in found if group[1]]


def _norm2(vector: torch.Tensor) -> float:
    # Every norm uses this one operation: in a step of half a millisecond, the first call of another one would be
    # noticeable.
    return float(vector @ vector)


def _distances2(replicas: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return the squared distances (r, 1) of replicas (r, P) from their mean (P,)."""
    return ((replicas - mean) ** 2).sum(dim=1, keepdim=True)


def _copy(tensor: torch.Tensor) -> NDArray[Any]:
    # NumPy has no bfloat16.
    whole = tensor.detach().cpu()
    return (whole.float() if whole.dtype == torch.bfloat16 else whole).numpy().copy()
