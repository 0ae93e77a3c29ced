"""Imports one bundle: `python -m frontend.restoring BUNDLE NAME OWNER`, with the settings of the web process.

What was made is JSON on standard output; what goes wrong is a line of JSON on standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from pathlib import Path

from frontend.context import Context
from frontend.errors import body_of, status_of
from frontend.restoring.restoration import Imported, restore
from frontend.settings import Settings
from frontend.store import Store
from salmon.errors import SalmonError
from salmon.wire import encode_json

#: Participants come first.
_NICENESS = 10


def main(arguments: list[str]) -> int:
    """Import what was uploaded."""
    os.nice(_NICENESS)
    path, name, owner = arguments
    try:
        made = asyncio.run(_run(Path(path), name, owner))
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    print(encode_json({**asdict(made), "message": made.sentence}))
    return 0


async def _run(path: Path, name: str, owner: str) -> Imported:
    settings = Settings()  # pyright: ignore[reportCallIssue]
    store = Store.open(settings.redis_url)
    try:
        return await restore(Context.build(settings, store), path, name=name, owner=owner)
    finally:
        await store.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
