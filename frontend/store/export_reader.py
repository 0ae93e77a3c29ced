"""Read the answers, events and participants of a whole experiment: for exports, bundles and verdicts on quality.

Everything is read page by page, so that neither side ever holds all of it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from frontend.errors import DamagedError
from frontend.store.connection import Connection, Verbs
from frontend.store.participants import Participant
from salmon.errors import StoreError
from salmon.records import Answer
from salmon.wire import Keys, decode_answer, is_intact
from salmon.wire.answer_pages import (
    READ_ANSWERS,
    AnswerColumns,
    columns_of,
    damaged_in,
    end_of,
    split_page,
    without,
)

#: Answers read in one piece; the server is busy with a page for half a millisecond an answer at the most.
PAGE = 1000
#: Turns of the event loop until a command is sent: taking a connection, checking it, writing.
STEPS_TO_SEND = 4
#: Events read in one piece.
EVENTS_PAGE = 2000
#: Participants whose fields are read in one round trip.
PEOPLE_PAGE = 250

Entry = tuple[str, dict[str, str]]


class ExportReader(Verbs):
    """Verbs that read whole experiments.

    An answer that is not as it was recorded is never passed on: reading ends with a DamagedError, unless
    `leave_out_damaged` is set, which keeps them in `damaged`.
    """

    leave_out_damaged = False

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        #: Stream ids of answers that were left out.
        self.damaged: list[str] = []

    async def last_answer(self, experiment: str) -> str:
        """Return the id of the newest answer; `0-0` before the first."""
        entries = await self._connection.do(lambda client: client.xrevrange(Keys(experiment).answers, count=1))
        return str(entries[0][0]) if entries else "0-0"

    async def read_entries(self, experiment: str, *, until: str) -> AsyncIterator[list[Entry]]:
        """Yield pages of (stream id, fields) of answers as they are stored, up to and including an id."""
        async for text in self._read_texts(experiment, until=until):
            yield [
                (stream_id, dict(zip(fields[::2], fields[1::2], strict=True)))
                for stream_id, *fields in split_page(text)
            ]

    async def read_columns(self, experiment: str, *, until: str) -> AsyncIterator[AnswerColumns]:
        """Yield pages of answers as columns, up to and including an id."""
        async for text in self._read_texts(experiment, until=until):
            for columns in columns_of(experiment, text):
                yield columns

    async def read_answers(self, experiment: str, *, until: str) -> AsyncIterator[list[tuple[str, Answer]]]:
        """Yield pages of (stream id, answer), up to and including an id."""
        async for columns in self.read_columns(experiment, until=until):
            yield list(zip(columns.stream_ids, columns.answers(), strict=True))

    async def read_answers_of(self, experiment: str, participant: str, *, most: int) -> list[Answer]:
        """Return the answers of one participant, in order; no more than `most`."""
        keys = Keys(experiment)
        found: dict[str, str] = await self._connection.do(lambda client: client.hgetall(keys.answered(participant)))
        places = sorted(
            (name for name in found.values() if "-" in name), key=lambda name: [int(x) for x in name.split("-")]
        )
        entries: list[list[Entry]] = await self._connection.together(
            lambda pipeline: [pipeline.xrange(keys.answers, name, name) for name in places[:most]]
        )
        read = [entry for page in entries for entry in page]
        damaged = [at for at, entry in read if not is_intact([part for pair in entry.items() for part in pair])]
        self._refuse(damaged)
        return [decode_answer(experiment, entry) for at, entry in read if at not in damaged]

    async def verify(self, experiment: str, *, until: str) -> None:
        """Compare every answer with its checksum; DamagedError names the first page's that are damaged."""
        async for _ in self._read_texts(experiment, until=until):
            pass

    def _refuse(self, damaged: Sequence[str]) -> None:
        """Raise DamagedError where there are damaged answers, or note them where they are left out."""
        if damaged and not self.leave_out_damaged:
            raise DamagedError(list(damaged))
        self.damaged += [each for each in damaged if each not in self.damaged]

    async def _read_texts(self, experiment: str, *, until: str) -> AsyncIterator[str]:
        """Yield pages of intact answers, each as one text that is not empty."""
        async for text in self._read_pages(experiment, until=until):
            damaged = damaged_in(text)
            self._refuse(damaged)
            if kept := without(text, damaged) if damaged else text:
                yield kept

    async def _read_pages(self, experiment: str, *, until: str) -> AsyncIterator[str]:
        """Yield pages of answers, each as one text.

        The server gathers the next page while this one is used. Whoever uses it may take longer than a reply may wait,
        as on a slow line: the page is then asked for once more.
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
                count, last = end_of(text)
                if count == PAGE:
                    after = f"({last}"
                    asked = await self._ask(experiment, after, until)
                yield text
                if count < PAGE:
                    return
        finally:
            asked.cancel()

    async def _ask(self, experiment: str, after: str, until: str) -> asyncio.Task[str]:
        """Ask for a page; it is on its way to the server when this returns."""
        asked = asyncio.create_task(self._gather(experiment, after, until))
        for _ in range(STEPS_TO_SEND):
            await asyncio.sleep(0)
        return asked

    async def _gather(self, experiment: str, after: str, until: str) -> str:
        """Return a page as one text."""
        return await self._connection.run(READ_ANSWERS, (Keys(experiment).answers,), (after, until, PAGE))

    async def read_events(self, experiment: str) -> AsyncIterator[list[Entry]]:
        """Yield pages of events."""
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

    async def read_arrivals(self, experiment: str) -> dict[str, str]:
        """Return platform identity → participant."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).arrivals))

    async def read_people(self, experiment: str, participants: Sequence[str]) -> AsyncIterator[list[Participant]]:
        """Yield pages of participants, in the order given."""
        async for page in self._read_hashes(experiment, participants):
            yield [Participant.parse(name, fields) for name, fields in page]

    async def read_people_entries(
        self, experiment: str, participants: Sequence[str]
    ) -> AsyncIterator[list[tuple[str, dict[str, str], set[str]]]]:
        """Yield pages of (participant, fields as they are stored, queries seen), for bundles."""
        keys = Keys(experiment)
        async for page in self._read_hashes(experiment, participants):
            asked: list[set[str]] = await self._connection.together(
                lambda pipeline, page=page: [pipeline.smembers(keys.asked(name)) for name, _ in page]
            )
            yield [(name, fields, seen) for (name, fields), seen in zip(page, asked, strict=True)]

    async def _read_hashes(self, experiment: str, participants: Sequence[str]) -> AsyncIterator[list[Entry]]:
        """Yield pages of (participant, fields); somebody of whom nothing is stored has no fields."""
        keys = Keys(experiment)
        for start in range(0, len(participants), PEOPLE_PAGE):
            names = participants[start : start + PEOPLE_PAGE]
            found: list[dict[str, str]] = await self._connection.together(
                lambda pipeline, names=names: [pipeline.hgetall(keys.participant(name)) for name in names]
            )
            yield list(zip(names, found, strict=True))
