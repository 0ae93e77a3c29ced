"""Run work on a Dask cluster: the only module of the library that uses Dask."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast
from uuid import uuid4

import dask.config
from distributed import Client, LocalCluster, get_worker, wait
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm.addressing import get_address_host
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from distributed.security import Security
from distributed.utils import get_ip

from salmon.errors import SalmonError, StartError
from salmon.parallel.executor import ClusterAwayError, Task

# How often an adaptive cluster compares the workers it has with those it should have.
_ADAPT_EVERY = "200ms"
# How often whoever waits for a cluster looks whether it is still there, and how long it has to say so.
_LOOK_SECONDS = 5.0
_REPLY_SECONDS = 10.0
# After so many looks in a row without a worker, the workers do not come back by themselves: those that died are started
# again within one or two seconds.
_LOOKS_WITHOUT_WORKERS = 2
# Dask has workers give freed memory back at once, and then every work array of a block is paid for again page by
# page: four times the time of a refit. Up to 32 MB stays with the worker instead.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 25}


def local_cluster(workers: int = 2, *, processes: bool = True, dashboard: bool = False) -> DaskExecutor:
    """Start a Dask cluster on this machine with one thread a worker; return an executor that closes it.

    Scheduler and workers run any code that reaches them, and every user of a machine can connect to its loopback ports.
    So all connections use TLS with a certificate that is made here, exists in the memory of these processes only, and
    is required of both ends. What workers write to disk is in a directory that only this user can enter. Dask's pages
    (`dashboard`) show the tasks to everybody on this machine; without them its HTTP servers have no routes.

    Dask gives every worker process one BLAS thread: more would only compete for the same cores.
    """
    pages = {} if dashboard else {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    environment = {f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in _MALLOC.items()}
    with dask.config.set({**pages, **environment}):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": dashboard},
            protocol="tls://",
            security=Security.temporary(),
            host="127.0.0.1",
            local_directory=_private_directory(),
        )
    return DaskExecutor(Client(cluster), owned=cluster)


def _private_directory() -> str:
    """Return a directory for temporary files of workers that no other user can enter.

    Workers load pickles from it. Dask's own choice is a fixed name below the temporary directory, which somebody else
    may have made before; it removes from this one what workers left that were killed.
    """
    path = Path(tempfile.gettempdir()) / f"salmon-workers-{os.getuid()}"
    path.mkdir(0o700, exist_ok=True)
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU:
        return str(path)
    return tempfile.mkdtemp(prefix="salmon-workers-")


@dataclass(frozen=True)
class TlsFiles:
    """Files with which a cluster is joined: its authority's certificate, and a certificate
    and key made by that authority.
    """

    authority: str
    certificate: str
    key: str


def join_cluster(address: str, *, timeout_s: float = 10, tls: TlsFiles | None = None) -> DaskExecutor:
    """Return an executor on the Dask cluster whose scheduler listens at this address
    (`tcp://host:8786`, or `tls://`).
    """
    if tls is None and address.startswith("tls://"):
        raise StartError(
            f"The scheduler {address} requires TLS.",
            hint="Set SALMON_SCHEDULER_CA, SALMON_SCHEDULER_CERT and SALMON_SCHEDULER_KEY.",
            where=address,
        )
    try:
        return DaskExecutor(_connect(address, timeout_s, _security(tls)))
    except ssl.SSLError as error:
        raise StartError(
            f"The files for TLS with the scheduler {address} cannot be used: {error.reason or error}.",
            hint="SALMON_SCHEDULER_CA, _CERT and _KEY must be PEM files of the cluster's authority.",
            where=address,
        ) from error
    except OSError as error:
        raise ClusterAwayError(
            f"No Dask scheduler answers at {address}.",
            hint="Start one there, or correct the address; a scheduler with TLS has an address tls://… and needs files.",
            where=address,
        ) from error


def _connect(address: str, timeout_s: float, security: Security | None) -> Client:
    """Return a client of a scheduler, or raise TimeoutError.

    Dask waits for ever where a scheduler accepts the connection and does not reply: hence in a thread that is given up.
    """
    opened: Future[Client] = Future()

    def connect() -> None:
        try:
            client = Client(address, timeout=timeout_s, security=security)
        except Exception as error:  # noqa: BLE001 - the outermost call of a thread: the other one raises it again
            with suppress(InvalidStateError):
                opened.set_exception(error)
            return
        try:
            opened.set_result(client)
        except InvalidStateError:  # nobody waits any more
            client.close()

    threading.Thread(target=connect, name="join", daemon=True).start()
    try:
        return opened.result(2 * timeout_s)
    finally:
        opened.cancel()


def _security(tls: TlsFiles | None) -> Security | None:
    if tls is None:
        return None
    missing = [path for path in (tls.authority, tls.certificate, tls.key) if not Path(path).is_file()]
    if missing:
        raise StartError(f"There is no file {missing[0]!r}.", hint="It is needed for TLS with the Dask scheduler.")
    return Security(
        require_encryption=True, tls_ca_file=tls.authority, tls_client_cert=tls.certificate, tls_client_key=tls.key
    )


def executor_on(client: Any) -> DaskExecutor:
    """Return an executor on the caller's own client, which the caller closes."""
    if not isinstance(client, Client):
        raise SalmonError(
            f"A {type(client).__name__} cannot run work.",
            hint="Give a Dask client, or an executor on a cluster.",
        )
    return DaskExecutor(client)


def tell(topic: str, message: Any) -> None:
    """Log an event of the cluster from inside a worker, where the dashboard and clients find it."""
    get_worker().log_event(topic, message)


@dataclass(frozen=True, eq=False)
class DaskTask:
    """Work on a cluster. Its value does not come from a cluster that is gone: `result`
    raises ClusterAwayError instead.
    """

    executor: DaskExecutor
    future: Any

    def result(self) -> Any:
        """Return the value, waiting for it while the cluster is there; raise what the work raised."""
        return self.executor.gather([self])[0]

    def done(self) -> bool:
        """Whether the value is there (or will never be)."""
        return self.future.done()

    def cancel(self) -> None:
        """Cancel this work; nothing happens if it is already done."""
        self.future.cancel()


class DaskExecutor:
    """An executor that submits work to a Dask client.

    A cluster given as `owned` is closed together with the executor. No wait is for ever: where the scheduler or all
    workers are gone, whatever waits for them raises ClusterAwayError within half a minute.
    """

    def __init__(self, client: Client, *, owned: Any = None) -> None:
        self.client = client
        self._owned = owned

    @property
    def has_workers(self) -> bool:
        """Return whether anybody would do work that is submitted now."""
        return bool(self._threads())

    @property
    def workers(self) -> int:
        """Return the number of threads of all workers that the scheduler knows now, at least 1."""
        return max(1, sum(self._threads().values()))

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: float = 0) -> list[Any]:
        """Return the values of the function over the arguments, in their order."""
        return self.gather([self.submit(function, *each, priority=priority) for each in zip(*arguments, strict=True)])

    def submit(
        self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None
    ) -> DaskTask:
        """Submit one piece of work; `on` counts the workers in the order of their addresses."""
        pinned: dict[str, Any] = {}
        if on is not None:
            addresses = self.addresses()
            if not 0 <= on < len(addresses):
                raise SalmonError(f"There is no worker {on}.", hint=f"The cluster has {len(addresses)}, from 0.")
            pinned = {"workers": [addresses[on]], "allow_other_workers": False}
        values = [each.future if isinstance(each, DaskTask) else each for each in arguments]
        # pure=False: equal calls are repeated work on purpose, never looked up by a hash of large arrays.
        future = self.client.submit(function, *values, priority=cast("int", priority), pure=False, **pinned)
        return DaskTask(self, future)

    def gather(self, tasks: Iterable[DaskTask]) -> list[Any]:
        """Return the values of tasks in their order; raise what their work raised."""
        futures = [task.future for task in tasks]
        return cast("list[Any]", self._while_there(cast("Any", self.client.gather(futures, asynchronous=True))))

    def _while_there(self, waiting: Coroutine[Any, Any, Any]) -> Any:
        """Return what a coroutine of the client returns; raise ClusterAwayError where the cluster is gone meanwhile.

        The client itself would wait for ever: for a task without a worker, or for the reply of a scheduler that hangs.
        """
        loop = cast("Any", self.client.loop).asyncio_loop
        awaited = asyncio.run_coroutine_threadsafe(waiting, loop)
        try:
            looks = 0
            while True:
                with suppress(TimeoutError):
                    return awaited.result(_LOOK_SECONDS)
                if awaited.done():  # the work itself raised a TimeoutError
                    return awaited.result()
                looks = self._look(looks)
        finally:
            awaited.cancel()  # nobody needs its value now; nothing happens where it is done

    def _look(self, looks: int) -> int:
        """Return for how many looks in a row there was no worker; raise ClusterAwayError when the cluster is gone."""
        looks = 0 if self.has_workers else looks + 1
        if looks == _LOOKS_WITHOUT_WORKERS:
            raise ClusterAwayError(
                "The Dask cluster has no workers any more.", hint="Start some; work goes on elsewhere meanwhile."
            )
        return looks

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of each worker, by its address, as the scheduler says now."""
        silent = ClusterAwayError(
            "The Dask scheduler is gone.", hint="Start it again; work goes on elsewhere meanwhile."
        )
        if self.client.status != "running":
            raise silent
        try:
            found = self.client.sync(
                cast("Any", self.client.scheduler).ncores, workers=None, callback_timeout=_REPLY_SECONDS
            )
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            raise silent from error
        return cast("dict[str, int]", found)

    @property
    def host(self) -> str:
        """Return the address under which workers reach this process: the one it uses to reach the scheduler."""
        scheduler = cast("str", self.client.scheduler_info(n_workers=0)["address"])
        return str(get_ip(get_address_host(scheduler)))

    def host_of(self, address: str) -> str:
        """Return the address at which a worker can be reached by the others, without its port."""
        host = get_address_host(address)
        # Workers that are threads of this process have no port of their own.
        return self.host if address.startswith("inproc://") else str(host)

    @property
    def scalable(self) -> bool:
        """Whether workers can be requested."""
        return hasattr(self.client.cluster, "adapt")

    def addresses(self) -> list[str]:
        """Return the addresses of the present workers, in an order that others joining or leaving does not change."""
        return sorted(self._threads())

    def submit_at(self, address: str, function: Callable[..., Any], *arguments: Any, name: str) -> Task:
        """Submit work to the worker at an address and to no other; the dashboard shows it under the name."""
        return cast(
            "Task",
            self.client.submit(
                function, *arguments, key=f"{name}-{uuid4()}", workers=[address], allow_other_workers=False, pure=False
            ),
        )

    def compute_at(self, address: str, delayed: Iterable[Any]) -> list[Task]:
        """Have the worker at an address compute delayed values and keep them; return them as pending values."""
        return cast(
            "list[Task]",
            self.client.compute(list(delayed), workers=[address], allow_other_workers=False, optimize_graph=False),
        )

    def wait_any(self, tasks: list[Task], *, timeout_s: float) -> None:
        """Wait until one of the tasks is done, at most this long."""
        with suppress(TimeoutError, FuturesCancelledError):
            wait(tasks, timeout=timeout_s, return_when="FIRST_COMPLETED")

    def collect(self, task: Task) -> Any:
        """Return the value of a finished task, or None if it was lost with its worker; raise what the work raised."""
        try:
            return task.result()
        except (KilledWorker, FutureCancelledError, FuturesCancelledError, CommClosedError):
            return None

    def wait_for(self, workers: int, *, timeout_s: float) -> None:
        """Wait until this many workers are present."""
        try:
            self.client.wait_for_workers(workers, timeout=timeout_s)
        except TimeoutError as error:
            raise SalmonError(
                f"No {workers} worker{'' if workers == 1 else 's'} came within {timeout_s:g} s.",
                hint="Start workers that join this scheduler.",
            ) from error

    def follow(self, workers: int) -> None:
        """Have the cluster keep exactly this many workers, also when one dies, and wait until they are present."""
        cast("Any", self.client.cluster).adapt(minimum=workers, maximum=workers, interval=_ADAPT_EVERY)
        self.client.wait_for_workers(workers)

    def as_completed(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield the tasks as they finish."""
        pending, looks = [cast("DaskTask", task) for task in tasks], 0
        while pending:
            if done := [task for task in pending if task.done()]:
                yield from done
                pending, looks = [task for task in pending if task not in done], 0
                continue
            try:
                wait([task.future for task in pending], timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
            except FuturesCancelledError:
                continue  # what is cancelled is done
            except TimeoutError:
                looks = self._look(looks)

    def scatter(self, value: Any) -> Any:
        """Move a value to one worker; others fetch it from there when they need it."""
        # In a list: a dict or a list of its own would be taken apart and scattered piece by piece. The workers of a
        # cluster started here can be reached directly; others perhaps only through their scheduler.
        moving = self.client.scatter([value], hash=False, direct=self._owned is not None, asynchronous=True)
        return cast("list[Any]", self._while_there(moving))[0]

    def scale(self, workers: int) -> None:
        """Ask the cluster for this many workers and wait until they are present."""
        if workers < 1:
            raise SalmonError(f"{workers} workers cannot do any work.", hint="Ask for at least 1.")
        if self.client.cluster is None:
            raise SalmonError("This cluster was started elsewhere.", hint="Scale it where it was started.")
        self.client.cluster.scale(workers)
        self.client.wait_for_workers(workers)

    def close(self) -> None:
        """Disconnect from the cluster, and close it if it was started here."""
        self.client.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
