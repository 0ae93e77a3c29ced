"""Fit an embedding to answers by L-BFGS: full batch, analytic gradients, several starts.

A fit starts from the answers' own spectrum, or at random. `adadelta` is the stochastic method by which the samplers of
published experiments were fitted, kept to reproduce them. `fit` reaches a better embedding sooner; Adadelta stops long
before it converges, which keeps the coordinates small where the answers alone would let them grow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, minimize
from scipy.sparse import coo_array
from scipy.sparse.linalg import eigsh

from salmon.errors import SalmonError
from salmon.geometry import Coordinates, centre, principal_axes
from salmon.learning.objective import (
    Objective,
    Precision,
    Triplets,
    block_of,
    check_triplets,
    loss_and_gradient,
    objective_of,
)
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor

# Pairs of steps and gradients that L-BFGS remembers.
_MEMORY = 8
# With fewer answers a target than this, local optima are worth a second start.
_ENOUGH = 10
# Above this many answers only the start that looks best is followed.
_MANY = 200_000


@dataclass(frozen=True)
class Fit:
    """An embedding and how it was found.

    `coordinates` (n, d) float64, centred. `loss` is the mean loss of a triplet (nats for probabilities), `objective`
    the same with the ridge; `gradient_norm` the largest entry of the objective's gradient. `start_losses` holds the
    objective reached from each start, under its name; the best one is reported here.
    """

    coordinates: Coordinates
    loss: float
    objective: float
    gradient_norm: float
    evaluations: int
    converged: bool
    start_names: tuple[str, ...]
    start_losses: tuple[float, ...]
    noise: NoiseModel
    ridge: float
    precision: Precision | None = None


def fit(
    triplets: ArrayLike,
    n: int,
    d: int = 2,
    *,
    noise: str | NoiseModel = "TSTE",
    lapse: float | None = None,
    ridge: float = 0.03,
    precision: Precision | None = None,
    start: ArrayLike | None = None,
    published: ArrayLike | None = None,
    n_starts: int | None = None,
    max_iter: int = 500,
    tolerance: float = 1e-6,
    seed: int = 0,
    executor: Executor | None = None,
    callback: Callable[[Coordinates, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Fit:
    """Return the embedding of n targets in d dimensions under which these answers are most likely.

        argmin over (n, d) coordinates of  Σ loss(triplet) + ridge/2 · |coordinates|²

    (or ½ tr(XᵀPX) with a `precision` P in place of the ridge)
    by L-BFGS (Liu and Nocedal 1989) from a warm `start`, the spectral start and random ones. `n_starts` counts the
    starts besides `start`; None chooses: none after a warm start with at least ten answers a target, two where answers
    are fewer; above 200,000 answers only the most promising start is followed. In one dimension targets cannot pass
    each other, so three dimensions are fitted first and their widest axis is polished, beside a warm start too.

    `published` is a map of these targets that was shown before: one more start, so that the result is never worse than
    it. Its shape may be another (see `start_from`).

    `tolerance` is the relative fall of the objective below which an iteration is the last, `max_iter` the most
    iterations of each start. `callback(coordinates, objective)` sees every iteration; `stop` is called after each and
    ends the fit early, with the best coordinates so far.
    """
    rows = check_triplets(triplets, n)
    model = noise_model(noise, lapse=lapse)
    _check_shape(n, d, ridge)
    objective = objective_of(rows, n, model, ridge=ridge, precision=precision, executor=executor)
    if n_starts is None:
        n_starts = 2 if start is None or d == 1 or len(rows) < _ENOUGH * n else 0
    starts: dict[str, Coordinates] = {}
    if start is not None:
        starts["warm"] = _check_start(start, n, d)
    evaluations = 0
    if d == 1 and (n_starts or not starts):
        wide = fit(
            rows, n, 3, noise=model, ridge=ridge, precision=precision, n_starts=n_starts, max_iter=max_iter, tolerance=tolerance,
            seed=seed, executor=executor, stop=stop,
        )  # fmt: skip
        starts["three dimensions"] = principal_axes(wide.coordinates, 1)
        evaluations += wide.evaluations
    else:
        starts |= _cold_starts(objective, rows, n, d, n_starts if starts else max(1, n_starts), seed)
    if published is not None:
        starts["published"] = best_scale(objective, start_from(published, n, d, seed))
    if len(rows) > _MANY and len(starts) > 1 and d > 1:
        promise = {name: objective(coordinates)[0] for name, coordinates in starts.items()}
        best = min(promise, key=lambda name: promise[name])
        starts = {best: starts[best]}
    outcomes = {
        name: _descend(objective, coordinates, max_iter, tolerance, callback, stop)
        for name, coordinates in starts.items()
    }
    best = min(outcomes, key=lambda name: outcomes[name].objective)
    found = outcomes[best]
    return Fit(
        coordinates=centre(found.coordinates),
        loss=found.objective - objective.penalty(found.coordinates) / objective.m,
        objective=found.objective,
        gradient_norm=found.gradient_norm,
        evaluations=evaluations + sum(outcome.evaluations for outcome in outcomes.values()),
        converged=found.converged,
        start_names=tuple(outcomes),
        start_losses=tuple(outcome.objective for outcome in outcomes.values()),
        noise=model,
        ridge=ridge,
        precision=precision,
    )


def _check_shape(n: int, d: int, ridge: float) -> None:
    if n < 3:
        raise SalmonError(f"{n} targets cannot be embedded.", hint="A head and two feet need three targets.", where="n")
    if d < 1:
        raise SalmonError(f"An embedding cannot have {d} dimensions.", hint="Give d = 1 or more.", where="d")
    if not (np.isfinite(ridge) and ridge >= 0):
        raise SalmonError(f"ridge is {ridge}.", hint="Give 0 or more.", where="ridge")


def _check_start(start: ArrayLike, n: int, d: int) -> Coordinates:
    coordinates = np.array(start, dtype=np.float64)
    if coordinates.shape != (n, d) or not np.isfinite(coordinates).all():
        raise SalmonError(
            f"A start of shape {coordinates.shape} cannot begin a fit of {n} targets in {d} dimensions.",
            hint=f"Give finite numbers of shape ({n}, {d}).",
            where="start",
        )
    return coordinates


def _cold_starts(objective: Objective, rows: Triplets, n: int, d: int, count: int, seed: int) -> dict[str, Coordinates]:
    starts: dict[str, Coordinates] = {}
    if count:
        starts["spectral"] = (
            best_scale(objective, spectral_start(rows, n, d, seed)) if len(rows) else random_start(n, d, seed)
        )
    for extra in range(1, count):
        starts[f"random {extra}"] = random_start(n, d, seed + extra)
    return starts


@dataclass(frozen=True)
class _Descent:
    coordinates: Coordinates
    objective: float
    gradient_norm: float
    evaluations: int
    converged: bool


def _descend(
    objective: Objective,
    start: Coordinates,
    max_iter: int,
    tolerance: float,
    callback: Callable[[Coordinates, float], None] | None,
    stop: Callable[[], bool] | None,
) -> _Descent:
    shape = start.shape

    def value_and_gradient(flat: Coordinates) -> tuple[float, Coordinates]:
        value, gradient = objective(flat.reshape(shape))
        return value, gradient.ravel()

    def after_iteration(intermediate_result: OptimizeResult) -> None:
        if callback is not None:
            callback(intermediate_result.x.reshape(shape), float(intermediate_result.fun))
        if stop is not None and stop():
            raise StopIteration

    found = minimize(
        value_and_gradient,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=after_iteration if callback is not None or stop is not None else None,
        options={
            "maxcor": _MEMORY,
            "maxiter": max_iter,
            "maxfun": 2 * max_iter,
            "ftol": tolerance,
            "gtol": tolerance / len(start),
        },
    )
    return _Descent(
        coordinates=np.array(found.x).reshape(shape),
        objective=float(found.fun),
        gradient_norm=float(np.abs(found.jac).max()),
        evaluations=int(found.nfev),
        converged=bool(found.success),
    )


# Up to this many targets all eigenvectors are found at once, which is quicker than the few largest one by one.
_DENSE = 300
# Scales tried for a start whose shape is known and whose size is not.
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
# The spread of coordinates in a dimension that a start does not have.
_NEXT_TO_NOTHING = 1e-3


def spectral_start(triplets: Triplets, n: int, d: int, seed: int) -> Coordinates:
    """Return (n, d) coordinates from the signed co-answer matrix, of mean square norm d.

    S counts for each pair of targets how often they won together minus how often they lost together; degrees d_i are
    the answers that name target i. The eigenvectors of D^−½ S D^−½ with the largest eigenvalues place targets that
    win together side by side (compare Shi and Malik 2000 on normalised affinities).
    """
    heads, winners, losers = triplets.T
    rows = np.concatenate([heads, heads])
    columns = np.concatenate([winners, losers])
    signs = np.repeat([1.0, -1.0], len(heads))
    signed = coo_array((signs, (rows, columns)), shape=(n, n)).tocsr()
    signed = signed + signed.T
    degrees = np.bincount(rows, minlength=n) + np.bincount(columns, minlength=n)
    weights = 1 / np.sqrt(np.maximum(degrees, 1))
    scaled = signed.multiply(weights[:, None]).multiply(weights[None, :])
    generator = np.random.default_rng(seed)
    if n <= max(_DENSE, d + 1):
        values, vectors = np.linalg.eigh(scaled.toarray())
    else:
        # A loose tolerance: the refit that follows does the rest.
        values, vectors = eigsh(scaled.tocsr(), k=d, which="LA", tol=cast("int", 1e-2), v0=generator.standard_normal(n))
    order = np.argsort(values)[::-1][:d]
    coordinates = vectors[:, order] * np.sqrt(np.maximum(values[order], 1e-3)) * weights[:, None]
    if coordinates.shape[1] < d:
        # More dimensions than targets: the missing ones get next to nothing.
        extra = _NEXT_TO_NOTHING * generator.standard_normal((n, d - coordinates.shape[1]))
        coordinates = np.concatenate([coordinates, extra], axis=1)
    coordinates = centre(coordinates)
    spread = float(np.sqrt((coordinates**2).mean()))
    return coordinates / spread if spread > 0 else random_start(n, d, seed)


def start_from(published: ArrayLike, n: int, d: int, seed: int) -> Coordinates:
    """Return (n, d) coordinates that continue a published map (k, e).

    Targets beyond its k rows, and rows of NaN, are drawn as in a random start. More dimensions than d are left out, the
    narrowest first; missing ones get next to nothing, so that the fit can leave the plane of the map.
    """
    known = np.array(published, dtype=np.float64)
    if known.ndim != 2 or not known.shape[1]:
        raise SalmonError(
            f"A published map of shape {known.shape} cannot begin a fit.", hint="Give a row of coordinates a target."
        )
    known = known[:n]
    placed = np.flatnonzero(np.isfinite(known).all(axis=1))
    start = random_start(n, d, seed)
    if len(placed):
        shown = centre(known[placed])
        if shown.shape[1] > d:
            shown = principal_axes(shown, d)
        generator = np.random.default_rng(seed)
        extra = _NEXT_TO_NOTHING * generator.standard_normal((len(placed), d - shown.shape[1]))
        start[placed] = np.concatenate([shown, extra], axis=1)
    return start


def random_start(n: int, d: int, seed: int) -> Coordinates:
    """Return (n, d) independent N(0, .1²) coordinates."""
    return 0.1 * np.random.default_rng(seed).standard_normal((n, d))


def best_scale(objective: Objective, coordinates: Coordinates) -> Coordinates:
    """Return the start stretched to whichever of a few sizes makes the objective smallest."""
    losses = [objective(scale * coordinates)[0] for scale in _SCALES]
    return _SCALES[int(np.argmin(losses))] * coordinates


# Zeiler (2012): the memory of both running averages, and what keeps the first steps from being 0.
_AVERAGING, _SMALLEST = 0.9, 1e-6


def adadelta(
    start: Coordinates,
    triplets: Triplets,
    model: NoiseModel,
    *,
    epochs: int,
    seed: int,
    batch: int = 512,
    rate: float = 1.0,
) -> Coordinates:
    """Return (n, d) coordinates after some epochs from a start (Zeiler 2012, algorithm 1), on the mean loss of each
    batch.

    A batch is drawn without replacement from all answers, in time that grows with the batch and not with the answers.
    """
    generator = np.random.default_rng(seed)
    coordinates = start.copy()
    slopes, steps = np.zeros_like(coordinates), np.zeros_like(coordinates)
    size = min(batch, len(triplets))
    for _ in range(epochs * -(-len(triplets) // max(1, size))):
        drawn = triplets[generator.choice(len(triplets), size, replace=False, shuffle=False)]
        gradient = loss_and_gradient(model, coordinates, (block_of(drawn),))[1] / size
        slopes = _AVERAGING * slopes + (1 - _AVERAGING) * gradient**2
        step = np.sqrt((steps + _SMALLEST) / (slopes + _SMALLEST)) * gradient
        steps = _AVERAGING * steps + (1 - _AVERAGING) * step**2
        coordinates -= rate * step
    return coordinates
