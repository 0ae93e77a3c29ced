"""The processes of the simulated world: the real web application and the real learning
process, with clocks of their own.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from tests.simulation.page_model import Offline
from tests.simulation.virtual_loop import Process, ProcessKilled, loop_here, run_blocking
from tests.simulation.workers import Workers

if TYPE_CHECKING:
    from tests.simulation.world import World

URL = "redis://store:6379/0"
#: Unix time at which every simulated world begins, in milliseconds.
START_MS = 1_800_000_000_000
SECRET = "the secret of a simulated world"
#: The code of who has finished: too long to stand in a signature by chance.
CODE = "COMPLETED-4711"
SETTINGS = Settings(redis_url=URL, secret=SECRET, data="/nonexistent/salmon")


@dataclass
class Clock:
    """The wall clock of one process: the virtual time and how far it is off."""

    off_ms: int = 0

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return START_MS + int(loop_here().time() * 1000) + self.off_ms


class Web:
    """A web process: the application with its context, which ends with it."""

    def __init__(self, world: World, app: FastAPI, name: str) -> None:
        self._world = world
        self._app = app
        self.name = name
        self.clock = Clock()
        self.process: Process | None = None

    def start(self) -> None:
        """Start the process."""
        generator = self._world.generator
        self.process = Process(self.name)
        self._app.state.context = Context(
            SETTINGS, Store.open(URL), now_ms=self.clock.now_ms, nonce=lambda: f"{generator.getrandbits(64):016x}"
        )

    def kill(self) -> None:
        """End the process without warning."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    async def handle(self, method: str, path: str, body: bytes, session: str | None) -> tuple[int, Any]:
        """Handle one request; Offline where the process does not run, or ends meanwhile."""
        if self.process is None:
            raise Offline
        task = self.process.start(call(self._app, method, path, body, session))
        await asyncio.wait((task,))
        if task.cancelled():
            raise Offline
        return task.result()


async def call(app: FastAPI, method: str, path: str, body: bytes, session: str | None) -> tuple[int, Any]:
    """Send one request through the ASGI application and return (status, JSON)."""
    path, _, query = path.partition("?")
    headers = [(b"host", b"salmon.test"), (b"accept", b"application/json"), (b"content-type", b"application/json")]
    if session is not None:
        headers.append((b"x-salmon-session", session.encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("192.0.2.1", 50000),
        "server": ("salmon.test", 80),
        "state": {},
    }
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await app(scope, receive, send)  # pyright: ignore[reportArgumentType]
    except Exception:
        if not sent:  # an error that was answered is raised once more, for the server's log
            raise
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(content)


class Backend:
    """A learning process."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.clock = Clock()
        self.process = Process(name)
        self.process.start(run_blocking(self._live)).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Check that the process ended because it was killed."""
        if not task.cancelled() and not isinstance(task.exception(), ProcessKilled):
            self._world.checks.violated("nothing unexpected", f"{self.process.name} died: {task.exception()!r}")

    def _live(self) -> None:
        store = BackendStore(URL)
        Service(store, lambda: Workers(self._world), now_ms=self.clock.now_ms).run()
