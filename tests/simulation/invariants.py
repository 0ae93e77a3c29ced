"""What must hold in the simulated world, whatever happens: checked at every write, at every reply, and at the end.

Each invariant has a name (`INVARIANTS`), which a violation carries. The checks know nothing of how the program works
inside: they compare what pages were told with what the store holds, and each state of the store with the one before.
"""

from __future__ import annotations

import io
import json
import logging
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frontend.context import Context
from frontend.errors import DamagedError
from frontend.participant.queries import SCRIPT
from frontend.security import Signer
from frontend.store import Store
from frontend.store.statuses import FINISHED
from frontend.store.turns import MOST_OPEN
from frontend.transfer.__main__ import write
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import ExportOrder
from salmon.errors import SalmonError
from salmon.records import NO_SCORE, Answer, Served
from salmon.wire import Keys, decode_answer, decode_query, is_intact
from salmon.wire.keys import NOBODY, place_of
from tests.bundles import rows_of
from tests.oracles import recount
from tests.simulation.processes import CODE, SECRET, SETTINGS, URL
from tests.simulation.store_model import Before, Stream
from tests.simulation.virtual_loop import Process

if TYPE_CHECKING:
    from tests.simulation.world import Web, World

#: Name → what must hold.
INVARIANTS = {
    "acknowledged answers are stored once": "an answer that a page has read as stored is in the stream, exactly once",
    "only given answers are stored": "each entry of the stream is an answer that somebody gave to a query they were served",
    "the stream only grows": "entries of the stream are appended one by one, with rising ids, and never change or go",
    "a code means complete": "whoever saw the code has as many answers stored as the spec wants and as the page was told, or is marked",
    "nobody gets the code before the end": "no reply holds the code but those to participants who have completed",
    "everybody finishes": "once everything runs again, everybody comes to the end",
    "the cursor never falls": "the generation and the cursor of a published model never fall",
    "only the newest backend publishes": "queries, models and history are written by the newest backend alone",
    "a model is of the stream": "each refit is of the answers at the beginning of the stream, in order, each once",
    "everything is learned": "at the end the newest model has seen every answer",
    "published queries are served once": "an element of a published list is served to one participant at most",
    "a listed query is repeated until answered": "a script gets a query of a list again until it has answered it",
    "turns only go forward": "the numbers of a participant's turns never fall",
    "few turns are open": "a participant has at most 64 turns that are not over",
    "no query is asked twice": "no participant gets the same query in two trials, where the spec does not fix it and the store is not too slow to be asked",
    "another head where there is one": "a query has another head than the last, if a published one with another head is left",
    "what is served is pending": "a published query that was taken is pending until it is answered, and no longer",
    "counters equal the recount": "every counter equals what counting the stream again finds",
    "the completed are counted": "the counter of completed participants equals the number of those who are completed",
    "a person is one participant": "all answers of a person belong to the one participant that their link leads to",
    "acknowledged events are stored": "an event that a page has read as stored is in the stream of events",
    "exports equal the stream": "responses.csv and the reader of exports hold every answer of the stream, in its order",
    "checksums are right": "the checksum of every answer verifies when it is exported",
    "a deleted experiment takes nothing more": "what is sent to an experiment that was deleted gets 404 or 410 and changes nothing",
    "a deletion leaves nobody's data": "nothing of participants is left of a deleted experiment, whatever was under way",
    "fixed queries are complete": "whoever saw the code has answered every query that the spec fixes",
    "a job has one owner": "only the backend that has claimed a job writes results of it, and a job that has ended or was cancelled stays so",
    "errors are sentences": "every reply is JSON with a known status; only the store's failures are the server's",
    "a replay serves the same queries": "the same seed gives the same events, byte for byte",
    "nothing unexpected": "no task and no process dies of an error that nobody handles",
}


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold, and what was seen."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class _SlowStoreNotes(logging.Handler):
    """Counts how often the web process gave up waiting for the store: such a fallback may be asked twice."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class Checks:
    """Watches one world and notes what is violated; each invariant is noted once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._signer = Signer(SECRET)
        self._outstanding: dict[str, dict[str, float]] = defaultdict(dict)
        self.deleting = False
        self._given: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._of_forgers: set[str] = set()
        self._acknowledged: dict[str, None] = {}
        self._events: list[str] = []
        self._codes: list[tuple[str, dict[str, Any]]] = []
        self._trials: dict[tuple[str, str], int] = {}
        self._fence_owner: dict[int, str] = {}
        self._claimed: dict[bytes, str] = {}
        self._published: Counter[bytes] = Counter()
        self._repeated_fallbacks = 0
        self._triplets: dict[int, tuple[list[bytes], tuple[int, int, int]]] = {}
        self.slow = _SlowStoreNotes()
        self.served: dict[str, Served] = {}
        self.until = ""  # the invariant whose violation ends the run
        self.violations: list[Violation] = []
        self.answers = 0

    def violated(self, invariant: str, what: str) -> None:
        """Note a violation."""
        assert invariant in INVARIANTS, invariant
        self._world.note(f"violated: {invariant}: {what}")
        if not any(violation.invariant == invariant for violation in self.violations):
            self.violations.append(Violation(invariant, what))
        if invariant == self.until:
            self._world.loop.stop()

    def require(self, invariant: str, holds: bool, what: str) -> None:
        """Note a violation where something does not hold."""
        if not holds:
            self.violated(invariant, what)

    # What pages see

    def note_given(self, person: str, token: str, winner: int) -> None:
        """Note that somebody answered the query of a token; in two tabs, they may answer it in two ways."""
        self._given[self.served[token].nonce].add((person, winner))

    def note_asked(self, token: str, asked_at: float) -> None:
        """Check that a script got the first query of a list that it had not answered when it asked."""
        served = self.served[token]
        answered = {self._field(entry, b"token") for _, entry in self._stream().entries}
        waiting = [
            self.served[other].trial
            for other, served_at in self._outstanding[served.participant].items()
            if served_at < asked_at and self.served[other].nonce not in answered
        ]
        self.require(
            "a listed query is repeated until answered",
            served.trial <= min(waiting, default=served.trial),
            f"{served.participant} got trial {served.trial} and has not answered {waiting}",
        )

    def note_acknowledged(self, token: str, *, duplicate: bool) -> None:
        """Check that an answer is stored in the moment in which its page reads so."""
        self._world.note(f"acknowledged {'again ' if duplicate else ''}{self.served[token].nonce}")
        self._acknowledged[token] = None
        stored = [
            entry for _, entry in self._stream().entries if self._field(entry, b"token") == self.served[token].nonce
        ]
        self.require("acknowledged answers are stored once", len(stored) == 1, f"{len(stored)} times: {token}")

    def note_events(self, details: list[str]) -> None:
        """Note events that a page has read as stored."""
        self._events += details

    def note_code(self, person: str, reply: dict[str, Any]) -> None:
        """Check that somebody who sees the code is complete, or marked."""
        self._codes.append((person, reply))
        participant = self._participant_of(person)
        stored = sum(self._field(entry, b"participant") == participant for _, entry in self._stream().entries)
        fields = self._hash(Keys(self._world.experiment).participant(participant))
        wanted = self._world.scenario.max_queries
        marked = b"save_incomplete" in fields
        self.require(
            "a code means complete",
            stored >= wanted or marked,
            f"{person} was wanted {wanted} answers, has {stored} stored, and is not marked",
        )
        self.require(
            "a code means complete",
            reply["stored"] <= stored and reply["save_incomplete"] <= marked,
            f"{person} was told of {reply['stored']} stored answers, incomplete: {reply['save_incomplete']}, and has {stored}",
        )
        self.require(
            "a code means complete", reply["code"] == CODE, f"{person} saw the code {reply['code']} instead of {CODE}"
        )

    def note_reply(
        self, web: Web, method: str, path: str, content: bytes, session: str | None, status: int, reply: Any
    ) -> None:
        """Look at a reply that left a web process, whether or not it arrives."""
        name = path.partition("?")[0].removeprefix("/")
        if CODE in repr(reply):
            self._check_code(name, session)
        if name == "query" and reply.get("token"):
            served = self._signer.read_served(reply["token"])
            self.served[reply["token"]] = served
            self._world.note(
                f"{web.name} serves trial {served.trial} {served.head},{served.left},{served.right}"
                f" {served.sampler} {served.trial_type} {served.nonce} to {served.participant}"
            )
            self._check_served(served)
            if session is None and (served.trial_type == "fixed" or served.sampler == "RoundRobin"):
                self._outstanding[served.participant].setdefault(reply["token"], self._world.loop.time())
        elif name == "answers":
            for result, sent in zip(reply.get("results", ()), json.loads(content), strict=False):
                self._check_token(sent["token"], recorded="error" not in result)
        else:
            self._world.note(f"{web.name} {method} {path}: {status}")
            if name == "answer" and status == 200:
                self._check_token(json.loads(content)["token"], recorded=True)
        # The first Salmon's routes answer 500 where there is no experiment, as scripts expect.
        none_left = status == 500 and path.startswith("/") and self.deleting
        unexpected = status >= 500 and not none_left and reply.get("error", {}).get("code") != "store"
        known = none_left or status in {200, 409, 422, 503, 410, 403, 400, 404, 429}
        self.require("errors are sentences", known and not unexpected, f"{method} {path}: {status} {reply}")

    def _check_token(self, sent: str, *, recorded: bool) -> None:
        # The last letter of a signature in base64 has bits that mean nothing: any of four letters is the same.
        known = [token for token in self.served if token[:-1] == sent[:-1]]
        self.require(
            "only given answers are stored", bool(known) or not recorded, f"a forged token was recorded: {sent}"
        )
        if known and sent not in self.served:
            self._of_forgers.add(self.served[known[0]].nonce)

    def _check_code(self, name: str, session: str | None) -> None:
        """Check that whoever is told the code has completed."""
        participant = self._signer.read_session(session).participant if session else ""
        if not self._hash((keys := Keys(self._world.experiment)).state):
            return  # it was deleted with everybody in it while the reply was under way
        fields = self._hash(keys.participant(participant))
        enough = int(fields.get(b"answers", b"0")) >= self._world.scenario.max_queries or b"save_incomplete" in fields
        self.require(
            "nobody gets the code before the end",
            name == "finish" and enough and b"completed_ms" in fields,
            f"{name} told {participant} the code, who has {fields.get(b'answers')} answers",
        )

    def some_token(self, generator: random.Random) -> str | None:
        """Return a token that was served."""
        return generator.choice(list(self.served)) if self.served else None

    def _check_served(self, served: Served) -> None:
        if served.participant == NOBODY:
            return
        key = f"{served.head},{min(served.left, served.right)},{max(served.left, served.right)}"
        seen = self._world.server.model.data.get(Keys(self._world.experiment).asked(served.participant).encode()) or {}
        if key.encode() not in seen and served.score == NO_SCORE and self._repeated_fallbacks < self.slow.count:
            self._repeated_fallbacks += 1  # the store was slow, so it does not know of this query
            return
        trial = self._trials.setdefault((served.participant, key), served.trial)
        if trial != served.trial and served.score == NO_SCORE and self._repeated_fallbacks < self.slow.count:
            self._repeated_fallbacks += 1  # the store was slow, so it could not say that they have seen it
            return
        if trial != served.trial and served.trial_type not in {"fixed", "validation"}:
            self.violated(
                "no query is asked twice", f"{served.participant} got {key} in trials {trial} and {served.trial}"
            )

    # What the learning process does

    def note_work(self, kind: str, arguments: tuple[Any, ...]) -> None:
        """Check the rows of a task as it starts on the workers."""
        if kind not in {"refit", "search", "report"}:
            return
        _, state, blocks, tail, *_ = arguments
        rows = [tuple(row[:3]) for block in (*blocks, tail) for row in block.tolist()]
        stream = [self._triplet(entry) for _, entry in self._stream().entries[: len(rows)]]
        self.require(
            "a model is of the stream",
            rows == stream and state.absorbed <= len(rows),
            f"a {kind} got {len(rows)} rows that are not the beginning of the stream",
        )

    # What is written

    def note_write(self, process: Process | None, command: list[bytes], before: Before) -> None:
        """Compare what a command has written with what was there before."""
        name = process.name if process is not None else ""
        for key, (old, _) in before.items():
            kind = key.decode().partition("}:")[2] if b"{" in key else key.decode()
            new: Any = self._world.server.model.data.get(key)
            if kind == "answers":
                self._check_stream(old, new)
                there = Keys(self._world.experiment).state.encode() in self._world.server.model.data
                self.require(
                    "a deleted experiment takes nothing more", there, "an answer was stored after the deletion"
                )
            elif kind.startswith("p:"):
                self._check_turns(kind, old or {}, new or {})
            elif kind == "fence":
                self._fence_owner[int(new)] = name
            elif kind.startswith(("model:", "history:")):
                self._check_publisher(name, kind)
                if kind.startswith("model:"):
                    self._check_model(kind, old or {}, new)
            elif kind.startswith("q:"):
                self._check_queries(name, kind, old or [], new or [], before, command)
            elif kind.startswith("salmon:request:"):
                self._check_job(name, key, old or {}, new or {})

    def _check_stream(self, old: Stream | None, new: Stream | None) -> None:
        entries = old.entries if old is not None else []
        grown = new is not None and new.entries[:-1] == entries
        self.require("the stream only grows", grown, f"{len(entries)} entries became {len(new.entries) if new else 0}")

    def _check_turns(self, kind: str, old: Any, new: Any) -> None:
        if kind.endswith(":given"):
            self.require("few turns are open", len(new) <= MOST_OPEN, f"{kind} has {len(new)} turns")
        elif kind.count(":") == 1 and new:
            for name in (b"turns", b"spares", b"top"):
                before, after = int(old.get(name, b"0")), int(new.get(name, b"0"))
                self.require("turns only go forward", after >= before, f"{name.decode()} of {kind}: {before}, {after}")

    def _check_publisher(self, name: str, kind: str) -> None:
        newest = int(self._world.server.model.data.get(Keys(self._world.experiment).fence.encode(), b"0"))
        owner = self._fence_owner.get(newest, "")
        self.require(
            "only the newest backend publishes", name == owner, f"{name} wrote {kind}, but the newest is {owner}"
        )

    def _check_model(self, kind: str, old: dict[bytes, bytes], new: dict[bytes, bytes]) -> None:
        cursor, absorbed = place_of(new[b"cursor"].decode()), int(new[b"absorbed"])
        count = sum(place <= cursor for place, _ in self._stream().entries)
        self.require(
            "a model is of the stream", count == absorbed, f"{kind} has absorbed {absorbed} of {count} up to its cursor"
        )
        for field in (b"generation", b"absorbed", b"cursor"):
            if field in old and place_of(new[field].decode()) < place_of(old[field].decode()):
                self.violated("the cursor never falls", f"{field.decode()} of {kind}: {old[field]} became {new[field]}")

    def _check_queries(
        self, name: str, kind: str, old: list[bytes], new: list[bytes], before: Before, command: list[bytes]
    ) -> None:
        if name.startswith("backend"):
            self._check_publisher(name, kind)
            self._published.update(new)
            return
        if command[0] == b"LREM":  # somebody who was not named has answered it
            return
        taken = list((Counter(old) - Counter(new)).elements())
        self.require("published queries are served once", len(taken) == 1, f"{len(taken)} elements left {kind}")
        for element in taken:
            self._check_taken(element, old, before)

    def _check_taken(self, element: bytes, old: list[bytes], before: Before) -> None:
        key = element.partition(b"|")[0]
        data = self._world.server.model.data
        seen: dict[bytes, Any] = {}
        last = b""
        pending = False
        for name, (value, _) in before.items():
            if name.endswith(b":asked"):
                seen = value or {}
            elif b":pending:" in name:
                pending = any(each.startswith(key + b"|") for each in data.get(name, {}).values())
            elif b":p:" in name and isinstance(value, dict) and b"last_head" in value:
                last = value[b"last_head"]
        self.require(
            "no query is asked twice", key not in seen, f"{key.decode()} was taken by somebody who has seen it"
        )
        self.require("what is served is pending", pending, f"{key.decode()} was taken and is not pending")
        others = [each for each in old if each.partition(b"|")[0] not in seen and each.partition(b",")[0] != last]
        self.require(
            "another head where there is one",
            not (key.partition(b",")[0] == last and others),
            f"{key.decode()} after the head {last.decode()}",
        )

    def _check_job(self, name: str, key: bytes, old: dict[bytes, bytes], new: dict[bytes, bytes]) -> None:
        if new.get(b"backend") != old.get(b"backend"):
            self._claimed[new[b"backend"]] = name
        state, became = old.get(b"state", b""), new.get(b"state", b"")
        job = key.decode()
        ended = state in {b"done", b"failed", b"cancelled"}
        self.require("a job has one owner", not ended or became == state, f"{job}: {state} became {became}")
        if name.startswith("backend"):
            owner = self._claimed.get(new.get(b"backend", b""), name)
            given_up = became in {b"failed", b"cancelled"}  # which any backend may do that finds it running too often
            self.require("a job has one owner", owner == name or given_up, f"{name} wrote about {job} of {owner}")
            if old.get(b"cancel") == b"1":
                self.require("a job has one owner", became == b"cancelled", f"{job} was cancelled and is {became}")

    # The end

    async def at_the_end(self, lives: list[Any]) -> None:
        """Check what must hold once everything has calmed down."""
        world, keys = self._world, Keys(self._world.experiment)
        stuck = [person.name for person in (*world.people, *world.scripts) if not person.finished]
        for life in lives:
            if life.done() and life.exception() is not None:
                self.violated("nothing unexpected", f"{life.exception()!r}")
        self.require("everybody finishes", not stuck, f"{', '.join(stuck)} did not come to the end")
        self.answers = len(entries := self._entries())
        self._check_entries(entries)
        self._check_counters(entries, keys)
        self._check_pending(entries, keys)
        self._check_fixed(entries)
        known = {participant.decode() for participant in self._hash(keys.arrivals).values()}
        others = {answer.served.participant for _, answer in entries} - known
        self.require("a person is one participant", not others, f"nobody's link leads to {others}")
        stream: Stream = world.server.model.data.get(keys.events.encode()) or Stream()
        missing = set(self._events) - {self._field(entry, b"detail") for _, entry in stream.entries}
        self.require("acknowledged events are stored", not missing, f"{missing} are not there")
        self._check_learned(entries, keys)
        self._check_served_once()
        await self._check_exports(entries)
        for problem in world.loop.problems:
            self.violated("nothing unexpected", problem)

    def _check_entries(self, entries: list[tuple[str, Answer]]) -> None:
        served: dict[str, list[Served]] = defaultdict(list)  # a page that is opened again gets the same query again
        for each in self.served.values():
            served[each.nonce].append(each)
        counts = Counter(answer.served.nonce for _, answer in entries)
        for token in self._acknowledged:
            count = counts[self.served[token].nonce]
            self.require("acknowledged answers are stored once", count == 1, f"{count} times at the end: {token}")
        for stream_id, answer in entries:
            if answer.served.nonce in self._of_forgers:  # who happened to write the same signature in another way
                continue
            given = self._given[answer.served.nonce]
            givers = {self._participant_of(person) for person, winner in given if winner == answer.winner}
            right = answer.served.participant in givers and any(
                _as_answered(each, answer.served) == answer.served for each in served[answer.served.nonce]
            )
            self.require("only given answers are stored", right, f"{stream_id}: {answer.winner}, but given was {given}")
        repeated = [nonce for nonce, count in counts.items() if count > 1]
        self.require("acknowledged answers are stored once", not repeated, f"{repeated} are there more than once")

    def _check_counters(self, entries: list[tuple[str, Answer]], keys: Keys) -> None:
        counts = {name.decode(): int(value) for name, value in self._hash(keys.counts).items()}
        completed = sum(value for name, value in counts.items() if name.startswith("completed:"))
        wanted = recount(answer for _, answer in entries)
        have = {name: value for name, value in counts.items() if not name.startswith("completed:")}
        self.require("counters equal the recount", have == wanted, f"{_difference(have, wanted)}")
        state = {name.decode(): value for name, value in self._hash(keys.state).items()}
        per_sampler = Counter(f"answers:{answer.served.sampler}" for _, answer in entries) + Counter(
            {"answers": len(entries)}
        )
        have = {name: int(value) for name, value in state.items() if name.partition(":")[0] == "answers"}
        self.require("counters equal the recount", have == dict(per_sampler), f"{_difference(have, dict(per_sampler))}")
        given = Counter(answer.served.participant for _, answer in entries)
        finished = 0
        for participant in self._hash(keys.arrivals).values():
            fields = self._hash(keys.participant(participant.decode()))
            completes = fields.get(b"status", b"").decode() in FINISHED
            finished += completes
            if completes != (b"completed_ms" in fields):
                self.violated("the completed are counted", f"{participant.decode()} is {fields.get(b'status')}")
            own = int(fields.get(b"answers", b"0"))
            self.require(
                "counters equal the recount",
                own == given[participant.decode()],
                f"{participant.decode()} has {own} answers and {given[participant.decode()]} in the stream",
            )
        self.require("the completed are counted", completed == finished, f"{completed} counted, {finished} completed")

    def _check_pending(self, entries: list[tuple[str, Answer]], keys: Keys) -> None:
        answered = {answer.served.nonce for _, answer in entries}
        waiting = {token.decode() for token in self._hash(keys.pending("Adaptive"))}
        both = waiting & answered
        self.require("what is served is pending", not both, f"{both} are answered and still pending")

    def _check_fixed(self, entries: list[tuple[str, Answer]]) -> None:
        answered: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
        for _, answer in entries:
            served = answer.served
            if served.trial_type == "fixed":
                low, high = sorted((served.left, served.right))
                answered[served.participant].add((served.head, low, high))
        for person, reply in self._codes:
            if reply["save_incomplete"]:
                continue
            have = answered[self._participant_of(person)]
            for trial, (head, *feet) in self._world.scenario.fixed.items():
                low, high = sorted(feet)
                self.require(
                    "fixed queries are complete",
                    (head, low, high) in have,
                    f"{person} saw the code without the query of trial {trial}",
                )

    def _check_learned(self, entries: list[tuple[str, Answer]], keys: Keys) -> None:
        model = self._hash(keys.model("Adaptive"))
        absorbed = int(model.get(b"absorbed", b"0"))
        self.require("everything is learned", absorbed == len(entries), f"{absorbed} of {len(entries)} answers")
        if entries:
            cursor = model.get(b"cursor", b"").decode()
            self.require("everything is learned", cursor == entries[-1][0], f"the cursor is {cursor}")

    def _check_served_once(self) -> None:
        of: dict[tuple[Any, ...], set[tuple[str, int]]] = defaultdict(set)
        for served in self.served.values():
            if served.published_ms and served.score != NO_SCORE and served.participant != NOBODY:
                low, high = sorted((served.left, served.right))
                element = served.sampler, served.head, low, high, served.published_ms, served.score
                of[element].add((served.participant, served.trial))
        published: Counter[tuple[Any, ...]] = Counter()
        for element, count in self._published.items():
            query = _element(element)
            published[query] += count
        for (sampler, *query), trials in of.items():
            del sampler
            count = published[tuple(query)]
            self.require(
                "published queries are served once",
                len(trials) <= count,
                f"{query} was published {count} times and served in {sorted(trials)}",
            )

    async def _check_exports(self, entries: list[tuple[str, Answer]]) -> None:
        damaged = [place for place, entry in self._stream().entries if not is_intact([part.decode() for part in entry])]
        self.require("checksums are right", not damaged, f"{damaged} are damaged")
        store = Store.open(URL)
        context = Context(SETTINGS, store)
        try:
            read = [
                entry
                async for page in store.export_reader.read_answers(self._world.experiment, until="+")
                for entry in page
            ]
            self.require(
                "exports equal the stream", read == entries, f"{len(read)} of {len(entries)} answers were read"
            )
            output = io.BytesIO()
            await write(await ExportSource.open(context, ExportOrder("study", "responses", "csv")), output)
        except DamagedError as error:
            self.violated("checksums are right", f"the export refused: {error}")
            return
        except SalmonError as error:
            self.violated("exports equal the stream", f"the export failed: {error}")
            return
        rows = rows_of(output.getvalue())
        have = [(int(row["head"]), int(row["winner"]), row["puid"]) for row in rows]
        names = {
            value.decode(): name.decode().partition(":")[2]
            for name, value in self._hash(Keys(self._world.experiment).arrivals).items()
        }
        wanted = [(answer.served.head, answer.winner, names.get(answer.served.participant)) for _, answer in entries]
        self.require("exports equal the stream", have == wanted, f"responses.csv has {len(have)} rows of {len(wanted)}")

    # Reading the store

    def _stream(self) -> Stream:
        return self._world.server.model.data.get(Keys(self._world.experiment).answers.encode()) or Stream()

    def _entries(self) -> list[tuple[str, Answer]]:
        found: list[tuple[str, Answer]] = []
        for (milliseconds, number), entry in self._stream().entries:
            fields = dict(zip((p.decode() for p in entry[::2]), (p.decode() for p in entry[1::2]), strict=True))
            found.append((f"{milliseconds}-{number}", decode_answer(self._world.experiment, fields)))
        return found

    def _hash(self, key: str) -> dict[bytes, bytes]:
        return self._world.server.model.data.get(key.encode()) or {}

    def _triplet(self, entry: list[bytes]) -> tuple[int, int, int]:
        """Return the triplet of an entry; entries never change, so it is read once."""
        if id(entry) not in self._triplets:
            self._triplets[id(entry)] = entry, _triplet(entry)
        return self._triplets[id(entry)][1]

    def _participant_of(self, person: str) -> str:
        return self._hash(Keys(self._world.experiment).arrivals).get(f"link:{person}".encode(), b"").decode()

    @staticmethod
    def _field(entry: list[bytes], name: bytes) -> str:
        return dict(zip(entry[::2], entry[1::2], strict=True))[name].decode()


def _as_answered(served: Served, answered: Served) -> Served:
    """Return a query as it was served, for the participant and on the sides that a script has told with its answer."""
    if served.session != SCRIPT:
        return served
    if served.participant == NOBODY:
        served = replace(served, participant=answered.participant)
    swapped = replace(served, left=served.right, right=served.left)
    return swapped if answered.left == swapped.left else served


def _triplet(entry: list[bytes]) -> tuple[int, int, int]:
    fields = dict(zip(entry[::2], entry[1::2], strict=True))
    head, left, right, winner = (int(fields[name]) for name in (b"head", b"left", b"right", b"winner"))
    return head, winner, left + right - winner


def _element(element: bytes) -> tuple[Any, ...]:
    query = decode_query(element.decode())
    return query.head, *sorted(query.feet), query.published_ms, query.score


def _difference(have: dict[str, int], wanted: dict[str, int]) -> str:
    wrong = {name: (have.get(name, 0), wanted.get(name, 0)) for name in {**have, **wanted}}
    return ", ".join(f"{name}: {one} instead of {other}" for name, (one, other) in wrong.items() if one != other)
