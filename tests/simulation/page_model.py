"""A model of the participant page: what `frontend/static/participant` does, without a
document, and a person in front of it.

Names follow the JavaScript: `Outbox` is outbox.js with answer_storage.js, `Run` is run.js, and `Page` is main.js with
journal.js, retries.js, api.js and the debriefing of steps.js. A `Device` is a browser: it keeps unsent answers
(IndexedDB) for all its tabs; a `Tab` keeps its session and its served queries across reloads (sessionStorage).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.simulation.virtual_loop import Process, loop_here

Json = dict[str, Any]

TIMEOUT_SECONDS = 10.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
BATCH = 25
MAX_UNSENT = 20
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
MAX_WAIT_SECONDS = 0.3
SEND_EVENTS_SECONDS = 5.0
FINISH_RETRY_SECONDS, FINISH_TIMEOUT_SECONDS = 1.0, 60.0


class Offline(Exception):  # noqa: N818 - the page's own word
    """No whole reply came."""


class Failure(Exception):  # noqa: N818 - the page's own word
    """A request failed; `retryable` says whether another attempt can help."""

    def __init__(self, code: str, *, retryable: bool) -> None:
        super().__init__(code)
        self.code = code
        self.retryable = retryable


class Respondent(Protocol):
    """Whoever gives answers: a person in front of a page, or a script."""

    name: str


class Surroundings(Protocol):
    """What a page reaches: the network, and those who note what it saw."""

    generator: random.Random

    async def send(self, method: str, path: str, body: Any, session: str | None) -> tuple[int, Any]:
        """Return (status, reply); Offline where none came."""
        ...

    def beacon(self, answers: list[Json]) -> None:
        """Send answers of which nobody reads the reply."""
        ...

    def note_given(self, person: Respondent, query: Json, winner: int) -> None: ...

    def note_asked(self, token: str, asked_at: float) -> None: ...

    def note_acknowledged(self, token: str, *, duplicate: bool) -> None: ...

    def note_events(self, details: list[str]) -> None: ...

    def note_code(self, person: Person, given: int, reply: Json) -> None: ...

    def note(self, what: str) -> None: ...


@dataclass
class Device:
    """A browser of one person: its secret, and unsent answers by their token, in the order in which they were given.

    In a page of an origin of its own, or in a browser without storage, there is no secret, and only the window keeps
    anything, as long as it is open.
    """

    secret: str
    only_windows: bool = False
    unsent: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass
class Tab:
    """What one tab keeps across reloads; unsent answers too, where the device keeps none."""

    session: str | None = None
    participant: str | None = None
    queries: list[Json] = field(default_factory=list[Json])
    unsent: dict[str, Json] = field(default_factory=dict[str, Json])

    def forget(self) -> None:
        """Lose everything, as where a browser clears its storage."""
        self.session = self.participant = None
        self.queries, self.unsent = [], {}


class Outbox:
    """Sends answers and keeps each until the server has confirmed its token."""

    def __init__(self, page: Page, on_refused: Callable[[list[Json]], None]) -> None:
        self._page = page
        self._storage = page.tab.unsent if page.device.only_windows else page.device.unsent
        self._on_refused = on_refused
        self.waiting: list[Json] = []
        self._sending: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._fewer = asyncio.Event()

    def restore(self) -> None:
        self.waiting = list(self._storage.values())

    @property
    def unsent(self) -> list[Json]:
        return [
            _without_owner(answer) | {"sent_attempts": answer["sent_attempts"] + 1} for answer in self.waiting[-BATCH:]
        ]

    def waiting_of(self, owner: str) -> list[int]:
        return [answer["trial"] for answer in self.waiting if answer["owner"] == owner]

    def put(self, answer: Json, owner: str) -> None:
        kept: Json = {**answer, "owner": owner, "sent_attempts": 0}
        self.waiting.append(kept)
        self._storage[kept["token"]] = kept
        self.flush()

    def flush(self) -> asyncio.Task[None]:
        if self._sending is None or self._sending.done():
            self._sending = loop_here().create_task(self._send_all())
        return self._sending

    async def wait_until_fewer_than(self, most: int) -> None:
        while len(self.waiting) >= most:
            self._fewer.clear()
            await self._fewer.wait()

    async def _send_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            while self.waiting:
                batch = self.waiting[:BATCH]
                for answer in batch:
                    answer["sent_attempts"] += 1
                self._remove_done(batch, await self._page.post_answers([_without_owner(answer) for answer in batch]))
        except Failure:
            self._timer = loop_here().call_later(self._pause, self.flush)
            self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)

    def _remove_done(self, batch: list[Json], results: list[Json]) -> None:
        by_token = {result["token"]: result for result in results}
        done = [answer for answer in batch if answer["token"] in by_token]
        self.waiting = [answer for answer in self.waiting if answer not in done]
        for answer in done:
            self._storage.pop(answer["token"], None)
        self._pause = FIRST_PAUSE_SECONDS
        refused = [answer for answer in done if "error" in by_token[answer["token"]]]
        if refused:
            self._on_refused(refused)
        self._fewer.set()


def _without_owner(answer: Json) -> Json:
    return {name: value for name, value in answer.items() if name not in {"owner", "trial"}}


class Run:
    """The current query, the next one, and when the run ends."""

    def __init__(
        self,
        *,
        fetch_query: Callable[[int], Awaitable[Json]],
        fetch_spare: Callable[[int], Awaitable[Json]],
        given: int,
        limit: int,
        tab: Tab,
        kept: list[Json],
        open_turns: list[int],
        next_turn: int,
    ) -> None:
        self._fetch_query, self._fetch_spare = fetch_query, fetch_spare
        self.given, self._limit, self._tab = given, limit, tab
        self._unanswered = [query for query in kept if query["trial"] in open_turns or query["trial"] >= next_turn]
        self._kept = list(self._unanswered)
        self._open = [turn for turn in open_turns if all(query["trial"] != turn for query in self._kept)]
        self._next = next_turn
        self._taken = {query["trial"] for query in self._kept}
        self._ahead: asyncio.Task[Json] | None = None
        self._spare: Json | None = None
        self.current: Json | None = None

    @property
    def complete(self) -> bool:
        return self._limit > 0 and self.given >= self._limit

    async def next(self) -> Json | None:
        if self.complete:
            return None
        asked, self._ahead = self._ahead or self._request(), None
        if self._spare is not None:
            await asyncio.wait((asked,), timeout=MAX_WAIT_SECONDS)
            if not asked.done():
                self._ahead = asked
                return self._show_spare()
        query = await asyncio.shield(asked)
        if query.get("done"):
            return None
        self.current = query
        return query

    async def prefetch(self) -> None:
        if self._ahead is None and self.given + 1 >= self._limit > 0:
            return
        asked = self._ahead = self._ahead or self._request()
        try:
            if (await asyncio.shield(asked)).get("done") and self._ahead is asked:
                self._ahead = None
        except Failure:
            if self._ahead is asked:
                self._ahead = None

    async def load_spare(self) -> None:
        if self._spare is not None or self.given + 2 >= self._limit > 0:
            return
        number, self._next = self._next, self._next + 1  # a turn that is open may have a query that must be shown
        try:
            spare = await self._fetch_spare(number)
        except Failure:
            spare = {}
        if spare.get("token"):
            self._spare = {**spare, "spare": True}
        else:
            self._open.append(number)

    def answer(self, winner: int) -> Json:
        assert self.current is not None
        answer = {"token": self.current["token"], "trial": self.current["trial"], "winner": winner}
        self._unanswered = [query for query in self._unanswered if query is not self.current]
        self.current = None
        self._keep()
        self.given += 1
        return answer

    def remove_answers(self, count: int) -> None:
        self.given -= count

    def resume(self, missing: int) -> None:
        self.given = max(self.given, self._limit) - missing
        self._taken = {query["trial"] for query in self._unanswered}

    def _show_spare(self) -> Json:
        assert self._spare is not None
        self.current, self._spare = self._spare, None
        self._unanswered.append(self.current)
        self._keep()
        return self.current

    def _keep(self) -> None:
        self._tab.queries = list(self._unanswered)

    def _take_number(self) -> int:
        if self._open:
            return self._open.pop(0)
        self._next += 1
        return self._next - 1

    async def _ask(self) -> Json:
        """Return the query of the first turn that is not over. A turn whose request failed is asked for again."""
        while True:
            number = self._take_number()
            try:
                query = await self._fetch_query(number)
            except Failure:
                self._open.insert(0, number)
                raise
            if query.get("over"):
                continue
            if "token" in query and query["trial"] != number:
                self._open = [*(turn for turn in self._open if turn != query["trial"]), number]
                if query["trial"] in self._taken:
                    return query | {"done": True}
            if "trial" in query:
                self._taken.add(query["trial"])
            return query

    def _request(self) -> asyncio.Task[Json]:
        asked = loop_here().create_task(self._fetch())
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    async def _fetch(self) -> Json:
        query = self._kept.pop(0) if self._kept else await self._ask()
        if not query.get("done") and not any(query is each for each in self._unanswered):
            self._unanswered.append(query)
            self._keep()
        return query


class Page:
    """One opening of the page in a tab. It ends when the person leaves, reloads, or has seen the end."""

    def __init__(self, world: Surroundings, person: Person, tab: Tab) -> None:
        self._world = world
        self.person, self.tab, self.device = person, tab, person.device
        self.process = Process(f"page of {person.name}")
        self.outbox: Outbox | None = None
        self._session: str | None = None
        self._arrival: Json = {}
        self._events: list[Json] = []
        self._run: Run | None = None
        self._elsewhere = asyncio.Event()

    async def open(self) -> str:
        """Lead from arrival to the end; return `ended`, or why the page stopped:
        `elsewhere`, or the code of a failure.
        """
        main = loop_here().create_task(self._take_steps())
        # Where it fails at the moment at which it is cancelled, nobody else asks why.
        main.add_done_callback(lambda done: done.cancelled() or done.exception())
        announced = loop_here().create_task(self._elsewhere.wait())
        await asyncio.wait((main, announced), return_when=asyncio.FIRST_COMPLETED)
        announced.cancel()
        if not main.done():
            main.cancel()
            assert self.outbox is not None
            self.outbox.flush()
            return "elsewhere"
        try:
            main.result()
        except Failure as failure:
            if failure.code == "elsewhere" and self.outbox is not None:
                self.outbox.flush()
            return failure.code
        return "ended"

    def close(self) -> None:
        """End the page as a browser does when it is closed or reloaded: unsent answers go out once more."""
        if self.outbox is not None and self.outbox.waiting and self.process.alive:
            self._world.beacon(self.outbox.unsent)
        self.process.kill()

    def take_note(self, session: str) -> None:
        """Hear that another tab of this device has opened the study."""
        if self._session is not None and self._session != session:
            self._elsewhere.set()

    async def post_answers(self, answers: list[Json]) -> list[Json]:
        results = (await self._post("answers", answers))["results"]
        for result in results:
            if "error" not in result:
                self._world.note_acknowledged(result["token"], duplicate=result["duplicate"])
        return results

    async def _take_steps(self) -> None:
        self.outbox = Outbox(self, self._refused)
        self.outbox.restore()
        await asyncio.shield(self.outbox.flush())
        await self._arrive()
        loop_here().create_task(self._keep_journal())
        run, step = self._run, self._arrival["step"]
        assert run is not None
        while step != "debrief":
            if step == "trials" and run.complete:
                step = self._step_after("trials")
                continue
            if step == "out":
                raise Failure("out", retryable=False)
            if step == "trials":
                await self._answer_all()
                step = self._step_after("trials")
            elif step == "welcome":
                loop_here().create_task(self._attempt(lambda: self._step("welcome", {})))
                step = self._step_after("welcome")
            else:
                await self._person_waits()
                step = (await self._retried(lambda step=step: self._step(step, self._body_of(step))))["next"]
        await self._debrief(run)

    def _body_of(self, step: str) -> Json:
        if step == "consent":
            return {"agreed": True, "language": "en", "version": self._arrival["steps"]["consent"]["version"]}
        return {"replies": {"age": "30"}} if step == "questions" else {}

    async def _arrive(self) -> None:
        body = {
            "browser": "" if self.device.only_windows else self.device.secret,
            "parameters": {"puid": self.person.name},
            "session": self.tab.session,
        }
        arrival = await self._retried(lambda: self._post("arrive", body))
        self._arrival = arrival
        same = self.tab.participant == arrival["participant"]
        self._session = self.tab.session = arrival["session"]
        self.tab.participant = arrival["participant"]
        self.person.announce(self, arrival["session"])
        assert self.outbox is not None
        open_turns: list[int] = arrival["numbers"]["open"]
        waiting = [turn for turn in self.outbox.waiting_of(arrival["participant"]) if turn in open_turns]
        self._run = Run(
            fetch_query=lambda number: self._retried(lambda: self._send("GET", f"query?number={number}")),
            fetch_spare=lambda number: self._send("GET", f"query?number={number}&spare=true"),
            given=arrival["answers"] + len(waiting),
            limit=arrival["page"]["max_queries"],
            tab=self.tab,
            kept=self.tab.queries if same else [],
            open_turns=[turn for turn in open_turns if turn not in waiting],
            next_turn=arrival["numbers"]["next"],
        )

    async def _answer_all(self) -> None:
        run, outbox = self._run, self.outbox
        assert run is not None
        assert outbox is not None
        while True:
            if len(outbox.waiting) >= MAX_UNSENT:
                await outbox.wait_until_fewer_than(MAX_UNSENT)
            query = await run.next()
            if query is None:
                return
            loop_here().create_task(self._look_ahead(run))
            await self._person_waits()
            winner = self.person.judge(query)
            self._world.note_given(self.person, query, winner)
            self._note_event("blur")
            outbox.put(run.answer(winner), self._arrival["participant"])

    def _note_event(self, event: str) -> None:
        detail = f"{self.person.name} {self._world.generator.getrandbits(48):x}"
        self._events.append({"event": event, "detail": detail, "trial": 0, "client_ms": loop_here().time() * 1000})

    async def _keep_journal(self) -> None:
        """Send what happened every few seconds; what could not be sent is sent with the next."""
        self._note_event("opened")
        while True:
            await asyncio.sleep(SEND_EVENTS_SECONDS)
            sent, self._events = self._events, []
            if not sent:
                continue
            try:
                await self._post("events", sent)
                self._world.note_events([event["detail"] for event in sent])
            except Failure as failure:
                if failure.retryable:
                    self._events = [*sent, *self._events]

    async def _look_ahead(self, run: Run) -> None:
        await run.prefetch()
        await run.load_spare()

    async def _debrief(self, run: Run) -> None:
        """Save the remaining answers, then show the end."""
        assert self.outbox is not None
        since = loop_here().time()
        while True:
            long = loop_here().time() - since > FINISH_TIMEOUT_SECONDS
            try:
                await asyncio.shield(self.outbox.flush())
                reply = await self._post("finish", {"given": run.given, "incomplete": long})
                if reply["complete"]:
                    break
                if not self.outbox.waiting and not long:
                    run.resume(reply["missing"])
                    await self._answer_all()
            except Failure as failure:
                if not failure.retryable:
                    raise
            await asyncio.sleep(FINISH_RETRY_SECONDS)
        self._world.note_code(self.person, run.given, reply)
        await self._attempt(lambda: self._step("debrief", {}))

    def _refused(self, answers: list[Json]) -> None:
        self._world.note(f"{self.person.name}: {len(answers)} answers refused")
        if self._run is not None:
            self._run.remove_answers(sum(answer["owner"] == self._arrival["participant"] for answer in answers))

    def _step_after(self, step: str) -> str:
        order: list[str] = self._arrival["steps"]["order"]
        return order[order.index(step) + 1]

    async def _person_waits(self) -> None:
        await asyncio.sleep(self._world.generator.uniform(0.3, 2.0))

    async def _step(self, name: str, body: Json) -> Json:
        return await self._post(f"steps/{name}", body)

    async def _attempt(self, send: Callable[[], Awaitable[Json]]) -> None:
        with suppress(Failure):
            await send()

    async def _retried(self, send: Callable[[], Awaitable[Json]]) -> Json:
        attempt = 0
        while True:
            try:
                return await send()
            except Failure as failure:
                if not failure.retryable:
                    raise
            await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1

    async def _post(self, path: str, body: Any) -> Json:
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: Any = None) -> Json:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, reply = await self._world.send(method, path, body, self._session)
        except (Offline, TimeoutError):
            raise Failure("offline", retryable=True) from None
        if status < 400 or isinstance(reply.get("results"), list):
            return reply
        raise Failure(reply["error"]["code"], retryable=status >= 500 or status == 429)


class Person:
    """Somebody who takes part, in one browser with one tab or several, until they have seen the end."""

    def __init__(self, world: Surroundings, name: str, taste: random.Random) -> None:
        self._world = world
        self.name = name
        self.device = Device(f"secret of {name}", only_windows=taste.random() < 0.1)
        self.pages: list[Page] = []
        self.tabs: list[Tab] = []
        self.finished = False
        self._taste = taste
        self._away_until = 0.0

    def judge(self, query: Json) -> int:
        """Return the winner of a query: mostly the target whose number is nearer."""
        left, right = query["left"], query["right"]
        nearer = left if abs(query["head"] - left) <= abs(query["head"] - right) else right
        return nearer if self._taste.random() < 0.85 else left + right - nearer

    async def live(self) -> None:
        """Take part to the end: a page that was closed is opened again, in a tab of its own."""
        while not self.finished:
            await asyncio.sleep(max(0.0, self._away_until - loop_here().time()))
            await self.use(Tab())

    async def use(self, tab: Tab) -> None:
        """Use one tab until it is closed; a page that cannot go on is loaded again, if no other tab goes on."""
        self.tabs.append(tab)
        while not self.finished:
            page = Page(self._world, self, tab)
            self.pages.append(page)
            opened = page.process.start(page.open())
            try:
                why = await opened
            except asyncio.CancelledError:
                why = "closed" if page not in self.pages else "reloaded"
            if page in self.pages:
                self.pages.remove(page)
            self._world.note(f"{self.name}: page {why}")
            if why == "ended":
                self.finished = True
                return
            if why == "closed" or (why == "elsewhere" and self.pages and self._taste.random() < 0.7):
                return
            if why != "reloaded":
                await asyncio.sleep(self._world.generator.uniform(0.5, 3.0))
                page.close()

    def reload(self, *, keeps_nothing: bool = False) -> None:
        """Load the newest page again; its tab may have kept nothing, and the device no unsent answers."""
        if not self.pages:
            return
        page = self.pages[-1]
        page.close()
        if keeps_nothing:
            page.tab.forget()
            self.device.unsent.clear()

    def leave(self, seconds: float) -> None:
        """Close all pages and come back later."""
        self._away_until = loop_here().time() + seconds
        pages, self.pages = self.pages, []
        for page in pages:
            page.close()

    def announce(self, page: Page, session: str) -> None:
        """Tell the other tabs of this device that a page has opened; not every browser can."""
        if self._world.generator.random() < 0.5:
            for other in self.pages:
                if other is not page:
                    other.take_note(session)
