"""The fields of hashes and stream entries in a bundle: what the program will read as numbers or JSON must be that."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from frontend.errors import BundleError
from salmon.wire import decode_json

Hash = Mapping[str, str]

#: The name of an experiment in its link.
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
STREAM_ID = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")
_WHOLE = re.compile(r"[0-9]{1,15}")
_LETTERS = re.compile(r"[rwt]{0,10000}")

_PERSON_REQUIRED = ("puid", "source", "status", "first_ms")
_PERSON_WHOLE = frozenset(
    {"first_ms", "seen_ms", "last_ms", "completed_ms", "redirected_ms", "declined_ms", "keep_ms", "answers", "turns"}
    | {"spares", "save_incomplete"}
)
_MODEL_REQUIRED = ("generation", "absorbed", "loss", "cursor")
_MODEL_WHOLE = frozenset({"generation", "absorbed", "published_ms", "held_total", "thinned_at", "reported_of"})
#: Hash of a model that are no numbers.
_MODEL_WORDS = frozenset({"cursor", "held_recent"})


def check_person(fields: Hash, where: str) -> None:
    """The fields of a participant."""
    for name in _PERSON_REQUIRED:
        require(name in fields, where, f"lacks the field {name}")
    for name, text in fields.items():
        kind, _, _ = name.partition(":")
        if name in _PERSON_WHOLE or kind == "step":
            require(_WHOLE.fullmatch(text) is not None, where, f"has no whole number in {name}")
        elif kind == "consent":
            content = _json(text, name, where)
            fits = isinstance(content, dict) and isinstance(content.get("agreed_ms"), int)
            require(fits and isinstance(content.get("version"), str), where, f"has no consent in {name}")
        elif kind == "comprehension":
            content = _json(text, name, where)
            require(
                isinstance(content, dict) and isinstance(content.get("options"), list),
                where,
                f"has no answers in {name}",
            )
        elif kind in {"question", "practice"}:
            _json(text, name, where)


def check_event(fields: Hash, where: str) -> None:
    """The fields of an event."""
    for name in ("trial", "received_ms"):
        require(_WHOLE.fullmatch(fields.get(name, "0")) is not None, where, f"has no whole number in {name}")
    require(_is_number(fields.get("client_ms", "-1")), where, "has no number in client_ms")


def check_change(fields: Hash, where: str) -> None:
    """The fields of a line of what was changed."""
    fits = {"at_ms", "by", "what", "detail"} <= fields.keys() and _WHOLE.fullmatch(fields["at_ms"])
    require(bool(fits), where, "is no change")


def check_model(fields: Hash, where: str) -> None:
    """The numbers of a model or of a line of history."""
    for name in _MODEL_REQUIRED:
        require(name in fields, where, f"lacks the field {name}")
    for name, text in fields.items():
        if name in _MODEL_WHOLE:
            require(_WHOLE.fullmatch(text) is not None, where, f"has no whole number in {name}")
        elif name not in _MODEL_WORDS:
            require(text in {"", "nan", "inf"} or _is_number(text), where, f"has no number in {name}")
    cursor = fields["cursor"]
    require(cursor == "0" or STREAM_ID.fullmatch(cursor) is not None, where, "has no place in the log")
    require(_LETTERS.fullmatch(fields.get("held_recent", "")) is not None, where, "has no predictions")


#: How the entries of each stream are checked.
CHECKS: Mapping[str, Callable[[Hash, str], None]] = {"events.jsonl": check_event, "changes.jsonl": check_change}


def require(holds: bool, where: str, what: str) -> None:
    """BundleError, with the place, unless something holds."""
    if not holds:
        raise wrong(where, what)


def wrong(where: str, what: str) -> BundleError:
    """The sentence about something in a bundle."""
    return BundleError(f"{where} {what}.", hint="Nothing was imported; use the bundle as it was exported.", where=where)


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _json(text: str, name: str, where: str) -> Any:
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise wrong(where, f"has no JSON in {name}") from error
