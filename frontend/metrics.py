"""Metrics of the web process: requests by route and status, and how long they took."""

import time
from dataclasses import dataclass
from math import inf

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter("salmon_requests", "Requests", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "salmon_request_seconds", "Time to the last byte", ["route"], buckets=_BOUNDS, registry=self.registry
        )

    def latency(self, route: str) -> Latency:
        """Return how quickly a route was answered since this process began; a quantile is the upper bound of its
        bucket.
        """
        samples = [sample for metric in self.seconds.collect() for sample in metric.samples]
        buckets = [
            (float(sample.labels["le"]), sample.value)
            for sample in samples
            if sample.name.endswith("_bucket") and sample.labels["route"] == route
        ]
        total = buckets[-1][1] if buckets else 0.0
        bounds = {share: next((le for le, count in buckets if count >= share * total), None) for share in (0.5, 0.99)}
        known = {share: None if le is None or le == inf or not total else 1000 * le for share, le in bounds.items()}
        return Latency(route, int(total), known[0.5], known[0.99])


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
            self._metrics.requests.labels(route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
