"""Find, read and erase what the store holds about one person, and about deleted experiments.

These verbs need a connection of the user `eraser`, who alone may list keys and remove answers. Removing answers is the
one exception to the append-only log: ids of the other answers stay as they are, so cursors keep their meaning, and the
counters move in the same call. Every verb can be carried out again after a crash in the middle.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from frontend.store.answers import MINUTE_MS, counters_of
from frontend.store.connection import Verbs
from frontend.store.experiments import OWN_FIELDS
from frontend.store.lua import COPY_ENTRIES, ERASE_ANSWER, ERASE_PARTICIPANT, REPLACE_STREAM
from frontend.store.participants import identity_of
from salmon.errors import StoreError
from salmon.wire import (
    ERASING,
    ERASURES,
    REQUESTS,
    Keys,
    change_answer,
    decode_answer,
    decode_json,
    encode_json,
    request,
)

#: Keys looked through, and entries read, in one piece.
_KEYS_PAGE = 2000
_PAGE = 1000
#: How long a rewrite of the append-only file may take, and how often its end is looked for.
_REWRITE_SECONDS = 3600.0
_LOOK_SECONDS = 0.1
_MOMENTS = ("first_ms", "seen_ms", "last_ms", "completed_ms")
#: The source of those in whose place nobody can be found.
ERASED = "erased"

Entry = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class StoredPerson:
    """Everything that the store holds about one participant of an experiment; `identities` are fields of `arrivals`."""

    experiment: str
    participant: str
    identities: tuple[str, ...]
    fields: Mapping[str, str]
    asked: tuple[str, ...]
    answered: Mapping[str, str]
    given: Mapping[str, str]
    answers: tuple[Entry, ...]
    events: tuple[Entry, ...]
    changes: tuple[Entry, ...]
    requests: tuple[str, ...]


class People(Verbs):
    """Verbs about one person, and about what is left of experiments."""

    async def find(self, experiment: str, name: str) -> tuple[str, ...]:
        """Return the participants of whom a platform id, participant id, session or parameter of the link is `name`.

        Earlier participants of the same platform id, who were replaced, are among them.
        """
        keys = Keys(experiment)
        found: list[str] = []
        prefix = keys.participant("")
        async for page in self._scan(f"{prefix}*"):
            names = [key.removeprefix(prefix) for key in page if ":" not in key.removeprefix(prefix)]
            hashes: list[dict[str, str]] = await self._connection.together(
                lambda pipeline, names=names: [pipeline.hgetall(keys.participant(each)) for each in names]
            )
            found += [each for each, fields in zip(names, hashes, strict=True) if each == name or _names(fields, name)]
        if name not in found and (await self._answers_of(experiment, name) or await self._events_of(experiment, name)):
            found.append(name)
        return tuple(sorted(set(found)))

    async def read(self, experiment: str, participant: str) -> StoredPerson:
        """Return everything about one participant."""
        keys = Keys(experiment)
        fields, asked, answered, given, arrivals, changes = await self._connection.together(
            lambda pipeline: (
                pipeline.hgetall(keys.participant(participant)),
                pipeline.smembers(keys.asked(participant)),
                pipeline.hgetall(keys.answered(participant)),
                pipeline.hgetall(keys.given(participant)),
                pipeline.hgetall(keys.arrivals),
                pipeline.xrange(keys.changes),
            )
        )
        needles = {participant, fields.get("puid") or participant}
        return StoredPerson(
            experiment,
            participant,
            tuple(identity for identity, known in arrivals.items() if known == participant),
            fields,
            tuple(sorted(asked)),
            answered,
            given,
            tuple(await self._answers_of(experiment, participant)),
            tuple(await self._events_of(experiment, participant)),
            tuple((at, entry) for at, entry in changes if any(word in needles for word in entry["detail"].split())),
            await self._requests_about(experiment, participant),
        )

    async def knows(self, name: str, experiments: Collection[str]) -> bool:
        """Return whether somebody of this platform id takes part in one of these experiments."""
        for experiment in experiments:
            if await self.find(experiment, name):
                return True
        return False

    async def erase(self, experiment: str, participant: str, *, anonymous: str) -> int:
        """Erase one participant; return how many answers were removed, or made anonymous.

        With `anonymous`, an unused id of a participant, the answers stay under this id; without it, they go, and so
        does whatever was learnt from them.
        """
        known = await self.read(experiment, participant)
        keys = Keys(experiment)
        await self._erase_participant(known, anonymous)
        if anonymous:
            await self._rename_answers(known, anonymous)
        else:
            await self._remove_answers(known)
        for key, entries in ((keys.events, known.events), (keys.changes, known.changes)):
            for start in range(0, len(entries), _PAGE):
                names = [at for at, _ in entries[start : start + _PAGE]]
                await self._connection.do(lambda client, key=key, names=names: client.xdel(key, *names))
        await self._connection.do(lambda client: client.delete(keys.quality, keys.proposed))
        await self._remove_requests(known.requests)
        if known.answers and not anonymous:
            await self.forget_models(experiment)
        return len(known.answers)

    async def compact(self, experiment: str) -> None:
        """Write the streams of an experiment anew: a removed entry stays in memory until
        all beside it are removed too.
        """
        keys = Keys(experiment)
        for key in (keys.answers, keys.events, keys.changes, REQUESTS):
            await self._write_anew(key, {})

    async def forget_models(self, experiment: str) -> None:
        """Remove everything that was learnt, and let the learning process begin again with the answers that are left.

        The fence comes first: a learning process that still knows other answers can publish nothing any more.
        """
        keys = Keys(experiment)
        await self._connection.do(lambda client: client.incrby(keys.fence, 1))
        for pattern in (keys.model("*"), keys.history("*"), keys.restored("*"), keys.queries("*")):
            await self._delete_all(pattern)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hincrby(keys.state, "erasures", 1),
                pipeline.xadd(REQUESTS, cast("Any", {"kind": "experiment", "experiment": experiment}), maxlen=10_000),
            )
        )

    async def delete_experiment(self, experiment: str) -> None:
        """Remove everything of an experiment that was deleted, its answers and models among it; nothing is left."""
        await self._remove_requests([known async for known in self._requests_of(experiment)])
        await self._write_anew(REQUESTS, {})
        await self._delete_all(f"salmon:{{{experiment}}}:*")
        entry = {"kind": "experiment", "experiment": experiment}
        await self._connection.do(lambda client: client.xadd(REQUESTS, cast("Any", entry), maxlen=10_000))

    async def rewrite_files(self) -> None:
        """Have the store write its append-only file anew, and wait for the end: what was deleted is in no file then."""
        await self._wait_for_rewrite()
        try:
            await self._connection.do(lambda client: client.bgrewriteaof())
        except StoreError as error:
            if "append only file rewriting already in progress" not in str(error):
                raise
        await self._wait_for_rewrite()

    async def read_erasures(self) -> dict[str, dict[str, Any]]:
        """Return all erasures, by id."""
        found: dict[str, str] = await self._connection.do(lambda client: client.hgetall(ERASURES))
        return {identifier: decode_json(text) for identifier, text in found.items()}

    async def lock(self, owner: str, *, lives_seconds: int) -> bool:
        """Return whether `owner` holds the lock of the eraser, which is taken or kept for so many seconds."""
        if not await self._connection.do(lambda client: client.set(ERASING, owner, nx=True, ex=lives_seconds)):
            if await self._connection.do(lambda client: client.get(ERASING)) != owner:
                return False
            await self._connection.do(lambda client: client.expire(ERASING, lives_seconds))
        return True

    async def unlock(self) -> None:
        """Give the lock back."""
        await self._connection.do(lambda client: client.delete(ERASING))

    async def remove_erasure(self, identifier: str) -> None:
        """Forget an erasure."""
        await self._connection.do(lambda client: client.hdel(ERASURES, identifier))

    async def last_seen(self, experiment: str) -> dict[str, int]:
        """Return the participants whose platform ids are stored, with the time of what they did last (Unix ms)."""
        keys = Keys(experiment)
        found: dict[str, int] = {}
        prefix = keys.participant("")
        async for page in self._scan(f"{prefix}*"):
            names = [key.removeprefix(prefix) for key in page if ":" not in key.removeprefix(prefix)]
            hashes: list[dict[str, str]] = await self._connection.together(
                lambda pipeline, names=names: [pipeline.hgetall(keys.participant(each)) for each in names]
            )
            for each, fields in zip(names, hashes, strict=True):
                if fields.get("source", ERASED) != ERASED:
                    found[each] = max(int(fields.get(name) or 0) for name in _MOMENTS)
        return found

    async def forget_ids(self, experiment: str, participant: str) -> None:
        """Remove the platform id of a participant and the parameters of their link; everything else stays."""
        keys = Keys(experiment)
        fields, arrivals = await self._connection.together(
            lambda pipeline: (pipeline.hgetall(keys.participant(participant)), pipeline.hgetall(keys.arrivals))
        )
        gone = [name for name in fields if name in {"session", "browser"} or name.startswith("arrived:")]
        identities = [identity for identity, known in arrivals.items() if known == participant]
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(
                    keys.participant(participant), mapping=cast("Any", {"puid": participant, "source": ERASED})
                ),
                *(pipeline.hdel(keys.participant(participant), name) for name in gone),
                *(pipeline.hdel(keys.arrivals, identity) for identity in identities),
                *((pipeline.hset(keys.arrivals, identity_of(ERASED, participant), participant),) if identities else ()),
            )
        )

    async def delete_data(self, experiment: str) -> None:
        """Remove all participants, answers and models of an experiment; its description and its changes stay."""
        keys = Keys(experiment)
        state: dict[str, str] = await self._connection.do(lambda client: client.hgetall(keys.state))
        await self._remove_requests([known async for known in self._requests_of(experiment)])
        findings = (keys.counts, keys.quality, keys.proposed)
        for key in (keys.answers, keys.arrivals, keys.places, keys.events, *findings):
            await self._connection.do(lambda client, key=key: client.unlink(key))
        for pattern in (f"{keys.participant('')}*", keys.pending("*")):
            await self._delete_all(pattern)
        if counters := [name for name in state if name not in OWN_FIELDS and name != "archived"]:
            await self._connection.do(lambda client: client.hdel(keys.state, *counters))
        await self.forget_models(experiment)

    async def note_due(self, experiment: str, values: Mapping[str, int]) -> None:
        """Note when something will be removed from an experiment (Unix ms); 0 where nothing will."""
        await self._connection.do(lambda client: client.hset(Keys(experiment).state, mapping=cast("Any", dict(values))))

    async def note_erasure(self, identifier: str, values: Mapping[str, Any]) -> None:
        """Write an erasure as it stands now."""
        await self._connection.do(lambda client: client.hset(ERASURES, identifier, encode_json(dict(values))))

    async def _erase_participant(self, known: StoredPerson, anonymous: str) -> None:
        keys, participant = Keys(known.experiment), known.participant
        names = [*keys.of_participant(participant), keys.arrivals, keys.counts, keys.erased, keys.places]
        arguments: list[str | int] = [participant, MINUTE_MS, len(known.identities), *known.identities]
        if anonymous and known.fields:
            kept = anonymous_fields(known.fields, anonymous)
            names.append(keys.participant(anonymous))
            arguments += [identity_of(ERASED, anonymous), *(part for pair in kept.items() for part in pair)]
        await self._connection.run(ERASE_PARTICIPANT, names, arguments)

    async def _remove_answers(self, known: StoredPerson) -> None:
        """Remove the answers, the first one last: with it goes the count of those who began."""
        keys = Keys(known.experiment)
        for place, (at, entry) in reversed(list(enumerate(known.answers))):
            answer = decode_answer(known.experiment, entry)
            moved = list(counters_of(answer))
            if place == 0:
                moved.append(f"began:{answer.received_ms // MINUTE_MS}")
            await self._connection.run(
                ERASE_ANSWER, (keys.answers, keys.state, keys.counts), (at, answer.served.sampler, *moved)
            )

    async def _rename_answers(self, known: StoredPerson, anonymous: str) -> None:
        """Write the stream of answers anew, with another participant in some; the old
        one is there until that is done.
        """
        if not known.answers:
            return
        keys = Keys(known.experiment)
        changed = {
            at: [part for pair in change_answer(entry, participant=anonymous, session="").items() for part in pair]
            for at, entry in known.answers
        }
        await self._write_anew(keys.answers, changed)

    async def _write_anew(self, key: str, changed: Mapping[str, Sequence[str]]) -> None:
        """Copy a stream and let the copy take its place; some entries get other fields.
        The old one is there until then.
        """
        copy = f"{key}:copy"
        await self._connection.do(lambda client: client.delete(copy))
        if not await self._connection.do(lambda client: client.exists(key)):
            return
        last = "0-0"
        async for page in self._pages(key):
            own = {at: changed[at] for at, _ in page if at in changed}
            last = page[-1][0]
            await self._connection.run(COPY_ENTRIES, (key, copy), (page[0][0], last, encode_json(own)))
        await self._connection.run(REPLACE_STREAM, (key, copy), (f"({last}",))

    async def _answers_of(self, experiment: str, participant: str) -> list[Entry]:
        return [entry async for entry in self._entries_of(Keys(experiment).answers, participant)]

    async def _events_of(self, experiment: str, participant: str) -> list[Entry]:
        return [entry async for entry in self._entries_of(Keys(experiment).events, participant)]

    async def _entries_of(self, key: str, participant: str) -> AsyncIterator[Entry]:
        async for page in self._pages(key):
            for at, entry in page:
                if entry.get("participant") == participant:
                    yield at, entry

    async def _pages(self, key: str) -> AsyncIterator[list[Entry]]:
        after = "-"
        while True:
            page: list[Entry] = await self._connection.do(
                lambda client, after=after: client.xrange(key, min=after, count=_PAGE)
            )
            if page:
                yield page
            if len(page) < _PAGE:
                return
            after = f"({page[-1][0]}"

    async def _requests_of(self, experiment: str) -> AsyncIterator[str]:
        async for page in self._pages(REQUESTS):
            for at, entry in page:
                if entry.get("experiment") == experiment and "request" in entry:
                    yield f"{at} {entry['request']}"

    async def _requests_about(self, experiment: str, participant: str) -> tuple[str, ...]:
        """Return `stream id, request` of those whose arguments or results name a participant."""
        found: list[str] = []
        async for known in self._requests_of(experiment):
            at, identifier = known.split(" ")
            entries, fields = await self._connection.together(
                lambda pipeline, at=at, identifier=identifier: (
                    pipeline.xrange(REQUESTS, min=at, max=at),
                    pipeline.hgetall(request(identifier)),
                )
            )
            if participant in str(entries) or participant in str(fields):
                found.append(known)
        return tuple(found)

    async def _remove_requests(self, known: Sequence[str]) -> None:
        for each in known:
            at, identifier = each.split(" ")
            await self._connection.together(
                lambda pipeline, at=at, identifier=identifier: (
                    pipeline.xdel(REQUESTS, at),
                    pipeline.delete(request(identifier)),
                )
            )

    async def _delete_all(self, pattern: str) -> None:
        async for page in self._scan(pattern):
            await self._connection.do(lambda client, page=page: client.unlink(*page))

    async def _scan(self, pattern: str) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            cursor, page = await self._connection.do(
                lambda client, cursor=cursor: client.scan(cursor, match=pattern, count=_KEYS_PAGE)
            )
            if page:
                yield page
            if not int(cursor):
                return

    async def _wait_for_rewrite(self) -> None:
        for _ in range(int(_REWRITE_SECONDS / _LOOK_SECONDS)):
            about: dict[str, Any] = await self._connection.do(lambda client: client.info("persistence"))
            if not about.get("aof_rewrite_in_progress") and not about.get("aof_rewrite_scheduled"):
                if about.get("aof_last_bgrewrite_status", "ok") != "ok":
                    raise StoreError("The store could not write its file anew.", hint="Is there room on its disk?")
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise StoreError("The store has not written its file anew within an hour.", hint="Look at the store's log.")


def anonymous_fields(fields: Mapping[str, str], anonymous: str) -> dict[str, str]:
    """Return the fields of the participant in whose name the answers of somebody erased stay: no ids, no replies."""
    kept = (
        "status",
        "platform_status",
        "platform_ms",
        "group",
        "first_ms",
        "last_ms",
        "completed_ms",
        "answers",
        "turns",
        "spares",
    )
    return {"puid": anonymous, "source": ERASED, **{name: fields[name] for name in kept if name in fields}}


def _names(fields: Mapping[str, str], name: str) -> bool:
    """Return whether the fields of a participant hold this id."""
    if fields.get("source") == ERASED:
        return False
    return name in {
        fields.get("puid"),
        fields.get("session"),
        *(value for field, value in fields.items() if field.startswith("arrived:")),
    }
