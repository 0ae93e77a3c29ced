"""Participants in the store: who arrived, how far they are, and which queries they were given.

The hash of a participant is parsed here, once, into a `Participant`; everything that writes to it is a verb of
`Participants` with typed arguments.

An experimenter who tries an experiment out is a participant of a kind of their own (`salmon.wire.keys.is_tryout`).
What the steps need to know of them is forgotten after some hours; their answers are confirmed and never reach the log,
and no counter moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, cast

from frontend.store.answers import MINUTE_MS
from frontend.store.connection import Verbs
from frontend.store.lua import REMEMBER_QUERY, TAKE_QUERY
from salmon.quality import Decision, Verdict
from salmon.records import Query
from salmon.wire import EVENTS_KEPT, Keys, StoredVerdicts, decode_json, decode_query, encode_json
from salmon.wire.keys import draw_participant_id

#: What is known of somebody who tries an experiment out is forgotten after this time.
KEPT_SECONDS = 6 * 3600
#: Elements of a list that are looked at to find a query this participant has not seen.
MOST_LOOKED_AT = 4096
#: Prefix of the fields in which the parameters of a participant's link are kept.
_ARRIVED = "arrived:"

Source = Literal["link", "prolific", "connect", "sona", "mturk"]
#: Whom the experimenter keeps: `auto` leaves it to the proposal.
Keep = Literal["keep", "exclude", "auto"]
Values = dict[str, str | int]


class Status(StrEnum):
    """How far a participant is."""

    ARRIVED = "arrived"
    CONSENTED = "consented"
    TRAINING = "training"
    ACTIVE = "active"
    COMPLETED = "completed"
    REDIRECTED = "redirected"
    DECLINED = "declined"
    SCREENED_OUT = "screened_out"
    REPLACED = "replaced"

    def becomes(self, wanted: Status) -> Status:
        """Return the status after a step that leads to `wanted`: the same as before where no way leads there."""
        return wanted if wanted in TRANSITIONS[self] else self


_BEFORE_TRIALS = frozenset(
    {Status.ARRIVED, Status.CONSENTED, Status.TRAINING, Status.ACTIVE, Status.DECLINED, Status.SCREENED_OUT}
)
_REFUSED = frozenset({Status.DECLINED, Status.SCREENED_OUT})
#: The statuses that may follow each. Whoever agrees to a new text in the middle of the trials stays active, but may still
#: decline it.
TRANSITIONS: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.ARRIVED: _BEFORE_TRIALS,
        Status.CONSENTED: _BEFORE_TRIALS,
        Status.TRAINING: _BEFORE_TRIALS,
        Status.ACTIVE: frozenset({Status.ACTIVE, Status.COMPLETED, Status.REPLACED}) | _REFUSED,
        Status.COMPLETED: frozenset({Status.COMPLETED, Status.REDIRECTED}) | _REFUSED,
        Status.REDIRECTED: frozenset({Status.REDIRECTED}) | _REFUSED,
        Status.DECLINED: frozenset(),
        Status.SCREENED_OUT: frozenset(),
        Status.REPLACED: frozenset(),
    }
)
#: Statuses from which there is no way on.
OUT = frozenset(status for status, following in TRANSITIONS.items() if not following)
#: Statuses of participants whose answers are all stored and who have been shown the way out.
FINISHED = frozenset({Status.COMPLETED, Status.REDIRECTED})
#: Statuses in which the experiment's queries are served and answers count towards the end.
UNDER_WAY = FINISHED | {Status.ACTIVE}


@dataclass(frozen=True)
class Participant:
    """A participant as the store knows them.

    `steps` says when each step was done, in Unix milliseconds; `consents` when each version of the text was agreed to;
    `attempts` are the options chosen at each attempt of the comprehension questions; `companions` are parameters of the
    link; `practice` is the JSON of the practice trials, and `replies` are the texts of the replies to the questions.
    `turns` counts the queries given, of which `spares` stand outside of the experiment's order. `given_unsaved` is how
    many answers the page says were given, where it could not bring all across. `keep` is the experimenter's decision.

    `stored` is false for somebody of whom the store has nothing but answers.
    """

    id: str
    puid: str = ""
    source: str = ""
    status: Status = Status.ARRIVED
    session: str = ""
    language: str = ""
    first_ms: int = 0
    seen_ms: int = 0
    last_ms: int = 0
    completed_ms: int = 0
    answers: int = 0
    turns: int = 0
    spares: int = 0
    given_unsaved: int | None = None
    keep: str = ""
    keep_note: str = ""
    keep_by: str = ""
    keep_ms: int = 0
    practice: str = ""
    stored: bool = True
    steps: Mapping[str, int] = field(default_factory=dict[str, int])
    consents: Mapping[str, int] = field(default_factory=dict[str, int])
    attempts: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    companions: Mapping[str, str] = field(default_factory=dict[str, str])
    replies: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def position(self) -> int:
        """How many queries of the experiment's order were given."""
        return self.turns - self.spares

    def decision(self, verdict: Verdict | None) -> Decision:
        """Return whether they are kept: as the experimenter decided, or else as the verdict on them proposes."""
        manual = self.keep if self.keep in {"keep", "exclude"} else ""
        return Decision(verdict, manual, self.keep_note, self.keep_by, self.keep_ms)

    @property
    def has_begun(self) -> bool:
        """Whether anything was done since the link was opened first."""
        return self.answers > 0 or bool(self.steps)

    def after(self, change: StepChange) -> Participant:
        """Return the participant as they are once a step's change is stored."""
        return replace(
            self,
            status=change.status,
            steps={**self.steps, change.step: change.at_ms} if change.step else self.steps,
            consents={**self.consents, change.consent.version: change.consent.agreed_ms}
            if change.consent
            else self.consents,
            attempts={**self.attempts, change.attempt.number: change.attempt.options}
            if change.attempt
            else self.attempts,
            practice=self.practice if change.practice is None else encode_json(change.practice),
            replies={**self.replies, **{name: str(reply) for name, reply in change.replies.items()}},
        )

    def encode(self) -> dict[str, str]:
        """Return the fields of the hash of somebody whose answers were imported without anything else about them."""
        return {
            "puid": self.puid,
            "source": self.source,
            "status": self.status.value,
            **{name: str(getattr(self, name)) for name in ("first_ms", "last_ms", "turns", "answers")},
        }

    @staticmethod
    def parse(identifier: str, fields: Mapping[str, str]) -> Participant:
        """Return the participant of a hash; of one that is not there, a participant without fields."""
        steps: dict[str, int] = {}
        consents: dict[str, int] = {}
        attempts: dict[int, tuple[str, ...]] = {}
        companions: dict[str, str] = {}
        replies: dict[str, str] = {}
        for name, value in fields.items():
            kind, _, rest = name.partition(":")
            if kind == "step":
                steps[rest] = int(value)
            elif kind == "consent":
                consents[rest] = int(decode_json(value).get("agreed_ms", 0))
            elif kind == "comprehension":
                attempts[int(rest)] = tuple(decode_json(value)["options"])
            elif kind == "arrived":
                companions[rest] = value
            elif kind == "question":
                replies[rest] = str(decode_json(value))
        unsaved = fields.get("save_incomplete")
        return Participant(
            id=identifier,
            puid=fields.get("puid", ""),
            source=fields.get("source", ""),
            status=Status(fields.get("status") or Status.ARRIVED),
            session=fields.get("session", ""),
            language=fields.get("language", ""),
            given_unsaved=int(unsaved) if unsaved is not None else None,
            keep=fields.get("keep", ""),
            keep_note=fields.get("keep_note", ""),
            keep_by=fields.get("keep_by", ""),
            practice=fields.get("practice", ""),
            stored=bool(fields),
            steps=steps,
            consents=consents,
            attempts=attempts,
            companions=companions,
            replies=replies,
            **{name: int(fields[name]) for name in _WHOLE if name in fields},
        )


#: Attributes of a participant that are stored as whole numbers under their own name.
_WHOLE = ("first_ms", "seen_ms", "last_ms", "completed_ms", "answers", "turns", "spares", "keep_ms")


@dataclass(frozen=True)
class ConsentGiven:
    """The version of the text that was agreed to, when, and in which language."""

    version: str
    agreed_ms: int
    language: str


@dataclass(frozen=True)
class ComprehensionAttempt:
    """One attempt at the comprehension questions; its number is its identity, so that one sent again counts once."""

    number: int
    options: tuple[str, ...]
    right: bool


@dataclass(frozen=True)
class StepChange:
    """What carrying out a step changes of a participant.

    `step` is done at `at_ms`; it is empty where the step is not done yet, or ended the participant's part. `practice`
    is the list of its trials; `replies` are those to the questions after the trials.
    """

    status: Status
    step: str = ""
    at_ms: int = 0
    declined_ms: int | None = None
    redirected_ms: int | None = None
    consent: ConsentGiven | None = None
    attempt: ComprehensionAttempt | None = None
    practice: Sequence[Mapping[str, Any]] | None = None
    replies: Mapping[str, str | float] = field(default_factory=dict[str, str | float])

    def encode(self) -> Values:
        """Return the fields of the hash that the change sets."""
        values: Values = {"status": self.status.value}
        if self.step:
            values[f"step:{self.step}"] = self.at_ms
        if self.declined_ms is not None:
            values["declined_ms"] = self.declined_ms
        if self.redirected_ms is not None:
            values["redirected_ms"] = self.redirected_ms
        if self.consent is not None:
            values[f"consent:{self.consent.version}"] = encode_json(vars(self.consent))
        if self.attempt is not None:
            values[f"comprehension:{self.attempt.number}"] = encode_json(
                {"options": self.attempt.options, "right": self.attempt.right}
            )
        if self.practice is not None:
            values["practice"] = encode_json(self.practice)
        return values | {f"question:{name}": encode_json(reply) for name, reply in self.replies.items()}


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
    status: Status
    state: str
    revision: int


def identity_of(source: str, puid: str) -> str:
    """Return the field of the hash of arrivals: the same for the same person on the same platform."""
    return f"{source}:{puid}"


class Participants(Verbs):
    """Verbs about participants and the queries they are given."""

    async def arrive(
        self, experiment: str, source: Source, puid: str, *, now_ms: int, status: Status = Status.ARRIVED
    ) -> Participant:
        """Return the participant of a platform's id; the first arrival makes them, with this status."""
        keys, fresh, identity = Keys(experiment), draw_participant_id(), identity_of(source, puid)
        _, participant = await self._connection.together(
            lambda pipeline: (
                pipeline.hsetnx(keys.arrivals, identity, fresh),
                pipeline.hget(keys.arrivals, identity),
            )
        )
        key = keys.participant(participant)
        values = _first_values(source, puid, now_ms, status)
        replies: list[Any] = await self._connection.together(
            lambda pipeline: (
                *(pipeline.hsetnx(key, name, cast("Any", value)) for name, value in values.items()),
                pipeline.hgetall(key),
            )
        )
        return Participant.parse(participant, replies[-1])

    async def restart(
        self, experiment: str, participant: str, source: Source, puid: str, *, now_ms: int
    ) -> Participant:
        """Let a platform's id begin anew (atomic): the earlier participant keeps their answers and is `replaced`."""
        keys, fresh = Keys(experiment), draw_participant_id()
        values = _first_values(source, puid, now_ms, Status.ARRIVED)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(keys.participant(participant), "status", Status.REPLACED.value),
                pipeline.hset(keys.arrivals, identity_of(source, puid), fresh),
                pipeline.hset(keys.participant(fresh), mapping=cast("Any", values)),
            )
        )
        return Participant.parse(fresh, {name: str(value) for name, value in values.items()})

    async def read(self, experiment: str, participant: str) -> Participant | None:
        """Return a participant; None where nobody of this id has arrived."""
        key = Keys(experiment).participant(participant)
        fields: dict[str, str] = await self._connection.do(lambda client: client.hgetall(key))
        return Participant.parse(participant, fields) if "first_ms" in fields else None

    async def count(self, experiment: str) -> int:
        """Return how many participants have arrived."""
        return int(await self._connection.do(lambda client: client.hlen(Keys(experiment).arrivals)))

    async def begin_session(
        self,
        experiment: str,
        participant: str,
        session: str,
        *,
        seen_ms: int,
        language: str,
        companions: Mapping[str, str],
    ) -> None:
        """Remember the newest opening of the page, its language, and what its link says beside the participant's id."""
        values: Values = {"session": session, "seen_ms": seen_ms, "language": language}
        values |= {_ARRIVED + name: value for name, value in companions.items()}
        await self._write(experiment, participant, values)

    async def activate(self, experiment: str, participant: str) -> None:
        """Remember that a participant has begun the trials."""
        await self._write(experiment, participant, {"status": Status.ACTIVE.value})

    async def change(self, experiment: str, participant: str, change: StepChange) -> None:
        """Store what carrying out a step changes."""
        await self._write(experiment, participant, change.encode())

    async def complete(
        self, experiment: str, participant: str, *, now_ms: int, given_unsaved: int | None = None
    ) -> None:
        """Remember that a participant has finished; the first call counts them.

        `given_unsaved` is how many answers the page has given where it cannot bring all across.
        """
        keys = Keys(experiment)
        if await self._connection.do(
            lambda client: client.hsetnx(keys.participant(participant), "completed_ms", cast("Any", now_ms))
        ):
            await self._connection.do(lambda client: client.hincrby(keys.counts, f"completed:{now_ms // MINUTE_MS}", 1))
        values: Values = {"status": Status.COMPLETED.value}
        if given_unsaved is not None:
            values["save_incomplete"] = given_unsaved
        await self._write(experiment, participant, values)

    async def decide(
        self, experiment: str, participant: str, keep: Keep, *, note: str, by: str, now_ms: int
    ) -> Participant:
        """Note whether the experimenter keeps a participant (atomic with the count of such decisions)."""
        keys = Keys(experiment)
        key = keys.participant(participant)
        values = {"keep": keep, "keep_note": note, "keep_by": by, "keep_ms": str(now_ms)}
        *_, fields = await self._connection.together(
            lambda pipeline: (
                pipeline.hset(key, mapping=cast("Any", values)),
                pipeline.hincrby(keys.state, "decisions", 1),
                pipeline.hgetall(key),
            )
        )
        return Participant.parse(participant, fields)

    async def read_verdicts(self, experiment: str) -> StoredVerdicts | None:
        """Return the verdicts on the quality of participants as they were remembered; None where there are none."""
        return StoredVerdicts.decode(await self._connection.do(lambda client: client.get(Keys(experiment).quality)))

    async def remember_verdicts(self, experiment: str, verdicts: StoredVerdicts) -> None:
        """Keep the verdicts on the quality of participants, for the next who asks."""
        await self._connection.do(lambda client: client.set(Keys(experiment).quality, verdicts.encode()))

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
            status=Status(status or Status.ARRIVED),
            state=state or "",
            revision=int(revision or 0),
        )

    async def peek_queries(self, experiment: str, sampler: str, count: int) -> list[Query]:
        """Return the best published queries of a sampler, which stay where they are."""
        elements = await self._connection.do(
            lambda client: client.lrange(Keys(experiment).queries(sampler), 0, count - 1)
        )
        return [decode_query(element) for element in elements]

    async def take_query(
        self, experiment: str, participant: str, sampler: str, *, token: str, last_head: str, now_ms: int
    ) -> Query | None:
        """Take the best published query for this participant (atomic); None when the list holds none."""
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
        """Return the first candidate the participant has not seen, and remember it as seen (atomic).

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
        """Count one more query of a sampler for this participant (atomic); return how many came before it."""
        key = Keys(experiment).participant(participant)
        return int(await self._connection.do(lambda client: client.hincrby(key, f"turns:{sampler}", 1))) - 1

    async def forget_asked(self, experiment: str, participant: str) -> None:
        """Let every query be new to this participant again."""
        await self._connection.do(lambda client: client.delete(Keys(experiment).asked(participant)))

    async def claim(self, experiment: str, asker: str, token: str, participant: str) -> str:
        """Return whose a token is that was given to `asker` for whoever answers it: the first who does."""
        key = Keys(experiment).answered(asker)
        _, holder = await self._connection.together(
            lambda pipeline: (pipeline.hsetnx(key, token, participant), pipeline.hget(key, token))
        )
        return str(holder)

    async def arrive_to_try(self, experiment: str, participant: str, *, now_ms: int) -> Participant:
        """Remember somebody who tries an experiment out, for a while; no arrival is counted."""
        keys = Keys(experiment)
        names = (keys.participant(participant), keys.asked(participant), keys.answered(participant))
        values = _first_values("link", "tryout", now_ms, Status.ARRIVED)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(names[0], mapping=cast("Any", values)),
                pipeline.sadd(names[1], ""),
                pipeline.hset(names[2], "", ""),
                *(pipeline.expire(name, KEPT_SECONDS) for name in names),
            )
        )
        return Participant.parse(participant, {name: str(value) for name, value in values.items()})

    async def answer_to_try(self, experiment: str, participant: str, token: str) -> tuple[bool, int]:
        """Confirm an answer of somebody who tries; return (whether its token is new, answers so far). Nothing is logged."""
        keys = Keys(experiment)
        answered, key = keys.answered(participant), keys.participant(participant)
        fresh = bool(await self._connection.do(lambda client: client.hsetnx(answered, token, "tried")))
        count = await self._connection.do(lambda client: client.hincrby(key, "answers", int(fresh)))
        return fresh, int(count)

    async def complete_to_try(self, experiment: str, participant: str) -> None:
        """Remember that somebody who tries has finished; nothing is counted."""
        await self._write(experiment, participant, {"status": Status.COMPLETED.value})

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

    async def _write(self, experiment: str, participant: str, values: Values) -> None:
        key = Keys(experiment).participant(participant)
        await self._connection.do(lambda client: client.hset(key, mapping=cast("Any", values)))


def _first_values(source: Source, puid: str, now_ms: int, status: Status) -> Values:
    """Return what is stored of somebody who was never here before."""
    return {"puid": puid, "source": source, "first_ms": now_ms, "status": status.value}
