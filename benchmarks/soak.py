"""Record a million answers on the running program and watch its memory: `python -m benchmarks.soak`.

People arrive, ask for queries and answer them over HTTP, as pages do. As that would take most of an hour for a million
answers, `--asked` says how many are asked for; the other answers carry tokens that are signed here with the server's
secret and are sent to the same route in lists of 50, as a page sends what it has kept. So every answer passes through
the route, the check of its token and the script that records it; only `GET /query` is left out for most.

Prints memory, bytes an answer, the time of the overview and of a restart, and writes them as JSON.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis

from frontend.security import Signer
from salmon.cli.data_directory import DataDirectory
from salmon.records import Served
from salmon.wire import EXPERIMENTS, Keys
from tests.program import Program

TARGETS = 100
EACH = 50
SPEC = f"targets: {TARGETS}\nhtml: {{max_queries: 0}}\nsamplers: {{Adaptive: {{}}, Random: {{}}}}\n"
SLUG = "soak"
#: Requests with lists of answers that are under way at the same time, and people who ask for each query.
AT_ONCE = 24
#: Seconds between two looks at the memory.
LOOK_SECONDS = 5.0


@dataclass
class Look:
    """Memory in MB at one moment: what each process holds, what the store says it uses, and after how many answers."""

    answers: int
    seconds: float
    frontend: float
    supervisor: float
    backend: float
    redis: float
    used: float


@dataclass
class Soak:
    """One run: the program, and what was seen of it."""

    program: Program
    began: float = field(default_factory=time.monotonic)
    acknowledged: int = 0
    looks: list[Look] = field(default_factory=list[Look])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def secret(self) -> str:
        """The secret that signs tokens."""
        return DataDirectory(self.program.data).credentials().secret

    def look(self) -> Look:
        """Note the memory of this moment."""
        memory = {name: self.program.child(name).memory_info().rss / 1e6 for name in ("frontend", "backend", "redis")}
        supervisor = self.program.tree()[0].memory_info().rss / 1e6
        with self.store("eraser") as client:
            used = int(client.info("memory")["used_memory"]) / 1e6
        found = Look(self.acknowledged, time.monotonic() - self.began, supervisor=supervisor, used=used, **memory)
        self.looks.append(found)
        return found

    def store(self, user: str) -> "redis.Redis":
        """Return a client of the store."""
        directory = DataDirectory(self.program.data)
        return redis.Redis.from_url(directory.redis_url(user, getattr(directory.credentials(), user)))


async def watch(soak: Soak, wanted: int) -> None:
    """Look at the memory again and again, and say how far it is."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        seen = soak.look()
        rate = seen.answers / seen.seconds
        sys.stderr.write(
            f"\r{seen.answers:,} of {wanted:,} answers, {rate:,.0f} a second; MB: web {seen.frontend:.0f},"
            f" supervisor {seen.supervisor:.0f}, backend {seen.backend:.0f}, store {seen.used:.0f}   "
        )


async def send(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> dict[str, Any]:
    """Send a request until it is answered."""
    while True:
        try:
            reply = await client.request(method, f"/e/{SLUG}/{path}", **options)
            if reply.status_code == 200:
                return reply.json()
            if reply.status_code not in {429, 503}:
                raise RuntimeError(f"{method} {path}: {reply.status_code} {reply.text[:300]}")
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)


async def arrive(client: httpx.AsyncClient, number: int) -> str:
    """Let somebody arrive from an address of their own; return their session's key."""
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    body = {"parameters": {"puid": f"person-{number}"}}
    return (await send(client, "POST", "arrive", json=body, headers={"X-Forwarded-For": address}))["session"]


async def ask_and_answer(soak: Soak, client: httpx.AsyncClient, number: int) -> None:
    """Answer `EACH` queries one after the other, as a page does."""
    headers = {"X-Salmon-Session": await arrive(client, number)}
    for turn in range(EACH):
        query = await send(client, "GET", f"query?number={turn + 1}", headers=headers)
        body = {"token": query["token"], "winner": query["left"], "rt_ms": 800, "input": "script"}
        await send(client, "POST", "answers", json=body)
        soak.acknowledged += 1


async def answer_list(soak: Soak, client: httpx.AsyncClient, number: int) -> None:
    """Send `EACH` answers in one list, to queries whose tokens are signed here."""
    signer, chance = Signer(soak.secret), random.Random(number)
    session = signer.read_session(await arrive(client, number))
    answers: list[dict[str, Any]] = []
    for trial in range(1, EACH + 1):
        head, left, right = chance.sample(range(TARGETS), 3)
        served = Served(
            experiment=session.experiment,
            revision=1,
            participant=session.participant,
            session=session.session,
            trial=trial,
            sampler="Random",
            head=head,
            left=left,
            right=right,
            score=0.0,
            trial_type="random",
            probability=0.5,
            sampler_probability=0.5,
            generation=0,
            published_ms=0,
            served_ms=time.time_ns() // 1_000_000,
            nonce=f"{number:08x}{trial:08x}",
        )
        answers.append({"token": signer.sign_served(served), "winner": left, "rt_ms": 800 + trial, "input": "script"})
    reply = await send(client, "POST", "answers", json=answers)
    soak.acknowledged += sum("error" not in result for result in reply["results"])


async def spread(soak: Soak, wanted: int, work: Any, first: int) -> None:
    """Let people do their work, `AT_ONCE` at a time, until so many answers are given."""
    numbers = iter(range(first, first + wanted // EACH))
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=soak.program.address, limits=limits, timeout=60) as client:

        async def one_after_another() -> None:
            for number in numbers:
                await work(soak, client, number)

        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


async def record(soak: Soak, wanted: int, asked: int) -> None:
    """Record all answers, and find out the bytes that each takes in the store."""
    start = soak.look()
    watching = asyncio.create_task(watch(soak, wanted))
    began = time.monotonic()
    await spread(soak, asked, ask_and_answer, 0)
    seen, seconds = soak.look(), time.monotonic() - began
    soak.figures["asked"] = {
        "answers": seen.answers,
        "answers_a_second": seen.answers / seconds,
        "store_bytes_an_answer": 1e6 * (seen.used - start.used) / max(1, seen.answers),
    }
    began = time.monotonic()
    await spread(soak, wanted - asked, answer_list, asked // EACH)
    end, seconds = soak.look(), time.monotonic() - began
    watching.cancel()
    soak.figures["lists"] = {
        "answers": end.answers - seen.answers,
        "answers_a_second": (end.answers - seen.answers) / seconds,
        "store_bytes_an_answer": 1e6 * (end.used - seen.used) / max(1, end.answers - seen.answers),
    }
    half = [look for look in soak.looks if look.answers >= wanted / 2]
    for name in ("frontend", "supervisor"):
        values = [getattr(look, name) for look in half]
        soak.figures[f"{name}_mb"] = {
            "half": values[0],
            "end": values[-1],
            "spread_percent": 100 * (max(values) - min(values)) / statistics.mean(values),
        }


async def time_overview(soak: Soak, login: tuple[str, str]) -> None:
    """Time the overview of the experiment, after the first, in a session: a password
    in each request would be hashed.
    """
    seconds: list[float] = []
    async with httpx.AsyncClient(base_url=soak.program.address, timeout=60) as client:
        await client.post("/console/login", data={"name": login[0], "password": login[1]})
        for _ in range(30):
            began = time.perf_counter()
            (await client.get(f"/api/experiments/{SLUG}/overview")).raise_for_status()
            seconds.append(1000 * (time.perf_counter() - began))
    soak.figures["overview_ms"] = {
        "first": seconds[0],
        "median": statistics.median(seconds[1:]),
        "worst": max(seconds[1:]),
    }


async def until_learned(soak: Soak, seconds: float) -> None:
    """Wait until the learning process has taken up every answer, and find out how much memory each takes there."""
    with soak.store("backend") as client:
        experiment = client.hget(EXPERIMENTS, SLUG).decode()
        last = client.xrevrange(Keys(experiment).answers, count=1)[0][0]
        deadline = time.monotonic() + seconds
        while client.hget(Keys(experiment).model("Adaptive"), "cursor") != last and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        soak.figures["model_has_all"] = client.hget(Keys(experiment).model("Adaptive"), "cursor") == last
    first, end = soak.looks[0], soak.look()
    soak.figures["backend_mb"] = {"start": first.backend, "end": end.backend}
    soak.figures["backend_bytes_an_answer"] = 1e6 * (end.backend - first.backend) / soak.acknowledged


async def time_restart(soak: Soak) -> None:
    """Kill everything, start it again, and time the first query."""
    soak.program.kill()
    began = time.monotonic()
    await asyncio.to_thread(soak.program.start)
    async with httpx.AsyncClient(base_url=soak.program.address, timeout=60) as client:
        headers = {"X-Salmon-Session": await arrive(client, 1 << 23)}
        await send(client, "GET", "query?number=1", headers=headers)
    soak.figures["restart_to_first_query_s"] = time.monotonic() - began


def main() -> int:
    """Run the soak; return 1 where an answer is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--asked", type=int, default=20_000, help="answers whose queries are asked for")
    parser.add_argument("--learn-seconds", type=float, default=120, help="longest time to wait for the last model")
    parser.add_argument("--json", type=Path, default=Path("build/soak.json"))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="salmon-soak-") as folder, Program(Path(folder) / "data") as program:
        program.port = int(program.address.rpartition(":")[2])
        login = program.add_user()
        program.launch_text(SLUG, SPEC)
        program.wait_until_ready()
        soak = Soak(program)
        asyncio.run(record(soak, arguments.answers, arguments.asked))
        asyncio.run(time_overview(soak, login))
        asyncio.run(until_learned(soak, arguments.learn_seconds))
        asyncio.run(time_restart(soak))
        with soak.store("backend") as client:
            stored = client.xlen(Keys(client.hget(EXPERIMENTS, SLUG).decode()).answers)
    soak.figures |= {
        "sent": arguments.answers // EACH * EACH,
        "acknowledged": soak.acknowledged,
        "stored_after_restart": stored,
        "load": [load, os.getloadavg()[0]],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({**soak.figures, "looks": [asdict(look) for look in soak.looks]}, indent=1))
    print("\n" + json.dumps(soak.figures, indent=1))
    return 0 if stored == soak.acknowledged == soak.figures["sent"] else 1


if __name__ == "__main__":
    sys.exit(main())
