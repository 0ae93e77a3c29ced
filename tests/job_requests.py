"""Requests to the learning process, for tests that ask, hold and follow them."""

import threading
from collections.abc import Callable
from typing import Any

from backend.service import Service
from backend.store import Store as BackendStore
from salmon.wire import JobStatus, request
from tests.living import Crowd, absorbed, run_until


def read_status(probe: BackendStore, identifier: str) -> JobStatus:
    found = JobStatus.decode(probe._client.hgetall(request(identifier)))
    assert found is not None
    return found


def run_to_the_end(service: Service, probe: BackendStore, identifier: str) -> JobStatus:
    run_until(service, lambda: read_status(probe, identifier).ended)
    return read_status(probe, identifier)


async def ask_for(owned: Callable[..., Any], slug: str, kind: str, **arguments: Any) -> str:
    reply = await owned("POST", f"/api/experiments/{slug}/requests", json={"kind": kind, "arguments": arguments})
    assert reply.status_code == 202, reply.text
    return reply.json()["request"]


async def answer_and_absorb(crowd: Crowd, service: Service, experiment: str, count: int, participants: int = 3) -> None:
    await crowd.answer(count, participants)
    run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))


class BlockedStep:
    """A step that waits until it is let go, and says when it has begun."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.times = 0
        self._work = work

    def __call__(self, *arguments: Any) -> Any:
        self.times += 1
        self.begun.release()
        assert self.let_go.wait(30)
        return self._work(*arguments)


def expires_within(probe: BackendStore, identifier: str, seconds: int) -> bool:
    """Whether a request will be gone by then; the access list lets nobody ask for the time that is left."""
    key = request(identifier)
    expires = not probe._client.expire(key, seconds, nx=True)
    return expires and bool(probe._client.expire(key, seconds + 60, gt=True))
