"""The store of the simulated world: the model behind connections with latency, which
break, and a process that is killed.

Both of Salmon's clients are real redis-py: the web process's sees a transport of asyncio,
the learning process's a socket.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tests.simulation.resp import CommandReader, encode
from tests.simulation.store_model import Before, Client, StoreModel, Wait
from tests.simulation.virtual_loop import PROCESS, Process, block, loop_here

#: Seconds that a message travels, and that a write takes to be synced, at the most.
TRAVEL_SECONDS = 0.002
SYNC_SECONDS = 0.004
#: With `appendfsync everysec`, which Salmon does not use, writes are synced so often.
LAZY_SYNC_SECONDS = 1.0

#: Called after each command that has written: the process, the command, and what it has replaced.
Observer = Callable[[Process | None, list[bytes], Before], None]


@dataclass
class Trouble:
    """What is wrong with the store at the moment.

    `slow` seconds are added to every command, at the most. A connection breaks with these probabilities before a
    command is carried out, and after it was, before its reply leaves.
    """

    slow: float = 0.0
    breaks_before: float = 0.0
    breaks_after: float = 0.0


class StoreServer:
    """A store that runs, or not. `observer` sees every write as it happens."""

    def __init__(self, generator: random.Random, now_ms: Callable[[], int]) -> None:
        self.model = StoreModel(now_ms)
        self.running = True
        self.always_sync = True
        self.trouble = Trouble()
        self.commands = 0
        self.observer: Observer = lambda process, command, before: None
        self._generator = generator
        self._connections: dict[Connection, None] = {}
        self._synced = 0  # writes that were synced since the last crash
        self._written = 0
        self._synced_at = 0.0  # when the newest write is durable
        self._incarnation = 0

    def kill(self, *, keep: float) -> int:
        """End the process without warning; a part `keep` of what was not synced survives.
        Return how many writes were lost.
        """
        unsynced = len(self.model.unsynced)
        kept = round(keep * unsynced)
        self.model.crash(kept)
        self.running = False
        self._incarnation += 1
        self._synced = self._written = 0
        for connection in list(self._connections):
            connection.close()
        return unsynced - kept

    def start(self) -> None:
        """Run again, with what survived."""
        self.running = True
        if not self.always_sync:
            self._sync_lazily(self._incarnation)

    def _sync_lazily(self, incarnation: int) -> None:
        if incarnation == self._incarnation:
            self._sync(self._written)
            loop_here().call_later(LAZY_SYNC_SECONDS, self._sync_lazily, incarnation)

    def _sync(self, until: int) -> None:
        if until > self._synced:
            self.model.sync(until - self._synced)
            self._synced = until

    def accept(self, process: Process | None, deliver: Callable[[bytes | None], None]) -> Connection:
        """Return a new connection; replies go to `deliver`, and None when the connection is lost."""
        if not self.running:
            raise ConnectionRefusedError("The store does not run.")
        connection = Connection(self, process, deliver)
        self._connections[connection] = None
        return connection

    def forget(self, connection: Connection) -> None:
        """Drop a connection that was closed."""
        self._connections.pop(connection, None)

    def carry_out(self, connection: Connection, command: list[bytes]) -> None:
        """Carry one command out and send its reply when the write is durable."""
        trouble, draw = self.trouble, self._generator.random
        if trouble.breaks_before and draw() < trouble.breaks_before:
            connection.close()
            return
        self.commands += 1
        reply, before = self.model.call(connection.client, command)
        if before:
            self._written += 1
            self._synced_at = max(self._synced_at, loop_here().time() + draw() * SYNC_SECONDS)
            self.observer(connection.process, command, before)
            self._wake(before)
        if isinstance(reply, Wait):
            connection.wait(reply)
            return
        delay = draw() * TRAVEL_SECONDS + (draw() * trouble.slow if trouble.slow else 0.0)
        lost = bool(trouble.breaks_after) and draw() < trouble.breaks_after
        connection.answer(encode(reply, connection.client.protocol), delay, lost=lost)

    @property
    def written(self) -> int:
        """How many writes this process has carried out."""
        return self._written

    @property
    def leaves_at(self) -> float:
        """When a reply can leave: after everything that was written before it is durable, as it is with every sync."""
        return self._synced_at if self.always_sync else 0.0

    def left(self, written: int, incarnation: int) -> None:
        """Note that a reply leaves: so many writes are durable."""
        if self.always_sync and incarnation == self._incarnation:
            self._sync(written)

    @property
    def incarnation(self) -> int:
        """Which process this is, counted from the first."""
        return self._incarnation

    def _wake(self, written: Before) -> None:
        for connection in list(self._connections):
            connection.try_again(written)


class Connection:
    """One connection, seen from the store. Commands and replies keep their order."""

    def __init__(self, server: StoreServer, process: Process | None, deliver: Callable[[bytes | None], None]) -> None:
        self.client = Client()
        self.process = process
        self._server = server
        self._deliver = deliver
        self._open = True
        self._coming: deque[bytes] = deque()
        self._commands = CommandReader()
        self._going: deque[tuple[bytes, int, int, bool]] = deque()
        self._arrives = self._leaves = 0.0
        self._waiting: Wait | None = None
        self._loop = loop_here()
        if process is not None:
            process.connections[self] = None

    def send(self, data: bytes) -> None:
        """Send what a client writes; a process that is stopped or gone sends nothing."""
        if not self._open or (self.process is not None and not self.process.alive):
            return
        frozen = self.process.frozen_until if self.process is not None else 0.0
        travel = self._server._generator.random() * TRAVEL_SECONDS  # pyright: ignore[reportPrivateUsage]
        self._arrives = max(self._arrives, self._loop.time() + travel, frozen)
        self._coming.append(data)
        self._loop.call_at(self._arrives, self._arrive)

    def _arrive(self) -> None:
        if not self._open:
            return
        for command in self._commands.read(self._coming.popleft()):
            if self._open:
                self._server.carry_out(self, command)

    def answer(self, reply: bytes, delay: float, *, lost: bool) -> None:
        """Send a reply after a delay and after those before it."""
        server = self._server
        self._leaves = max(self._leaves, self._loop.time() + delay, server.leaves_at)
        self._going.append((reply, server.written, server.incarnation, lost))
        self._loop.call_at(self._leaves, self._leave)

    def _leave(self) -> None:
        if not self._going:
            return
        reply, written, incarnation, lost = self._going.popleft()
        self._server.left(written, incarnation)
        if lost:
            self.close()
        elif self._open:
            self._deliver(reply)

    def wait(self, waiting: Wait) -> None:
        """Block until a write gives the command a reply, or its time is up."""
        self._waiting = waiting
        self._loop.call_later(waiting.at_most_ms / 1000, self._give_up, waiting)

    def try_again(self, written: Before) -> None:
        """Carry the blocked command out again, where one of its streams was written."""
        if self._waiting is None or written.keys().isdisjoint(self._waiting.arguments):
            return
        waiting = self._waiting
        reply, _ = self._server.model.call(self.client, [b"XREAD", *waiting.arguments])
        if not isinstance(reply, Wait):
            self._waiting = None
            self.answer(encode(reply, self.client.protocol), 0.0, lost=False)

    def _give_up(self, waiting: Wait) -> None:
        if self._waiting is waiting:
            self._waiting = None
            self.answer(encode(None, self.client.protocol), 0.0, lost=False)

    def close(self) -> None:
        """Break the connection; what was sent already may still arrive where the process that sent it is gone."""
        if not self._open:
            return
        self._open = False
        self._waiting = None
        self._server.forget(self)
        if self.process is not None:
            self.process.connections.pop(self, None)
        self._loop.call_soon(self._deliver, None)


class StoreTransport(asyncio.Transport):
    """The transport of redis-py's asyncio client."""

    def __init__(self, server: StoreServer, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._protocol = cast("asyncio.Protocol", protocol)
        self._connection = server.accept(PROCESS.get(), self._received)
        self._closing = False
        self._lost = False
        self._protocol.connection_made(self)

    @staticmethod
    async def open(server: StoreServer, protocol: asyncio.BaseProtocol) -> StoreTransport:
        """Connect, which takes as long as a message."""
        await asyncio.sleep(TRAVEL_SECONDS)
        return StoreTransport(server, protocol)

    def _received(self, data: bytes | None) -> None:
        if self._lost:
            return
        if data is None:
            self._lost = self._closing = True
            self._protocol.connection_lost(None)
        else:
            self._protocol.data_received(data)

    def write(self, data: Any) -> None:
        self._connection.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._connection.send(b"".join(list_of_data))

    def close(self) -> None:
        self._closing = True
        self._connection.close()

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default

    def get_write_buffer_size(self) -> int:
        return 0


class StoreSocket:
    """The socket of redis-py's blocking client; it may be used inside of `run_blocking` only."""

    def __init__(self, server: StoreServer, timeout: float | None) -> None:
        block(asyncio.sleep(TRAVEL_SECONDS))
        self._received = bytearray()
        self._lost = False
        self._timeout = timeout
        self._changed: asyncio.Future[None] | None = None
        self._connection = server.accept(PROCESS.get(), self._deliver)

    def _deliver(self, data: bytes | None) -> None:
        if data is None:
            self._lost = True
        else:
            self._received += data
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def sendall(self, data: bytes) -> None:
        if self._lost:
            raise BrokenPipeError(32, "Broken pipe")
        self._connection.send(bytes(data))

    def recv_into(self, buffer: bytearray) -> int:
        if not self._received and not self._lost:
            self._changed = loop_here().create_future()
            block(asyncio.wait((self._changed,), timeout=self._timeout))
            if not self._received and not self._lost:
                raise TimeoutError("timed out")
        count = min(len(buffer), len(self._received))
        buffer[:count] = self._received[:count]
        del self._received[:count]
        return count

    def readable(self, timeout: float = 0.0) -> bool:
        """Return whether there is something to read now, or the end."""
        del timeout
        return bool(self._received) or self._lost

    def is_lost(self) -> bool:
        """Return whether the other end is gone."""
        return self._lost

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def setsockopt(self, *_: object) -> None: ...

    def shutdown(self, *_: object) -> None: ...

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 6379

    def close(self) -> None:
        self._connection.close()
