"""Use known features of the targets as a prior of their positions: X = F·B + E, with B and the weight of F learned.

On every axis of the embedding the coordinates of the n targets have the covariance

    C = ((1 − w)·I + w·K) / ridge,    K = F Fᵀ, scaled to a mean diagonal of 1,

which is the model above with B integrated out: the entries of B and the residuals E are Gaussian, and w is the share of
the variance that features explain (Rasmussen and Williams 2006, section 2.1: a linear kernel). Columns of F are centred
and divided by their standard deviations. The weight w is the one with the largest marginal likelihood of the answers,
by Laplace's approximation about the fit with that weight (MacKay 1992, equation 4.2). Features that say nothing get the
weight 0, and then the prior is the one without them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError
from salmon.geometry import Coordinates
from salmon.learning.objective import Precision, Triplets, check_triplets
from salmon.learning.posterior import block_information
from salmon.learning.refit import Fit, fit
from salmon.noise import TSTE, NoiseModel
from salmon.parallel import Executor

#: The weights that are compared. At 1 nothing would be left for what features do not explain.
WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95)
# From weight 0 this one is tried as well: a small weight alone may not show what a larger one would.
_GUESS = 0.3
# What evidence for a weight above 0 must exceed (nats, and nats a target), so that features that say nothing are not
# followed by chance: fits of few answers end in different optima, whose evidence differs the more, the more targets
# there are.
_DOUBT, _DOUBT_A_TARGET = 6.0, 0.04
# The model under which weights are compared: the one that `Adaptive` searches with, which is never far from a prior of
# variance 1.
_JUDGED_NOISE, _JUDGED_RIDGE = TSTE(lapse=0.05), 1.0
# Directions that hold a smaller share of the features' variance than this are rounding.
_SMALLEST_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class Features:
    """The kernel K of the features of n targets, by its eigenvectors.

    `directions` (n, r) are orthonormal, `strengths` (r,) their eigenvalues; those of all other directions are 0.
    """

    directions: NDArray[np.float32]
    strengths: NDArray[np.float64]

    @property
    def n(self) -> int:
        """Return the number of targets."""
        return len(self.directions)

    @classmethod
    def of(cls, table: ArrayLike, n: int | None = None) -> "Features":
        """Return the kernel of a table (n, p) with a row a target; SalmonError says what is wrong with the table."""
        values = np.array(table, dtype=np.float64)
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or not values.size or (n is not None and len(values) != n):
            raise SalmonError(
                f"Features of shape {values.shape} do not describe {'the' if n is None else n} targets.",
                hint="Give a table with one row a target and one column a feature.",
            )
        faulty = np.argwhere(~np.isfinite(values))
        if len(faulty):
            row, column = faulty[0]
            raise SalmonError(
                f"Feature {column} of target {row} is {values[row, column]}.",
                hint="Give a number for every feature of every target.",
            )
        values -= values.mean(axis=0)
        spread = values.std(axis=0)
        differs = spread > 1e-12 * np.abs(values).max(initial=1.0)
        if not differs.any():
            raise SalmonError("No feature differs between targets.", hint="Give features that tell targets apart.")
        directions, singular, _ = np.linalg.svd(values[:, differs] / spread[differs], full_matrices=False)
        strengths = singular**2 * (len(values) / float((singular**2).sum()))
        kept = strengths > _SMALLEST_SHARE * len(values)
        return cls(np.ascontiguousarray(directions[:, kept], dtype=np.float32), strengths[kept])


def search_precision(features: Features, weight: float, ridge: float) -> Precision:
    """Return C⁻¹, the prior of an embedding that is searched with."""
    return _precision(features, ridge / (1 - weight), ridge / (1 - weight + weight * features.strengths))


def shown_precision(features: Features, weight: float, ridge: float) -> Precision:
    """Return the prior of an embedding that is shown: the ridge, and the precision by
    which C exceeds that of variance 1.

    Such an embedding has a small ridge, because a larger one makes it less accurate. So features must not bring one in:
    coordinates are drawn towards F·B, not towards the centre, and with weight 0 only the ridge is left.
    """
    within = np.maximum(0.0, 1 / (1 - weight + weight * features.strengths) - 1)
    return _precision(features, ridge + weight / (1 - weight), ridge + within)


def _precision(features: Features, rest: float, values: NDArray[np.float64]) -> Precision:
    return Precision(rest, features.directions.astype(np.float64), values)


@dataclass(frozen=True)
class WeighedFit:
    """A fit with the features' prior, and the `weight` under which its answers are most likely."""

    fit: Fit
    weight: float


def fit_with_features(
    triplets: ArrayLike,
    features: Features,
    d: int = 2,
    *,
    weight: float | None = None,
    noise: NoiseModel = _JUDGED_NOISE,
    ridge: float = _JUDGED_RIDGE,
    start: ArrayLike | None = None,
    n_starts: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    stop: Callable[[], bool] | None = None,
) -> WeighedFit:
    """Return the fit with the weight of the features that has the largest marginal likelihood.

    Weights are compared step by step from the `weight` of the last fit (or 0), each fit starting from the one
    before: a weight that is still right costs three short refits. Weight 0 is always compared.
    """
    rows = check_triplets(triplets, features.n)
    place = int(np.abs(np.array(WEIGHTS) - (weight or 0.0)).argmin())
    doubt = max(_DOUBT, _DOUBT_A_TARGET * features.n)
    judged: dict[int, tuple[float, Fit]] = {}

    def judge(place: int, start: ArrayLike | None, n_starts: int | None) -> float:
        if place not in judged:
            prior = search_precision(features, WEIGHTS[place], ridge)
            found = fit(
                rows, features.n, d, noise=noise, ridge=ridge, precision=prior, start=start, n_starts=n_starts,
                seed=seed, executor=executor, stop=stop,
            )  # fmt: skip
            judged[place] = log_evidence(found, rows, prior) - doubt * (place > 0), found
        return judged[place][0]

    best = judge(place, start, n_starts)
    other = 0 if place else WEIGHTS.index(_GUESS)
    if judge(other, judged[place][1].coordinates, 0) > best:
        place, best = other, judged[other][0]
    for step in (-1, 1):
        while 0 <= place + step < len(WEIGHTS) and not (stop is not None and stop()):
            found = judge(place + step, judged[place][1].coordinates, 0)
            if found <= best:
                break
            place, best = place + step, found
    return WeighedFit(judged[place][1], WEIGHTS[place])


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """What the answers say about features: the `precision` for an embedding that is shown,
    where to start, and the weight.
    """

    precision: Precision
    start: Coordinates
    weight: float


def learn_prior(
    triplets: ArrayLike,
    features: Features,
    d: int = 2,
    *,
    ridge: float,
    last: FeaturePrior | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> FeaturePrior:
    """Return the prior of an embedding with this ridge, its weight learned from these answers;
    `last` came from similar ones.
    """
    weighed = fit_with_features(
        triplets, features, d, weight=last and last.weight, start=last and last.start, seed=seed, executor=executor
    )
    return FeaturePrior(shown_precision(features, weighed.weight, ridge), weighed.fit.coordinates, weighed.weight)


def log_evidence(found: Fit, rows: Triplets, prior: Precision) -> float:
    """Return the log marginal likelihood of the answers, by Laplace's approximation about a fit.

    Of the answers' information only the targets' own blocks are used, so that the determinant costs O(n r² d²) with r
    directions of features. The whole matrix gave the same weights (n = 90 and 300, 3 to 40 answers a target).
    """
    x = found.coordinates
    n, d = x.shape
    blocks = block_information(x, rows, found.noise) + prior.rest * np.eye(d)
    steps, r = prior.values - prior.rest, len(prior.values)
    inner = np.einsum("nr,nij,ns->risj", prior.directions, np.linalg.inv(blocks), prior.directions, optimize=True)
    low_rank = np.eye(r * d) + np.repeat(steps, d)[:, None] * inner.reshape(r * d, r * d)
    posterior = float(np.linalg.slogdet(blocks)[1].sum() + np.linalg.slogdet(low_rank)[1])
    own = d * float(np.log(prior.values).sum() + (n - r) * np.log(prior.rest))
    return -found.loss * len(rows) - float(np.vdot(x, prior.times(x))) / 2 + (own - posterior) / 2
