"""Encode every stored value: JSON and arrays, queries, tokens and answers, the heartbeat, verdicts on participants.

Arrays are stored as .npy and never as a pickle. Requests to the learning process are in `salmon.wire.jobs`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast
from zlib import crc32

from salmon.quality import Figures, Flag, Verdict
from salmon.records import Answer, Query, Served, Timing, TrialType

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = TypeVar("Record", Answer, Served, Timing)


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


def encode_query(query: Query) -> str:
    """Return one element of a list of queries: `head,foot,foot|score|trial type|probability|generation|published`, and
    `|left` where the left foot is decided.

    The key stands first, so that the store can compare it without decoding the rest.
    """
    element = (
        f"{query.key}|{query.score!r}|{query.trial_type}|{query.probability!r}|{query.generation}|{query.published_ms}"
    )
    return element if query.left < 0 else f"{element}|{query.left}"


def decode_query(value: str) -> Query:
    """Return the query of one list element."""
    key, score, trial_type, probability, generation, published_ms, *left = value.split("|")[:7]
    head, low, high = (int(part) for part in key.split(","))
    return Query(
        head=head,
        feet=(low, high),
        score=float(score),
        trial_type=cast("TrialType", trial_type),
        probability=float(probability),
        generation=int(generation),
        published_ms=int(published_ms),
        left=int(left[0]) if left else -1,
    )


#: The last field of an answer. Redis keeps none for its append-only file, and disks flip bits.
CHECKSUM = "crc32"
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
#: Fields of the answer itself.
REST_FIELDS = ("winner", "received_ms", "signed")
_TRUTHS = {"blur_during_trial", "signed"}
_INTEGERS = {
    "winner",
    "received_ms",
    "revision",
    "trial",
    "head",
    "left",
    "right",
    "generation",
    "published_ms",
    "served_ms",
    "sent_attempts",
    "viewport_w",
    "viewport_h",
}
_FLOATS = {
    "score",
    "probability",
    "sampler_probability",
    "rt_ms",
    "query_wait_ms",
    "onset_client_ms",
    "network_latency_ms",
}


def encode_answer(answer: Answer) -> dict[str, str]:
    """Return the fields of one stream entry, the last of which is the checksum of the others.

    They have always the same names in the same order, which a stream stores only once.
    """
    entry = {name: _text(getattr(answer.served, attribute)) for name, attribute in _SERVED.items()}
    entry |= {name: _text(getattr(answer.timing, name)) for name in _TIMING}
    entry |= {
        "winner": str(answer.winner),
        "received_ms": str(answer.received_ms),
        "signed": _text(answer.signed),
    }
    return entry | {CHECKSUM: _checksum([part for pair in entry.items() for part in pair])}


def is_intact(entry: Sequence[str]) -> bool:
    """Return whether an entry [name, value, name, value, …] is as it was written, by the checksum at its end.

    Entries of versions that wrote no checksum are taken as intact.
    """
    return len(entry) < 2 or entry[-2] != CHECKSUM or entry[-1] == _checksum(entry[:-2])


def change_answer(entry: Mapping[str, str], **values: str) -> dict[str, str]:
    """Return the fields of an entry with other values and a checksum that fits them.

    An entry that was damaged stays so: its checksum is left as it is.
    """
    changed = {name: values.get(name, text) for name, text in entry.items()}
    if CHECKSUM in entry and is_intact([part for pair in entry.items() for part in pair]):
        del changed[CHECKSUM]
        changed[CHECKSUM] = _checksum([part for pair in changed.items() for part in pair])
    return changed


def _checksum(parts: Sequence[str]) -> str:
    return f"{crc32(chr(31).join(parts).encode(errors='replace')):08x}"


def decode_answer(experiment: str, entry: Mapping[str, str]) -> Answer:
    """Return the answer of one stream entry; fields that an older version did not write keep their defaults."""
    served: dict[str, Any] = {name: read(entry[key]) for key, name, read in SERVED_FIELDS if key in entry}
    timing: dict[str, Any] = {name: read(entry[name]) for name, read in TIMING_FIELDS if name in entry}
    served["experiment"] = experiment
    return build_record(
        Answer,
        {
            "served": build_record(Served, served),
            "winner": int(entry["winner"]),
            "timing": build_record(Timing, timing),
            "received_ms": int(entry["received_ms"]),
            "signed": entry.get("signed", "1") == "1",
        },
    )


def build_record(kind: type[Record], values: dict[str, Any]) -> Record:
    """Return a record of these values.

    A frozen dataclass sets each field by a call, which is most of the time that reading a million answers takes: where
    every field is there, they are set at once.
    """
    if len(values) < len(kind.__dataclass_fields__):
        return kind(**values)
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def encode_served(served: Served) -> list[Any]:
    """Return the payload of a token: short, and complete enough to need no look-up when the answer arrives."""
    return [1, served.experiment, *(getattr(served, attribute) for attribute in _SERVED.values())]


def decode_served(payload: Sequence[Any]) -> Served:
    """Return the served query inside a token whose signature was checked."""
    _version, experiment, *values = payload
    attributes: dict[str, Any] = dict(zip(_SERVED.values(), values, strict=False))
    return Served(experiment=experiment, **attributes)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return repr(value) if isinstance(value, float) else str(value)


def reader_of(name: str) -> Callable[[str], Any]:
    """Return what reads a field of an answer."""
    if name in _INTEGERS:
        return int
    if name in _FLOATS:
        return float
    return "1".__eq__ if name in _TRUTHS else str


#: How each field is read, looked up once: (name in the stream, attribute, reader).
SERVED_FIELDS = tuple((name, attribute, reader_of(name)) for name, attribute in _SERVED.items())
TIMING_FIELDS = tuple((name, reader_of(name)) for name in _TIMING)


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
RULES = 4


@dataclass(frozen=True)
class StoredVerdicts:
    """Verdicts by participant, as of the last answer seen, so many decisions of the experimenter, and a model.

    `model` names the map that participants were compared with, by its sampler and
    generation; empty where there was none.
    """

    as_of: str
    decisions: int
    model: str
    verdicts: Mapping[str, Verdict]

    def encode(self) -> str:
        """Return the JSON of `salmon:{E}:quality`."""
        return encode_json(
            {
                "rules": RULES,
                "as_of": self.as_of,
                "decisions": self.decisions,
                "model": self.model,
                "verdicts": {
                    participant: {
                        "figures": asdict(verdict.figures),
                        "flags": [[flag.name, flag.reason, flag.excludes] for flag in verdict.flags],
                    }
                    for participant, verdict in self.verdicts.items()
                },
            }
        )

    @property
    def proposed(self) -> list[str]:
        """The participants whose exclusion is proposed, whatever was decided about them."""
        return [participant for participant, verdict in self.verdicts.items() if not verdict.keep]

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
            content["model"],
            {participant: _verdict(found, names) for participant, found in content["verdicts"].items()},
        )


def _verdict(found: Mapping[str, Any], names: set[str]) -> Verdict:
    figures = {name: value for name, value in found["figures"].items() if name in names}
    return Verdict(Figures(**figures), tuple(Flag(*flag) for flag in found["flags"]))
