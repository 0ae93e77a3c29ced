"""Turns of participants in the store: which query each was given, and which turns are not over.

A turn has a number, and begins once: whoever asks for it again gets the query that it was given before, until it is
answered or skipped. Its place in the experiment's order is settled when it begins, so a request or a reply that is lost
moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from frontend.store.connection import Verbs, gone
from frontend.store.lua import BEGIN_TURN, REMEMBER_QUERY, TAKE_QUERY, begin_and_choose
from frontend.store.statuses import Status
from salmon.records import Query
from salmon.wire import Keys, decode_query, encode_query
from salmon.wire.keys import NOBODY

#: Turns that one participant may have begun and not ended: a page has a few in hand, and up to 20 answers to send.
MOST_OPEN = 64
#: Elements of a list that are looked at to find a query this participant has not seen.
MOST_LOOKED_AT = 4096


@dataclass(frozen=True)
class GivenQuery:
    """A query that belongs to a turn of a participant, with the token that its answer will carry."""

    sampler: str
    probability: float
    nonce: str
    served_ms: int
    query: Query


@dataclass(frozen=True)
class Turn:
    """One turn of a participant: what is needed to choose its query, or the query that it was given.

    `number` counts everything the participant was given, from 1; `position` counts the same without spare queries,
    which stand outside of the experiment's order. `outcome` is `begun`, `over` where the turn was answered or skipped,
    `early` where turns before it are missing, `full` where too many are not over, `none` where a spare query could end
    the trials before a listed one was answered, `ended` where the trials are over, and `changed` where the experiment
    or the participant is not in the state that was expected. Where an ordinary turn could end them so, it is the turn
    of the listed query, whose number is another than the one that was asked for.
    """

    number: int
    outcome: Literal["begun", "over", "early", "full", "none", "ended", "changed"]
    position: int
    revision: int
    spare: bool
    given: GivenQuery | None
    answers: int
    status: Status

    @staticmethod
    def parse(reply: Sequence[Any]) -> Turn:
        """Return the turn that the store tells of."""
        number, outcome, entry, answers, status = reply
        kind, position, revision, spare, *rest = (entry or "|0|0|0|").split("|", 4)
        return Turn(
            number=int(number),
            outcome=outcome,
            position=int(position),
            revision=int(revision),
            spare=spare == "1",
            given=_parse_given(entry) if kind and rest else None,
            answers=int(answers or 0),
            status=Status(status or Status.ARRIVED),
        )

    def entry(self, choice: tuple[str, float], token: str, *, now_ms: int, may_pass: bool) -> str:
        """Return how the turn is stored, but for the query. One that may not be passed over
        is given until it is answered.
        """
        kind = "G" if may_pass else "L"
        sampler, probability = choice
        return f"{kind}|{self.position}|{self.revision}|{int(self.spare)}|{token}|{now_ms}|{sampler}|{probability!r}|"


class Choice(NamedTuple):
    """How the store chooses the query of a turn: a script with its keys and arguments."""

    turn: Turn
    script: str
    keys: Sequence[str]
    arguments: Sequence[str | int]


def _parse_given(entry: str) -> GivenQuery:
    if entry == "gone":
        raise gone()
    *_, nonce, served_ms, sampler, probability, element = entry.split("|", 8)
    return GivenQuery(sampler, float(probability), nonce, int(served_ms), decode_query(element))


@dataclass(frozen=True)
class Numbers:
    """The numbers of a participant's turns: those that are not over, and the one that begins next."""

    open: tuple[int, ...]
    next: int


def take_query(
    experiment: str, participant: str, sampler: str, turn: Turn, *, token: str, probability: float, now_ms: int
) -> Choice:
    """Take the best published query for this participant's turn; none when the list holds none."""
    keys = Keys(experiment)
    names = (
        keys.queries(sampler),
        keys.asked(participant),
        keys.pending(sampler),
        keys.participant(participant),
        keys.given(participant),
    )
    entry = turn.entry((sampler, probability), token, now_ms=now_ms, may_pass=True)
    return Choice(turn, TAKE_QUERY, names, (token, now_ms, MOST_LOOKED_AT, turn.number, entry))


def remember_query(
    experiment: str,
    participant: str,
    sampler: str,
    candidates: Sequence[Query],
    turn: Turn,
    *,
    token: str,
    probability: float,
    now_ms: int,
    may_pass: bool = True,
    pending: bool = False,
    unseen: bool = False,
) -> Choice:
    """Give the turn the first candidate that the participant has not seen.

    Where it is `pending` it stands in for one of the sampler's, and is counted as a fallback. Where they have seen
    each, it is the first of all, or none if only an `unseen` one is wanted.
    """
    keys = Keys(experiment)
    names = [keys.asked(participant), keys.participant(participant), keys.state, keys.given(participant)]
    if pending:
        names.append(keys.pending(sampler))
    arguments = (
        token,
        now_ms,
        f"fallbacks:{sampler}" if pending else "",
        turn.number,
        turn.entry((sampler, probability), token, now_ms=now_ms, may_pass=may_pass),
        int(unseen),
        *(encode_query(query) for query in candidates),
    )
    return Choice(turn, REMEMBER_QUERY, names, arguments)


class Turns(Verbs):
    """Verbs about turns and their queries."""

    async def begin_turn(
        self,
        experiment: str,
        participant: str,
        *,
        now_ms: int,
        number: int = 0,
        spare: bool = False,
        skipped: Sequence[int] = (),
        ends_after: int = 0,
        listed_until: int = 0,
        expected: tuple[str, str] = ("", ""),
        foreseen: Choice | None = None,
    ) -> Turn:
        """Begin the turn of this number, or find what it was given (atomic); 0 begins the next.

        The turns in `skipped` are over without an answer. The trials end with the answer number `ends_after`
        (0: with none), and not before the place `listed_until` in the order. Where a session (`*` for any) and the
        experiment's `tag` are `expected`, nothing happens unless both are as they are in the store, and the participant
        is active. The query is chosen at the same time where the turn is the `foreseen` one; where it is another, or
        the store finds no query, none is given yet.
        """
        keys = Keys(experiment)
        script, names = BEGIN_TURN, (keys.participant(participant), keys.given(participant), keys.state)
        arguments = (number, int(spare), now_ms, MOST_OPEN, max(0, ends_after), listed_until, *expected, *skipped)
        if foreseen is not None:
            turn, choose, more_names, more = foreseen
            script, names = begin_and_choose(BEGIN_TURN, choose), (*names, *more_names)
            arguments = (len(arguments), turn.position, turn.revision, *arguments, *more)
        reply = await self._connection.run(script, names, arguments)
        if reply is None:
            raise gone()
        return Turn.parse(reply)

    async def end_turn(self, experiment: str, participant: str, number: int) -> None:
        """Note that a turn is over, because its query was made up by whoever answers it."""
        keys = Keys(experiment)
        await self._change((keys.participant(participant),), (("HSET", keys.given(participant), number, ""),))

    async def read_numbers(self, experiment: str, participant: str) -> Numbers:
        """Return which turns a page may ask for."""
        keys = Keys(experiment)
        (turns, top, settled), given = await self._connection.together(
            lambda pipeline: (
                pipeline.hmget(keys.participant(participant), ["turns", "top", "settled"]),
                pipeline.hgetall(keys.given(participant)),
            )
        )
        last = int(top or turns or 0)
        unanswered = {int(number) for number, entry in given.items() if entry} - {0}
        if settled is not None:  # of an earlier version, which kept no entry for a number that was passed over
            unanswered |= {number for number in range(int(settled) + 1, last + 1) if str(number) not in given}
        return Numbers(tuple(sorted(unanswered)), last + 1)

    async def count_due(self, experiment: str, participant: str, *, ends_after: int) -> int:
        """Return how many of the queries that must not be passed over are still to be
        answered before the trials end.
        """
        given: dict[str, str] = await self._connection.do(
            lambda client: client.hgetall(Keys(experiment).given(participant))
        )
        parts = [entry.split("|", 4) for entry in given.values() if entry not in {"", "?"}]
        return sum(kind != "G" and spare == "0" and int(place) <= ends_after for kind, place, _, spare, *_ in parts)

    async def count_turn(self, experiment: str, participant: str, sampler: str) -> int:
        """Count one more query of a sampler for this participant (atomic); return how many came before it."""
        key = Keys(experiment).participant(participant)
        (counted,) = await self._change((key,), (("HINCRBY", key, f"turns:{sampler}", 1),))
        return int(counted) - 1

    async def count_anonymous_turn(self, experiment: str) -> tuple[int, str]:
        """Count one more query that is given to nobody in particular; return its number,
        from 1, and the experiment's tag.
        """
        keys = Keys(experiment)
        counted, state = await self._change(
            (keys.state,),
            (
                ("HINCRBY", keys.participant(NOBODY), "turns", 1),
                ("HMGET", keys.state, "state", "revision", "ended_by"),
            ),
        )
        return int(counted), "|".join(part or "" for part in state)

    async def peek_queries(self, experiment: str, sampler: str, count: int) -> list[Query]:
        """Return the best published queries of a sampler, which stay where they are."""
        elements = await self._connection.call("LRANGE", Keys(experiment).queries(sampler), 0, count - 1)
        return [decode_query(element) for element in elements]

    async def choose(self, choice: Choice) -> GivenQuery | None:
        """Give a turn its query (atomic); None where the store finds none."""
        entry = await self._connection.run(choice.script, choice.keys, choice.arguments)
        return _parse_given(entry) if entry else None

    async def mark_asked(self, experiment: str, participant: str, queries: Iterable[str]) -> None:
        """Remember that a participant will be asked the queries of these keys, so that no published one is the same."""
        key = Keys(experiment).asked(participant)
        await self._connection.do(lambda client: client.sadd(key, *queries))

    async def withdraw_query(self, experiment: str, sampler: str, query: Query) -> None:
        """Take a published query out of its list, because somebody has answered it."""
        await self._connection.do(lambda client: client.lrem(Keys(experiment).queries(sampler), 1, encode_query(query)))

    async def claim(self, experiment: str, asker: str, token: str, participant: str) -> str:
        """Return whose a token is that was given to `asker` for whoever answers it: the first who does."""
        keys = Keys(experiment)
        key = keys.answered(asker)
        _, holder = await self._change((keys.state,), (("HSETNX", key, token, participant), ("HGET", key, token)))
        return str(holder)
