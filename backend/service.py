"""Follows every open experiment: notices new ones, takes their fence, and gives each its turn."""

from __future__ import annotations

import logging
import threading
import time

from backend.store import Store
from salmon.errors import StoreError
from salmon.logs import fields
from salmon.wire import REQUESTS, Heartbeat

log = logging.getLogger("salmon.backend")

#: How long to sleep in Redis when nothing happens; a new entry wakes at once.
SLEEP_MS = 1000
#: The pause after the store did not answer.
RETRY_SECONDS = 1.0


class Service:
    """The loop of the learning process; one call of `step` is one turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._started_ms = time.time_ns() // 1_000_000
        self._fences: dict[str, int] = {}
        self._cursor: str | None = None
        self._stop = threading.Event()
        self._error = ""

    def run(self) -> None:
        """Follow the experiments until `stop` is called; when the store is away, wait for it."""
        while not self._stop.is_set():
            try:
                self.step(SLEEP_MS)
                self._error = ""
            except StoreError as error:
                if not self._error:
                    log.error("store away", extra=fields(error=str(error)))
                self._error = str(error)
                self._cursor = None
                self._stop.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """Return from `run` after this turn."""
        self._stop.set()

    def step(self, sleep_ms: int) -> None:
        """Look at the experiments once, then sleep until something is announced."""
        if self._cursor is None:
            self._cursor = self._store.last_request()
            self._follow()
        found = self._store.wait({REQUESTS: self._cursor}, at_most_ms=sleep_ms)
        for identifier, _ in found.get(REQUESTS, []):
            self._cursor = identifier
        if found:
            self._follow()

    def report(self) -> Heartbeat:
        """How this backend is."""
        return Heartbeat(
            started_ms=self._started_ms,
            beat_ms=self._started_ms,
            experiments=len(self._fences),
            errors=(self._error,) if self._error else (),
        )

    @property
    def fences(self) -> dict[str, int]:
        """The number under which this backend may publish, by experiment."""
        return dict(self._fences)

    def _follow(self) -> None:
        """Take over what is open and new; let go of what is open no more."""
        opened = {item.experiment: item for item in self._store.list_experiments() if item.state == "open"}
        for experiment in [experiment for experiment in self._fences if experiment not in opened]:
            del self._fences[experiment]
            log.info("experiment left", extra=fields(experiment=experiment))
        for experiment, item in opened.items():
            if experiment not in self._fences:
                self._fences[experiment] = self._store.take_over(experiment)
                log.info(
                    "experiment followed",
                    extra=fields(experiment=experiment, slug=item.slug, fence=self._fences[experiment]),
                )
