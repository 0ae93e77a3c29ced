"""The heartbeat goes on, whatever goes wrong."""

import threading

import pytest

from backend import service
from backend.service import HeartbeatThread
from salmon.errors import StoreError
from salmon.wire import Heartbeat


class Beats:
    """A store that notes beats, and fails in another way at each of the first."""

    def __init__(self) -> None:
        self.failures = [StoreError("away"), OSError("comm closed"), RuntimeError("no running loop"), TimeoutError()]
        self.beaten = threading.Event()

    def beat(self, heartbeat: Heartbeat, *, lives_seconds: int) -> None:
        if self.failures:
            raise self.failures.pop()
        self.beaten.set()


def test_no_error_ends_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BEAT_SECONDS", 0.01)
    reports = [ValueError("a cluster that is lost"), Heartbeat(0, 0, 0, 0, 0, ())]

    def report() -> Heartbeat:
        found = reports.pop(0) if len(reports) > 1 else reports[0]
        if isinstance(found, Exception):
            raise found
        return found

    store = Beats()
    thread = HeartbeatThread(store, report)  # type: ignore[arg-type]
    thread.start()
    assert store.beaten.wait(10)
    thread.stop()
