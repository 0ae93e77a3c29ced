"""Says every few seconds that the backend lives, and how it is, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from backend.store import Store
from salmon.errors import StoreError
from salmon.logs import fields
from salmon.wire import Heartbeat

log = logging.getLogger("salmon.backend")

#: How often it speaks, and how long its word lasts: two missed beats are forgiven.
BEAT_SECONDS = 4.0
LIVES_SECONDS = 14


class Pulse:
    """A thread with a connection of its own, so that a long refit does not silence it."""

    def __init__(self, store: Store, report: Callable[[], Heartbeat]) -> None:
        self._store = store
        self._report = report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        self._thread.join(BEAT_SECONDS)

    def _beat(self) -> None:
        silent = False
        while not self._stop.is_set():
            try:
                beat = replace(self._report(), beat_ms=time.time_ns() // 1_000_000)
                self._store.beat(beat, lives_seconds=LIVES_SECONDS)
                silent = False
            except StoreError as error:
                if not silent:
                    log.error("heartbeat not heard", extra=fields(error=str(error)))
                silent = True
            self._stop.wait(BEAT_SECONDS)
