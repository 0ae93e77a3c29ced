"""Do slow work in a process of its own, with one of these words:

    python -m frontend.transfer export|figure|import|people|erase|retention|nightly|rehearse

The settings are those of the web process, and the variable SALMON_ORDER holds the order.

`export` and `figure` write the file that the order names on standard output. `import` makes an experiment of uploaded
files and prints what it made as JSON. `people` finds or exports a person, or notes that one is to be erased, and prints
JSON. `erase` carries out what was noted, `retention` removes what was kept long enough, `nightly` writes the bundles
that are due, and `rehearse` lets simulated people take part in a scratch copy. An order is JSON (`ExportOrder`,
`FigureOrder`, `ImportOrder`, `PeopleOrder`, `RehearsalOrder`).

An error is one line of JSON on standard error and an exit code of 1. The web process turns it into a reply if nothing
was sent yet; otherwise it breaks the connection, so that nobody takes part of a file for the whole.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

from salmon import parent_watch

if TYPE_CHECKING:
    from frontend.transfer.source import ExportSource

#: The subprocess yields the processor to the web process, which serves participants. In the scheduler's idle class it
#: would get next to nothing beside other programs that are as nice.
_NICENESS = 19


def main(arguments: list[str], output: BinaryIO) -> int:
    """Carry out one order and return the exit code."""
    os.nice(_NICENESS)
    gc.set_threshold(parent_watch.YOUNG_OBJECTS)  # rows live for one page and form no cycles
    # Imported after the niceness is set: loading these modules takes time too.
    from frontend.errors import body_of, status_of
    from salmon.errors import SalmonError
    from salmon.wire import encode_json

    what, *order = arguments
    work = {
        "export": _export,
        "figure": _figure,
        "import": _import,
        "people": _people,
        "erase": _erase,
        "retention": _retention,
        "nightly": _nightly,
        "rehearse": _rehearse,
    }
    try:
        asyncio.run(work[what](order[0] if order else os.environ.get("SALMON_ORDER", ""), output))
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
    elif name == "report":
        await _report(source, output)
    elif extension == "npz":
        output.write(await table_arrays(source, name))
    elif "csv" in EXTENSIONS[name]:
        async for piece in table_pieces(source, name, extension):
            output.write(piece)
    else:
        output.write(await document_of(source, name, extension))


async def _report(source: ExportSource, output: BinaryIO) -> None:
    """Have `salmon report` write the report of a bundle: this package has no libraries that fit embeddings."""
    from dataclasses import replace
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from frontend.errors import BadRequestError
    from frontend.transfer.bundle_writer import write_bundle
    from frontend.transfer.source import ExportSource
    from frontend.transfer.subprocesses import BUNDLE
    from salmon.parent_watch import SUPERVISED

    order = replace(source.order, name=BUNDLE[0], extension=BUNDLE[1], personal=False)
    bundled = await ExportSource.open(source.context, order)
    with TemporaryDirectory(prefix="salmon-report-") as folder:
        bundle, report = (Path(folder) / f"{source.order.slug}.{ending}" for ending in ("zip", "html"))
        with bundle.open("wb") as file:
            await write_bundle(bundled, file.write)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "salmon", "report", bundle.name, "--output", report.name),
            cwd=folder,
            # It ends with this process: it watches the other end of its standard input.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
        )
        try:
            assert process.stderr is not None  # noqa: S101 - it is a pipe
            said = await process.stderr.read()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            sentence = " ".join(said.decode(errors="replace").split())[-500:]
            raise BadRequestError(sentence or "The report could not be written.", hint="Try again with more answers.")
        output.write(report.read_bytes())


async def _figure(order: str, output: BinaryIO) -> None:
    """Draw the map that was ordered, with the pictures of the experiment's targets."""
    import numpy as np
    from pydantic import TypeAdapter

    from frontend.context import open_context
    from frontend.settings import Settings
    from frontend.transfer.subprocesses import FigureOrder
    from salmon.export.map_drawing import MapGroups, draw_map, target_labels

    ordered = TypeAdapter(FigureOrder).validate_json(order)
    async with open_context(Settings()) as context:  # pyright: ignore[reportCallIssue]
        targets = (await context.catalogue.find(ordered.slug)).targets[: len(ordered.coordinates)]
        pictures: dict[int, bytes] = {}
        for target in targets:
            if target.kind == "image" and target.media:
                with context.media.open(target.media) as medium:
                    pictures[target.index] = medium.read()
    groups = MapGroups(ordered.groups, ordered.group_names) if ordered.groups is not None else None
    drawn = draw_map(
        np.array(ordered.coordinates),
        target_labels(targets),
        pictures=pictures,
        groups=groups,
        width_mm=ordered.width_mm,
    )
    output.write(drawn.content(ordered.extension))


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


async def _people(order: str, output: BinaryIO) -> None:
    """Find or export a person, or note that one is to be erased."""
    from pydantic import TypeAdapter

    from frontend.settings import Settings
    from frontend.transfer import erasure
    from salmon.wire import encode_json

    asked = TypeAdapter(erasure.PeopleOrder).validate_json(order)
    async with erasure.open_eraser(Settings()) as context:  # pyright: ignore[reportCallIssue]
        match asked.do:
            case "find":
                found = await erasure.find_person(context, asked)
            case "export":
                found = await erasure.export_person(context, asked)
            case "erase":
                found = {"erasure": await erasure.order_erasure(context, asked)}
    output.write(encode_json(found).encode())


async def _erase(_: str, __: BinaryIO) -> None:
    from frontend.settings import Settings
    from frontend.transfer.erasure import carry_out, open_eraser

    async with open_eraser(Settings()) as context:  # pyright: ignore[reportCallIssue]
        await carry_out(context)


async def _retention(_: str, __: BinaryIO) -> None:
    from frontend.settings import Settings
    from frontend.transfer.erasure import open_eraser
    from frontend.transfer.retention import remove_expired

    async with open_eraser(Settings()) as context:  # pyright: ignore[reportCallIssue]
        await remove_expired(context)


async def _nightly(_: str, __: BinaryIO) -> None:
    from frontend.context import open_context
    from frontend.settings import Settings
    from frontend.transfer.nightly_bundles import write_due

    async with open_context(Settings()) as context:  # pyright: ignore[reportCallIssue]
        await write_due(context)


async def _rehearse(order: str, _: BinaryIO) -> None:
    from frontend.transfer.rehearsals import rehearse

    await rehearse(order)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer))
