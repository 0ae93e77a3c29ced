"""The model of the store keeps the real server's contract: the same commands, the real
scripts among them, the same replies.
"""

import hashlib
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.store import BEGIN_REQUEST, NOTE_REQUEST, PUBLISH
from frontend.store.export_reader import READ_ANSWERS
from frontend.store.lua import (
    ADMIT,
    ARRIVE,
    BEGIN_TURN,
    CANCEL_REQUEST,
    CHANGE_STATUS,
    CHANGE_WHERE_KNOWN,
    COMPLETE,
    RECORD_ANSWER,
    REMEMBER_QUERY,
    TAKE_QUERY,
    begin_and_choose,
)
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import redis_program
from tests.simulation.resp import encode
from tests.simulation.store_model import Client, StoreModel, Wait

Command = tuple[str, ...]

#: Ids that a server gives by its clock, and the digests of scripts in its error messages.
_ID = re.compile(r"\d{13,}-\d+")


class RealStore:
    """The server that Salmon brings, without files, at the other end of a socket."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))
        self._reader = hiredis.Reader(encoding="utf-8")

    def call(self, *command: str) -> Any:
        parts = [part.encode() for part in command]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


class ModelStore:
    """The model, with the same interface."""

    def __init__(self) -> None:
        self.model = StoreModel(lambda: 1_800_000_000_000)
        self._client = Client()
        self._reader = hiredis.Reader(encoding="utf-8")

    def call(self, *command: str) -> Any:
        reply, _ = self.model.call(self._client, [part.encode() for part in command])
        self._reader.feed(encode(None if isinstance(reply, Wait) else reply, self._client.protocol))
        return self._reader.gets()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The address of a real server of this module's own."""
    folder = tmp_path_factory.mktemp("valkey")
    directory = DataDirectory(folder / "data")
    directory.prepare()
    program = redis_program(directory).command[0]
    place = folder / "s"
    options = ("--port", "0", "--unixsocket", str(place), "--save", "", "--appendonly", "no", "--dir", str(folder))
    with subprocess.Popen((program, *options), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        yield place
        server.terminate()


@pytest.fixture
def real(address: Path) -> Iterator[RealStore]:
    store = RealStore(address)
    store.call("FLUSHALL")
    yield store
    store.call("CONFIG", "SET", "maxmemory", "0")
    store.close()


def alike(reply: Any) -> Any:
    """A reply without what two servers may say differently: ids by the clock, words of errors, the order of a set."""
    if isinstance(reply, hiredis.ReplyError):
        return "error", str(reply).split()[0]
    if isinstance(reply, str):
        return _ID.sub("id", reply)
    if isinstance(reply, list):
        return [alike(each) for each in reply]
    if isinstance(reply, dict):
        return {alike(name): alike(value) for name, value in reply.items()}
    return reply


def check_alike(real: RealStore, model: ModelStore, commands: list[Command]) -> None:
    for command in commands:
        found, wanted = alike(model.call(*command)), alike(real.call(*command))
        if command[0] == "SMEMBERS" and isinstance(wanted, list):
            found, wanted = sorted(found), sorted(wanted)
        assert found == wanted, command


KEYS = st.sampled_from(["k1", "k2", "k3"])
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "1", "-7", "x y", "ü", "0,1,2|3"])
NUMBERS = st.sampled_from(["-2", "-1", "0", "1", "2", "5"])
IDS = st.sampled_from(["-", "+", "0", "3", "5-1", "(5-1", "9-2", "(0"])
PLAIN = st.one_of(
    st.tuples(st.just("SET"), KEYS, VALUES),
    st.tuples(st.just("SET"), KEYS, VALUES, st.sampled_from(["EX", "PX"]), st.just("100000")),
    st.tuples(st.sampled_from(["GET", "EXISTS", "DEL", "HGETALL", "HLEN", "LLEN", "XLEN", "SMEMBERS", "INCR"]), KEYS),
    st.tuples(st.just("INCRBY"), KEYS, NUMBERS),
    st.tuples(st.just("EXPIRE"), KEYS, st.sampled_from(["0", "100"])),
    st.tuples(st.sampled_from(["HSET", "HSETNX"]), KEYS, NAMES, VALUES),
    st.tuples(st.just("HSET"), KEYS, NAMES, VALUES, NAMES, VALUES),
    st.tuples(st.sampled_from(["HGET", "HEXISTS"]), KEYS, NAMES),
    st.tuples(st.sampled_from(["HMGET", "HDEL"]), KEYS, NAMES, NAMES),
    st.tuples(st.just("HINCRBY"), KEYS, NAMES, NUMBERS),
    st.tuples(st.just("SADD"), KEYS, NAMES, NAMES),
    st.tuples(st.just("SISMEMBER"), KEYS, NAMES),
    st.tuples(st.just("RPUSH"), KEYS, VALUES, VALUES),
    st.tuples(st.just("LREM"), KEYS, st.just("1"), VALUES),
    st.tuples(st.just("LRANGE"), KEYS, NUMBERS, NUMBERS),
    st.tuples(st.just("XADD"), KEYS, st.sampled_from(["3-1", "5-1", "7-3", "9-2"]), NAMES, VALUES),
    st.tuples(st.just("XADD"), KEYS, st.just("MAXLEN"), st.just("2"), st.just("9-9"), NAMES, VALUES),
    st.tuples(st.just("XADD"), KEYS, st.just("MAXLEN"), st.just("~"), st.just("2"), st.just("8-9"), NAMES, VALUES),
    st.tuples(st.just("XRANGE"), KEYS, IDS, IDS),
    st.tuples(st.just("XRANGE"), KEYS, IDS, IDS, st.just("COUNT"), st.just("2")),
    st.tuples(st.just("XREVRANGE"), KEYS, IDS, IDS, st.just("COUNT"), st.just("2")),
    st.tuples(
        st.just("XREAD"), st.just("COUNT"), st.just("2"), st.just("STREAMS"), KEYS, KEYS, st.just("0"), st.just("5-1")
    ),
)
QUERIES = st.sampled_from(
    ["0,1,2|0.5|active|0.0|1|5", "0,2,3|0.1|active|0.0|1|5", "1,0,2|0.2|random|0.1|1|5", "2,0,1|0|active|0|1|5"]
)
TOKENS = st.sampled_from(["t1", "t2", "t3"])
TURNS = st.sampled_from(["0", "1", "2", "3"])


def _script(text: str, keys: tuple[str, ...], *arguments: st.SearchStrategy[str] | str) -> st.SearchStrategy[Command]:
    drawn = [argument if isinstance(argument, st.SearchStrategy) else st.just(argument) for argument in arguments]
    return st.tuples(*(st.just(part) for part in ("EVAL", text, str(len(keys)), *keys)), *drawn)


SCRIPTS = st.one_of(
    st.tuples(st.just("HSET"), st.just("state"), st.just("state"), st.just("open")),
    _script(BEGIN_TURN, ("p", "given", "state"), TURNS, st.sampled_from(["0", "1"]), "5000", "4", st.sampled_from(["0", "3"]), st.sampled_from(["0", "2"]), st.sampled_from(["", "s1"]), st.sampled_from(["||", "open|1|"]), TURNS),
    _script(
        begin_and_choose(BEGIN_TURN, TAKE_QUERY), ("p", "given", "state", "q", "asked", "pending", "p", "given"),
        "9", st.sampled_from(["1", "2"]), "0", TURNS, "0", "5000", "4", st.sampled_from(["0", "3"]), "0", st.sampled_from(["", "s1"]),
        st.sampled_from(["||", "open|1|"]), TURNS, TOKENS, "1000", "4096", TURNS, "G|1|0|0|t|5|S|0.5|",
    ),
    _script(
        TAKE_QUERY, ("q", "asked", "pending", "p", "given"),
        TOKENS, "1000", "4096", TURNS, "G|1|1|0|t|5|S|0.5|",
    ),
    _script(
        REMEMBER_QUERY, ("asked", "p", "state", "given"), TOKENS, "1000", "", TURNS, "L|1|1|0|t|5|S|1.0|",
        st.sampled_from(["0", "1"]), QUERIES, QUERIES,
    ),
    _script(
        REMEMBER_QUERY,
        ("asked", "p", "state", "given", "pending"),
        TOKENS, "1000", "fallbacks:S", TURNS, "G|1|1|0|t|5|S|1.0|", "0", QUERIES, QUERIES,
    ),
    _script(
        COMPLETE, ("p", "counts", "places"),
        st.sampled_from(["1000", "2000"]), "completed:0", st.sampled_from([" ", " declined "]), "fresh", "save_incomplete", "1",
    ),
    _script(
        CHANGE_STATUS, ("p:fresh", "places"),
        st.sampled_from(["", "active", "declined", "completed", "abandoned"]), st.sampled_from([" arrived active ", " arrived "]), "fresh",
        st.sampled_from(["", "3", "4"]), "group", st.sampled_from(["", "one", "two"]),
    ),
    _script(ADMIT, ("arriving",), st.sampled_from(["1000", "5000"]), "20", st.sampled_from(["0", "300"])),
    _script(
        RECORD_ANSWER,
        ("answers", "answered", "pending", "p", "state", "counts", "given", "erased"),
        TOKENS, "1000", "S", "began:0", TURNS, "2", st.sampled_from(["gone", "here"]), "minute:0", "won:1",
        "token", TOKENS, "winner", "1",
    ),
    st.tuples(st.just("SADD"), st.just("erased"), st.just(hashlib.sha1(b"gone").hexdigest())),
    _script(
        ARRIVE, ("arrivals", "state", "p:fresh", "places"),
        st.sampled_from(["link:a", "link:b"]), "fresh", st.sampled_from(["", "fresh", "+"]), "", st.sampled_from(["0", "1"]), "0", "status", "arrived", "first_ms", st.sampled_from(["1", "2"]),
    ),
    _script(
        CHANGE_WHERE_KNOWN, ("state", "p", "counts", "p"),
        st.sampled_from(["1", "2"]), "3", "HINCRBY", "began:0", "1", "3", "HSET", "status", VALUES,
    ),
    _script(READ_ANSWERS, ("answers",), "-", "+", st.sampled_from(["1", "2", "9"])),
    st.tuples(st.just("INCRBY"), st.just("fence"), st.just("1")),
    _script(
        PUBLISH,
        ("q", "model", "history", "fence", "pending"),
        st.sampled_from(["1", "2"]), "100", "1", "generation", NUMBERS, "1", "generation", NUMBERS, QUERIES, QUERIES, QUERIES,
    ),
    _script(PUBLISH, ("q", "model", "history", "fence", "pending"), "1", "100", "0", "0", QUERIES, QUERIES),
    _script(PUBLISH, ("q", "model", "history", "fence", "pending"), "1", "100", "1", "generation", "3", "0"),
    st.tuples(st.just("HSET"), st.just("job"), st.just("state"), st.sampled_from(["waiting", "done"])),
    st.tuples(st.just("HSET"), st.just("job"), st.just("cancel"), st.sampled_from(["0", "1"])),
    _script(CANCEL_REQUEST, ("job",), "60"),
    _script(BEGIN_REQUEST, ("job",), st.sampled_from(["b1", "b2"]), "1000", "60", "2", "Too many tries."),
    _script(NOTE_REQUEST, ("job",), st.sampled_from(["b1", "b2"]), "1000", "60", "note", VALUES),
    st.tuples(
        st.sampled_from(["HGETALL"]), st.sampled_from(["p", "state", "counts", "answered", "pending", "model", "job", "places", "p:fresh"])
    ),
    st.tuples(st.just("LRANGE"), st.just("q"), st.just("0"), st.just("-1")),
    st.tuples(st.sampled_from(["XRANGE"]), st.sampled_from(["answers", "history"]), st.just("-"), st.just("+")),
)  # fmt: skip
LONG = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.mark.parametrize("protocol", ["2", "3"])
@LONG
@given(commands=st.lists(PLAIN, min_size=5, max_size=30))
def test_plain_commands_have_the_same_replies(real: RealStore, protocol: str, commands: list[Command]) -> None:
    model = ModelStore()
    for store in (real, model):
        store.call("HELLO", protocol)
    real.call("FLUSHALL")
    check_alike(real, model, commands)


@LONG
@given(commands=st.lists(SCRIPTS, min_size=8, max_size=40))
def test_the_scripts_of_salmon_do_the_same(real: RealStore, commands: list[Command]) -> None:
    real.call("HELLO", "2")
    real.call("FLUSHALL")
    check_alike(real, ModelStore(), commands)


@LONG
@given(commands=st.lists(PLAIN, min_size=1, max_size=8))
def test_transactions_have_the_same_replies(real: RealStore, commands: list[Command]) -> None:
    real.call("HELLO", "2")
    real.call("FLUSHALL")
    check_alike(real, ModelStore(), [("MULTI",), *commands, ("EXEC",)])


def test_a_script_is_known_by_its_digest_until_a_restart(real: RealStore) -> None:
    model = ModelStore()
    digest = real.call("SCRIPT", "LOAD", READ_ANSWERS)
    check_alike(real, model, [("SCRIPT", "LOAD", READ_ANSWERS), ("EVALSHA", digest, "1", "none", "-", "+", "5")])
    model.model.crash(0)
    real.call("SCRIPT", "FLUSH")
    check_alike(real, model, [("EVALSHA", digest, "1", "none", "-", "+", "5")])


def test_a_full_store_refuses_the_same_commands(real: RealStore) -> None:
    model = ModelStore()
    check_alike(
        real, model, [("HSET", "p", "answers", "3"), ("HSET", "state", "state", "open"), ("RPUSH", "q", "0,1,2|0")]
    )
    real.call("CONFIG", "SET", "maxmemory", "1")
    model.model.refuses = "OOM command not allowed when used memory > 'maxmemory'."
    record = ("EVAL", RECORD_ANSWER, "8", "answers", "answered", "pending", "p", "state", "counts", "given", "erased")
    check_alike(
        real,
        model,
        [
            ("HSET", "p", "answers", "4"),
            ("HGET", "p", "answers"),
            (*record, "t1", "1000", "S", "began:0", "1", "0", "here", "token", "t1"),
            ("XLEN", "answers"),
            ("MULTI",),
            ("HINCRBY", "p", "answers", "1"),
            ("HGETALL", "p"),
            ("EXEC",),
            ("HGETALL", "p"),
            # What only removes is allowed, and a script that has begun to write goes on to its end.
            ("EVAL", REMEMBER_QUERY, "4", "asked", "p", "state", "given", "t3", "1000", "", "1", "L|", "0,1,2|0"),
            ("EVAL", TAKE_QUERY, "5", "q", "asked", "pending", "p", "given", "t2", "1000", "10", "2", "G|"),
            ("LRANGE", "q", "0", "-1"),
        ],
    )


def test_a_blocked_read_returns_nothing_when_its_time_is_up(real: RealStore) -> None:
    check_alike(real, ModelStore(), [("XREAD", "BLOCK", "1", "STREAMS", "none", "0")])


def test_a_crash_loses_a_tail_of_what_was_not_synced_and_nothing_else() -> None:
    store = ModelStore()
    for number in range(4):
        store.call("RPUSH", "list", str(number))
        store.call("HSET", "hash", "last", str(number))
    store.model.sync(3)
    store.model.crash(keep=2)
    assert store.call("LRANGE", "list", "0", "-1") == ["0", "1", "2"]
    assert store.call("HGET", "hash", "last") == "1"


def test_every_script_of_the_program_is_compared_here() -> None:
    import backend.store
    import frontend.store.export_reader
    import frontend.store.lua

    scripts = {
        value
        for module in (backend.store, frontend.store.lua, frontend.store.export_reader)
        for value in vars(module).values()
        if isinstance(value, str) and "redis.call" in value
    }
    # Nobody logs in, edits a file, is erased, is paid or gets a credit in the simulated world, nobody looks at its
    # places, and nothing closes by itself: its store never runs these.
    unused = {
        getattr(frontend.store.lua, name)
        for name in (
            *("FIND_SESSION", "RELEASE_GUESS", "RESERVE_GUESS", "TAKE_UP_INVITATION", "USE_CODE", "SAVE_DRAFT"),
            *("CHANGE_ACCOUNT", "REMOVE_ACCOUNT"),
            *("ERASE_PARTICIPANT", "ERASE_ANSWER", "COPY_ENTRIES", "REPLACE_STREAM", "END_RUN"),
            *("CLAIM_PAYMENT", "SETTLE_PAYMENT", "CLAIM_CREDIT", "COUNT_PLACES"),
        )
    }
    assert scripts - unused == {
        ADMIT, ARRIVE, BEGIN_TURN, CANCEL_REQUEST, CHANGE_STATUS, CHANGE_WHERE_KNOWN, COMPLETE, BEGIN_REQUEST, NOTE_REQUEST, PUBLISH, READ_ANSWERS,
        RECORD_ANSWER, REMEMBER_QUERY, TAKE_QUERY,
    }  # fmt: skip
