"""Metrics of the web process: requests by route and status, how long they took, and the room on its disk."""

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, multiprocess
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The folder in which several processes count together. The library reads it when it is imported.
_COUNTED_TOGETHER = "PROMETHEUS_MULTIPROC_DIR"
#: Below this free space, the store can write nothing.
FULL_DISK_BYTES = 4_000_000
#: Upper bounds in seconds: most requests take about a millisecond, and a quarter second is felt.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True)
class Latency:
    """Requests of a route, and how many milliseconds half and nearly all of them took at most; None where unknown."""

    route: str
    requests: int
    median_ms: float | None
    p99_ms: float | None


class Metrics:
    """The counters of the web processes: of this one, or of all that count into one folder because they share a port.

    `registry` is what is shown. `under_way` are the participants' requests that this
    process has begun and not answered.
    """

    def __init__(self) -> None:
        own = CollectorRegistry()
        self.requests = Counter("salmon_requests", "Requests", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "salmon_request_seconds", "Time to the last byte", ["route"], buckets=_BOUNDS, registry=own
        )
        self.under_way = 0
        self._counters: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.registry = own
        if folder := os.environ.get(_COUNTED_TOGETHER):
            self.registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(self.registry, folder)  # pyright: ignore[reportUnknownMemberType,reportArgumentType]
        else:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        counters = self._counters.get((route, status))
        if counters is None:
            counters = self.requests.labels(route, str(status)), self.seconds.labels(route)
            self._counters[route, status] = counters
        counters[0].inc()
        counters[1].observe(seconds)

    def latency(self, route: str, *others: str) -> Latency:
        """Return how quickly a route, and others that do the same, were answered since the server began.

        A quantile is the upper bound of its bucket.
        """
        counted: dict[float, float] = {}
        for metric in self.registry.collect():
            for sample in metric.samples:
                if sample.name == "salmon_request_seconds_bucket" and sample.labels["route"] in {route, *others}:
                    bound = float(sample.labels["le"])
                    counted[bound] = counted.get(bound, 0.0) + sample.value
        buckets = sorted(counted.items())
        total = buckets[-1][1] if buckets else 0.0
        bounds = {share: next((le for le, count in buckets if count >= share * total), None) for share in (0.5, 0.99)}
        known = {share: None if le is None or le == inf or not total else 1000 * le for share, le in bounds.items()}
        return Latency(route, int(total), known[0.5], known[0.99])


class DataDisk:
    """The disk of the data directory, where it is a directory of this machine: whether it has room left."""

    def __init__(self, data: str, warn_below_mb: int) -> None:
        self._path = None if "://" in data else Path(data)
        self._warn_below = warn_below_mb * 1_000_000
        self._asked = -inf
        self._free: int | None = None
        self._fault = ""

    @property
    def full(self) -> bool:
        """Whether nothing can be written."""
        free = self._read_free()
        return free is not None and free < FULL_DISK_BYTES

    @property
    def problem(self) -> str:
        """What people should know: that the disk takes no files, is full or nearly; nothing otherwise."""
        free = self._read_free()
        if self._fault and not self.full:
            return self._fault
        if free is None or free >= max(self._warn_below, FULL_DISK_BYTES):
            return ""
        if self.full:
            return "The disk with the data directory is full: free some space. Answers are recorded again when there is room."
        return f"The disk with the data directory has only {free / 1e6:,.0f} MB left: answers stop when it is full."

    def _read_free(self) -> int | None:
        """Return the free bytes as of a second ago at the most; None where they are not known."""
        if time.monotonic() - self._asked > 1.0:
            self._asked = time.monotonic()
            self._free, self._fault = None, ""
            if self._path is not None:
                with suppress(OSError):
                    self._free = shutil.disk_usage(self._path).free
                    self._fault = _fault_of(os.statvfs(self._path))
        return self._free


def _fault_of(disk: os.statvfs_result) -> str:
    if disk.f_flag & os.ST_RDONLY:
        return (
            "The disk with the data directory is a read-only file system: make it writable. No answers can be recorded."
        )
    if disk.f_files and disk.f_favail == 0:  # file systems that make inodes as they need them have none to count
        return "The disk with the data directory has no inodes left, so no file can be made: remove files that nobody needs."
    return ""


class MetricsMiddleware:
    """Middleware that counts every request; routes are named by their pattern, never by their values."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.count(route, status, time.perf_counter() - started)
