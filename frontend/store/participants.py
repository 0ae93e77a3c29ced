"""Trying an experiment out: an experimenter walks through all of it as a participant would, and nothing is recorded.

Whoever tries is a participant of a kind of their own. What the steps need to know of them is forgotten after some
hours; their answers are confirmed and never reach the log, and no counter moves. Their queries are random ones: the
published ones belong to participants.

Participants in the store: who arrived, what they were asked, how far they are.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from frontend.store.connection import Connection
from frontend.store.counters import MINUTE_MS
from frontend.store.lua import REMEMBER_QUERY, TAKE_QUERY
from salmon.records import Query
from salmon.wire import EVENTS_KEPT, Keys, decode_query

#: The ids of those who try begin like this; those of participants are drawn, and one in 10^10 would.
_PREFIX = "tryout"
_LETTERS = string.ascii_lowercase + string.digits
#: The parameter of the page's address that holds the key.
PARAMETER = "tryout"
#: What is known of somebody who tries is forgotten after this time.
KEPT_SECONDS = 6 * 3600


def is_tryout(participant: str) -> bool:
    """Whether this is somebody who only tries."""
    return participant.startswith(_PREFIX)


def new_tryout() -> str:
    """An id for somebody who tries."""
    return _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(12 - len(_PREFIX)))


_ID_LETTERS = string.ascii_lowercase + string.digits
#: Who asks without saying who will answer: a participant without answers, to whom every query is new.
NOBODY = "nobodynobody"
#: Elements of a list that are looked at to find a query this participant has not seen.
MOST_LOOKED_AT = 4096


@dataclass(frozen=True)
class Turn:
    """What is needed to choose the next query, read in one round trip.

    `number` counts everything the participant was given, from 1; `position` counts the same without spare queries, which
    stand outside of the experiment's order.
    """

    number: int
    position: int
    last_head: str
    answers: int
    status: str
    state: str
    revision: int


class Participants:
    """Verbs about participants and the queries they are given."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def arrive(self, experiment: str, identity: str, values: dict[str, str | int]) -> tuple[str, dict[str, str]]:
        """(participant, what is known of them) for a platform identity; the first arrival makes the participant."""
        keys = Keys(experiment)
        fresh = "".join(secrets.choice(_ID_LETTERS) for _ in range(12))
        _, participant = await self._connection.together(
            lambda pipeline: (
                pipeline.hsetnx(keys.arrivals, identity, fresh),
                pipeline.hget(keys.arrivals, identity),
            )
        )
        key = keys.participant(participant)
        steps: list[Any] = await self._connection.together(
            lambda pipeline: (
                *(pipeline.hsetnx(key, name, cast("Any", value)) for name, value in values.items()),
                pipeline.hgetall(key),
            )
        )
        return participant, steps[-1]

    async def replace(
        self, experiment: str, identity: str, participant: str, values: dict[str, str | int]
    ) -> tuple[str, dict[str, str]]:
        """Let a platform identity begin anew (atomic): the earlier participant keeps their answers, marked `replaced`."""
        keys = Keys(experiment)
        fresh = "".join(secrets.choice(_ID_LETTERS) for _ in range(12))
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(keys.participant(participant), "status", "replaced"),
                pipeline.hset(keys.arrivals, identity, fresh),
                pipeline.hset(keys.participant(fresh), mapping=cast("Any", values)),
            )
        )
        return fresh, {name: str(value) for name, value in values.items()}

    async def read(self, experiment: str, participant: str) -> dict[str, str]:
        """What is known of a participant; empty when there is no such one."""
        return await self._connection.do(lambda client: client.hgetall(Keys(experiment).participant(participant)))

    async def count(self, experiment: str) -> int:
        """How many participants have arrived."""
        return int(await self._connection.do(lambda client: client.hlen(Keys(experiment).arrivals)))

    async def note(self, experiment: str, participant: str, values: dict[str, str | int]) -> None:
        """Remember something about a participant."""
        key = Keys(experiment).participant(participant)
        await self._connection.do(lambda client: client.hset(key, mapping=cast("Any", values)))

    async def complete(self, experiment: str, participant: str, values: dict[str, str | int], *, now_ms: int) -> None:
        """Remember that a participant has finished; the first call counts them."""
        keys = Keys(experiment)
        key = keys.participant(participant)
        if await self._connection.do(lambda client: client.hsetnx(key, "completed_ms", cast("Any", now_ms))):
            minute = f"completed:{now_ms // MINUTE_MS}"
            await self._connection.do(lambda client: client.hincrby(keys.counts, minute, 1))
        await self.note(experiment, participant, {"status": "completed", **values})

    async def begin_turn(self, experiment: str, participant: str, *, spare: bool = False) -> Turn:
        """Count one more query for this participant (atomic), and read what choosing it needs."""
        keys = Keys(experiment)
        key = keys.participant(participant)
        number, spares, (last_head, answers, status), (state, revision) = await self._connection.together(
            lambda pipeline: (
                pipeline.hincrby(key, "turns", 1),
                pipeline.hincrby(key, "spares", int(spare)),
                pipeline.hmget(key, ["last_head", "answers", "status"]),
                pipeline.hmget(keys.state, ["state", "revision"]),
            )
        )
        return Turn(
            number=int(number),
            position=int(number) - int(spares),
            last_head=last_head or "",
            answers=int(answers or 0),
            status=status or "",
            state=state or "",
            revision=int(revision or 0),
        )

    async def peek_queries(self, experiment: str, sampler: str, count: int) -> list[Query]:
        """The best published queries of a sampler, which stay where they are."""
        key = Keys(experiment).queries(sampler)
        elements = await self._connection.do(lambda client: client.lrange(key, 0, count - 1))
        return [decode_query(element) for element in elements]

    async def take_query(
        self, experiment: str, participant: str, sampler: str, *, token: str, last_head: str, now_ms: int
    ) -> Query | None:
        """The best published query for this participant (atomic), or None when the list holds none."""
        keys = Keys(experiment)
        element = await self._connection.run(
            TAKE_QUERY,
            (
                keys.queries(sampler),
                keys.asked(participant),
                keys.pending(sampler),
                keys.participant(participant),
            ),
            (token, now_ms, last_head, MOST_LOOKED_AT),
        )
        return decode_query(element) if element else None

    async def remember_query(
        self,
        experiment: str,
        participant: str,
        candidates: Sequence[Query],
        *,
        token: str,
        now_ms: int,
        pending_of: str | None = None,
    ) -> Query:
        """The first candidate the participant has not seen (atomic).

        With `pending_of` the query stands in for one of that sampler's: it is pending there, and counted as a fallback.
        """
        keys = Keys(experiment)
        names = [keys.asked(participant), keys.participant(participant), keys.state]
        if pending_of is not None:
            names.append(keys.pending(pending_of))
        counter = f"fallbacks:{pending_of}" if pending_of is not None else ""
        position = await self._connection.run(
            REMEMBER_QUERY, names, (token, now_ms, counter, *(query.key for query in candidates))
        )
        return candidates[int(position) - 1]

    async def count_turn(self, experiment: str, participant: str, sampler: str) -> int:
        """Count one more query of a sampler for this participant (atomic); how many came before it."""
        key = Keys(experiment).participant(participant)
        return int(await self._connection.do(lambda client: client.hincrby(key, f"turns:{sampler}", 1))) - 1

    async def forget_asked(self, experiment: str, participant: str) -> None:
        """Let every query be new to this participant again."""
        await self._connection.do(lambda client: client.delete(Keys(experiment).asked(participant)))

    async def claim(self, experiment: str, asker: str, token: str, participant: str) -> str:
        """The participant to whom a token belongs that was given to `asker` for whoever answers it: the first who does."""
        key = Keys(experiment).answered(asker)
        _, holder = await self._connection.together(
            lambda pipeline: (pipeline.hsetnx(key, token, participant), pipeline.hget(key, token))
        )
        return str(holder)

    async def arrive_to_try(self, experiment: str, participant: str, values: dict[str, str | int]) -> None:
        """Remember somebody who tries an experiment out, for a while; no arrival is counted."""
        keys = Keys(experiment)
        names = (keys.participant(participant), keys.asked(participant), keys.answered(participant))
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(names[0], mapping=cast("Any", values)),
                pipeline.sadd(names[1], ""),
                pipeline.hset(names[2], "", ""),
                *(pipeline.expire(name, KEPT_SECONDS) for name in names),
            )
        )

    async def answer_to_try(self, experiment: str, participant: str, token: str) -> tuple[bool, int]:
        """(whether this token is new, answers so far) of somebody who tries; nothing reaches the log."""
        keys = Keys(experiment)
        answered, key = keys.answered(participant), keys.participant(participant)
        fresh = bool(await self._connection.do(lambda client: client.hsetnx(answered, token, "tried")))
        count = await self._connection.do(lambda client: client.hincrby(key, "answers", int(fresh)))
        return fresh, int(count)

    async def add_events(self, experiment: str, participant: str, events: Sequence[dict[str, str]]) -> None:
        """Append what happened on a page; the oldest events go when there are too many."""
        key = Keys(experiment).events
        await self._connection.together(
            lambda pipeline: [
                pipeline.xadd(
                    key, cast("Any", {"participant": participant, **event}), maxlen=EVENTS_KEPT, approximate=True
                )
                for event in events
            ]
        )
