"""People at their browsers and scripts, for tests of accounts and logins."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from frontend.store.accounts import Account

HOME = "198.51.100.7"
ELSEWHERE = "203.0.113.9"
PASSWORD = "a good password"

Send = Callable[..., Awaitable[httpx.Response]]


class Clock:
    """The time of the browsers' servers, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000

    def pass_hours(self, hours: float) -> None:
        self.ms += round(hours * 3_600_000)


class Browser:
    """A browser with cookies at one address, or a web process of its own."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def log_in(self, name: str, password: str, **headers: str) -> httpx.Response:
        return await self.client.post("/console/login", data={"name": name, "password": password}, headers=headers)

    async def csrf(self) -> dict[str, str]:
        page = await self.client.get("/console/")
        assert page.status_code == 200, page.text
        return {"X-CSRF-Token": page.text.split('name="csrf" content="')[1].split('"')[0]}

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.client.request(method, path, headers=await self.csrf(), **options)

    async def is_in(self) -> bool:
        return (await self.client.get("/api/experiments")).status_code == 200


Browse = Callable[..., Awaitable[Browser]]
MakeAccount = Callable[..., Awaitable[Account]]


def make_send(client: httpx.AsyncClient, name: str, password: str = PASSWORD) -> Send:
    async def send(method: str, path: str, **options: Any) -> httpx.Response:
        return await client.request(method, path, auth=(name, password), **options)

    return send


async def make_experiment(send: Send, name: str) -> None:
    files = {"spec": ("x.yaml", b"targets: [a, b, c, d]\nsamplers: {Random: {}}\n")}
    reply = await send("POST", "/api/experiments", files=files, data={"name": name, "state": "open"})
    assert reply.status_code == 201, reply.text
