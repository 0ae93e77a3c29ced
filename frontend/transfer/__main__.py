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
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from frontend.transfer.source import ExportSource

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
    """Write what was ordered, with the store that the environment names."""
    from pydantic import TypeAdapter

    from frontend.context import open_context
    from frontend.settings import Settings
    from frontend.transfer.source import ExportSource
    from frontend.transfer.subprocesses import ExportOrder

    async with open_context(Settings()) as context:  # pyright: ignore[reportCallIssue]
        await write(await ExportSource.open(context, TypeAdapter(ExportOrder).validate_json(order)), output)


async def write(source: ExportSource, output: BinaryIO) -> None:
    """Write one file of an experiment."""
    from frontend.transfer.bundle_writer import document_of, write_bundle
    from frontend.transfer.subprocesses import BUNDLE, EXTENSIONS, VERDICTS
    from frontend.transfer.tables import table_arrays, table_pieces

    name, extension = source.order.name, source.order.extension
    if (name, extension) == BUNDLE:
        await write_bundle(source, output.write)
    elif (name, extension) == VERDICTS:
        await source.quality()
    elif extension == "npz":
        output.write(await table_arrays(source, name))
    elif "csv" in EXTENSIONS[name]:
        async for piece in table_pieces(source, name, extension):
            output.write(piece)
    else:
        output.write(await document_of(source, name, extension))


async def _import(order: str, output: BinaryIO) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from pydantic import TypeAdapter

    from frontend.transfer.import_answers import ImportFiles, import_here
    from frontend.transfer.subprocesses import ImportOrder
    from salmon.wire import encode_json

    given = TypeAdapter(ImportOrder).validate_json(order)
    config, targets = (Path(path) if path else None for path in (given.config, given.targets))
    files = ImportFiles(Path(given.answers), given.name, config, targets)
    made = await import_here(files, slug=given.slug, otherwise=given.otherwise, owner=given.owner)
    output.write(encode_json({**asdict(made), "message": made.sentence}).encode())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer))
