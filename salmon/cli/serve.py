"""Implement `salmon serve`, the whole of Salmon on one machine, and `salmon backend`, the learning process alone."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from salmon import logs, parent_watch
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import redis_program
from salmon.cli.supervisor import Program, Supervisor, responds
from salmon.parent_watch import ALIVE

#: What the supervisor asks the web process to find out whether it responds.
_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DEFAULT_DATA = Path("salmon-data")

DataOption = Annotated[
    Path, typer.Option("--data", envvar="SALMON_DATA_DIRECTORY", help="The data directory.", show_default=True)
]


def serve(
    port: Annotated[
        int, typer.Option(help="The port of the web pages; 0 selects a free port.", min=0, max=65535)
    ] = 8421,
    host: Annotated[str, typer.Option(help="127.0.0.1 for this machine alone, 0.0.0.0 for the network.")] = "127.0.0.1",
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Start store, backend and web pages, and keep them running until Ctrl-C.

    Example: salmon serve --port 8421 --data ./salmon-data
    """
    logs.configure(
        "supervisor",
        level=os.environ.get("SALMON_LOG_LEVEL", "INFO"),
        style="json" if os.environ.get("SALMON_LOG_FORMAT") == "json" else "text",
        directory=os.environ.get("SALMON_LOG_DIRECTORY", ""),
    )
    parent_watch.raise_descriptor_limit()
    parent_watch.watch(os.environ)
    directory = DataDirectory(data.expanduser().resolve())
    directory.prepare()
    with directory.lock():
        supervisor = Supervisor(directory.running)
        supervisor.stop_orphans(gentle=("redis",))
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda _number, _frame: supervisor.stop())
        try:
            *first, last = programs(directory, host=host, port=port)
            # The web process imports its modules while the store reads its files. The learning process, which needs both
            # for longer, leaves them the processors until people are served.
            supervisor.start(*first)
            if supervisor.stopping:
                return
            supervisor.start(last)
            port_taken, address, *invitation = (supervisor.announced("frontend") or "").split(" ")
            # Should it die, it comes back where participants' pages look for it, also when the port was a free one.
            supervisor.amend("frontend", {"SALMON_PORT": port_taken})
            with suppress(OSError):  # only shown by commands
                (directory.running / "address").write_text(address)
            _say_where(address, " ".join(invitation))
            supervisor.watch()
        finally:
            supervisor.shut_down()


def programs(directory: DataDirectory, *, host: str, port: int) -> tuple[Program, ...]:
    """Return what runs on one machine, in the order of starting; an outside Redis replaces the embedded one."""
    credentials = directory.credentials()
    shared = {"SALMON_DATA": str(directory.root), "SALMON_SECRET": credentials.secret}
    outside = os.environ.get("SALMON_REDIS_URL")
    store = () if outside else (redis_program(directory),)
    return (
        *store,
        Program(
            name="frontend",
            command=(sys.executable, "-m", "frontend"),
            environment={
                **shared,
                "SALMON_REDIS_URL": outside or directory.redis_url("frontend", credentials.frontend),
                **({} if outside else {"SALMON_ERASER_URL": directory.redis_url("eraser", credentials.eraser)}),
                "SALMON_HOST": host,
                "SALMON_PORT": str(port),
            },
            wait_for_ready=True,
            probe=lambda announced: responds((_probed(host), int(announced.split(" ")[0])), _HEALTH),
        ),
        Program(
            name="backend",
            command=(sys.executable, "-m", "backend"),
            # One thread a process: more would fight with the workers for the same cores.
            environment={
                **shared,
                "SALMON_REDIS_URL": outside or directory.redis_url("backend", credentials.backend),
                "OMP_NUM_THREADS": "1",
            },
            alive=ALIVE,
        ),
    )


def _probed(host: str) -> str:
    """Return the address at which a server that listens on `host` is reached from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _say_where(address: str, invitation: str) -> None:
    lines = [f"Salmon is running at {address} (Ctrl-C stops it)."]
    if invitation:
        lines += [
            "There is no account yet. Open this link to create the owner's account:",
            f"  {invitation}",
        ]
    print("\n" + "\n".join(lines) + "\n", flush=True)


def backend() -> None:
    """Run the learning process alone; SALMON_REDIS_URL says on which store, SALMON_SCHEDULER on which Dask cluster.

    Example: SALMON_REDIS_URL=redis://backend:…@redis:6379 salmon backend
    """
    os.execv(sys.executable, (sys.executable, "-m", "backend"))  # noqa: S606
