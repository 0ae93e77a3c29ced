"""Copies of a module's parameters and their gradients, all at once.

The parameters of each replica are one row of a table, and the optimiser has that table as its only parameter: one that
treats every entry alike then treats every replica alike. Several replicas, or several ranks' batches, go through the
module together (`torch.vmap`), which costs little more than one.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from salmon.errors import SalmonError

# Their steps mix entries, or look at matrices: a table of replicas would mean something else to them.
_MIXING = {"LBFGS", "Adafactor", "Muon", "SparseAdam"}


class Replicas:
    """`count` copies of a module, trained by one optimiser. Nothing is written into the module itself."""

    def __init__(self, module: torch.nn.Module, optimizer: Callable[[list[Any]], Any], loss: Any, count: int) -> None:
        self._module = module.train()
        self._loss = loss
        named = dict(module.named_parameters())
        self._names = list(named)
        #: Shape of each layer, in the order of the table's columns.
        self.shapes = [tuple(parameter.shape) for parameter in named.values()]
        self._sizes = [prod(shape) for shape in self.shapes]
        flat = flat_parameters(module)
        #: (count, P) the parameters.
        self.weights = torch.nn.Parameter(flat.expand(count, -1).clone())
        self._buffers = [{name: buffer.clone() for name, buffer in module.named_buffers()} for _ in range(count)]
        self._optimizer = optimizer([self.weights])
        if type(self._optimizer).__name__ in _MIXING:
            raise SalmonError(
                f"{type(self._optimizer).__name__} does not treat every parameter by itself.",
                hint="Take an element-wise optimiser, such as SGD, Adam, AdamW or Adagrad.",
                where="optimizer",
            )
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def rate(self) -> float:
        """The learning rate before any damping."""
        return self._rates[0]

    def gradients(self, batch: tuple[torch.Tensor, ...], counted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(losses summed (r,), their gradients (r, P)) of batches (r, b, …), each entry counted as `counted` (r, b) says.

        With one replica and r batches, each batch has its own gradient at the same parameters.
        """
        ranks = len(counted)
        leaf = self.weights.detach().expand(ranks, -1).clone().requires_grad_()
        if ranks == 1 or self._buffers[0]:
            losses = torch.stack(
                [
                    self._losses(leaf[each], *(part[each] for part in batch), buffers=self._buffers[each % len(self)])
                    for each in range(ranks)
                ]
            )
        else:
            losses = torch.vmap(self._losses, randomness="different")(leaf, *batch)
        sums = (losses * counted).sum(dim=1)
        (gradients,) = torch.autograd.grad(sums.sum(), leaf)
        return sums.detach(), gradients

    def loss_sums(self, batch: tuple[torch.Tensor, ...]) -> float:
        """The summed loss of a batch (b, …) at the mean parameters."""
        with torch.no_grad():
            losses = self._losses(self.weights.mean(dim=0), *batch, buffers=self._buffers[0])
        return float(losses.sum(dtype=torch.float64))

    def step(self, gradients: torch.Tensor, factor: float) -> None:
        """One step of the optimiser along gradients (count, P), its learning rate times `factor`."""
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self.weights.grad = gradients
        self._optimizer.step()
        self.weights.grad = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of parameters, optimiser state and buffers, a row each replica."""
        found: dict[str, NDArray[Any]] = {"weights": _copied(self.weights)}
        for name, value in self._optimizer.state.get(self.weights, {}).items():
            if value is not None:
                found[f"optimizer/{name}"] = _copied(torch.as_tensor(value))
        for name in self._buffers[0]:
            found[f"buffer/{name}"] = np.stack([_copied(each[name]) for each in self._buffers])
        return found

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what `arrays` gave."""
        with torch.no_grad():
            self.weights.copy_(torch.from_numpy(arrays["weights"].copy()))
        kept = {
            name.removeprefix("optimizer/"): torch.from_numpy(np.array(array))
            for name, array in arrays.items()
            if name.startswith("optimizer/")
        }
        if kept:
            self._optimizer.state[self.weights] = kept
        for name in self._buffers[0]:
            for each, row in zip(self._buffers, arrays[f"buffer/{name}"], strict=True):
                each[name] = torch.from_numpy(np.array(row))

    def module_at(self, weights: torch.Tensor) -> torch.nn.Module:
        """The module itself, with these parameters (P,) written into it and the buffers of the first replica."""
        torch.nn.utils.vector_to_parameters(weights.detach().clone(), self._module.parameters())
        for name, buffer in self._module.named_buffers():
            buffer.copy_(self._buffers[0][name])
        return self._module

    def _losses(self, flat: torch.Tensor, *batch: torch.Tensor, buffers: dict[str, Any] | None = None) -> torch.Tensor:
        parts = flat.split(self._sizes)
        named = {name: part.view(shape) for name, part, shape in zip(self._names, parts, self.shapes, strict=True)}
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
        return losses if losses.ndim == 1 else losses.reshape(examples, -1).mean(dim=1)


def flat_parameters(module: torch.nn.Module) -> torch.Tensor:
    """(P,) a copy of all parameters of a module, float32."""
    parameters = list(module.parameters())
    if not parameters:
        raise SalmonError("The module has no parameters to train.", where="module")
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).float()


def _copied(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy().copy()
