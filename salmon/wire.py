"""What lies in Redis: the name of every key, the bytes of every value, and who may write which.

The law of these formats: a stored value is never reinterpreted. A new field goes to the end and has a default when it is
absent, a field is never renamed, and a key whose meaning changes gets a new name. The files in tests/golden were
written by earlier versions and must decode for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from salmon.records import Answer, Query, Served, Timing, TrialType

EXPERIMENTS = "salmon:experiments"
ACCOUNTS = "salmon:accounts"
REQUESTS = "salmon:requests"
BACKEND = "salmon:backend"

#: Events kept for one experiment; the oldest go first.
EVENTS_KEPT = 1_000_000


@dataclass(frozen=True)
class Keys:
    """The keys of one experiment. The braces keep all of them on one node of a Redis Cluster."""

    experiment: str

    def _key(self, *parts: str) -> str:
        return ":".join(("salmon", "{" + self.experiment + "}", *parts))

    @property
    def spec(self) -> str:
        """Hash revision → JSON; a revision is never rewritten."""
        return self._key("spec")

    @property
    def state(self) -> str:
        """Hash: draft, open, paused or closed, and the counters."""
        return self._key("state")

    @property
    def arrivals(self) -> str:
        """Hash platform identity → participant: who is who, apart from the answers."""
        return self._key("arrivals")

    @property
    def answers(self) -> str:
        """The stream of answers: append-only, the record of truth."""
        return self._key("answers")

    @property
    def events(self) -> str:
        """The capped stream of what happened on the pages."""
        return self._key("events")

    @property
    def fence(self) -> str:
        """The number of the backend that may publish."""
        return self._key("fence")

    def participant(self, participant: str) -> str:
        """Hash: status, counters, code of one participant."""
        return self._key("p", participant)

    def asked(self, participant: str) -> str:
        """Set of the query keys this participant has seen."""
        return self._key("p", participant, "asked")

    def answered(self, participant: str) -> str:
        """Hash token → stream id of the answer it gave."""
        return self._key("p", participant, "answered")

    def queries(self, sampler: str) -> str:
        """List of queries to ask, best first."""
        return self._key("q", sampler)

    def pending(self, sampler: str) -> str:
        """Hash token → query and time, of queries taken and not yet answered."""
        return self._key("pending", sampler)

    def model(self, sampler: str) -> str:
        """Hash: the newest coordinates with generation and cursor."""
        return self._key("model", sampler)

    def history(self, sampler: str) -> str:
        """Stream: a line a generation."""
        return self._key("history", sampler)


def request(identifier: str) -> str:
    """Hash: progress and result of one request to the backend."""
    return f"salmon:request:{identifier}"


# Values ---------------------------------------------------------------------------------------------------------------


def encode_query(query: Query) -> str:
    """One element of a list of queries: `head,foot,foot|score|trial type|probability|generation|published`.

    The key stands first, so that the store can compare it without decoding the rest.
    """
    numbers = (repr(query.score), query.trial_type, repr(query.probability))
    return "|".join((query.key, *numbers, str(query.generation), str(query.published_ms)))


def decode_query(value: str) -> Query:
    """The query of one list element."""
    key, score, trial_type, probability, generation, published_ms = value.split("|")[:6]
    head, low, high = (int(part) for part in key.split(","))
    return Query(
        head=head,
        feet=(low, high),
        score=float(score),
        trial_type=cast("TrialType", trial_type),
        probability=float(probability),
        generation=int(generation),
        published_ms=int(published_ms),
    )


#: Name in the stream -> attribute of Served, in the order in which they are written.
_SERVED = {
    "token": "nonce",
    "revision": "revision",
    "participant": "participant",
    "session": "session",
    "trial": "trial",
    "sampler": "sampler",
    "head": "head",
    "left": "left",
    "right": "right",
    "score": "score",
    "trial_type": "trial_type",
    "probability": "probability",
    "sampler_probability": "sampler_probability",
    "generation": "generation",
    "published_ms": "published_ms",
    "served_ms": "served_ms",
}
_TIMING = tuple(field.name for field in fields(Timing))
_INTEGERS = {"revision", "trial", "head", "left", "right", "generation", "published_ms", "served_ms"} | {
    "sent_attempts",
    "viewport_w",
    "viewport_h",
}
_FLOATS = {"score", "probability", "sampler_probability", "rt_ms", "query_wait_ms", "onset_client_ms"} | {
    "network_latency_ms"
}


def encode_answer(answer: Answer) -> dict[str, str]:
    """The fields of one stream entry; always the same names in the same order, which a stream stores only once."""
    entry = {name: _text(getattr(answer.served, attribute)) for name, attribute in _SERVED.items()}
    entry |= {name: _text(getattr(answer.timing, name)) for name in _TIMING}
    return entry | {
        "winner": str(answer.winner),
        "received_ms": str(answer.received_ms),
        "signed": _text(answer.signed),
    }


def decode_answer(experiment: str, entry: Mapping[str, str]) -> Answer:
    """The answer of one stream entry; fields that an older version did not write keep their defaults."""
    served: dict[str, Any] = {
        attribute: _value(name, entry[name]) for name, attribute in _SERVED.items() if name in entry
    }
    timing: dict[str, Any] = {name: _value(name, entry[name]) for name in _TIMING if name in entry}
    return Answer(
        served=Served(experiment=experiment, **served),
        winner=int(entry["winner"]),
        timing=Timing(**timing),
        received_ms=int(entry["received_ms"]),
        signed=entry.get("signed", "1") == "1",
    )


def encode_served(served: Served) -> list[Any]:
    """The payload of a token: short to send, complete enough to need no look-up when the answer comes."""
    return [1, served.experiment, *(getattr(served, attribute) for attribute in _SERVED.values())]


def decode_served(payload: Sequence[Any]) -> Served:
    """The served query inside a token whose signature was checked."""
    _version, experiment, *values = payload
    attributes: dict[str, Any] = dict(zip(_SERVED.values(), values, strict=False))
    return Served(experiment=experiment, **attributes)


def encode_json(value: Any) -> str:
    """Compact JSON with sorted keys, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def decode_json(value: str | bytes) -> Any:
    """What `encode_json` wrote."""
    return json.loads(value)


@dataclass(frozen=True)
class Heartbeat:
    """What the backend says about itself while it lives."""

    started_ms: int
    beat_ms: int
    experiments: int = 0
    learners: int = 0
    workers: int = 0
    errors: tuple[str, ...] = ()

    def encode(self) -> str:
        """The JSON of `salmon:backend`."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(value: str | bytes) -> Heartbeat:
        """The heartbeat of that JSON; fields of newer versions are passed over."""
        known = {field.name for field in fields(Heartbeat)}
        content: dict[str, Any] = {name: item for name, item in decode_json(value).items() if name in known}
        content["errors"] = tuple(content.get("errors", ()))
        return Heartbeat(**content)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return repr(value) if isinstance(value, float) else str(value)


def _value(name: str, text: str) -> Any:
    if name in _INTEGERS:
        return int(text)
    if name in _FLOATS:
        return float(text)
    return text == "1" if name == "blur_during_trial" else text


# Who may write what ---------------------------------------------------------------------------------------------------

#: Keys each process may write; both read everything under `salmon:`.
FRONTEND_WRITES = (
    EXPERIMENTS,
    ACCOUNTS,
    REQUESTS,
    "salmon:request:*",
    "salmon:{*}:spec",
    "salmon:{*}:state",
    "salmon:{*}:arrivals",
    "salmon:{*}:p:*",
    "salmon:{*}:events",
    "salmon:{*}:pending:*",
    "salmon:{*}:q:*",
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
    "get set del expire hget hset hsetnx hdel hgetall hmget hexists hincrby hlen hscan sadd sismember lpop lindex"
    " lrange llen lrem xadd xlen xrange xrevrange xread exists multi exec script|load"
)
_BACKEND_COMMANDS = (
    "get set incrby expire hget hset hdel hgetall hmget del rpush rename llen lrange xadd xread xrange xrevrange xlen"
    " exists multi exec eval evalsha script|load"
)
#: The frontend's two holes in its fence: appending to the answers, and the scripts that do so.
_APPEND_ANSWERS = "(~salmon:{*}:answers +xadd)"
_ANSWER_SCRIPTS = (
    "(~salmon:{*}:answers ~salmon:{*}:p:* ~salmon:{*}:pending:* ~salmon:{*}:q:* ~salmon:{*}:state +eval +evalsha)"
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
