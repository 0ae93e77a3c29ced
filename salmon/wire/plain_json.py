"""Values as JSON."""

from __future__ import annotations

import json
from typing import Any


def encode_json(value: Any) -> str:
    """Compact JSON with sorted keys, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def decode_json(value: str | bytes) -> Any:
    """What `encode_json` wrote."""
    return json.loads(value)
