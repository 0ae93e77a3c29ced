"""`python -m benchmarks.overview`: what the overview of an experiment with many participants costs everybody else.

Puts participants with a few answers each straight into the store: a tenth of them click without looking, so that their
exclusion is proposed, and half of them are under way. Then it prints the median time of the overview, alone and with
many live pages open, and how long `/healthz` of the same web process takes meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import httpx

from benchmarks.report import Report, arguments
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from tests.crowds import put_crowd
from tests.program import Program

EXPERIMENT, SLUG = "benchmark1", "crowd"
#: A request of the overview follows the one before after this pause, and one of `/healthz` after this one.
PAUSE_SECONDS, HEALTH_SECONDS = 0.05, 0.005
COLUMNS = ("what", "overview_ms", "overview_max_ms", "health_50_ms", "health_99_ms", "requests")


def main() -> None:
    options = arguments(
        __doc__ or "",
        clocks=False,
        participants={"type": int, "default": 20_000},
        each={"type": int, "default": 10, "help": "answers of each"},
        viewers={"type": int, "default": 20, "help": "live pages"},
        seconds={"type": float, "default": 15.0, "help": "of each measurement"},
    )
    with tempfile.TemporaryDirectory() as folder, Program(Path(folder) / "data") as program:
        program.wait_until_ready()
        login = program.add_user()
        asyncio.run(_load(program, options.participants, options.each))
        report = Report(f"overview of {options.participants:,} participants", COLUMNS)
        asyncio.run(_measure(program, login, options, report))
        report.write(options.json)


async def _load(program: Program, people: int, each: int) -> None:
    directory = DataDirectory(program.data)
    store = Store.open(directory.redis_url("frontend", directory.credentials().frontend))
    await put_crowd(store, EXPERIMENT, SLUG, people, each)
    await store.close()


async def _measure(program: Program, login: tuple[str, str], options: argparse.Namespace, report: Report) -> None:
    address = f"{program.address}/api/experiments/{SLUG}"
    # A session, because checking a password takes 64 MB for a moment, which is not what is measured here.
    async with httpx.AsyncClient(base_url=program.address) as client:
        reply = await client.post("/console/login", data={"name": login[0], "password": login[1]})
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in reply.cookies.items())}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(headers=headers, timeout=600, limits=limits) as client:
        (await client.get(f"{address}/participants?wait=yes&limit=1")).raise_for_status()
        shown = (await client.get(f"{address}/overview")).raise_for_status().json()
        report.note(f"{shown['participants']}; {[sentence['what'] for sentence in shown['sentences']]}")
        report.add(what="nobody looks", **await _watch(client, program.address, "", options.seconds))
        report.add(what="one overview after another", **await _watch(client, program.address, address, options.seconds))
        viewers = [asyncio.create_task(_view(client, f"{address}/stream")) for _ in range(options.viewers)]
        await asyncio.sleep(2)
        what = f"beside {options.viewers} live pages"
        report.add(what=what, **await _watch(client, program.address, address, options.seconds))
        for viewer in viewers:
            viewer.cancel()
        await asyncio.gather(*viewers, return_exceptions=True)
        began = time.perf_counter()
        await asyncio.gather(*(client.get(f"{address}/overview") for _ in range(options.viewers)))
        report.note(f"{options.viewers} overviews at once: {time.perf_counter() - began:.2f} s")


async def _watch(client: httpx.AsyncClient, program: str, address: str, seconds: float) -> dict[str, float]:
    """Ask for the overview again and again, if an address is given, and for `/healthz` meanwhile."""
    ends = time.perf_counter() + seconds
    overviews, health = await asyncio.gather(
        _ask(client, f"{address}/overview", PAUSE_SECONDS, ends) if address else _nothing(),
        _ask(client, f"{program}/healthz", HEALTH_SECONDS, ends),
    )
    found = {"health_50_ms": 1000 * median(health), "health_99_ms": 1000 * quantiles(health, n=100)[98]}
    if overviews:
        found |= {"overview_ms": 1000 * median(overviews), "overview_max_ms": 1000 * max(overviews)}
    return found | {"requests": len(health)}


async def _ask(client: httpx.AsyncClient, url: str, pause: float, ends: float) -> list[float]:
    times: list[float] = []
    while time.perf_counter() < ends:
        began = time.perf_counter()
        (await client.get(url)).raise_for_status()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    return times


async def _nothing() -> list[float]:
    return []


async def _view(client: httpx.AsyncClient, url: str) -> None:
    """Read the live stream of one page."""
    async with client.stream("GET", url) as reply:
        async for _ in reply.aiter_raw():
            pass


if __name__ == "__main__":
    main()
