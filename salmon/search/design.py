"""I-optimal design: choose queries whose answers make the predictions of all answers most certain.

About a fitted embedding the log-odds f of a query (head h, feet b and c) are Gaussian, with variance v = gᵀΣg where Σ
is the posterior covariance of all coordinates and g = a_b − a_c the gradient of f. a_b has −y_b in the block of the
head and +y_b in the block of foot b, y_b = 2 u'(d2_hb)(x_h − x_b). The target of the design is

    M = Σ over all queries of exp(−f²/2v)/√v · g gᵀ,

so that tr(MΣ) adds up the variance of every f, most of those whose answer is uncertain. One more answer, of Fisher
information w, lowers tr(MΣ) by exactly

    score = w · gᵀKg / (1 + w·v),    K = ΣMΣ.

Both need the quadratic forms y_bᵀ(A_hh − A_hc − A_bh + A_bc)y_c of a symmetric (n·d, n·d) matrix A for every head and
every pair of feet. Since y_b = s_b (x_h − x_b), they are polynomials of x_h: for all heads one matrix product of
d(d+1)/2 + d + 1 monomials with as many (n, n) planes. This module computes them in float32: with the compiled loops of
`design_loops` where there are many targets, otherwise, and where numba is missing, with numpy, a few heads at a time.
`arrange` turns scores into a round of queries, each chosen as if those before it had been answered. After Atkinson,
Donev and Tobias (2007), "Optimum experimental designs", and MacKay (1992).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates, centre, squared_distances
from salmon.learning.posterior import fisher_weight
from salmon.noise import TSTE, NoiseModel

Single = NDArray[np.float32]

# Entries of one work array of a few heads: it stays in a core's cache. Where a single head fills it, a few heads still
# share each pass over the planes.
_CHUNK = 1 << 17
_FEWEST_HEADS = 4
# Where both feet lie on the head's spot v and g vanish together, and a query counts next to nothing: √v at most. The
# weight 1/√v of smaller variances would only magnify the rounding of float32 (to a tenth of M, if v went to 1e-12).
_SMALLEST_VARIANCE = 1e-6
# From this many targets rounds are long enough that the loops, which take seconds to compile on a new machine, pay off.
WORTH_COMPILING = 100
# Heads that go through the compiled loops together, and the share of a head's pairs of feet for which there is room
# among the candidates: about one in a hundred becomes one.
_HEADS_TOGETHER = 32
_ROOM, _LEAST_ROOM = 1 / 16, 500


class _Loops(Protocol):
    """The compiled loops, as `salmon.search.design_loops` describes them."""

    add_balance: Callable[..., None]
    find_candidates: Callable[..., NDArray[np.int64]]
    best_candidate: Callable[..., int]


@cache
def _compiled_loops() -> _Loops | None:
    """Return the compiled loops, or None where numba is missing; importing them takes half a second."""
    if find_spec("numba") is None:
        return None
    return cast("_Loops", import_module("salmon.search.design_loops"))


def load_loops(*_: object) -> None:
    """Load the compiled loops, or compile them, by a small round, so that no search waits for that."""
    n, d = WORTH_COMPILING, 2
    if _loops(n) is not None:
        linear = linearise(np.random.default_rng(0).standard_normal((n, d)), TSTE(lapse=0.05))
        covariance = np.eye(n * d)
        turns = np.array([[0, -1, -1]], dtype=np.int32)
        arrange(linear, covariance, design_target(linear, covariance), turns)


def _loops(n: int) -> _Loops | None:
    """Return the compiled loops where they are worth it, otherwise None."""
    return _compiled_loops() if n >= WORTH_COMPILING else None


@dataclass(frozen=True)
class Linearised:
    """An embedding and the noise model around it, as the quadratic forms need them.

    `coordinates` (n, d) centred; `felt` (n, n) remoteness and `pull` (n, n) twice its slope, by head and foot, with
    y_b = pull[h, b] · (x_h − x_b); `monomials` (n, r) of each head's coordinates.
    """

    coordinates: Single
    felt: Single
    pull: Single
    monomials: Single
    lapse: float

    @property
    def n(self) -> int:
        """Return the number of targets."""
        return self.coordinates.shape[0]

    def chunks(self, heads: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield the heads, a few at a time."""
        step = _HEADS_TOGETHER if _loops(self.n) else max(_FEWEST_HEADS, _CHUNK // self.n**2)
        for start in range(0, len(heads), step):
            yield heads[start : start + step]

    def pulls(self, heads: NDArray[Any]) -> Single:
        """Return (k, n, d) gradients y of the remoteness of each foot by each of these heads."""
        y = self.coordinates[heads][:, None, :] - self.coordinates[None, :, :]
        y *= self.pull[heads][:, :, None]
        return y


def linearise(coordinates: Coordinates, model: NoiseModel) -> Linearised:
    """Prepare an embedding for quadratic forms; it is centred, which costs the least precision in float32."""
    centred = centre(coordinates)
    d2 = squared_distances(centred)
    d = centred.shape[1]
    squares = [centred[:, i] * centred[:, j] for i in range(d) for j in range(i, d)]
    return Linearised(
        coordinates=centred.astype(np.float32),
        felt=np.asarray(model.remoteness(d2), dtype=np.float32),
        pull=(2 * model.remoteness_slope(d2)).astype(np.float32),
        monomials=np.stack([*squares, *(-centred.T), np.ones(len(centred))], axis=1).astype(np.float32),
        lapse=model.lapse,
    )


@dataclass(frozen=True)
class Forms:
    """A symmetric matrix (n·d, n·d), prepared for its quadratic forms: `blocks` (n, d, n, d) and `planes` (r, n·n)."""

    blocks: Single
    planes: Single


def forms_of(linear: Linearised, matrix: Coordinates) -> Forms:
    """Return planes of A whose product with a head's monomials is (x_h − x_b)ᵀ A_bc (x_h − x_c), for all b, c."""
    n, d = linear.coordinates.shape
    x = linear.coordinates
    blocks = matrix.astype(np.float32).reshape(n, d, n, d)
    parts = np.ascontiguousarray(blocks.transpose(1, 3, 0, 2))
    planes = np.empty((linear.monomials.shape[1], n, n), dtype=np.float32)
    *others, last = planes
    squares, mixed = others[:-d], others[-d:]
    for plane, (i, j) in zip(squares, combinations_with_replacement(range(d), 2), strict=True):
        if i == j:
            plane[...] = parts[i, i]
        else:
            np.add(parts[i, j], parts[j, i], out=plane)
    last[...] = 0
    for i, plane in enumerate(mixed):
        # A_bc x_c by rows; its transpose is x_bᵀ A_bc, because A is symmetric.
        applied = parts[i, 0] * x[:, 0]
        for j in range(1, d):
            applied += parts[i, j] * x[:, j]
        np.add(applied, applied.T, out=plane)
        applied *= x[:, i, None]
        last += applied
    return Forms(blocks, planes.reshape(-1, n * n))


def quadratic_forms(linear: Linearised, forms: Forms, heads: NDArray[Any], y: Single) -> Single:
    """Return (k, n, n) forms a_bᵀ A a_c for each of these heads, with y (k, n, d) their pulls.

    The terms of the head's own block are y_bᵀz_c + z_bᵀy_c with z_c = ½ A_hh y_c − A_hc y_c.
    """
    n = linear.n
    out = (linear.monomials[heads] @ forms.planes).reshape(len(heads), n, n)
    pull = linear.pull[heads]
    out *= pull[:, :, None]
    out *= pull[:, None, :]
    z = _own_terms(forms, heads, y)
    out += np.concatenate([y, z], axis=2) @ np.concatenate([z, y], axis=2).transpose(0, 2, 1)
    return out


def _own_terms(forms: Forms, heads: NDArray[Any], y: Single) -> Single:
    """Return (k, n, d) z_c = ½ A_hh y_c − A_hc y_c."""
    own = forms.blocks[heads]
    at_head = own[np.arange(len(heads)), :, heads, :]
    return 0.5 * (y @ at_head.transpose(0, 2, 1)) - np.einsum("kicj,kcj->kci", own, y, optimize=False)


class HeadRows(NamedTuple):
    """What the compiled loops know of k heads: `monomials` (k, r), `pull` and `felt` (k, n), and `y` (k, d, n)."""

    heads: NDArray[np.int32]
    monomials: Single
    pull: Single
    felt: Single
    y: Single

    @classmethod
    def of(cls, linear: Linearised, heads: NDArray[Any], y: Single) -> "HeadRows":
        """Return the rows of these heads, whose pulls are y (k, n, d)."""
        turned = np.ascontiguousarray(y.transpose(0, 2, 1))
        return cls(heads.astype(np.int32), linear.monomials[heads], linear.pull[heads], linear.felt[heads], turned)


class FormRows(NamedTuple):
    """What the compiled loops know of a form and k heads: `planes` (r, n, n), `z` (k, d, n),
    and U_bb in `diagonal` (k, n).
    """

    planes: Single
    z: Single
    diagonal: Single

    @classmethod
    def of(cls, linear: Linearised, forms: Forms, rows: HeadRows) -> "FormRows":
        """Return the rows of a form for some heads."""
        z = np.ascontiguousarray(_own_terms(forms, rows.heads, rows.y.transpose(0, 2, 1)).transpose(0, 2, 1))
        planes = forms.planes.reshape(-1, linear.n, linear.n)
        diagonal = rows.monomials @ np.einsum("rbb->rb", planes)
        diagonal *= rows.pull**2
        return cls(planes, z, diagonal + 2 * (rows.y * z).sum(axis=1))


def variances(forms: Single) -> Single:
    """Return (k, n, n) variances of the queries' log-odds, U_bb + U_cc − 2 U_bc, from their quadratic forms U.

    They are never negative.
    """
    diagonal = np.einsum("kbb->kb", forms).copy()
    out = forms * np.float32(-2)
    out += diagonal[:, :, None]
    out += diagonal[:, None, :]
    return np.maximum(out, 0, out=out)


def design_target(linear: Linearised, covariance: Coordinates, heads: NDArray[Any] | None = None) -> Coordinates:
    """Return M (n·d, n·d) = Σ c g gᵀ over all queries of the heads given (of all by default), c = exp(−f²/2v)/√v.

    For one head this is Aᵀ L A with L = diag(C·1) − C, so its blocks are polynomials of x_h too, and the heads add up
    in matrix products: O(d² n³) in all.
    """
    n, d = linear.coordinates.shape
    x = linear.coordinates
    forms = forms_of(linear, covariance)
    moments = np.zeros((linear.monomials.shape[1], n * n), dtype=np.float32)
    target = np.zeros((n, d, n, d))
    loops = _loops(n)
    add_up = _balance_of if loops is None else partial(_balance_by_loops, loops)
    for part in linear.chunks(np.arange(n) if heads is None else heads):
        y = linear.pulls(part)
        sums, weighed = add_up(linear, forms, part, y, moments)
        # E_c = Σ_b L_bc y_b: what the head's own blocks are made of.
        gathered = sums[:, :, None] * y - weighed
        own = np.einsum("kci,kcj->kicj", gathered, y)
        target[part] -= own
        target[:, :, part] -= own.transpose(2, 3, 0, 1)
        target[part, :, part, :] += own.sum(axis=2)
        feet = np.arange(n)
        target[feet, :, feet, :] += np.einsum("kb,kbi,kbj->bij", sums, y, y)
    planes = moments.astype(np.float64).reshape(-1, n, n)
    count = d * (d + 1) // 2
    # The monomials of d axes carry a minus sign: planes[count + i] is −Σ_h x_hi N.
    first, zeroth = planes[count : count + d], planes[-1]
    pairs = iter(planes[:count])
    for i in range(d):
        for j in range(i, d):
            square = next(pairs)
            plane = square + first[i] * x[None, :, j] + x[:, None, i] * first[j] + np.outer(x[:, i], x[:, j]) * zeroth
            target[:, i, :, j] -= plane
            if j > i:
                target[:, j, :, i] -= plane.T
    return target.reshape(n * d, n * d)


def _balance_of(
    linear: Linearised, forms: Forms, heads: NDArray[Any], y: Single, moments: Single
) -> tuple[Single, Single]:
    """Return Σ_c c (k, n) and Σ_c c·y_c (k, n, d) of these heads; add Σ_h monomials · c
    · pull_b · pull_c to `moments`.
    """
    weights = balance(linear, variances(quadratic_forms(linear, forms, heads, y)), heads)
    sums, weighed = weights.sum(axis=2), weights @ y
    pull = linear.pull[heads]
    weights *= pull[:, :, None]
    weights *= pull[:, None, :]
    moments += linear.monomials[heads].T @ weights.reshape(len(heads), -1)
    return sums, weighed


def _balance_by_loops(
    loops: _Loops, linear: Linearised, forms: Forms, heads: NDArray[Any], y: Single, moments: Single
) -> tuple[Single, Single]:
    """Do as `_balance_of` with compiled loops."""
    n, d = linear.coordinates.shape
    rows = HeadRows.of(linear, heads, y)
    upper = np.zeros((len(moments), n, n), dtype=np.float32)
    sums, weighed = np.zeros((len(heads), n), dtype=np.float32), np.zeros((len(heads), d, n), dtype=np.float32)
    loops.add_balance(rows, FormRows.of(linear, forms, rows), np.float32(_SMALLEST_VARIANCE), upper, sums, weighed)
    upper += upper.transpose(0, 2, 1).copy()
    moments += upper.reshape(moments.shape)
    return sums, weighed.transpose(0, 2, 1)


def balance(linear: Linearised, variance: Single, heads: NDArray[Any]) -> Single:
    """Return (k, n, n) weights c = exp(−f²/2v)/√v of the queries, 0 where the head is a foot or the feet are one.

    `variance` is overwritten. Up to a factor √(2π) this is the density of a log-odds of 0: how uncertain the answer
    is.
    """
    np.maximum(variance, _SMALLEST_VARIANCE, out=variance)
    f = linear.felt[heads][:, None, :] - linear.felt[heads][:, :, None]
    f *= f
    f /= variance
    f *= -0.5
    np.exp(f, out=f)
    np.sqrt(variance, out=variance)
    f /= variance
    rows = np.arange(len(heads))
    f[rows, heads, :] = 0
    f[rows, :, heads] = 0
    np.einsum("kbb->kb", f)[...] = 0
    return f


def information_weights(linear: Linearised, heads: NDArray[Any]) -> Single:
    """Return (k, n, n) Fisher information w of one answer about f, 0 where the head is a foot or the feet are one."""
    felt = linear.felt[heads]
    w = np.asarray(fisher_weight(felt[:, None, :] - felt[:, :, None], linear.lapse), dtype=np.float32)
    rows = np.arange(len(heads))
    w[rows, heads, :] = 0
    w[rows, :, heads] = 0
    np.einsum("kbb->kb", w)[...] = 0
    return w


# K = ΣMΣ is brought up to date this many times while every head has one turn.
_REFRESHES = 10


@dataclass(frozen=True)
class Arrangement:
    """Queries (k, 3) in the order of their turns, the score (k,) of each, and the posterior covariance after all.

    `complete` is False where the arrangement was cut short and k is less than the number of turns.
    """

    queries: NDArray[np.int32]
    scores: NDArray[np.float64]
    covariance: Coordinates
    complete: bool


def arrange(
    linear: Linearised,
    covariance: Coordinates,
    target: Coordinates,
    turns: NDArray[np.int32],
    *,
    stop: Callable[[int], bool] | None = None,
) -> Arrangement:
    """Choose the feet of each turn, and count each query as asked before the next turn.

    `turns` (k, 3) has a head a row, and feet where they are settled already; feet of −1 are to be chosen, as those
    with the highest score, the fall of tr(MΣ). A query posted lowers the scores of its neighbours before its answer
    arrives: Σ loses w/(1 + w·v) (Σg)(Σg)ᵀ. M stays for the round; K = ΣMΣ follows Σ ten times while the heads go round
    once. `stop` is called as often, with the number of queries that are chosen.
    """
    period = max(1, round(linear.n / _REFRESHES))
    queries, scores = turns.copy(), np.zeros(len(turns))
    covariance = covariance.copy()
    spread = covariance @ target @ covariance
    for start in range(0, len(turns), period):
        if stop is not None and stop(start):
            return Arrangement(queries[:start], scores[:start], covariance, complete=False)
        part = slice(start, start + period)
        posted = _arrange_period(linear, covariance, spread, queries[part], scores[part])
        if start + period < len(turns):
            _deflate_spread(spread, covariance, target, posted)
        covariance -= posted @ posted.T
    return Arrangement(queries, scores, covariance, complete=True)


def _deflate_spread(spread: Coordinates, covariance: Coordinates, target: Coordinates, posted: Coordinates) -> None:
    """Update K = ΣMΣ in place after Σ has lost qqᵀ, for all columns q at once.

    K loses wqᵀ + qwᵀ with w = ΣMq − ½ q(qᵀMq).
    """
    moved = target @ posted
    w = covariance @ moved - 0.5 * posted @ (posted.T @ moved)
    change = w @ posted.T
    spread -= change
    spread -= change.T


def _arrange_period(
    linear: Linearised,
    covariance: Coordinates,
    spread: Coordinates,
    queries: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> Coordinates:
    """Fill in the queries and scores of some turns; return (n·d, k) columns q with Σ_after = Σ − q qᵀ."""
    n, d = linear.coordinates.shape
    forms, spread_forms = forms_of(linear, covariance), forms_of(linear, spread)
    posted = np.zeros((n * d, len(queries)))
    posted_single = np.zeros((len(queries), d, n), dtype=np.float32)
    loops = _loops(n)
    make_table = _ChunkTable.of if loops is None else partial(_CandidateTable.of, loops)
    for rows in linear.chunks(np.arange(len(queries))):
        table = make_table(linear, forms, spread_forms, queries[rows, 0])
        for place, row in enumerate(rows):
            query = queries[row]
            if query[1] < 0:
                query[1:] = table.best_feet(place, posted_single[:row])
            feet = _Feet.of(linear, query)
            earlier = posted[:, :row]
            moved = feet.product(covariance) - earlier @ feet.product(earlier)
            v, kv, w = feet.product(moved), feet.product(feet.product(spread)), feet.weight
            scores[row] = w * kv / (1 + w * v)
            posted[:, row] = np.sqrt(w / (1 + w * v)) * moved
            posted_single[row] = posted[:, row].reshape(n, d).T
    return posted


@dataclass(frozen=True)
class _ChunkTable:
    """The scores of a few heads' queries, up to what was posted since: `y` (k, n, d), the rest (k, n, n)."""

    heads: NDArray[np.int32]
    y: Single
    forms: Single
    gains: Single
    weights: Single

    @classmethod
    def of(cls, linear: Linearised, forms: Forms, spread_forms: Forms, heads: NDArray[np.int32]) -> "_ChunkTable":
        y = linear.pulls(heads)
        weights = information_weights(linear, heads)
        gains = variances(quadratic_forms(linear, spread_forms, heads, y))
        gains *= weights
        return cls(heads, y, quadratic_forms(linear, forms, heads, y), gains, weights)

    def best_feet(self, place: int, posted: Single) -> tuple[int, int]:
        """Return the feet of the highest score; `posted` (j, d, n) are the columns of the queries since the forms were
        made.

        A column q takes (a_bᵀq)(a_cᵀq) from the form of b and c, and a_bᵀq = y_bᵀ(q_b − q_h).
        """
        scores = self.forms[place]
        if len(posted):
            relative = posted - posted[:, :, self.heads[place], None]
            relative *= self.y[place].T
            falls = relative.sum(axis=1)
            scores -= falls.T @ falls
        diagonal = scores.diagonal().copy()
        scores *= -2
        scores += diagonal[:, None]
        scores += diagonal
        np.maximum(scores, 0, out=scores)
        scores *= self.weights[place]
        scores += 1
        np.divide(self.gains[place], scores, out=scores)
        # Where no answer would tell anything, as about targets on one spot, all scores are 0: any two other targets
        # will do.
        head = self.heads[place]
        scores[head] = scores[:, head] = -1
        np.fill_diagonal(scores, -1)
        low, high = sorted(divmod(int(scores.argmax()), len(scores)))
        return low, high


@dataclass(frozen=True)
class _CandidateTable:
    """The pairs of feet that may score highest for a few heads, found by compiled loops; `found` (k,) counts them.

    `feet` (k, m, 2) are the pairs, and `figures` (k, m, 3) their w, w·kv and v. Where a head has too many of them to be
    kept, `found` is −1; then, and where no pair tells anything, its feet are chosen by `fallback`.
    """

    loops: _Loops
    rows: HeadRows
    found: NDArray[np.int64]
    feet: NDArray[np.int32]
    figures: Single
    fallback: Callable[[int], _ChunkTable]

    @classmethod
    def of(
        cls, loops: _Loops, linear: Linearised, forms: Forms, spread_forms: Forms, heads: NDArray[np.int32]
    ) -> "_CandidateTable":
        rows = HeadRows.of(linear, heads, linear.pulls(heads))
        room = max(_LEAST_ROOM, round(_ROOM * linear.n**2 / 2))
        feet = np.empty((len(heads), room, 2), dtype=np.int32)
        figures = np.empty((len(heads), room, 3), dtype=np.float32)
        found = loops.find_candidates(
            rows,
            FormRows.of(linear, forms, rows),
            FormRows.of(linear, spread_forms, rows),
            np.float32(linear.lapse),
            feet,
            figures,
        )

        def fallback(place: int) -> _ChunkTable:
            return _ChunkTable.of(linear, forms, spread_forms, heads[place : place + 1])

        return cls(loops, rows, found, feet, figures, fallback)

    def best_feet(self, place: int, posted: Single) -> tuple[int, int]:
        """Return the feet of the highest score, as `_ChunkTable.best_feet` does."""
        found = self.found[place]
        if found < 1:
            return self.fallback(place).best_feet(0, posted)
        feet, figures = self.feet[place, :found], self.figures[place, :found]
        y, head = self.rows.y[place], int(self.rows.heads[place])
        low, high = feet[self.loops.best_candidate(feet, figures, y, posted, head)]
        return int(low), int(high)


@dataclass(frozen=True)
class _Feet:
    """A query's gradient g, its 3·d entries `values` and their places, and the Fisher information of its answer."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]
    weight: float

    @classmethod
    def of(cls, linear: Linearised, query: NDArray[np.int32]) -> "_Feet":
        head, first, second = query
        x = linear.coordinates[query].astype(np.float64)
        y_first = float(linear.pull[head, first]) * (x[0] - x[1])
        y_second = float(linear.pull[head, second]) * (x[0] - x[2])
        d = x.shape[1]
        places = (query.astype(np.int64)[:, None] * d + np.arange(d)).ravel()
        values = np.concatenate([y_second - y_first, y_first, -y_second])
        f = np.array([float(linear.felt[head, second]) - float(linear.felt[head, first])])
        return cls(places, values, float(fisher_weight(f, linear.lapse)[0]))

    def product(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of gᵀ with the array, over the array's first axis."""
        return self.values @ array[self.places]
