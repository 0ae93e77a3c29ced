"""Accuracy on answers that were not fitted: from random queries only, whole groups of the same three targets at a time.

An active sampler asks what its model finds hard, so accuracy on its answers says nothing about other queries.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from salmon.estimator import answer_losses, grouped_folds, triple_groups
from salmon.learning import Triplets, fit
from salmon.learning.accuracy import compared_distances
from salmon.noise import NoiseModel
from salmon.parallel import Executor

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class HeldOut:
    """What cross-validation found, answer by answer.

    `hits` and `losses` (repeats, m): whether each judged answer agreed (a tie ½) and −log of the chance it was given, in
    nats; `folds` (repeats, m) where it was held out; `groups` (m,) which answers are about the same three targets.
    `fitted` is the mean number of answers that a fold's fit had.
    """

    hits: Floats
    losses: Floats
    folds: NDArray[np.int64]
    groups: NDArray[np.int64]
    fitted: float

    @property
    def accuracy(self) -> Interval:
        """The accuracy over all judged answers and repeats."""
        return grouped_interval(self.hits.mean(axis=0), self.groups)

    @property
    def log_loss(self) -> float:
        """Mean −log chance in nats; log 2 = .693 is guessing."""
        return float(self.losses.mean())

    def by_fold(self, values: Floats) -> Floats:
        """(repeats · folds,) means of (repeats, m) values over each fold."""
        means = [
            np.bincount(where, each) / np.maximum(np.bincount(where), 1)
            for where, each in zip(self.folds, values, strict=True)
        ]
        present = [np.bincount(where) > 0 for where in self.folds]
        return np.concatenate([mean[there] for mean, there in zip(means, present, strict=True)])


def cross_validate(
    triplets: Triplets,
    random: Bools,
    n: int,
    d: int,
    noise: NoiseModel,
    *,
    ridge: float = 0.03,
    folds: int = 10,
    repeats: int = 1,
    seed: int = 0,
    executor: Executor | None = None,
    after_fit: Callable[[], None] = lambda: None,
) -> HeldOut | None:
    """Judge every `random` answer (m,) once a repeat by a fit without it and without all answers of its group.

    The other answers are always fitted, unless they are about three targets that are held out. None where fewer than
    two groups were asked at random: nothing can be held out then.
    """
    judged = np.flatnonzero(random)
    groups = triple_groups(triplets)
    if len(np.unique(groups[judged])) < 2:
        return None
    hits = np.empty((repeats, len(judged)))
    losses = np.empty_like(hits)
    places = np.empty(hits.shape, dtype=np.int64)
    fitted: list[int] = []
    for repeat in range(repeats):
        own = grouped_folds(triplets[judged], folds, np.random.default_rng([seed, repeat]))
        of_group = np.full(int(groups.max()) + 1, -1, dtype=np.int64)
        of_group[groups[judged]] = own
        start = None
        for fold in range(int(own.max()) + 1):
            kept = of_group[groups] != fold
            # The folds share most of their answers: each fit begins where the one before it ended.
            found = fit(
                triplets[kept], n, d, noise=noise, ridge=ridge, start=start, n_starts=2 if start is None else 0,
                seed=seed + repeat, executor=executor,
            )  # fmt: skip
            start = found.coordinates
            rows = triplets[judged[own == fold]]
            nearer, farther = compared_distances(start, rows)
            hits[repeat, own == fold] = (nearer < farther) + 0.5 * (nearer == farther)
            losses[repeat, own == fold] = answer_losses(start, rows, noise)
            fitted.append(int(kept.sum()))
            after_fit()
        places[repeat] = own
    return HeldOut(hits, losses, places, groups[judged], float(np.mean(fitted)))


def grouped_interval(hits: Floats, groups: NDArray[np.int64], confidence: float = 0.95) -> Interval:
    """A share of hits (m,) in [0, 1] with an interval that knows that answers of one group (m,) resemble each other.

    Standard error over groups, √(Σ_g (Σ_{i∈g} (hit_i − share))²) / m (Liang and Zeger 1986); the interval is Wilson's
    (1927) with as many answers as would have this standard error, so that it stays within 0 and 1.
    """
    m = len(hits)
    share = float(hits.mean())
    sums = np.bincount(groups, hits - share)
    count = len(np.unique(groups))
    variance = float((sums**2).sum()) / m**2 * count / max(1, count - 1)
    effective = share * (1 - share) / variance if variance > 0 else float(count)
    z = float(norm.ppf(0.5 + confidence / 2))
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * np.sqrt(share * (1 - share) / effective + z**2 / (4 * effective**2))
    return Interval(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))
