"""Experiments with answers, their files and bundles, for tests that look at what leaves the system."""

import csv
import hashlib
import io
import json
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer.__main__ import write
from frontend.transfer.bundle_writer import MANIFEST
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import BUNDLE, ExportOrder
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import READY, redis_program
from salmon.records import Answer
from salmon.wire import encode_answer
from salmon.wire.answer_pages import BETWEEN_ANSWERS, BETWEEN_PARTS

Members = dict[str, bytes]


async def read_answers(store: Store, experiment: str) -> list[Answer]:
    """All answers of an experiment, in order."""
    pages = [page async for page in store.export_reader.read_answers(experiment, until="+")]
    return [answer for page in pages for _, answer in page]


def page_of(*answers: tuple[str, Answer]) -> str:
    """A page of (stream id, answer) as the store gives it."""
    return BETWEEN_ANSWERS.join(
        BETWEEN_PARTS.join([stream_id, *(part for pair in encode_answer(answer).items() for part in pair)])
        for stream_id, answer in answers
    )


async def write_export(settings: Settings, store: Store, slug: str, name: str, extension: str, **options: Any) -> bytes:
    """A file as the writing process makes it, made here."""
    output = io.BytesIO()
    await write(
        await ExportSource.open(Context(settings, store), ExportOrder(slug, name, extension, **options)), output
    )
    return output.getvalue()


async def bundle_of(settings: Settings, store: Store, slug: str, **options: Any) -> bytes:
    """The bundle of an experiment."""
    return await write_export(settings, store, slug, *BUNDLE, **options)


def rows_of(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def members_of(bundle: bytes) -> Members:
    """What is in a bundle."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def change_bundle(bundle: bytes, change: Callable[[Members], None], *, sign: bool = True) -> bytes:
    """A bundle with something else in it; with `sign` its manifest agrees, as a careful forger would see to."""
    members = members_of(bundle)
    manifest = json.loads(members.pop(MANIFEST))
    change(members)
    manifest |= json.loads(members.pop(MANIFEST, b"{}"))
    if sign:
        manifest["members"] = {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in members.items()
        }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, MANIFEST: json.dumps(manifest).encode()}.items():
            archive.writestr(name, content)
    return file.getvalue()


@contextmanager
def server_on(folder: Path) -> Iterator[Settings]:
    """A data directory with the embedded server running on it, and the settings of a web process on both."""
    directory = DataDirectory(folder)
    directory.prepare()
    with redis_on(directory):
        credentials = directory.credentials()
        yield Settings(
            redis_url=directory.redis_url("frontend", credentials.frontend), secret=credentials.secret, data=str(folder)
        )


@contextmanager
def redis_on(directory: DataDirectory, server: str = "") -> Iterator[subprocess.Popen[str]]:
    """The embedded server, or another one, on a data directory, its access list in force."""
    embedded, configuration = redis_program(directory).command
    with subprocess.Popen((server or embedded, configuration), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(READY in line for line in process.stdout)
        try:
            yield process
        finally:
            process.terminate()
