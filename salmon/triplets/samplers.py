"""The samplers of the first Salmon under their names, for simulations offline: `get_queries`, `process_answers`,
`score`.

They are built on today's samplers. A query is a dict of head, left and right; an answer has its winner beside them.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.geometry import Coordinates
from salmon.records import NO_SCORE
from salmon.samplers import passive
from salmon.samplers.arr import ARR as TODAYS_ARR
from salmon.samplers.arr import RankingSampler
from salmon.samplers.passive import PassiveSampler, fallback
from salmon.samplers.registry import active_sampler

Query = dict[str, int]
#: Queries that a search gives where nobody says how many.
_MANY = 4096


class Adaptive:
    """Ranks all queries by what an embedding of the answers so far says about them; heads of the best come first."""

    _name = "ARR"

    def __init__(
        self,
        *,
        n: int,
        d: int = 2,
        ident: str = "",
        R: float = 10,
        random_state: int | None = None,
        n_search: int = 0,
        **arguments: Any,
    ) -> None:
        self.n, self.d, self.R, self.ident = n, d, R, ident
        self.n_search = n_search
        sampler = active_sampler(self._name, {"d": d, "R": R, **arguments})
        self._sampler = cast("RankingSampler", sampler)
        self._random = random.Random(random_state)
        self._state = sampler.start(n, self._random.getrandbits(32))
        self._rows: list[tuple[int, int, int]] = []

    @property
    def embedding_(self) -> Coordinates:
        """Return (n, d) coordinates; a copy."""
        return self._state.coordinates.copy()

    def get_query(self) -> tuple[Query | None, float]:
        """Return (a random query, -9999) until R·n answers are in; then (None, -9999): `get_queries` has the best."""
        if len(self._rows) <= self.R * self.n:
            return self._random_query(), NO_SCORE
        return None, NO_SCORE

    def get_queries(
        self, num: int | None = None, stop: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], dict[str, Any]]:
        """Return ((q, 3) queries [head, foot, foot], their (q,) scores, figures), best first.

        `stop.is_set()` ends the search.
        """
        wanted = int(num or self.n_search or _MANY)
        keep = max(1, -(-wanted // self.n))
        found = self._sampler.rank(self._state, self._triplets(), keep, None, None if stop is None else stop.is_set)
        return found.queries[:wanted].astype(np.int64), found.scores[:wanted], {"exact": found.exact}

    def process_answers(self, answers: Sequence[Mapping[str, Any]]) -> tuple[Self, bool]:
        """Add answers and refit; return (the sampler, True)."""
        for answer in answers:
            head, left, right, winner = (int(answer[name]) for name in ("head", "left", "right", "winner"))
            self._rows.append((head, winner, right if winner == left else left))
        if self._rows:
            self._state = self._sampler.refit(self._state, self._triplets())
        return self, True

    def get_model(self) -> dict[str, Any]:
        """Return the embedding, and what it was made of."""
        return {
            "embedding": self._state.coordinates.tolist(),
            "num_ans": len(self._rows),
            "model_updates": self._state.generation,
            "n": self.n,
            "d": self.d,
            "R": self.R,
        }

    def predict(self, X: ArrayLike, embedding: ArrayLike | None = None) -> NDArray[np.uint8]:
        """Return (m,) 0 where the left target of rows [head, left, right] lies nearer, 1 where the right one does."""
        rows = np.asarray(X).astype(np.int64)
        placed = self._state.coordinates if embedding is None else np.asarray(embedding, dtype=np.float64)
        head, left, right = (placed[rows[:, place]] for place in range(3))
        return (((head - right) ** 2).sum(axis=1) < ((head - left) ** 2).sum(axis=1)).astype(np.uint8)

    def score(self, X: ArrayLike, y: ArrayLike, embedding: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of answers (0 left, 1 right) that are predicted. Larger is better."""
        return float((self.predict(X, embedding) == np.asarray(y)).mean())

    def _triplets(self) -> NDArray[np.int32]:
        return np.array(self._rows, dtype=np.int32).reshape(-1, 3)

    def _random_query(self) -> Query:
        query = fallback(self.n, participant=self.ident, turn=self._random.getrandbits(30), seed=0)[0]
        return {"head": query.head, "left": query.feet[0], "right": query.feet[1]}


class TSTE(Adaptive):
    """t-distributed stochastic triplet embedding (van der Maaten and Weinberger 2012)."""

    _name = "TSTE"


class STE(Adaptive):
    """Stochastic triplet embedding (van der Maaten and Weinberger 2012)."""

    _name = "STE"


class CKL(Adaptive):
    """Crowd kernel learning (Tamuz and others 2011), with μ = 1 unless `mu` says otherwise."""

    _name = "CKL"


class GNMDS(Adaptive):
    """Generalised non-metric multidimensional scaling (Agarwal and others 2007)."""

    _name = "GNMDS"


class SOE(Adaptive):
    """Soft ordinal embedding (Terada and von Luxburg 2014)."""

    _name = "SOE"


class ARR(Adaptive):
    """Asynchronous round robin: each head's `n_top` best queries, in random order."""

    def __init__(self, *, R: float = 1, **arguments: Any) -> None:
        super().__init__(R=R, **arguments)

    def get_queries(
        self, num: int | None = None, stop: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], dict[str, Any]]:
        """Return one round: every head's best, shuffled; as in the first Salmon, the scores only give the order."""
        top = self._sampler.n_top if isinstance(self._sampler, TODAYS_ARR) else 1
        found = self._sampler.rank(self._state, self._triplets(), top, None, None if stop is None else stop.is_set)
        order = list(range(len(found.queries)))
        self._random.shuffle(order)
        order = order[: num or None]
        scores = np.array([self._random.uniform(10, 11) for _ in order])
        return found.queries[order].astype(np.int64), scores, {"exact": found.exact}


class SRR(ARR):
    """Synchronous round robin: the best query of a head that is drawn for each turn."""

    def get_query(self) -> tuple[Query | None, float]:
        """Return (the best query of a random head, its score) once R·n answers are in; random queries before."""
        query, score = super().get_query()
        if query is not None:
            return query, score
        found = self._sampler.rank(self._state, self._triplets(), 1, None, None)
        place = self._random.randrange(len(found.queries))
        head, left, right = (int(target) for target in found.queries[place])
        return {"head": head, "left": left, "right": right}, float(found.scores[place])

    def get_queries(
        self, num: int | None = None, stop: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], dict[str, Any]]:
        """Return nothing: every turn is searched for by itself."""
        del num, stop
        return np.empty((0, 3), dtype=np.int64), np.empty(0), {}


class _Passive:
    """A sampler that learns nothing."""

    def __init__(self, n: int, sampler: PassiveSampler, ident: str, random_state: int | None) -> None:
        self.n, self.ident = n, ident
        self._sampler = sampler
        self._seed = random_state if random_state is not None else random.SystemRandom().getrandbits(32)
        self._turns: dict[str, int] = {}

    def get_query(self, puid: str = "", **_: Any) -> tuple[Query, float]:
        """Return (the next query of this participant, its score)."""
        turn = self._turns.get(puid, 0)
        self._turns[puid] = turn + 1
        query = self._sampler.query(self.n, participant=puid, turn=turn, seed=self._seed)
        return {"head": query.head, "left": query.feet[0], "right": query.feet[1]}, query.score

    def get_queries(
        self, num: int | None = None, stop: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], dict[str, Any]]:
        """Return `num` queries one after the other, and their scores."""
        del stop
        drawn = [self.get_query() for _ in range(num or self.n)]
        rows = [(query["head"], query["left"], query["right"]) for query, _ in drawn]
        return np.array(rows, dtype=np.int64).reshape(-1, 3), np.array([score for _, score in drawn]), {}

    def process_answers(self, answers: Sequence[Mapping[str, Any]]) -> tuple[Self, bool]:
        """Do nothing: a passive sampler learns nothing."""
        del answers
        return self, False


class Random(_Passive):
    """Random queries; `targets` limits them to a subset."""

    def __init__(
        self, n: int, d: int = 2, ident: str = "", targets: Sequence[int] | None = None, random_state: int | None = None
    ) -> None:
        del d
        super().__init__(n, passive.Random(None if targets is None else tuple(targets)), ident, random_state)


class RoundRobin(_Passive):
    """Every target is the head once before any is the head again, for each participant."""

    def __init__(
        self, n: int, d: int = 2, ident: str = "", targets: Sequence[int] | None = None, random_state: int | None = None
    ) -> None:
        del d
        super().__init__(n, passive.RoundRobin(None if targets is None else tuple(targets)), ident, random_state)


class Validation(_Passive):
    """The same queries for everybody, in another order each time round."""

    def __init__(
        self,
        n: int,
        d: int = 2,
        n_queries: int = 20,
        queries: Sequence[Sequence[int]] | None = None,
        ident: str = "",
        random_state: int | None = None,
    ) -> None:
        del d
        fixed = None if queries is None else tuple((int(h), int(a), int(b)) for h, a, b in queries)
        super().__init__(n, passive.Validation(n_queries, fixed), ident, random_state)
