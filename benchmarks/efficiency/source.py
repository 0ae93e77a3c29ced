"""Variants of the published search: how many queries are scored, and which heads and which order win.

Sievert (2021), chapter 4 and appendix E. All of them embed and judge answers as the published ARR does; only what is
asked differs.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from salmon.samplers.arr import ARR
from salmon.samplers.state import Round, State, chosen_round, random_round
from salmon.search import Ranked, exact_search

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class PublishedSearch:
    """Information gain over all queries, or over random ones only, with heads by gain or at random.

    `heads` = "gain": each question is the most informative of `search_length` random queries, whatever its head
    (greedy-k; all queries if None). `heads` = "random": `search_length` random queries are scored once a round, and
    each question is the best of a random head (ARR-k). `by_gain` posts the best query of every head most informative
    first.
    """

    heads: str
    search_length: int | None = None
    by_gain: bool = False
    embedding: ARR = field(default_factory=lambda: ARR(R=1))

    def start(self, n: int, seed: int) -> State:
        """As the published sampler."""
        return self.embedding.start(n, seed)

    def refit(self, state: State, triplets: Ints) -> State:
        """As the published sampler."""
        return self.embedding.refit(state, triplets)

    def search(self, state: State, triplets: Ints, pending: Ints, count: int) -> Round:
        """`count` queries, by the rules of the class."""
        del pending  # the published search does not know what it has asked
        if len(triplets) < self.embedding.R * state.n:
            return random_round(state, count)
        rng = state.generator(5)
        ranked = all_ranked(self.embedding, state, triplets)
        choose = self._greedy if self.heads == "gain" else self._round_robin
        places = choose(ranked, count, rng)
        return chosen_round(state, ranked.queries[places], ranked.scores[places], exact=True, complete=True)

    def _greedy(self, ranked: Ranked, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if self.search_length is None:
            return np.arange(count)
        # Queries stand best first: of those drawn, the one with the smallest place is the most informative.
        return rng.integers(len(ranked.queries), size=(count, self.search_length)).min(axis=1)

    def _round_robin(self, ranked: Ranked, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        total = len(ranked.queries)
        drawn = (
            np.arange(total) if self.search_length is None else np.sort(rng.integers(total, size=self.search_length))
        )
        _, first = np.unique(ranked.queries[drawn, 0], return_index=True)
        best = drawn[np.sort(first)]
        if self.by_gain:
            return best[np.arange(count) % len(best)]
        laps = -(-count // len(best))
        return np.concatenate([rng.permutation(best) for _ in range(laps)])[:count]


def all_ranked(sampler: ARR, state: State, triplets: Ints) -> Ranked:
    """Every query there is, most informative first."""
    pairs = (state.n - 1) * (state.n - 2) // 2
    return exact_search(state.coordinates, triplets, sampler.model, pairs, log_posterior=state.log_posterior)
