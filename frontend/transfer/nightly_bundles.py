"""Write the bundle of every experiment to another address each night: any location that fsspec reaches.

A bundle is written under a temporary name and renamed when it is complete, so there is never half a bundle under a
final name. Its name is that of the experiment and the day (UTC). What was written where is noted in the store, where an
erasure finds it: what lies at another address is not changed by it. Salmon removes nothing there.

The first bundle of an experiment is written at once, so that a wrong address is noticed on the day it is set. One that
fails is tried again every ten minutes, and the console says so meanwhile.
"""

import asyncio
import logging
import re
import secrets
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import fsspec

from frontend.context import Context
from frontend.store.experiments import ExperimentState
from frontend.transfer.bundle_writer import write_bundle
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import BUNDLE, ExportOrder, Subprocesses
from salmon.errors import SalmonError, StartError
from salmon.logs import fields

log = logging.getLogger("salmon.bundles")

#: How long to wait after a failure, and how often it is looked whether a bundle is due.
RETRY_MS = 600_000
_LOOK_SECONDS = 60.0
#: One process at a time writes bundles. One that was killed keeps others from it for so long.
_LOCK_SECONDS = 1800


@dataclass(frozen=True)
class NightlyBundle:
    """What is known of the nightly bundles of one experiment.

    `written` are the addresses of all, the newest last, which holds so many `answers`. `error` says why the last
    attempt failed, and is empty where it did not.
    """

    slug: str
    written: tuple[str, ...] = ()
    written_ms: int = 0
    answers: int = -1
    tried_ms: int = 0
    error: str = ""

    @staticmethod
    def decode(values: Mapping[str, Any]) -> "NightlyBundle":
        """Return the record of stored values."""
        known: dict[str, Any] = {**values, "written": tuple(values.get("written", ()))}
        return NightlyBundle(**known)


def last_night_ms(now_ms: int, hour: int) -> int:
    """Return the last moment at which it was this hour (UTC)."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    at = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return int((at if at <= now else at - timedelta(days=1)).timestamp() * 1000)


def is_due(known: NightlyBundle, state: ExperimentState, *, now_ms: int, hour: int) -> bool:
    """Return whether a bundle has to be written: of an open experiment every night, of
    another while it has new answers.
    """
    if state.state == "draft" or state.rehearsal_of or known.written_ms >= last_night_ms(now_ms, hour):
        return False
    if known.error and now_ms < known.tried_ms + RETRY_MS:
        return False
    return state.state == "open" or state.counters.get("answers", 0) != known.answers


async def write_due(context: Context) -> list[str]:
    """Write every bundle that is due and return their addresses; return at once where another process writes."""
    settings, owner = context.settings, secrets.token_hex(8)
    if not settings.bundles_to or not await context.store.experiments.lock_bundles(owner, lives_seconds=_LOCK_SECONDS):
        return []
    written: list[str] = []
    try:
        records = await read_records(context)
        for state in await context.store.experiments.list():
            known = replace(records.get(state.experiment, NightlyBundle(state.slug)), slug=state.slug)
            now_ms = context.now_ms()
            if not is_due(known, state, now_ms=now_ms, hour=settings.bundles_hour):
                continue
            try:
                address = await _write_one(context, state)
            except Exception as error:  # noqa: BLE001 - each implementation of fsspec has errors of its own
                known = replace(known, tried_ms=now_ms, error=f"{type(error).__name__}: {error}"[:500])
                log.error("nightly bundle not written", extra=fields(experiment=state.slug, error=known.error))
            else:
                written.append(address)
                log.info("nightly bundle written", extra=fields(experiment=state.slug, address=address))
                addresses = tuple(dict.fromkeys((*known.written, address)))
                answers = state.counters.get("answers", 0)
                known = NightlyBundle(state.slug, addresses, now_ms, answers, now_ms)
            await context.store.experiments.note_bundle(state.experiment, asdict(known))
    finally:
        await context.store.experiments.unlock_bundles()
    return written


async def read_records(context: Context) -> dict[str, NightlyBundle]:
    """Return what is known of the nightly bundles of every experiment, deleted ones among them, by its id."""
    found = await context.store.experiments.read_bundles()
    return {experiment: NightlyBundle.decode(values) for experiment, values in found.items()}


def find_problem(records: Iterable[NightlyBundle], address: str) -> str:
    """Return a sentence about the bundles that could not be written; nothing where all were."""
    failed = [record for record in records if record.error]
    if not failed:
        return ""
    return (
        f"The nightly bundle of {', '.join(record.slug for record in failed)} could not be written to {_without_login(address)}:"
        f" {failed[0].error.rstrip('.')}. It is tried again every ten minutes."
    )


async def find_elsewhere(context: Context, experiments: Iterable[str]) -> tuple[str, ...]:
    """Return sentences that name the nightly bundles of some experiments, which an erasure does not change."""
    records = await read_records(context)
    return tuple(
        f"These bundles of {record.slug} were written to another address and are not changed by this: {', '.join(record.written)}."
        " Remove them there."
        for experiment in experiments
        if (record := records.get(experiment)) and record.written
    )


async def keep_writing(context: Context, subprocesses: Subprocesses) -> None:
    """Have bundles written when they are due, in a subprocess, and tell the console of
    failures; runs until it is cancelled.
    """
    while context.settings.bundles_to:
        try:
            records, now_ms = await read_records(context), context.now_ms()
            due = any(
                is_due(
                    records.get(state.experiment, NightlyBundle(state.slug)),
                    state,
                    now_ms=now_ms,
                    hour=context.settings.bundles_hour,
                )
                for state in await context.store.experiments.list()
            )
            if due and (task := subprocesses.begin("nightly", "nightly")):
                await task
                records = await read_records(context)
            context.notices["bundles"] = find_problem(records.values(), context.settings.bundles_to)
        except SalmonError as error:
            log.error("nightly bundles are not looked at", extra=fields(error=str(error)))
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again in a minute
            log.error("nightly bundles failed", extra=fields(error=f"{type(error).__name__}: {error}"))
        await asyncio.sleep(_LOOK_SECONDS)


async def _write_one(context: Context, state: ExperimentState) -> str:
    """Write the bundle of one experiment and return its address."""
    day = datetime.fromtimestamp(context.now_ms() / 1000, UTC)
    name = f"{state.slug}-{day:%Y-%m-%d}.zip"
    # Answers that are not as they were recorded are named in the bundle; they must not keep the others from being
    # saved.
    order = ExportOrder(state.slug, *BUNDLE, damaged="leave_out")
    with tempfile.TemporaryDirectory(prefix="salmon-nightly-") as folder:
        path = Path(folder) / name
        source = await ExportSource.open(context, order)
        with path.open("wb") as file:
            await write_bundle(source, file.write)
        await asyncio.to_thread(_upload, path, context.settings.bundles_to)
    return f"{_without_login(context.settings.bundles_to).rstrip('/')}/{name}"


@contextmanager
def file_at(address: str) -> Generator[Path]:
    """Yield a file of this machine, or of another address while it is here as a temporary copy."""
    if "://" not in address:
        path = Path(address)
        if not path.is_file():
            raise StartError(
                f"There is no file {address!r}.", hint="Name a file, or an address such as s3://bucket/file."
            )
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="salmon-import-") as folder:
        path = Path(folder) / PurePosixPath(urlsplit(address).path or address).name
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(address)  # pyright: ignore[reportAttributeAccessIssue]
            found[0].get_file(found[1], str(path))
        except Exception as error:  # each implementation of fsspec has errors of its own
            raise StartError(
                f"The file at {_without_login(address)} cannot be read ({type(error).__name__}: {error}).",
                hint="Check the address, and the login that the environment gives.",
            ) from error
        yield path


def _upload(path: Path, address: str) -> None:
    """Copy a file to an address; it has its name only when it is complete."""
    found: tuple[Any, str] = fsspec.core.url_to_fs(address)  # pyright: ignore[reportAttributeAccessIssue]
    filesystem, root = found
    filesystem.makedirs(root, exist_ok=True)
    final = f"{root.rstrip('/')}/{path.name}"
    filesystem.put_file(str(path), f"{final}.part")
    wanted, size = path.stat().st_size, filesystem.size(f"{final}.part")
    if size != wanted:
        raise OSError(f"{size} of {wanted} bytes of {path.name} arrived")
    if filesystem.exists(final):
        filesystem.rm_file(final)
    filesystem.mv(f"{final}.part", final)


def _without_login(address: str) -> str:
    """Return an address without the name and password in it."""
    return re.sub(r"//[^/@]*@", "//", address)
