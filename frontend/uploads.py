"""Uploads as files on the disk, for as long as they are needed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import UploadFile

_PIECE = 1 << 20


@asynccontextmanager
async def on_disk(upload: UploadFile | None) -> AsyncGenerator[Path | None]:
    """An upload as a file, copied piece by piece; None where nothing was uploaded."""
    if upload is None or not upload.filename:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="salmon-upload-", suffix=".zip") as file:
        while piece := await upload.read(_PIECE):
            await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(file.flush)
        yield Path(file.name)
