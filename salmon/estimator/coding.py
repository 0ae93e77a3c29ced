"""Convert between the two ways to write answers, and name the noise model of an estimator.

Either each row of X is [head, winner, loser] and there is no y, or each row is [head, left, right] and y says which
foot won: 1 (or True, or "left") for left, and 0, −1, False or "right" for right.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError, TripletError
from salmon.learning import Triplets, check_triplets
from salmon.learning.noise_learning import RECOMMENDED_NOISE
from salmon.noise import NoiseModel, noise_model

#: How "right won" and "left won" may be written, in this order.
CODES: tuple[tuple[Any, Any], ...] = ((0, 1), (-1, 1), ("right", "left"))

_NAMED_ROWS = 3


def triplets_from(X: ArrayLike, y: ArrayLike | None, n: int | None = None) -> Triplets:
    """Return (m, 3) int32 rows [head, winner, loser] from either form, checked."""
    rows = check_triplets(X, n)
    if y is None:
        return rows
    return np.ascontiguousarray(np.where(left_won(y, len(rows))[:, None], rows, rows[:, [0, 2, 1]]))


def names_in(X: ArrayLike) -> NDArray[np.str_] | None:
    """Return answers as an array of names; None where targets are not named. Data
    frames and lists work as arrays do.
    """
    values: NDArray[Any] = np.asarray(X)
    if values.dtype.kind == "U":
        return values
    if values.dtype.kind in "OT" and values.size and all(isinstance(value, str) for value in values.ravel()):
        return values.astype(np.str_)
    return None


def indices_of(names: NDArray[np.str_], known: NDArray[np.str_] | None) -> NDArray[np.int64]:
    """Return the places of names in a list; TripletError names the first ones that are not in it."""
    if known is None:
        raise TripletError(
            "These answers name their targets, and those that were fitted count them.",
            hint="Write targets in the same way when you fit and when you predict.",
        )
    order = np.argsort(known)
    places = order[np.searchsorted(known, names, sorter=order).clip(max=len(known) - 1)]
    unknown = np.unique(names[known[places] != names])
    if len(unknown):
        listed = ", ".join(unknown[:_NAMED_ROWS]) + (" and others" if len(unknown) > _NAMED_ROWS else "")
        raise TripletError(f"The fitted answers name no target {listed}.", hint="Fit answers about all targets.")
    return places


def codes_of(y: ArrayLike | None) -> NDArray[Any]:
    """Return (2,) how y writes "right won" and "left won", in this order; 0 and 1 without y."""
    if y is None:
        return np.array(CODES[0])
    answers = np.asarray(y).ravel()
    if answers.dtype == np.bool_:
        return np.array([False, True])
    found = set(answers.tolist())
    return np.array(next((code for code in CODES if found <= set(code)), CODES[0]))


def left_won(y: ArrayLike, m: int) -> NDArray[np.bool_]:
    """Return (m,) whether left won; raise a TripletError that names the rows of y that cannot be read."""
    answers: NDArray[Any] = np.asarray(y)
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    if answers.shape != (m,):
        raise TripletError(
            f"There are {m} rows of X and y has shape {answers.shape}.", hint="Give one entry of y for each row of X."
        )
    left = np.isin(answers, [1, True]) if answers.dtype.kind in "biuf" else answers == "left"
    right = np.isin(answers, [0, -1]) if answers.dtype.kind in "biuf" else answers == "right"
    bad = np.flatnonzero(~(left | right))
    if len(bad):
        named = ", ".join(f"{row} ({answers[row]!r})" for row in bad[:_NAMED_ROWS])
        more = f" and {len(bad) - _NAMED_ROWS} more" if len(bad) > _NAMED_ROWS else ""
        raise TripletError(
            f"Row {named}{more} of y does not say which foot won.",
            hint='Write 1 (or True, or "left") where left won; 0, -1, False or "right" where right won.',
        )
    return np.asarray(left, dtype=np.bool_)


#: The lapse of a noise model that is given by its name alone.
DEFAULT_LAPSE = 0.05


def named_noise(noise: str | NoiseModel | None, lapse: float | str | None) -> NoiseModel:
    """Return the noise model with its lapse; where it is learned or chosen, the model with which that begins."""
    if isinstance(lapse, str) and lapse != "held-out":
        raise SalmonError(f"There is no lapse {lapse!r}.", hint='Give a number from 0 to .5, "held-out" or None.')
    share = None if isinstance(lapse, str) else lapse
    if noise is None:
        return noise_model(RECOMMENDED_NOISE, lapse=share)
    if isinstance(noise, str) and share is None:
        share = DEFAULT_LAPSE
    return noise_model(noise, lapse=share)
