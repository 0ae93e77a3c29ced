"""Logs: one line an event; who somebody is at DEBUG only, secrets never."""

import json
import logging
from pathlib import Path

import pytest

from salmon import logs
from salmon.logs import REPEATS, REPEATS_SECONDS, EventFormatter, RepeatFilter, fields


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


def test_equal_errors_are_counted_after_the_first_few() -> None:
    clock = [0.0]
    damp = RepeatFilter(lambda: clock[0])
    logged = [damp.filter(record(logging.ERROR, "store failed", n=n)) for n in range(100)]
    assert sum(logged) == REPEATS
    assert damp.filter(record(logging.ERROR, "another event"))
    assert all(damp.filter(record(logging.INFO, "store failed")) for _ in range(100))
    clock[0] = REPEATS_SECONDS
    after = record(logging.ERROR, "store failed")
    assert damp.filter(after)
    assert f"not_logged={100 - REPEATS}" in EventFormatter("frontend").format(after)


def test_a_log_file_has_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    try:
        logs.configure("frontend", directory=str(tmp_path / "logs"))
        for number in range(200):
            logging.getLogger("salmon.test").info("event", extra=fields(number=number))
        logging.getLogger("httpx").info("GET https://school.example/?credit_token=secret")  # with its whole address
        root.handlers[0].close()
    finally:
        root.handlers[:], logging.raiseExceptions = before, raising
        root.setLevel(level)
    files = sorted((tmp_path / "logs").iterdir())
    assert len(files) == 1 + logs.OLD_FILES
    assert all(file.stat().st_size <= 2000 for file in files)
    kept = (tmp_path / "logs" / "frontend.log").read_text()
    assert "number=199" in kept
    assert "credit_token" not in kept
