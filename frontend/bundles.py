"""Bundles that the server keeps by itself, before something is taken away: in the folder `bundles` of the data directory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import fsspec

from frontend.context import Context
from frontend.errands import WRITER, Errands
from frontend.writer.order import BUNDLE, Order


async def keep_bundle(context: Context, errands: Errands, slug: str) -> str:
    """Write everything of an experiment into a file that `salmon import` restores; its name.

    It has its name when all of it is there: an error in the middle leaves nothing that looks like a bundle.
    """
    filesystem, root = fsspec.core.url_to_fs(context.settings.bundles_location)
    await asyncio.to_thread(filesystem.makedirs, root, exist_ok=True)
    moment = datetime.fromtimestamp(context.now_ms() / 1000, UTC)
    name = f"{slug}-{moment:%Y%m%dT%H%M%SZ}.zip"
    passing = f"{root}/.{name}"
    file: Any = await asyncio.to_thread(filesystem.open, passing, "wb")
    try:
        async for piece in await errands.stream(WRITER, Order(slug, *BUNDLE).encode()):
            await asyncio.to_thread(file.write, piece)
    except BaseException:
        file.close()
        filesystem.rm(passing)
        raise
    await asyncio.to_thread(file.close)
    await asyncio.to_thread(filesystem.mv, passing, f"{root}/{name}")
    return name
