"""People who answer over HTTP as the page does: one query on the screen, the next one fetched already."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from salmon.simulate import World

#: Seconds of thinking; each participant draws from a stream of their own.
Thinking = Callable[[np.random.Generator], float]


def log_normal(mean: float = 1.0, sigma: float = 0.5) -> Thinking:
    """Log-normal thinking times with this mean."""
    return lambda rng: float(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma))


def floored_normal(rng: np.random.Generator) -> float:
    """N(.75 s, .25 s), at least .2 s: the load test of the first Salmon."""
    return max(0.2, float(rng.normal(0.75, 0.25)))


@dataclass
class Diary:
    """What the crowd saw. Times are Unix seconds; `shown` and `answered` hold (participant, trial, time)."""

    query_seconds: list[float] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    shown: dict[tuple[str, int], float] = field(default_factory=dict)
    answered: dict[tuple[str, int], float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Crowd:
    """Participants of one experiment at one address."""

    address: str
    world: World
    thinking: Thinking
    diary: Diary

    async def live(self, participants: int, *, seconds: float, answers_each: int = 10**9) -> None:
        """Everybody arrives within a second and answers until time is up or enough answers are given."""
        limits = httpx.Limits(max_connections=participants, max_keepalive_connections=participants)
        end = time.time() + seconds
        async with httpx.AsyncClient(base_url=self.address, limits=limits, timeout=30) as client:
            await asyncio.gather(*(self._participate(client, i, end, answers_each) for i in range(participants)))

    async def _participate(self, client: httpx.AsyncClient, number: int, end: float, answers_each: int) -> None:
        rng = np.random.default_rng([91, number])
        await asyncio.sleep(float(rng.random()))
        name = f"participant-{number}"
        reply = await client.post("arrive", json={"parameters": {"puid": name}})
        session = {"X-Salmon-Session": reply.raise_for_status().json()["session"]}
        ahead = asyncio.create_task(self._query(client, session))
        for _ in range(answers_each):
            query = await ahead
            if query is None or time.time() > end:
                return
            self.diary.shown[name, query["trial"]] = time.time()
            ahead = asyncio.create_task(self._query(client, session))
            await asyncio.sleep(self.thinking(rng))
            asked = np.array([[query["head"], query["left"], query["right"]]])
            winner = int(self.world.answer(asked, rng)[0, 1])
            await self._answer(client, name, query, winner)
        ahead.cancel()

    async def _query(self, client: httpx.AsyncClient, session: dict[str, str]) -> dict[str, Any] | None:
        began = time.perf_counter()
        reply = await client.get("query", headers=session)
        self.diary.query_seconds.append(time.perf_counter() - began)
        if reply.status_code != 200:
            self.diary.errors.append(reply.text)
            return None
        query = reply.json()
        return None if query.get("done") else query

    async def _answer(self, client: httpx.AsyncClient, name: str, query: dict[str, Any], winner: int) -> None:
        began = time.perf_counter()
        reply = await client.post(
            "answers", json={"token": query["token"], "winner": winner, "rt_ms": 1000, "input": "script"}
        )
        self.diary.answer_seconds.append(time.perf_counter() - began)
        if reply.status_code == 200:
            self.diary.answered[name, query["trial"]] = time.time()
        else:
            self.diary.errors.append(reply.text)
