"""Participants in the store: who arrived, how far they are, and which queries they were given.

The hash of a participant is parsed here, once, into a `Participant`; everything that writes to it is a verb of
`Participants` with typed arguments.

An experimenter who tries an experiment out is a participant of a kind of their own (`salmon.wire.keys.is_tryout`).
What the steps need to know of them is forgotten after some hours; their answers are confirmed and never reach the log,
and no counter moves.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from frontend.errors import FullError, GoneError
from frontend.store.answers import MINUTE_MS
from frontend.store.connection import Verbs, fields_of, gone, values_of
from frontend.store.lua import ADMIT, ARRIVE, CHANGE_STATUS, CLAIM_CREDIT, COMPLETE, COUNT_PLACES
from frontend.store.places import Places, Quota
from frontend.store.statuses import FROM_PLATFORM, OUT, PlatformStatus, Status, leading_to
from frontend.store.step_changes import StepChange
from salmon.quality import Decision, Verdict
from salmon.wire import EVENTS_KEPT, Keys, StoredVerdicts, decode_json, encode_json
from salmon.wire.keys import draw_participant_id, is_tryout
from salmon.wire.values import RULES

#: What is known of somebody who tries an experiment out is forgotten after this time.
KEPT_SECONDS = 6 * 3600
#: Events kept of one participant.
EVENTS_EACH = 2_000
#: From one address so many may arrive at once, and then one in so many milliseconds: a class begins together, and a
#: program that opens the link over and over waits.
ARRIVALS_AT_ONCE = 300
ARRIVAL_MS = 20
#: Prefix of the fields in which the parameters of a participant's link are kept.
_ARRIVED = "arrived:"
#: Prefix of the fields that name the tokens of failed catch trials: a token that is noted twice counts once.
_FAILED = "failed_catch:"

Source = Literal["link", "prolific", "connect", "sona", "mturk"]
CreditState = Literal["", "asked", "granted", "refused"]
#: Whom the experimenter keeps: `auto` leaves it to the proposal.
Keep = Literal["keep", "exclude", "auto"]
#: What an experimenter has decided where it is one of these.
DECIDED = frozenset({"keep", "exclude"})
#: Participants whose decisions are read in one piece.
_UNDECIDED_PAGE = 250
Values = dict[str, str | int]


@dataclass(frozen=True)
class Participant:
    """A participant as the store knows them.

    `steps` says when each step was done, in Unix milliseconds; `consents` when each version of the text was agreed to;
    `attempts` are the options chosen at each attempt of the comprehension questions; `companions` are parameters of the
    link; `practice` is the JSON of the practice trials, and `replies` are the texts of the replies to the questions.
    `failed_catches` counts the catch trials that were answered wrongly, where something follows from that. `turns`
    counts the queries given, of which `spares` stand outside of the experiment's order. `round` is how often the same
    person has taken part before. `place` is how many arrived before. `given_unsaved` is how many answers the page says
    were given, where it could not bring all across. `platform` is what the recruitment platform said last about their
    submission, at `platform_ms`. `credit` is what became of the credit that this server asked the platform for, and
    `credit_reason` why it was not granted. `keep` is the experimenter's decision.

    `stored` is false for somebody of whom the store has nothing but answers.
    """

    id: str
    puid: str = ""
    source: str = ""
    group: str = ""
    place: int = 0
    status: Status = Status.ARRIVED
    session: str = ""
    language: str = ""
    browser: str = ""
    network: str = ""
    pasted: int = 0
    copied: int = 0
    first_ms: int = 0
    seen_ms: int = 0
    last_ms: int = 0
    completed_ms: int = 0
    answers: int = 0
    turns: int = 0
    spares: int = 0
    round: int = 0
    given_unsaved: int | None = None
    failed_catches: int = 0
    platform: PlatformStatus | None = None
    platform_ms: int = 0
    credit: CreditState = ""
    credit_reason: str = ""
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
        manual = self.keep if self.keep in DECIDED else ""
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
            group=fields.get("group", ""),
            status=Status(fields.get("status") or Status.ARRIVED),
            session=fields.get("session", ""),
            language=fields.get("language", ""),
            browser=fields.get("browser", ""),
            network=fields.get("network", ""),
            platform=PlatformStatus(fields["platform_status"]) if fields.get("platform_status") else None,
            failed_catches=sum(name.startswith(_FAILED) for name in fields),
            given_unsaved=int(unsaved) if unsaved is not None else None,
            credit=cast("CreditState", fields.get("credit", "")),
            credit_reason=fields.get("credit_reason", ""),
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
_WHOLE = (
    "first_ms",
    "seen_ms",
    "last_ms",
    "completed_ms",
    "answers",
    "turns",
    "spares",
    "keep_ms",
    "place",
    "platform_ms",
    "round",
    "pasted",
    "copied",
)


#: Events of text questions -> the field that counts them.
_COUNTED = {"paste": "pasted", "copy": "copied"}
#: The secret of the network hint is thrown away after this time.
NETWORK_KEY_SECONDS = 3 * 24 * 3600
#: The claim of a process that ended while it asked for a credit is void after this time.
CREDIT_CLAIM_MS = 60_000
#: Any number of participants.
_ANY = Quota()
#: Stands for nobody who begins anew, and for somebody who comes back.
_BACK = "+"


@dataclass(frozen=True)
class Proposals:
    """Of how many participants the exclusion was proposed and nobody had decided, as of an answer, so many decisions
    and a model (see `StoredVerdicts`).
    """

    as_of: str
    decisions: int
    model: str
    undecided: int


def identity_of(source: str, puid: str) -> str:
    """Return the field of the hash of arrivals: the same for the same person on the same platform."""
    return f"{source}:{puid}"


class Participants(Verbs):
    """Verbs about participants and the queries they are given."""

    async def arrive(
        self,
        experiment: str,
        source: Source,
        puid: str,
        *,
        now_ms: int,
        status: Status = Status.ARRIVED,
        quota: Quota = _ANY,
        comes_back: bool = False,
    ) -> Participant:
        """Return the participant of a platform's id; the first arrival makes them, with this status, if there is a
        place for them (atomic), and FullError is raised otherwise.

        Where groups have numbers of places, the participant gets the group with the largest share of free ones. Whoever
        `comes_back` after they were away for too long takes a place again.
        """
        values = _first_values(source, puid, now_ms, status)
        return await self._arrive(experiment, source, puid, values, quota, instead_of=_BACK if comes_back else "")

    async def find(self, experiment: str, source: Source, puid: str) -> Participant | None:
        """Return the participant of a platform's id; None where nobody of this id has arrived."""
        participant: str | None = await self._connection.do(
            lambda client: client.hget(Keys(experiment).arrivals, identity_of(source, puid))
        )
        return await self.read(experiment, participant) if participant else None

    async def find_earlier(self, experiment: str, source: Source, puid: str) -> list[Participant]:
        """Return the participants of a platform's id who have taken part before the newest, and keep their place."""
        arrivals: dict[str, str] = await self._connection.do(lambda client: client.hgetall(Keys(experiment).arrivals))
        prefix = f"{identity_of(source, puid)}#"
        found = [
            await self.read(experiment, name) for identity, name in arrivals.items() if identity.startswith(prefix)
        ]
        return [participant for participant in found if participant is not None]

    async def restart(
        self,
        experiment: str,
        participant: str,
        source: Source,
        puid: str,
        *,
        now_ms: int,
        group: str = "",
        round_number: int = 0,
        quota: Quota = _ANY,
    ) -> Participant:
        """Let a platform's id begin anew (atomic): the earlier participant keeps their answers, and their place goes
        over to the new one. Whose part had ended keeps place and status, and the new one needs another place: else
        FullError.

        The group stays the same; `round_number` says how often this person has taken part before.
        """
        values = _first_values(source, puid, now_ms, Status.ARRIVED) | {"round": round_number}
        return await self._arrive(experiment, source, puid, values, quota, instead_of=participant, group=group)

    async def _arrive(
        self,
        experiment: str,
        source: Source,
        puid: str,
        values: Values,
        quota: Quota,
        *,
        instead_of: str = "",
        group: str = "",
    ) -> Participant:
        keys, fresh = Keys(experiment), draw_participant_id()
        reply = await self._connection.run(
            ARRIVE,
            (keys.arrivals, keys.state, keys.participant(fresh), keys.places),
            (identity_of(source, puid), fresh, instead_of, group, *quota.encode(), *fields_of(values)),
        )
        if reply is None:
            raise gone()
        if reply == "full":
            raise FullError
        known, fields = reply
        return Participant.parse(known, values_of(fields))

    async def read_places(self, experiment: str) -> Places:
        """Return who holds a place; they are counted first where nobody has counted them."""
        keys = Keys(experiment)
        found = await self._connection.do(lambda client: client.hgetall(keys.places))
        if not found:
            somebody = (keys.arrivals, keys.state, keys.participant("_"), keys.places)
            found = values_of(await self._connection.run(COUNT_PLACES, somebody, ("_",)))
        return Places.parse(found)

    async def count_places(self, experiment: str) -> Places:
        """Return how many hold a place and how many of them have finished, without who has not."""
        key = Keys(experiment).places
        held, finished = await self._connection.do(lambda client: client.hmget(key, "held", "finished"))
        if held is None:
            return await self.read_places(experiment)
        return Places(held=int(held), finished=int(finished or 0))

    async def claim_credit(self, experiment: str, participant: str, *, now_ms: int) -> bool:
        """Return whether this caller is to ask for a participant's credit (atomic): nobody has, or it was cut short."""
        key = Keys(experiment).participant(participant)
        return bool(await self._connection.run(CLAIM_CREDIT, (key,), (now_ms, CREDIT_CLAIM_MS)))

    async def note_credit(self, experiment: str, participant: str, *, granted: bool, reason: str) -> None:
        """Note what became of a credit."""
        key = Keys(experiment).participant(participant)
        values = ("credit", "granted" if granted else "refused", "credit_reason", reason)
        await self._change((key,), (("HSET", key, *values),))

    async def abandon(self, experiment: str, participant: str) -> None:
        """Remember that a participant was away for too long: somebody else may come in
        their stead, and they may go on.
        """
        await self._write(experiment, participant, {}, Status.ABANDONED)

    async def withdraw(self, experiment: str, participant: str, *, now_ms: int) -> Status:
        """Remember that a participant has withdrawn; return their status afterwards. The answers are kept."""
        status, _ = await self._write(experiment, participant, {"withdrawn_ms": now_ms}, Status.WITHDRAWN)
        return status

    async def read(self, experiment: str, participant: str) -> Participant | None:
        """Return a participant; None where nobody of this id has arrived."""
        key = Keys(experiment).participant(participant)
        fields = values_of(await self._connection.call("HGETALL", key))
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
        browser: str,
        network: str,
        group: str,
        companions: Mapping[str, str],
    ) -> None:
        """Remember the newest opening of the page, its language, the browser that began, the mark of its network, the
        group, and what its link says beside the participant's id.
        """
        values: Values = {"session": session, "seen_ms": seen_ms, "language": language, "browser": browser}
        values |= {"group": group} if group else {}
        values |= {"network": network} if network else {}
        values |= {_ARRIVED + name: value for name, value in companions.items()}
        await self._write(experiment, participant, values)

    async def activate(self, experiment: str, participant: str) -> None:
        """Remember that a participant has begun the trials."""
        await self._write(experiment, participant, {}, Status.ACTIVE)

    async def change(self, experiment: str, participant: str, change: StepChange) -> None:
        """Store what carrying out a step changes (atomic). A status that cannot follow the
        one at this moment is left out.
        """
        await self._write(experiment, participant, change.encode(), change.status)

    async def note_platform_status(self, experiment: str, participant: str, status: PlatformStatus, at_ms: int) -> bool:
        """Store what a platform says about a participant's submission, with the status that follows here and the places
        that this frees (atomic); return whether it was stored.

        What the platform said before `at_ms` is replaced; something older than what is stored changes nothing, so that
        messages may come late and more than once. Answers are kept, whatever the platform says.
        """
        values: Values = {"platform_status": status.value, "platform_ms": at_ms}
        _, stored = await self._write(experiment, participant, values, FROM_PLATFORM.get(status), platform_ms=at_ms)
        return stored

    async def note_failed_catch(self, experiment: str, participant: str, token: str) -> Participant:
        """Note the token of a failed catch trial; return the participant with all that they have failed (atomic)."""
        key = Keys(experiment).participant(participant)
        _, fields = await self._connection.together(
            lambda pipeline: (pipeline.hset(key, f"{_FAILED}{token}", "1"), pipeline.hgetall(key))
        )
        return Participant.parse(participant, fields)

    async def complete(
        self, experiment: str, participant: str, *, now_ms: int, given_unsaved: int | None = None
    ) -> int:
        """Remember that a participant has finished; return how many have who hold a place. The first call counts them.

        `given_unsaved` is how many answers the page has given where it cannot bring all across.
        """
        keys = Keys(experiment)
        values: Values = {} if given_unsaved is None else {"save_incomplete": given_unsaved}
        done = await self._connection.run(
            COMPLETE,
            (keys.participant(participant), keys.counts, keys.places),
            (now_ms, f"completed:{now_ms // MINUTE_MS}", _words(OUT), participant, *fields_of(values)),
        )
        if done is None:
            raise gone()
        return int(done)

    async def decide(
        self, experiment: str, decisions: Mapping[str, tuple[Keep, str]], *, by: str, now_ms: int
    ) -> list[Participant]:
        """Note whom the experimenter keeps, with a note for each (atomic with the count of such decisions)."""
        keys = Keys(experiment)
        written = (
            (
                "HSET",
                keys.participant(participant),
                *fields_of({"keep": keep, "keep_note": note, "keep_by": by, "keep_ms": now_ms}),
            )
            for participant, (keep, note) in decisions.items()
        )
        found = await self._change(
            (keys.state,),
            (
                *written,
                ("HINCRBY", keys.state, "decisions", len(decisions)),
                *(("HGETALL", keys.participant(participant)) for participant in decisions),
            ),
        )
        return [
            Participant.parse(participant, values_of(fields))
            for participant, fields in zip(decisions, found[-len(decisions) :], strict=True)
        ]

    async def read_verdicts(self, experiment: str) -> StoredVerdicts | None:
        """Return the verdicts on the quality of participants as they were remembered; None where there are none."""
        return StoredVerdicts.decode(await self._connection.do(lambda client: client.get(Keys(experiment).quality)))

    async def remember_verdicts(self, experiment: str, verdicts: StoredVerdicts) -> None:
        """Keep the verdicts on the quality of participants, for the next who asks, and in short what they propose."""
        keys, names = Keys(experiment), verdicts.proposed
        short: dict[str, str | int] = {
            "rules": RULES,
            "as_of": verdicts.as_of,
            "decisions": verdicts.decisions,
            "model": verdicts.model,
            "undecided": await self._count_undecided(experiment, names),
            "names": encode_json(names),
        }
        await self._connection.together(
            lambda pipeline: (
                pipeline.set(keys.quality, verdicts.encode()),
                pipeline.hset(keys.proposed, mapping=cast("Any", short)),
            )
        )

    async def read_proposals(self, experiment: str) -> Proposals | None:
        """Return what follows from the verdicts that were remembered, without reading them; None if there are none."""
        key, names = Keys(experiment).proposed, ("rules", "as_of", "decisions", "model", "undecided")
        found: list[str | None] = await self._connection.do(lambda client: client.hmget(key, *names))
        rules, as_of, decisions, model, undecided = (value or "" for value in found)
        return Proposals(as_of, int(decisions), model, int(undecided)) if rules == str(RULES) else None

    async def count_undecided(self, experiment: str) -> int:
        """Count anew of how many participants the exclusion is proposed and nobody has decided."""
        names = await self._connection.do(lambda client: client.hget(Keys(experiment).proposed, "names"))
        return await self._count_undecided(experiment, decode_json(names or "[]"))

    async def _count_undecided(self, experiment: str, proposed: Sequence[str]) -> int:
        keys, count = Keys(experiment), 0
        for start in range(0, len(proposed), _UNDECIDED_PAGE):
            page = proposed[start : start + _UNDECIDED_PAGE]
            found: list[list[str | None]] = await self._connection.together(
                lambda pipeline, page=page: [pipeline.hmget(keys.participant(name), "puid", "keep") for name in page]
            )
            count += sum(puid is not None and keep not in DECIDED for puid, keep in found)
        return count

    async def admit(self, experiment: str, address: str, *, now_ms: int) -> int:
        """Count an arrival from an address; return 0, or how many milliseconds it has to wait because so many came."""
        return int(
            await self._connection.run(
                ADMIT, (Keys(experiment).arriving(address),), (now_ms, ARRIVAL_MS, ARRIVALS_AT_ONCE)
            )
        )

    async def mark_network(self, experiment: str, address: str) -> str:
        """Return a mark of a network address, equal for equal addresses for up to three days and then never again.

        The mark is a keyed digest. Its key is drawn at random for each experiment and expires, so that nobody can find
        the address by trying all of them, or compare marks of different experiments.
        """
        key = Keys(experiment).network_key
        _, secret = await self._connection.together(
            lambda pipeline: (
                pipeline.set(key, secrets.token_hex(32), nx=True, ex=NETWORK_KEY_SECONDS),
                pipeline.get(key),
            )
        )
        return hmac.new(bytes.fromhex(secret), address.encode(), hashlib.sha256).hexdigest()[:16]

    async def arrive_to_try(
        self, experiment: str, participant: str, source: Source, puid: str, *, now_ms: int, group: str = ""
    ) -> Participant:
        """Remember somebody who tries an experiment out, for a while, with ids that are
        made up; no arrival is counted.
        """
        keys = Keys(experiment)
        names = keys.of_participant(participant)
        values = _first_values(source, puid, now_ms, Status.ARRIVED)
        if group:
            values["group"] = group
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(names[0], mapping=cast("Any", values)),
                pipeline.sadd(names[1], ""),
                pipeline.hset(names[2], "", ""),
                pipeline.hset(names[3], "0", ""),
                *(pipeline.expire(name, KEPT_SECONDS) for name in names),
            )
        )
        return Participant.parse(participant, {name: str(value) for name, value in values.items()})

    async def answer_to_try(self, experiment: str, participant: str, token: str, number: int) -> tuple[bool, int]:
        """Confirm an answer of somebody who tries; return (whether its token is new,
        answers so far). Nothing is logged.
        """
        keys = Keys(experiment)
        answered, key = keys.answered(participant), keys.participant(participant)
        (fresh,) = await self._change((key,), (("HSETNX", answered, token, "tried"),))
        count, _ = await self._change(
            (key,), (("HINCRBY", key, "answers", fresh), ("HSET", keys.given(participant), number, ""))
        )
        return bool(fresh), int(count)

    async def skip_trials_to_try(self, experiment: str, participant: str, *, answers: int) -> None:
        """Let somebody who tries count as one who has given so many answers."""
        await self._write(experiment, participant, {"answers": answers})

    async def complete_to_try(self, experiment: str, participant: str) -> None:
        """Remember that somebody who tries has finished; nothing is counted."""
        key = Keys(experiment).participant(participant)
        await self._change((key,), (("HSET", key, "status", Status.COMPLETED.value),))

    async def add_events(
        self, experiment: str, participant: str, events: Sequence[dict[str, str]], *, unloaded: Sequence[int] = ()
    ) -> None:
        """Append what happened on a page; the oldest events go when there are too many.

        What one participant sends beyond their share is counted and not kept, so that nobody pushes others' events out.
        `unloaded` are the targets whose files could not be loaded; they are counted as long as events are kept.
        """
        keys = Keys(experiment)
        key = keys.participant(participant)
        with suppress(GoneError):  # erased: their page is still open
            seen = Counter(event["event"] for event in events)
            counted = [("HINCRBY", key, field, seen[name]) for name, field in _COUNTED.items() if seen[name]]
            (sent, *_) = await self._change((key,), (("HINCRBY", key, "events", len(events)), *counted))
            kept = events[: max(0, EVENTS_EACH - (int(sent) - len(events)))]
            appended = ("XADD", keys.events, "MAXLEN", "~", EVENTS_KEPT, "*", "participant", participant)
            failed = [("HINCRBY", keys.counts, f"load_failed:{target}", 1) for target in unloaded] if kept else []
            await self._change((key,), [*((*appended, *fields_of(event)) for event in kept), *failed])

    async def read_recent_events(self, experiment: str, *, since_ms: int, most: int) -> list[dict[str, str]]:
        """Return what pages reported since a time (Unix ms): the newest of it, no more than `most`."""
        key = Keys(experiment).events
        found: list[tuple[str, dict[str, str]]] = await self._connection.do(
            lambda client: client.xrevrange(key, min=str(since_ms), count=most)
        )
        return [event for _, event in found]

    async def _write(
        self,
        experiment: str,
        participant: str,
        values: Values,
        wanted: Status | None = None,
        *,
        platform_ms: int | None = None,
    ) -> tuple[Status, bool]:
        """Set fields and, where it may follow, a status, and count the places (atomic); return the status afterwards
        and whether anything was written. Somebody who tries the experiment out holds no place.
        """
        keys = Keys(experiment)
        places = () if is_tryout(participant) else (keys.places,)
        may_follow = leading_to(wanted) if wanted is not None else frozenset[Status]()
        reply = await self._connection.run(
            CHANGE_STATUS,
            (keys.participant(participant), *places),
            (
                wanted or "",
                _words(may_follow),
                participant,
                "" if platform_ms is None else platform_ms,
                *fields_of({name: value for name, value in values.items() if name != "status"}),
            ),
        )
        if reply is None:
            raise gone()
        status, written = reply
        return Status(status), bool(written)


def _words(statuses: Iterable[Status]) -> str:
    """Return statuses as scripts look them up, each between two spaces."""
    return f" {' '.join(sorted(statuses))} "


def _first_values(source: Source, puid: str, now_ms: int, status: Status) -> Values:
    """Return what is stored of somebody who was never here before."""
    return {"puid": puid, "source": source, "first_ms": now_ms, "status": status.value}
