"""One rank in each Dask worker; gradients go from rank to rank, around a ring or over torch's gloo.

Dask places the ranks and moves the data once; gradients never pass the scheduler. Ranks meet in a store that lives in the
driver, so that no worker is needed to find the others. Who takes part may change between two steps: a stretch of steps ends where
a worker has joined or is wanted, and where one was lost the others hand back the last step that they finished.
"""

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage] - where torch documents them

from salmon.distributed.links import check_links
from salmon.distributed.rank import Place, train_rank
from salmon.distributed.state import Job, Outcome, TrainingState, joined_rows
from salmon.distributed.steps import Limits
from salmon.errors import SalmonError
from salmon.parallel import on_executor

# How often the driver looks who is there.
_LOOK_S = 0.2


class TorchGroup:
    """Ranks in the workers of a Dask cluster: `TorchGroup(client)`, or an executor of `salmon.parallel.cluster`.

    `workers` is the number wanted at first (None: all there are), `largest` how many policies may ask for; a cluster that
    can scale is scaled to what they ask. A worker that does not answer for `timeout_s` counts as lost. `links` is "ring",
    or "gloo" for torch's own.
    """

    def __init__(
        self,
        executor: Any,
        workers: int | None = None,
        *,
        largest: int | None = None,
        timeout_s: float = 60.0,
        links: str = "ring",
    ) -> None:
        if workers is not None and workers < 1:
            raise SalmonError(f"A group of {workers} workers cannot train.", hint="Give at least one worker.")
        self._executor: Any = on_executor(executor)
        if not hasattr(self._executor, "submit_at"):
            raise SalmonError(
                f"{type(executor).__name__} has no workers of its own.",
                hint="Give a Dask client, or take VirtualGroup.",
            )
        self._wanted = workers
        self._largest = largest
        self._timeout_s = timeout_s
        check_links(links)
        self._links = links
        self._data: Any = None
        self._placed: Any = None
        self._store: Any = None
        self._stretches = count()

    @property
    def size(self) -> int:
        """Workers that would take part now."""
        present = len(self._executor.addresses())
        return present if self._wanted is None else min(present, self._wanted)

    def run(self, job: Job, data: tuple[Any, ...], state: TrainingState, limits: Limits) -> Outcome:
        """Carry the run forward in the workers; when all of them are lost, begin this stretch again with new ones."""
        while True:
            self._executor.wait_for(1, timeout_s=self._timeout_s)
            addresses = self._executor.addresses()[: self._wanted]
            outcomes = self._stretch(job, data, state, limits, addresses)
            if outcomes:
                return merged(job, outcomes, whole=len(outcomes) == len(addresses))

    def resized(self, workers: int) -> "TorchGroup":
        """The same group, with so many workers from the next step on."""
        self._wanted = workers
        if self._executor.scalable:
            self._executor.follow(workers)
        return self

    def close(self) -> None:
        """Let go of the data in the workers, and of the store. The cluster stays."""
        self._data = self._placed = self._store = None

    def _stretch(
        self, job: Job, data: tuple[Any, ...], state: TrainingState, limits: Limits, addresses: list[str]
    ) -> list[Outcome]:
        """The outcomes of all ranks that were not lost, in their order."""
        place = Place(
            self._executor.host, self._meeting_point().port, f"stretch-{next(self._stretches)}", 0, len(addresses),
            self._capacity(len(addresses)), self._timeout_s, links=self._links,
        )  # fmt: skip
        if self._data is not data:
            self._data, self._placed = data, self._executor.scatter(data)
        kept = self._executor.scatter((job, state))
        pending = {
            rank: self._executor.submit_at(
                address,
                train_rank,
                kept,
                self._placed,
                limits,
                replace(place, rank=rank, here=self._executor.host_of(address)),
                name=f"train-rank-{rank}",
            )
            for rank, address in enumerate(addresses)
        }
        found: dict[int, Outcome] = {}
        while pending:
            self._executor.wait_any(list(pending.values()), timeout_s=_LOOK_S)
            present = self._executor.addresses()
            for rank, task in list(pending.items()):
                if task.done():
                    outcome = self._executor.collected(task)
                    if outcome is not None:
                        found[rank] = outcome
                    del pending[rank]
                elif addresses[rank] not in present:
                    task.cancel()
                    del pending[rank]
            if len(present[: self._wanted]) > len(addresses):
                self._meeting_point().set(place.regroup_key, "1")
        if len(found) < len(addresses):
            # What was scattered may have been lost with the worker.
            self._data = None
        return [found[rank] for rank in sorted(found)]

    def _meeting_point(self) -> Any:
        if self._store is None:
            self._store = TCPStore(
                self._executor.host, 0, is_master=True, wait_for_workers=False,
                timeout=timedelta(seconds=self._timeout_s),
            )  # fmt: skip
        return self._store

    def _capacity(self, present: int) -> int:
        if self._executor.scalable:
            return self._largest or 1 << 10
        return min(self._largest or present, len(self._executor.addresses()))


def merged(job: Job, outcomes: list[Outcome], *, whole: bool) -> Outcome:
    """One outcome from those of the ranks that are left: the furthest step that any of them finished."""
    furthest = max(outcome.state.progress.step for outcome in outcomes)
    kept = [outcome for outcome in outcomes if outcome.state.progress.step == furthest]
    first = kept[0]
    arrays = joined_rows([each.state.arrays for each in kept]) if job.averaging.differ else first.state.arrays
    lost = not whole or any(outcome.reason == "lost" for outcome in outcomes)
    reason = "regroup" if lost and first.reason != "finished" else first.reason
    return replace(first, state=replace(first.state, arrays=arrays), reason=reason)
