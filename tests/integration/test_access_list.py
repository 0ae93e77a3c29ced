"""What each process may write: tried on the running server, and proved where no list can say it."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from frontend.store import lua
from salmon.cli.data_directory import DataDirectory
from tests.program import REPOSITORY

ANSWERS = "salmon:{e}:answers"


@pytest.fixture
def users(data_directory: DataDirectory) -> Iterator[dict[str, redis.Redis]]:
    """A connection as each user."""
    secret = data_directory.credentials()
    opened = {
        name: redis.Redis.from_url(data_directory.redis_url(name, getattr(secret, name)), decode_responses=True)
        for name in ("frontend", "backend", "eraser")
    }
    yield opened
    for client in opened.values():
        client.close()


FORBIDDEN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "the frontend deletes answers": ("frontend", lambda client: client.delete(ANSWERS)),
    "the frontend trims answers": ("frontend", lambda client: client.xtrim(ANSWERS, maxlen=0)),
    "the frontend removes one answer": ("frontend", lambda client: client.xdel(ANSWERS, "1-1")),
    "a script of the frontend deletes answers": (
        "frontend",
        lambda client: client.eval("return redis.call('DEL', KEYS[1])", 1, ANSWERS),
    ),
    "the frontend writes a model": ("frontend", lambda client: client.hset("salmon:{e}:model:S", "a", "b")),
    "the frontend moves the fence": ("frontend", lambda client: client.incrby("salmon:{e}:fence", 1)),
    "the frontend publishes queries": ("frontend", lambda client: client.rpush("salmon:{e}:q:S", "0,1,2|0")),
    "the frontend flushes": ("frontend", lambda client: client.flushall()),
    "the frontend reads the configuration": ("frontend", lambda client: client.config_get("*")),
    "the frontend lists keys": ("frontend", lambda client: client.keys("*")),
    "the frontend writes elsewhere": ("frontend", lambda client: client.set("other", "x")),
    "the backend appends an answer": ("backend", lambda client: client.xadd(ANSWERS, {"winner": "1"})),
    "a script of the backend appends an answer": (
        "backend",
        lambda client: client.eval("return redis.call('XADD', KEYS[1], '*', 'a', 'b')", 1, ANSWERS),
    ),
    "the backend rewrites a spec": ("backend", lambda client: client.hset("salmon:{e}:spec", "1", "{}")),
    "the backend touches a participant": ("backend", lambda client: client.hset("salmon:{e}:p:a", "status", "x")),
    "the backend makes an account": ("backend", lambda client: client.hset("salmon:accounts", "me", "{}")),
    "the backend reads accounts": ("backend", lambda client: client.hgetall("salmon:accounts")),
    "the backend reads sessions": ("backend", lambda client: client.hgetall("{salmon:accounts}:sessions")),
    "the backend reads invitations": ("backend", lambda client: client.hgetall("{salmon:accounts}:invitations")),
    "a script of the backend reads accounts": (
        "backend",
        lambda client: client.eval("return redis.call('HGETALL', KEYS[1])", 1, "salmon:accounts"),
    ),
    "a script of the frontend about accounts reaches answers": (
        "frontend",
        lambda client: client.eval("return redis.call('DEL', KEYS[2])", 2, "salmon:accounts", ANSWERS),
    ),
    "the backend writes what only an import brings": (
        "backend",
        lambda client: client.hset("salmon:{e}:restored:S", "generation", "1"),
    ),
    "the backend judges participants": ("backend", lambda client: client.set("salmon:{e}:quality", "{}")),
    "the eraser makes an account": ("eraser", lambda client: client.hset("salmon:accounts", "me", "{}")),
    "the eraser names an experiment": ("eraser", lambda client: client.hset("salmon:experiments", "me", "x")),
    "the eraser flushes": ("eraser", lambda client: client.flushall()),
    "the eraser reads the configuration": ("eraser", lambda client: client.config_get("*")),
    "the eraser writes elsewhere": ("eraser", lambda client: client.set("other", "x")),
    "the frontend writes its file anew": ("frontend", lambda client: client.bgrewriteaof()),
    "the frontend says who was erased": ("frontend", lambda client: client.sadd("salmon:{e}:erased", "x")),
    "the backend notes an erasure": ("backend", lambda client: client.hset("salmon:erasures", "a", "{}")),
    "the backend opens an experiment": ("backend", lambda client: client.hset("salmon:{e}:state", "state", "open")),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_server_refuses_when(users: dict[str, redis.Redis], what: str) -> None:
    name, command = FORBIDDEN[what]
    with pytest.raises(
        (redis.exceptions.NoPermissionError, redis.ResponseError), match=r"(?i)permission|NOPERM|can't|cannot"
    ):
        command(users[name])


def test_what_each_may_do_works(users: dict[str, redis.Redis]) -> None:
    frontend, backend = users["frontend"], users["backend"]
    assert frontend.xadd(ANSWERS, {"winner": "1"})
    assert backend.xrange(ANSWERS)[-1][1] == {"winner": "1"}
    assert backend.rpush("salmon:{e}:q:S", "0,1,2|0") == 1
    assert frontend.lpop("salmon:{e}:q:S") == "0,1,2|0"
    assert backend.incrby("salmon:{e}:fence", 1) == 1


def test_nothing_of_ours_can_shorten_the_answers() -> None:
    """No list can forbid XADD with MAXLEN on a stream that may be appended to: so nothing of ours may say it."""
    assert not re.search(r"MAXLEN|MINID|XTRIM|XDEL", lua.RECORD_ANSWER, re.IGNORECASE)
    assert not re.search(
        r"maxlen|minid|xtrim|xdel|xadd", (REPOSITORY / "frontend" / "store" / "answers.py").read_text(), re.IGNORECASE
    )


async def test_a_revision_is_never_rewritten(store: Any) -> None:
    """No list can forbid a second HSET on a hash: so the store's verb writes a revision only where there is none."""
    from dataclasses import replace

    from frontend.store.experiments import Revision

    first = Revision(source="a", spec="a", manifest=None, created_ms=1)
    made = await store.experiments.create("revised", first, owner="o", state="draft", now_ms=1)
    assert await store.experiments.read_revision(made.experiment, 1) == first
    with pytest.raises(Exception, match="already"):
        await store.experiments.create("revised", replace(first, source="b"), owner="o", state="draft", now_ms=2)
    assert await store.experiments.read_revision(made.experiment, 1) == first
    assert not re.search(r"\.hset\(\s*keys\.spec", (REPOSITORY / "frontend" / "store" / "experiments.py").read_text())
