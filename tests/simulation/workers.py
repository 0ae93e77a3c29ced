"""The workers of the simulated learning process: real tasks in virtual time, with the real
arithmetic or a quick stand-in.

What matters here is which answers a task gets and what becomes of its outcome, so that most seeds fit with a few
additions in the place of L-BFGS. Everything around a task is real: the plan, the learner, what it publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.workers import Reported, join
from salmon.parallel import SerialExecutor
from salmon.samplers.state import Round, State, number_of_queries, random_queries
from tests.simulation.virtual_loop import block

if TYPE_CHECKING:
    from tests.simulation.world import World

RANDOM_SHARE = 0.2


class Workers(SerialExecutor):
    """Workers whose tasks take virtual time, and which are sometimes lost with a task."""

    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None) -> Any:
        world, name = self._world, function.__name__
        quick = None if world.scenario.real_fits else _QUICK.get(name)
        task = super().submit(quick or function, *arguments, priority=priority, on=on)
        result = task.result

        def slow_result() -> Any:
            longest = 8.0 if name == "run_step" else 0.6  # the steps of jobs take longer than what people wait for
            block(asyncio.sleep(world.generator.uniform(0.02, longest)))
            if world.generator.random() < world.workers_fail:
                raise RuntimeError("The workers were lost.")
            world.checks.note_work(name, arguments)
            return result()

        task.result = slow_result
        return task


def quick_refit(sampler: Any, state: State, blocks: list[Any], tail: Any, left_out: tuple[int, ...]) -> State:
    """Return a state that has absorbed all rows: each pulls its head and winner together a little."""
    del sampler, left_out
    rows = join(blocks, tail)
    coordinates = state.coordinates.copy()
    heads, winners = rows[:, 0], rows[:, 1]
    np.add.at(coordinates, winners, 0.01 * (coordinates[heads] - coordinates[winners]))
    return replace(state, coordinates=coordinates, generation=state.generation + 1, absorbed=len(rows), loss=0.5)


def quick_search(
    sampler: Any,
    state: State,
    blocks: list[Any],
    tail: Any,
    left_out: tuple[int, ...],
    pending: Any,
    count: int,
) -> Round:
    """Return different queries that are not pending, with falling scores, among them random ones that may be."""
    del sampler, left_out
    generator = state.generator(1, len(join(blocks, tail)), len(pending))
    drawn = random_queries(state.n, 2 * count, generator)
    at_random = generator.random(len(drawn)) < RANDOM_SHARE
    waiting = {tuple(row) for row in pending.tolist()}
    seen: set[tuple[int, ...]] = set()
    kept: list[int] = []
    for place, row in enumerate(map(tuple, drawn.tolist())):
        if at_random[place] or (row not in waiting and row not in seen):
            kept.append(place)
            seen.add(row)
    kept = kept[:count]
    return Round(
        queries=drawn[kept],
        scores=-np.arange(len(kept), dtype=float),
        trial_types=tuple("random" if at_random[place] else "active" for place in kept),
        probabilities=np.where(at_random[kept], RANDOM_SHARE / number_of_queries(state.n), 0.0),
        generation=state.generation,
    )


def quick_report(sampler: Any, state: State, blocks: list[Any], tail: Any, repeatable: Any) -> Reported:
    """Return the embedding as it is."""
    del sampler, blocks, tail, repeatable
    return Reported(state.coordinates, np.zeros((state.n, state.d, state.d), np.float32), float("nan"))


def quick_judge_fold(asked: Any, blocks: list[Any], tail: Any, fold: int) -> tuple[int, Any]:
    """Return that nothing can be held out, so that one task is the whole evaluation."""
    del asked, blocks, tail, fold
    return 0, None


_QUICK: dict[str, Callable[..., Any]] = {
    "refit": quick_refit,
    "search": quick_search,
    "report": quick_report,
    "judge_fold": quick_judge_fold,
}
