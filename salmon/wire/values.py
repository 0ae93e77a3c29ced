"""Encode single values: JSON, arrays, the backend's heartbeat, and verdicts on participants.

Arrays are stored as .npy and never as a pickle. Verdicts are stored until more answers arrive.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from salmon.quality import Figures, Flag, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encode_json(value: Any) -> str:
    """Return compact JSON with sorted keys, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def decode_json(value: str | bytes) -> Any:
    """Return the value that `encode_json` wrote."""
    return json.loads(value)


def encode_array(array: NDArray[Any]) -> bytes:
    """Return an array as .npy bytes."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def decode_array(content: bytes) -> NDArray[Any]:
    """Return the array of .npy bytes; a pickle inside is refused."""
    import numpy as np

    return np.load(io.BytesIO(content), allow_pickle=False)


@dataclass(frozen=True)
class Heartbeat:
    """What the backend reports about itself while it runs."""

    started_ms: int
    beat_ms: int
    experiments: int = 0
    learners: int = 0
    workers: int = 0
    errors: tuple[str, ...] = ()

    def encode(self) -> str:
        """Return the JSON of `salmon:backend`."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(value: str | bytes) -> Heartbeat:
        """Return the heartbeat of that JSON; fields of newer versions are ignored."""
        known = {field.name for field in fields(Heartbeat)}
        content: dict[str, Any] = {name: item for name, item in decode_json(value).items() if name in known}
        content["errors"] = tuple(content.get("errors", ()))
        return Heartbeat(**content)


#: Version of the figures and rules; verdicts of another version are computed again.
RULES = 1


@dataclass(frozen=True)
class StoredVerdicts:
    """Verdicts by participant, as of the last answer seen and of so many decisions of the experimenter."""

    as_of: str
    decisions: int
    verdicts: Mapping[str, Verdict]

    def encode(self) -> str:
        """Return the JSON of `salmon:{E}:quality`."""
        found = {
            participant: {
                "figures": asdict(verdict.figures),
                "flags": [[flag.name, flag.reason, flag.excludes] for flag in verdict.flags],
            }
            for participant, verdict in self.verdicts.items()
        }
        return encode_json({"rules": RULES, "as_of": self.as_of, "decisions": self.decisions, "verdicts": found})

    @staticmethod
    def decode(text: str | None) -> StoredVerdicts | None:
        """Return the verdicts of that JSON; None if there is none or it follows other rules."""
        content = decode_json(text) if text else {}
        if content.get("rules") != RULES:
            return None
        names = {field.name for field in fields(Figures)}
        return StoredVerdicts(
            content["as_of"],
            content["decisions"],
            {participant: _verdict(found, names) for participant, found in content["verdicts"].items()},
        )


def _verdict(found: Mapping[str, Any], names: set[str]) -> Verdict:
    figures = {name: value for name, value in found["figures"].items() if name in names}
    return Verdict(Figures(**figures), tuple(Flag(*flag) for flag in found["flags"]))
