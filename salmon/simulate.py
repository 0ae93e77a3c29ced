"""Simulate experiments: worlds of targets whose true positions are known, and participants who answer in them.

A world is a set of true positions and a `ChoiceModel`: the probability that one foot is judged nearer to the head than
the other, given both true distances. `Judge` measures how good an embedding is when the truth is known, exactly: over
all queries, not over a sample of them. `SimulatedParticipant` sometimes answers without looking, may prefer a side,
and takes time to respond.

Randomness is drawn by name (`stream`): one seed gives each purpose a stream of its own. A true embedding and the start
of a fit that are drawn from the same numbers *are the same embedding*: the fit would begin at the solution, and every
figure measured with it would be worthless. Streams with different names never meet.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from salmon.errors import SalmonError
from salmon.noise import TSTE, NoiseModel
from salmon.samplers.state import random_queries

__all__ = [
    "EGG_COUNTS",
    "STREAMS",
    "ChoiceModel",
    "DistanceLogistic",
    "Judge",
    "RatioSigmoid",
    "Reaction",
    "ScaledNoiseModel",
    "SimulatedParticipant",
    "World",
    "bayes_accuracy",
    "clustered_world",
    "egg_world",
    "given_world",
    "logistic_world",
    "noisy_world",
    "random_world",
    "stream",
]

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
#: The purposes, in an order that may only grow: a stream's place in this tuple is part of every recorded result.
STREAMS: tuple[str, ...] = ("truth", "queries", "answers", "start", "sampler", "folds", "judge", "sides")


def stream(seed: int, name: str, *which: int) -> np.random.Generator:
    """Return the generator of one purpose. Equal arguments give equal numbers; any others are independent of them.

    `which` divides a purpose further: ("answers", 7) is the seventh participant.
    """
    if name not in STREAMS:
        raise KeyError(f"There is no stream named {name!r}; the streams are {', '.join(STREAMS)}.")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAMS.index(name), *which)))


class ChoiceModel(Protocol):
    """How distances become answers."""

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """Return the probability that the first foot is judged nearer.

        Both arguments, of any shape, are true distances from the head.
        """
        ...


@dataclass(frozen=True)
class RatioSigmoid:
    """Choices that depend on the ratio of the distances alone, as people judged the alien eggs.

    With r = second/(first + second), the probability is ½ + (1 − 2·error)(σ(slope·(r − ½)) − ½); between feet at equal
    distances a coin decides. (The sigmoid fitted to human answers by Sievert, 2021; answers of Jamieson et al., 2015.)
    """

    slope: float = 17.55473809
    error: float = 0.07074231

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `ChoiceModel`."""
        total = first + second
        # Both feet on the head itself: equal distances, so the ratio is one half.
        ratio = np.divide(second, total, out=np.full(np.shape(total), 0.5), where=total > 0)
        return 0.5 + (1.0 - 2.0 * self.error) * (expit(self.slope * (ratio - 0.5)) - 0.5)


@dataclass(frozen=True)
class DistanceLogistic:
    """σ(slope·(second − first)) of the distances, with a probability `lapse` of the opposite answer at either end."""

    slope: float = 4.0
    lapse: float = 0.03

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `ChoiceModel`."""
        return self.lapse + (1.0 - 2.0 * self.lapse) * expit(self.slope * (second - first))


@dataclass(frozen=True)
class ScaledNoiseModel:
    """Any of the noise models that Salmon fits, with its lapse, on positions stretched by `scale`."""

    model: NoiseModel
    scale: float = 1.0

    def first_wins(self, first: Floats, second: Floats) -> Floats:
        """See `ChoiceModel`."""
        stretched = self.scale**2
        return np.asarray(self.model.probability(stretched * first**2, stretched * second**2), dtype=np.float64)


@dataclass(frozen=True)
class World:
    """Targets at true positions (n, d), and the choice model that turns their distances into answers."""

    name: str
    coordinates: Floats
    choices: ChoiceModel

    @property
    def n(self) -> int:
        """Return the number of targets."""
        return int(self.coordinates.shape[0])

    def distances(self, head: int) -> Floats:
        """Return (n,) true distances of all targets to one head."""
        return np.linalg.norm(self.coordinates - self.coordinates[head], axis=1)

    def first_wins(self, queries: ArrayLike) -> Floats:
        """Return the (q,) probability that the first foot wins, for (q, 3) rows [head, first, second]."""
        rows = np.asarray(queries)
        heads = self.coordinates[rows[:, 0]]
        first = np.linalg.norm(heads - self.coordinates[rows[:, 1]], axis=1)
        second = np.linalg.norm(heads - self.coordinates[rows[:, 2]], axis=1)
        return self.choices.first_wins(first, second)

    def answer(self, queries: ArrayLike, rng: np.random.Generator) -> Ints:
        """Return (q, 3) triplets [head, winner, loser]: one fresh answer to each of (q, 3) queries [head, first,
        second].
        """
        rows = np.asarray(queries, dtype=np.int32)
        first = rng.random(len(rows)) < self.first_wins(rows)
        return np.where(first[:, None], rows, rows[:, [0, 2, 1]]).astype(np.int32)

    def random_queries(self, count: int, rng: np.random.Generator) -> Ints:
        """Return (count, 3) queries [head, foot, foot], uniform over all of them; the feet have no sides yet."""
        return random_queries(self.n, count, rng)


def egg_world(n: int = 30) -> World:
    """Return the alien eggs: n = 30, 90 or 300 things that differ in one physical dimension, always at the same
    places.
    """
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


def given_world(coordinates: ArrayLike, choices: ChoiceModel | None = None, *, name: str = "given") -> World:
    """Return a world of positions (n, d) that are known, for example an embedding fitted to people's answers."""
    positions = np.atleast_2d(np.array(coordinates, dtype=np.float64))
    if len(positions) < 3 or not np.isfinite(positions).all():
        raise SalmonError(
            f"A world needs at least three targets at finite positions; these are {positions.shape}.",
            hint="Pass an (n, d) array without NaN.",
        )
    return World(name, positions, choices or RatioSigmoid())


def random_world(n: int, d: int, seed: int, choices: ChoiceModel | None = None, *, name: str = "random") -> World:
    """Return a world of positions N(0, I)."""
    return given_world(stream(seed, "truth").normal(size=(n, d)), choices, name=name)


def logistic_world(seed: int, n: int = 60) -> World:
    """Return N(0, I) in three dimensions; logistic in the distances, slope 4, lapse 3 %."""
    return random_world(n, 3, seed, DistanceLogistic(), name="logistic")


def noisy_world(seed: int, n: int = 60) -> World:
    """Return N(0, I) in three dimensions; t-STE on six times the positions, lapse 3 %: answers are hard to predict."""
    return random_world(n, 3, seed, _student(), name="noisy")


def clustered_world(seed: int, n: int = 60, *, clusters: int = 6, choices: ChoiceModel | None = None) -> World:
    """Return clusters in two dimensions: target i lies near centre i mod `clusters`.

    Centres are 1.5·N(0, I) and the spread is .25; answers follow t-STE on six times the positions.
    """
    rng = stream(seed, "truth")
    centres = 1.5 * rng.normal(size=(clusters, 2))
    positions = centres[np.arange(n) % clusters] + 0.25 * rng.normal(size=(n, 2))
    return given_world(positions, choices or _student(), name="clusters")


def _student() -> ScaledNoiseModel:
    return ScaledNoiseModel(TSTE(lapse=0.03), scale=6.0)


@dataclass(frozen=True)
class Judge:
    """Measures embeddings against one world; what depends on the world alone is computed once.

    `chances` (n, n, n) float32 holds at [h, b, c] the probability that b is judged nearer to h than c; `ranks` (n, n)
    how many other targets are truly nearer to h than b. Memory is n³ · 4 bytes: 108 MB at n = 300.
    """

    chances: NDArray[np.float32]
    ranks: NDArray[np.int64]

    @classmethod
    def of(cls, world: World) -> "Judge":
        """Return the judge of one world."""
        chances = np.empty((world.n, world.n, world.n), dtype=np.float32)
        ranks = np.empty((world.n, world.n), dtype=np.int64)
        for head in range(world.n):
            distances = world.distances(head)
            chances[head] = world.choices.first_wins(distances[:, None], distances[None, :])
            ranks[head] = np.searchsorted(np.sort(np.delete(distances, head)), distances, side="left")
        return cls(chances, ranks)

    def accuracy(self, coordinates: Floats) -> float:
        """Return the expected share of fresh noisy answers that agree with an embedding (n, d), over all queries.

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
        """Return how many targets are truly nearer than the embedding's nearest neighbour, averaged over heads.

        0 is perfect.
        """
        d2 = np.sum((coordinates[:, None, :] - coordinates[None, :, :]) ** 2, axis=2)
        np.fill_diagonal(d2, np.inf)
        return float(self.ranks[np.arange(len(d2)), d2.argmin(axis=1)].mean())


def bayes_accuracy(world: World) -> float:
    """Return the accuracy of the truth itself: the mean over all queries of the probability of the likelier answer."""
    total = 0.0
    for head in range(world.n):
        distances = np.delete(world.distances(head), head)
        chance = world.choices.first_wins(distances[:, None], distances[None, :])
        np.fill_diagonal(chance, 0.0)
        total += float(np.triu(np.maximum(chance, 1.0 - chance), k=1).sum())
    return total / (world.n * (world.n - 1) * (world.n - 2) / 2)


@dataclass(frozen=True)
class Reaction:
    """The foot that was judged nearer, and the response time."""

    winner: int
    rt_ms: float


@dataclass(frozen=True)
class SimulatedParticipant:
    """One person in a world. Randomness comes with each call: give every person a stream (seed, "answers", person).

    `lapse` is the share of trials answered without looking; `side_bias` says on which side such answers fall (−1
    always left, 0 either, 1 always right). Response times are log-normal: the median of an easy query is `median_ms`,
    a query that a coin might decide takes `hard_factor` times as long, and `spread` is the standard deviation of the
    logarithm.
    """

    world: World
    lapse: float = 0.0
    side_bias: float = 0.0
    median_ms: float = 1400.0
    hard_factor: float = 1.8
    spread: float = 0.45

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value} and must lie between {low} and {high}."
            for name, value, low, high in (
                ("lapse", self.lapse, 0, 1),
                ("side_bias", self.side_bias, -1, 1),
                ("median_ms", self.median_ms, 1, 3_600_000),
                ("hard_factor", self.hard_factor, 1, 100),
                ("spread", self.spread, 0, 5),
            )
            if not low <= value <= high
        ]
        if problems:
            raise SalmonError("\n".join(problems), where="participant")

    def left_wins(self, queries: ArrayLike) -> Floats:
        """Return the (q,) probability of answering left, for (q, 3) rows [head, left, right]."""
        looking = self.world.first_wins(queries)
        return (1.0 - self.lapse) * looking + self.lapse * 0.5 * (1.0 - self.side_bias)

    def react(self, head: int, left: int, right: int, rng: np.random.Generator) -> Reaction:
        """Answer one served query."""
        triplets, rt_ms = self.react_all([(head, left, right)], rng)
        return Reaction(int(triplets[0, 1]), float(rt_ms[0]))

    def react_all(self, queries: ArrayLike, rng: np.random.Generator) -> tuple[NDArray[np.int32], Floats]:
        """Answer (q, 3) rows [head, left, right]: triplets (q, 3) [head, winner, loser]
        and response times (q,) in ms.
        """
        rows = np.asarray(queries, dtype=np.int32)
        goes_left = rng.random(len(rows)) < self.left_wins(rows)
        triplets = np.where(goes_left[:, None], rows, rows[:, [0, 2, 1]]).astype(np.int32)
        return triplets, self._response_ms(self.world.first_wins(rows), rng)

    def _response_ms(self, chances: Floats, rng: np.random.Generator) -> Floats:
        """Return response times: the logarithm rises with the difficulty, from 0 (a certain answer) to 1 (a coin)."""
        difficulty = 1.0 - np.abs(2.0 * chances - 1.0)
        centre = np.log(self.median_ms) + difficulty * np.log(self.hard_factor)
        return np.exp(centre + self.spread * rng.normal(size=len(chances)))
