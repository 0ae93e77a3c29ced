"""Answers kept back to judge a fit, and what may be chosen by them.

Answers about the same three targets always stay together: a query asked twice, once fitted and once judged, would be
judged by its own answer.
"""

import numpy as np
from numpy.typing import NDArray

from salmon.errors import TripletError
from salmon.geometry import Coordinates
from salmon.learning import Triplets, fit
from salmon.learning.accuracy import compared_distances
from salmon.noise import NoiseModel, PowerTSTE, noise_model
from salmon.parallel import Executor

#: (k, lapse) tried on power t-STE: from the heavy tails that suit people to the light ones of nearly exact answers.
POWER_CANDIDATES: tuple[tuple[float, float], ...] = (
    *((1.0, 0.0), (1.0, 0.05), (0.85, 0.07), (0.75, 0.1)),
    *((1.5, 0.03), (2.0, 0.0), (2.0, 0.05), (3.0, 0.03)),
)
#: Lapses tried on every other noise model.
LAPSE_CANDIDATES = (0.0, 0.02, 0.05, 0.07, 0.1, 0.15)
#: Folds in which candidates are compared.
FOLDS = 5


def triple_groups(triplets: Triplets) -> NDArray[np.int64]:
    """(m,) a number for each unordered set of three targets: equal where head, winner and loser are the same targets."""
    if not len(triplets):
        return np.zeros(0, dtype=np.int64)
    low, middle, high = np.sort(triplets, axis=1).astype(np.int64).T
    # One number a set sorts many times faster than three columns.
    n = int(high.max()) + 1
    _, groups = np.unique((low * n + middle) * n + high, return_inverse=True)
    return groups.astype(np.int64)


def held_out_split(triplets: Triplets, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(m,) True for about `share` of the answers: whole groups, drawn at random, at least one and never all of them."""
    groups = triple_groups(triplets)
    count = int(groups.max(initial=-1)) + 1
    if count < 2:
        raise TripletError(
            "All answers are about the same three targets: none can be held out.", hint="Fit without early stopping."
        )
    held = rng.permutation(count)[: int(np.clip(round(share * count), 1, count - 1))]
    return np.isin(groups, held)


def grouped_folds(triplets: Triplets, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(m,) the fold 0 … folds − 1 in which each answer is held out; a group is never divided.

    There are fewer folds where there are fewer groups.
    """
    groups = triple_groups(triplets)
    count = int(groups.max(initial=-1)) + 1
    return (rng.permutation(count) % max(1, min(folds, count)))[groups]


def noise_candidates(model: NoiseModel) -> tuple[NoiseModel, ...]:
    """The models among which held-out answers choose, the given one first: (k, lapse) of power t-STE, else the lapse."""
    if isinstance(model, PowerTSTE):
        others: tuple[NoiseModel, ...] = tuple(PowerTSTE(k=k, lapse=lapse) for k, lapse in POWER_CANDIDATES)
    else:
        others = tuple(noise_model(model, lapse=lapse) for lapse in LAPSE_CANDIDATES)
    return tuple(dict.fromkeys((model, *others)))


def choose_noise(
    triplets: Triplets,
    n: int,
    d: int,
    candidates: tuple[NoiseModel, ...],
    *,
    ridge: float,
    seed: int,
    max_iter: int = 500,
    executor: Executor | None = None,
) -> tuple[NoiseModel, dict[NoiseModel, float]]:
    """The candidate under which held-out answers are likeliest, and the log-loss (nats) of every candidate.

    Each answer is held out once. The first candidate is kept unless the best one beats it by more than the standard
    error of their difference: few answers cannot tell models apart, and guessing between them only adds noise. Each
    fit starts from the one before it, for the candidates differ little and so do their embeddings.
    """
    folds = grouped_folds(triplets, FOLDS, np.random.default_rng(seed))
    losses = {model: np.zeros(len(triplets)) for model in candidates}
    for fold in range(int(folds.max()) + 1):
        held_out, start = folds == fold, None
        for model in candidates:
            found = fit(
                triplets[~held_out], n, d, noise=model, ridge=ridge, start=start, n_starts=2 if start is None else 0,
                max_iter=max_iter, seed=seed, executor=executor,
            )  # fmt: skip
            start = found.coordinates
            losses[model][held_out] = answer_losses(start, triplets[held_out], model)
    best = min(losses, key=lambda model: losses[model].mean())
    gain = losses[candidates[0]] - losses[best]
    convincing = gain.mean() > gain.std() / np.sqrt(len(gain))
    return best if convincing else candidates[0], {model: float(each.mean()) for model, each in losses.items()}


def answer_losses(coordinates: Coordinates, triplets: Triplets, model: NoiseModel) -> Coordinates:
    """(m,) −log of the chance that the model gives to each answer, in nats, with chances of at least 1e-12."""
    chance = model.probability(*compared_distances(coordinates, triplets))
    return -np.log(np.maximum(chance, 1e-12))
