"""Learn the noise from the answers themselves: the exponent and the lapse of power t-STE, beside the coordinates.

Power t-STE with exponent k holds other models as limits. For k = 1 and large coordinates it is CKL; as k grows on
coordinates that shrink by √k it becomes STE, because k·log(1 + d2/k) tends to d2. So one exponent decides how far an
answer about very different distances can be trusted, and the lapse how many answers are given without looking.

    argmin over coordinates X, k and lapse of
        Σ −log p  +  ridge(k)/2 · |X|²  +  n·d · (log k + log²(k/k₀) + 20 · KL(lapse₀ ‖ lapse))

The last term is the weak prior. log k is the Occam factor of the coordinates: the information of an answer about X
grows with k², so that each of the n·d coordinates takes log k from the marginal likelihood (MacKay 1992, equation 4.2).
Without it the coordinates would explain chance by a lighter tail. The other two keep k and lapse at the recommended
values while there are few answers a coordinate. All constants were chosen on human answers:
`benchmarks/noise_models.py` prints what they bring.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from salmon.geometry import Coordinates
from salmon.learning.objective import Precision, Triplets, check_triplets, compared_distances
from salmon.learning.refit import Fit, fit
from salmon.noise import PowerTSTE
from salmon.parallel import Executor

#: Where learning begins, and where it stays while answers are few: of all fixed models it predicted human
#: answers best where they were few.
RECOMMENDED_NOISE = PowerTSTE(k=0.85, lapse=0.07)
#: The ridge at the recommended exponent.
RECOMMENDED_RIDGE = 0.03
# A lighter tail needs smaller coordinates for the same answers, and lets those that answers hardly support grow
# further.
_RIDGE_POWER = 3.0
# The weights of the prior, each for one coordinate.
_OCCAM, _EXPONENT, _LAPSE = 1.0, 1.0, 20.0
# Below the smallest exponent answers hardly determine the size of the coordinates; the largest is close to STE.
_SMALLEST_K, _LARGEST_K = 0.8, 5.5
_SMALLEST_LAPSE, _LARGEST_LAPSE = 0.01, 0.2
# Three numbers need no more answers than these, drawn at random.
_ENOUGH_ANSWERS = 6_000
# The starts are compared, and the noise learned, before the coordinates have fully converged.
_SCOUTING_TOLERANCE = 1e-4
_ROUNDS = 2


@dataclass(frozen=True)
class LearnedNoise:
    """A noise model, and the factor by which coordinates are to be stretched for it."""

    model: PowerTSTE
    scale: float


def fit_with_learned_noise(
    triplets: ArrayLike,
    n: int,
    d: int = 2,
    *,
    lapse: float | None = None,
    ridge: float = RECOMMENDED_RIDGE,
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
    """Return the embedding of n targets in d dimensions under the noise that is learned with it; see `fit`.

    The best start under the recommended noise is followed: twice the noise is learned from its distances, and the
    coordinates are refitted. That takes about as many evaluations as one fit. A `lapse` that is given is kept. `ridge`
    is the one at the recommended exponent. A `published` map is a start of each of these fits, because another noise
    may favour it. `start_names` and `start_losses` are those of the first fit.
    """
    rows = check_triplets(triplets, n)
    model = replace(RECOMMENDED_NOISE, lapse=RECOMMENDED_NOISE.lapse if lapse is None else lapse)
    loose = max(tolerance, _SCOUTING_TOLERANCE)
    first = found = fit(
        rows, n, d, noise=model, ridge=ridge, precision=precision, start=start, published=published, n_starts=n_starts,
        max_iter=max_iter, tolerance=loose, seed=seed, executor=executor, callback=callback, stop=stop,
    )  # fmt: skip
    evaluations = first.evaluations
    for step in range(1, _ROUNDS + 1):
        if not len(rows) or (stop is not None and stop()):
            break
        learned = learn_noise(
            found.coordinates, rows, model, ridge=found.ridge, precision=found.precision, lapse=lapse, seed=seed
        )
        model = learned.model
        stronger = ridge_for(model, ridge) / ridge if ridge else 1.0
        found = fit(
            rows, n, d, noise=model, ridge=ridge_for(model, ridge),
            precision=precision.scaled(stronger) if precision is not None else None, start=learned.scale * found.coordinates,
            published=published, n_starts=0, max_iter=max_iter, tolerance=tolerance if step == _ROUNDS else loose, seed=seed,
            executor=executor, callback=callback, stop=stop,
        )  # fmt: skip
        evaluations += found.evaluations
    return replace(found, evaluations=evaluations, start_names=first.start_names, start_losses=first.start_losses)


def ridge_for(model: PowerTSTE, ridge: float = RECOMMENDED_RIDGE) -> float:
    """Return the ridge for a learned exponent, given the ridge at the recommended one."""
    return ridge * max(1.0, model.k / RECOMMENDED_NOISE.k) ** _RIDGE_POWER


def learn_noise(
    coordinates: Coordinates,
    triplets: Triplets,
    model: PowerTSTE,
    *,
    ridge: float,
    precision: Precision | None = None,
    lapse: float | None = None,
    seed: int = 0,
) -> LearnedNoise:
    """Return the exponent, the lapse and the size of these (n, d) coordinates that minimise the module's objective.

    The shape of the embedding stays. Exponent and size depend on each other closely, so that they are learned together.
    """
    m = len(triplets)
    if m > _ENOUGH_ANSWERS:
        triplets = triplets[np.random.default_rng([seed, m]).choice(m, _ENOUGH_ANSWERS, replace=False)]
    d2_winner, d2_loser = compared_distances(coordinates, triplets)
    pull = ridge * coordinates if precision is None else precision.times(coordinates)
    share, weight, hold = m / len(triplets), coordinates.size, float(np.vdot(coordinates, pull)) / 2
    expected = 2 * RECOMMENDED_NOISE.lapse

    def value_and_gradient(parameters: Coordinates) -> tuple[float, Coordinates]:
        """Over log k, log scale² and the logit of 2·lapse."""
        k, size, guessed = np.exp(parameters[0]), np.exp(parameters[1]), 1 / (1 + np.exp(-parameters[2]))
        near, far = 1 + size * d2_winner, 1 + size * d2_loser
        log_odds = k * np.log(far / near)
        s = 1 / (1 + np.exp(-log_odds))
        p = guessed / 2 + (1 - guessed) * s
        slope = -(1 - guessed) * s * (1 - s) / p
        away = parameters[0] - np.log(RECOMMENDED_NOISE.k)
        divergence = -expected * np.log(guessed / expected) - (1 - expected) * np.log((1 - guessed) / (1 - expected))
        value = -share * np.log(p).sum() + hold * size
        value += weight * (_OCCAM * parameters[0] + _EXPONENT * away**2 + _LAPSE * divergence)
        gradient = np.array(
            [
                share * (slope @ log_odds) + weight * (_OCCAM + 2 * _EXPONENT * away),
                share * k * (slope @ (1 / near - 1 / far)) + hold * size,
                share * float(((s - 0.5) / p).sum()) * guessed * (1 - guessed) + weight * _LAPSE * (guessed - expected),
            ]
        )
        return float(value / m), gradient / m

    # A lapse of 0 has no finite logit.
    kept = None if lapse is None else max(lapse, 1e-9)
    lapses = (_SMALLEST_LAPSE, _LARGEST_LAPSE) if kept is None else (kept, kept)
    k = float(np.clip(model.k, _SMALLEST_K, _LARGEST_K))
    found = minimize(
        value_and_gradient,
        np.array([np.log(k), 0.0, _logit(2 * float(np.clip(model.lapse, *lapses)))]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(np.log(_SMALLEST_K), np.log(_LARGEST_K)), (-5, 5), tuple(map(_logit, (2 * lapses[0], 2 * lapses[1])))],
        options={"ftol": 1e-7},
    )
    guessed = 1 / (1 + np.exp(-found.x[2]))
    learned = PowerTSTE(k=float(np.exp(found.x[0])), lapse=float(guessed / 2) if lapse is None else lapse)
    return LearnedNoise(learned, float(np.exp(found.x[1] / 2)))


def _logit(share: float) -> float:
    return float(np.log(share / (1 - share)))
