"""The executor on a Dask cluster: the only module of the library that speaks to Dask."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, cast

import dask.config
from distributed import Client, LocalCluster, as_completed

from salmon.errors import SalmonError, StartError
from salmon.parallel.executor import Task

# Dask has workers give freed memory back at once, and then every work array of a block is paid for again page by
# page: four times the time of a refit. Up to 32 MB stays with the worker instead.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 25}


def local_cluster(workers: int = 2, *, processes: bool = True) -> "DaskExecutor":
    """Start a Dask cluster on this machine with one thread a worker, and an executor on it that closes it.

    Dask gives every worker process one BLAS thread: more would only fight over the same cores. Its
    pages take a free port of this machine.
    """
    with dask.config.set({f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in _MALLOC.items()}):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            dashboard_address="127.0.0.1:0",
            protocol="tcp://",
            host="127.0.0.1",
        )
    return DaskExecutor(Client(cluster), owned=cluster)


def join_cluster(address: str, *, timeout_s: float = 10) -> "DaskExecutor":
    """An executor on the Dask cluster whose scheduler listens at this address (`tcp://host:8786`)."""
    try:
        return DaskExecutor(Client(address, timeout=timeout_s))
    except OSError as error:
        raise StartError(
            f"No Dask scheduler answers at {address}.", hint="Start one there, or correct the address.", where=address
        ) from error


class DaskExecutor:
    """Hands work to a Dask client. A cluster given as `owned` is closed together with the executor."""

    def __init__(self, client: Client, *, owned: Any = None) -> None:
        self.client = client
        self._owned = owned

    @property
    def workers(self) -> int:
        """Threads of all workers that the scheduler knows now, at least 1."""
        threads = cast("dict[str, int]", self.client.nthreads())
        return max(1, sum(threads.values()))

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: float = 0) -> list[Any]:
        """The values of the function over the arguments, in their order."""
        # pure=False: equal calls are repeated work on purpose, never looked up by a hash of large arrays.
        tasks = [
            self.client.submit(function, *each, priority=cast("int", priority), pure=False)
            for each in zip(*arguments, strict=True)
        ]
        return cast("list[Any]", self.client.gather(tasks))

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None) -> Task:
        """Hand in one piece of work; `on` counts the workers in the order of their addresses."""
        pinned: dict[str, Any] = {}
        if on is not None:
            addresses = sorted(cast("dict[str, int]", self.client.nthreads()))
            if not 0 <= on < len(addresses):
                raise SalmonError(f"There is no worker {on}.", hint=f"The cluster has {len(addresses)}, from 0.")
            pinned = {"workers": [addresses[on]], "allow_other_workers": False}
        return cast(
            "Task", self.client.submit(function, *arguments, priority=cast("int", priority), pure=False, **pinned)
        )

    def as_completed(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """The tasks as they finish."""
        return cast("Iterator[Task]", iter(as_completed(list(tasks))))

    def scatter(self, value: Any) -> Any:
        """Move a value to one worker; others fetch it from there when they need it."""
        # In a list: a dict or a list of its own would be taken apart and scattered piece by piece. The workers of a
        # cluster started here can be reached directly; others perhaps only through their scheduler.
        return cast("list[Any]", self.client.scatter([value], hash=False, direct=self._owned is not None))[0]

    def scale(self, workers: int) -> None:
        """Ask the cluster for this many workers and wait until they are there."""
        if workers < 1:
            raise SalmonError(f"{workers} workers cannot do any work.", hint="Ask for at least 1.")
        if self.client.cluster is None:
            raise SalmonError("This cluster is only joined, not owned.", hint="Scale it where it was started.")
        self.client.cluster.scale(workers)
        self.client.wait_for_workers(workers)

    def close(self) -> None:
        """Leave the cluster, and close it if it was started here."""
        self.client.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
