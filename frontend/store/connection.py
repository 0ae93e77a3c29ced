"""Connections to Redis: the one module of the web process that opens it and knows its errors."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hiredis import ReplyError
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.client import Pipeline as Transaction
from redis.asyncio.connection import parse_url
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LostError
from redis.maint_notifications import MaintNotificationsConfig

from frontend.errors import GoneError
from frontend.store.lua import CHANGE_WHERE_KNOWN
from frontend.store.pipelining import Opener, Pipeline, Pipelines, Words
from salmon.errors import StoreError
from salmon.logs import fields
from salmon.wire import BACKEND, Heartbeat

log = logging.getLogger("salmon.store")

#: More requests than this at once wait for a connection instead of opening another.
CONNECTIONS = 64
#: Arrays are read for the console only.
BINARY_CONNECTIONS = 8
#: How long an answer waits for its copies, how often replicas are asked meanwhile to report what is on their disks, and
#: how long nobody waits after one waited in vain.
COPY_MS = 1000
REPORT_MS = 10
UNCOPIED_SECONDS = 10.0
#: How long a request waits for a connection, and a command for its answer.
WAIT_SECONDS = 5.0


class Connection:
    """Connections to one Redis; its failures are raised as StoreError.

    Scripts, which are what participants need, travel together on one connection; those that wait for their copies
    travel on another, batch by batch. Single commands use a pool.
    """

    def __init__(self, url: str, *, copies: int = 1) -> None:
        self._copies = copies
        self._missing_since: float | None = None
        self._client = _client(url, CONNECTIONS, decode_responses=True)
        self._binary = _client(url, BINARY_CONNECTIONS, decode_responses=False)
        self._digests: dict[str, str] = {}
        opener, greeting = _way_to(url)
        self._scripts = Pipelines(opener, greeting, wait_seconds=WAIT_SECONDS)
        self._copied_scripts = Pipelines(opener, greeting, wait_seconds=WAIT_SECONDS)
        self._to_copy: list[tuple[Words, asyncio.Future[Any]]] = []
        self._copying: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Give all connections back."""
        self._scripts.close()
        self._copied_scripts.close()
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

    async def together(self, commands: Callable[[Transaction], object]) -> list[Any]:
        """Run several commands in one round trip and one transaction: all of them or none."""
        try:
            async with self._client.pipeline(transaction=True) as pipeline:
                commands(pipeline)
                return await pipeline.execute()
        except RedisError as error:
            raise _translate(error) from error

    @property
    def problem(self) -> str:
        """What people should know: that answers are on fewer machines than they should be; nothing otherwise."""
        if self._missing_since is None:
            return ""
        return (
            f"Answers are confirmed without their {self._copies} copies, because a replica of the store does not keep up."
            " They are on this store's disk. Check the replica; nothing else needs to be done."
        )

    async def run(
        self, script: str, keys: Sequence[str], arguments: Sequence[str | int], *, copied: bool = False
    ) -> Any:
        """Run a Lua script atomically; it is sent once and then called by its digest.

        With `copied`, return when what it wrote is on the disks of as many machines as the operator wants. That takes a
        second at most: where the copies are not there by then, the reply comes with the copy of the store alone,
        `problem` says so, and for some seconds nobody else waits.
        """
        call = self._call_and_wait if copied and self._waits_for_copies() else self._scripts.call
        words: Words = ("EVALSHA", self._digest(script), len(keys), *keys, *arguments)

        async def run() -> Any:
            reply = await call(*words)
            if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
                reply = await self._scripts.call("SCRIPT", "LOAD", script)
                reply = reply if isinstance(reply, ReplyError) else await call(*words)
            return reply

        return await _translated(run())

    async def call(self, *words: str | int) -> Any:
        """Run one command together with the scripts of the same moment; the reply is as the store sends it."""
        return await _translated(self._scripts.call(*words))

    def _waits_for_copies(self) -> bool:
        if self._missing_since is None:
            return self._copies > 1
        return asyncio.get_running_loop().time() - self._missing_since >= UNCOPIED_SECONDS

    async def _call_and_wait(self, *words: str | int) -> Any:
        """Return the reply of a script when its copies are there; those that come meanwhile are the next batch."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._to_copy.append((words, reply))
        if self._copying is None or self._copying.done():
            self._copying = asyncio.get_running_loop().create_task(self._copy())
        return await reply

    async def _copy(self) -> None:
        """Call the scripts of each batch in one write, and wait once for the copies of all."""
        while self._to_copy:
            batch, self._to_copy = self._to_copy, []
            replies, copied = await self._call_and_copy([words for words, _ in batch])
            self._note_copies(copied)
            for (_, waiting), reply in zip(batch, replies, strict=True):
                if waiting.done():
                    continue
                if isinstance(reply, BaseException) and not isinstance(reply, ReplyError):
                    waiting.set_exception(reply)
                else:
                    waiting.set_result(reply)

    async def _call_and_copy(self, calls: Sequence[Words]) -> tuple[Sequence[Any], Any]:
        """Return the replies to some scripts, and the last reply to WAITAOF; instead of any of them an exception.

        WAITAOF goes out behind the replies, not with the scripts: it makes a replica report how far its disk is, once
        and at once. Together with what the scripts wrote, it would come before that is on disk there, and the next
        report comes by itself, up to a second later.
        """
        try:
            pipeline = await self._copied_scripts.connected()
        except (OSError, ReplyError) as error:
            return [error] * len(calls), error
        replies = await asyncio.gather(*(pipeline.call(*words) for words in calls), return_exceptions=True)
        try:
            return replies, await self._wait_for_copies(pipeline)
        except (OSError, ReplyError) as error:
            return replies, error

    async def _wait_for_copies(self, pipeline: Pipeline) -> Any:
        """Return the reply to WAITAOF, which is repeated until the copies are there or `COPY_MS` are over.

        It counts for what its own connection has written, so a new connection would have nothing to wait for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + COPY_MS / 1000
        while True:
            reply = pipeline.call("WAITAOF", 1, self._copies - 1, REPORT_MS)
            await asyncio.wait((reply,), timeout=REPORT_MS / 1000)
            if not reply.done():
                # A store that has nothing to do looks ten times a second which time-outs are over; a command wakes it.
                await asyncio.gather(reply, self._scripts.call("PING"))
            copied = await reply
            if isinstance(copied, ReplyError) or copied[1] >= self._copies - 1 or loop.time() >= deadline:
                return copied

    def _note_copies(self, copied: Any) -> None:
        if isinstance(copied, BaseException) or copied[1] < self._copies - 1:
            if self._missing_since is None:
                log.error("answers are not copied", extra=fields(wanted=self._copies, replies=str(copied)))
            self._missing_since = asyncio.get_running_loop().time()
        elif self._missing_since is not None:
            self._missing_since = None
            log.warning("answers are copied again", extra=fields(copies=self._copies))

    def _digest(self, script: str) -> str:
        return self._digests.setdefault(script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())

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

    async def _change(
        self, known: Sequence[str], commands: Sequence[tuple[str, str, *tuple[str | int, ...]]]
    ) -> list[Any]:
        """Run commands (name, key, arguments) together where all `known` keys are there, and return their replies.

        Where one is missing, because an experiment was deleted or a participant erased while a request was under way,
        nothing happens and GoneError is raised.
        """
        parts = [part for name, _, *arguments in commands for part in (1 + len(arguments), name, *arguments)]
        replies = await self._connection.run(
            CHANGE_WHERE_KNOWN, (*known, *(key for _, key, *_ in commands)), (len(known), *parts)
        )
        if replies is None:
            raise gone()
        return replies


def gone() -> GoneError:
    """Return the error of a request whose experiment or participant was removed while it was under way."""
    return GoneError("This experiment was deleted, or this participant was erased.", hint="Nothing was written.")


def fields_of(values: Mapping[str, str | int]) -> tuple[str | int, ...]:
    """Return names and values one after the other, as commands take them."""
    return tuple(part for pair in values.items() for part in pair)


def values_of(reply: Sequence[str]) -> dict[str, str]:
    """Return the fields of a hash from names and values one after the other, as scripts return them."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _way_to(url: str) -> tuple[Opener, tuple[Words, ...]]:
    """Return how a connection to the store of this address is opened, and the commands with which it begins."""
    parts: dict[str, Any] = dict(parse_url(url))
    greeting: list[Words] = []
    if password := parts.get("password"):
        user = parts.get("username")
        greeting.append(("AUTH", user, password) if user else ("AUTH", password))
    if parts.get("db"):
        greeting.append(("SELECT", int(parts["db"])))
    kind = parts.pop("connection_class", None)

    async def open_connection(
        factory: Callable[[], asyncio.Protocol],
    ) -> tuple[asyncio.BaseTransport, asyncio.Protocol]:
        loop = asyncio.get_running_loop()
        if "path" in parts:
            return await loop.create_unix_connection(factory, parts["path"])
        context = SSLConnection(**parts).ssl_context.get() if kind is SSLConnection else None
        return await loop.create_connection(
            factory, parts.get("host", "localhost"), parts.get("port", 6379), ssl=context
        )

    return open_connection, tuple(greeting)


def _client(url: str, connections: int, *, decode_responses: bool) -> Redis:
    return Redis(
        connection_pool=BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=WAIT_SECONDS,
            socket_timeout=WAIT_SECONDS,
            socket_connect_timeout=WAIT_SECONDS,
            decode_responses=decode_responses,
            # With them, the client uses connections that were broken while they idled, and each fails once.
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            encoding_errors="replace",  # a flipped byte is found by its checksum, not by a failure to decode
        )
    )


async def _translated(calling: Awaitable[Any]) -> Any:
    """Return a reply; StoreError where it is an error, or where none came."""
    try:
        reply = await calling
    except (OSError, TimeoutError) as error:
        raise _translate(LostError(str(error))) from error
    except ReplyError as error:  # the store refuses the password
        raise _translate(AuthenticationError(str(error))) from error
    if isinstance(reply, ReplyError):
        raise _translate(ResponseError(str(reply)))
    return reply


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
        # What it says names commands and users, which whoever reads this error need not know; it is in the log.
        return StoreError("The store refused a command.", hint="Nothing was written; the server's log says why.")
    return StoreError("The store does not respond at the moment.", hint="Nothing was lost; try again in a moment.")
