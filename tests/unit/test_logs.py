"""Logs: one line an event; who somebody is at DEBUG only, secrets never."""

import json
import logging

import pytest

from salmon.logs import EventFormatter, fields


def record(level: int, message: str = "answer recorded", **values: object) -> logging.LogRecord:
    made = logging.LogRecord("salmon", level, "x.py", 1, message, None, None)
    made.__dict__.update(fields(**values))
    return made


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_event_is_one_line_with_its_fields(style: str) -> None:
    line = EventFormatter("frontend", style).format(record(logging.INFO, experiment="e1", detail="two\nlines", n=3))  # type: ignore[arg-type]
    assert "\n" not in line
    assert "e1" in line
    if style == "json":
        assert json.loads(line)["detail"] == "two\nlines"
    else:
        assert ' detail="two\\nlines" n=3' in line


@pytest.mark.parametrize("name", ["participant", "puid", "session", "address"])
def test_who_somebody_is_appears_at_debug_only(name: str) -> None:
    formatter = EventFormatter("frontend")
    assert "somebody" in formatter.format(record(logging.DEBUG, **{name: "somebody"}))
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        assert "somebody" not in formatter.format(record(level, **{name: "somebody"}))


@pytest.mark.parametrize("name", ["password", "token", "secret", "key", "invitation", "cookie", "authorization"])
def test_secrets_never_appear(name: str) -> None:
    for level in (logging.DEBUG, logging.ERROR):
        assert "hush" not in EventFormatter("frontend", "json").format(record(level, **{name: "hush"}))
