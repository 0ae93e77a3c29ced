"""People who answer over HTTP, and turns of the learning loop, for tests that hold both in their hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from backend.service import Service
from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.store import Store
from salmon.simulate import egg_world

SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\nseed: 11\n"


class Crowd:
    """Participants who answer over HTTP, as the true world would, and remember what they were asked."""

    def __init__(self, client: httpx.AsyncClient, slug: str) -> None:
        self.client = client
        self.slug = slug
        self.world = egg_world(30)
        self.generator = np.random.default_rng(5)
        self.given: list[tuple[int, int, int]] = []
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.sessions: dict[str, dict[str, str]] = {}

    async def answer(self, count: int, participants: int = 3) -> None:
        for number in range(count):
            name = f"p{number % participants}"
            if name not in self.sessions:
                body = {"parameters": {"puid": name}}
                reply = await self.client.post(f"/e/{self.slug}/arrive", json=body)
                self.sessions[name] = {"X-Salmon-Session": reply.raise_for_status().json()["session"]}
            reply = await self.client.get(f"/e/{self.slug}/query", headers=self.sessions[name])
            query = reply.raise_for_status().json()
            triplet = self.world.answer(np.array([[query["head"], query["left"], query["right"]]]), self.generator)[0]
            body = {"token": query["token"], "winner": int(triplet[1])}
            (await self.client.post(f"/e/{self.slug}/answers", json=body)).raise_for_status()
            self.given.append((int(triplet[0]), int(triplet[1]), int(triplet[2])))
            self.asked.setdefault(name, []).append(query)


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
