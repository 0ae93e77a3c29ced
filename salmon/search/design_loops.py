"""The loops of the design over all pairs of feet, compiled by numba; `salmon.search.design` has the formulas.

Numpy takes some twenty passes over (n, n) arrays for each head, and from a few hundred targets on each pass leaves the
core's cache. These loops take one pass over the pairs b < c: some rows of the planes stay in the cache while all heads
use them. Slices begin behind foot b, because the compiler vectorises only loops whose indices begin at 0.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from salmon.search.design import FormRows, HeadRows, Single

# Bytes of the planes' rows that all heads use in turn: about half of a core's own cache.
_CACHED = 1 << 19
_BYTES = 4

_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_LEAST_EXPONENT = np.float32(-80)
_C7, _C6, _C5, _C4, _C3, _C2 = (np.float32(1 / factorial) for factorial in (5040, 720, 120, 24, 6, 2))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled; its machine code is kept for the next process where a folder may be written.

    Other threads go on meanwhile: the learning process publishes while one of its threads searches.
    """
    try:
        return numba.njit(cache=True, fastmath=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        return numba.njit(fastmath=True, nogil=True, error_model="numpy")(function)


@compiled
def add_balance(
    rows: HeadRows, form: FormRows, smallest: np.float32, moments: Single, sums: Single, weighed: Single
) -> None:
    """Add up what the design's target is made of, with weights c = exp(−f²/2v)/√v of all pairs of feet of the heads.

    `moments` (r, n, n) gets Σ_h monomials · c · pull_b · pull_c in its upper triangle, `sums` (k, n) gets Σ_c c, and
    `weighed` (k, d, n) gets Σ_c c · y_c.
    """
    n = rows.pull.shape[1]
    space = np.zeros(n, dtype=np.float32)
    step = _rows_in_cache(rows)
    for start in range(0, n, step):
        for k in range(rows.heads.shape[0]):
            for b in range(start, min(start + step, n - 1)):
                if b != rows.heads[k]:
                    weights = space[b + 1 :]
                    _variances(rows, form, k, b, weights)
                    _balance(rows, k, b, smallest, weights)
                    _add_row(rows, k, b, weights, moments, sums[k], weighed[k])


@compiled
def find_candidates(
    rows: HeadRows, form: FormRows, spread: FormRows, lapse: np.float32, feet: NDArray[np.int32], figures: Single
) -> NDArray[np.int64]:
    """Collect the pairs of feet that may score highest for each head, whatever is posted
    before it; return how many (k,).

    A posted query lowers v of the others, never below 0, so the score w·kv/(1 + w·v) of a pair lies between its present
    one and w·kv. A pair is no candidate where another pair's present score is above its w·kv. `feet` (k, m, 2) and
    `figures` (k, m, 3) with w, w·kv and v get the candidates; −1 is returned for a head that has more than m of them.
    """
    heads, n = rows.heads.shape[0], rows.pull.shape[1]
    found, best = np.zeros(heads, dtype=np.int64), np.zeros(heads, dtype=np.float32)
    spaces = np.zeros((3, n), dtype=np.float32)
    step = _rows_in_cache(rows)
    for start in range(0, n, step):
        for k in range(heads):
            for b in range(start, min(start + step, n - 1)):
                if b != rows.heads[k] and found[k] >= 0:
                    weights, gains, v = spaces[0, b + 1 :], spaces[1, b + 1 :], spaces[2, b + 1 :]
                    _variances(rows, form, k, b, v)
                    _variances(rows, spread, k, b, gains)
                    _information(rows, k, b, lapse, weights)
                    highest, best[k] = _scores(weights, gains, v, best[k])
                    if highest >= best[k]:
                        found[k] = _collect(b, weights, gains, v, best[k], found[k], feet[k], figures[k])
    for k in range(heads):
        if found[k] > 0:
            found[k] = _drop(feet[k], figures[k], found[k], best[k])
    return found


@compiled
def best_candidate(feet: NDArray[np.int32], figures: Single, y: Single, posted: Single, head: int) -> int:
    """Return the place of the candidate with the highest score after j queries were posted.

    `posted` (j, d, n) holds the columns q that Σ lost: v of feet b and c loses Σ_j (a_bᵀq − a_cᵀq)², and a_bᵀq is
    y_b·(q_b − q_h).
    """
    j, d, n = posted.shape
    falls = np.zeros((n, j), dtype=np.float32)
    for column in range(j):
        for axis in range(d):
            at_head = posted[column, axis, head]
            for b in range(n):
                falls[b, column] += y[axis, b] * (posted[column, axis, b] - at_head)
    best, place = -_ONE, 0
    for at in range(feet.shape[0]):
        first, second = falls[feet[at, 0]], falls[feet[at, 1]]
        fall = _ZERO
        for column in range(j):
            difference = first[column] - second[column]
            fall += difference * difference
        score = figures[at, 1] / (_ONE + figures[at, 0] * max(figures[at, 2] - fall, _ZERO))
        if score > best:
            best, place = score, at
    return place


@compiled
def _rows_in_cache(rows: HeadRows) -> int:
    return max(1, _CACHED // (_BYTES * rows.pull.shape[1] * 2 * rows.monomials.shape[1]))


@compiled
def _exponential(x: np.float32) -> np.float32:
    """Return eˣ of a number that is not positive: 2ᵏ by the bits of its exponent, and a polynomial for the rest.

    Unlike the library's, the compiler can vectorise it. Its relative error is below 3e-7.
    """
    x = max(x, _LEAST_EXPONENT)
    k = np.floor(x * _LOG2_E + _HALF)
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    p = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _C2
    p = p * r * r + r + _ONE
    return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled
def _variances(rows: HeadRows, form: FormRows, k: int, b: int, out: Single) -> None:
    """Write U_bb + U_cc − 2 U_bc of foot b and all feet c > b into `out` (n − b − 1,), for the head at place k."""
    count, first = out.shape[0], b + 1
    for i in range(count):
        out[i] = _ZERO
    for r in range(rows.monomials.shape[1]):
        monomial, plane = rows.monomials[k, r], form.planes[r, b, first:]
        for i in range(count):
            out[i] += monomial * plane[i]
    pull_b, pull_c = rows.pull[k, b], rows.pull[k, first:]
    for i in range(count):
        out[i] *= pull_b * pull_c[i]
    for axis in range(rows.y.shape[1]):
        y_b, y_c = rows.y[k, axis, b], rows.y[k, axis, first:]
        z_b, z_c = form.z[k, axis, b], form.z[k, axis, first:]
        for i in range(count):
            out[i] += y_b * z_c[i] + z_b * y_c[i]
    at_b, at_c = form.diagonal[k, b], form.diagonal[k, first:]
    for i in range(count):
        out[i] = max(at_b + at_c[i] - _TWO * out[i], _ZERO)


@compiled
def _balance(rows: HeadRows, k: int, b: int, smallest: np.float32, weights: Single) -> None:
    """Overwrite the variances of foot b and the feet behind it with their weights c, 0 where the head is a foot."""
    felt_b, felt_c = rows.felt[k, b], rows.felt[k, b + 1 :]
    for i in range(weights.shape[0]):
        v = max(weights[i], smallest)
        f = felt_c[i] - felt_b
        weights[i] = _exponential(-_HALF * f * f / v) / np.sqrt(v)
    if rows.heads[k] > b:
        weights[rows.heads[k] - b - 1] = _ZERO


@compiled
def _add_row(rows: HeadRows, k: int, b: int, weights: Single, moments: Single, sums: Single, weighed: Single) -> None:
    """Add what foot b and the feet behind it give to the sums of `add_balance`; `weights` is overwritten."""
    count, first = weights.shape[0], b + 1
    total, sums_c = _ZERO, sums[first:]
    for i in range(count):
        total += weights[i]
        sums_c[i] += weights[i]
    sums[b] += total
    for axis in range(rows.y.shape[1]):
        y_b, y_c = rows.y[k, axis, b], rows.y[k, axis, first:]
        total, weighed_c = _ZERO, weighed[axis, first:]
        for i in range(count):
            total += weights[i] * y_c[i]
            weighed_c[i] += weights[i] * y_b
        weighed[axis, b] += total
    pull_b, pull_c = rows.pull[k, b], rows.pull[k, first:]
    for i in range(count):
        weights[i] *= pull_b * pull_c[i]
    for r in range(rows.monomials.shape[1]):
        monomial, moment = rows.monomials[k, r], moments[r, b, first:]
        for i in range(count):
            moment[i] += monomial * weights[i]


@compiled
def _information(rows: HeadRows, k: int, b: int, lapse: np.float32, weights: Single) -> None:
    """Write the Fisher information of foot b and the feet behind it into `weights`, 0 where the head is a foot."""
    scale, floor = (_ONE - _TWO * lapse) * (_ONE - _TWO * lapse), lapse * (_ONE - lapse)
    felt_b, felt_c = rows.felt[k, b], rows.felt[k, b + 1 :]
    for i in range(weights.shape[0]):
        e = _exponential(-abs(felt_c[i] - felt_b))
        s = scale * e / ((_ONE + e) * (_ONE + e))
        weights[i] = s * s / ((s + floor) * scale)
    if rows.heads[k] > b:
        weights[rows.heads[k] - b - 1] = _ZERO


@compiled
def _scores(weights: Single, gains: Single, v: Single, best: np.float32) -> tuple[np.float32, np.float32]:
    """Multiply kv by w; return the highest w·kv, and the highest score or `best` if that is higher."""
    highest = _ZERO
    for i in range(weights.shape[0]):
        gains[i] *= weights[i]
        highest = max(highest, gains[i])
        best = max(best, gains[i] / (_ONE + weights[i] * v[i]))
    return highest, best


@compiled
def _collect(
    b: int,
    weights: Single,
    gains: Single,
    v: Single,
    score: np.float32,
    found: int,
    feet: NDArray[np.int32],
    figures: Single,
) -> int:
    """Add those of a row that may score as much as `score` to a head's candidates; return how many there are, or −1."""
    most = feet.shape[0]
    for i in range(weights.shape[0]):
        if gains[i] >= score and gains[i] > 0:
            if found == most:
                found = _drop(feet, figures, most, score)
            if found == most:
                return -1
            feet[found, 0], feet[found, 1] = b, b + 1 + i
            figures[found, 0], figures[found, 1], figures[found, 2] = weights[i], gains[i], v[i]
            found += 1
    return found


@compiled
def _drop(feet: NDArray[np.int32], figures: Single, count: int, score: np.float32) -> int:
    """Keep the candidates of one head that may score as much as `score`; return how many."""
    kept = 0
    for at in range(count):
        if figures[at, 1] >= score:
            feet[kept] = feet[at]
            figures[kept] = figures[at]
            kept += 1
    return kept
