"""Starts the learning process: `python -m backend`, with its settings in the environment."""

from __future__ import annotations

import os
import signal
import sys

from pydantic import ValidationError

from backend.service import Pulse, Service
from backend.settings import Settings
from backend.store import Store
from backend.workers import opener
from salmon import logs, parent_watch

#: Learning steps back where cores are short: somebody waits for the web process. Workers inherit it.
NICENESS = 5


def main() -> int:
    """Follow the experiments until told to stop."""
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        for problem in error.errors():
            print(f"salmon backend: SALMON_{str(problem['loc'][0]).upper()}: {problem['msg']}.", file=sys.stderr)
        return 1
    logs.configure("backend", level=settings.log_level, style=settings.log_format)
    parent_watch.watch(os.environ)
    os.nice(NICENESS)
    service = Service(Store(settings.redis_url), opener(settings.scheduler))
    pulse = Pulse(Store(settings.redis_url), service.report)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda _number, _frame: service.stop())
    pulse.start()
    parent_watch.announce("")
    service.run()
    pulse.stop()
    # A long refit may still run in its thread: it is given up, as nothing of it is published.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
