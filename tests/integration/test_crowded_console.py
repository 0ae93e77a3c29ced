"""The overview of an experiment with many participants costs the web process what that of few does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx
import pytest
from redis.asyncio import Redis

from frontend.console.participants import find_verdicts
from frontend.context import Context
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.wire import Keys
from tests.crowds import put_crowd
from tests.studies import study

FEW, MANY, EACH = 40, 4000, 6
Owned = Callable[..., Any]


@pytest.fixture
async def bytes_read(data_directory: DataDirectory) -> AsyncIterator[Callable[[Awaitable[Any]], Awaitable[int]]]:
    """Says how many bytes the store sent while something was done."""
    client = Redis.from_url(data_directory.redis_url("eraser", data_directory.credentials().eraser))

    async def measure(work: Awaitable[Any]) -> int:
        before = (await client.info("stats"))["total_net_output_bytes"]
        await work
        return (await client.info("stats"))["total_net_output_bytes"] - before

    yield measure
    await client.aclose()


async def judged(owned: Owned, store: Store, experiment: str, slug: str, people: int) -> None:
    """Put a crowd there and find the verdicts on it."""
    await put_crowd(store, experiment, slug, people, EACH)
    (await owned("GET", f"/api/experiments/{slug}/participants", params={"wait": True, "limit": 1})).raise_for_status()


def careless(reply: Any) -> str:
    return next((each["what"] for each in reply.json()["sentences"] if "careless" in each["what"]), "")


async def test_an_overview_reads_no_participant_however_many_there_are(
    owned: Owned, store: Store, bytes_read: Callable[[Awaitable[Any]], Awaitable[int]]
) -> None:
    sizes: dict[int, int] = {}
    for people in (FEW, MANY):
        slug = f"crowd-{people}"
        await judged(owned, store, f"crowd{people:05d}", slug, people)
        reply = (await owned("GET", f"/api/experiments/{slug}/overview")).raise_for_status()
        assert reply.json()["participants"]["held"] == reply.json()["participants"]["arrived"] == people
        assert careless(reply) == f"{people // 10:,} participants look careless."
        sizes[people] = await bytes_read(owned("GET", f"/api/experiments/{slug}/overview"))
    assert sizes[MANY] < 2 * sizes[FEW], sizes


async def test_a_decision_is_counted_at_once_and_only_once(
    owned: Owned, store: Store, bytes_read: Callable[[Awaitable[Any]], Awaitable[int]]
) -> None:
    experiment, address = "crowd00001", "/api/experiments/decided"
    await judged(owned, store, experiment, "decided", 1000)
    before = await bytes_read(owned("GET", f"{address}/overview"))
    proposed = [name for name in await names_of(store, experiment) if name.endswith("0")]
    for number, (name, keep) in enumerate([(proposed[3], "exclude"), (proposed[4], "keep")], start=1):
        (await owned("PUT", f"{address}/participants/{name}", json={"keep": keep})).raise_for_status()
        assert careless(await owned("GET", f"{address}/overview")) == f"{100 - number} participants look careless."
    assert await bytes_read(owned("GET", f"{address}/overview")) < 2 * before
    (await owned("PUT", f"{address}/participants/{proposed[3]}", json={"keep": "auto"})).raise_for_status()
    assert careless(await owned("GET", f"{address}/overview")) == "99 participants look careless."
    (await owned("GET", f"{address}/participants", params={"wait": True, "limit": 1})).raise_for_status()
    assert careless(await owned("GET", f"{address}/overview")) == "99 participants look careless."
    await store.experiments.delete("decided", experiment)
    assert not await store.connection.do(lambda client: client.exists(Keys(experiment).proposed))


async def names_of(store: Store, experiment: str) -> list[str]:
    return sorted((await store.export_reader.read_arrivals(experiment)).values())


async def test_verdicts_of_an_earlier_version_are_counted_without_finding_them_again(
    owned: Owned, store: Store
) -> None:
    experiment, address = "crowd00002", "/api/experiments/updated"
    await judged(owned, store, experiment, "updated", 100)
    keys = Keys(experiment)
    found = await store.connection.do(lambda client: client.get(keys.quality))
    await store.connection.do(lambda client: client.delete(keys.proposed))
    assert careless(await owned("GET", f"{address}/overview")) == ""
    (await owned("GET", f"{address}/exports/quality.csv")).raise_for_status()
    assert careless(await owned("GET", f"{address}/overview")) == "10 participants look careless."
    assert await store.connection.do(lambda client: client.get(keys.quality)) == found


async def test_what_began_before_the_last_decision_is_not_all_that_is_waited_for(
    client: httpx.AsyncClient, context: Context
) -> None:
    slug = "waited"
    await study(client, context, "targets: [a, b, c, d]\nsamplers: {Random: {}}\n", slug)

    class Outdated:
        """Stands for a process that found verdicts on what was there before."""

        begun = 0

        def begin(self, *_: Any, **__: Any) -> asyncio.Task[bytes]:
            self.begun += 1

            async def find() -> bytes:
                return b""

            return asyncio.create_task(find())

    for wait, expected in ((True, 2), (False, 1)):
        outdated = Outdated()
        await find_verdicts(context, await context.catalogue.find(slug), cast("Any", outdated), wait=wait)
        assert outdated.begun == expected
