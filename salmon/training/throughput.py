"""How many replicas a worker should train side by side: as many as make it see more examples in a second."""

import statistics
from dataclasses import replace
from typing import Any

from salmon.distributed.averaging import Crossbow
from salmon.distributed.group import VirtualRanks
from salmon.distributed.state import Job
from salmon.distributed.steps import Steps

# Another replica has to raise the examples per second by this factor to be worth having.
_WORTH = 1.05
_MOST = 32
_WARM, _MEASURED = 5, 25


def replicas_that_pay(job: Job, data: tuple[Any, ...]) -> int:
    """Replicas are doubled, and then added, while measured examples per second rise by more than 5 %."""
    best, fastest = 1, throughput(job, data, 1)
    stride = 1
    while best + stride <= _MOST:
        reached = throughput(job, data, best + stride)
        if reached > _WORTH * fastest:
            best, fastest = best + stride, reached
            stride = best
        else:
            break
    return best


def throughput(job: Job, data: tuple[Any, ...], replicas: int) -> float:
    """Examples per second that one worker trains so many replicas on: a few steps, of which nothing is kept."""
    from salmon.distributed.loop import started

    averaging = job.averaging if isinstance(job.averaging, Crossbow) else Crossbow()
    trial = replace(job, averaging=replace(averaging, count=replicas), watch=None, until=None, monitors=())
    steps = Steps(trial, data, started(trial), VirtualRanks(1, 1))
    rows = [steps.take(steps.plan()) for _ in range(_WARM + _MEASURED)]
    taken = [
        later["seconds"] - earlier["seconds"] for earlier, later in zip(rows[_WARM:], rows[_WARM + 1 :], strict=False)
    ]
    # Batches are short at the end of an epoch: the median step is a whole one.
    return rows[_WARM]["batch_size"] / statistics.median(taken)
