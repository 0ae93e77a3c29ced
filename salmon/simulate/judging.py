"""How good an embedding is when the truth is known, exactly: over all queries, not over a sample of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from salmon.simulate.worlds import World

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judge:
    """Both measures of an embedding, with all that the world alone decides worked out once.

    `chances` (n, n, n) float32 holds at [h, b, c] the chance that b is judged nearer to h than c; `ranks` (n, n) how many
    other targets are truly nearer to h than b. Memory is n³ · 4 bytes: 108 MB at n = 300.
    """

    chances: NDArray[np.float32]
    ranks: NDArray[np.int64]

    @classmethod
    def of(cls, world: World) -> "Judge":
        """The judge of one world."""
        chances = np.empty((world.n, world.n, world.n), dtype=np.float32)
        ranks = np.empty((world.n, world.n), dtype=np.int64)
        for head in range(world.n):
            distances = world.distances(head)
            chances[head] = world.judgement.first_wins(distances[:, None], distances[None, :])
            others = np.delete(distances, head)
            ranks[head] = np.searchsorted(np.sort(others), distances, side="left")
        return cls(chances, ranks)

    def accuracy(self, coordinates: Floats) -> float:
        """Expected share of fresh noisy answers that agree with an embedding (n, d), over all queries.

        Feet at equal distances in the embedding count one half. Between 1 − Bayes accuracy and Bayes accuracy.
        """
        n = len(coordinates)
        total = 0.0
        for head in range(n):
            d2 = np.sum((coordinates - coordinates[head]) ** 2, axis=1)
            nearer = np.sign(d2[None, :] - d2[:, None])
            agreement = 0.5 + nearer * (self.chances[head] - 0.5)
            mask = np.arange(n) != head
            total += float(agreement[np.ix_(mask, mask)].sum() - 0.5 * (n - 1))
        # Both orders of the feet were counted, and they agree: the chances of b and c add up to one.
        return total / (n * (n - 1) * (n - 2))

    def neighbour_rank_error(self, coordinates: Floats) -> float:
        """Mean over heads of how many targets are truly nearer than the embedding's nearest neighbour; 0 is perfect."""
        d2 = np.sum((coordinates[:, None, :] - coordinates[None, :, :]) ** 2, axis=2)
        np.fill_diagonal(d2, np.inf)
        nearest = d2.argmin(axis=1)
        return float(self.ranks[np.arange(len(d2)), nearest].mean())


def bayes_accuracy(world: World) -> float:
    """The accuracy of the truth itself: mean over all queries of the chance of the likelier answer."""
    total = 0.0
    for head in range(world.n):
        distances = np.delete(world.distances(head), head)
        chance = world.judgement.first_wins(distances[:, None], distances[None, :])
        np.fill_diagonal(chance, 0.0)
        total += float(np.triu(np.maximum(chance, 1.0 - chance), k=1).sum())
    return total / (world.n * (world.n - 1) * (world.n - 2) / 2)
