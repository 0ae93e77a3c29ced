"""Every night the bundle of each experiment goes to another address, from which it comes back answer by answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest

from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.experiments import parse_state
from frontend.transfer import erasure, nightly_bundles
from frontend.transfer.import_bundle import import_bundle
from frontend.transfer.nightly_bundles import (
    NightlyBundle,
    find_problem,
    is_due,
    last_night_ms,
    read_records,
    write_due,
)
from frontend.transfer.subprocesses import Subprocesses
from salmon.cli.data_directory import DataDirectory
from tests.bundles import read_answers
from tests.living import Crowd, started

HOUR_MS = 3_600_000
SPEC = "targets: 12\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\n"


def at(context: Context, address: str, hours: float = 0.0) -> Context:
    """The same web process with nightly bundles at an address, some hours later."""
    settings = context.settings.model_copy(update={"bundles_to": address})
    return replace(context, settings=settings, now_ms=lambda: context.now_ms() + round(hours * HOUR_MS))


@pytest.fixture
async def answered(client: httpx.AsyncClient, settings: Settings, store: Store) -> AsyncIterator[tuple[Crowd, str]]:
    """An open experiment with answers, the only one there is."""
    crowd, experiment = await started(client, settings, store, "night", SPEC)
    await crowd.answer(12)
    yield crowd, experiment
    for each in await store.experiments.list():
        await store.experiments.delete(each.slug, each.experiment)
    await store.experiments.unlock_bundles()  # a process that was cancelled may not have come to it


@pytest.mark.parametrize("scheme", ["file", "memory"])
async def test_a_nightly_bundle_comes_back_as_a_new_experiment(
    answered: tuple[Crowd, str], context: Context, tmp_path: Path, scheme: str
) -> None:
    crowd, experiment = answered
    address = f"file://{tmp_path}/away" if scheme == "file" else "memory://away"
    (written,) = await write_due(at(context, address))
    assert written.startswith(f"{address}/{crowd.slug}-20")
    with fsspec.open(written) as file:
        content = file.read()
    names = {Path(each).name for each in fsspec.core.url_to_fs(address)[0].ls(address, detail=False)}
    assert names == {Path(written).name}  # nothing unfinished beside it
    (tmp_path / "back.zip").write_bytes(content)
    made = await import_bundle(context, tmp_path / "back.zip", name=f"{crowd.slug}-back", owner="bo")
    back = await context.store.experiments.find(made.slug)
    assert back is not None

    async def facts(of: str) -> list[Any]:
        answers = await read_answers(context.store, of)
        return [(a.served.nonce, a.served.key, a.winner, a.served.participant, a.received_ms) for a in answers]

    assert await facts(back) == await facts(experiment)
    assert len(await facts(back)) == 12


async def test_each_night_writes_once_and_keeps_what_was_written_before(
    answered: tuple[Crowd, str], context: Context, tmp_path: Path
) -> None:
    _, experiment = answered
    address = f"file://{tmp_path}/away"
    assert len(await write_due(at(context, address))) == 1
    assert await write_due(at(context, address)) == []
    assert len(await write_due(at(context, address, hours=24))) == 1
    assert len(await write_due(at(context, address, hours=48))) == 1
    # Nobody answers in a closed experiment: its last bundle holds all of it.
    await context.store.experiments.set_state(experiment, "closed", now_ms=1)
    assert await write_due(at(context, address, hours=72)) == []
    assert len(list((tmp_path / "away").iterdir())) == 3
    assert len((await read_records(context))[experiment].written) == 3


async def test_a_failure_is_a_sentence_and_is_tried_again(
    answered: tuple[Crowd, str], context: Context, tmp_path: Path
) -> None:
    crowd, experiment = answered
    (tmp_path / "away").write_text("a file, where a folder should be")
    away = at(context, f"file://{tmp_path}/away")
    assert await write_due(away) == []
    records = await read_records(context)
    sentence = find_problem([records[experiment]], "s3://key:hidden@bucket/salmon")
    assert f"The nightly bundle of {crowd.slug} could not be written to s3://bucket/salmon: " in sentence
    assert "tried again" in sentence
    (tmp_path / "away").unlink()
    assert await write_due(away) == []  # not at once
    assert len(await write_due(at(context, f"file://{tmp_path}/away", hours=0.2))) == 1
    assert (await read_records(context))[experiment].error == ""


async def test_a_web_process_writes_what_is_due_and_warns_on_its_console(
    answered: tuple[Crowd, str], settings: Settings, store: Store, tmp_path: Path
) -> None:
    """The real loop with its real subprocess: first where it cannot write, then where it can."""
    crowd, experiment = answered

    async def run(address: str, until: Any) -> Context:
        own = Context(settings.model_copy(update={"bundles_to": address}), store)
        subprocesses = Subprocesses(own.settings)
        task = asyncio.create_task(nightly_bundles.keep_writing(own, subprocesses))
        try:
            async with asyncio.timeout(60):
                while not until(own):
                    await asyncio.sleep(0.05)
        finally:
            task.cancel()
            await asyncio.gather(*subprocesses._underway.values(), return_exceptions=True)
        return own

    failed = await run("unheard-of://away", lambda own: own.notices.get("bundles"))
    assert f"The nightly bundle of {crowd.slug} could not be written" in failed.warning
    known = (await read_records(failed))[experiment]
    await store.experiments.note_bundle(experiment, vars(replace(known, tried_ms=0)))
    folder = tmp_path / "away"
    await run(f"file://{folder}", lambda _: folder.is_dir() and list(folder.glob("*.zip")))


async def test_an_erasure_names_the_bundles_that_lie_elsewhere(
    answered: tuple[Crowd, str], context: Context, data_directory: DataDirectory, settings: Settings, tmp_path: Path
) -> None:
    crowd, experiment = answered
    (written,) = await write_due(at(context, f"file://{tmp_path}/away"))
    address = data_directory.redis_url("eraser", data_directory.credentials().eraser)
    async with erasure.open_eraser(settings.model_copy(update={"eraser_url": address})) as eraser:
        order = erasure.PeopleOrder("erase", "p1", by="owner", account="owner", role="owner", slugs=(crowd.slug,))
        identifier = await erasure.order_erasure(eraser, order)
        await erasure.carry_out(eraser)
        done = (await erasure.read_erasures(eraser))[identifier]
        deletion = await erasure.order_deletion(eraser, experiment, crowd.slug, by="owner")
        await erasure.carry_out(eraser)
        deleted = (await erasure.read_erasures(eraser))[deletion]
    for each in (done, deleted):
        assert each.state == "done", each.error
        assert written in " ".join(each.unreached)


def test_a_night_is_over_at_its_hour() -> None:
    day = 1_700_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS
    assert last_night_ms(day + 3 * HOUR_MS, 3) == day + 3 * HOUR_MS
    assert last_night_ms(day + 3 * HOUR_MS - 1, 3) == day - 21 * HOUR_MS
    assert last_night_ms(day + 23 * HOUR_MS, 0) == day


def test_a_draft_has_no_bundle() -> None:
    fields = {"slug": "x", "revision": "1", "owner": "o", "created_ms": "1", "opened_ms": "0"}
    draft, opened = (parse_state("e", {**fields, "state": state}) for state in ("draft", "open"))
    assert not is_due(NightlyBundle("x"), draft, now_ms=10**12, hour=3)
    assert is_due(NightlyBundle("x"), opened, now_ms=10**12, hour=3)
