"""Calls of all requests travel together on one connection, and each gets its own reply."""

import asyncio
from typing import Any, cast

import pytest
from hiredis import ReplyError

from frontend.store.pipelining import Pipeline, Pipelines


class Wire(asyncio.Transport):
    """A transport that keeps what is written, and what the test answers."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = cast("Pipeline", protocol)
        self.written: list[bytes] = []
        self.protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.protocol.connection_lost(None)


class Wires:
    """Opens wires; `pipelines` uses the last of them."""

    def __init__(self, *, wait_seconds: float = 5.0) -> None:
        self.opened: list[Wire] = []
        self.pipelines = Pipelines(self.open, (), wait_seconds=wait_seconds)

    async def open(self, factory: Any) -> tuple[asyncio.BaseTransport, asyncio.Protocol]:
        protocol = factory()
        self.opened.append(Wire(protocol))
        return self.opened[-1], protocol

    async def written(self) -> Wire:
        """Return the newest wire once something was written to it."""
        while not (self.opened and self.opened[-1].written):
            await asyncio.sleep(0)
        return self.opened[-1]


async def test_calls_of_one_moment_leave_in_one_write_and_get_their_own_replies() -> None:
    wires = Wires()
    calls = [asyncio.ensure_future(wires.pipelines.call("GET", name)) for name in ("a", "b", "c")]
    wire = await wires.written()
    assert len(wires.opened) == 1
    assert wire.written == [b"".join(b"*2\r\n$3\r\nGET\r\n$1\r\n%b\r\n" % name for name in (b"a", b"b", b"c"))]
    wire.protocol.data_received(b"$1\r\nA\r\n-ERR no\r\n*2\r\n:1\r\n")
    wire.protocol.data_received(b"$1\r\n\xff\r\n")
    first, second, third = await asyncio.gather(*calls)
    assert (first, str(second), third) == ("A", "ERR no", [1, "�"])
    assert isinstance(second, ReplyError)


async def test_whoever_leaves_takes_nobody_elses_reply() -> None:
    wires = Wires()
    leaving, staying = (asyncio.ensure_future(wires.pipelines.call("GET", name)) for name in "ab")
    wire = await wires.written()
    leaving.cancel()
    wire.protocol.data_received(b":1\r\n:2\r\n")
    assert await staying == 2


async def test_a_lost_connection_fails_what_waits_and_the_next_call_opens_another() -> None:
    wires = Wires()
    waiting = asyncio.ensure_future(wires.pipelines.call("PING"))
    (await wires.written()).abort()
    with pytest.raises(ConnectionError):
        await waiting
    again = asyncio.ensure_future(wires.pipelines.call("PING"))
    while len(wires.opened) < 2:
        await asyncio.sleep(0)
    (await wires.written()).protocol.data_received(b"+PONG\r\n")
    assert await again == "PONG"


async def test_a_reply_that_does_not_come_in_time_ends_the_connection() -> None:
    wires = Wires(wait_seconds=0.01)
    calls = [asyncio.ensure_future(wires.pipelines.call("GET", name)) for name in "ab"]
    (await wires.written()).protocol.data_received(b":1\r\n")
    assert await calls[0] == 1
    with pytest.raises(ConnectionError):
        await calls[1]
