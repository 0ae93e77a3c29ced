"""I-optimal design for more targets than the full covariance of their coordinates allows: cheaper, and approximate.

The posterior takes targets as independent of each other, so that Σ, M and K of `salmon.search.design` are one (d, d)
block a target, and a turn considers a sample of feet instead of all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates, Reals
from salmon.learning import Posterior
from salmon.learning.posterior import fisher_weight
from salmon.noise import NoiseModel
from salmon.search.design import Arrangement

# Feet that a turn of `arrange_wide` chooses from: with all of their pairs about half a millisecond a turn.
_WIDE_FEET = 128
_SMALLEST_BLOCK_VARIANCE = 1e-12
# How many turns of `arrange_wide` pass between two calls of `stop`.
_BETWEEN_STOPS = 100


def arrange_wide(
    posterior: Posterior,
    model: NoiseModel,
    turns: NDArray[np.int32],
    generator: np.random.Generator,
    *,
    stop: Callable[[int], bool] | None = None,
) -> Arrangement:
    """Choose the feet of each turn as `arrange` does, among a random sample of feet that is drawn anew in every round.

    M is added up over the turns' own heads and feet, a random sample of all queries.
    """
    x, covariance = posterior.coordinates, posterior.covariance.copy()
    feet = [_draw_feet(len(x), turn, generator) for turn in turns]
    target = np.zeros_like(covariance)
    for turn, drawn in zip(turns, feet, strict=True):
        _add_block_target(_BlockView.of(x, model, turn[0], drawn), covariance, target)
    queries, scores = turns.copy(), np.zeros(len(turns))
    for row, (turn, drawn) in enumerate(zip(turns, feet, strict=True)):
        if row % _BETWEEN_STOPS == 0 and stop is not None and stop(row):
            return Arrangement(queries[:row], scores[:row], covariance, complete=False)
        view = _BlockView.of(x, model, turn[0], drawn)
        near = covariance[view.targets]
        v = view.variances(near)
        weights = fisher_weight(view.log_odds, model.lapse)
        np.fill_diagonal(weights, 0)
        score = weights * view.variances(near @ target[view.targets] @ near) / (1 + weights * v)
        # Feet that were settled beforehand are the only two of their view.
        b, c = divmod(int(score.argmax()), len(score))
        queries[row, 1:] = sorted((drawn[b], drawn[c]))
        scores[row] = score[b, c]
        _deflate_blocks(view, covariance, b, c, weights[b, c] / (1 + weights[b, c] * v[b, c]))
    return Arrangement(queries, scores, covariance, complete=True)


def _draw_feet(n: int, turn: NDArray[np.int32], generator: np.random.Generator) -> NDArray[np.int32]:
    if turn[1] >= 0:
        return turn[1:]
    # One more than needed: the head may be among them.
    drawn = generator.choice(n, min(_WIDE_FEET + 1, n), replace=False).astype(np.int32)
    return drawn[drawn != turn[0]][:_WIDE_FEET]


@dataclass(frozen=True)
class _BlockView:
    """A head and c feet: `targets` (c + 1,) with the head first, `y` (c, d) pulls, `log_odds` (c, c) of b before c."""

    targets: NDArray[np.int32]
    y: Coordinates
    log_odds: Reals

    @classmethod
    def of(cls, x: Coordinates, model: NoiseModel, head: np.int32, feet: NDArray[np.int32]) -> "_BlockView":
        difference = x[head] - x[feet]
        d2 = (difference**2).sum(axis=1)
        felt = model.remoteness(d2)
        y = 2 * model.remoteness_slope(d2)[:, None] * difference
        return cls(np.concatenate([[head], feet]), y, felt[None, :] - felt[:, None])

    def variances(self, blocks: Coordinates) -> Coordinates:
        """Return (c, c) of gᵀAg for each pair of feet, A the (c + 1, d, d) blocks of the head and the feet."""
        shared = self.y @ blocks[0] @ self.y.T
        own = np.einsum("bi,bij,bj->b", self.y, blocks[1:], self.y) + np.diagonal(shared)
        return np.maximum(own[:, None] + own[None, :] - 2 * shared, _SMALLEST_BLOCK_VARIANCE)


def _add_block_target(view: _BlockView, covariance: Coordinates, target: Coordinates) -> None:
    """Add c·g gᵀ, c = exp(−f²/2v)/√v, over all pairs of the view's feet to the blocks of M."""
    v = view.variances(covariance[view.targets])
    weights = np.exp(-0.5 * view.log_odds**2 / v) / np.sqrt(v)
    np.fill_diagonal(weights, 0)
    sums = weights.sum(axis=1)
    head, feet = view.targets[0], view.targets[1:]
    target[head] += view.y.T @ (sums[:, None] * view.y - weights @ view.y)
    target[feet] += sums[:, None, None] * view.y[:, :, None] * view.y[:, None, :]


def _deflate_blocks(view: _BlockView, covariance: Coordinates, b: int, c: int, factor: float) -> None:
    """Count the answer about feet b and c as given: each of the three targets' blocks loses its share."""
    gradients = np.stack([view.y[c] - view.y[b], view.y[b], -view.y[c]])
    three = view.targets[[0, b + 1, c + 1]]
    moved = np.einsum("tij,tj->ti", covariance[three], gradients)
    covariance[three] -= factor * moved[:, :, None] * moved[:, None, :]
