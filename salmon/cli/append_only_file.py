"""Check the store's append-only files before it starts, and repair the end of the last one.

A power cut may leave half a command, or zeros, at the end of the file. The store refuses such a file, or cuts it
without keeping what it cut. `prepare_files` keeps a dated copy and cuts after the last whole command. Damage before the
end, and files that are missing, empty or not listed, are errors that say what to do: continuing would lose answers.
"""

import logging
import mmap
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from salmon.errors import StartError
from salmon.logs import fields

log = logging.getLogger("salmon.store")

FOLDER = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
#: Files that a rewrite or a snapshot leaves behind when it is killed.
_LEFTOVERS = ("temp-*.aof", "temp-*.rdb", f"{FOLDER}/temp-*")
#: How much of the end is looked at first; a whole file is read only if this does not end in whole commands.
_END_BYTES = 1 << 20
#: How much of a file is read between two lines of the log: some seconds of a processor.
_REPORT_BYTES = 1 << 26
_COMMAND = re.compile(rb"\*([1-9]\d{0,6})\r\n\$\d")
_LENGTH = re.compile(rb"\$(\d{1,10})\r\n")
_COUNT = re.compile(rb"\*(\d{1,7})\r\n")

_INCREMENTAL = ".incr.aof"
#: What to do about a loss.
RESTORE = "Restore the data directory from a backup, or go on without what is missing: salmon serve --start-empty"

Bytes = mmap.mmap | bytes


def prepare_files(
    redis: Path,
    kept: Path,
    *,
    noted: Mapping[str, int] | None = None,
    start_empty: bool = False,
    now: datetime | None = None,
) -> str:
    """Make the files in the store's directory such that it can start; return a sentence if one was repaired, else "".

    `kept` is the folder for damaged files, and `noted` is what `files_in` returned in an earlier run. StartError if
    answers would be lost by starting, unless `start_empty`: files that the store cannot use are then moved to `kept`.
    """
    now = now or datetime.now(UTC)
    for pattern in _LEFTOVERS:
        for path in redis.glob(pattern):
            path.unlink(missing_ok=True)
            log.info("leftover removed", extra=fields(file=path.name))
    folder = redis / FOLDER
    if loss := find_loss(redis, noted or {}):
        if not start_empty:
            raise StartError(f"{loss.message} Nothing was started.", hint=loss.hint)
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in loss.unusable:
            path.rename(kept / _dated(path, now))
    written = sorted(folder.glob(f"*{_INCREMENTAL}"), key=_number)
    if not written or written[-1].stat().st_size == 0:
        return ""
    return _mend(written[-1], kept, now)


def files_in(redis: Path) -> dict[str, int]:
    """Return the names of the files that the store reads when it starts, and their sizes."""
    folder = redis / FOLDER
    return {name: path.stat().st_size for name in _listed(folder)[0] if (path := folder / name).exists()}


@dataclass(frozen=True)
class Loss:
    """What is missing of a store, what to do, and the files that are in the way of a start without it."""

    message: str
    hint: str
    unusable: tuple[Path, ...] = ()


def find_loss(redis: Path, noted: Mapping[str, int]) -> Loss | None:
    """Return what the store has lost, as its files and a note of `files_in` tell; None if it has lost nothing.

    Only files that are missing, empty or not listed are a loss: a file is appended to until a rewrite replaces it, so
    nothing that an experimenter deletes makes one smaller, and a backup may be older than the note.
    """
    return next(_losses(redis / FOLDER, {name: size for name, size in noted.items() if size}), None)


def _losses(folder: Path, noted: Mapping[str, int]) -> Iterator[Loss]:
    files = [path for path in sorted(folder.glob("appendonly.aof.*")) if path.suffix in {".aof", ".rdb"}]
    manifest = folder / MANIFEST
    named, replaced = _listed(folder)
    if files and not named | replaced:
        yield Loss(
            f"The store's data are in {folder}, but the list of its files is missing or empty: {manifest.name}.",
            _list_anew(files),
            tuple(files),
        )
    if noted and not files:
        yield Loss(f"The store's files in {folder} are gone; they held {sum(noted.values()):,} bytes.", RESTORE)
    for name in sorted(name for name in named if not (folder / name).exists()):
        yield Loss(
            f"The store's file {folder / name} is missing, which {manifest.name} names.", RESTORE, (manifest, *files)
        )
    # What a rewrite has replaced may be left over, older than what the list names, and a new file is listed while it is
    # still empty.
    newest = max((_number(Path(name)) for name in named if name.endswith(_INCREMENTAL)), default=0)
    beyond = [path for path in files if path.name.endswith(_INCREMENTAL) and _number(path) > newest]
    for path in beyond:
        if size := path.stat().st_size:
            yield Loss(
                f"The store's file {path} holds {size:,} bytes, but {manifest.name} does not name it.",
                _list_anew([path for path in files if path in beyond or path.name in named]),
                tuple(beyond),
            )
    for name in sorted(noted.keys() & named):
        if (folder / name).stat().st_size == 0:
            yield Loss(f"The store's file {folder / name} is empty; it held {noted[name]:,} bytes.", RESTORE)
    # Only a rewrite replaces files, and it begins with a new base.
    if all(name in named for name in noted if ".base." in name):
        for name in sorted(noted.keys() - named):
            yield Loss(f"The store's file {folder / name} is gone; it held {noted[name]:,} bytes.", RESTORE)


def whole_until(content: Bytes, start: int = 0, *, report: Callable[[int], None] | None = None) -> tuple[int, int]:
    """Return (where the last whole command ends that is in no open transaction, where whole commands end).

    `start` is where a command begins. `report` is called now and then with how far the content is read.
    """
    at = good = start
    open_transaction = False
    next_report = start + _REPORT_BYTES
    while at < len(content):
        end, name = _command(content, at)
        if end == 0:
            break
        open_transaction = name == b"MULTI" or (open_transaction and name != b"EXEC")
        at = end
        if not open_transaction:
            good = at
        if report is not None and at >= next_report:
            report(at)
            next_report = at + _REPORT_BYTES
    return good, at


def ends_well(content: Bytes) -> bool:
    """Return whether the end of a file is whole commands; looks at as little of it as possible."""
    return _read_until(content) == (len(content), len(content))


def find_damage(redis: Path) -> None:
    """Raise StartError if one of the files that the store appends to is damaged; reads all of them."""
    for name in sorted(files_in(redis), key=lambda name: _number(Path(name))):
        path = redis / FOLDER / name
        if name.endswith(_INCREMENTAL) and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                good, broken = whole_until(content, report=_reporter(path, len(content)))
                if broken < len(content):
                    raise _damaged(path, good, broken, _later_command(content, broken))


def _read_until(content: Bytes, report: Callable[[int], None] | None = None) -> tuple[int, int]:
    """Return what `whole_until` returns; if only the end has to be read for that, nothing else is.

    No byte of the end is parsed twice: a place that looks like a command and does not lead to the end of the file is
    followed by the next one behind what could be read from it.
    """
    at = len(content) - _END_BYTES
    while at > 0 and (found := _COMMAND.search(content, at)):
        good, stopped = whole_until(content, found.start())
        if good == stopped == len(content):
            return good, stopped
        at = max(stopped, found.start() + 1)
    return whole_until(content, report=report)


def _reporter(path: Path, size: int) -> Callable[[int], None]:
    """Return what logs how far a file is read."""
    return lambda read: log.info("store file is checked", extra=fields(file=path.name, read_bytes=read, of_bytes=size))


def _mend(path: Path, kept: Path, now: datetime) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        size = len(content)
        good, broken = _read_until(content, _reporter(path, size))
        if good == broken == size:
            return ""
        later = _later_command(content, broken)
    if later:
        raise _damaged(path, good, broken, later)
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = kept / _dated(path, now)
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        with path.open("r+b") as file:
            file.truncate(good)
    except OSError as error:
        raise StartError(
            f"The store's file {path} ends in the middle of a command and cannot be repaired: {error.strerror or error}.",
            hint="Make room on the disk: a copy of the file is kept before it is cut.",
        ) from error
    sentence = (
        f"The store's file {path.name} did not end in a whole command, as after a power cut: its last {size - good:,} bytes"
        f" were removed. No confirmed answer is lost by that. A copy of the file as it was is in {copy}."
    )
    log.warning("store file repaired", extra=fields(file=path.name, removed_bytes=size - good, copy=str(copy)))
    return sentence


def _damaged(path: Path, good: int, broken: int, later: int) -> StartError:
    follow = f", and whole commands follow at byte {later:,}" if later else ""
    return StartError(
        f"The store's file {path} is damaged at byte {broken:,}{follow}.",
        hint="Nothing was changed. Restore the data directory from a backup. To go on with what was recorded before the"
        f" damage instead, copy the file, and then: truncate -s {good} {path}",
    )


def _command(content: Bytes, at: int) -> tuple[int, bytes]:
    """Return (where the command at this place ends, its name), or (0, b"") if there is no whole command."""
    if content[at : at + 1] == b"#":  # an annotation: one line
        end = content.find(b"\r\n", at, at + 1024)
        return (end + 2, b"") if end > 0 else (0, b"")
    count = _COUNT.match(content, at)
    if count is None:
        return 0, b""
    at, name = count.end(), b""
    for part in range(int(count[1])):
        length = _LENGTH.match(content, at)
        if length is None:
            return 0, b""
        begin, end = length.end(), length.end() + int(length[1])
        if content[end : end + 2] != b"\r\n":
            return 0, b""
        if part == 0:
            name = content[begin : min(end, begin + 16)].upper()
        at = end + 2
    return at, name


def _later_command(content: Bytes, broken: int) -> int:
    """Return where a whole command is behind the damage, or 0 if there is none: then only the end is damaged."""
    for found in _COMMAND.finditer(content, broken + 1):
        end, _ = _command(content, found.start())
        if end == len(content) or (end and _command(content, end)[0]):
            return found.start()
    return 0


def _listed(folder: Path) -> tuple[set[str], set[str]]:
    """Return the files that the list of a store's files names, and those of them that a rewrite has replaced.

    They are named as history (type h) until they are removed: a kill in between leaves only their names.
    """
    manifest = folder / MANIFEST
    lines = manifest.read_text(errors="replace").splitlines() if manifest.exists() else []
    words = [parts for line in lines if len(parts := line.split()) > 1]
    replaced = {parts[1] for parts in words if parts[4:6] == ["type", "h"]}
    return {parts[1] for parts in words} - replaced, replaced


def _list_anew(files: Sequence[Path]) -> str:
    lines = "\n".join(_manifest_lines(files))
    return f"{RESTORE}. Or write the list with these lines, the newest files last:\n{lines}"


def _dated(path: Path, now: datetime) -> str:
    return f"{path.name}.{now:%Y%m%dT%H%M%SZ}"


def _manifest_lines(files: Sequence[Path]) -> list[str]:
    base = [path for path in files if ".base." in path.name]
    return [
        f"  file {path.name} seq {_number(path)} type {'b' if path in base else 'i'}"
        for path in (*sorted(base, key=_number)[-1:], *sorted(set(files) - set(base), key=_number))
    ]


def _number(path: Path) -> int:
    found = re.search(r"\.(\d+)\.", path.name)
    return int(found[1]) if found else 0
