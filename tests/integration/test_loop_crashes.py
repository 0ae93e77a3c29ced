"""Crashes of the learning process at every verb, and two of them at once: nothing lost, nothing done twice or stale."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from backend import workers
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.settings import Settings
from frontend.store import Store
from tests.bundles import read_answers
from tests.living import absorbed, run_until, started


class _NoModel:
    numbers: dict[str, str] = {"absorbed": "-1"}  # noqa: RUF012


_NO_MODEL = _NoModel()


class CrashError(BaseException):
    """The process is gone in the middle of what it did."""


class CrashingStore(BackendStore):
    """A store that dies at its k-th verb: before it is carried out, or just after and before anybody is told."""

    def __init__(self, url: str, at: int, *, after: bool) -> None:
        super().__init__(url)
        self.calls = 0
        self._at, self._after = at, after

    def _do(self, command: Callable[[], Any]) -> Any:  # type: ignore[override]
        self.calls += 1
        if self.calls == self._at and not self._after:
            raise CrashError
        value = BackendStore._do(command)
        if self.calls == self._at:
            raise CrashError
        return value


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_verb_of_the_loop_loses_and_doubles_nothing(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    open_service: Callable[..., Service],
    backend_url: str,
    probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: bool,
) -> None:
    fitted: list[Any] = []
    refit = workers.refit

    def spy(sampler: Any, state: Any, blocks: Any, tail: Any, left_out: Any) -> Any:
        fitted.append(np.concatenate([*blocks, tail])[:, :3])
        return refit(sampler, state, blocks, tail, left_out)

    monkeypatch.setattr(workers, "refit", spy)
    crowd, experiment = await started(client, settings, store, f"crash-{after}")
    generations = [0]
    for at in range(1, 40, 2):
        service = open_service(CrashingStore(backend_url, at, after=after), begin=False)
        service_reader_off(service)
        await crowd.answer(4)
        try:
            service.begin()
            run_until(service, lambda service=service: absorbed(service, experiment) == len(crowd.given), 10)
        except CrashError:
            pass
        stored = probe.read_model(experiment, "Adaptive")
        if stored is not None:
            generations.append(int(stored.numbers["generation"]))
            assert int(stored.numbers["absorbed"]) <= len(crowd.given)
        if generations[-1] > 0:
            assert probe.count_queries(experiment, "Adaptive") > 0
    assert generations == sorted(generations), "a model was published over a newer one"
    survivor = open_service()
    run_until(survivor, lambda: absorbed(survivor, experiment) == len(crowd.given))
    stream = [(a.served.head, a.winner, a.loser) for a in await read_answers(store, experiment)]
    assert stream == crowd.given
    assert [tuple(row) for row in fitted[-1].tolist()] == stream
    for rows in fitted:
        assert [tuple(row) for row in rows.tolist()] == stream[: len(rows)]


def service_reader_off(service: Service) -> None:
    """Answers of this test are there before the service begins: it reads them in its replay, in this thread."""
    service._read = lambda number: None  # type: ignore[method-assign]


async def test_of_two_backends_the_newer_publishes_and_the_older_lets_go(
    learning: Callable[..., Any], open_service: Callable[..., Service], probe: BackendStore
) -> None:
    crowd, experiment, older = await learning("fence")
    newer = open_service()
    await crowd.answer(35)
    run_until(older, lambda: older.experiments[experiment].learners["Adaptive"].stale)
    run_until(newer, lambda: absorbed(newer, experiment) == 35)
    run_until(newer, lambda: int((probe.read_model(experiment, "Adaptive") or _NO_MODEL).numbers["absorbed"]) == 35)
    assert probe.publish(experiment, "Adaptive", newer.experiments[experiment].fence - 1, model={"absorbed": 1}) is None
    assert int((probe.read_model(experiment, "Adaptive") or _NO_MODEL).numbers["absorbed"]) == 35
