"""People who answer over HTTP, and turns of the learning loop, for tests that hold both in their hands."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from backend.service import Service
from frontend.app import create_app
from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.store import Store
from salmon.simulate import egg_world

SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\nseed: 11\n"


def client_on(settings: Settings, store: Store) -> httpx.AsyncClient:
    """The application in this process; requests reach it without a socket."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=create_app(settings, store)), base_url="http://salmon.test"
    )


class Crowd:
    """Participants who answer over HTTP, as the true world would, and remember what they were asked."""

    def __init__(self, client: httpx.AsyncClient, slug: str, n: int = 30) -> None:
        self.client = client
        self.slug = slug
        self.world = egg_world(n)
        self.generator = np.random.default_rng(5)
        self.given: list[tuple[int, int, int]] = []
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.sessions: dict[str, dict[str, str]] = {}

    async def arrive(self, name: str, **parameters: str) -> dict[str, Any]:
        """Open the experiment's link with these parameters, or the name as the participant's id."""
        body = {"parameters": parameters or {"puid": name}}
        arrival = (await self.client.post(f"/e/{self.slug}/arrive", json=body)).raise_for_status().json()
        self.sessions[name] = {"X-Salmon-Session": arrival["session"]}
        return arrival

    async def answer(self, count: int, participants: int = 3) -> None:
        for number in range(count):
            name = f"p{number % participants}"
            query = await self._ask(name)
            triplet = self.world.answer(np.array([[query["head"], query["left"], query["right"]]]), self.generator)[0]
            await self._send(query, int(triplet[1]))
            self.given.append((int(triplet[0]), int(triplet[1]), int(triplet[2])))
            self.asked.setdefault(name, []).append(query)

    async def answer_left(self, name: str) -> None:
        """Answer one query with its left target."""
        query = await self._ask(name)
        await self._send(query, query["left"], rt_ms=900.5)

    async def _ask(self, name: str) -> dict[str, Any]:
        if name not in self.sessions:
            await self.arrive(name)
        return (await self.client.get(f"/e/{self.slug}/query", headers=self.sessions[name])).raise_for_status().json()

    async def _send(self, query: dict[str, Any], winner: int, **timing: float) -> None:
        body = {"token": query["token"], "winner": winner, **timing}
        (await self.client.post(f"/e/{self.slug}/answers", json=body)).raise_for_status()


async def started(
    client: httpx.AsyncClient, settings: Settings, store: Store, name: str, spec: str = SPEC
) -> tuple[Crowd, str]:
    context = Context(settings, store)
    for earlier in await store.experiments.list():
        await store.experiments.set_state(earlier.experiment, "closed", now_ms=1)
    made, _ = await launch(
        context, spec.encode(), spec_name=Path("x.yaml"), archive=None, name=name, owner="o", state="open"
    )
    return Crowd(client, made.slug), made.experiment


def run_until(service: Service, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Turn the loop until something is so."""
    deadline, wake = time.monotonic() + seconds, 0.0
    while not condition():
        assert time.monotonic() < deadline, "the loop did not get there"
        wake = service.step(min(wake, time.monotonic() + 0.05))


def absorbed(service: Service, experiment: str, sampler: str = "Adaptive") -> int:
    item = service.experiments.get(experiment)
    return item.learners[sampler].state.absorbed if item else -1
