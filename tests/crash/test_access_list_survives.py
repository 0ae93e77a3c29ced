"""What scripts and transactions wrote under the access list is there after kill -9, on every server we can find.

With `user default off` alone, Redis 7.0 replays its append-only file as a user who may do nothing: every script and
transaction is dropped without a word. Our list keeps that user's permissions for this reason.
"""

import shutil
from pathlib import Path

import pytest
import redis

from salmon.cli.append_only_file import FOLDER, MANIFEST
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import find_server
from tests.bundles import redis_on

pytestmark = pytest.mark.crash

APPEND = "return redis.call('XADD', KEYS[1], '*', 'winner', ARGV[1])"


@pytest.mark.parametrize("which", ["embedded", "redis-server", "valkey-server"])
def test_scripts_and_transactions_are_there_after_kill_9(which: str, tmp_path: Path) -> None:
    found = find_server() if which == "embedded" else shutil.which(which)
    if found is None:
        pytest.skip(f"there is no {which} on this machine's PATH, so only the embedded server was tried")
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    url = directory.redis_url("frontend", directory.credentials().frontend)

    client = redis.Redis.from_url(url, decode_responses=True)
    with redis_on(directory, str(found)) as process, client:
        client.eval(APPEND, 1, "salmon:{e}:answers", "3")
        with client.pipeline(transaction=True) as pipeline:
            pipeline.hset("salmon:{e}:state", "state", "open")
            pipeline.hset("salmon:{e}:p:a", "status", "active")
            pipeline.execute()
        process.kill()

    with redis_on(directory, str(found)), client:
        assert [fields for _, fields in client.xrange("salmon:{e}:answers")] == [{"winner": "3"}]
        assert client.hgetall("salmon:{e}:state") == {"state": "open"}
        assert client.hgetall("salmon:{e}:p:a") == {"status": "active"}


def test_a_kill_while_a_rewrite_removes_the_file_before_is_survived(tmp_path: Path) -> None:
    """The list still names that file, as history, and it is gone."""
    directory = DataDirectory(tmp_path / "data")
    directory.prepare()
    url = directory.redis_url("frontend", directory.credentials().frontend)
    client = redis.Redis.from_url(url, decode_responses=True)
    with redis_on(directory) as process, client:
        client.hset("salmon:{e}:state", "state", "open")
        process.kill()
    with (directory.redis / FOLDER / MANIFEST).open("a") as file:
        file.write("file appendonly.aof.9.base.rdb seq 9 type h\n")
    with redis_on(directory), client:
        assert client.hgetall("salmon:{e}:state") == {"state": "open"}
