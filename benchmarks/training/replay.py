"""A recorded search on a clock: what it would have taken with other workers or other priorities."""

import heapq
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from salmon.distributed.brackets import Search, Work


class Scored(NamedTuple):
    """A score that came in, the seconds since the start, and the calls of all models until then."""

    seconds: float
    calls: int
    model: int
    score: float


def replayed(
    search: Search,
    recorded: Mapping[tuple[int, int], float],
    *,
    workers: int,
    call_s: float = 1.0,
    score_s: float = 1.5,
) -> list[Scored]:
    """Every score in the order in which so many workers would find it, each the one recorded for (model, calls).

    A free worker takes the work of the highest priority, of equal ones the oldest.
    """
    search = replace(search, workers=workers)
    queue = [(-work.priority, order, work) for order, work in enumerate(search.begin())]
    heapq.heapify(queue)
    order, now, calls, free = len(queue), 0.0, 0, workers
    running: list[tuple[float, int, int, Work]] = []
    found: list[Scored] = []
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
        found.append(Scored(now, calls, done.model, score))
        search, more = search.absorb(done, score)
        for work in more:
            heapq.heappush(queue, (-work.priority, order, work))
            order += 1
    return found
