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
d(d+1)/2 + d + 1 monomials with as many (n, n) planes. This module computes them in float32, a few heads at a time.
`arrange` turns scores into a round of queries, each chosen as if those before it had been answered; `arrange_wide`
does so approximately, for more targets than the full covariance allows. After Atkinson, Donev and Tobias (2007),
"Optimum experimental designs", and MacKay (1992).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.geometry import Coordinates, Reals, centre, squared_distances
from salmon.learning import Posterior
from salmon.learning.posterior import fisher_weight
from salmon.noise import NoiseModel

Single = NDArray[np.float32]

# Entries of one work array of a few heads: it stays in a core's cache. Where a single head fills it, a few heads still
# share each pass over the planes.
_CHUNK = 1 << 17
_FEWEST_HEADS = 4
# Where both feet lie on the head's spot v and g vanish together, and a query counts next to nothing: √v at most. The
# weight 1/√v of smaller variances would only magnify the rounding of float32 (to a tenth of M, if v went to 1e-12).
_SMALLEST_VARIANCE = 1e-6


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
        step = max(_FEWEST_HEADS, _CHUNK // self.n**2)
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
    # A_bc x_c by rows; its transpose is x_bᵀ A_bc, because A is symmetric.
    applied = np.einsum("ijbc,cj->ibc", parts, x)
    squares = [parts[i, i] if i == j else parts[i, j] + parts[j, i] for i in range(d) for j in range(i, d)]
    mixed = [plane + plane.T for plane in applied]
    return Forms(blocks, np.stack([*squares, *mixed, np.einsum("ibc,bi->bc", applied, x)]).reshape(-1, n * n))


def quadratic_forms(linear: Linearised, forms: Forms, heads: NDArray[Any], y: Single) -> Single:
    """Return (k, n, n) forms a_bᵀ A a_c for each of these heads, with y (k, n, d) their pulls.

    The terms of the head's own block are y_bᵀz_c + z_bᵀy_c with z_c = ½ A_hh y_c − A_hc y_c.
    """
    n = linear.n
    out = (linear.monomials[heads] @ forms.planes).reshape(len(heads), n, n)
    pull = linear.pull[heads]
    out *= pull[:, :, None]
    out *= pull[:, None, :]
    own = forms.blocks[heads]
    at_head = own[np.arange(len(heads)), :, heads, :]
    z = 0.5 * (y @ at_head.transpose(0, 2, 1)) - np.einsum("kicj,kcj->kci", own, y, optimize=False)
    out += np.concatenate([y, z], axis=2) @ np.concatenate([z, y], axis=2).transpose(0, 2, 1)
    return out


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
    for part in linear.chunks(np.arange(n) if heads is None else heads):
        y = linear.pulls(part)
        weights = balance(linear, variances(quadratic_forms(linear, forms, part, y)), part)
        sums = weights.sum(axis=2)
        # E_c = Σ_b L_bc y_b: what the head's own blocks are made of.
        gathered = sums[:, :, None] * y - weights @ y
        own = np.einsum("kci,kcj->kicj", gathered, y)
        target[part] -= own
        target[:, :, part] -= own.transpose(2, 3, 0, 1)
        target[part, :, part, :] += own.sum(axis=2)
        feet = np.arange(n)
        target[feet, :, feet, :] += np.einsum("kb,kbi,kbj->bij", sums, y, y)
        pull = linear.pull[part]
        weights *= pull[:, :, None]
        weights *= pull[:, None, :]
        moments += linear.monomials[part].T @ weights.reshape(len(part), n * n)
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
    stop: Callable[[], bool] | None = None,
) -> Arrangement:
    """Choose the feet of each turn, and count each query as asked before the next turn.

    `turns` (k, 3) has a head a row, and feet where they are settled already; feet of −1 are to be chosen, as those
    with the highest score, the fall of tr(MΣ). A query posted lowers the scores of its neighbours before its answer
    arrives: Σ loses w/(1 + w·v) (Σg)(Σg)ᵀ. M stays for the round; K = ΣMΣ follows Σ ten times while the heads go round
    once. `stop` is called as often.
    """
    period = max(1, round(linear.n / _REFRESHES))
    queries, scores = turns.copy(), np.zeros(len(turns))
    covariance = covariance.copy()
    spread = covariance @ target @ covariance
    for start in range(0, len(turns), period):
        if stop is not None and stop():
            return Arrangement(queries[:start], scores[:start], covariance, complete=False)
        part = slice(start, start + period)
        posted = _arrange_period(linear, covariance, spread, queries[part], scores[part])
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
    for rows in linear.chunks(np.arange(len(queries))):
        table = _ChunkTable.of(linear, forms, spread_forms, queries[rows, 0])
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
        low, high = sorted(divmod(int(scores.argmax()), len(scores)))
        return low, high


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


# Feet that a turn of `arrange_wide` chooses from: with all of their pairs about half a millisecond a turn.
_WIDE_FEET = 128
_SMALLEST_BLOCK_VARIANCE = 1e-12
# How many turns of `arrange_wide` pass between two calls of `stop`.
_BETWEEN_STOPS = 100


def arrange_wide(
    posterior: Posterior,
    model: NoiseModel,
    turns: NDArray[np.int32],
    generator: np.random.Generator,
    *,
    stop: Callable[[], bool] | None = None,
) -> Arrangement:
    """Choose the feet of each turn as `arrange` does, for many targets: cheaper, and approximate.

    The posterior takes targets as independent of each other, so that Σ, M and K are (n, d, d) blocks. Each turn
    considers a random sample of feet, drawn anew in every round; M is added up over the turns' own heads and feet, a
    random sample of all queries.
    """
    x, covariance = posterior.coordinates, posterior.covariance.copy()
    feet = [_draw_feet(len(x), turn, generator) for turn in turns]
    target = np.zeros_like(covariance)
    for turn, drawn in zip(turns, feet, strict=True):
        _add_block_target(_BlockView.of(x, model, turn[0], drawn), covariance, target)
    queries, scores = turns.copy(), np.zeros(len(turns))
    for row, (turn, drawn) in enumerate(zip(turns, feet, strict=True)):
        if row % _BETWEEN_STOPS == 0 and stop is not None and stop():
            return Arrangement(queries[:row], scores[:row], covariance, complete=False)
        view = _BlockView.of(x, model, turn[0], drawn)
        near = covariance[view.targets]
        v = view.variances(near)
        weights = fisher_weight(view.log_odds, model.lapse)
        np.fill_diagonal(weights, 0)
        score = weights * view.variances(near @ target[view.targets] @ near) / (1 + weights * v)
        # Feet that were settled beforehand are the only two of their view.
        b, c = divmod(int(score.argmax()), len(score))
        queries[row, 1:] = sorted((drawn[b], drawn[c]))
        scores[row] = score[b, c]
        _deflate_blocks(view, covariance, b, c, weights[b, c] / (1 + weights[b, c] * v[b, c]))
    return Arrangement(queries, scores, covariance, complete=True)


def _draw_feet(n: int, turn: NDArray[np.int32], generator: np.random.Generator) -> NDArray[np.int32]:
    if turn[1] >= 0:
        return turn[1:]
    # One more than needed: the head may be among them.
    drawn = generator.choice(n, min(_WIDE_FEET + 1, n), replace=False).astype(np.int32)
    return drawn[drawn != turn[0]][:_WIDE_FEET]


@dataclass(frozen=True)
class _BlockView:
    """A head and c feet: `targets` (c + 1,) with the head first, `y` (c, d) pulls, `log_odds` (c, c) of b before c."""

    targets: NDArray[np.int32]
    y: Coordinates
    log_odds: Reals

    @classmethod
    def of(cls, x: Coordinates, model: NoiseModel, head: np.int32, feet: NDArray[np.int32]) -> "_BlockView":
        difference = x[head] - x[feet]
        d2 = (difference**2).sum(axis=1)
        felt = model.remoteness(d2)
        y = 2 * model.remoteness_slope(d2)[:, None] * difference
        return cls(np.concatenate([[head], feet]), y, felt[None, :] - felt[:, None])

    def variances(self, blocks: Coordinates) -> Coordinates:
        """Return (c, c) of gᵀAg for each pair of feet, A the (c + 1, d, d) blocks of the head and the feet."""
        shared = self.y @ blocks[0] @ self.y.T
        own = np.einsum("bi,bij,bj->b", self.y, blocks[1:], self.y) + np.diagonal(shared)
        return np.maximum(own[:, None] + own[None, :] - 2 * shared, _SMALLEST_BLOCK_VARIANCE)


def _add_block_target(view: _BlockView, covariance: Coordinates, target: Coordinates) -> None:
    """Add c·g gᵀ, c = exp(−f²/2v)/√v, over all pairs of the view's feet to the blocks of M."""
    v = view.variances(covariance[view.targets])
    weights = np.exp(-0.5 * view.log_odds**2 / v) / np.sqrt(v)
    np.fill_diagonal(weights, 0)
    sums = weights.sum(axis=1)
    head, feet = view.targets[0], view.targets[1:]
    target[head] += view.y.T @ (sums[:, None] * view.y - weights @ view.y)
    target[feet] += sums[:, None, None] * view.y[:, :, None] * view.y[:, None, :]


def _deflate_blocks(view: _BlockView, covariance: Coordinates, b: int, c: int, factor: float) -> None:
    """Count the answer about feet b and c as given: each of the three targets' blocks loses its share."""
    gradients = np.stack([view.y[c] - view.y[b], view.y[b], -view.y[c]])
    three = view.targets[[0, b + 1, c + 1]]
    moved = np.einsum("tij,tj->ti", covariance[three], gradients)
    covariance[three] -= factor * moved[:, :, None] * moved[:, None, :]
