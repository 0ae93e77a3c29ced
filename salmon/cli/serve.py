"""Implement `salmon serve`, the whole of Salmon on one machine, and `salmon backend`, the learning process alone."""

import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from salmon import logs, parent_watch
from salmon.cli.append_only_file import find_damage
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import redis_program
from salmon.cli.store_note import keep_note
from salmon.cli.supervisor import STOP_SECONDS, Program, Supervisor
from salmon.errors import StartError
from salmon.parent_watch import ALIVE

DEFAULT_DATA = Path("salmon-data")
#: The folder in which web processes on one port count together; the library that counts reads this name.
METRICS = "PROMETHEUS_MULTIPROC_DIR"

DataOption = Annotated[
    Path, typer.Option("--data", envvar="SALMON_DATA_DIRECTORY", help="The data directory.", show_default=True)
]


def serve(
    port: Annotated[
        int, typer.Option(help="The port of the web pages; 0 selects a free port.", min=0, max=65535)
    ] = 8421,
    host: Annotated[str, typer.Option(help="127.0.0.1 for this machine alone, 0.0.0.0 for the network.")] = "127.0.0.1",
    data: DataOption = DEFAULT_DATA,
    public_url: Annotated[
        str,
        typer.Option(
            envvar="SALMON_PUBLIC_URL",
            help="The address that participants use, if a proxy is in front: https://lab.example.edu/salmon, for example.",
        ),
    ] = "",
    trusted_proxies: Annotated[
        str,
        typer.Option(
            envvar="SALMON_TRUSTED_PROXIES",
            help="Addresses and networks of the proxies that are believed about who sends a request: 127.0.0.1 for one on"
            " this machine.",
        ),
    ] = "",
    web_processes: Annotated[
        int | None,
        typer.Option(
            envvar="SALMON_WEB_PROCESSES",
            help="Web processes on this port; by default one fewer than there are cores, and at least one.",
            min=1,
            max=64,
        ),
    ] = None,
    start_empty: Annotated[
        bool,
        typer.Option("--start-empty", help="Start although data of the store are missing, and go on without them."),
    ] = False,
) -> None:
    """Start store, backend and web pages, and keep them running until Ctrl-C.

    Example: salmon serve --port 8421 --data ./salmon-data
    """
    os.umask(parent_watch.PRIVATE_UMASK)  # for all processes that are started
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
        if exposed := directory.make_private():
            print(f"salmon: {exposed}", file=sys.stderr)
        supervisor = Supervisor(directory.running)
        supervisor.stop_orphans(gentle=("redis",))
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda _number, _frame: supervisor.stop())
        store_stopped = threading.Event()
        noting = threading.Thread(target=keep_note, args=(directory, store_stopped), daemon=True)
        try:
            count = web_processes or max(1, (os.cpu_count() or 1) - 1)
            shutil.rmtree(directory.metrics, ignore_errors=True)
            directory.metrics.mkdir(mode=0o700)
            store, web, learning = programs(
                directory,
                host=host,
                port=port,
                public_url=public_url,
                trusted_proxies=trusted_proxies,
                web_processes=count,
                start_empty=start_empty,
            )
            # The web process imports its modules while the store reads its files. The learning process, which needs
            # both for longer, leaves them the processors until people are served.
            try:
                supervisor.start(*store, web[0])
            except StartError:
                if store and supervisor.announced(store[0].name) is None:
                    find_damage(directory.redis)  # its own words do not say at which byte
                raise
            if store:
                noting.start()
            if supervisor.stopping:
                return
            port_taken, address, *invitation = (supervisor.announced("frontend") or "").split(" ")
            # Should it die, it comes back where participants' pages look for it, also when the port was a free one.
            joining = {"SALMON_PORT": port_taken, "SALMON_SHARE_PORT": "join" if count > 1 else "no"}
            supervisor.amend("frontend", joining)
            others = [replace(each, environment={**each.environment, **joining}) for each in web[1:]]
            supervisor.start(*others, learning)
            with suppress(OSError):  # only shown by commands
                (directory.running / "address").write_text(address)
            _say_where(address, " ".join(invitation))
            supervisor.watch()
        finally:
            supervisor.shut_down()
            store_stopped.set()
            if noting.is_alive():
                noting.join(STOP_SECONDS)
            shutil.rmtree(directory.metrics, ignore_errors=True)


def programs(
    directory: DataDirectory,
    *,
    host: str,
    port: int,
    public_url: str = "",
    trusted_proxies: str = "",
    web_processes: int = 1,
    start_empty: bool = False,
) -> tuple[tuple[Program, ...], tuple[Program, ...], Program]:
    """Return what runs on one machine: the store, unless an outside one replaces it, the web processes, and the
    learning process.
    """
    outside = os.environ.get("SALMON_REDIS_URL")
    store = () if outside else (redis_program(directory, start_empty=start_empty),)
    credentials = directory.credentials()
    shared = {"SALMON_DATA": directory.files_location, "SALMON_SECRET": credentials.secret}
    web = Program(
        name="frontend",
        command=(sys.executable, "-m", "frontend"),
        environment={
            **shared,
            "SALMON_REDIS_URL": outside or directory.redis_url("frontend", credentials.frontend),
            **({} if outside else {"SALMON_ERASER_URL": directory.redis_url("eraser", credentials.eraser)}),
            "SALMON_HOST": host,
            "SALMON_PORT": str(port),
            "SALMON_PUBLIC_URL": public_url,
            "SALMON_TRUSTED_PROXIES": trusted_proxies,
            **({"SALMON_SHARE_PORT": "first", METRICS: str(directory.metrics)} if web_processes > 1 else {}),
        },
        wait_for_ready=True,
        alive=ALIVE,
    )
    learning = Program(
        name="backend",
        command=(sys.executable, "-m", "backend"),
        # One thread a process: more would fight with the workers for the same cores.
        environment={
            **shared,
            "SALMON_REDIS_URL": outside or directory.redis_url("backend", credentials.backend),
            "OMP_NUM_THREADS": "1",
        },
        alive=ALIVE,
    )
    return store, tuple(replace(web, name=name) for name in _web_names(web_processes)), learning


def _web_names(count: int) -> tuple[str, ...]:
    return ("frontend", *(f"frontend-{number}" for number in range(2, count + 1)))


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
