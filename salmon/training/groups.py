"""Groups of ranks that share every step: in this process, or one in each Dask worker, connected by torch.distributed.

Dask places the ranks and moves the data once; gradients never pass through the scheduler. Ranks find each other through
a store in the driver. The set of workers may change between two steps: a segment ends when a worker has joined or is
requested, and when one is lost, the others return the last step that they finished.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed import (
    PrefixStore,  # pyright: ignore[reportPrivateImportUsage] - where torch documents them
    ProcessGroupGloo,  # pyright: ignore[reportPrivateImportUsage]
    TCPStore,  # pyright: ignore[reportPrivateImportUsage]
)

from salmon.errors import SalmonError
from salmon.parallel import SerialExecutor, on_executor
from salmon.training.compression import gather_bytes
from salmon.training.shards import ShardedData
from salmon.training.state import HistoryRow, SegmentOutcome, TrainingJob, TrainingState, join_replicas
from salmon.training.steps import LostWorkerError, run_steps

#: Topic of a run's rows among the events of the Dask cluster.
TOPIC = "salmon-training"
_T = TypeVar("_T")
# How often the first rank looks for requests of the driver, and reports a row.
_REQUEST_S = 0.2
_REPORT_S = 1.0
# How often the driver checks which workers are present.
_PRESENCE_S = 0.2
# Bytes that gloo adds to each message: three headers, to offer, to request and to send it. And the largest segment of
# an all-reduce.
_MESSAGE, _SEGMENT = 3 * 48, 1 << 20
# Vectors of all ranks together up to this many bytes are gathered, and every rank adds them up itself: with four ranks,
# that takes a third of the time of gloo's all-reduce, which has more rounds, although from three ranks on it sends
# fewer bytes.
_GATHERED = 1 << 18
# Connections that wait to be accepted by the store.
_QUEUED = 128


class Group(Protocol):
    """Ranks that can train together."""

    @property
    def size(self) -> int:
        """Return the number of ranks that would take part now."""
        ...

    def run(self, job: TrainingJob, data: Any, state: TrainingState, end_epoch: float) -> SegmentOutcome:
        """Train from this state up to an epoch, or until something else ends the segment."""
        ...

    def resize(self, workers: int) -> Group:
        """Return a group of this many ranks."""
        ...

    def close(self) -> None:
        """Release what the group has acquired."""
        ...


@dataclass(frozen=True)
class VirtualGroup:
    """`size` ranks in the current process, running the same code as on a cluster: for tests,
    and for 16 workers on a laptop.

    Policies may raise the number of ranks up to `largest`.
    """

    size: int = 1
    largest: int = 1 << 10

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.largest:
            raise SalmonError(
                f"A group of {self.size} ranks (at most {self.largest}) cannot train.", hint="Give at least one rank."
            )

    def run(self, job: TrainingJob, data: Any, state: TrainingState, end_epoch: float) -> SegmentOutcome:
        """Train in this process."""
        return run_steps(job, data, state, VirtualRanks(self.size, self.largest), end_epoch)

    def resize(self, workers: int) -> VirtualGroup:
        """Return a group with another number of ranks."""
        return VirtualGroup(min(workers, self.largest), self.largest)

    def close(self) -> None:
        """Do nothing: no resources were acquired."""


class TorchGroup:
    """One rank in each worker of a Dask cluster: `TorchGroup(client)`, or with an executor of `salmon.parallel.dask`.

    `workers` is the initial number of workers (None: all that are present), `largest` the number that policies may
    request; a cluster that can scale is scaled accordingly. A worker that does not answer for `timeout_s` is considered
    lost.
    """

    def __init__(
        self, executor: Any, workers: int | None = None, *, largest: int | None = None, timeout_s: float = 60.0
    ) -> None:
        if workers is not None and workers < 1:
            raise SalmonError(f"A group of {workers} workers cannot train.", hint="Give at least one worker.")
        self._executor: Any = on_executor(executor)
        if not hasattr(self._executor, "submit_at"):
            raise SalmonError(
                f"{type(executor).__name__} has no workers of its own.",
                hint="Give a Dask client, or use VirtualGroup.",
            )
        self._wanted = workers
        self._largest = largest
        self._timeout_s = timeout_s
        self._data: Any = None
        self._scattered: Any = None
        # Addresses of the ranks, and for each of them the pending blocks of its shards.
        self._placed: tuple[list[str], list[dict[int, Any]]] = [], []
        self._store: Any = None

    @property
    def size(self) -> int:
        """Return the number of workers that would take part now."""
        present = len(self._executor.addresses())
        return present if self._wanted is None else min(present, self._wanted)

    def run(self, job: TrainingJob, data: Any, state: TrainingState, end_epoch: float) -> SegmentOutcome:
        """Train in the workers; if all of them are lost, start the segment again with new ones."""
        while True:
            self._executor.wait_for(1, timeout_s=self._timeout_s)
            addresses = self._select_addresses(data)
            outcomes = self._run_segment(job, data, state, end_epoch, addresses)
            if outcomes:
                return _merge_outcomes(job, outcomes, complete=len(outcomes) == len(addresses))

    def resize(self, workers: int) -> TorchGroup:
        """Use this many workers from the next step on, and return this group."""
        self._wanted = workers
        if self._executor.scalable:
            self._executor.follow(workers)
        return self

    def close(self) -> None:
        """Release the data in the workers and the store. The cluster stays open."""
        self._data = self._scattered = self._store = None
        self._placed = [], []

    def _run_segment(
        self, job: TrainingJob, data: Any, state: TrainingState, end_epoch: float, addresses: list[str]
    ) -> list[SegmentOutcome]:
        """Return the outcomes of all ranks that were not lost, in rank order."""
        # Nobody who does not know the name can meet the ranks in the store.
        meeting = Meeting(
            self._executor.host, self._open_store().port, f"segment-{uuid4()}", 0, len(addresses),
            self._capacity(len(addresses)), self._timeout_s,
        )  # fmt: skip
        if self._data is not data:
            # The values of blocks reach their workers as tasks of the cluster.
            known = data.with_blocks({}) if isinstance(data, ShardedData) else data
            self._data, self._scattered = data, self._executor.scatter(known)
        if self._placed[0] != addresses:
            self._placed = addresses, [self._place_blocks(data, rank, addresses) for rank in range(len(addresses))]
        kept = self._executor.scatter((job, state))
        pending = {
            rank: self._executor.submit_at(
                address,
                train_rank,
                kept,
                self._scattered,
                self._placed[1][rank],
                end_epoch,
                replace(meeting, rank=rank, own_host=self._executor.host_of(address)),
                name=f"train-rank-{rank}",
            )
            for rank, address in enumerate(addresses)
        }
        outcomes: dict[int, SegmentOutcome] = {}
        while pending:
            self._executor.wait_any(list(pending.values()), timeout_s=_PRESENCE_S)
            present = self._executor.addresses()
            for rank, task in list(pending.items()):
                if task.done():
                    outcome = self._executor.collect(task)
                    if outcome is not None:
                        outcomes[rank] = outcome
                    del pending[rank]
                elif addresses[rank] not in present:
                    task.cancel()
                    del pending[rank]
            if len(self._select_addresses(data)) > len(addresses):
                self._open_store().set(meeting.regroup_key, "1")
        if len(outcomes) < len(addresses):
            # The scattered data and blocks may have been lost with the worker.
            self._data, self._placed = None, ([], [])
        return [outcomes[rank] for rank in sorted(outcomes)]

    def _select_addresses(self, data: Any) -> list[str]:
        """Return the workers that take part: no more than wanted, and none without a shard."""
        most = len(data.shards) if isinstance(data, ShardedData) else None
        return self._executor.addresses()[: self._wanted][:most]

    def _place_blocks(self, data: Any, rank: int, addresses: list[str]) -> dict[int, Any]:
        """Have a worker compute the blocks of its shards, and return them as pending values by shard."""
        if not isinstance(data, ShardedData):
            return {}
        blocks = data.pending_blocks(data.assign(len(addresses))[rank])
        return {index: self._executor.compute_at(addresses[rank], each) for index, each in blocks.items()}

    def _open_store(self) -> Any:
        if self._store is None:
            self._store = open_store(self._executor.host, self._timeout_s)
        return self._store

    def _capacity(self, present: int) -> int:
        if self._executor.scalable:
            return self._largest or 1 << 10
        return min(self._largest or present, len(self._executor.addresses()))


def open_store(host: str, timeout_s: float) -> Any:
    """Return a store in which ranks find each other. It listens at this address only, at a port that is free."""
    family = socket.getaddrinfo(host, None)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.bind((host, 0))
        listening.listen(_QUEUED)
        port = listening.getsockname()[1]
        return TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s),
            master_listen_fd=listening.detach(),
        )  # fmt: skip


def as_group(executor: Any) -> Group:
    """Return a group as it is; one rank in each worker for a Dask client or executor; one
    rank in this process for None.
    """
    if executor is None or isinstance(executor, SerialExecutor):
        return VirtualGroup(1)
    return executor if hasattr(executor, "resize") else TorchGroup(executor)


def count_all_reduce(ranks: int, vector: torch.Tensor) -> int:
    """Return the bytes that all ranks send in gloo's ring all-reduce of a vector (K,).

    It is cut into segments, at least two for each rank, and all ranks but one send each segment twice.
    """
    least = max(-(-vector.nbytes // _SEGMENT), 2 * ranks)
    entries = -(-len(vector) // (-(-least // ranks) * ranks))
    segments = -(-len(vector) // max(1, entries))
    return 2 * (ranks - 1) * (vector.nbytes + segments * _MESSAGE)


def is_gathered(ranks: int, vector: torch.Tensor) -> bool:
    """Whether a vector (K,) of each rank is sent to all others; otherwise they are reduced on the way."""
    return ranks * vector.nbytes <= _GATHERED


def count_exchange(ranks: int, vector: torch.Tensor) -> int:
    """Return the bytes that all ranks send to add up a vector (K,) of each of them."""
    if not is_gathered(ranks, vector):
        return count_all_reduce(ranks, vector)
    return ranks * (ranks - 1) * (vector.nbytes + 2 * _MESSAGE)


def count_all_gather(ranks: int, sizes: Sequence[int]) -> int:
    """Return the bytes that all ranks send to gather payloads of these sizes, in gloo's ring.

    Payloads are padded to the longest, and their lengths, of eight bytes each, are gathered before. Each rank passes on
    all of them but one, in two halves.
    """
    return ranks * (ranks - 1) * (8 + max(sizes) + 4 * _MESSAGE)


@dataclass
class VirtualRanks:
    """All ranks of a group in one process: an exchange is a sum. It counts the bytes
    that as many processes would send.
    """

    size: int
    largest: int
    bytes_sent: int = 0

    @property
    def local(self) -> range:
        """Return all ranks."""
        return range(self.size)

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the sum (K,) of the vectors (r, K)."""
        self.bytes_sent += count_exchange(self.size, vectors[0])
        return vectors.sum(dim=0)

    def gather(self, vectors: torch.Tensor) -> torch.Tensor | None:
        """Return the vectors, or None where separate processes would not gather vectors of this length."""
        if not is_gathered(self.size, vectors[0]):
            return None
        self.bytes_sent += count_exchange(self.size, vectors[0])
        return vectors

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the sum (K,) of the expanded payloads."""
        self.bytes_sent += count_all_gather(self.size, [len(payload) for payload in payloads])
        return np.stack([expand(payload) for payload in payloads]).sum(axis=0, dtype=np.float32)

    def begin_reduce(self, vectors: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Return a function that returns the sum (K,) of the vectors (r, K)."""
        self.bytes_sent += count_all_reduce(self.size, vectors[0])
        return lambda: vectors.sum(dim=0)

    def while_waiting(self, task: Callable[[], None] | None) -> None:
        """Do nothing: an exchange in one process does not wait."""

    def asked_to_regroup(self) -> bool:
        """Return False: only policies change the number of virtual ranks."""
        return False

    def report(self, row: HistoryRow) -> None:
        """Do nothing: there is no cluster whose events could be observed."""


@dataclass(frozen=True)
class Meeting:
    """Where the ranks of one segment meet: the driver's store, a name for the segment, the
    rank's number and its own address.
    """

    host: str
    port: int
    name: str
    rank: int
    size: int
    largest: int
    timeout_s: float
    own_host: str = "127.0.0.1"

    @property
    def regroup_key(self) -> str:
        """Return the key that the driver sets to end the segment."""
        return f"{self.name}/regroup"

    def join(self) -> tuple[Any, Any]:
        """Connect to the store and to the other ranks; return the store and the process group.

        Raises
        ------
        RuntimeError
            If the driver or a rank does not answer in time.
        """
        timeout = timedelta(seconds=self.timeout_s)
        store = TCPStore(self.host, self.port, is_master=False, timeout=timeout)
        # Otherwise gloo listens at the address of the machine's name, which other workers may not reach. torch has no
        # public options for it.
        options: Any = ProcessGroupGloo._Options()  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        options._devices, options._timeout = [ProcessGroupGloo.create_device(hostname=self.own_host)], timeout  # noqa: SLF001
        return store, ProcessGroupGloo(PrefixStore(self.name, store), self.rank, self.size, options)


def train_rank(
    kept: tuple[TrainingJob, TrainingState], data: Any, blocks: dict[int, Any], end_epoch: float, meeting: Meeting
) -> SegmentOutcome:
    """Train as one rank of a group, inside a Dask worker. If the group is lost, return the last step that was finished.

    `blocks` has the values of the blocks of Dask collections that belong to this rank's shards.
    """
    job, state = kept
    if isinstance(data, ShardedData):
        data = data.with_blocks(blocks)
    # Ranks that are threads of one process must not write into the same module.
    job = replace(job, module=deepcopy(job.module))
    try:
        store, process_group = meeting.join()
    except RuntimeError:
        return SegmentOutcome(state, (), "lost")
    try:
        return run_steps(job, data, state, ProcessRanks(process_group, store, meeting), end_epoch)
    finally:
        # Ranks that still wait for this one fail at once instead of after the timeout.
        process_group.abort()


class ProcessRanks:
    """The ranks of a torch process group, as seen by one of them."""

    def __init__(self, process_group: Any, store: Any, meeting: Meeting) -> None:
        self._process_group, self._store, self._meeting = process_group, store, meeting
        self._requested_at = self._reported_at = time.monotonic()
        self.size = meeting.size
        self.largest = meeting.largest
        self.local = range(meeting.rank, meeting.rank + 1)
        #: Bytes that all ranks have sent to each other so far, with gloo's headers.
        self.bytes_sent = 0
        self._meanwhile: Callable[[], None] | None = None

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the sum (K,) over all ranks, given the vector of this one (1, K)."""
        if self.size == 1:
            return vectors[0]
        if (gathered := self.gather(vectors)) is not None:
            return gathered.sum(dim=0)
        return self.begin_reduce(vectors)()

    def begin_reduce(self, vectors: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Begin to add up the vectors (1, K) of all ranks, in place; return a function that waits
        for the sum (K,) and returns it.
        """
        total = vectors[0].contiguous()
        self.bytes_sent += count_all_reduce(self.size, total)
        work = _detect_loss(lambda: self._process_group.allreduce([total]))

        def finish() -> torch.Tensor:
            self._wait(work)
            return total

        return finish

    def gather(self, vectors: torch.Tensor) -> torch.Tensor | None:
        """Return the vectors of all ranks (n, K), given that of this one (1, K), or None if
        they are too long to be gathered.
        """
        if self.size == 1:
            return vectors
        if not is_gathered(self.size, vectors[0]):
            return None
        self.bytes_sent += count_exchange(self.size, vectors[0])
        gathered = vectors.new_empty(self.size, vectors.shape[1])
        self._wait(_detect_loss(lambda: self._process_group.allgather([list(gathered)], [vectors[0].contiguous()])))
        return gathered

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the sum (K,) of all ranks' expanded payloads, added in rank order so
        that it is the same everywhere.
        """
        received = gather_bytes(
            payloads[0],
            self.size,
            lambda parts, own: self._wait(_detect_loss(lambda: self._process_group.allgather([parts], [own]))),
        )
        self.bytes_sent += count_all_gather(self.size, [len(payload) for payload in received])
        return np.stack([expand(payload) for payload in received]).sum(axis=0, dtype=np.float32)

    def while_waiting(self, task: Callable[[], None] | None) -> None:
        """Call a function once, while the next exchange is under way; None takes the last one back."""
        self._meanwhile = task

    def _wait(self, work: Any) -> None:
        """Wait for the end of an exchange; do before what is to be done meanwhile."""
        if (task := self._meanwhile) is not None:
            self._meanwhile = None
            task()
        _detect_loss(work.wait)

    def asked_to_regroup(self) -> bool:
        """Whether the driver wants to end the segment; only the first rank asks, and tells the
        others with the next exchange.
        """
        now = time.monotonic()
        if self._meeting.rank or now - self._requested_at < _REQUEST_S:
            return False
        self._requested_at = now
        return _detect_loss(lambda: bool(self._store.check([self._meeting.regroup_key])))

    def report(self, row: HistoryRow) -> None:
        """Publish one row per second as an event of the cluster, from the first rank."""
        now = time.monotonic()
        if self._meeting.rank or now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        from salmon.parallel.dask import tell

        tell(TOPIC, row)


def _detect_loss(exchange: Callable[[], _T]) -> _T:
    """Call a function and turn its RuntimeError, which torch raises when another rank is
    gone, into a `LostWorkerError`.
    """
    try:
        return exchange()
    except RuntimeError as error:
        raise LostWorkerError from error


def _merge_outcomes(job: TrainingJob, outcomes: list[SegmentOutcome], *, complete: bool) -> SegmentOutcome:
    """Merge the outcomes of the remaining ranks into one: the last step that any of them finished."""
    furthest = max(outcome.state.progress.step for outcome in outcomes)
    kept = [outcome for outcome in outcomes if outcome.state.progress.step == furthest]
    first = kept[0]
    arrays = join_replicas([each.state.arrays for each in kept]) if job.averaging.differ else first.state.arrays
    lost = not complete or any(outcome.reason == "lost" for outcome in outcomes)
    reason = "regroup" if lost and first.reason != "finished" else first.reason
    return replace(first, state=replace(first.state, arrays=arrays), reason=reason)
