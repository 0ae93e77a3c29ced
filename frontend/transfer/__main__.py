"""Write one file or import one: `python -m frontend.transfer export|import ORDER`, with the settings of the web process.

`export` writes the file that the order names on standard output. `import` makes an experiment of uploaded files and prints
what it made as JSON. ORDER is JSON (`ExportOrder`, `ImportOrder`).

An error is one line of JSON on standard error and an exit code of 1. The web process turns it into a reply if nothing was
sent yet; otherwise it breaks the connection, so that nobody takes part of a file for the whole.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import BinaryIO

#: The subprocess yields the processor to the web process, which serves participants.
_NICENESS = 10
#: Rows live for one page and form no cycles, so the collector rarely needs to look for any.
_YOUNG_OBJECTS = 100_000


def main(arguments: list[str], output: BinaryIO) -> int:
    """Carry out one order and return the exit code."""
    os.nice(_NICENESS)
    gc.set_threshold(_YOUNG_OBJECTS)
    # Imported after the niceness is set: loading these modules takes time too.
    from frontend.errors import body_of, status_of
    from salmon.errors import SalmonError
    from salmon.wire import encode_json

    what, order = arguments
    try:
        asyncio.run(_export(order, output) if what == "export" else _import(order, output))
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # the interpreter flushes once more at its end
        return 1
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    return 0


async def _export(order: str, output: BinaryIO) -> None:
    from frontend.transfer.bundle_writer import deliver
    from frontend.transfer.subprocesses import ExportOrder

    await deliver(ExportOrder.decode(order), output)


async def _import(order: str, output: BinaryIO) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from frontend.transfer.import_answers import ImportFiles, import_here
    from frontend.transfer.subprocesses import ImportOrder
    from salmon.wire import encode_json

    given = ImportOrder.decode(order)
    config, targets = (Path(path) if path else None for path in (given.config, given.targets))
    files = ImportFiles(Path(given.answers), given.name, config, targets)
    made = await import_here(files, slug=given.slug, otherwise=given.otherwise, owner=given.owner)
    output.write(encode_json({**asdict(made), "message": made.sentence}).encode())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer))
