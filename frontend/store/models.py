"""What the learning process publishes: models, and the history of their generations. All verbs only read."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.store.connection import Verbs
from salmon.wire import Keys

#: Generations read in one piece: some hold coordinates.
PAGE = 250

#: Fields of a model or of a generation that hold an array, and those that name a place in the stream; the rest are
#: numbers.
ARRAYS = frozenset({"coordinates", "reported", "spread"})
_PLACES = frozenset({"cursor"})


@dataclass(frozen=True)
class PublishedModel:
    """A model as it was published: its numbers as they are written, and its arrays as .npy bytes."""

    numbers: Mapping[str, str]
    arrays: Mapping[str, bytes]

    @staticmethod
    def parse(fields: Mapping[bytes, bytes]) -> "PublishedModel":
        """Return the model of a hash, or of an entry of the history."""
        named = {name.decode(): value for name, value in fields.items()}
        arrays = {name: value for name, value in named.items() if name in ARRAYS}
        return PublishedModel({name: value.decode() for name, value in named.items() if name not in ARRAYS}, arrays)


@dataclass(frozen=True)
class HistoryLine:
    """A generation: its place in the history, the numbers that are known, and whether its coordinates were kept."""

    stream_id: str
    numbers: Mapping[str, float]
    has_coordinates: bool

    @staticmethod
    def of(stream_id: str, model: PublishedModel) -> "HistoryLine":
        """Return the line of a generation, without its arrays."""
        written = {name: value for name, value in model.numbers.items() if name not in _PLACES}
        numbers = {name: float(value) for name, value in written.items() if value not in {"", "nan"}}
        return HistoryLine(stream_id, numbers, "coordinates" in model.arrays)


@dataclass(frozen=True)
class NewestModel:
    """Which model participants are compared with: a generation of a sampler, and how many answers it has seen."""

    sampler: str
    generation: int
    answers: int

    @property
    def name(self) -> str:
        """Return what verdicts remember of it."""
        return f"{self.sampler} {self.generation}"


@dataclass(frozen=True)
class HeldOutAccuracy:
    """The accuracy of an embedding, with its 95 % interval: ten-fold cross-validation on the answers to random queries.

    `judged` answers were predicted by fits without them, when `answers` could be fitted in all.
    """

    accuracy: float
    low: float
    high: float
    judged: int
    answers: int

    @staticmethod
    def parse(written: Sequence[str | None]) -> "HeldOutAccuracy | None":
        """Return the accuracy of the fields `HELD_OUT` of a model; None where it was not judged yet."""
        if any(value is None for value in written):
            return None
        accuracy, low, high, judged, answers = (float(value or 0) for value in written)
        return HeldOutAccuracy(accuracy, low, high, int(judged), int(answers))


#: The fields of a model that hold its held-out accuracy.
HELD_OUT = ("held_out", "held_out_low", "held_out_high", "held_out_judged", "evaluated")


@dataclass(frozen=True)
class SamplerProgress:
    """How many queries of a sampler are listed, how many pending, and the held-out accuracy of its embedding."""

    sampler: str
    listed: int
    pending: int
    held_out: HeldOutAccuracy | None


class Models(Verbs):
    """Verbs about models."""

    async def read(self, experiment: str, sampler: str) -> PublishedModel | None:
        """Return the newest model of a sampler, or the one that an import brought; None before the first."""
        for key in (Keys(experiment).model(sampler), Keys(experiment).restored(sampler)):
            fields: dict[bytes, bytes] = await self._connection.do_binary(lambda client, key=key: client.hgetall(key))
            if b"coordinates" in fields:
                return PublishedModel.parse(fields)
        return None

    async def find_newest(self, experiment: str, samplers: Sequence[str]) -> NewestModel | None:
        """Return the newest model of the sampler whose model has seen most answers, in one
        round trip; None before the first.
        """
        if not samplers:
            return None
        keys = Keys(experiment)
        found = await self._connection.together(
            lambda pipeline: [
                pipeline.hmget(key, "generation", "absorbed")
                for sampler in samplers
                for key in (keys.model(sampler), keys.restored(sampler))
            ]
        )
        own, restored = found[::2], found[1::2]
        known = [
            NewestModel(sampler, int(float(generation)), int(float(answers or 0)))
            for sampler, pair, before in zip(samplers, own, restored, strict=True)
            for generation, answers in [pair if pair[0] is not None else before]
            if generation is not None
        ]
        return max(known, key=lambda model: model.answers, default=None)

    async def read_history(
        self, experiment: str, sampler: str, *, after: str = "0"
    ) -> AsyncIterator[tuple[str, PublishedModel]]:
        """Yield (stream id, model) of the generations after a place, in order: first those that an import brought."""
        for key in (Keys(experiment).restored_history(sampler), Keys(experiment).history(sampler)):
            page: list[tuple[bytes, dict[bytes, bytes]]] | None = None
            while page is None or len(page) == PAGE:
                start = f"({after}"
                page = await self._connection.do_binary(
                    lambda client, key=key, start=start: client.xrange(key, min=start, count=PAGE)
                )
                for stream_id, entry in page or ():
                    after = stream_id.decode()
                    yield after, PublishedModel.parse(entry)

    async def count_erasures(self, experiment: str) -> int:
        """Return how often answers were removed, and all models and histories with them."""
        found: str | None = await self._connection.do(lambda client: client.hget(Keys(experiment).state, "erasures"))
        return int(found or 0)

    async def read_progress(self, experiment: str, samplers: Sequence[str]) -> tuple[SamplerProgress, ...]:
        """Return how far samplers are, in one round trip."""
        if not samplers:
            return ()
        keys = Keys(experiment)
        found = await self._connection.together(
            lambda pipeline: [
                command
                for sampler in samplers
                for command in (
                    pipeline.llen(keys.queries(sampler)),
                    pipeline.hlen(keys.pending(sampler)),
                    pipeline.hmget(keys.model(sampler), *HELD_OUT),
                    pipeline.hmget(keys.restored(sampler), *HELD_OUT),
                )
            ]
        )
        rows = zip(samplers, *(found[place::4] for place in range(4)), strict=True)
        return tuple(
            SamplerProgress(sampler, listed, pending, HeldOutAccuracy.parse(own) or HeldOutAccuracy.parse(restored))
            for sampler, listed, pending, own, restored in rows
        )

    async def read_coordinates(self, experiment: str, sampler: str, stream_id: str) -> bytes | None:
        """Return the coordinates that a generation kept, as .npy bytes; None where it kept none."""
        for key in (Keys(experiment).history(sampler), Keys(experiment).restored_history(sampler)):
            found: list[Any] = await self._connection.do_binary(
                lambda client, key=key: client.xrange(key, min=stream_id, max=stream_id, count=1)
            )
            if found:
                return found[0][1].get(b"coordinates")
        return None
