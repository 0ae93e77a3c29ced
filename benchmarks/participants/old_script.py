"""The load test of the first Salmon: users who ask at /query, think, and answer at /answer,
each on connections of their own.
"""

import asyncio
import time
from collections.abc import Callable

import httpx
import numpy as np

from benchmarks.participants.crowd import Diary

Thinking = Callable[[np.random.Generator], float]


async def old_load(address: str, thinking: Thinking | None, *, users: int, answers: int) -> Diary:
    """What so many users saw who gave so many answers each, at the root of a server."""
    diary = Diary()
    limits = httpx.Limits(max_connections=users, max_keepalive_connections=users)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as client:
        await asyncio.gather(*(_user(client, number, diary, thinking, answers) for number in range(users)))
    return diary


async def _user(client: httpx.AsyncClient, number: int, diary: Diary, thinking: Thinking | None, answers: int) -> None:
    rng = np.random.default_rng([17, number])
    latency = -1.0
    for trial in range(answers):
        began = time.perf_counter()
        asked = await client.get("/query")
        diary.query_seconds.append(time.perf_counter() - began)
        if asked.status_code != 200:
            diary.errors.append(asked.text)
            continue
        query = asked.json()
        seconds = thinking(rng) if thinking is not None else 0.0
        await asyncio.sleep(seconds)
        winner = query["left"] if rng.random() < 0.5 else query["right"]
        # Nobody is told of the token: whatever /query gave is sent back.
        body = {"winner": winner, "puid": number, "response_time": seconds, "network_latency": latency, **query}
        began = time.perf_counter()
        reply = await client.post("/answer", json=body)
        latency = time.perf_counter() - began
        diary.answer_seconds.append(latency)
        if reply.status_code == 200 and reply.json() == {"success": True}:
            diary.answered[str(number), trial] = time.time()
        else:
            diary.errors.append(reply.text)
