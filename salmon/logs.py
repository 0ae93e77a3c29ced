"""Write structured logs: one event a line, readable by people and by programs.

`2026-11-18T09:30:00.123Z info frontend answer recorded experiment=ab12 latency_ms=0.4`, or JSON with
`SALMON_LOG_FORMAT=json`. What identifies a participant is logged at DEBUG only, and secrets never: the formatter
enforces both, whatever the caller passes.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

#: Fields that say who somebody is: shown at DEBUG only.
PERSONAL = frozenset({"participant", "puid", "session", "arrival", "address"})
#: Fields that grant access: never shown.
SECRET = frozenset({"password", "token", "key", "secret", "invitation", "authorization", "cookie"})


#: Equal warnings or errors that are logged within so many seconds; the others are counted.
REPEATS = 5
REPEATS_SECONDS = 10.0
_EVENTS_KNOWN = 1000
#: Size of a log file, and how many older ones are kept.
FILE_BYTES = 10_000_000
OLD_FILES = 4

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


class RepeatFilter(logging.Filter):
    """Damps warnings and errors that repeat: of equal events, so many are logged in a while, and then their number."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: dict[tuple[Any, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether an event is logged; the first of a new while says how many were not."""
        if record.levelno < logging.WARNING:
            return True
        now = self._now()
        kind = record.exc_info[0] if record.exc_info else None
        event = (record.name, record.levelno, str(record.msg)[:200], kind)
        began, count = self._seen.get(event, (now, 0))
        if now - began < REPEATS_SECONDS:
            self._seen[event] = began, count + 1
            return count < REPEATS
        if len(self._seen) > _EVENTS_KNOWN:
            self._seen.clear()
        self._seen[event] = now, 1
        if count > REPEATS:
            record.fields = {**getattr(record, "fields", {}), "not_logged": count - REPEATS}
        return True


def configure(process: str, *, level: str = "INFO", style: Style = "text", directory: str = "") -> None:
    """Send the logs of this process to standard error, or to a file of limited size in a directory.

    Called once, by the program that starts the process.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    unusable = ""
    if directory:
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            path = Path(directory) / f"{process}.log"
            handler = RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
        except OSError as error:
            unusable = error.strerror or str(error)
    handler.setFormatter(EventFormatter(process, style))
    handler.addFilter(RepeatFilter())
    logging.raiseExceptions = False  # a log that cannot be written, as on a full disk, is no error of its own
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("httpx", "httpcore", "asyncio", "distributed", "urllib3", "matplotlib", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if unusable:
        logging.getLogger("salmon").warning("no log file", extra=fields(directory=directory, error=unusable))


def _shown(values: dict[str, Any], level: int) -> dict[str, Any]:
    hidden = SECRET if level <= logging.DEBUG else SECRET | PERSONAL
    return {name: value for name, value in values.items() if name not in hidden}


def _quoted(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\r\t') else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
