"""From an order to its bytes."""

from __future__ import annotations

from typing import BinaryIO

from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from frontend.writer.bundle import table_pieces, write_bundle
from frontend.writer.collection import Collection
from frontend.writer.documents import document_of
from frontend.writer.order import BUNDLE, EXTENSIONS, JUDGEMENT, Order
from frontend.writer.tables import pages_of
from salmon.export.arrays import NpzFile
from salmon.export.foreign import STACKS


async def deliver(order: Order, output: BinaryIO) -> None:
    """Write what was ordered, with the store that the environment names."""
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
        await write_bundle(collection, output.write)
    elif (name, extension) == JUDGEMENT:
        await collection.judgement()
    elif extension == "npz":
        await _write_arrays(collection, output)
    elif "csv" in EXTENSIONS[name]:
        async for piece in table_pieces(collection, name, extension):
            output.write(piece)
    else:
        output.write(await document_of(collection, name, extension))


async def _write_arrays(collection: Collection, output: BinaryIO) -> None:
    table, pages = await pages_of(collection, collection.order.name)
    file = NpzFile(table, STACKS[table.name], [target.filename for target in collection.targets])
    async for rows in pages:
        file.rows(rows)
    output.write(file.end())
