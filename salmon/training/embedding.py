"""An embedding as a torch module: its parameters are the coordinates, and its outputs the losses of triplets."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from salmon.geometry import Coordinates, centre
from salmon.learning import Triplets
from salmon.noise import NoiseModel
from salmon.training.groups import Group
from salmon.training.loop import TrainingResult, fit


class TripletLosses(torch.nn.Module):
    """Compute −log p(winner) of triplets (b, 3) under a noise model, in nats, from (n, d) coordinates in float32."""

    def __init__(self, coordinates: Coordinates, noise: NoiseModel) -> None:
        super().__init__()
        self.coordinates = torch.nn.Parameter(torch.from_numpy(np.array(coordinates, np.float32, order="C")))
        self._noise = noise

    def forward(self, triplets: torch.Tensor) -> torch.Tensor:
        """Return the losses (b,)."""
        placed = self.coordinates.index_select(0, triplets.reshape(-1).long()).view(-1, 3, self.coordinates.shape[1])
        differences = placed[:, :1] - placed[:, 1:]
        d2 = (differences * differences).sum(dim=2)
        return _ChoiceLoss.apply(d2[:, 0], d2[:, 1], self._noise)[0]


class _ChoiceLoss(torch.autograd.Function):
    """The loss of a noise model and its slopes, by the same NumPy code as in every other
    fit, without copying the tensors.

    ∂loss/∂d2_loser = loss'(f) · u'(d2_loser), and with the opposite sign for the winner;
    f = u(d2_loser) − u(d2_winner).
    """

    @staticmethod
    def forward(d2_winner: torch.Tensor, d2_loser: torch.Tensor, noise: NoiseModel) -> tuple[Any, Any, Any]:
        winner, loser = d2_winner.detach().numpy(), d2_loser.detach().numpy()
        loss, slope = noise.loss_and_slope(noise.remoteness(loser.copy()) - noise.remoteness(winner.copy()))
        to_winner = -slope * noise.remoteness_slope(winner)
        to_loser = slope * noise.remoteness_slope(loser)
        return _to_tensor(loss), _to_tensor(to_winner), _to_tensor(to_loser)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del inputs
        ctx.save_for_backward(output[1], output[2])
        ctx.mark_non_differentiable(output[1], output[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, Any, None]:
        to_winner, to_loser = ctx.saved_tensors
        return gradients[0] * to_winner, gradients[0] * to_loser, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        # Entries are independent, so that several replicas are simply one larger array.
        del info
        *squared, noise = args
        winner, loser = (each.movedim(at, 0) for each, at in zip(squared, in_dims, strict=False))
        return _ChoiceLoss.apply(winner, loser, noise), (0, 0, 0)


def _to_tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def fit_embedding(
    triplets: Triplets,
    start: Coordinates,
    noise: NoiseModel,
    *,
    ridge: float,
    step_size: float,
    group: Group,
    seed: int,
    **options: Any,
) -> tuple[Coordinates, TrainingResult]:
    """Fit coordinates by Adam on batches of triplets (m, 3); return them centred (n, d), with the training result.

    The objective is that of `salmon.learning.fit`: mean loss plus ridge/2 · |coordinates|² / m, so that the ridge is
    Adam's weight decay. `options` are passed to `fit`.
    """
    module = TripletLosses(start, noise)
    optimizer: Callable[[list[Any]], Any] = partial(torch.optim.Adam, lr=step_size, weight_decay=ridge / len(triplets))
    trained = fit(module, torch.from_numpy(np.ascontiguousarray(triplets)), optimizer, group, seed=seed, **options)
    return centre(module.coordinates.detach().numpy()), trained
