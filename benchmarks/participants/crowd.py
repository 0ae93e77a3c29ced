"""People who answer over HTTP as the page does: one query on the screen, the next one fetched just in time.

When it is fetched follows the rule of the page (`frontend/static/participant/run.js`): once eight trials are known, as
long before the fastest of the last eight answers as two of the slowest of the last eight requests take, and 100 ms.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from salmon.simulate import World

#: Trials and requests that tell a participant's pace, and what is left beside them.
KNOWN = 8
MARGIN_SECONDS = 0.1

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
    """What the crowd saw. Times are Unix seconds; `shown` and `answered` hold (participant, trial, time).

    `first_seconds` are the requests of everybody's first query, which they send while all arrive;
    `query_seconds` are all others.
    """

    first_seconds: list[float] = field(default_factory=list)
    query_seconds: list[float] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    shown: dict[tuple[str, int], float] = field(default_factory=dict)
    answered: dict[tuple[str, int], float] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass
class Pace:
    """How fast a participant decides, and how long their last requests took."""

    decisions: deque[float] = field(default_factory=lambda: deque(maxlen=KNOWN))
    requests: deque[float] = field(default_factory=lambda: deque(maxlen=KNOWN))

    @property
    def spare_seconds(self) -> float:
        """How long the next query need not be asked for."""
        if len(self.decisions) < KNOWN:
            return 0.0
        return max(0.0, min(self.decisions) - 2 * max(self.requests) - MARGIN_SECONDS)


@dataclass(frozen=True)
class Crowd:
    """Participants of one experiment at one address."""

    address: str
    world: World
    thinking: Thinking
    diary: Diary

    async def live(self, participants: int, *, seconds: float, answers_each: int = 10**9, first: int = 0) -> None:
        """Everybody arrives within a second and answers until time is up or enough answers are given.

        `first` is the number of the first participant: those who have answered before do not come again.
        """
        limits = httpx.Limits(max_connections=participants, max_keepalive_connections=participants)
        end = time.time() + seconds
        async with httpx.AsyncClient(base_url=self.address, limits=limits, timeout=30) as client:
            numbers = range(first, first + participants)
            await asyncio.gather(*(self._participate(client, i, end, answers_each) for i in numbers))

    async def _participate(self, client: httpx.AsyncClient, number: int, end: float, answers_each: int) -> None:
        rng = np.random.default_rng([91, number])
        await asyncio.sleep(float(rng.random()))
        name = f"participant-{number}"
        reply = await client.post("arrive", json={"parameters": {"puid": name}})
        session = {"X-Salmon-Session": reply.raise_for_status().json()["session"]}
        pace = Pace()
        ahead = asyncio.create_task(self._query(client, session, 1, pace))
        for number in range(1, answers_each + 1):
            query = await ahead
            if query is None or time.time() > end:
                return
            self.diary.shown[name, query["trial"]] = time.time()
            thinking = self.thinking(rng)
            spare = min(pace.spare_seconds, thinking)
            await asyncio.sleep(spare)
            ahead = asyncio.create_task(self._query(client, session, number + 1, pace))
            await asyncio.sleep(thinking - spare)
            pace.decisions.append(thinking)
            asked = np.array([[query["head"], query["left"], query["right"]]])
            winner = int(self.world.answer(asked, rng)[0, 1])
            await self._answer(client, name, query, winner)
        ahead.cancel()

    async def _query(
        self, client: httpx.AsyncClient, session: dict[str, str], number: int, pace: Pace
    ) -> dict[str, Any] | None:
        began = time.perf_counter()
        reply = await client.get(f"query?number={number}", headers=session)
        pace.requests.append(time.perf_counter() - began)
        (self.diary.query_seconds if number > 1 else self.diary.first_seconds).append(pace.requests[-1])
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
