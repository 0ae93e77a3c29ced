"""One file on standard output: `python -m frontend.writer ORDER`, with the settings of the web process.

What goes wrong is one line of JSON on standard error and an exit code of 1: before the first byte the web process makes
a reply of it, later it breaks the connection, so that nobody keeps half a file believing it whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import BinaryIO

from frontend.context import Context
from frontend.errors import body_of, status_of
from frontend.settings import Settings
from frontend.store import Store
from frontend.writer.bundle import table_pieces, write_bundle
from frontend.writer.collection import Collection
from frontend.writer.documents import document_of
from frontend.writer.order import BUNDLE, EXTENSIONS, JUDGEMENT, Order
from frontend.writer.tables import pages_of
from salmon.errors import SalmonError
from salmon.export.arrays import NpzFile
from salmon.export.foreign import STACKS
from salmon.wire import encode_json

#: Participants come first: whoever answers is served before the file goes on.
_NICENESS = 10


def main(arguments: list[str], output: BinaryIO) -> int:
    """Write what was ordered."""
    os.nice(_NICENESS)
    try:
        asyncio.run(_run(Order.decode(arguments[0]), output))
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # the interpreter flushes once more at its end
        return 1
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    return 0


async def _run(order: Order, output: BinaryIO) -> None:
    settings = Settings()  # pyright: ignore[reportCallIssue]
    store = Store.open(settings.redis_url)
    try:
        await write(await Collection.open(Context.build(settings, store), order), output)
    finally:
        await store.close()


async def write(collection: Collection, output: BinaryIO) -> None:
    """One file of an experiment."""
    name, extension = collection.order.name, collection.order.extension
    if (name, extension) == BUNDLE:
        await write_bundle(collection, lambda piece: _send(output, piece))
    elif (name, extension) == JUDGEMENT:
        await collection.judgement()
    elif extension == "npz":
        await _write_arrays(collection, output)
    elif "csv" in EXTENSIONS[name]:
        async for piece in table_pieces(collection, name, extension):
            _send(output, piece)
    else:
        _send(output, await document_of(collection, name, extension))


async def _write_arrays(collection: Collection, output: BinaryIO) -> None:
    table, pages = await pages_of(collection, collection.order.name)
    file = NpzFile(table, STACKS[table.name], [target.filename for target in collection.targets])
    async for rows in pages:
        file.rows(rows)
    _send(output, file.end())


def _send(output: BinaryIO, piece: bytes) -> None:
    output.write(piece)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer))
