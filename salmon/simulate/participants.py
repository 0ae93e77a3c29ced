"""People who answer: they look, sometimes do not, lean to one side, and take their time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from salmon.errors import SalmonError
from salmon.simulate.worlds import World

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reaction:
    """The foot that was judged nearer, and how long it took."""

    winner: int
    rt_ms: float


@dataclass(frozen=True)
class Participant:
    """One person in a world. Randomness comes with each call: give every person a stream (seed, "answers", person).

    `lapse` is the share of trials answered without looking; `side_bias` says where such answers go (−1 always left,
    0 either, 1 always right). Response times are log-normal: the median of an easy query is `median_ms`, a coin's
    throw takes `hard_factor` times as long, and `spread` is the standard deviation of the logarithm.
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
        """(q,) chance of answering left, for (q, 3) rows [head, left, right]."""
        looking = self.world.first_wins(queries)
        return (1.0 - self.lapse) * looking + self.lapse * 0.5 * (1.0 - self.side_bias)

    def react(self, head: int, left: int, right: int, rng: np.random.Generator) -> Reaction:
        """Answer one served query."""
        triplets, rt_ms = self.react_all([(head, left, right)], rng)
        return Reaction(int(triplets[0, 1]), float(rt_ms[0]))

    def react_all(self, queries: ArrayLike, rng: np.random.Generator) -> tuple[NDArray[np.int32], Floats]:
        """Answer (q, 3) rows [head, left, right]: triplets (q, 3) [head, winner, loser] and response times (q,) in ms."""
        rows = np.asarray(queries, dtype=np.int32)
        goes_left = rng.random(len(rows)) < self.left_wins(rows)
        triplets = np.where(goes_left[:, None], rows, rows[:, [0, 2, 1]]).astype(np.int32)
        return triplets, self._response_ms(self.world.first_wins(rows), rng)

    def _response_ms(self, chances: Floats, rng: np.random.Generator) -> Floats:
        """A query whose answer is sure has difficulty 0, a coin's throw has 1; the log of the time rises with it."""
        difficulty = 1.0 - np.abs(2.0 * chances - 1.0)
        centre = np.log(self.median_ms) + difficulty * np.log(self.hard_factor)
        return np.exp(centre + self.spread * rng.normal(size=len(chances)))
