"""Scripts of the first Salmon in the simulated world: they ask at `/query` and answer at `/answer`, without a page.

A script keeps nothing but the answer in its hands: it asks again when a query does not come, and sends its answer again
until the server says that it has it.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

from tests.simulation.page_model import TIMEOUT_SECONDS, Failure, Json, Offline, Surroundings
from tests.simulation.virtual_loop import Process, loop_here

#: Queries that a greedy script asks for, one after the other, without answering any: more than may be open.
GREED = 80
#: How often a script loses the query in its hands.
FORGETS = 0.15


class Script:
    """A script that answers as many queries as `wanted`; a greedy one asks for many and answers none.

    One that `names_itself` when it asks gets a participant's queries; another names itself only when it answers.
    """

    def __init__(
        self, world: Surroundings, name: str, taste: random.Random, *, wanted: int, names_itself: bool, greedy: bool
    ) -> None:
        self._world = world
        self.name = name
        self.finished = False
        self._taste = taste
        self._wanted = wanted
        self._names_itself = names_itself or greedy
        self._greedy = greedy

    async def live(self) -> None:
        """Ask and answer until enough answers are stored."""
        await (self._ask_only() if self._greedy else self._answer_all())
        self.finished = True

    async def _ask_only(self) -> None:
        for _ in range(GREED):
            try:
                await self._ask()
            except Failure as failure:
                self._world.note(f"{self.name}: {failure.code}")
                await asyncio.sleep(0.2)

    async def _answer_all(self) -> None:
        given = 0
        while given < self._wanted:
            query = await self._retried(self._ask)
            if self._taste.random() < FORGETS:
                continue  # it was started again, and knows nothing of the query
            await asyncio.sleep(self._taste.uniform(0.05, 1.0))
            winner = query["left"] if self._taste.random() < 0.5 else query["right"]
            if self._taste.random() < 0.3:  # a script decides for itself on which side it shows what
                query = {**query, "left": query["right"], "right": query["left"]}
            self._world.note_given(self, query, winner)
            answer = {**query, "winner": winner, "puid": self.name, "response_time": 0.7}
            await self._retried(partial(self._send, "POST", "/answer", answer))
            self._world.note_acknowledged(query["token"], duplicate=False)
            given += 1

    async def _ask(self) -> Json:
        """Ask for a query; whoever has named itself gets one that is on a list again until it has answered it."""
        asked_at = loop_here().time()
        parameters = f"?puid={self.name}" if self._names_itself else ""
        query = await self._send("GET", f"/query{parameters}{'&sampler=Adaptive' if self._greedy else ''}")
        if self._names_itself and not self._greedy:
            self._world.note_asked(query["token"], asked_at)
        return query

    async def _retried(self, send: Any) -> Json:
        while True:
            try:
                return await send()
            except Failure as failure:
                if not failure.retryable:
                    raise
            await asyncio.sleep(self._taste.uniform(0.3, 3.0))

    async def _send(self, method: str, path: str, body: Any = None) -> Json:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, reply = await self._world.send(method, path, body, None)
        except (Offline, TimeoutError):
            raise Failure("offline", retryable=True) from None
        if status == 200:
            return reply
        raise Failure(reply["error"]["code"], retryable=status >= 500 or status == 429)


def start(script: Script) -> asyncio.Task[None]:
    """Run a script as a process of its own."""
    return Process(f"script {script.name}").start(script.live())
