"""What is kept for as long as the file and the settings say is announced, and then goes by itself."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.transfer import erasure
from frontend.transfer.retention import NOTICE_MS, next_removal, remove_expired
from salmon.cli.data_directory import DataDirectory
from tests.living import Crowd

DAY_MS = 86_400_000
SPEC = "targets: 12\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\nprivacy: {%s}\n"


@pytest.fixture
async def eraser(settings: Settings, data_directory: DataDirectory) -> AsyncIterator[Context]:
    address = data_directory.redis_url("eraser", data_directory.credentials().eraser)
    async with erasure.open_eraser(settings.model_copy(update={"eraser_url": address})) as context:
        yield context


def at(context: Context, ms: int) -> Context:
    return replace(context, now_ms=lambda: ms)


async def sentences(context: Context, client: httpx.AsyncClient, slug: str, owner: tuple[str, str]) -> str:
    reply = await client.get(f"/api/experiments/{slug}/overview", auth=owner)
    return " ".join(each["what"] for each in reply.raise_for_status().json()["sentences"])


async def test_platform_ids_go_after_their_time_and_answers_stay(
    context: Context, client: httpx.AsyncClient, eraser: Context, owner: tuple[str, str]
) -> None:
    spec = (SPEC % "keep_ids: 30d").encode()
    made, _ = await launch(
        context, spec, spec_name=Path("x.yaml"), archive=None, name="ids", owner="local", state="open"
    )
    crowd = Crowd(client, "ids")
    await crowd.arrive("ada", participant="platform-id-of-ada")
    await crowd.answer(3, participants=1)
    now = context.now_ms()
    assert (await remove_expired(at(eraser, now))).ids == {}
    assert "Platform ids" in await sentences(context, client, "ids", owner)
    arrivals = await context.store.export_reader.read_arrivals(made.experiment)
    assert (await remove_expired(at(eraser, now + 29 * DAY_MS))).ids == {}
    assert await context.store.export_reader.read_arrivals(made.experiment) == arrivals
    assert (await remove_expired(at(eraser, now + 31 * DAY_MS))).ids == {"ids": len(arrivals)}
    after = await context.store.export_reader.read_arrivals(made.experiment)
    assert set(after.values()) == set(arrivals.values())
    assert all(identity.startswith("erased:") for identity in after)
    for participant in after.values():
        person = await context.store.participants.read(made.experiment, participant)
        assert person is not None
        assert (person.puid, person.companions, person.session) == (participant, {}, "")
    assert await context.store.answers.count(made.experiment) == 3
    changes = await context.store.experiments.read_changes(made.experiment)
    assert (changes[-1].by, changes[-1].what) == ("privacy.keep_ids", "removed")
    assert "Platform ids" not in await sentences(context, client, "ids", owner)
    assert (await remove_expired(at(eraser, now + 99 * DAY_MS))).ids == {}


async def test_answers_go_after_their_time_and_the_description_stays(
    context: Context, client: httpx.AsyncClient, eraser: Context, owner: tuple[str, str]
) -> None:
    spec = (SPEC % "keep_answers: 60d").encode()
    made, _ = await launch(
        context, spec, spec_name=Path("x.yaml"), archive=None, name="answers", owner="local", state="open"
    )
    await Crowd(client, "answers").answer(6)
    now = context.now_ms()
    await remove_expired(at(eraser, now))
    assert "All answers" in await sentences(context, client, "answers", owner)
    assert (await remove_expired(at(eraser, now + 59 * DAY_MS))).experiments == []
    assert (await remove_expired(at(eraser, now + 61 * DAY_MS))).experiments == ["answers"]
    assert await context.store.answers.count(made.experiment) == 0
    assert await context.store.export_reader.read_arrivals(made.experiment) == {}
    state = await context.store.experiments.read(made.experiment)
    assert (state.counters.get("answers", 0), state.counters.get("answers_due_ms", 0)) == (0, 0)
    await Crowd(client, "answers").answer(1)  # it goes on
    assert await context.store.answers.count(made.experiment) == 1


async def test_without_the_keys_everything_stays(context: Context, client: httpx.AsyncClient, eraser: Context) -> None:
    made, _ = await launch(
        context, (SPEC % "").encode(), spec_name=Path("x.yaml"), archive=None, name="ever", owner="local", state="open"
    )
    await Crowd(client, "ever").answer(3)
    removed = await remove_expired(at(eraser, context.now_ms() + 40_000 * DAY_MS))
    assert "ever" not in {*removed.ids, *removed.experiments}
    assert await context.store.answers.count(made.experiment) == 3


async def test_kept_bundles_go_after_their_time(eraser: Context) -> None:
    folder = Path(eraser.settings.bundles_location)
    folder.mkdir(exist_ok=True)
    old, young = folder / "old.zip", folder / "young.zip"
    for path in (old, young):
        path.write_bytes(b"PK")
    now = eraser.now_ms()
    os.utime(old, (now / 1000 - 366 * 86_400, now / 1000 - 366 * 86_400))
    assert (await remove_expired(eraser)).bundles == ["old.zip"]
    assert not old.exists()
    assert young.exists()


def test_nothing_is_removed_that_was_not_announced_for_a_week() -> None:
    keep = timedelta(days=30)
    now = 1000 * DAY_MS
    due, removed = next_removal([now - 99 * DAY_MS], keep, announced_ms=0, now_ms=now)
    assert (due, removed) == (now + NOTICE_MS, False)
    assert next_removal([now - 99 * DAY_MS], keep, announced_ms=due, now_ms=due - 1) == (due, False)
    assert next_removal([now - 99 * DAY_MS], keep, announced_ms=due, now_ms=due) == (due, True)
    assert next_removal([], keep, announced_ms=due, now_ms=due) == (0, False)
    assert next_removal([1], None, announced_ms=0, now_ms=now) == (0, False)
    # Somebody who comes back moves the day.
    assert next_removal([due], keep, announced_ms=due, now_ms=due) == (due + 30 * DAY_MS, False)
