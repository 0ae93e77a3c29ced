"""Studies at Prolific in the store: which study belongs to an experiment, what was paid for
it, and which events have come.

No token is kept here, and no id of a participant or submission: payments are known by digests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal

from frontend.errors import ConflictError
from frontend.store.connection import Verbs, gone
from frontend.store.lua import CLAIM_PAYMENT, SETTLE_PAYMENT
from salmon.wire import PROLIFIC_EVENTS, Keys, decode_json, encode_json

_STUDY, _PAYMENT, _MARK, _GROUP, _CREATING = "study", "payment:", "mark:", "group:", "creating"
#: The process that asks Prolific for statuses keeps others from it for so long.
_POLL_LOCK_S = 120
Counted = Literal["applied", "repeated", "foreign", "unknown"]


@dataclass(frozen=True)
class StudyRecord:
    """The study of an experiment as it was last seen at Prolific. `account` made it or entered it.

    `reference` names the file with the account's secret of webhooks; `counts` are the submissions by status. Amounts
    are in hundredths; `screen_outs` is what may be paid to those who fail the checks.
    """

    id: str
    account: str
    reference: str
    status: str
    places: int
    taken: int
    reward: int
    currency: str
    screen_outs: int
    seen_ms: int
    created_ms: int
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ProlificRecords:
    """All that is kept about an experiment at Prolific. Payments are (key, JSON); `marks` are mark → key and amount."""

    study: StudyRecord | None = None
    creating: str = ""
    payments: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    approved: int = 0
    bonuses: int = 0


class ProlificStudies(Verbs):
    """Verbs about studies, payments and events."""

    async def read(self, experiment: str) -> ProlificRecords:
        """Return what is kept about an experiment."""
        values: dict[str, str] = await self._connection.do(lambda client: client.hgetall(Keys(experiment).prolific))
        return _parse(values)

    async def read_study(self, experiment: str) -> StudyRecord | None:
        """Return the study of an experiment, without its payments."""
        text = await self._connection.do(lambda client: client.hget(Keys(experiment).prolific, _STUDY))
        return StudyRecord(**decode_json(text)) if text else None

    async def begin_creation(self, experiment: str, name: str) -> str:
        """Note under which internal name a study is being made; return the name that was noted first."""
        key, state = Keys(experiment).prolific, Keys(experiment).state
        _, noted = await self._change((state,), (("HSETNX", key, _CREATING, name), ("HGET", key, _CREATING)))
        return str(noted)

    async def end_creation(self, experiment: str) -> None:
        """Forget that a study is being made, because Prolific has refused it."""
        await self._connection.do(lambda client: client.hdel(Keys(experiment).prolific, _CREATING))

    async def write_study(self, experiment: str, record: StudyRecord) -> None:
        """Keep the study of an experiment, as it is at Prolific now."""
        key = Keys(experiment).prolific
        text = encode_json(asdict(record))
        await self._change((Keys(experiment).state,), (("HSET", key, _STUDY, text), ("HDEL", key, _CREATING)))

    async def forget_study(self, experiment: str) -> None:
        """Forget the study; what was paid for it stays known."""
        await self._connection.do(lambda client: client.hdel(Keys(experiment).prolific, _STUDY, _CREATING))

    async def read_group(self, experiment: str, workspace: str) -> str | None:
        """Return Prolific's group of the experiment's participants in a workspace."""
        return await self._connection.do(lambda client: client.hget(Keys(experiment).prolific, _GROUP + workspace))

    async def write_group(self, experiment: str, workspace: str, group: str) -> None:
        """Keep the group of the experiment's participants."""
        key = Keys(experiment).prolific
        await self._change((Keys(experiment).state,), (("HSET", key, _GROUP + workspace, group),))

    async def claim(
        self, experiment: str, key: str, payment: str, marks: Mapping[str, int], *, counter: str, more: int, most: int
    ) -> str:
        """Keep a payment before anything of it is sent (atomic); return what was kept under its key already, or "".

        ConflictError where one of its submissions was paid by another, or the counter would be above `most`.
        """
        keys = Keys(experiment)
        values = tuple(part for mark, amount in marks.items() for part in (_MARK + mark, f"{key}|{amount}"))
        reply = await self._connection.run(
            CLAIM_PAYMENT, (keys.prolific, keys.state), (_PAYMENT + key, payment, counter, more, most, *values)
        )
        if reply is None:
            raise gone()
        outcome, content = reply
        if outcome == "marked":
            raise ConflictError(
                "Some of these were paid by another payment meanwhile.",
                hint="Nothing was paid. Look at the list again.",
            )
        if outcome == "limit":
            raise ConflictError(
                "Together with another payment this would be above spend_at_most.", hint="Nothing was paid. Look again."
            )
        return content

    async def settle(
        self,
        experiment: str,
        key: str,
        *,
        before: str,
        after: str,
        released: Sequence[str] = (),
        counter: str = "",
        less: int = 0,
    ) -> bool:
        """Change a payment and return whether it was still as it was `before` (atomic).

        The marks that are `released` may be paid again, and the counter goes back by `less`.
        """
        names = tuple(_MARK + mark for mark in released)
        script = SETTLE_PAYMENT, (Keys(experiment).prolific,), (_PAYMENT + key, before, after, counter, less, *names)
        return bool(await self._connection.run(*script))

    async def claim_event(self, reference: str, identifier: str, *, seconds: int) -> bool:
        """Remember that an event has come, and return whether it is the first time (atomic)."""
        key = _event_key(reference, identifier)
        return bool(await self._connection.do(lambda client: client.set(key, "1", nx=True, ex=seconds)))

    async def release_event(self, reference: str, identifier: str) -> None:
        """Forget an event that could not be applied: Prolific sends it again."""
        await self._connection.do(lambda client: client.delete(_event_key(reference, identifier)))

    async def count_event(self, reference: str, what: Counted) -> None:
        """Count an event by what became of it."""
        await self._connection.do(lambda client: client.hincrby(PROLIFIC_EVENTS, f"{reference}:{what}", 1))

    async def read_event_counts(self, reference: str) -> dict[str, int]:
        """Return how many events of an account have come, by what became of them."""
        values: dict[str, str] = await self._connection.do(lambda client: client.hgetall(PROLIFIC_EVENTS))
        named = {name.partition(":")[2]: int(count) for name, count in values.items() if name.startswith(reference)}
        return dict(sorted(named.items()))

    async def forget_events(self, reference: str) -> None:
        """Forget the counts of an account."""
        fields = [f"{reference}:{what}" for what in ("applied", "repeated", "foreign", "unknown")]
        await self._connection.do(lambda client: client.hdel(PROLIFIC_EVENTS, *fields))

    async def lock_polling(self, owner: str) -> bool:
        """Return whether `owner` is the one process that asks Prolific for statuses now."""
        key = f"{PROLIFIC_EVENTS}:polling"
        return bool(await self._connection.do(lambda client: client.set(key, owner, nx=True, ex=_POLL_LOCK_S)))

    async def unlock_polling(self) -> None:
        """Let another process ask."""
        await self._connection.do(lambda client: client.delete(f"{PROLIFIC_EVENTS}:polling"))


def _event_key(reference: str, identifier: str) -> str:
    return f"{PROLIFIC_EVENTS}:{reference}:{sha256(identifier.encode()).hexdigest()[:32]}"


def _parse(values: Mapping[str, str]) -> ProlificRecords:
    study: dict[str, Any] | None = decode_json(values[_STUDY]) if _STUDY in values else None
    return ProlificRecords(
        study=StudyRecord(**study) if study else None,
        creating=values.get(_CREATING, ""),
        payments={name[len(_PAYMENT) :]: text for name, text in values.items() if name.startswith(_PAYMENT)},
        marks={name[len(_MARK) :]: text for name, text in values.items() if name.startswith(_MARK)},
        approved=int(values.get("approved", 0)),
        bonuses=int(values.get("bonuses", 0)),
    )
