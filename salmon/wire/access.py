"""Who may write what: the access list of the server."""

from __future__ import annotations

from collections.abc import Sequence

from salmon.wire.keys import ACCOUNTS, BACKEND, EXPERIMENTS, REQUESTS

#: Keys each process may write; both read everything under `salmon:`.
FRONTEND_WRITES = (
    EXPERIMENTS,
    ACCOUNTS,
    REQUESTS,
    "salmon:request:*",
    "salmon:{*}:spec",
    "salmon:{*}:state",
    "salmon:{*}:counts",
    "salmon:{*}:changes",
    "salmon:{*}:arrivals",
    "salmon:{*}:p:*",
    "salmon:{*}:events",
    "salmon:{*}:pending:*",
    "salmon:{*}:q:*",
    "salmon:{*}:quality",
    "salmon:{*}:restored:*",
)
BACKEND_WRITES = (
    BACKEND,
    "salmon:request:*",
    "salmon:{*}:q:*",
    "salmon:{*}:pending:*",
    "salmon:{*}:model:*",
    "salmon:{*}:history:*",
    "salmon:{*}:fence",
)
_FRONTEND_COMMANDS = (
    "get set del expire hget hset hsetnx hdel hgetall hmget hexists hincrby hlen hscan sadd sismember smembers lpop lindex"
    " lrange llen lrem xadd xlen xrange xrevrange xread exists multi exec script|load"
)
_BACKEND_COMMANDS = (
    "get set incrby expire hget hset hdel hgetall hmget del rpush rename llen lrange xadd xread xrange xrevrange xlen"
    " exists multi exec eval evalsha script|load"
)
#: The frontend's two holes in its fence: appending to the answers, and the scripts that do so.
_APPEND_ANSWERS = "(~salmon:{*}:answers +xadd)"
_ANSWER_SCRIPTS = (
    "(~salmon:{*}:answers ~salmon:{*}:p:* ~salmon:{*}:pending:* ~salmon:{*}:q:* ~salmon:{*}:state ~salmon:{*}:counts"
    " +eval +evalsha)"
)


def access_list(frontend_password: str, backend_password: str) -> tuple[str, ...]:
    """The `user` lines for the server's configuration.

    `default` is off but keeps every permission on purpose: before the fix of its issue 14541, Redis replays
    MULTI/EXEC and scripts from the append-only file as `default` and drops, without a word, what that user may not do.
    """
    return (
        "user default off resetpass ~* &* +@all",
        _user("frontend", frontend_password, FRONTEND_WRITES, _FRONTEND_COMMANDS, (_APPEND_ANSWERS, _ANSWER_SCRIPTS)),
        _user("backend", backend_password, BACKEND_WRITES, _BACKEND_COMMANDS, ()),
    )


def _user(name: str, password: str, writes: Sequence[str], commands: str, selectors: Sequence[str]) -> str:
    keys = " ".join(f"~{pattern}" for pattern in writes)
    allowed = " ".join(f"+{command}" for command in commands.split())
    rules = f"user {name} on >{password} resetkeys %R~salmon:* {keys} -@all +@connection {allowed}"
    return " ".join((rules, *selectors))
