"""Everything that the store knows of one experiment, as it lies there: for exports, backups and judgements of quality.

Only reads, page by page, so that neither side ever holds all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from frontend.store.connection import Connection
from frontend.store.participants import Participant
from salmon.errors import StoreError
from salmon.records import Answer
from salmon.wire import AnswerReader, Keys

#: Answers read in one piece: half of this many milliseconds is what the server is busy with it at the most.
PAGE = 1000
#: Turns of the loop in which a command leaves for the server: taking a connection, looking at it, writing.
_STEPS_TO_SEND = 4
#: Events, and lines of history, in one piece; some lines of history hold coordinates.
EVENTS_PAGE = 2000
HISTORY_PAGE = 200
#: Participants whose fields are read in one round trip.
PEOPLE_PAGE = 250

#: A page of answers as one text: the client's parser, which sees every field of every answer as a reply of its own, is
#: what reading takes longest. Ids, names and values hold no control characters: both ways in see to that.
#: KEYS answers · ARGV first id, last id, how many
READ_ANSWERS = """
local page = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
for i = 1, #page do page[i] = page[i][1] .. '\\31' .. table.concat(page[i][2], '\\31') end
return table.concat(page, '\\30')
"""

Entry = tuple[str, dict[str, str]]
BinaryEntry = tuple[str, dict[str, bytes]]


class ExportReader:
    """Verbs that read whole experiments."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def last_answer(self, experiment: str) -> str:
        """The id of the newest answer; `0-0` before the first."""
        entries = await self._connection.do(lambda client: client.xrevrange(Keys(experiment).answers, count=1))
        return str(entries[0][0]) if entries else "0-0"

    async def read_entries(self, experiment: str, *, until: str) -> AsyncIterator[list[Entry]]:
        """Pages of answers as they lie in the stream, up to and with an id."""
        async for page in self._read_fields(experiment, until=until):
            yield [(stream_id, dict(zip(fields[::2], fields[1::2], strict=True))) for stream_id, *fields in page]

    async def read_answers(self, experiment: str, *, until: str) -> AsyncIterator[list[tuple[str, Answer]]]:
        """Pages of (stream id, answer), up to and with an id."""
        reader = AnswerReader(experiment)
        async for page in self._read_fields(experiment, until=until):
            yield [(stream_id, reader.read(fields)) for stream_id, *fields in page]

    async def _read_fields(self, experiment: str, *, until: str) -> AsyncIterator[Iterator[list[str]]]:
        """Pages of answers, each as [stream id, name, value, name, value, …].

        The server gathers the next page while this one is used. Whoever uses it may take longer than a reply may wait, as
        on a slow line: then the page is asked for once more.
        """
        after = "-"
        asked = await self._ask(experiment, after, until)
        try:
            while True:
                try:
                    text = await asked
                except StoreError:
                    text = await self._gather(experiment, after, until)
                if not text:
                    return
                lines = text.split("\x1e")
                if len(lines) == PAGE:
                    after = "(" + lines[-1].partition("\x1f")[0]
                    asked = await self._ask(experiment, after, until)
                yield (line.split("\x1f") for line in lines)
                if len(lines) < PAGE:
                    return
        finally:
            asked.cancel()

    async def _ask(self, experiment: str, after: str, until: str) -> asyncio.Task[str]:
        """Ask for a page; it is on its way to the server when this returns."""
        asked = asyncio.create_task(self._gather(experiment, after, until))
        for _ in range(_STEPS_TO_SEND):
            await asyncio.sleep(0)
        return asked

    async def _gather(self, experiment: str, after: str, until: str) -> str:
        """A page as one text."""
        return await self._connection.run(READ_ANSWERS, (Keys(experiment).answers,), (after, until, PAGE))

    async def read_events(self, experiment: str) -> AsyncIterator[list[Entry]]:
        """Pages of events."""
        key, after = Keys(experiment).events, "-"
        while True:
            page: list[Entry] = await self._connection.do(
                lambda client, after=after: client.xrange(key, min=after, count=EVENTS_PAGE)
            )
            if page:
                yield page
            if len(page) < EVENTS_PAGE:
                return
            after = f"({page[-1][0]}"

    async def read_changes(self, experiment: str) -> list[Entry]:
        """Who changed what of the experiment."""
        return await self._connection.do(lambda client: client.xrange(Keys(experiment).changes))

    async def read_state(self, experiment: str) -> dict[str, str]:
        """The fields of the experiment's state."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).state))

    async def read_counts(self, experiment: str) -> dict[str, str]:
        """The counters that figures are drawn from."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).counts))

    async def read_revisions(self, experiment: str) -> dict[int, str]:
        """Every revision as its JSON, by its number."""
        found: dict[str, str] = await self._connection.do(lambda client: client.hgetall(Keys(experiment).spec))
        return {int(number): found[number] for number in sorted(found, key=int)}

    async def read_arrivals(self, experiment: str) -> dict[str, str]:
        """Platform identity → participant."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).arrivals))

    async def read_people(self, experiment: str, participants: Sequence[str]) -> AsyncIterator[list[Participant]]:
        """Pages of participants, in the order given; who is not there has no fields."""
        keys = Keys(experiment)
        for start in range(0, len(participants), PEOPLE_PAGE):
            names = participants[start : start + PEOPLE_PAGE]
            found: list[dict[str, str]] = await self._connection.together(
                lambda pipeline, names=names: [pipeline.hgetall(keys.participant(name)) for name in names]
            )
            yield [Participant.parse(name, fields) for name, fields in zip(names, found, strict=True)]

    async def read_asked(self, experiment: str, participants: Sequence[str]) -> list[set[str]]:
        """The queries that each of these participants has seen."""
        keys = Keys(experiment)
        return await self._connection.together(
            lambda pipeline: [pipeline.smembers(keys.asked(name)) for name in participants]
        )

    async def read_model(self, experiment: str, sampler: str) -> dict[str, bytes]:
        """The fields of a sampler's newest model, arrays as .npy bytes; empty before the first."""
        keys = Keys(experiment)
        for key in (keys.model(sampler), keys.restored(sampler)):
            values: dict[bytes, bytes] = await self._connection.do_binary(lambda client, key=key: client.hgetall(key))
            if b"coordinates" in values:
                return {name.decode(): value for name, value in values.items()}
        return {}

    async def read_history(self, experiment: str, sampler: str) -> AsyncIterator[BinaryEntry]:
        """A sampler's generations in order: first those that came with an import."""
        keys = Keys(experiment)
        for key in (keys.restored_history(sampler), keys.history(sampler)):
            after = "-"
            while True:
                page: list[tuple[bytes, dict[bytes, bytes]]] = await self._connection.do_binary(
                    lambda client, key=key, after=after: client.xrange(key, min=after, count=HISTORY_PAGE)
                )
                for stream_id, entry in page:
                    yield stream_id.decode(), {name.decode(): value for name, value in entry.items()}
                if len(page) < HISTORY_PAGE:
                    break
                after = f"({page[-1][0].decode()}"
