"""Which way in a file takes: a bundle of this Salmon, or what another program recorded."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from frontend.context import Context
from frontend.restoring.recording import Recording, restore_recording
from frontend.restoring.restoration import Imported, restore
from frontend.settings import Settings
from frontend.store import Store

_TABLE = re.compile(r"\.(csv|tsv|jsonl?)$", re.IGNORECASE)


def is_recording(path: Path) -> bool:
    """Whether a file is no bundle: tables and backups are no ZIPs, or a ZIP has one among its files and no manifest."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return path.stat().st_size > 0
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False  # a bundle that was cut off: its reader says so
    return "manifest.json" not in names and any(_TABLE.search(name) for name in names)


async def restore_file(context: Context, files: Recording, *, slug: str, otherwise: str, owner: str) -> Imported:
    """Make a paused experiment of whatever was given.

    Without a `slug` a bundle keeps its own name, and what has none is called `otherwise`.
    """
    if is_recording(files.answers):
        return await restore_recording(context, files, slug=slug or otherwise, owner=owner)
    return await restore(context, files.answers, name=slug, owner=owner)


async def restore_here(files: Recording, *, slug: str, otherwise: str, owner: str) -> Imported:
    """The same with the store that the environment names."""
    settings = Settings()  # pyright: ignore[reportCallIssue]
    store = Store.open(settings.redis_url)
    try:
        return await restore_file(Context.build(settings, store), files, slug=slug, otherwise=otherwise, owner=owner)
    finally:
        await store.close()
