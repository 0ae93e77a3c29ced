"""Encode queries, served queries and answers as they are stored in lists, tokens and the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, TypeVar, cast

from salmon.records import Answer, Query, Served, Timing, TrialType

Record = TypeVar("Record", Answer, Served, Timing)


def encode_query(query: Query) -> str:
    """Return one element of a list of queries: `head,foot,foot|score|trial type|probability|generation|published`.

    The key stands first, so that the store can compare it without decoding the rest.
    """
    numbers = (repr(query.score), query.trial_type, repr(query.probability))
    return "|".join((query.key, *numbers, str(query.generation), str(query.published_ms)))


def decode_query(value: str) -> Query:
    """Return the query of one list element."""
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
#: Fields of the answer itself.
_REST = ("winner", "received_ms", "signed")
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
} | {
    "sent_attempts",
    "viewport_w",
    "viewport_h",
}
_FLOATS = {"score", "probability", "sampler_probability", "rt_ms", "query_wait_ms", "onset_client_ms"} | {
    "network_latency_ms"
}


def encode_answer(answer: Answer) -> dict[str, str]:
    """Return the fields of one stream entry.

    They have always the same names in the same order, which a stream stores only once.
    """
    entry = {name: _text(getattr(answer.served, attribute)) for name, attribute in _SERVED.items()}
    entry |= {name: _text(getattr(answer.timing, name)) for name in _TIMING}
    return entry | {
        "winner": str(answer.winner),
        "received_ms": str(answer.received_ms),
        "signed": _text(answer.signed),
    }


def decode_answer(experiment: str, entry: Mapping[str, str]) -> Answer:
    """Return the answer of one stream entry; fields that an older version did not write keep their defaults."""
    served: dict[str, Any] = {name: read(entry[key]) for key, name, read in _SERVED_FIELDS if key in entry}
    timing: dict[str, Any] = {name: read(entry[name]) for name, read in _TIMING_FIELDS if name in entry}
    served["experiment"] = experiment
    return _build_record(
        Answer,
        {
            "served": _build_record(Served, served),
            "winner": int(entry["winner"]),
            "timing": _build_record(Timing, timing),
            "received_ms": int(entry["received_ms"]),
            "signed": entry.get("signed", "1") == "1",
        },
    )


class AnswerReader:
    """Decodes the entries of one stream, each as its fields [name, value, name, value, …].

    Entries of one version have the same names in the same order: the places of the fields are found once, and each
    entry after that is decoded in half the time of `decode_answer`.
    """

    def __init__(self, experiment: str) -> None:
        self._experiment = experiment
        self._names: list[str] = []
        self._readers: list[Callable[[str], Any]] = []
        # What picks the values of each part; nothing where a field is missing.
        self._parts: tuple[Callable[[list[Any]], tuple[Any, ...]], ...] = ()

    def read(self, entry: list[str]) -> Answer:
        """Return the answer of one entry."""
        if (names := entry[::2]) != self._names:
            self._learn(names)
        if not self._parts:
            return decode_answer(self._experiment, dict(zip(names, entry[1::2], strict=True)))
        values = [read(value) for read, value in zip(self._readers, entry[1::2], strict=True)]
        of_served, of_timing, (winner, received_ms, signed) = (pick(values) for pick in self._parts)
        served, timing, answer = object.__new__(Served), object.__new__(Timing), object.__new__(Answer)
        served.__dict__.update(zip(_SERVED.values(), of_served, strict=True), experiment=self._experiment)
        timing.__dict__.update(zip(_TIMING, of_timing, strict=True))
        answer.__dict__.update(served=served, winner=winner, timing=timing, received_ms=received_ms, signed=signed)
        return answer

    def _learn(self, names: list[str]) -> None:
        """Find the place of each field, if none is missing."""
        self._names, self._readers = names, [_reader(name) for name in names]
        place = {name: at for at, name in enumerate(names)}
        whole = place.keys() >= {*_SERVED, *_TIMING, *_REST}
        parts = (_SERVED, _TIMING, _REST) if whole else ()
        self._parts = tuple(itemgetter(*(place[name] for name in part)) for part in parts)


def _build_record(kind: type[Record], values: dict[str, Any]) -> Record:
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


def _reader(name: str) -> Callable[[str], Any]:
    if name in _INTEGERS:
        return int
    if name in _FLOATS:
        return float
    return "1".__eq__ if name in _TRUTHS else str


#: How each field is read, looked up once: (name in the stream, attribute, reader).
_SERVED_FIELDS = tuple((name, attribute, _reader(name)) for name, attribute in _SERVED.items())
_TIMING_FIELDS = tuple((name, _reader(name)) for name in _TIMING)
