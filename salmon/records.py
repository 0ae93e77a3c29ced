"""Define what travels through the whole system: a query, a served query, and an answer.

Axes are always n (targets), d (dimensions), m (triplets), q (queries), in this order. A target is an index 0..n-1.
"""

from dataclasses import dataclass
from typing import Literal, get_args

#: How a query came to be asked; a `held_out` one is random and compares samplers before anything learns its answer.
#: Only `catch`, `practice` and skipped trials are never triplets.
TrialType = Literal[
    "active", "random", "fallback", "validation", "catch", "repeat", "shared", "fixed", "held_out", "practice"
]
TRIAL_TYPES: tuple[TrialType, ...] = get_args(TrialType)

#: Queries drawn without looking at any answer: accuracy on them is unbiased.
DRAWN_BLINDLY: frozenset[TrialType] = frozenset({"random", "fallback", "held_out"})
#: Queries that come again by chance or on purpose, but not because people disagreed about them: how often their answers
#: agree says how well any embedding could predict.
REPEATABLE: frozenset[TrialType] = frozenset({*DRAWN_BLINDLY, "validation", "repeat", "shared", "fixed"})

#: Trials whose winner is known before, or that are shown for practice: their answers are no triplets.
NO_TRIPLETS: frozenset[TrialType] = frozenset({"catch", "practice"})

#: Answers to these trials are never fitted: `shared` queries are held out for comparisons between people, and a
#: `repeat` would count one person's answer twice.
NEVER_FITTED: frozenset[TrialType] = frozenset({*NO_TRIPLETS, "shared", "repeat"})

#: The score of a query that nobody ranked.
NO_SCORE = -9999.0


@dataclass(frozen=True)
class Query:
    """A head and two feet that can be asked; the feet have no order.

    `probability` is the chance with which the sampler drew this query from what it could have asked (0 = unknown:
    the query was the best by score). `generation` is the refit whose model chose it (0 = none). `left` is the foot that
    stands on the left where that is decided with the query (-1: a coin decides).
    """

    head: int
    feet: tuple[int, int]
    score: float = NO_SCORE
    trial_type: TrialType = "random"
    probability: float = 0.0
    generation: int = 0
    published_ms: int = 0
    left: int = -1

    @property
    def key(self) -> str:
        """Return a text that is the same for the same query, in whichever order its feet are."""
        low, high = sorted(self.feet)
        return f"{self.head},{low},{high}"


@dataclass(frozen=True)
class Served:
    """A query placed left and right and given to one participant: what a token signs.

    `trial` counts from 1 over the queries this participant was given; `served_ms` is Unix time in milliseconds.
    """

    experiment: str
    revision: int
    participant: str
    session: str
    trial: int
    sampler: str
    head: int
    left: int
    right: int
    score: float
    trial_type: TrialType
    probability: float
    sampler_probability: float
    generation: int
    published_ms: int
    served_ms: int
    nonce: str

    @property
    def key(self) -> str:
        """Return the key of the query that was served."""
        low, high = sorted((self.left, self.right))
        return f"{self.head},{low},{high}"


@dataclass(frozen=True)
class Timing:
    """What the page measured, in milliseconds of its monotonic clock; -1 if it could not."""

    rt_ms: float = -1.0
    query_wait_ms: float = -1.0
    onset_client_ms: float = -1.0
    network_latency_ms: float = -1.0
    input: Literal["mouse", "touch", "key", "script", ""] = ""
    sent_attempts: int = 1
    blur_during_trial: bool = False
    viewport_w: int = 0
    viewport_h: int = 0


@dataclass(frozen=True)
class Answer:
    """One line of the log: a served query, the foot judged nearer, and when.

    `received_ms` is the server's clock.
    """

    served: Served
    winner: int
    timing: Timing
    received_ms: int
    signed: bool = True

    @property
    def loser(self) -> int:
        """Return the foot that was not chosen."""
        return self.served.right if self.winner == self.served.left else self.served.left

    @property
    def winner_side(self) -> Literal["left", "right"]:
        """Return on which side of the screen the winner stood."""
        return "left" if self.winner == self.served.left else "right"
