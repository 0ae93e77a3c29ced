"""The queries whose answers the current embedding finds hardest to foretell."""

import numpy as np
from numpy.typing import ArrayLike

from salmon.errors import SalmonError
from salmon.learning import check_triplets
from salmon.noise import NoiseModel, noise_model
from salmon.search.information import binary_entropy, remoteness_table
from salmon.search.ranking import Ranked


def uncertain_search(
    coordinates: ArrayLike, noise: str | NoiseModel = "TSTE", keep: int = 1, *, lapse: float | None = None
) -> Ranked:
    """The `keep` queries of each head whose chance is nearest one half, over all queries, best first.

    Scored by H₂(p), in nats (Lewis and Gale 1994, uncertainty sampling). It falls with the difference of the feet's
    remoteness, so it is enough to sort the feet of a head: a pair r places apart holds r(r+1)/2 − 1 pairs that are no
    worse, so only r(r+1)/2 ≤ keep can be among the best.
    """
    placed = np.array(coordinates, dtype=np.float64)
    n = len(placed)
    if keep < 1:
        raise SalmonError(f"{keep} queries a head are none.", hint="Keep 1 or more.", where="keep")
    model = noise_model(noise, lapse=lapse)
    felt = remoteness_table(placed, model).T.copy()
    np.fill_diagonal(felt, -np.inf)
    # The head itself sorts first and is dropped.
    order = np.argsort(felt, axis=1, kind="stable")[:, 1:]
    ranked = np.take_along_axis(felt, order, axis=1)
    gaps, near, far = [], [], []
    for apart in range(1, min(n - 2, int((np.sqrt(8 * keep + 1) - 1) / 2)) + 1):
        gaps.append(ranked[:, apart:] - ranked[:, :-apart])
        near.append(order[:, :-apart])
        far.append(order[:, apart:])
    gap, first, second = (np.concatenate(parts, axis=1) for parts in (gaps, near, far))
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
