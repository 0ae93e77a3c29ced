"""The exact contents of the store, for `salmon import`: text as JSON lines, arrays as .npy without pickles.

machine/state.json          the fields of the experiment's state
machine/revisions.jsonl     [number, revision]
machine/arrivals.jsonl      [platform identity, participant]
machine/participants.jsonl  [participant, fields, queries seen]
machine/answers.jsonl       [stream id, fields]; the tokens answered and all counters follow from it
machine/events.jsonl        [stream id, fields]
machine/changes.jsonl       [stream id, fields]
machine/models.jsonl        [sampler, numbers, names of arrays]; the arrays are machine/models/SAMPLER/NAME.npy
machine/history.jsonl       [sampler, stream id, numbers, names of arrays]; arrays are machine/history/SAMPLER/ID/NAME.npy
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from frontend.store.models import ARRAYS
from frontend.writer.collection import Collection
from salmon.wire import encode_json

Pieces = AsyncIterator[bytes]
Member = tuple[str, Callable[[], Pieces]]

FOLDER = "machine/"


async def members_of(collection: Collection) -> AsyncIterator[Member]:
    """(name, pieces) of each member, in an order in which an import can check them."""
    logbook, experiment = collection.logbook, collection.experiment.id
    yield f"{FOLDER}state.json", lambda: _once(encode_json, logbook.read_state(experiment))
    yield f"{FOLDER}revisions.jsonl", lambda: _pairs(logbook.read_revisions(experiment))
    yield f"{FOLDER}arrivals.jsonl", lambda: _pairs(logbook.read_arrivals(experiment))
    yield f"{FOLDER}participants.jsonl", lambda: _people(collection)
    yield f"{FOLDER}answers.jsonl", lambda: _pages(logbook.read_entries(experiment, until=collection.until))
    yield f"{FOLDER}events.jsonl", lambda: _pages(logbook.read_events(experiment))
    yield f"{FOLDER}changes.jsonl", lambda: _list(logbook.read_changes(experiment))
    lines: list[bytes] = []
    for sampler in collection.experiment.spec.samplers:
        entry = await logbook.read_model(experiment, sampler)
        for name, content in _arrays(entry):
            yield f"{FOLDER}models/{sampler}/{name}.npy", lambda content=content: _given(content)
        if entry:
            lines.append(_line([sampler, _numbers(entry), [name for name, _ in _arrays(entry)]]))
    yield f"{FOLDER}models.jsonl", lambda lines=lines: _given(b"".join(lines))
    lines = []
    for sampler in collection.experiment.spec.samplers:
        async for stream_id, entry in logbook.read_history(experiment, sampler):
            for name, content in _arrays(entry):
                yield f"{FOLDER}history/{sampler}/{stream_id}/{name}.npy", lambda content=content: _given(content)
            lines.append(_line([sampler, stream_id, _numbers(entry), [name for name, _ in _arrays(entry)]]))
    yield f"{FOLDER}history.jsonl", lambda lines=lines: _given(b"".join(lines))


async def _people(collection: Collection) -> Pieces:
    names = list(await collection.people())
    async for page in collection.logbook.read_people(collection.experiment.id, names):
        asked = await collection.logbook.read_asked(collection.experiment.id, [name for name, _ in page])
        yield b"".join(_line([name, values, sorted(seen)]) for (name, values), seen in zip(page, asked, strict=True))


async def _pages(pages: AsyncIterator[list[Any]]) -> Pieces:
    async for page in pages:
        yield b"".join(_line(list(entry)) for entry in page)


async def _list(entries: Any) -> Pieces:
    yield b"".join(_line(list(entry)) for entry in await entries)


async def _pairs(found: Any) -> Pieces:
    yield b"".join(_line(list(pair)) for pair in (await found).items())


async def _once(encode: Callable[[Any], str], found: Any) -> Pieces:
    yield encode(await found).encode()


async def _given(content: bytes) -> Pieces:
    yield content


def _arrays(entry: dict[str, bytes]) -> list[tuple[str, bytes]]:
    return [(name, entry[name]) for name in sorted(ARRAYS & entry.keys())]


def _numbers(entry: dict[str, bytes]) -> dict[str, str]:
    return {name: value.decode() for name, value in entry.items() if name not in ARRAYS}


def _line(value: list[Any]) -> bytes:
    return encode_json(value).encode() + b"\n"
