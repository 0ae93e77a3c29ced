"""Hyperband's brackets and what a search does next: pure, so that a recorded search can be replayed.

Each bracket starts many models, trains them a little, keeps the best share of them and trains those longer (Li et al. 2018,
algorithm 1). All brackets take about the same work; they differ in how much they trust early scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from salmon.errors import SalmonError


@dataclass(frozen=True)
class Bracket:
    """`rungs` holds (models, partial_fit calls of each so far) at each decision, the last one trained to the end."""

    index: int
    rungs: tuple[tuple[int, int], ...]

    @property
    def models(self) -> int:
        """Models that the bracket starts."""
        return self.rungs[0][0]

    @property
    def calls(self) -> int:
        """partial_fit calls of the whole bracket."""
        before = [0, *(calls for _, calls in self.rungs)]
        return sum(models * (calls - earlier) for (models, calls), earlier in zip(self.rungs, before, strict=False))


def hyperband_brackets(max_iter: int, aggressiveness: int = 3) -> tuple[Bracket, ...]:
    """The brackets, the most adaptive one first, by exact arithmetic.

    With s from ⌊log_η R⌋ down to 0: ⌈(s_max + 1)/(s + 1) · ηˢ⌉ models of R/ηˢ calls; after each rung one in η goes on.
    """
    problems = [
        f"max_iter is {max_iter}." if max_iter < 1 else "",
        f"aggressiveness is {aggressiveness}." if aggressiveness < 2 else "",
    ]
    if any(problems):
        raise SalmonError(" ".join(filter(None, problems)), hint="Give max_iter ≥ 1 and aggressiveness ≥ 2.")
    largest = 0
    while aggressiveness ** (largest + 1) <= max_iter:
        largest += 1
    found: list[Bracket] = []
    for s in range(largest, -1, -1):
        models = -(-(largest + 1) * aggressiveness**s // (s + 1))
        rungs = tuple(
            (models // aggressiveness**i, max(1, max_iter * aggressiveness**i // aggressiveness**s))
            for i in range(s + 1)
        )
        found.append(Bracket(s, tuple(rung for rung in rungs if rung[0] > 0)))
    return tuple(found)


def random_search(models: int, calls: int) -> tuple[Bracket, ...]:
    """The same search without stopping: so many models, each trained to the end."""
    return (Bracket(0, ((models, calls),)),)


def rule_of_thumb(parameters: int, examples: int) -> tuple[int, int]:
    """(max_iter, examples of each partial_fit call) to try about so many parameters, the best on so many examples."""
    if parameters < 1 or examples < parameters:
        raise SalmonError(f"{examples} examples cannot be seen in {parameters} calls.", hint="Give more examples.")
    return parameters, examples // parameters


@dataclass(frozen=True)
class Work:
    """Train one model until it has had `calls` calls, and score it."""

    model: int
    calls: int
    priority: float = 0.0


@dataclass(frozen=True)
class Model:
    """One model of a search: its bracket, rung, calls so far, scores by calls, and whether it still trains."""

    bracket: int
    rung: int = 0
    calls: int = 0
    scores: tuple[tuple[int, float], ...] = ()
    stopped: bool = False

    @property
    def score(self) -> float:
        """The last score, −∞ before the first."""
        return self.scores[-1][1] if self.scores else -inf


@dataclass(frozen=True)
class Search:
    """A search between two pieces of work. `patience` counts calls without a gain of `tolerance`; 0 never stops a model for that.

    `workers` is the number P whose worst share a priority; with `priorities` off work is done first in, first out.
    """

    brackets: tuple[Bracket, ...]
    models: Mapping[int, Model]
    patience: int = 0
    tolerance: float = 1e-3
    priorities: bool = True
    workers: int = 1

    def begin(self) -> list[Work]:
        """The first work of every model."""
        return [self.work(number) for number in self.models]

    def absorb(self, done: Work, score: float) -> tuple["Search", list[Work]]:
        """The search after a piece of work, and what can be done now."""
        model = self.models[done.model]
        scored = replace(model, calls=done.calls, scores=(*model.scores, (done.calls, score)))
        scored = replace(scored, stopped=not np.isfinite(score) or self._plateau(scored))
        search = replace(self, models={**self.models, done.model: scored})
        if not scored.stopped and scored.calls < search.target(scored):
            return search, [search.work(done.model)]
        return search.promoted(scored.bracket, scored.rung)

    def best(self) -> int:
        """The number of the model with the highest last score."""
        return max(self.models, key=lambda number: self.models[number].score)

    def promoted(self, bracket: int, rung: int) -> tuple["Search", list[Work]]:
        """The models that go on to the next rung, once all of this one are trained and scored."""
        there = {
            number: model for number, model in self.models.items() if (model.bracket, model.rung) == (bracket, rung)
        }
        rungs = self.brackets[bracket].rungs
        waiting = any(not model.stopped and model.calls < self.target(model) for model in there.values())
        if waiting or rung + 1 == len(rungs):
            return self, []
        ranked = sorted(there, key=lambda number: (-there[number].score, number))
        going_on = [number for number in ranked[: rungs[rung + 1][0]] if not there[number].stopped]
        raised = {number: replace(there[number], rung=rung + 1) for number in going_on}
        search = replace(self, models={**self.models, **raised})
        return search, [search.work(number) for number in going_on]

    def target(self, model: Model) -> int:
        """The calls after which the model's rung decides."""
        return self.brackets[model.bracket].rungs[model.rung][1]

    def work(self, number: int) -> Work:
        """What a model does next."""
        model = self.models[number]
        target = self.target(model)
        # A plateau is only seen where a model is scored on the way.
        stride = max(1, self.patience // 3) if self.patience else target
        return Work(number, min(target, model.calls + stride), self._priority(number))

    def _priority(self, number: int) -> float:
        """The last score; the P worst models of a bracket share the median of theirs, and whoever has none comes last."""
        if not self.priorities:
            return 0.0
        own = self.models[number]
        scores = sorted(each.score for each in self.models.values() if each.bracket == own.bracket and each.scores)
        worst = scores[: self.workers]
        return float(np.median(worst)) if own.score in worst and len(scores) > self.workers else own.score

    def _plateau(self, model: Model) -> bool:
        """Whether the best score of the last `patience` calls is no gain on the best before them."""
        if not self.patience:
            return False
        before = [score for calls, score in model.scores if calls <= model.calls - self.patience]
        since = [score for calls, score in model.scores if calls > model.calls - self.patience]
        return bool(before) and max(since) < max(before) + self.tolerance


def new_search(
    brackets: tuple[Bracket, ...],
    *,
    patience: int = 0,
    tolerance: float = 1e-3,
    priorities: bool = True,
    workers: int = 1,
) -> Search:
    """A search of these brackets before its first work."""
    numbers = [place for place, bracket in enumerate(brackets) for _ in range(bracket.models)]
    models = {number: Model(place) for number, place in enumerate(numbers)}
    return Search(brackets, models, patience, tolerance, priorities, workers)
