"""The simulated world: the real web application and learning process, the store, pages and people, and what goes wrong.

`run(seed)` draws a scenario from the seed, lets people take part in an experiment while faults strike, then lets
everything recover, and checks the invariants (`invariants.py`). Nothing in it depends on the real clock, on threads or
on sockets.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import queue
import random
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio.to_thread
import redis._parsers.hiredis
import redis.connection
import redis.retry
from fastapi import FastAPI

import backend.jobs.runner
import backend.service
import backend.workers
import frontend.store.export_reader
from frontend.app import create_app
from frontend.context import Context
from frontend.launching import launch
from frontend.store import Store
from tests.simulation import virtual_loop as threads
from tests.simulation.deletion import delete
from tests.simulation.faults import FAULTS, STRIKE
from tests.simulation.invariants import Checks, Violation
from tests.simulation.page_model import Json, Offline, Person, Respondent
from tests.simulation.planted import Fault
from tests.simulation.processes import CODE, SETTINGS, START_MS, URL, Backend, Clock, Web
from tests.simulation.scripts import Script
from tests.simulation.scripts import start as start_script
from tests.simulation.store_server import StoreServer, StoreSocket, StoreTransport, Trouble
from tests.simulation.virtual_loop import Process, Shadow, VirtualLoop, detach

SLUG = "study"
#: Virtual seconds in which faults strike, and after which everybody must have finished.
TROUBLED_SECONDS = 60.0
LONGEST_SECONDS = 1200.0
WEBS = 2
#: Kinds of scripts, and how many seeds have any.
SCRIPTS = ("named", "anonymous", "greedy")
SHARE_WITH_SCRIPTS = 0.25
#: One seed in so many has few people and many trials, so that something that piles up over a session is found.
LONG_EVERY, LONG_TRIALS = 20, 300


@dataclass(frozen=True)
class Scenario:
    """What a seed decides before anything happens."""

    people: int
    webs: int
    n: int
    spec: str
    fixed: dict[int, tuple[int, int, int]]
    max_queries: int
    faults: int
    network: float
    asks_jobs: bool
    real_fits: bool
    scripts: tuple[str, ...]

    @staticmethod
    def draw(generator: random.Random, *, long: bool = False) -> Scenario:
        """Return a scenario with at least 20 answers; a `long` one has one person or two, and 300 trials each."""
        people = generator.randint(1, 2) if long else generator.randint(2, 5)
        n = 16 if long else generator.randint(8, 10)  # so that few of the queries of a long one were asked before
        most = LONG_TRIALS if long else generator.randint(max(5, -(-20 // people)), 10 if people < 4 else 8)
        fixed = {
            trial: _triple(generator, n) for trial in generator.sample(range(1, most + 1), generator.randint(0, 3))
        }
        samplers = [
            "Adaptive: {d: 1, R: 0.1, random_share: 20%}",
            *generator.sample(["Random: {}", "RoundRobin: {}"], generator.randint(0, 1)),
        ]
        lines = [
            f"targets: {n}",
            f"html: {{max_queries: {most}}}",
            f"samplers: {{{', '.join(samplers)}}}",
            f"seed: {generator.randint(0, 10**6)}",
            f"recruitment: {{completion_code: {CODE}}}",
        ]
        if fixed:
            details = ", ".join(
                f"{trial}: {{sampler: Adaptive, query: {list(query)}}}" for trial, query in sorted(fixed.items())
            )
            lines.append(f"sampling: {{details: {{{details}}}}}")
        if generator.random() < 0.3:
            lines.append("consent: {text: I agree.}")
        if generator.random() < 0.2:
            lines.append("questions: [{name: age, text: Your age?, type: number}]")
        quiet = generator.random() < 0.1
        scripts = tuple(generator.choices(SCRIPTS, (2, 2, 1), k=generator.randint(1, 2)))
        if generator.random() > SHARE_WITH_SCRIPTS:
            scripts = ()
        if scripts:
            lines.append("security: {compat: on}")  # scripts pass over a consent
        return Scenario(
            people=people,
            webs=generator.randint(1, WEBS),
            n=n,
            spec="\n".join(lines) + "\n",
            fixed=fixed,
            max_queries=most,
            faults=0 if quiet else generator.randint(3, 16),
            network=0.0 if quiet else generator.choice((0.0, 0.03, 0.1, 0.25)),
            asks_jobs=generator.random() < 0.2,
            real_fits=generator.random() < 0.04,
            scripts=scripts,
        )


def _triple(generator: random.Random, n: int) -> tuple[int, int, int]:
    head, first, second = generator.sample(range(n), 3)
    return head, first, second


@dataclass
class Outcome:
    """What became of a seed: what was violated, what happened, and the digest of that."""

    seed: int
    scenario: Scenario
    violations: list[Violation]
    events: list[str]
    digest: str
    answers: int
    steps: int
    seconds: float

    def report(self, last: int = 40) -> str:
        """Return what somebody needs to look into it."""
        faults = [event for event in self.events if "fault:" in event]
        return "\n".join(
            [
                f"seed {self.seed}: {len(self.violations)} violated, {self.answers} answers, {self.steps} steps, digest {self.digest}",
                *(f"  violated: {violation}" for violation in self.violations),
                "  scenario: " + self.scenario.spec.strip().replace("\n", "; ") + f"; people: {self.scenario.people}",
                "  faults:",
                *(f"    {fault}" for fault in faults),
                f"  last {last} events:",
                *(f"    {event}" for event in self.events[len(self.events) - last :]),
                f"  again: make simulate-faults SEED={self.seed}",
            ]
        )


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.generator = random.Random(f"salmon {seed}")
        self.scenario = Scenario.draw(self.generator, long=seed % LONG_EVERY == LONG_EVERY - 1)
        self.loop = loop
        self.events: list[str] = []
        self.store_clock = Clock()
        self.server = StoreServer(self.generator, self.store_clock.now_ms)
        self.webs = [Web(self, app, f"web {number}") for number, app in enumerate(_apps()[: self.scenario.webs], 1)]
        self.backends: list[Backend] = []
        self.workers_fail = 0.0
        self.network = 0.0
        self.people: list[Person] = []
        self.scripts: list[Script] = []
        self.checks = Checks(self)
        self.slug, self.experiment = SLUG, ""
        self._backends_started = 0
        self._faults_left = 0
        self._next_fault = 0
        self.troubled = False
        self.server.observer = self.checks.note_write

    def note(self, what: str) -> None:
        """Note an event."""
        self.events.append(f"{self.loop.time():9.3f} #{self.loop.steps} {what}")

    # What pages reach

    async def send(self, method: str, path: str, body: Any, session: str | None) -> tuple[int, Any]:
        """Carry a request to a web process and its reply back, if nothing happens to either."""
        draw = self.generator.random
        content = b"" if body is None else json.dumps(body).encode()
        await asyncio.sleep(draw() * 0.03)
        fate = draw() / self.network if self.network else 1.0
        if fate < 0.25:  # lost, and the page waits
            await asyncio.sleep(1000)
        if fate < 0.35:  # refused at once
            raise Offline
        delay = self.generator.uniform(0.5, 15.0) if fate < 0.5 else 0.0
        arrived = detach(self.arrive(method, path, content, session, delay))
        if 0.5 <= fate < 0.65:  # sent twice, as proxies and retrying connections do
            again = self.arrive(method, path, content, session, self.generator.uniform(0.0, 5.0))
            detach(_quietly(again))
        status, reply = await asyncio.shield(arrived)
        await asyncio.sleep(draw() * 0.03)
        if 0.65 <= fate < 1.0:  # the reply is lost
            raise Offline
        return status, reply

    def beacon(self, answers: list[Json]) -> None:
        """Send answers of a closing page; some beacons never leave, and some come late."""
        fate = self.generator.random()
        if fate < 0.3:
            return
        delay = self.generator.uniform(0.0, 15.0) if fate < 0.5 else 0.01
        content = json.dumps(answers).encode()
        detach(_quietly(self.arrive("POST", "answers", content, None, delay)))

    async def arrive(
        self, method: str, path: str, content: bytes, session: str | None, delay: float
    ) -> tuple[int, Any]:
        """Let a request reach a web process after a delay; return (status, reply) as it leaves."""
        if delay:
            await asyncio.sleep(delay)
        web = self.webs[int(self.generator.random() * len(self.webs))]
        address = path if path.startswith("/") else f"/e/{SLUG}/{path}"
        status, reply = await web.handle(method, address, content, session)
        self.checks.note_reply(web, method, path, content, session, status, reply)
        return status, reply

    def note_given(self, person: Respondent, query: Json, winner: int) -> None:
        """Note an answer that a person or a script gave."""
        trial = self.checks.served[query["token"]].trial
        self.note(f"{person.name} answers trial {trial} {query['head']},{query['left']},{query['right']}: {winner}")
        self.checks.note_given(person.name, query["token"], winner)

    def note_asked(self, token: str, asked_at: float) -> None:
        """Note the query that a script got for what it asked at a time."""
        self.checks.note_asked(token, asked_at)

    def note_acknowledged(self, token: str, *, duplicate: bool) -> None:
        """Note that a page has read that an answer is stored."""
        self.checks.note_acknowledged(token, duplicate=duplicate)

    def note_events(self, details: list[str]) -> None:
        """Note that a page has read that events are stored."""
        self.checks.note_events(details)

    def note_code(self, person: Person, given: int, reply: Json) -> None:
        """Note that somebody was shown the end."""
        self.note(f"{person.name} sees the end: given {given}, {reply['stored']} stored, code {reply['code']}")
        self.checks.note_code(person.name, reply)

    # The life of the world

    async def live(self) -> None:
        """Launch, let people take part while faults strike, recover, and check."""
        self.server.start()
        for web in self.webs:
            web.start()
        await self.outside_process("console", self._launch())
        self.start_backend()
        self.people = [
            Person(self, f"p{number}", random.Random(f"{self.generator.random()}"))
            for number in range(self.scenario.people)
        ]
        self.scripts = [
            Script(
                self,
                f"s{number}",
                random.Random(f"{self.generator.random()}"),
                wanted=self.scenario.max_queries,
                names_itself=kind == "named",
                greedy=kind == "greedy",
            )
            for number, kind in enumerate(self.scenario.scripts)
        ]
        lives = [self.loop.create_task(self._come(person)) for person in self.people]
        lives += [start_script(script) for script in self.scripts]
        extras = [self.loop.create_task(self._forge())]
        if self.scenario.asks_jobs:
            extras.append(self.loop.create_task(self._ask_jobs()))
        self.troubled = True
        self._faults_left = self.scenario.faults
        self._next_fault = self.loop.steps + self._gap()
        self.network = self.scenario.network
        self.loop.after_step = self._after_step
        await asyncio.wait(lives, timeout=TROUBLED_SECONDS)
        self._recover()
        await asyncio.wait(lives, timeout=LONGEST_SECONDS)
        for extra in extras:
            extra.cancel()
        for person in self.people:
            person.leave(0.0)
        await asyncio.sleep(17.0)  # late beacons come, and the learning process reads the last answers
        self.note("the end")
        await self.checks.at_the_end(lives)
        await delete(self)

    async def _launch(self) -> None:
        store = Store.open(URL)
        made, _ = await launch(
            Context(SETTINGS, store, now_ms=self.webs[0].clock.now_ms),
            self.scenario.spec.encode(),
            spec_name=Path("study.yaml"),
            archive=None,
            name=SLUG,
            owner="owner",
            state="open",
        )
        self.experiment = made.experiment
        await store.close()

    async def outside_process(self, name: str, work: Any) -> Any:
        """Do something as a process of its own, which lives on a context of the first web process."""
        return await Process(name).start(work)

    async def _come(self, person: Person) -> None:
        await asyncio.sleep(self.generator.uniform(0.0, 8.0))
        await person.live()

    def start_backend(self) -> None:
        """Start a learning process, beside those that run."""
        self._backends_started += 1
        self.backends.append(Backend(self, f"backend {self._backends_started}"))

    async def _forge(self) -> None:
        """Send answers to tokens that the server never made, and winners that no query had."""
        while True:
            await asyncio.sleep(self.generator.uniform(2.0, 8.0))
            busy = [person for person in self.people if person.pages and person.tabs[-1].session]
            if busy:  # somebody asks for the code before the end
                early = json.dumps({"given": 0, "incomplete": False}).encode()
                session = self.generator.choice(busy).tabs[-1].session
                detach(_quietly(self.arrive("POST", "finish", early, session, 0.0)))
            token = self.checks.some_token(self.generator)
            if token is None:
                continue
            served = self.checks.served[token]
            place = self.generator.randrange(len(token))
            other = "A" if token[place] != "A" else "B"
            strange = next(each for each in range(self.scenario.n) if each not in {served.left, served.right})
            forged = [
                {"token": token[:place] + other + token[place + 1 :], "winner": served.left},
                {"token": token, "winner": strange},
            ]
            detach(_quietly(self.arrive("POST", "answers", json.dumps(forged).encode(), None, 0.0)))
            query = {"head": served.head, "left": served.left, "right": served.right, "sampler": served.sampler}
            for one in forged:
                alone = json.dumps({**query, **one, "puid": "p0"}).encode()
                detach(_quietly(self.arrive("POST", "/answer", alone, None, 0.0)))

    async def _ask_jobs(self) -> None:
        """Ask the learning process for embeddings, and cancel some of these jobs."""
        while True:
            await asyncio.sleep(self.generator.uniform(3.0, 12.0))
            try:
                await self.outside_process("console", self._ask_job())
            except Exception as error:  # noqa: BLE001 - the console shows the error, and the experimenter asks again
                self.note(f"console: {error}")

    async def _ask_job(self) -> None:
        jobs = Store.open(URL).jobs
        asked = await jobs.ask(
            "embedding", self.experiment, {"sampler": "Adaptive", "answers": 5}, asked_by="owner", now_ms=START_MS
        )
        self.note(f"console asks job {asked}")
        if self.generator.random() < 0.4:
            await asyncio.sleep(self.generator.uniform(0.0, 2.0))
            await jobs.cancel(self.experiment, asked)
            self.note(f"console cancels job {asked}")

    # Faults

    def _gap(self) -> int:
        return 1 + int(self.generator.expovariate(1 / 500))

    def _after_step(self, steps: int) -> None:
        if self.troubled and self._faults_left > 0 and steps >= self._next_fault:
            self._faults_left -= 1
            self._next_fault = steps + self._gap()
            names, weights = zip(*FAULTS.items(), strict=True)
            name = self.generator.choices(names, weights)[0]
            STRIKE[name](self)

    def fault(self, what: str) -> None:
        """Note a fault."""
        self.note(f"fault: {what}")

    def later(self, low: float, high: float, end: Callable[[], None]) -> None:
        """Do something after a while."""
        self.loop.call_later(self.generator.uniform(low, high), end)

    def _recover(self) -> None:
        """End all trouble; what does not run is started."""
        self.troubled = False
        self.network = 0.0
        self.workers_fail = 0.0
        self.server.trouble = Trouble()
        self.server.model.refuses = ""
        if not self.server.running:
            self.server.start()
        for web in self.webs:
            if web.process is None:
                web.start()
        self.note("recovery: everything runs")


async def _quietly(work: Any) -> None:
    with suppress(Offline):
        await work


_made: list[FastAPI] = []
_frozen: list[bool] = []


def _apps() -> list[FastAPI]:
    """Return the applications, which are made once; each start of a web process gives one a new context.

    What the learning process loads only when it is needed is loaded here: some packages draw random numbers then.
    """
    if not _made:
        import_module("backend.jobs.plan")
    while len(_made) < WEBS:
        _made.append(create_app(SETTINGS, Store.open(URL)))
    return _made


async def _at_once(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
    """Run in this loop what a thread of the pool would run."""
    await asyncio.sleep(0)
    return function(*arguments)


@contextmanager
def simulated(world: World) -> Generator[None]:
    """Put the virtual clock, threads, network and randomness in the place of the real ones."""
    world.loop.connect = lambda protocol: StoreTransport.open(world.server, protocol)

    def open_socket(connection: redis.connection.Connection) -> StoreSocket:
        return StoreSocket(world.server, connection.socket_timeout)

    wall = world.store_clock.now_ms
    virtual_time = Shadow(
        time,
        monotonic=threads.monotonic,
        perf_counter=threads.monotonic,
        sleep=threads.sleep,
        time=lambda: wall() / 1000,
        time_ns=lambda: wall() * 1_000_000,
    )
    queues = Shadow(queue, SimpleQueue=threads.SimpleQueue, Empty=threads.Empty)
    greenlets = Shadow(threading, Thread=threads.Thread, Event=threads.Event, Lock=threads.Lock)
    parts: list[tuple[Any, str, Any]] = [
        (random, "_urandom", random.Random(f"ids {world.seed}").randbytes),
        (anyio.to_thread, "run_sync", _at_once),
        (redis.connection.Connection, "_connect", open_socket),
        (redis._parsers.hiredis, "_socket_can_read", StoreSocket.readable),
        (redis._parsers.hiredis, "_socket_is_closed", StoreSocket.is_lost),
        (redis.retry, "sleep", threads.sleep),
        (backend.service, "threading", greenlets),
        (backend.service, "queue", queues),
        (backend.service, "time", virtual_time),
        (backend.workers, "threading", greenlets),
        (backend.workers, "time", virtual_time),
        (backend.workers, "ThreadPoolExecutor", threads.Pool),
        (backend.jobs.runner, "threading", greenlets),
        (backend.jobs.runner, "queue", queues),
        (backend.jobs.runner, "ThreadPoolExecutor", threads.Pool),
        (backend.jobs.runner, "wait", threads.wait),
        (frontend.store.export_reader, "PAGE", 7),  # so that an export has several pages
    ]
    loggers = logging.getLogger("salmon"), logging.getLogger("salmon.trials")
    levels = [logger.level for logger in loggers]
    with ExitStack() as stack:
        for owner, name, value in parts:
            stack.enter_context(patch.object(owner, name, value))
        loggers[0].setLevel(logging.CRITICAL + 1)
        loggers[1].setLevel(logging.WARNING)
        loggers[1].addHandler(world.checks.slow)
        loggers[1].propagate = False
        try:
            yield
        finally:
            loggers[1].removeHandler(world.checks.slow)
            loggers[1].propagate = True
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def run(seed: int, fault: Fault | None = None, *, until: str = "") -> Outcome:
    """Live through one seed, with a fault planted or without, to its end or until an invariant is violated."""
    _apps()
    gc.disable()  # objects that are collected in the middle of a run would close connections
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # processes that are killed leave connections open
            outcome = _live(seed, fault, until)
            gc.collect()
    finally:
        gc.enable()
    if not _frozen:
        _frozen.append(True)
        gc.freeze()  # what the first run has loaded lives as long as this process: it need not be looked through again
    return outcome


def _live(seed: int, fault: Fault | None, until: str) -> Outcome:
    before = random.getstate()
    random.seed(seed)
    loop = VirtualLoop(random.Random(f"order {seed}"))
    world = World(seed, loop)
    world.checks.until = until
    try:
        with simulated(world), fault.plant(world) if fault else nullcontext():
            loop.run(world.live())
    finally:
        random.setstate(before)
    return Outcome(
        seed,
        world.scenario,
        world.checks.violations,
        world.events,
        hashlib.sha256("\n".join(world.events).encode()).hexdigest()[:16],
        world.checks.answers,
        loop.steps,
        loop.time(),
    )


def run_piece(seeds: range) -> list[tuple[int, str]]:
    """Live through some seeds; for each return how many answers were recorded, and a
    report where something is violated.
    """
    outcomes = [run(seed) for seed in seeds]
    return [(outcome.answers, outcome.report() if outcome.violations else "") for outcome in outcomes]
