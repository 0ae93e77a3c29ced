"""Rank all queries of every head, by information gain or by the uncertainty of the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError
from salmon.geometry import Coordinates
from salmon.learning import Triplets, check_triplets
from salmon.noise import NoiseModel, noise_model
from salmon.parallel import Executor
from salmon.search.information import (
    HeadTables,
    binary_entropy,
    gains_of_pairs,
    head_posterior,
    normalise,
    remoteness_table,
)

# Above this many targets a full pass takes longer than anybody waits for a question.
LARGEST_EXACT = 1_000
# Operations of a full pass at that size: what the cheaper mode may spend as well.
_BUDGET = 2 * LARGEST_EXACT**4
# Below this many targets one core has searched before a cluster's messages come back.
_WORTH_SENDING = 200
# Pieces a worker: some end early, and a newer answer cuts short what has not begun.
_PIECES = 4


@dataclass(frozen=True)
class Ranked:
    """Queries, best first.

    `queries` (k, 3) int32 [head, foot, foot] and their `scores` (k,). `exact` is False where only a sample of the
    queries was scored; `complete` is False where the search was cut short.
    """

    queries: NDArray[np.int32]
    scores: NDArray[np.float64]
    exact: bool
    complete: bool


def exact_search(
    coordinates: ArrayLike,
    triplets: ArrayLike,
    noise: str | NoiseModel = "TSTE",
    keep: int = 1,
    executor: Executor | None = None,
    *,
    lapse: float | None = None,
    memory: int = 256_000_000,
    stop: Callable[[], bool] | None = None,
    seed: int = 0,
    log_posterior: ArrayLike | None = None,
) -> Ranked:
    """Return the `keep` queries of each head with the highest information gain, over all queries, best first.

    Up to 1,000 targets every query of every head is scored. Above, the heads' posteriors are spread over 1,000 places
    drawn with `seed`, and as many pairs of feet are drawn as the work of 1,000 targets allows: each head gets the best
    of its share, and `exact` says False. `memory` bounds the work arrays of each worker, in bytes. `stop` is called
    between blocks (with an executor: as pieces come in); what was found until then is returned, `complete` False. A
    `log_posterior` (n, n) takes the place of what the triplets say about where heads lie.
    """
    placed = np.array(coordinates, dtype=np.float64)
    if keep < 1:
        raise SalmonError(f"keep is {keep}, which returns no queries.", hint="Give 1 or more.", where="keep")
    rows = check_triplets(triplets, len(placed))
    tables, first, second, exact = _prepare(placed, rows, noise_model(noise, lapse=lapse), seed, log_posterior)
    if executor is None or executor.workers == 1 or len(placed) < _WORTH_SENDING:
        best, done = _best_of_pairs(tables, first, second, keep, memory, stop)
    else:
        best, done = _spread(executor, tables, first, second, keep, memory, stop)
    scores, pairs = best
    heads = np.broadcast_to(np.arange(len(placed))[:, None], scores.shape)
    queries = np.stack([heads, first[np.maximum(pairs, 0)], second[np.maximum(pairs, 0)]], axis=2).reshape(-1, 3)
    flat = scores.ravel()
    order = np.argsort(-flat, kind="stable")[: int(np.isfinite(flat).sum())]
    return Ranked(
        queries=queries[order].astype(np.int32),
        scores=np.clip(flat[order].astype(np.float64), 0, np.log(2)),
        exact=exact,
        complete=done,
    )


def _prepare(
    placed: Coordinates, rows: Triplets, model: NoiseModel, seed: int, log_posterior: ArrayLike | None
) -> tuple[HeadTables, NDArray[np.int32], NDArray[np.int32], bool]:
    n = len(placed)
    exact = n <= LARGEST_EXACT
    if exact:
        places = None
        first, second = (side.astype(np.int32) for side in np.triu_indices(n, 1))
    else:
        generator = np.random.default_rng(seed)
        places = np.sort(generator.choice(n, LARGEST_EXACT, replace=False))
        count = max(n, _BUDGET // (4 * n * LARGEST_EXACT))
        drawn = np.sort(generator.integers(0, n, (count, 2), dtype=np.int32), axis=1)
        drawn = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
        first, second = drawn[:, 0].copy(), drawn[:, 1].copy()
    if log_posterior is None:
        posterior = head_posterior(rows, placed, model, places)
    else:
        known = np.asarray(log_posterior, dtype=np.float64)
        posterior = normalise(known if places is None else known[:, places])
    tables = HeadTables(
        felt=remoteness_table(placed, model, places).astype(np.float32),
        posterior=posterior.astype(np.float32),
        lapse=model.lapse,
    )
    return tables, first, second, exact


Best = tuple[NDArray[np.float32], NDArray[np.int64]]


def _best_of_pairs(
    tables: HeadTables,
    first: NDArray[Any],
    second: NDArray[Any],
    keep: int,
    memory: int,
    stop: Callable[[], bool] | None = None,
    offset: int = 0,
) -> tuple[Best, bool]:
    """Return scores and pair numbers (n, keep) of the best pairs, −inf and −1 if there are fewer, and whether all were
    seen.
    """
    n = len(tables.felt)
    best = np.full((n, keep), -np.inf, dtype=np.float32), np.full((n, keep), -1, dtype=np.int64)
    seen = 0
    for start, gains in gains_of_pairs(tables, first, second, memory=memory, stop=stop):
        best = _better(best, gains, start + offset)
        seen = start + gains.shape[1]
    return best, seen == len(first)


def _better(best: Best, gains: NDArray[np.float32], start: int) -> Best:
    """Merge the best so far with a block of gains (n, q) whose pairs are numbered from `start`."""
    n, keep = best[0].shape
    if keep == 1:
        column = gains.argmax(axis=1)
        score = gains[np.arange(n), column]
        # Strictly better only: of equal queries the first stays, whatever the size of the blocks.
        wins = score > best[0][:, 0]
        return np.where(wins, score, best[0][:, 0])[:, None], np.where(wins, column + start, best[1][:, 0])[:, None]
    numbers = np.arange(start, start + gains.shape[1])
    if gains.shape[1] > keep:
        chosen = np.argpartition(gains, -keep, axis=1)[:, -keep:]
        gains, numbers = np.take_along_axis(gains, chosen, axis=1), numbers[chosen]
    return _merge(best, (gains, np.broadcast_to(numbers, gains.shape)))


def _merge(one: Best, other: Best) -> Best:
    scores = np.concatenate([one[0], other[0]], axis=1)
    pairs = np.concatenate([one[1], other[1]], axis=1)
    chosen = np.lexsort((pairs, -scores), axis=1)[:, : one[0].shape[1]]
    return np.take_along_axis(scores, chosen, axis=1), np.take_along_axis(pairs, chosen, axis=1)


def _spread(
    executor: Executor,
    tables: HeadTables,
    first: NDArray[Any],
    second: NDArray[Any],
    keep: int,
    memory: int,
    stop: Callable[[], bool] | None,
) -> tuple[Best, bool]:
    placed = executor.scatter(tables)
    n, pieces = len(tables.felt), min(_PIECES * executor.workers, len(first))
    edges = np.linspace(0, len(first), pieces + 1).astype(int)
    tasks = [
        executor.submit(_best_of_pairs, placed, first[start:end], second[start:end], keep, memory, None, int(start))
        for start, end in pairwise(edges)
    ]
    best = np.full((n, keep), -np.inf, dtype=np.float32), np.full((n, keep), -1, dtype=np.int64)
    seen = 0
    for task in executor.as_completed(tasks):
        best = _merge(best, task.result()[0])
        seen += 1
        if seen < pieces and stop is not None and stop():
            for waiting in tasks:
                waiting.cancel()
            break
    return best, seen == pieces


def uncertain_search(
    coordinates: ArrayLike, noise: str | NoiseModel = "TSTE", keep: int = 1, *, lapse: float | None = None
) -> Ranked:
    """Return the `keep` queries of each head whose probability is nearest one half, over all queries, best first.

    Scored by H₂(p), in nats (Lewis and Gale 1994, uncertainty sampling). It falls with the difference of the feet's
    remoteness, so it is enough to sort the feet of a head: a pair r places apart holds r(r+1)/2 − 1 pairs that are no
    worse, so only r(r+1)/2 ≤ keep can be among the best.
    """
    placed = np.array(coordinates, dtype=np.float64)
    n = len(placed)
    if keep < 1:
        raise SalmonError(f"keep is {keep}, which returns no queries.", hint="Give 1 or more.", where="keep")
    model = noise_model(noise, lapse=lapse)
    felt = remoteness_table(placed, model).T.copy()
    np.fill_diagonal(felt, -np.inf)
    # The head itself sorts first and is dropped.
    order = np.argsort(felt, axis=1, kind="stable")[:, 1:]
    ranked = np.take_along_axis(felt, order, axis=1)
    spans = range(1, min(n - 2, int((np.sqrt(8 * keep + 1) - 1) / 2)) + 1)
    gap = np.concatenate([ranked[:, apart:] - ranked[:, :-apart] for apart in spans], axis=1)
    first = np.concatenate([order[:, :-apart] for apart in spans], axis=1)
    second = np.concatenate([order[:, apart:] for apart in spans], axis=1)
    chosen = np.argsort(gap, axis=1, kind="stable")[:, :keep]
    heads = np.broadcast_to(np.arange(n)[:, None], chosen.shape)
    feet = np.take_along_axis(first, chosen, axis=1), np.take_along_axis(second, chosen, axis=1)
    queries = np.stack([heads, np.minimum(*feet), np.maximum(*feet)], axis=2).reshape(-1, 3)
    scores = binary_entropy(model.choice(np.take_along_axis(gap, chosen, axis=1).ravel()))
    best = np.argsort(-scores, kind="stable")
    return Ranked(
        queries=check_triplets(queries[best], n),
        scores=np.asarray(scores[best], dtype=np.float64),
        exact=True,
        complete=True,
    )
