"""What the learning process publishes, as the console reads it: models and the history of generations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.store.connection import Connection
from salmon.wire import Keys

#: Lines of history read in one piece: some hold coordinates.
PAGE = 250

#: What of a model and of a line of history is an array, and what a place in the stream; the rest are numbers.
ARRAYS = frozenset({"coordinates", "reported", "spread"})
_PLACES = frozenset({"cursor"})


@dataclass(frozen=True)
class HistoryLine:
    """A generation: its place in the history, its numbers, and whether its coordinates were kept."""

    stream_id: str
    numbers: Mapping[str, float]
    has_coordinates: bool


@dataclass(frozen=True)
class PublishedModel:
    """The newest model: its numbers as they are written, and its arrays as .npy bytes."""

    numbers: Mapping[str, str]
    arrays: Mapping[str, bytes]


@dataclass(frozen=True)
class SamplerProgress:
    """A sampler's newest generation, the answers its shown embedding has seen, and its queries listed and pending."""

    sampler: str
    generation: int
    reported_of: int
    listed: int
    pending: int


class Models:
    """Verbs about models; all of them only read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self, experiment: str, sampler: str) -> PublishedModel | None:
        """The newest model of a sampler; None before the first."""
        values: dict[bytes, bytes] = {}
        for key in (Keys(experiment).model(sampler), Keys(experiment).restored(sampler)):
            values = await self._connection.do_binary(lambda client, key=key: client.hgetall(key))
            if b"coordinates" in values:
                break
        else:
            return None
        named = {name.decode(): value for name, value in values.items()}
        arrays = {name: named.pop(name) for name in tuple(named) if name in ARRAYS}
        return PublishedModel({name: value.decode() for name, value in named.items()}, arrays)

    async def read_progress(self, experiment: str, samplers: Sequence[str]) -> tuple[SamplerProgress, ...]:
        """How samplers stand now, in one round trip."""
        if not samplers:
            return ()
        keys = Keys(experiment)
        found = await self._connection.together(
            lambda pipeline: [
                command
                for sampler in samplers
                for command in (
                    pipeline.hget(keys.model(sampler), "generation"),
                    pipeline.hget(keys.model(sampler), "reported_of"),
                    pipeline.llen(keys.queries(sampler)),
                    pipeline.hlen(keys.pending(sampler)),
                )
            ]
        )
        return tuple(
            SamplerProgress(sampler, int(found[4 * k] or 0), int(found[4 * k + 1] or 0), *found[4 * k + 2 : 4 * k + 4])
            for k, sampler in enumerate(samplers)
        )

    async def read_history(self, experiment: str, sampler: str, *, after: str = "0") -> AsyncIterator[HistoryLine]:
        """The generations after a place in the history, in order: first those that an import brought."""
        for key in (Keys(experiment).restored_history(sampler), Keys(experiment).history(sampler)):
            page: list[tuple[bytes, dict[bytes, bytes]]] | None = None
            while page is None or len(page) == PAGE:
                start = f"({after}"
                page = await self._connection.do_binary(
                    lambda client, key=key, start=start: client.xrange(key, min=start, count=PAGE)
                )
                for stream_id, entry in page or ():
                    after = stream_id.decode()
                    yield HistoryLine(after, _numbers(entry), b"coordinates" in entry)

    async def read_coordinates(self, experiment: str, sampler: str, stream_id: str) -> bytes | None:
        """The coordinates that a line of history keeps, as .npy bytes."""
        for key in (Keys(experiment).history(sampler), Keys(experiment).restored_history(sampler)):
            found: list[Any] = await self._connection.do_binary(
                lambda client, key=key: client.xrange(key, min=stream_id, max=stream_id, count=1)
            )
            if found:
                return found[0][1].get(b"coordinates")
        return None


def _numbers(entry: Mapping[bytes, bytes]) -> dict[str, float]:
    """The numbers of a line; what is not known yet is left out."""
    return {
        name.decode(): float(value)
        for name, value in entry.items()
        if name.decode() not in ARRAYS | _PLACES and value not in {b"", b"nan"}
    }
