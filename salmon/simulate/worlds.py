"""True embeddings, and how likely a person is to answer rightly in them.

A world is a set of positions and a judgement: the chance that one foot is judged nearer to the head than the other,
given both true distances. Positions come from the named stream "truth" and from nowhere else.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from salmon.errors import SalmonError
from salmon.noise import TSTE, NoiseModel
from salmon.samplers.active.state import random_queries
from salmon.simulate.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

#: Smoothness of the thirty alien eggs that people judged.
_EGGS_30 = (
    *(22, 36, 50, 74, 76, 112, 114, 126, 142, 152, 184, 194, 200, 208, 220),
    *(254, 256, 312, 322, 326, 414, 420, 430, 438, 454, 470, 494, 524, 526, 572),
)
#: Seed and number of the eggs that are added to reach the next size, among 600 degrees of smoothness.
_EGGS_ADDED = {90: ((90, 60),), 300: ((90, 60), (180, 90), (300, 120))}
#: The sizes of the egg world.
EGG_COUNTS = (30, 90, 300)


class Judgement(Protocol):
    """How distances become answers."""

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """Chance (any shape) that the first foot is judged nearer, from both feet's true distances to the head."""
        ...


@dataclass(frozen=True)
class RatioSigmoid:
    """Only the ratio of the distances counts, as people judged the alien eggs.

    With r = second/(first + second), the chance is ½ + (1 − 2·error)(σ(slope·(r − ½)) − ½); feet at equal distances
    are a coin's throw. (The sigmoid fitted to human answers by Sievert, 2021; answers of Jamieson et al., 2015.)
    """

    slope: float = 17.55473809
    error: float = 0.07074231

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `Judgement`."""
        total = first + second
        # Both feet on the head itself: equal distances, so the ratio is one half.
        ratio = np.divide(second, total, out=np.full(np.shape(total), 0.5), where=total > 0)
        return 0.5 + (1.0 - 2.0 * self.error) * (expit(self.slope * (ratio - 0.5)) - 0.5)


@dataclass(frozen=True)
class DistanceLogistic:
    """σ(slope·(second − first)) of the distances, with a chance `lapse` of the opposite answer at either end."""

    slope: float = 4.0
    lapse: float = 0.03

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `Judgement`."""
        return self.lapse + (1.0 - 2.0 * self.lapse) * expit(self.slope * (second - first))


@dataclass(frozen=True)
class ModelJudgement:
    """Any of the noise models that Salmon fits, with its lapse, on positions stretched by `scale`."""

    model: NoiseModel
    scale: float = 1.0

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `Judgement`."""
        stretched = self.scale**2
        return np.asarray(self.model.probability(stretched * first**2, stretched * second**2), dtype=np.float64)


@dataclass(frozen=True)
class World:
    """Targets at true positions (n, d), and the judgement that turns their distances into answers."""

    name: str
    coordinates: Floats
    judgement: Judgement

    @property
    def n(self) -> int:
        """How many targets there are."""
        return int(self.coordinates.shape[0])

    def distances(self, head: int) -> Floats:
        """(n,) true distances of all targets to one head."""
        return np.linalg.norm(self.coordinates - self.coordinates[head], axis=1)

    def first_wins(self, queries: ArrayLike) -> Floats:
        """(q,) chance that the first foot wins, for (q, 3) rows [head, first, second]."""
        rows = np.asarray(queries)
        heads = self.coordinates[rows[:, 0]]
        first = np.linalg.norm(heads - self.coordinates[rows[:, 1]], axis=1)
        second = np.linalg.norm(heads - self.coordinates[rows[:, 2]], axis=1)
        return self.judgement.first_wins(first, second)

    def answer(self, queries: ArrayLike, rng: np.random.Generator) -> Ints:
        """(q, 3) triplets [head, winner, loser]: one fresh answer to each of (q, 3) queries [head, first, second]."""
        rows = np.asarray(queries, dtype=np.int32)
        first = rng.random(len(rows)) < self.first_wins(rows)
        return np.where(first[:, None], rows, rows[:, [0, 2, 1]]).astype(np.int32)

    def random_queries(self, count: int, rng: np.random.Generator) -> Ints:
        """(count, 3) queries [head, foot, foot], uniform over all of them; the feet have no sides yet."""
        return random_queries(self.n, count, rng)


def egg_world(n: int = 30) -> World:
    """The alien eggs: n = 30, 90 or 300 things that differ in one physical dimension, always at the same places."""
    if n not in EGG_COUNTS:
        raise SalmonError(
            f"There is no egg world of {n} targets.", hint=f"Choose one of {', '.join(map(str, EGG_COUNTS))}."
        )
    eggs = sorted(_EGGS_30)
    for seed, count in _EGGS_ADDED.get(n, ()):
        free = [smoothness for smoothness in range(600) if smoothness not in set(eggs)]
        # The legacy generator is the definition of these worlds: published figures were measured on its draws.
        legacy = np.random.RandomState(seed)
        eggs = sorted([*eggs, *(int(egg) for egg in legacy.choice(free, count, replace=False))])
    return World(f"eggs-{n}", np.array(eggs, dtype=np.float64)[:, None], RatioSigmoid())


def given_world(coordinates: ArrayLike, judgement: Judgement | None = None, *, name: str = "given") -> World:
    """Positions (n, d) that are known, for example an embedding fitted to people's answers."""
    positions = np.atleast_2d(np.array(coordinates, dtype=np.float64))
    if len(positions) < 3 or not np.isfinite(positions).all():
        raise SalmonError(
            f"A world needs at least three targets at finite positions; these are {positions.shape}.",
            hint="Pass an (n, d) array without NaN.",
        )
    return World(name, positions, judgement or RatioSigmoid())


def random_world(n: int, d: int, seed: int, judgement: Judgement | None = None, *, name: str = "random") -> World:
    """Positions N(0, I)."""
    return given_world(stream(seed, "truth").normal(size=(n, d)), judgement, name=name)


def logistic_world(seed: int, n: int = 60) -> World:
    """N(0, I) in three dimensions; logistic in the distances, slope 4, lapse 3 %."""
    return random_world(n, 3, seed, DistanceLogistic(), name="logistic")


def noisy_world(seed: int, n: int = 60) -> World:
    """N(0, I) in three dimensions; t-STE on six times the positions, lapse 3 %: answers are hard to predict."""
    return random_world(n, 3, seed, _student(), name="noisy")


def clustered_world(seed: int, n: int = 60, *, clusters: int = 6, judgement: Judgement | None = None) -> World:
    """Two dimensions, target i near centre i mod `clusters`: centres 1.5·N(0, I), spread .25; t-STE on six times it."""
    rng = stream(seed, "truth")
    centres = 1.5 * rng.normal(size=(clusters, 2))
    positions = centres[np.arange(n) % clusters] + 0.25 * rng.normal(size=(n, 2))
    return given_world(positions, judgement or _student(), name="clusters")


def _student() -> ModelJudgement:
    return ModelJudgement(TSTE(lapse=0.03), scale=6.0)
