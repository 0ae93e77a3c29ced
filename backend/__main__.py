"""Start the learning process: `python -m backend`, with its settings in the environment."""

import os
import signal
import sys
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.service import HeartbeatThread, Service
from backend.store import Store
from backend.workers import ExecutorOpener
from salmon import logs, parent_watch

#: Learning yields the processor to the web process, which people wait for, but not to everything else on the machine:
#: beside two other busy programs, niceness 15 left it a thirtieth of a core. Workers inherit the niceness.
NICENESS = 10


class Settings(BaseSettings):
    """What this process reads from its environment, once; each variable is `SALMON_` and the name in capitals."""

    model_config = SettingsConfigDict(env_prefix="SALMON_", frozen=True)

    redis_url: str = Field(description="Where Redis is: unix://…, redis:// or rediss:// with user and password.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="What is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")
    log_directory: str = Field(default="", description="Where each process writes a log file; empty: standard error.")
    scheduler: str = Field(default="", description="The address of a Dask cluster to join; empty starts a local one.")
    scheduler_ca: str = Field(default="", description="PEM file with the certificate of that cluster's authority.")
    scheduler_cert: str = Field(default="", description="PEM file with this process's certificate for that cluster.")
    scheduler_key: str = Field(default="", description="PEM file with the key of that certificate.")
    dashboard: bool = Field(default=False, description="Whether the local cluster shows Dask's pages on this machine.")

    @property
    def tls(self) -> tuple[str, str, str] | None:
        """The files for TLS with the scheduler, if any is named."""
        files = (self.scheduler_ca, self.scheduler_cert, self.scheduler_key)
        return files if any(files) else None


def main() -> int:
    """Learn from the open experiments until a signal asks to stop; return the exit code."""
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        for problem in error.errors():
            print(f"salmon backend: SALMON_{str(problem['loc'][0]).upper()}: {problem['msg']}.", file=sys.stderr)
        return 1
    os.umask(parent_watch.PRIVATE_UMASK)
    logs.configure("backend", level=settings.log_level, style=settings.log_format, directory=settings.log_directory)
    parent_watch.watch(os.environ)
    os.nice(NICENESS)
    service = Service(Store(settings.redis_url), ExecutorOpener(settings.scheduler, settings.tls, settings.dashboard))
    pulse = HeartbeatThread(Store(settings.redis_url, patient=False), service.report)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda _number, _frame: service.stop())
    pulse.start()
    parent_watch.announce("")
    parent_watch.spare_collector()
    service.run()
    pulse.stop()
    # A long refit may still run in its thread. It is abandoned: nothing of it was published.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
