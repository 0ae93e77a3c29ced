"""Webhooks of Prolific: whether an event was signed by Prolific just now, and what it says."""

import base64
import hmac
from dataclasses import dataclass
from typing import Any, cast

from frontend.errors import BadRequestError, ForgedError
from salmon.wire import decode_json

#: Characters of an event's id, and how far its timestamp may be from this server's clock.
_LONGEST_ID = 200
_FRESH_MS = 5 * 60_000
#: How long the ids of events are remembered. Prolific sends an event again for 48 hours at most.
REMEMBERED_S = 4 * 24 * 3600


@dataclass(frozen=True)
class WebhookEvent:
    """What happened: of which kind, to which submission or study, and the status that it has since `at_ms`."""

    kind: str
    resource: str
    participant: str
    status: str
    at_ms: int


def check_signature(secret: str, *, timestamp: str, signature: str, body: bytes, now_ms: int) -> int:
    """Return when a body was signed (ms); ForgedError unless it was signed with this secret within the last minutes.

    The signature is HMAC-SHA256 over the timestamp and the body, in base64 or as hexadecimal digits.
    """
    made = hmac.new(secret.encode(), timestamp.encode() + body, "sha256").digest()
    fits = any(
        hmac.compare_digest(signature.strip().encode(), form) for form in (base64.b64encode(made), made.hex().encode())
    )
    if not secret or not fits:
        raise ForgedError("This event was not signed by Prolific.", hint="Nothing was changed.")
    at_ms = _milliseconds(timestamp)
    if abs(now_ms - at_ms) > _FRESH_MS:
        raise ForgedError(
            "This event was signed too long ago, or the clocks differ.",
            hint="Nothing was changed. Check the clock of this server.",
        )
    return at_ms


def read_event(body: bytes, *, at_ms: int) -> WebhookEvent:
    """Return the event of a body whose signature was checked; BadRequestError where it is none."""
    try:
        values: Any = decode_json(body)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise BadRequestError("The body of this event is no JSON object.")
    text = {
        name: str(value)[:_LONGEST_ID] for name, value in cast("dict[str, Any]", values).items() if value is not None
    }
    status = text.get("status", "").upper().replace(" ", "_").replace("-", "_")
    return WebhookEvent(
        kind=text.get("event_type", ""),
        resource=text.get("resource_id", ""),
        participant=text.get("participant_id", ""),
        status=status,
        at_ms=at_ms,
    )


def check_id(identifier: str) -> str:
    """Return the id of an event; BadRequestError where it has none, because it could not be told from a repetition."""
    if not 0 < len(identifier) <= _LONGEST_ID:
        raise BadRequestError("This event has no id (X-Event-Id), or too long a one.")
    return identifier


def _milliseconds(timestamp: str) -> int:
    """Return a timestamp in seconds or milliseconds as milliseconds; 0, which is too old, where it is neither."""
    whole, _, rest = timestamp.partition(".")
    if not (whole.isdecimal() and len(whole) <= 15 and (not rest or rest.isdecimal())):
        return 0
    return int(whole) if len(whole) > 11 else int(float(timestamp) * 1000)
