"""An answer is on two disks before it is confirmed, where the operator wants that; without
the second, everything goes on.
"""

import asyncio
import os
import secrets
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from frontend.app import create_app
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.redis_server import READY, find_server
from tests.studies import study

COLORS = "targets: [red, green, blue, cyan, pink]\nsamplers: {Random: {}}\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def valkey(folder: Path, port: int, *options: str) -> Generator[subprocess.Popen[str]]:
    """A store of an operator's own."""
    folder.mkdir(exist_ok=True)
    command = (
        *(str(find_server()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--repl-diskless-sync-delay", "0", *options),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(READY in line for line in process.stdout)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@pytest.fixture
def ports() -> tuple[int, int]:
    return free_port(), free_port()


async def answer(one: httpx.AsyncClient, slug: str, session: str) -> httpx.Response:
    query = (await one.get(f"/e/{slug}/query", headers={"X-Salmon-Session": session})).raise_for_status().json()
    return await one.post(f"/e/{slug}/answers", json={"token": query["token"], "winner": query["left"]})


async def test_confirmed_answers_are_on_the_replica_when_the_store_and_its_disk_are_gone(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    first, second = ports
    settings = Settings(
        redis_url=f"redis://127.0.0.1:{first}", secret=secrets.token_hex(16), data=str(tmp_path / "data"), copies=2
    )
    with valkey(tmp_path / "second", second, "--replicaof", f"127.0.0.1 {first}") as replica:
        with valkey(tmp_path / "first", first) as primary:
            store = Store.open(settings.redis_url, copies=settings.copies)
            context = Context(settings, store)
            transport = httpx.ASGITransport(create_app(settings, store))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                one = await study(client, context, f"{COLORS}html: {{max_queries: 0}}\n", "copied")
                experiment = (await context.catalogue.find("copied")).id
                session = (await one.arrive(puid="p"))["session"]
                # The replica needs a moment until it follows; until then answers are confirmed without it, and it is
                # said.
                deadline = time.monotonic() + 60
                while (await answer(client, "copied", session)).is_error or store.connection.problem:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
                assert context.warning == ""
                confirmed = await store.answers.count(experiment)
                for _ in range(20):
                    (result,) = (await answer(client, "copied", session)).json()["results"]
                    confirmed += result["recorded"]
                # On a machine that others use the replica may fall behind; once it follows again it has everything.
                while store.connection.problem:
                    assert time.monotonic() < deadline
                    (result,) = (await answer(client, "copied", session)).json()["results"]
                    confirmed += result["recorded"]
                    await asyncio.sleep(0.1)
                primary.kill()
                await store.close()
        replica.kill()
    with valkey(tmp_path / "second", second):
        restored = Store.open(f"redis://127.0.0.1:{second}")
        assert await restored.answers.count(experiment) == confirmed
        await restored.close()


async def seconds_of_answers(client: httpx.AsyncClient, slug: str, session: str, count: int) -> list[float]:
    """How long answers take that are given one after the other."""
    seconds: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        (await answer(client, slug, session)).raise_for_status()
        seconds.append(time.perf_counter() - began)
    return seconds


async def test_a_second_copy_takes_an_answer_no_longer_than_the_disks_need(
    tmp_path: Path, ports: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """A replica reports once a second by itself how far its disk is, and no answer waits for that."""
    first, second = ports
    secret, data = secrets.token_hex(16), str(tmp_path / "data")
    medians: dict[int, float] = {}
    with (
        valkey(tmp_path / "first", first),
        valkey(tmp_path / "second", second, "--replicaof", f"127.0.0.1 {first}"),
    ):
        for copies in (1, 2):
            settings = Settings(redis_url=f"redis://127.0.0.1:{first}", secret=secret, data=data, copies=copies)
            store = Store.open(settings.redis_url, copies=copies)
            transport = httpx.ASGITransport(create_app(settings, store))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                slug = f"copies-{copies}"
                spec = f"{COLORS}html: {{max_queries: 0}}\n"
                one = await study(client, Context(settings, store), spec, slug)
                session = (await one.arrive(puid="p"))["session"]
                deadline = time.monotonic() + 60
                while (await answer(client, slug, session)).is_error or store.connection.problem:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
                caplog.clear()
                medians[copies] = statistics.median(await seconds_of_answers(client, slug, session, 31))
            await store.close()
    assert [record.message for record in caplog.records if "not copied" in record.message] == []
    # Two disks one after the other and another round trip; waiting for a report takes some hundred times as long.
    assert medians[2] < 30 * medians[1], medians


async def test_without_the_second_copy_answers_are_confirmed_and_the_console_says_so(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    first, second = ports
    settings = Settings(
        redis_url=f"redis://127.0.0.1:{first}", secret=secrets.token_hex(16), data=str(tmp_path / "data"), copies=2
    )
    with (
        valkey(tmp_path / "first", first),
        valkey(tmp_path / "second", second, "--replicaof", f"127.0.0.1 {first}") as replica,
    ):
        store = Store.open(settings.redis_url, copies=settings.copies)
        context = Context(settings, store)
        transport = httpx.ASGITransport(create_app(settings, store))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            one = await study(client, context, COLORS, "alone")
            session = (await one.arrive(puid="p"))["session"]
            os.kill(replica.pid, signal.SIGSTOP)
            results = [(await answer(client, "alone", session)).json()["results"][0] for _ in range(10)]
            assert [result["recorded"] for result in results] == [True] * 10
            assert "without their 2 copies" in context.warning
            os.kill(replica.pid, signal.SIGCONT)
        await store.close()
