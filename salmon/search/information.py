"""Score queries by information gain: how much the answer is expected to tell about where the head lies.

`head_posterior` judges where each head lies among the targets by its own answers. The gain is the mutual information
of the answer and the head's place, given the current embedding:

    IG(h, b, c) = H₂( Σ_x τ[h, x] P[x, b, c] ) − Σ_x τ[h, x] H₂(P[x, b, c])

τ is the head's posterior over the n current places, P the probability that b beats c for a head at x, H₂ the entropy
of a coin (Lindley 1956; MacKay 1992; for triplets Tamuz et al. 2011, section 4). P and H₂(P) do not depend on the
head, so all heads share them: two matrix products score every query of every head.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.geometry import Coordinates, Reals
from salmon.learning import Triplets, check_triplets
from salmon.noise import NoiseModel, noise_model

# Entries of one table of log-probabilities: what is summed at a time stays in cache.
_BLOCK = 1 << 18


def head_posterior(
    triplets: Triplets, coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None
) -> Coordinates:
    """Return the (n, x) probability τ that each head lies at each of x places, given all of its answers.

    The places are the n targets' coordinates, or those whose indices are given; before any answer all are as likely.
    Tamuz et al. (2011), section 4.
    """
    return normalise(log_head_posterior(triplets, coordinates, model, places))


def normalise(log_posterior: Coordinates) -> Coordinates:
    """Return probabilities (n, x) from their logarithms, each row of which may be off by a constant.

    The largest of a row is subtracted first, so that no sum of logarithms underflows, however many answers a head has.
    """
    chance = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)


def log_head_posterior(
    triplets: Triplets, coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None
) -> Coordinates:
    """Return log τ without its normaliser: (n, x) Σ over the answers of each head of
    log p(winner, loser | head at x).
    """
    n = len(coordinates)
    felt = remoteness_table(coordinates, model, places)
    total = np.zeros((n, felt.shape[1]))
    ordered = triplets[np.argsort(triplets[:, 0], kind="stable")]
    step = max(1, _BLOCK // felt.shape[1])
    for start in range(0, len(ordered), step):
        heads, winners, losers = ordered[start : start + step].T
        chance = model.choice(felt[losers] - felt[winners])
        # An answer that the model calls impossible must not erase its head from everywhere.
        np.maximum(chance, 1e-300, out=chance)
        np.log(chance, out=chance)
        firsts = np.flatnonzero(np.diff(heads, prepend=-1))
        total[heads[firsts]] += np.add.reduceat(chance, firsts, axis=0)
    return total


def remoteness_table(coordinates: Coordinates, model: NoiseModel, places: NDArray[Any] | None = None) -> Reals:
    """Return the (n, x) remoteness of each target as a foot (rows) for a head at each place (columns)."""
    seats = coordinates if places is None else coordinates[places]
    d2 = np.zeros((len(coordinates), len(seats)))
    for foot, seat in zip(coordinates.T, seats.T, strict=True):
        difference = np.subtract.outer(foot, seat)
        difference *= difference
        d2 += difference
    return model.remoteness(d2)


# Queries scored at a time by `information_gain`; about the size at which the direct form is quickest.
_BATCH = 1024
# Entries of each work array of `gains_of_pairs`: 1 MB in float32, near a core's own cache.
_CHUNK = 1 << 18
# What one entry of a block costs: six float32 arrays here, and eight bytes where the caller sorts the gains.
_ENTRY_BYTES = 6 * 4 + 8
# Beyond these log-odds an answer is certain to twelve digits, and the float32 entropy would be rounding alone.
_CERTAIN = 30.0
# A float32 chance nearer 0 or 1 than this is rounding alone.
_SMALLEST_CHANCE = 1e-7


def information_gain(
    queries: ArrayLike,
    coordinates: ArrayLike,
    triplets: ArrayLike,
    noise: str | NoiseModel = "TSTE",
    *,
    lapse: float | None = None,
) -> NDArray[np.float64]:
    """Return the information gain (q,) in nats, from 0 to log 2, of queries (q, 3) [head, foot, foot], in float64.

    Each query is scored directly from its head's posterior row, which suits a few queries. `exact_search` ranks all of
    them.
    """
    placed = np.array(coordinates, dtype=np.float64)
    asked = check_triplets(queries, len(placed))
    model = noise_model(noise, lapse=lapse)
    posterior = head_posterior(check_triplets(triplets, len(placed)), placed, model)
    felt = remoteness_table(placed, model)
    gains = np.empty(len(asked))
    for start in range(0, len(asked), _BATCH):
        heads, first, second = asked[start : start + _BATCH].T
        chance = model.choice(felt[second] - felt[first])
        tau = posterior[heads]
        mean = (tau * chance).sum(axis=1)
        gains[start : start + _BATCH] = binary_entropy(mean) - (tau * binary_entropy(chance)).sum(axis=1)
    # Rounding can leave a query that tells nothing a hair below 0.
    return np.clip(gains, 0, np.log(2))


def binary_entropy(p: Reals) -> Reals:
    """Return H₂(p) = −p log p − (1 − p) log(1 − p) in nats, elementwise; 0 at both ends."""
    inside = np.clip(p, np.finfo(p.dtype).tiny, 1 - np.finfo(p.dtype).epsneg)
    return -inside * np.log(inside) - (1 - inside) * np.log(1 - inside)


@dataclass(frozen=True)
class HeadTables:
    """Tables for scoring pairs of feet, computed once per embedding.

    `felt` (n, x) float32: remoteness of each foot for a head at each place; `posterior` (n, x) float32: where each
    head lies; `lapse`: of the noise model.
    """

    felt: NDArray[np.float32]
    posterior: NDArray[np.float32]
    lapse: float


def gains_of_pairs(
    tables: HeadTables,
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    memory: int,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield information gains (n, q) of all heads over the pairs of feet first < second, a block of pairs at a time.

    Yields where the block starts and its gains, −inf where the head is one of the feet; the array is reused. `stop`
    is called before each block. `memory` bounds the work arrays, in bytes.

    With g = u_first − u_second and z = exp(g): P = 1/(1 + z) and H₂(P) = log(1 + z) − g (1 − P), one exponential, one
    logarithm and one division a number for every noise model. (log1p would be the same number and is not vectorised.)
    """
    n, places = tables.felt.shape
    largest = max(n, places)
    size = max(1, min(_CHUNK // largest, memory // (_ENTRY_BYTES * largest), len(first)))
    work = np.empty((3, size, places), dtype=np.float32)
    products = np.empty((2, n, size), dtype=np.float32)
    clip = bool(np.ptp(tables.felt, axis=0).max(initial=0) > _CERTAIN)
    for start in range(0, len(first), size):
        if stop is not None and stop():
            return
        b, c = first[start : start + size], second[start : start + size]
        count = len(b)
        chance, entropy, scratch = work[:, :count]
        np.take(tables.felt, b, axis=0, out=entropy)
        np.take(tables.felt, c, axis=0, out=scratch)
        np.subtract(entropy, scratch, out=scratch)
        if clip:
            np.clip(scratch, -_CERTAIN, _CERTAIN, out=scratch)
        _chance_and_entropy(scratch, tables.lapse, chance, entropy)
        gain, expected = (np.ndarray((n, count), np.float32, product) for product in products)
        np.matmul(tables.posterior, entropy.T, out=expected)
        np.matmul(tables.posterior, chance.T, out=gain)
        _entropy_less(gain, expected)
        columns = np.arange(count)
        gain[b, columns] = -np.inf
        gain[c, columns] = -np.inf
        yield start, gain


def _chance_and_entropy(
    odds: NDArray[np.float32], lapse: float, chance: NDArray[np.float32], entropy: NDArray[np.float32]
) -> None:
    """Write P = σ(−odds), with lapses if there are any, and H₂(P); `odds` is overwritten."""
    np.exp(odds, out=chance)
    chance += 1
    if lapse == 0:
        np.log(chance, out=entropy)
        np.reciprocal(chance, out=chance)
        entropy -= odds
        odds *= chance
        entropy += odds
        return
    np.divide(1 - 2 * lapse, chance, out=chance)
    chance += lapse
    np.log(chance, out=entropy)
    entropy *= chance
    np.subtract(1, chance, out=odds)
    # (1 − p) log(1 − p) in the space of `odds` needs its own factor: 1 − p is taken twice.
    np.log(odds, out=odds)
    odds *= 1 - chance
    entropy += odds
    np.negative(entropy, out=entropy)


def _entropy_less(chance: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Turn `chance` into H₂(chance) − expected, in place; `expected` is overwritten."""
    np.clip(chance, _SMALLEST_CHANCE, 1 - _SMALLEST_CHANCE, out=chance)
    logarithm = np.log(chance)
    logarithm *= chance
    expected += logarithm
    np.subtract(1, chance, out=chance)
    np.log(chance, out=logarithm)
    chance *= logarithm
    chance += expected
    np.negative(chance, out=chance)
