"""Who competes, and by which names the tables call them."""

from collections.abc import Callable
from typing import Any

from benchmarks.efficiency.protocol import Random, Sampler
from benchmarks.efficiency.source import PublishedSearch
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.arr import ARR, Uncertainty

#: Name -> the sampler in d dimensions. ARR R=10 and R=1 are the published sampler.
CONTENDERS: dict[str, Callable[[int], Any]] = {
    "Random": lambda d: Random(d=d),
    "ARR R=10": lambda d: ARR(d=d, R=10),
    "ARR R=1": lambda d: ARR(d=d, R=1),
    "ARR repaired": lambda d: ARR(d=d, R=1, ridge=1.0, fresh_posterior=True),
    "Uncertainty": lambda d: Uncertainty(d=d, R=1),
    "Adaptive": lambda d: Adaptive(d=d),
    "Adaptive, no random share": lambda d: Adaptive(d=d, random_share=0.0),
}
#: Rounds of n answers, about as many as each needs for the highest level of the tables.
ROUNDS = {"Random": 60, "ARR R=10": 40, "ARR R=1": 40, "ARR repaired": 40, "Uncertainty": 36}
OTHER_ROUNDS = 30

#: The published findings: searches of different lengths, with heads by gain and at random.
SEARCHES: dict[str, Callable[[int], Sampler]] = {
    "Random": lambda d: Random(d=d),
    **{
        f"greedy-{k}": lambda d, k=k: PublishedSearch("gain", k, embedding=ARR(d=d, R=1))
        for k in (30, 100, 1000, 10_000)
    },
    "Greedy (all)": lambda d: PublishedSearch("gain", None, embedding=ARR(d=d, R=1)),
    **{
        f"ARR-{k}": lambda d, k=k: PublishedSearch("random", k, embedding=ARR(d=d, R=1))
        for k in (1000, 10_000, 100_000)
    },
    "ARR (all)": lambda d: PublishedSearch("random", None, embedding=ARR(d=d, R=1)),
}
#: Orders in which the best queries of the heads are posted.
PRIORITIES: dict[str, Callable[[int], Sampler]] = {
    "priority random": lambda d: PublishedSearch("random", None, embedding=ARR(d=d, R=1)),
    "priority gain": lambda d: PublishedSearch("random", None, by_gain=True, embedding=ARR(d=d, R=1)),
}


def contender(name: str, d: int) -> Sampler:
    """The sampler of this name."""
    return (CONTENDERS | SEARCHES | PRIORITIES)[name](d)


def rounds_of(name: str) -> int:
    """How far this sampler is followed where nothing else is said."""
    return ROUNDS.get(name, OTHER_ROUNDS)
