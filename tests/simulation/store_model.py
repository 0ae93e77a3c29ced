"""A model of the store: the commands that Salmon uses, its real Lua scripts, durability,
and the ways in which it fails.

`test_store_model.py` sends the same commands to it and to the real server and compares the replies byte for byte. Data
are plain Python values of bytes: a string is `bytes`, a hash is a `dict`, a set a `Set`, a list is a `list`, and a
stream is a `Stream`. A write is durable once it is synced: with `appendfsync always` no reply leaves before that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lupa.lua51 import LuaError, LuaRuntime, lua_type

from tests.simulation.resp import CommandError, Members, Pairs, Status, Streams

Id = tuple[int, int]
Before = dict[bytes, tuple[Any, int | None]]


class Set(dict[bytes, None]):
    """The members of a set, in the order in which they came."""

    def copy(self) -> Set:
        """Return a copy."""
        return Set(self)


@dataclass
class Stream:
    """The entries of a stream in order, with the id given last."""

    entries: list[tuple[Id, list[bytes]]] = field(default_factory=list[tuple[Id, list[bytes]]])
    last: Id = (0, 0)

    def copy(self) -> Stream:
        """Return a copy; entries are never changed."""
        return Stream(self.entries.copy(), self.last)


@dataclass
class Client:
    """What the store knows of a connection: its protocol, and the commands queued after MULTI (None outside of one)."""

    protocol: int = 2
    queued: list[list[bytes]] | None = None
    refused: bool = False


@dataclass(frozen=True)
class Wait:
    """A blocked XREAD: it is tried again after each write, until its time is up."""

    arguments: list[bytes]
    at_most_ms: int


_WRITES = frozenset(b"SET DEL EXPIRE INCR INCRBY HSET HSETNX HINCRBY HDEL SADD LREM RPUSH XADD".split())
#: Writes that need no memory: a store whose memory is full carries them out, one whose disk is full does not.
_FREE = frozenset({b"DEL", b"EXPIRE", b"HDEL", b"LREM"})
_NOT_A_NUMBER = "ERR value is not an integer or out of range"
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class StoreModel:
    """The data of a store and its commands. `now_ms` is its clock.

    `refuses` is the error of every write while the store is full. `unsynced` holds what each write has replaced since
    the last sync, oldest first.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.data: dict[bytes, Any] = {}
        self.expires: dict[bytes, int] = {}
        self.refuses = ""
        self.unsynced: list[Before] = []
        self._now_ms = now_ms
        self._before: Before = {}
        self._scripts: dict[bytes, bytes] = {}
        # Made once: scripts confuse functions of tables that are made for each of them.
        self._library = _lua().table_from({b"call": self._redis_call, b"sha1hex": _sha1hex})

    def call(self, client: Client, arguments: list[bytes]) -> tuple[Any, Before]:
        """Carry a command out; return its reply, an exception or a `Wait`, and what the command has replaced."""
        self._before = {}
        name = arguments[0].upper()
        try:
            reply = self._called(client, name, arguments)
        except CommandError as error:
            reply = error
        if self._before:
            self.unsynced.append(self._before)
        return reply, self._before

    def sync(self, count: int) -> None:
        """Make the oldest writes durable."""
        del self.unsynced[:count]

    def crash(self, keep: int) -> None:
        """Lose what was not synced except the oldest `keep` of these writes, and everything that is only in memory."""
        while len(self.unsynced) > keep:
            for key, (value, expires) in self.unsynced.pop().items():
                self._restore(key, value, expires)
        self.unsynced.clear()
        self._scripts.clear()

    def _restore(self, key: bytes, value: Any, expires: int | None) -> None:
        self.data.pop(key, None)
        self.expires.pop(key, None)
        if value is not None:
            self.data[key] = value
        if expires is not None:
            self.expires[key] = expires

    def _called(self, client: Client, name: bytes, arguments: list[bytes]) -> Any:
        if name == b"MULTI":
            client.queued, client.refused = [], False
            return Status(b"OK")
        if client.queued is not None and name not in {b"EXEC", b"DISCARD"}:
            if self._is_refused(name):
                client.refused = True
                raise CommandError(self.refuses)
            client.queued.append(arguments)
            return Status(b"QUEUED")
        if name == b"EXEC":
            queued, client.queued = client.queued or [], None
            if client.refused or any(self._is_refused(each[0].upper()) for each in queued):
                raise CommandError("EXECABORT Transaction discarded because of previous errors.")
            return [self._tried(each) for each in queued]
        if name == b"HELLO":
            client.protocol = int(arguments[1])
            return Pairs([b"server", b"valkey", b"proto", client.protocol])
        if name in {b"EVAL", b"EVAL_RO", b"EVALSHA", b"SCRIPT"}:
            return _SCRIPTING[name](self, arguments)
        return self.run(arguments)

    def _is_refused(self, name: bytes) -> bool:
        return bool(self.refuses) and name in _WRITES and not (name in _FREE and self.refuses.startswith("OOM"))

    def _tried(self, arguments: list[bytes]) -> Any:
        try:
            return self.run(arguments)
        except CommandError as error:
            return error

    def run(self, arguments: Sequence[bytes]) -> Any:
        """Carry one plain command out."""
        name = arguments[0].upper()
        if name not in _COMMANDS:
            raise CommandError(f"ERR unknown command '{name.decode()}', the model of the store has no such command")
        if self._is_refused(name) and not self._before:  # a script that has written goes on to its end
            raise CommandError(self.refuses)
        return _COMMANDS[name](self, *arguments[1:])

    def read(self, key: bytes, kind: type) -> Any:
        """Return the value of a key, or None; it must be of this type."""
        if key in self.expires and self.expires[key] <= self._now_ms():
            del self.expires[key]
            self.data.pop(key, None)
        value = self.data.get(key)
        if value is not None and kind is not object and type(value) is not kind:
            raise CommandError(_WRONG_TYPE)
        return value

    def change(self, key: bytes, kind: type) -> Any:
        """Return the value of a key to change it, made if there is none."""
        value = self.read(key, kind)
        self.note(key)
        if value is None:
            value = self.data[key] = kind()
        return value

    def note(self, key: bytes) -> None:
        """Remember what the present command is about to replace."""
        if key not in self._before:
            value = self.data.get(key)
            kept = value if value is None or isinstance(value, bytes) else value.copy()
            self._before[key] = kept, self.expires.get(key)

    def drop_empty(self, key: bytes) -> None:
        """Remove a key whose last element is gone."""
        if not self.data[key]:
            del self.data[key]
            self.expires.pop(key, None)

    def next_id(self, stream: Stream) -> Id:
        """Return the id of an entry that is appended now; ids rise even where the clock goes back."""
        now = self._now_ms()
        return (now, 0) if now > stream.last[0] else (stream.last[0], stream.last[1] + 1)

    def expire_in(self, key: bytes, milliseconds: int) -> None:
        """Let a key expire."""
        self.expires[key] = self._now_ms() + milliseconds

    # Scripts

    def _eval(self, arguments: list[bytes]) -> Any:
        return self._evaluate(self._remember(arguments[1]), arguments)

    def _evalsha(self, arguments: list[bytes]) -> Any:
        digest = arguments[1].lower()
        if digest not in self._scripts:
            raise CommandError("NOSCRIPT No matching script.")
        return self._evaluate(digest, arguments)

    def _script(self, arguments: list[bytes]) -> Any:
        return self._remember(arguments[2])

    def _remember(self, text: bytes) -> bytes:
        digest = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        self._scripts[digest] = text
        return digest

    def _evaluate(self, digest: bytes, arguments: list[bytes]) -> Any:
        count = int(arguments[2])
        keys, values = arguments[3 : 3 + count], arguments[3 + count :]
        compiled = _compile(self._scripts[digest])
        lua = _lua()
        try:
            return _from_lua(
                compiled(
                    lua.table_from(keys),
                    lua.table_from(values),
                    self._library,
                )
            )
        except LuaError as error:
            raise CommandError(f"ERR {str(error).splitlines()[0]}") from error

    def _redis_call(self, *arguments: Any) -> Any:
        return _to_lua(self.run([_argument(each) for each in arguments]))


_compiled: dict[bytes, Any] = {}
_runtime: list[Any] = []


def _lua() -> Any:
    if not _runtime:
        options: Any = {"encoding": None, "register_eval": False, "register_builtins": False}
        _runtime.append(LuaRuntime(**options))
    return _runtime[0]


def _compile(text: bytes) -> Any:
    if text not in _compiled:
        _compiled[text] = _lua().execute(b"return function(KEYS, ARGV, redis) " + text + b"\nend")
    return _compiled[text]


def _sha1hex(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _argument(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, int):
        return str(value).encode()
    return f"{value:.17g}".encode()


def _to_lua(reply: Any) -> Any:
    if reply is None:
        return False
    if isinstance(reply, Status):
        return _lua().table_from({b"ok": bytes(reply)})
    if isinstance(reply, list):
        return _lua().table_from([_to_lua(each) for each in cast("list[Any]", reply)])
    return reply


def _from_lua(value: Any) -> Any:
    if value is None or value is False:
        return None
    if value is True:
        return 1
    if isinstance(value, bytes):
        return value
    if isinstance(value, int | float):
        return int(value)
    assert lua_type(value) == "table", value
    if value[b"ok"] is not None:
        return Status(value[b"ok"])
    found: list[Any] = []
    while (each := value[len(found) + 1]) is not None:
        found.append(_from_lua(each))
    return found


# Commands


def _integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise CommandError(_NOT_A_NUMBER) from None


def _ping(store: StoreModel) -> Any:
    del store
    return Status(b"PONG")


def _client(store: StoreModel, *arguments: bytes) -> Any:
    del store, arguments
    return Status(b"OK")


def _get(store: StoreModel, key: bytes) -> Any:
    return store.read(key, bytes)


def _set(store: StoreModel, key: bytes, value: bytes, *options: bytes) -> Any:
    store.note(key)
    store.data[key] = value
    store.expires.pop(key, None)
    if options:
        assert options[0].upper() in {b"EX", b"PX"}, options
        store.expire_in(key, int(options[1]) * (1000 if options[0].upper() == b"EX" else 1))
    return Status(b"OK")


def _incrby(store: StoreModel, key: bytes, count: bytes = b"1") -> Any:
    before = store.read(key, bytes)
    value = (0 if before is None else _integer(before)) + _integer(count)
    store.note(key)
    store.data[key] = str(value).encode()
    return value


def _exists(store: StoreModel, *keys: bytes) -> Any:
    return sum(store.read(key, object) is not None for key in keys)


def _delete(store: StoreModel, *keys: bytes) -> Any:
    count = 0
    for key in keys:
        if store.read(key, object) is not None:
            store.note(key)
            del store.data[key]
            store.expires.pop(key, None)
            count += 1
    return count


def _expire(store: StoreModel, key: bytes, seconds: bytes) -> Any:
    if store.read(key, object) is None:
        return 0
    store.note(key)
    store.expire_in(key, 1000 * int(seconds))
    return 1


def _hset(store: StoreModel, key: bytes, *pairs: bytes) -> Any:
    if not pairs or len(pairs) % 2:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    value = store.change(key, dict)
    count = len(value)
    value.update(zip(pairs[::2], pairs[1::2], strict=True))
    return len(value) - count


def _hsetnx(store: StoreModel, key: bytes, name: bytes, value: bytes) -> Any:
    if name in (store.read(key, dict) or ()):
        return 0
    store.change(key, dict)[name] = value
    return 1


def _hget(store: StoreModel, key: bytes, name: bytes) -> Any:
    return (store.read(key, dict) or {}).get(name)


def _hmget(store: StoreModel, key: bytes, *names: bytes) -> Any:
    value = store.read(key, dict) or {}
    return [value.get(name) for name in names]


def _hgetall(store: StoreModel, key: bytes) -> Any:
    return Pairs(part for pair in (store.read(key, dict) or {}).items() for part in pair)


def _hexists(store: StoreModel, key: bytes, name: bytes) -> Any:
    return int(name in (store.read(key, dict) or ()))


def _hlen(store: StoreModel, key: bytes) -> Any:
    return len(store.read(key, dict) or ())


def _hincrby(store: StoreModel, key: bytes, name: bytes, count: bytes) -> Any:
    try:
        moved = int((store.read(key, dict) or {}).get(name, b"0")) + _integer(count)
    except ValueError:
        raise CommandError("ERR hash value is not an integer") from None
    store.change(key, dict)[name] = str(moved).encode()
    return moved


def _hdel(store: StoreModel, key: bytes, *names: bytes) -> Any:
    value = store.read(key, dict)
    found = [name for name in dict.fromkeys(names) if value and name in value]
    if found:
        store.note(key)
        for name in found:
            del value[name]
        store.drop_empty(key)
    return len(found)


def _sadd(store: StoreModel, key: bytes, *members: bytes) -> Any:
    value = store.change(key, Set)
    count = len(value)
    value.update(dict.fromkeys(members))
    return len(value) - count


def _sismember(store: StoreModel, key: bytes, member: bytes) -> Any:
    return int(member in (store.read(key, Set) or ()))


def _smembers(store: StoreModel, key: bytes) -> Any:
    return Members(store.read(key, Set) or ())


def _span(value: list[Any], first: bytes, last: bytes) -> list[Any]:
    start, end = int(first), int(last)
    start = max(0, len(value) + start) if start < 0 else start
    end = len(value) + end if end < 0 else end
    return value[start : end + 1]


def _lrange(store: StoreModel, key: bytes, first: bytes, last: bytes) -> Any:
    return _span(store.read(key, list) or [], first, last)


def _llen(store: StoreModel, key: bytes) -> Any:
    return len(store.read(key, list) or ())


def _lrem(store: StoreModel, key: bytes, count: bytes, element: bytes) -> Any:
    assert count == b"1", "the model removes the first one only"
    if element not in (store.read(key, list) or ()):
        return 0
    store.change(key, list).remove(element)
    store.drop_empty(key)
    return 1


def _rpush(store: StoreModel, key: bytes, *elements: bytes) -> Any:
    value = store.change(key, list)
    value.extend(elements)
    return len(value)


def _id_text(place: Id) -> bytes:
    return b"%d-%d" % place


_LARGEST = 2**64 - 1


def _bound(text: bytes, *, start: bool) -> Id:
    """Return the first or last id of a range, both included."""
    if text in {b"-", b"+"}:
        return (0, 0) if text == b"-" else (_LARGEST, _LARGEST)
    excluded, text = text.startswith(b"("), text.lstrip(b"(")
    milliseconds, _, number = text.partition(b"-")
    place = int(milliseconds), int(number) if number else (0 if start else _LARGEST)
    if not excluded:
        return place
    step = 1 if start else -1
    return place[0], place[1] + step


def _entry(entry: tuple[Id, list[bytes]]) -> list[Any]:
    return [_id_text(entry[0]), entry[1]]


def _xadd(store: StoreModel, key: bytes, *arguments: bytes) -> Any:
    rest, most, roughly = list(arguments), None, False
    if rest[0].upper() == b"MAXLEN":
        roughly = rest[1] == b"~"  # trims whole nodes of a hundred entries, which no run here has
        most = int(rest[2] if rest[1] in {b"~", b"="} else rest[1])
        rest = rest[3 if rest[1] in {b"~", b"="} else 2 :]
    stream: Stream = store.read(key, Stream) or Stream()
    place = store.next_id(stream) if rest[0] == b"*" else _bound(rest[0], start=True)
    if place <= stream.last:
        raise CommandError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    stream = store.change(key, Stream)
    stream.entries.append((place, rest[1:]))
    stream.last = place
    if most is not None and not roughly:
        del stream.entries[:-most]
    return _id_text(place)


def _xrange(store: StoreModel, key: bytes, first: bytes, last: bytes, *options: bytes) -> Any:
    stream: Stream = store.read(key, Stream) or Stream()
    low, high = _bound(first, start=True), _bound(last, start=False)
    found = [_entry(entry) for entry in stream.entries if low <= entry[0] <= high]
    return found[: int(options[1])] if options else found


def _xrevrange(store: StoreModel, key: bytes, last: bytes, first: bytes, *options: bytes) -> Any:
    found = _xrange(store, key, first, last)[::-1]
    return found[: int(options[1])] if options else found


def _xlen(store: StoreModel, key: bytes) -> Any:
    return len((store.read(key, Stream) or Stream()).entries)


def _xread(store: StoreModel, *arguments: bytes) -> Any:
    options = [argument.upper() for argument in arguments]
    at = options.index(b"STREAMS")
    given = dict(zip(options[:at:2], arguments[1:at:2], strict=True))
    half = (len(arguments) - at - 1) // 2
    found: list[Any] = []
    for key, after in zip(arguments[at + 1 : at + 1 + half], arguments[at + 1 + half :], strict=True):
        entries = _xrange(store, key, b"(" + after, b"+", b"COUNT", given.get(b"COUNT", b"1000000"))
        if entries:
            found += [key, entries]
    if found:
        return Streams(found)
    return Wait(list(arguments), int(given[b"BLOCK"])) if b"BLOCK" in given else None


_COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"PING": _ping,
    b"CLIENT": _client,
    b"GET": _get,
    b"SET": _set,
    b"INCR": _incrby,
    b"INCRBY": _incrby,
    b"EXISTS": _exists,
    b"DEL": _delete,
    b"EXPIRE": _expire,
    b"HSET": _hset,
    b"HSETNX": _hsetnx,
    b"HGET": _hget,
    b"HMGET": _hmget,
    b"HGETALL": _hgetall,
    b"HEXISTS": _hexists,
    b"HLEN": _hlen,
    b"HINCRBY": _hincrby,
    b"HDEL": _hdel,
    b"SADD": _sadd,
    b"SISMEMBER": _sismember,
    b"SMEMBERS": _smembers,
    b"LRANGE": _lrange,
    b"LLEN": _llen,
    b"LREM": _lrem,
    b"RPUSH": _rpush,
    b"XADD": _xadd,
    b"XRANGE": _xrange,
    b"XREVRANGE": _xrevrange,
    b"XLEN": _xlen,
    b"XREAD": _xread,
}
_SCRIPTING: dict[bytes, Callable[[StoreModel, list[bytes]], Any]] = {
    b"EVAL": StoreModel._eval,  # pyright: ignore[reportPrivateUsage]
    b"EVAL_RO": StoreModel._eval,  # pyright: ignore[reportPrivateUsage]
    b"EVALSHA": StoreModel._evalsha,  # pyright: ignore[reportPrivateUsage]
    b"SCRIPT": StoreModel._script,  # pyright: ignore[reportPrivateUsage]
}
