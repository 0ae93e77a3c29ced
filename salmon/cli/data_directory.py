"""Manage the data directory: the places inside it, the process that uses it now, and its secrets.

Everything worth a backup is below this directory: the store's append-only files, the media, the secrets.
"""

import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from salmon.errors import StartError

#: The longest path that every system accepts for a unix socket (the limit is 104 on macOS, 108 on Linux).
_SOCKET_PATH_LIMIT = 100
#: What a mode permits other users than the owner.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Credentials:
    """Passwords of the users of the embedded server, and the secret that signs tokens and sessions.

    `eraser` is empty in files that an earlier version wrote; it is added when they are read.
    """

    frontend: str
    backend: str
    secret: str
    eraser: str = ""


@dataclass(frozen=True)
class DataDirectory:
    """The places inside a data directory."""

    root: Path

    @property
    def redis(self) -> Path:
        """Return the embedded server's working directory: append-only files, configuration."""
        return self.root / "redis"

    @property
    def media(self) -> Path:
        """Return the folder of target files, which are named by the hash of their content."""
        return self.root / "media"

    @property
    def noted_files(self) -> Path:
        """Return the note of the store's files and their sizes, from which a later start finds out what was lost."""
        return self.root / "store-files.json"

    @property
    def damaged(self) -> Path:
        """Return the folder of copies of damaged files."""
        return self.root / "damaged"

    @property
    def running(self) -> Path:
        """Return the file with the ids of the processes started last."""
        return self.root / "running"

    @property
    def metrics(self) -> Path:
        """Return the folder in which web processes count together: in memory where the system has such a place."""
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()  # noqa: S108 - a folder of our own in it
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:16]
        return Path(base, f"salmon-metrics-{os.getuid()}-{digest}")

    @property
    def socket(self) -> Path:
        """Return the embedded server's unix socket; it is in the temporary directory if the path would be too long."""
        path = self.redis / "server.sock"
        if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT:
            return path
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"salmon-{name}.sock"

    def redis_url(self, user: str, password: str) -> str:
        """Return the address of the embedded server for one of its users."""
        return f"unix://{user}:{password}@{self.socket}?db=0"

    def prepare(self) -> None:
        """Make the directory and its folders, readable by their owner only.

        The store's folder is made with the secrets: if it is missing later, the store's data are.
        """
        try:
            store = () if self._secrets.exists() else (self.redis,)
            for path in (self.root, *store, self.media, self.running):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.root / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StartError(
                f"The data directory {self.root} cannot be used: {error.strerror or error}.",
                hint="Choose another with --data DIRECTORY, or make this one writable.",
            ) from error

    def make_private(self) -> str:
        """Take from other users what they may do with the directory and all in it; return a sentence if that fails.

        A directory that exists may come from a backup, or be made with `mkdir`. Links are not followed.
        """
        walked = (
            path
            for folder, _, names in os.walk(self.root)
            for path in (Path(folder), *(Path(folder, name) for name in names))
        )
        refused = [path for path in walked if not _is_private_now(path)]
        if not refused:
            return ""
        return (
            f"{refused[0]} cannot be made private ({len(refused):,} of the files and folders of the data directory): other users"
            f" of this machine may read what participants have answered. As its owner, run: chmod -R go= {self.root}"
        )

    @property
    def files_location(self) -> str:
        """Where media and the bundles of deleted experiments are kept: in SALMON_DATA
        where that is an address, or here.
        """
        address = os.environ.get("SALMON_DATA", "")
        return address if "://" in address else str(self.root)

    def credentials(self) -> Credentials:
        """Return the secrets of this directory, which are made on first use."""
        path = self._secrets
        if not path.exists():
            made = Credentials(*(secrets.token_urlsafe(32) for _ in range(4)))
            write_private_or_stop(path, json.dumps(vars(made)))
        try:
            known = Credentials(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise StartError(
                f"The file {path} cannot be read: {error}.",
                hint="Restore it from a backup, or remove it: participants then have to open their links again.",
            ) from error
        if not known.eraser:
            known = replace(known, eraser=secrets.token_urlsafe(32))
            write_private_or_stop(path, json.dumps(vars(known)))
        return known

    @property
    def _secrets(self) -> Path:
        return self.root / "credentials.json"

    def lock(self) -> IO[str]:
        """Lock the directory for this process; the lock ends with the process, however it ends."""
        file = (self.root / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise StartError(
                f"The data directory {self.root} is in use by another Salmon (process {owner}).",
                hint="Stop it, or start this one with another --data DIRECTORY and another --port.",
            ) from error
        file.truncate(0)
        with suppress(OSError):  # on a full disk, the lock holds without the number in it
            file.write(str(os.getpid()))
            file.flush()
        return file


def _is_private_now(path: Path) -> bool:
    """Take from a file or folder what other users may do with it; return whether they may do nothing now."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & _OTHERS:
            return True
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        return not path.stat().st_mode & _OTHERS  # some file systems have no modes, and no error either
    except FileNotFoundError:
        return True
    except OSError:
        return False


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, on disk when this returns; leave it alone if it holds the text already.

    It is replaced at once, so that a crash or a full disk never leaves half of it. Its folder is made where it is
    missing, for the owner only. An OSError says that nothing was changed.
    """
    with suppress(OSError):
        if path.read_text(encoding="utf-8") == text:
            return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def write_private_or_stop(path: Path, text: str) -> None:
    """Write a file that only its owner reads; the StartError of a command says what to
    do where that is not possible.
    """
    try:
        write_private(path, text)
    except OSError as error:
        raise StartError(
            f"The file {path} cannot be written: {error.strerror or error}.",
            hint="Make room on its disk, or make its directory writable.",
        ) from error
