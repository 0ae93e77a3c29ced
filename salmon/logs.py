"""Write structured logs: one event a line, readable by people and by programs.

`2026-11-18T09:30:00.123Z info frontend answer recorded experiment=ab12 latency_ms=0.4`, or JSON with
`SALMON_LOG_FORMAT=json`. What identifies a participant is logged at DEBUG only, and secrets never: the formatter
enforces both, whatever the caller passes.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

#: Fields that say who somebody is: shown at DEBUG only.
PERSONAL = frozenset({"participant", "puid", "session", "arrival", "address"})
#: Fields that grant access: never shown.
SECRET = frozenset({"password", "token", "key", "secret", "invitation", "authorization", "cookie"})


#: How lines are written: for people, or for programs.
Style = Literal["text", "json"]


def fields(**values: Any) -> dict[str, Any]:
    """Return the `extra=` of a log call: the values of one event."""
    return {"fields": values}


class EventFormatter(logging.Formatter):
    """Formats one event as one line."""

    def __init__(self, process: str, style: Style = "text") -> None:
        super().__init__()
        self._process = process
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one event, without what may not be shown at its level."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = record.levelname.lower()
        shown = _shown(getattr(record, "fields", {}), record.levelno)
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        if self._json:
            line = {"time": when, "level": level, "process": self._process, "event": record.getMessage(), **shown}
            return json.dumps(line, ensure_ascii=False, default=str)
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in shown.items())
        return f"{when} {level} {self._process} {_one_line(record.getMessage())}{pairs}"


def configure(process: str, *, level: str = "INFO", style: Style = "text") -> None:
    """Send the logs of this process to standard error; called once, by the program that starts the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter(process, style))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("httpx", "httpcore", "asyncio", "distributed", "urllib3", "matplotlib", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _shown(values: dict[str, Any], level: int) -> dict[str, Any]:
    hidden = SECRET if level <= logging.DEBUG else SECRET | PERSONAL
    return {name: value for name, value in values.items() if name not in hidden}


def _quoted(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\r\t') else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
