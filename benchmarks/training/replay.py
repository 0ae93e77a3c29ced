"""Replay a recorded search on a simulated clock: how long it would have taken with other workers or priorities."""

import heapq
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from salmon.training.hyperband import SearchState, WorkItem


class ReplayedScore(NamedTuple):
    """A score, the seconds since the start at which it was known, and the calls of all models until then."""

    seconds: float
    calls: int
    model: int
    score: float


def replay_search(
    search: SearchState,
    recorded: Mapping[tuple[int, int], float],
    *,
    workers: int,
    call_s: float = 1.0,
    score_s: float = 1.5,
) -> list[ReplayedScore]:
    """Return all scores in the order in which this many workers would find them; `recorded`
    maps (model, calls) to scores.

    A free worker takes the work item with the highest priority, and the oldest one of equal priority.
    """
    search = replace(search, workers=workers)
    queue = [(-work.priority, order, work) for order, work in enumerate(search.begin())]
    heapq.heapify(queue)
    order, now, calls, free = len(queue), 0.0, 0, workers
    running: list[tuple[float, int, int, WorkItem]] = []
    scores: list[ReplayedScore] = []
    while queue or running:
        while queue and free:
            _, number, work = heapq.heappop(queue)
            had = search.models[work.model].calls
            heapq.heappush(running, (now + (work.calls - had) * call_s + score_s, number, work.calls - had, work))
            free -= 1
        now, _, taken, done = heapq.heappop(running)
        free += 1
        calls += taken
        score = recorded[done.model, done.calls]
        scores.append(ReplayedScore(now, calls, done.model, score))
        search, more = search.absorb(done, score)
        for work in more:
            heapq.heappush(queue, (-work.priority, order, work))
            order += 1
    return scores
