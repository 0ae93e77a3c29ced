"""Fitting an embedding in batches of answers, by one process or by all workers of a cluster."""

from dataclasses import dataclass
from typing import Any

from salmon.geometry import Coordinates
from salmon.learning import Triplets
from salmon.learning.objective import objective_of
from salmon.learning.refit import best_scale, spectral_start
from salmon.noise import NoiseModel
from salmon.training.embedding import fit_embedding
from salmon.training.groups import as_group

# A batch where only the averaging was given.
_BATCH = 4096


@dataclass(frozen=True)
class FoundInBatches:
    """(n, d) centred coordinates, the objective of all answers there, and a line a step."""

    coordinates: Coordinates
    objective: float
    history: list[dict[str, float]]


def fit_in_batches(
    rows: Triplets, n: int, d: int, noise: NoiseModel, *, start: Coordinates | None, ridge: float, step_size: float,
    seed: int, executor: Any, batch_size: Any, **options: Any,
) -> FoundInBatches:  # fmt: skip
    """Train from the start given, or from the spectral one, as `salmon.training.fit` does."""
    objective = objective_of(rows, n, noise, ridge=ridge)
    begin = best_scale(objective, spectral_start(rows, n, d, seed)) if start is None else start
    coordinates, trained = fit_embedding(
        rows, begin, noise, ridge=ridge, step_size=step_size, group=as_group(executor), seed=seed,
        batch_size=_BATCH if batch_size is None else batch_size, **options,
    )  # fmt: skip
    lines = [{"start": 0, "iteration": row["step"], "objective": row["loss"], **row} for row in trained.history.rows]
    return FoundInBatches(coordinates, objective(coordinates)[0], lines)
