"""One run: a sampler asks, a world answers, and one estimator judges all samplers from their answers alone."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from salmon.learning import fit
from salmon.noise import NoiseModel, PowerTSTE
from salmon.samplers.state import Round, State, random_round, start_state
from salmon.simulate import (
    Judge,
    World,
    clustered_world,
    egg_world,
    logistic_world,
    noisy_world,
    stream,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

#: Part of every recorded run: raise it when the protocol changes what a run means.
VERSION = 1
_JUDGED_RIDGE = 0.03
# The spectral start and two random ones, besides the sampler's own embedding.
_JUDGED_STARTS = 3


class Sampler(Protocol):
    """What every contender can do; the samplers of the library have this form."""

    def start(self, n: int, seed: int) -> State:
        """Before any answer."""
        ...

    def refit(self, state: State, triplets: Ints) -> State:
        """The state after these answers."""
        ...

    def search(self, state: State, triplets: Ints, pending: Ints, count: int) -> Round:
        """`count` queries in the order of asking."""
        ...


@dataclass(frozen=True)
class Random:
    """Random queries only. The judged fit starts from the one before it, as the others' start from the sampler's."""

    d: int = 2

    def start(self, n: int, seed: int) -> State:
        """Before any answer."""
        return start_state(n, self.d, seed)

    def refit(self, state: State, triplets: Ints) -> State:
        """The embedding that `Adaptive` would search with: only a start for the judged fit."""
        found = fit(
            triplets, state.n, state.d, noise="TSTE", lapse=0.05, ridge=1.0, start=state.coordinates, seed=state.seed
        )
        return State(found.coordinates, state.seed, state.generation + 1, len(triplets))

    def search(self, state: State, triplets: Ints, pending: Ints, count: int) -> Round:
        """`count` random queries."""
        del triplets, pending
        return random_round(state, count)


@dataclass(frozen=True)
class Setting:
    """A world of the protocol: how it is made from a seed, its dimension, and how embeddings of it are judged."""

    make: Callable[[int], World]
    d: int
    judged_by: NoiseModel


def setting(name: str, n: int) -> Setting:
    """The worlds by name; only the eggs come in several sizes, the others have 60 targets."""
    people, general = PowerTSTE(k=0.85, lapse=0.07), PowerTSTE(k=1.0, lapse=0.05)
    if name == "eggs":
        # One fixed world: seeds change only queries, answers and starts.
        return Setting(lambda _: egg_world(n), 2, people)
    made = {"logistic": (logistic_world, 3), "clusters": (clustered_world, 2), "noisy": (noisy_world, 3)}
    make, d = made[name]
    return Setting(lambda seed: make(seed, n), d, general)


class Respondents(Protocol):
    """Who answers, and how the embedding is judged: a simulated world, or a pool of people's answers."""

    n: int

    def first(self, count: int) -> Ints:
        """(count, 3) triplets: the answers to the random queries that open every run of this seed."""
        ...

    def answer(self, ask: Callable[[int], Ints], count: int) -> tuple[Ints, Ints]:
        """`count` answered triplets, and the queries that were asked for them; `ask(k)` gives the next k queries."""
        ...

    def judge(self, coordinates: Floats) -> dict[str, float]:
        """The measures of an embedding."""
        ...


class Simulated:
    """A world that answers from the named streams of one seed: paired runs see the same luck."""

    def __init__(self, world: World, seed: int) -> None:
        self.n = world.n
        self._world = world
        self._queries, self._answers = stream(seed, "queries"), stream(seed, "answers")
        self._judge = Judge.of(world)

    def first(self, count: int) -> Ints:
        """Answers to random queries."""
        return self._world.answer(self._world.random_queries(count, self._queries), self._answers)

    def answer(self, ask: Callable[[int], Ints], count: int) -> tuple[Ints, Ints]:
        """Fresh answers to what is asked."""
        queries = ask(count)
        return self._world.answer(queries, self._answers), queries

    def judge(self, coordinates: Floats) -> dict[str, float]:
        """Accuracy and rank error over all queries, exactly."""
        return {
            "accuracy": self._judge.accuracy(coordinates),
            "rank_error": self._judge.neighbour_rank_error(coordinates),
        }


def run(
    respondents: Respondents,
    sampler: Sampler,
    seed: int,
    *,
    judged_by: NoiseModel,
    rounds: int,
    queue: int = 0,
    step: int = 0,
) -> dict[str, list[float]]:
    """The measures after every n answers, the first n random ones included.

    One refit and one search every n answers (or every `step`, if that is less). With a `queue`, so many queries are
    posted ahead: a query is answered only when those before it are.
    """
    n = respondents.n
    step = step or n
    triplets = respondents.first(n)
    state = sampler.start(n, int(stream(seed, "sampler").integers(2**31)))
    pending = np.empty((0, 3), dtype=np.int32)
    judge_seed = int(stream(seed, "judge").integers(2**31))
    curve: dict[str, list[float]] = {"answers": [], "heads": [], "head_run": []}
    asked = pending
    began = time.perf_counter()
    while True:
        state = sampler.refit(state, triplets)
        if len(triplets) % n < step:
            judged = fit(
                triplets, n, state.d, noise=judged_by, ridge=_JUDGED_RIDGE, start=state.coordinates,
                n_starts=_JUDGED_STARTS, seed=judge_seed,
            )  # fmt: skip
            curve["answers"].append(len(triplets))
            for measure, value in respondents.judge(judged.coordinates).items():
                curve.setdefault(measure, []).append(value)
            curve["heads"].append(len(np.unique(asked[-n:, 0])) if len(asked) else n)
            curve["head_run"].append(_mean_run(asked[-n:, 0]) if len(asked) else 1.0)
        if len(triplets) >= rounds * n:
            curve["seconds"] = [round(time.perf_counter() - began, 2)]
            return curve

        proposed, calls = pending, 0

        def ask(count: int) -> Ints:
            nonlocal pending, proposed, calls
            wanted = queue + count - len(pending)
            if wanted > 0:
                # Asked again within a round (some queries had no answers to replay), a sampler draws anew and takes
                # all that it proposed before as asked.
                fresh = replace(state, seed=state.seed + calls)  # noqa: B023 - used up before the loop goes on
                found = sampler.search(fresh, triplets, proposed, wanted)  # noqa: B023
                pending, proposed = np.concatenate([pending, found.queries]), np.concatenate([proposed, found.queries])
                calls += 1
            taken, pending = pending[:count], pending[count:]
            return taken

        answers, queries = respondents.answer(ask, step)
        asked = np.concatenate([asked, queries])
        triplets = np.concatenate([triplets, answers])


def _mean_run(heads: NDArray[np.int32]) -> float:
    """Mean length of the runs of equal heads."""
    return len(heads) / (1 + int(np.count_nonzero(np.diff(heads))))
