"""Requests when backends end, workers are lost and the store is away: a result or a sentence comes all the same."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from backend.jobs import runner
from backend.jobs.runner import JobRunner
from backend.store import Store as BackendStore
from frontend.settings import Settings
from frontend.store import Store
from salmon.parallel import SerialExecutor
from salmon.wire import Request
from tests.job_requests import BlockedStep, ask_for, read_status
from tests.living import started
from tests.program import poll


async def test_a_request_that_three_backends_did_not_survive_is_given_up_in_a_sentence(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    owned: Callable[..., Any],
    probe: BackendStore,
    blocked: BlockedStep,
) -> None:
    crowd, _ = await started(client, settings, store, "poison")
    await crowd.answer(10)
    identifier = await ask_for(owned, "poison", "embedding", answers=10)
    for tries in (1, 2, 3, 4):
        jobs = JobRunner(probe, SerialExecutor, lambda *_: None, now_ms=lambda: 1)
        jobs.take(probe.unended_requests())
        if tries <= 3:
            assert blocked.begun.acquire(timeout=20)
            assert read_status(probe, identifier).tries == tries
        else:
            poll(lambda: read_status(probe, identifier).ended, "the request")
        jobs.close()
    ended = read_status(probe, identifier)
    assert (ended.state, blocked.times) == ("failed", 3)
    assert ended.error.startswith("The learning process ended 3 times while it carried this request out.")


async def test_steps_are_sent_again_when_workers_are_lost_and_live_work_is_told(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(runner, "RETRY_SECONDS", 0.01)
    crowd, experiment = await started(client, settings, store, "lost")
    await crowd.answer(40)
    lost: list[int] = []

    class Shaky(SerialExecutor):
        def __init__(self, losses: int) -> None:
            self.losses = losses

        def submit(self, *arguments: Any, **options: Any) -> Any:
            assert options["priority"] < 0, "live work has priorities above 0"
            if len(lost) < self.losses:
                raise OSError("the scheduler is gone")
            return super().submit(*arguments, **options)

    for losses, state in ((2, "done"), (1000, "failed")):
        lost.clear()
        shaky = Shaky(losses)
        jobs = JobRunner(probe, lambda shaky=shaky: shaky, lambda *_: lost.append(1), now_ms=lambda: 1)
        identifier = await ask_for(owned, "lost", "embedding", answers=40)
        jobs.take([Request(identifier, "embedding", experiment, {"answers": 40})])
        poll(lambda identifier=identifier: read_status(probe, identifier).ended, "the request")
        jobs.close()
        assert read_status(probe, identifier).state == state
        assert len(lost) == min(losses, 5)
    assert read_status(probe, identifier).error.startswith("The workers were lost again and again")


async def test_a_request_waits_for_a_store_that_is_away_and_goes_on(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], backend_url: str,
    probe: BackendStore, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(runner, "RETRY_SECONDS", 0.01)
    crowd, experiment = await started(client, settings, store, "away")
    await crowd.answer(40)

    class Flaky(BackendStore):
        calls = 0

        def _do(self, command: Callable[[], Any]) -> Any:  # type: ignore[override]
            Flaky.calls += 1

            def refuse() -> Any:
                raise RedisConnectionError("away")

            away = Flaky.calls in {*range(1, 4), *range(7, 12), *range(20, 40)}
            return BackendStore._do(refuse if away else command)

    flaky = Flaky(backend_url)
    jobs = JobRunner(flaky, SerialExecutor, lambda *_: None, now_ms=lambda: 1)
    identifier = await ask_for(owned, "away", "plan", answers=60, runs=1)
    jobs.take([Request(identifier, "plan", experiment, {"answers": 60, "runs": 1})])
    poll(lambda: read_status(probe, identifier).ended, "the request")
    jobs.close()
    flaky.close()
    assert (read_status(probe, identifier).state, read_status(probe, identifier).tries) == ("done", 1)
