"""Connections to Redis: the one module of the web process that opens it and knows its errors."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError

from salmon.errors import StoreError
from salmon.logs import fields
from salmon.wire import BACKEND, Heartbeat

log = logging.getLogger("salmon.store")

#: More requests than this at once wait for a connection instead of opening another.
CONNECTIONS = 64
#: Arrays are read for the console only.
BINARY_CONNECTIONS = 8
#: How long a request waits for a connection, and a command for its answer.
WAIT_SECONDS = 5.0


class Connection:
    """Pool of connections to one Redis; its failures are raised as StoreError."""

    def __init__(self, url: str) -> None:
        self._client = _client(url, CONNECTIONS, decode_responses=True)
        self._binary = _client(url, BINARY_CONNECTIONS, decode_responses=False)
        self._digests: dict[str, str] = {}

    async def close(self) -> None:
        """Give all connections back."""
        await self._client.aclose(close_connection_pool=True)
        await self._binary.aclose(close_connection_pool=True)

    async def do(self, command: Callable[[Redis], Awaitable[Any]]) -> Any:
        """Run one command."""
        try:
            return await command(self._client)
        except RedisError as error:
            raise _translate(error) from error

    async def do_binary(self, command: Callable[[Redis], Awaitable[Any]]) -> Any:
        """Run one command whose reply is bytes, because it holds arrays."""
        try:
            return await command(self._binary)
        except RedisError as error:
            raise _translate(error) from error

    async def together(self, commands: Callable[[Pipeline], object]) -> list[Any]:
        """Run several commands in one round trip and one transaction: all of them or none."""
        try:
            async with self._client.pipeline(transaction=True) as pipeline:
                commands(pipeline)
                return await pipeline.execute()
        except RedisError as error:
            raise _translate(error) from error

    async def run(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run a Lua script atomically; the script is sent once and then called by its digest."""
        digest = self._digests.setdefault(script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())
        try:
            try:
                return await self._client.evalsha(digest, len(keys), *keys, *(str(part) for part in arguments))
            except NoScriptError:
                await self._client.script_load(script)
                return await self._client.evalsha(digest, len(keys), *keys, *(str(part) for part in arguments))
        except RedisError as error:
            raise _translate(error) from error

    async def alive(self) -> bool:
        """Return whether Redis answers."""
        try:
            return bool(await self._client.ping())
        except RedisError:
            return False

    async def read_heartbeat(self) -> Heartbeat | None:
        """Return what the backend last said; None when it has been silent for longer than a beat lives."""
        value = await self.do(lambda client: client.get(BACKEND))
        return Heartbeat.decode(value) if value else None


class Verbs:
    """The base of every group of verbs: what they are carried out on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


def _client(url: str, connections: int, *, decode_responses: bool) -> Redis:
    return Redis(
        connection_pool=BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=WAIT_SECONDS,
            socket_timeout=WAIT_SECONDS,
            socket_connect_timeout=WAIT_SECONDS,
            decode_responses=decode_responses,
        )
    )


def _translate(error: RedisError) -> StoreError:
    log.error("store failed", extra=fields(error=type(error).__name__, detail=str(error)))
    if isinstance(error, AuthenticationError):
        return StoreError("The store refuses this program's password.", hint="Check SALMON_REDIS_URL.")
    if isinstance(error, ResponseError) and str(error).startswith(("MISCONF", "OOM")):
        return StoreError(
            "The store cannot write: its disk or memory is full.",
            hint="No answers were lost. Free some space; pages then send their answers again.",
        )
    if isinstance(error, ResponseError):
        return StoreError(f"The store refused a command: {error}.", hint="Nothing was written.")
    return StoreError("The store does not respond at the moment.", hint="Nothing was lost; try again in a moment.")
