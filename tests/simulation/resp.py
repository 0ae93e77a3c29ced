"""The protocol of the store: replies as bytes of RESP2 or RESP3, and commands from what a client sends."""

from __future__ import annotations

from typing import Any

from hiredis import Reader


class CommandError(Exception):
    """An error reply."""


class Status(bytes):
    """A reply such as OK."""


class Pairs(list[Any]):
    """A flat list of names and values, which is a map in RESP3."""


class Streams(Pairs):
    """A flat list of streams and their entries: a map in RESP3, and a list of pairs in RESP2."""


class Members(list[Any]):
    """A list of members, which is a set in RESP3."""


def encode(reply: Any, protocol: int) -> bytes:
    """Return a reply as the bytes of RESP2 or RESP3."""
    if isinstance(reply, bytes):
        return b"+%b\r\n" % reply if isinstance(reply, Status) else b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return b"_\r\n" if protocol == 3 else b"$-1\r\n"
    if isinstance(reply, CommandError):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, Streams) and protocol == 2:
        reply = [list(pair) for pair in zip(reply[::2], reply[1::2], strict=True)]
    body = b"".join(encode(each, protocol) for each in reply)
    if protocol == 3 and isinstance(reply, Pairs):
        return b"%%%d\r\n%b" % (len(reply) // 2, body)
    if protocol == 3 and isinstance(reply, Members):
        return b"~%d\r\n%b" % (len(reply), body)
    return b"*%d\r\n%b" % (len(reply), body)


class CommandReader:
    """The whole commands in what a client has sent so far. A command is an array of texts, as many replies are."""

    def __init__(self) -> None:
        self._reader = Reader()

    def read(self, data: bytes) -> list[list[bytes]]:
        """Return the commands that are whole with this data; the rest is kept."""
        self._reader.feed(data)
        commands: list[list[bytes]] = []
        while (command := self._reader.gets()) is not False:
            commands.append(command)
        return commands
