"""Check triplets where they enter the library; they are never checked again inside."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import TripletError

Triplets = NDArray[np.int32]

# How many faulty rows a sentence names before it says how many more there are.
_NAMED_ROWS = 3


def check_triplets(triplets: ArrayLike, n: int | None = None) -> Triplets:
    """Return (m, 3) int32 rows [head, winner, loser] over n targets, or raise a TripletError that names each kind of
    fault.

    Without `n` there are as many targets as the largest index says. Floats are accepted if they are whole numbers.
    """
    rows = _as_rows(triplets)
    if n is None:
        n = int(rows.max(initial=-1)) + 1
    if n < 3 and len(rows):
        raise TripletError(
            f"{n} target{'' if n == 1 else 's'} cannot make a triplet.", hint="A head and two feet need three targets."
        )
    head, winner, loser = rows.T
    problems = [
        _sentence(rows, (rows < 0).any(axis=1) | (rows >= n).any(axis=1), f"names a target outside 0 to {n - 1}"),
        _sentence(rows, head == winner, "has its head as the winner"),
        _sentence(rows, head == loser, "has its head as the loser"),
        _sentence(rows, winner == loser, "has the same foot twice"),
    ]
    found = [problem for problem in problems if problem]
    if found:
        raise TripletError(" ".join(found), hint="Each row is [head, winner, loser], three different targets.")
    return np.ascontiguousarray(rows, dtype=np.int32)


def _as_rows(triplets: ArrayLike) -> NDArray[np.int64]:
    try:
        table: NDArray[Any] = np.asarray(triplets)
    except ValueError as error:
        raise TripletError("The rows of the triplets differ in length.", hint="Each needs three columns.") from error
    if table.size == 0 and table.ndim <= 2:
        return np.zeros((0, 3), dtype=np.int64)
    if table.ndim != 2 or table.shape[1] != 3:
        raise TripletError(
            f"Triplets of shape {table.shape} cannot be read.", hint="Give one row [head, winner, loser] an answer."
        )
    if table.dtype.kind in "iub":
        return table.astype(np.int64)
    if table.dtype.kind != "f":
        raise TripletError(f"Triplets hold {table.dtype} values.", hint="Targets are whole numbers that count from 0.")
    # NaN and infinity are no whole numbers either: they fail the same comparison.
    with np.errstate(invalid="ignore"):
        broken = ~(np.isfinite(table) & (table == np.floor(table))).all(axis=1)
    problem = _sentence(table, broken, "holds something other than whole numbers")
    if problem:
        raise TripletError(problem, hint="Targets are whole numbers that count from 0.")
    return table.astype(np.int64)


def _sentence(rows: NDArray[Any], faulty: NDArray[np.bool_] | np.bool_, fault: str) -> str:
    found = np.flatnonzero(faulty)
    if not len(found):
        return ""
    named = ", ".join(f"{row} {rows[row].tolist()}" for row in found[:_NAMED_ROWS])
    rest = len(found) - _NAMED_ROWS
    more = f" and {rest} more" if rest > 0 else ""
    return f"Row {named}{more} {fault}."
