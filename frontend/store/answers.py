"""Answers in the store: appended once each, never changed. `frontend.store.export_reader` reads them in order."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.store.connection import Connection
from frontend.store.counters import MINUTE_MS, counters_of
from frontend.store.lua import RECORD_ANSWER
from salmon.records import Answer
from salmon.wire import Keys, encode_answer


@dataclass(frozen=True)
class AnswerReceipt:
    """Result of recording an answer: its place in the stream, and how many this participant has given."""

    stream_id: str
    duplicate: bool
    count: int


class Answers:
    """Verbs about answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def record(self, answer: Answer) -> AnswerReceipt:
        """Append an answer and move the counters, unless its token was answered (atomic).

        For a token that was answered, return what was recorded the first time.
        """
        served = answer.served
        keys = Keys(served.experiment)
        moved = counters_of(answer)
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
        return AnswerReceipt(stream_id, duplicate=not fresh, count=int(count))

    async def count(self, experiment: str) -> int:
        """Return how many answers there are."""
        return int(await self._connection.do(lambda client: client.xlen(Keys(experiment).answers)))
