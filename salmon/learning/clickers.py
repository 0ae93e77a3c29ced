"""Find people who answer without looking: their answers are likelier by chance than under a
map that others' answers made.

Everybody's answers are predicted by a map fitted without them. Those predictions are calibrated on all of them
together, as p = ε + (1 − 2ε)·σ(β·f) with the map's log-odds f, so that a map of few answers promises no more than it
keeps. A person is taken to click blindly where Π ½/p ≥ 1/α. If somebody answers as the calibrated map says, that
happens with a probability of at most α, however often it is looked (Ville 1939; the likelihood ratio is a martingale).
Maps without these people are sharper and find more of them, so that it is done twice.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from salmon.geometry import Coordinates
from salmon.learning.objective import check_triplets, compared_distances
from salmon.learning.refit import fit
from salmon.noise import TSTE
from salmon.parallel import Executor

#: The largest probability with which somebody who answers as the map says is taken for a clicker.
FALSE_POSITIVE_RATE = 0.05
_FOLDS = 4
_PASSES = 2
# The model of `Adaptive`'s search: its ridge keeps maps of few answers from promising much.
_NOISE, _RIDGE = TSTE(lapse=0.05), 1.0
# Maps that only predict need not converge further.
_TOLERANCE = 1e-4
# Below so many answers a target no map predicts others' answers; a person can hardly be judged by fewer than the
# others.
_ENOUGH_A_TARGET, _ENOUGH_A_PERSON = 5, 10
_LARGEST_LAPSE = 0.45


@dataclass(frozen=True)
class Clickers:
    """Who clicks blindly: `people` are their numbers, and `kept` (m,) tells which answers others gave."""

    people: tuple[int, ...]
    kept: NDArray[np.bool_]


def find_clickers(
    triplets: ArrayLike,
    people: ArrayLike,
    coordinates: Coordinates,
    *,
    seed: int = 0,
    executor: Executor | None = None,
) -> Clickers:
    """Return who clicks blindly, given the (m,) number of the person who gave each answer.

    `coordinates` (n, d) are those of a fit of these answers; the maps start there.
    """
    n, d = coordinates.shape
    rows, given_by = check_triplets(triplets, n), np.asarray(people, dtype=np.int64)
    answers = np.bincount(given_by) if len(rows) else np.zeros(0, dtype=np.int64)
    found = Clickers((), np.ones(len(rows), dtype=bool))
    if len(rows) < _ENOUGH_A_TARGET * n or (answers >= _ENOUGH_A_PERSON).sum() < 2:
        return found
    folds = np.random.default_rng([seed, len(answers)]).permutation(len(answers)) % min(_FOLDS, len(answers))
    for _ in range(_PASSES):
        log_odds = np.empty(len(rows))
        for fold in range(int(folds.max()) + 1):
            own = folds[given_by] == fold
            fitted = fit(
                rows[~own & found.kept], n, d, noise=_NOISE, ridge=_RIDGE, start=coordinates, n_starts=0,
                tolerance=_TOLERANCE, seed=seed, executor=executor,
            )  # fmt: skip
            d2_winner, d2_loser = compared_distances(fitted.coordinates, rows[own])
            log_odds[own] = _NOISE.remoteness(d2_loser) - _NOISE.remoteness(d2_winner)
        against = np.bincount(given_by, chance_ratios(log_odds, found.kept), len(answers))
        blind = (against >= -np.log(FALSE_POSITIVE_RATE)) & (answers >= _ENOUGH_A_PERSON)
        found = Clickers(tuple(np.flatnonzero(blind).tolist()), ~blind[given_by])
        if not found.people or not found.kept.any():
            break
    return found


def chance_ratios(log_odds: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return (m,) log ½/p of answers whose winners have these log-odds, p calibrated on the answers that are kept."""
    judged = log_odds[kept]

    def loss(parameters: NDArray[np.float64]) -> float:
        return -float(np.log(_probability(parameters, judged)).mean())

    found = minimize(loss, np.array([1.0, 0.05]), method="L-BFGS-B", bounds=[(0, 5), (1e-3, _LARGEST_LAPSE)])
    return np.log(0.5) - np.log(_probability(found.x, log_odds))


def _probability(parameters: NDArray[np.float64], log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    slope, lapse = parameters
    return lapse + (1 - 2 * lapse) / (1 + np.exp(-slope * log_odds))
