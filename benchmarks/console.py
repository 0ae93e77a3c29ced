"""`python -m benchmarks.console`: what a million answers cost whoever looks at them, while participants answer.

Loads the answers through the verbs of an import, then prints rows a second, and rows for each second of processor time
of the writing process, which does not depend on what else the machine does; growth of the web process and the memory of
the writing one; latencies of participants' queries idle and meanwhile; and times of what the console asks for. While
people answer, quality has to be found anew for each file, so that every answer is read twice. With `--learn` only the
time is measured from opening the experiment, with `Adaptive`, to the first query that was chosen with a model, and to a
model of all answers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from benchmarks.report import Report, arguments, latencies
from frontend.experiments import make_revision
from frontend.store import Store
from frontend.store.importing import PAGE
from salmon.cli.data_directory import DataDirectory
from salmon.records import Answer, Served, Timing
from salmon.spec import parse_spec
from salmon.wire import encode_answer
from tests.oracles import recount
from tests.program import Program

SPEC = "targets: {n}\nsamplers: {{Random: {{}}, Validation: {{n_queries: 20}}{more}}}\nhtml: {{max_queries: 200}}\n"
EXPERIMENT, SLUG = "benchmark0", "million"
EACH = 200
FILES = ("responses.csv", "responses.jsonl", "responses.parquet")
#: Simulated participants who answer while files are written, and the pause of each between two queries.
PEOPLE, PAUSE_SECONDS = 20, 0.5
COLUMNS = (
    "what",
    "seconds",
    "rows_per_s",
    "rows_per_cpu_s",
    "web_growth_mb",
    "writer_mb",
    "query_ms_50",
    "query_ms_99",
    "queries",
)


def main() -> None:
    options = arguments(
        __doc__,
        clocks=False,
        answers={"type": int, "default": 1_000_000},
        targets={"type": int, "default": 60},
        bundle={"action": "store_true", "help": "also write a bundle and import it again"},
        learn={"action": "store_true", "help": "only how soon the learning process has learned the answers"},
        only={"nargs": "*", "default": FILES, "choices": FILES, "help": "which files"},
    )
    report = Report("console", COLUMNS)
    with tempfile.TemporaryDirectory() as folder, Program(Path(folder) / "data") as program:
        program.wait_until_ready()
        login = program.add_user()
        spec = SPEC.format(n=options.targets, more=", Adaptive: {}" if options.learn else "")
        seconds = asyncio.run(_load(program, options.answers, options.targets, spec))
        report.add(what="load", seconds=seconds, rows_per_s=options.answers / seconds)
        if options.learn:
            asyncio.run(_learn(program, options.answers, report))
        else:
            asyncio.run(_measure(program, login, options, report))
        report.write(options.json)


def _answers(count: int, n: int) -> Iterator[tuple[str, Answer]]:
    """People in groups of twenty, each with 200 answers, a second apart."""
    draw = random.Random(1)
    shared = [draw.sample(range(n), 3) for _ in range(20)]
    started_ms = 1_760_000_000_000
    for place in range(count):
        group, turn = divmod(place // 20, EACH)
        participant = f"p{group * 20 + place % 20:011d}"
        kind = "validation" if turn % 10 == 0 else "random"
        head, left, right = shared[turn // 10] if kind == "validation" else draw.sample(range(n), 3)
        received_ms = started_ms + 50 * place
        served = Served(
            experiment=EXPERIMENT,
            revision=1,
            participant=participant,
            session="0123abcd",
            trial=turn + 1,
            sampler="Validation" if kind == "validation" else "Random",
            head=head,
            left=left,
            right=right,
            score=-9999.0,
            trial_type=kind,
            probability=1 / 102_660,
            sampler_probability=0.5,
            generation=0,
            published_ms=0,
            served_ms=received_ms - 1500,
            nonce=f"{place:016x}",
        )
        timing = Timing(draw.lognormvariate(7.0, 0.4), 12.5, 100.0 * turn, 8.25, "mouse", 1, False, 1280, 800)
        yield f"{received_ms}-0", Answer(served, draw.choice((left, right)), timing, received_ms)


def _store(program: Program) -> Store:
    directory = DataDirectory(program.data)
    return Store.open(directory.redis_url("frontend", directory.credentials().frontend))


async def _load(program: Program, count: int, n: int, text: str) -> float:
    """Put the answers there as an import does; seconds."""
    store = _store(program)
    began = time.perf_counter()
    revision = make_revision(text, parse_spec(text).spec, None, now_ms=1)
    await store.importer.write_hash(EXPERIMENT, "spec", {"1": revision.encode()})
    page: list[tuple[str, dict[str, str]]] = []
    state: Counter[str] = Counter()
    people: Counter[str] = Counter()
    for stream_id, answer in _answers(count, n):
        page.append((stream_id, encode_answer(answer)))
        state.update(("answers", f"answers:{answer.served.sampler}"))
        people[answer.served.participant] += 1
        if len(page) == PAGE:
            await store.importer.append_answers(EXPERIMENT, page)
            page = []
    await store.importer.append_answers(EXPERIMENT, page) if page else None
    rows = [
        (
            name,
            {"puid": f"x{name}", "source": "prolific", "first_ms": "1", "status": "completed"}
            | {"answers": str(given), "turns": str(given)},
            (),
        )
        for name, given in people.items()
    ]
    for start in range(0, len(rows), PAGE):
        await store.importer.write_people(EXPERIMENT, rows[start : start + PAGE])
        arrived = {f"prolific:x{name}": name for name, _, _ in rows[start : start + PAGE]}
        await store.importer.write_hash(EXPERIMENT, "arrivals", arrived)
    await store.importer.write_hash(EXPERIMENT, "counts", recount(answer for _, answer in _answers(count, n)))
    own = {"state": "open", "revision": 1, "owner": "local", "created_ms": 1, "opened_ms": 1_760_000_000_000}
    await store.importer.reveal(EXPERIMENT, SLUG, {**state, **own})
    await store.experiments.announce(EXPERIMENT)
    await store.close()
    return time.perf_counter() - began


async def _learn(program: Program, answers: int, report: Report) -> None:
    """Wait for the first query that was chosen with a model, and for a model of all
    answers; the experiment opens now.
    """
    store, began, query = _store(program), time.perf_counter(), None
    while query is None:
        await asyncio.sleep(0.02)
        queries = await store.turns.peek_queries(EXPERIMENT, "Adaptive", 20)
        query = next((query for query in queries if query.trial_type == "active"), None)
    report.add(what="first chosen query", seconds=time.perf_counter() - began)
    learned = None
    while learned is None or int(learned.numbers["absorbed"]) < 0.85 * answers:  # a tenth is never fitted
        await asyncio.sleep(0.1)
        learned = await store.models.read(EXPERIMENT, "Adaptive")
    report.add(what="all answers learned", seconds=time.perf_counter() - began)
    await store.close()


async def _measure(program: Program, login: tuple[str, str], options: argparse.Namespace, report: Report) -> None:
    address = f"{program.address}/api/experiments/{SLUG}"
    # A session, because checking a password takes 64 MB for a moment, which is not what is measured here.
    async with httpx.AsyncClient(base_url=program.address) as client:
        reply = await client.post("/console/login", data={"name": login[0], "password": login[1]})
    cookie = "; ".join(f"{name}={value}" for name, value in reply.cookies.items())
    crowd = People(program.address)
    await crowd.arrive()
    await asyncio.sleep(10)
    report.add(what="idle", seconds=10.0, **crowd.figures(0))
    for what in options.only:
        report.add(**await _download(program, address, f"exports/{what}", cookie, crowd, what, options.answers))
    if options.bundle:
        target = program.data.parent / "bundle.zip"
        figures = await _download(program, address, "bundle", cookie, crowd, "bundle", 0, target)
        report.add(**figures)
        print(f"bundle: {target.stat().st_size / 1e6:.0f} MB", flush=True)
        began = time.perf_counter()
        command = ("salmon", "import", str(target), "--name", "again", "--data", str(program.data))
        importing = await asyncio.create_subprocess_exec(sys.executable, "-m", *command)
        assert await importing.wait() == 0
        report.add(what="import", seconds=time.perf_counter() - began)
    async with httpx.AsyncClient(headers={"Cookie": cookie}, timeout=600) as client:
        for path in ("participants?wait=yes", "participants", "participants?limit=10000", "overview"):
            began = time.perf_counter()
            reply = await client.get(f"{address}/{path}")
            if reply.status_code == 404:
                report.note(f"{path} does not exist")
                continue
            report.add(what=path, seconds=time.perf_counter() - began)
    await crowd.leave()


async def _download(
    program: Program,
    address: str,
    path: str,
    cookie: str,
    crowd: People,
    what: str,
    rows: int,
    target: Path | None = None,
) -> dict[str, object]:
    """Fetch a file with another process, so that reading it here slows nobody down."""
    code = (
        "import sys, urllib.request\n"
        "request = urllib.request.Request(sys.argv[1], headers={'Cookie': sys.argv[2]})\n"
        "with urllib.request.urlopen(request) as reply, open(sys.argv[3], 'wb') as file:\n"
        "    while piece := reply.read(1 << 20): file.write(piece)\n"
    )
    memory = Memory(program.child("frontend"))
    before = len(crowd.times)
    began = time.perf_counter()
    with memory:
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, f"{address}/{path}", cookie, str(target or os.devnull))
        )
        assert await reader.wait() == 0
    seconds = time.perf_counter() - began
    return {
        "what": what,
        "seconds": seconds,
        **({"rows_per_s": rows / seconds, "rows_per_cpu_s": rows / memory.writer_cpu_s} if rows else {}),
        "web_growth_mb": (memory.web - memory.before) / 1e6,
        "writer_mb": memory.writer / 1e6,
        **crowd.figures(before),
    }


@dataclass
class Memory:
    """The most memory that the web process and its writing process had meanwhile, in bytes, and the latter's time."""

    process: psutil.Process
    before: int = 0
    web: int = 0
    writer: int = 0
    writer_cpu_s: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self.before = self.web = self.process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.web = max(self.web, self.process.memory_info().rss)
            for child in self.process.children():
                try:
                    self.writer = max(self.writer, child.memory_info().rss)
                    spent = child.cpu_times()
                    self.writer_cpu_s = max(self.writer_cpu_s, spent.user + spent.system)
                except psutil.NoSuchProcess:
                    continue


class People:
    """Participants of the same experiment who ask and answer all the time."""

    def __init__(self, address: str) -> None:
        self._client = httpx.AsyncClient(base_url=f"{address}/e/{SLUG}/", timeout=60)
        self.times: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def arrive(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._answer(number)) for number in range(PEOPLE)]

    def figures(self, first: int) -> dict[str, float]:
        """The latencies of queries as of this one, and their number."""
        own = self.times[first:]
        return (latencies("query", own) if own else {}) | {"queries": len(own)}

    async def leave(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    async def _answer(self, number: int) -> None:
        generation = 0
        await asyncio.sleep(PAUSE_SECONDS * number / PEOPLE)
        while True:
            body = {"parameters": {"puid": f"live{number}x{generation}"}}
            session = (await self._client.post("arrive", json=body)).raise_for_status().json()["session"]
            headers = {"X-Salmon-Session": session}
            for turn in range(EACH):
                began = time.perf_counter()
                query = (await self._client.get(f"query?number={turn + 1}", headers=headers)).raise_for_status().json()
                self.times.append(time.perf_counter() - began)
                if "token" not in query:
                    break
                answer = {"token": query["token"], "winner": query["left"], "rt_ms": 900.0}
                (await self._client.post("answers", json=answer)).raise_for_status()
                await asyncio.sleep(PAUSE_SECONDS)
            generation += 1


if __name__ == "__main__":
    main()
