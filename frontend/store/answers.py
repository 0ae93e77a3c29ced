"""Answers in the store: appended once each, never changed, read in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from frontend.store.connection import Connection
from frontend.store.counters import MINUTE_MS, counters_moved
from frontend.store.lua import RECORD_ANSWER
from salmon.records import Answer
from salmon.wire import Keys, decode_answer, encode_answer

#: Answers read in one piece.
PAGE = 1000


@dataclass(frozen=True)
class RecordedAnswer:
    """What recording an answer came to: its place in the stream, and how many this participant has given."""

    stream_id: str
    duplicate: bool
    count: int


class Answers:
    """Verbs about answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def record(self, answer: Answer) -> RecordedAnswer:
        """Append an answer and move the counters, unless its token was answered (atomic).

        The second time, say what was recorded the first time.
        """
        served = answer.served
        keys = Keys(served.experiment)
        moved = counters_moved(answer)
        fields = [part for pair in encode_answer(answer).items() for part in pair]
        stream_id, fresh, count = await self._connection.run(
            RECORD_ANSWER,
            (
                keys.answers,
                keys.answered(served.participant),
                keys.pending(served.sampler),
                keys.participant(served.participant),
                keys.state,
                keys.counts,
            ),
            (
                served.nonce,
                answer.received_ms,
                served.sampler,
                f"began:{answer.received_ms // MINUTE_MS}",
                len(moved),
                *moved,
                *fields,
            ),
        )
        return RecordedAnswer(stream_id, duplicate=not fresh, count=int(count))

    async def read(self, experiment: str, *, after: str = "0") -> AsyncIterator[tuple[str, Answer]]:
        """(stream id, answer) of all answers after a place in the stream, in order, page by page."""
        key = Keys(experiment).answers
        while True:
            start = f"({after}"
            page = await self._connection.do(lambda client, start=start: client.xrange(key, min=start, count=PAGE))
            for stream_id, entry in page:
                yield stream_id, decode_answer(experiment, entry)
                after = stream_id
            if len(page) < PAGE:
                return

    async def count(self, experiment: str) -> int:
        """How many answers there are."""
        return int(await self._connection.do(lambda client: client.xlen(Keys(experiment).answers)))
