"""One rank of a group of processes: what runs inside a Dask worker."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage] - where torch documents them

from salmon.distributed.links import LINKS, Links
from salmon.distributed.state import Job, Outcome, Row, TrainingState
from salmon.distributed.steps import Limits, LostWorkerError, run_steps

# The driver is asked for its wishes, and told how far the run is, this often.
_ASK_S = 0.2
_TELL_S = 1.0
#: Under which the rows of a run are found among the events of the Dask cluster.
TOPIC = "salmon-training"


@dataclass(frozen=True)
class Place:
    """Where a rank meets the others: the driver's store, a name for this stretch, and its number among them."""

    host: str
    port: int
    name: str
    rank: int
    size: int
    largest: int
    timeout_s: float
    #: Where other ranks reach this one, and by what they are linked.
    here: str = ""
    links: str = "ring"

    @property
    def regroup_key(self) -> str:
        """Set by the driver where the stretch should end."""
        return f"{self.name}/regroup"


def train_rank(kept: tuple[Job, TrainingState], data: tuple[Any, ...], limits: Limits, place: Place) -> Outcome:
    """Carry a run forward as one rank of a group. A rank whose group is lost hands back its last finished step."""
    job, state = kept
    # Ranks that are threads of one process must not write into one module.
    job = replace(job, module=deepcopy(job.module))
    timeout = timedelta(seconds=place.timeout_s)
    try:
        store = TCPStore(place.host, place.port, is_master=False, timeout=timeout)
        links = LINKS[place.links](
            PrefixStore(place.name, store), place.rank, place.size, host=place.here, timeout_s=place.timeout_s
        )
    except RuntimeError:
        return Outcome(state, (), "lost")
    try:
        return run_steps(job, data, state, ProcessRanks(links, store, place), limits)
    finally:
        links.close()


class ProcessRanks:
    """The ranks of a group of processes, seen from one of them."""

    def __init__(self, links: Links, store: Any, place: Place) -> None:
        self._links, self._store, self._place = links, store, place
        self._asked_at = self._told_at = time.monotonic()

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._place.size

    @property
    def largest(self) -> int:
        """Ranks that the group could grow to."""
        return self._place.largest

    @property
    def local(self) -> range:
        """Only this rank."""
        return range(self._place.rank, self._place.rank + 1)

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """All-reduce of one vector (1, K)."""
        total = vectors[0].contiguous()
        self._survive(lambda: self._links.all_reduce(total))
        return total

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """All-gather of one payload; the sum runs over the ranks in their order, and so comes out alike everywhere."""
        received: list[bytes] = []
        self._survive(lambda: received.extend(self._links.all_gather(payloads[0])))
        return np.stack([expand(payload) for payload in received]).sum(axis=0, dtype=np.float32)

    def asked_to_regroup(self) -> bool:
        """Whether the driver has said so; only the first rank asks, and tells the others with the next exchange."""
        now = time.monotonic()
        if self._place.rank or now - self._asked_at < _ASK_S:
            return False
        self._asked_at = now
        asked: list[bool] = []
        self._survive(lambda: asked.append(self._store.check([self._place.regroup_key])))
        return asked[0]

    def report(self, row: Row) -> None:
        """A row each second among the events of the cluster, from the first rank."""
        now = time.monotonic()
        if self._place.rank or now - self._told_at < _TELL_S:
            return
        self._told_at = now
        from salmon.parallel.cluster import tell

        tell(TOPIC, row)

    def _survive(self, exchange: Callable[[], Any]) -> None:
        try:
            exchange()
        except RuntimeError as error:
            raise LostWorkerError from error
