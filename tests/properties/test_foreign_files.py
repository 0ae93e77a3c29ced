"""Files of other programs may hold anything: they end in answers or in sentences, and never
take more memory than a few rows.
"""

import gzip
import json
import shutil
import subprocess
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.answer_files.recorded_answers import read_recorded, survey
from salmon.answer_files.rows import AnswersFileError, ContainerError, read_rows
from salmon.answer_files.salmon1_backup import DumpError, modern_config, read_backup, unpack_lzf
from salmon.cli.redis_server import READY
from tests.old_scripts import OLD_COLUMNS, Dump, length, old_answers, old_backup, old_rows, text
from tests.program import poll

BACKUP = old_backup({"targets": ["a", "b", "c"], "samplers": {"random": {}}}, old_answers(3)).bytes()
TABLE = (
    ",".join(OLD_COLUMNS) + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in old_rows(old_answers(4)))
)
RECORDS = json.dumps(old_rows(old_answers(4)))
MOST_BYTES = 30_000_000


def read(content: bytes) -> int:
    """How many answers a table has."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        known = survey(Path(file.name))
        assert sum(1 for _ in read_recorded(known)) == known.answers
        return known.answers


def backed_up(content: bytes) -> list[dict[str, object]]:
    """The answers of a backup."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        spool = StringIO()
        assert read_backup(Path(file.name), spool).answers == len(spool.getvalue().splitlines())
        return [json.loads(line) for line in spool.getvalue().splitlines()]


def taken(work: Callable[[], object]) -> int:
    """The most memory that some work took, in bytes."""
    tracemalloc.start()
    try:
        with suppress(AnswersFileError, ContainerError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with bytes changed, cut out, doubled or cut off."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, max(0, len(content) - 1)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        content[start:end] = draw(st.one_of(st.binary(max_size=12), st.just(bytes(content[start:end]) * 2)))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


@given(st.one_of(damaged(TABLE.encode()), damaged(RECORDS.encode()), st.binary(max_size=80)))
@settings(max_examples=150)
def test_a_damaged_table_ends_in_answers_or_sentences(content: bytes) -> None:
    for packed in (content, gzip.compress(content)[: len(content)], b"PK\x03\x04" + content):
        with suppress(AnswersFileError):
            assert read(packed) > 0


@given(st.one_of(damaged(BACKUP), st.binary(max_size=80).map(b"REDIS0009".__add__)))
@settings(max_examples=300)
def test_a_damaged_backup_ends_in_answers_or_sentences(content: bytes) -> None:
    with suppress(ContainerError):
        backed_up(content)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_damaged_packed_text_ends_in_text_of_the_right_length_or_a_sentence(packed: bytes, size: int) -> None:
    with suppress(DumpError):
        assert len(unpack_lzf(packed, size)) == size


@given(st.text(max_size=60))
def test_any_description_is_given_back_or_moved(written: str) -> None:
    assert isinstance(modern_config(written)[0], str)


@pytest.mark.parametrize("trees", [True, False])
def test_answers_of_a_backup_are_those_that_were_stored(trees: bool) -> None:
    answers = old_answers(50)
    assert backed_up(old_backup({"targets": 6}, answers, trees=trees).bytes()) == answers


HOSTILE = {
    "one line without end": b"head,winner,loser," + b"x" * 50_000_000,
    "a quote that is never closed": b'head,winner,loser\n"' + b"0,1,2\n" * 5_000_000,
    "a bomb": gzip.compress(b"head,winner,loser" + bytes(200_000_000)),
    "brackets": b"[" * 20_000_000,
    "an object without end": b'[{"head": "' + b"x" * 50_000_000,
    "a number of many digits": b'[{"head": ' + b"9" * 900_000 + b"}]",
    "a million columns": b",".join(b"c%d" % k for k in range(140_000)) + b"\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_table_takes_little_memory(what: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(AnswersFileError):
        survey(path)
    assert taken(lambda: survey(path)) < MOST_BYTES


def dump_of(value: bytes) -> bytes:
    """A dump whose description is made of these parts of a module's value."""
    whole = Dump().json_tree("exp_config", None).bytes()
    return whole.replace(length(2) + length(1) + length(0) + b"\xff", value + b"\xff")


HOSTILE_BACKUPS = {
    "a text of four thousand million bytes": dump_of(length(5) + b"\x80\xff\xff\xff\xff"),
    "a packed text that claims a quarter of a gigabyte": dump_of(
        length(5) + b"\xc3" + length(3) + length(250_000_000) + b"\x00a\x00"
    ),
    "an array of endless length": dump_of(length(2) + length(0x40) + length(2) + length(1 << 62)),
    "arrays in arrays": dump_of((length(2) + length(0x40) + length(2) + length(1)) * 100_000),
    "JSON in JSON": dump_of(length(5) + text(b"[" * 200_000) + length(0)),
    "more nothings than anybody means": dump_of(
        length(2) + length(0x40) + length(2) + length(400_000) + (length(2) + length(1)) * 400_000
    ),
    "a set of endless length": Dump().raw(b"\x02" + text(b"key") + length(1 << 60)).bytes(),
    "a key of endless length": Dump().raw(b"\x00" + length(1 << 40)).bytes(),
}


@pytest.mark.parametrize("what", HOSTILE_BACKUPS)
def test_a_hostile_backup_takes_little_memory(what: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.rdb"
    path.write_bytes(HOSTILE_BACKUPS[what])
    with pytest.raises(ContainerError, match="cannot be read"):
        read_backup(path, StringIO())
    assert taken(lambda: read_backup(path, StringIO())) < MOST_BYTES


def test_long_tables_are_read_a_row_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write(TABLE.partition("\n")[0] + "\n")
        file.writelines([TABLE.splitlines()[1] + "\n"] * 20_000)
    assert path.stat().st_size > 6_000_000
    with path.open("rb") as file:
        assert taken(lambda: sum(1 for _ in read_rows(file))) < 2_000_000
    assert survey(path).answers == 20_000


@pytest.fixture
def real_dump(tmp_path: Path) -> Iterator[bytes]:
    """A dump that a real Redis wrote, with a value of every kind it has."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("there is no redis-server on this machine to write a dump (install the package redis-server)")
    socket = tmp_path / "redis.sock"
    command = (server, "--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path), "--save", "")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(READY in line for line in process.stdout)
        with redis.Redis(unix_socket_path=str(socket)) as client:
            client.set("state-ARR", b"\x80\x04pickle" * 100)  # packed
            client.set("number", 12345)
            client.set("short", "abc", ex=1000)
            for size in (3, 600):
                many = [f"value {k} " * 12 for k in range(size)]
                client.rpush(f"list-{size}", *many)
                client.sadd(f"set-{size}", *many)
                client.sadd(f"numbers-{size}", *range(size))
                client.zadd(f"sorted-{size}", {value: k / 7 for k, value in enumerate(many)})
                client.hset(f"hash-{size}", mapping={value: k for k, value in enumerate(many)})
            for k in range(30):
                client.xadd("stream", {"a": k})
            client.xgroup_create("stream", "group", id="0")
            client.xreadgroup("group", "consumer", {"stream": ">"}, count=3)
            client.function_load("#!lua name=mine\nredis.register_function('f', function() return 1 end)")
            client.save()
        process.terminate()
    poll((tmp_path / "dump.rdb").exists, "the dump")
    return (tmp_path / "dump.rdb").read_bytes()


def test_everything_that_a_real_redis_writes_is_stepped_over(real_dump: bytes) -> None:
    ours = old_backup({"targets": ["a", "b", "c"]}, old_answers(5)).content
    assert backed_up(real_dump[:-9] + bytes(ours) + b"\xff" + bytes(8)) == old_answers(5)
