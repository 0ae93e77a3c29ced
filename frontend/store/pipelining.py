"""A connection to Redis on which the calls of all requests travel together.

Calls that are made in one step of the event loop leave in one write, without waiting for the replies to those before.
The store carries out what it has received before it syncs its log, so one sync serves all of them. Replies come in the
order of the calls, which is how they find whoever waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from hiredis import Reader, pack_command

#: Opens a connection for a protocol, on whatever the store listens.
Opener = Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[asyncio.BaseTransport, asyncio.Protocol]]]
Words = tuple[str | int, ...]


class Pipeline(asyncio.Protocol):
    """One open connection. When it is lost, or a reply takes longer than `wait_seconds`, every waiting call fails."""

    def __init__(self, wait_seconds: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.open = False
        self._wait_seconds = wait_seconds
        # A flipped byte is found by the checksum of its answer, not by a failure to decode.
        self._reader = Reader(encoding="utf-8", errors="replace")
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def call(self, *words: str | int) -> asyncio.Future[Any]:
        """Send a command with all others of this step; return its reply, which may be a hiredis.ReplyError."""
        reply: asyncio.Future[Any] = self.loop.create_future()
        if not self.open:
            reply.set_exception(ConnectionError("The connection is closed."))
            return reply
        if not self._unsent:
            self.loop.call_soon(self._send)
        self._unsent.append(pack_command(cast("Any", words)))
        self._waiting.append((self.loop.time(), reply))
        if self._timer is None:
            self._timer = self.loop.call_later(self._wait_seconds, self._check_time)
        return reply

    def close(self) -> None:
        """Close the connection; calls that still wait fail."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to take calls."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Give each reply to whoever waits for it."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            _, waiting = self._waiting.popleft()
            if not waiting.done():  # whoever called may have gone
                waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let every call fail that has no reply."""
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        for _, reply in waiting:
            if not reply.done():
                reply.set_exception(ConnectionError(f"The connection to the store was lost: {exc}."))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and self.open:
            self._transport.write(b"".join(unsent))

    def _check_time(self) -> None:
        """Close the connection where the first of the waiting calls has waited for too
        long; one timer serves all calls.
        """
        self._timer = None
        if not self._waiting:
            return
        left = self._waiting[0][0] + self._wait_seconds - self.loop.time()
        if left <= 0:
            self.close()
        else:
            self._timer = self.loop.call_later(left, self._check_time)


class Pipelines:
    """The pipeline of this process, connected when it is first used and again after it was lost."""

    def __init__(self, opener: Opener, greeting: tuple[Words, ...], *, wait_seconds: float) -> None:
        self._opener = opener
        self._greeting = greeting
        self._wait_seconds = wait_seconds
        self._pipeline: Pipeline | None = None
        self._connecting: asyncio.Task[Pipeline] | None = None

    async def call(self, *words: str | int) -> Any:
        """Return the reply to a command, which may be a hiredis.ReplyError; ConnectionError where none came."""
        return await (await self.connected()).call(*words)

    async def connected(self) -> Pipeline:
        """Return the open pipeline, for calls that must all travel on the same connection."""
        pipeline = self._pipeline
        if pipeline is None or not pipeline.open or pipeline.loop is not asyncio.get_running_loop():
            return await self._connect()
        return pipeline

    def close(self) -> None:
        """Close the connection."""
        if self._pipeline is not None:
            self._pipeline.close()

    async def _connect(self) -> Pipeline:
        """Return an open pipeline; of those who need one at the same moment, the first connects for all."""
        loop = asyncio.get_running_loop()
        if self._connecting is None or self._connecting.done() or self._connecting.get_loop() is not loop:
            self._connecting = loop.create_task(self._open())
            self._connecting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._connecting)

    async def _open(self) -> Pipeline:
        async with asyncio.timeout(self._wait_seconds):
            _, protocol = await self._opener(lambda: Pipeline(self._wait_seconds))
            pipeline = cast("Pipeline", protocol)
            replies = await asyncio.gather(*(pipeline.call(*words) for words in self._greeting))
        for reply in replies:
            if isinstance(reply, Exception):
                pipeline.close()
                raise reply
        self._pipeline = pipeline
        return pipeline
