"""What the backend says about itself while it lives."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from salmon.wire.plain_json import decode_json, encode_json


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
