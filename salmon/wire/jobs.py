"""Encode requests to the learning process, and the status of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from salmon.wire.values import decode_json, encode_json

RequestState = Literal["waiting", "running", "done", "failed", "cancelled"]
REQUEST_STATES: tuple[RequestState, ...] = get_args(RequestState)

#: The kind of those entries of the stream that only announce an experiment.
ANNOUNCED = "experiment"

#: How long a request is kept while it waits, and after it has ended.
WAITS_SECONDS = 7 * 24 * 3600
KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Request:
    """One entry of the stream of requests; `arguments` are plain values, checked before they were written."""

    request: str
    kind: str
    experiment: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def encode(self) -> dict[str, str]:
        """Return the fields of the entry."""
        return {
            "kind": self.kind,
            "request": self.request,
            "experiment": self.experiment,
            "arguments": encode_json(dict(self.arguments)),
        }

    @staticmethod
    def decode(entry: Mapping[str, str]) -> "Request | None":
        """Return the request of an entry; None if the entry announces an experiment."""
        if entry.get("kind", ANNOUNCED) == ANNOUNCED or "request" not in entry:
            return None
        return Request(entry["request"], entry["kind"], entry["experiment"], decode_json(entry.get("arguments", "{}")))


@dataclass(frozen=True)
class JobStatus:
    """The status of a request, stored in the hash of its own key.

    `progress` goes from 0 to 1 and `note` says what is being done; `result` is there when it is done, `error` is a
    sentence if it failed. `cancel` asks for its end, `tries` counts the processes that have begun it, `backend` is the
    last of them. Times are Unix times in milliseconds, 0 if it has not come to that.
    """

    kind: str
    experiment: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asked_ms: int = 0
    asked_by: str = ""
    state: RequestState = "waiting"
    progress: float = 0.0
    note: str = ""
    result: Any = None
    error: str = ""
    cancel: bool = False
    tries: int = 0
    backend: str = ""
    began_ms: int = 0
    ended_ms: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in {"done", "failed", "cancelled"}

    def encode(self) -> dict[str, str]:
        """Return the fields of the hash."""
        return encode_job_status({item.name: getattr(self, item.name) for item in fields(self)})

    @staticmethod
    def decode(values: Mapping[str, str]) -> "JobStatus | None":
        """Return the status in a hash, or None if there is no such request (any more); fields of newer versions are
        ignored.
        """
        if "kind" not in values:
            return None
        known = {item.name for item in fields(JobStatus)}
        return JobStatus(**{name: _value(name, text) for name, text in values.items() if name in known})


def encode_job_status(values: Mapping[str, Any]) -> dict[str, str]:
    """Return some fields of the hash."""
    return {name: _text(name, value) for name, value in values.items()}


_JSON = {"arguments", "result"}
_INTEGERS = {"asked_ms", "tries", "began_ms", "ended_ms"}


def _text(name: str, value: Any) -> str:
    if name in _JSON:
        return encode_json(value)
    if name == "cancel":
        return "1" if value else "0"
    return repr(float(value)) if name == "progress" else str(value)


def _value(name: str, text: str) -> Any:
    if name in _JSON:
        return decode_json(text)
    if name in _INTEGERS:
        return int(text)
    if name == "cancel":
        return text == "1"
    return float(text) if name == "progress" else text
