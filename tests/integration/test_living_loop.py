"""The loop of learning on a real store: answers in, better queries out, and nothing lost or done twice in a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from backend import work
from backend.cluster import Workshop
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.experimenters import launch
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from salmon.simulate import egg_world
from salmon.wire import Keys

SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\nseed: 11\n"


@pytest.fixture
def backend_url(data_directory: DataDirectory) -> str:
    return data_directory.redis_url("backend", data_directory.credentials().backend)


@pytest.fixture
def open_service(backend_url: str) -> Iterator[Callable[..., Service]]:
    """Makes services; each is stopped at the end."""
    made: list[tuple[Service, BackendStore]] = []

    def make(store: BackendStore | None = None) -> Service:
        own = store or BackendStore(backend_url)
        service = Service(own, SerialExecutor)
        made.append((service, own))
        return service

    yield make
    for service, own in made:
        service.stop()
        service.close()
        own.close()


class Crowd:
    """Participants who answer over HTTP, as the true world would, and remember what they were asked."""

    def __init__(self, client: httpx.AsyncClient, slug: str) -> None:
        self.client = client
        self.slug = slug
        self.world = egg_world(30)
        self.generator = np.random.default_rng(5)
        self.given: list[tuple[int, int, int]] = []
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.sessions: dict[str, dict[str, str]] = {}

    async def answer(self, count: int, participants: int = 3) -> None:
        for number in range(count):
            name = f"p{number % participants}"
            if name not in self.sessions:
                body = {"parameters": {"puid": name}}
                reply = await self.client.post(f"/e/{self.slug}/arrive", json=body)
                self.sessions[name] = {"X-Salmon-Session": reply.raise_for_status().json()["session"]}
            reply = await self.client.get(f"/e/{self.slug}/query", headers=self.sessions[name])
            query = reply.raise_for_status().json()
            triplet = self.world.answer(np.array([[query["head"], query["left"], query["right"]]]), self.generator)[0]
            body = {"token": query["token"], "winner": int(triplet[1])}
            (await self.client.post(f"/e/{self.slug}/answers", json=body)).raise_for_status()
            self.given.append((int(triplet[0]), int(triplet[1]), int(triplet[2])))
            self.asked.setdefault(name, []).append(query)


async def started(
    client: httpx.AsyncClient, settings: Settings, store: Store, name: str, spec: str = SPEC
) -> tuple[Crowd, str]:
    context = Context.build(settings, store)
    for earlier in await store.experiments.list():
        await store.experiments.set_state(earlier.experiment, "closed", now_ms=1)
    made, _ = await launch(
        context, spec.encode(), spec_name=Path("x.yaml"), archive=None, name=name, owner="o", state="open"
    )
    return Crowd(client, made.slug), made.experiment


def run_until(service: Service, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Turn the loop until something is so."""
    deadline, wake = time.monotonic() + seconds, 0.0
    while not condition():
        assert time.monotonic() < deadline, "the loop did not get there"
        wake = service.step(min(wake, time.monotonic() + 0.05))


def absorbed(service: Service, experiment: str, sampler: str = "Adaptive") -> int:
    item = service.experiments.get(experiment)
    return item.learners[sampler].state.absorbed if item else -1


async def test_answers_become_a_model_and_better_queries(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service], backend_url: str
) -> None:
    crowd, experiment = await started(client, settings, store, "loop")
    service = open_service()
    service.begin()
    backend = BackendStore(backend_url)
    assert backend.count_queries(experiment, "Adaptive") >= 30  # random draws are there before any answer
    for _ in range(2):
        await crowd.answer(20)
        run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))
    run_until(service, lambda: int((backend.read_model(experiment, "Adaptive") or _NO_MODEL).numbers["absorbed"]) == 40)
    await crowd.answer(20)
    active = [query for queries in crowd.asked.values() for query in queries if query["score"] > 0]
    assert active, "nothing was chosen by its score"
    assert all(query["score"] != -9999 for queries in crowd.asked.values() for query in queries)
    backend.close()


class _NoModel:
    numbers: dict[str, str] = {"absorbed": "-1"}  # noqa: RUF012


_NO_MODEL = _NoModel()


async def test_nobody_is_asked_the_same_twice_nor_the_same_head_twice_in_a_row(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service]
) -> None:
    crowd, experiment = await started(client, settings, store, "unrepeated")
    service = open_service()
    service.begin()
    for _ in range(6):
        await crowd.answer(20, participants=2)
        run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))
    for queries in crowd.asked.values():
        keys = [(query["head"], *sorted((query["left"], query["right"]))) for query in queries]
        assert len(set(keys)) == len(keys)
        heads = [query["head"] for query in queries]
        assert all(first != second for first, second in pairwise(heads))


async def test_every_answer_carries_how_it_was_chosen(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service]
) -> None:
    crowd, experiment = await started(client, settings, store, "provenance")
    service = open_service()
    service.begin()
    for _ in range(5):
        await crowd.answer(20)
        run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))
    answers = [answer async for _, answer in store.answers.read(experiment)]
    assert {answer.served.trial_type for answer in answers} == {"active", "random"}
    for answer in answers:
        served = answer.served
        if served.trial_type == "active":
            assert served.generation > 0
            assert served.score > 0
        else:
            assert 0 < served.probability <= 1 / (30 * 29 * 28 / 2)
        assert 0 < served.published_ms <= served.served_ms
        assert served.sampler_probability == 1.0


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
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: bool,
) -> None:
    fitted: list[Any] = []
    refit = work.refit

    def spy(sampler: Any, state: Any, blocks: Any, tail: Any) -> Any:
        fitted.append(np.concatenate([*blocks, tail]))
        return refit(sampler, state, blocks, tail)

    monkeypatch.setattr(work, "refit", spy)
    crowd, experiment = await started(client, settings, store, f"crash-{after}")
    generations = [0]
    for at in range(1, 40, 2):
        crashing = CrashingStore(backend_url, at, after=after)
        service = open_service(crashing)
        service_reader_off(service)
        await crowd.answer(4)
        try:
            service.begin()
            run_until(service, lambda service=service: absorbed(service, experiment) == len(crowd.given), 10)
        except CrashError:
            pass
        listed = BackendStore(backend_url)
        stored = listed.read_model(experiment, "Adaptive")
        if stored is not None:
            generations.append(int(stored.numbers["generation"]))
            assert int(stored.numbers["absorbed"]) <= len(crowd.given)
        if generations[-1] > 0:
            assert listed.count_queries(experiment, "Adaptive") > 0
        listed.close()
    assert generations == sorted(generations), "a model was published over a newer one"
    survivor = open_service()
    survivor.begin()
    run_until(survivor, lambda: absorbed(survivor, experiment) == len(crowd.given))
    stream = [(a.served.head, a.winner, a.loser) async for _, a in store.answers.read(experiment)]
    assert stream == crowd.given
    assert [tuple(row) for row in fitted[-1].tolist()] == stream
    for rows in fitted:
        assert [tuple(row) for row in rows.tolist()] == stream[: len(rows)]


def service_reader_off(service: Service) -> None:
    """Answers of this test are there before the service begins: it reads them in its replay, in this thread."""
    service._read = lambda number: None  # type: ignore[method-assign]


async def test_of_two_backends_the_newer_publishes_and_the_older_lets_go(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service], backend_url: str
) -> None:
    crowd, experiment = await started(client, settings, store, "fence")
    older, newer = open_service(), open_service()
    older.begin()
    newer.begin()
    await crowd.answer(35)
    run_until(older, lambda: older.experiments[experiment].learners["Adaptive"].stale)
    run_until(newer, lambda: absorbed(newer, experiment) == 35)
    probe = BackendStore(backend_url)
    run_until(newer, lambda: int((probe.read_model(experiment, "Adaptive") or _NO_MODEL).numbers["absorbed"]) == 35)
    fence = newer.experiments[experiment].fence
    assert probe.publish(experiment, "Adaptive", fence - 1, model={"absorbed": 1}) is None
    assert int((probe.read_model(experiment, "Adaptive") or _NO_MODEL).numbers["absorbed"]) == 35
    probe.close()


async def test_a_failing_learner_is_loud_and_tries_again(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    open_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, experiment = await started(client, settings, store, "failing")
    service = open_service()
    service.begin()
    broken = True
    refit = work.refit

    def fail(*arguments: Any) -> Any:
        if broken:
            raise FloatingPointError("the embedding blew up")
        return refit(*arguments)

    monkeypatch.setattr(work, "refit", fail)
    await crowd.answer(31)
    run_until(service, lambda: bool(service.report().errors))
    assert service.report().errors == ("Adaptive: the refit failed (FloatingPointError: the embedding blew up)",)
    broken = False
    run_until(service, lambda: absorbed(service, experiment) == 31)
    assert service.report().errors == ()


async def test_the_held_out_accuracy_of_the_random_share_is_honest(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service], backend_url: str
) -> None:
    crowd, experiment = await started(client, settings, store, "honest")
    service = open_service()
    service.begin()
    for _ in range(15):
        await crowd.answer(20)
        run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))
    probe = BackendStore(backend_url)
    run_until(service, lambda: int(probe.read_model(experiment, "Adaptive").numbers["absorbed"]) == 300)  # type: ignore[union-attr]
    numbers = probe.read_model(experiment, "Adaptive").numbers  # type: ignore[union-attr]
    answers = [answer async for _, answer in store.answers.read(experiment)]
    assert int(numbers["held_total"]) == sum(answer.served.trial_type == "random" for answer in answers)
    recent = numbers["held_recent"][-50:]  # the first ones were predicted by a model of hardly any answers
    assert 0.6 < recent.count("r") / len(recent) < 0.98
    line = probe._binary.xrevrange(Keys(experiment).history("Adaptive"), count=1)[0][1]
    assert float(line[b"accuracy_low"]) < float(line[b"accuracy"]) < float(line[b"accuracy_high"])
    probe.close()


def test_a_workshop_opens_its_cluster_again_after_it_was_lost() -> None:
    opened: list[SerialExecutor] = []

    class Lost(SerialExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Any:
            raise OSError("the scheduler is gone")

    def open_executor() -> SerialExecutor:
        opened.append(Lost() if not opened else SerialExecutor())
        return opened[-1]

    from backend.answer_log import AnswerLog
    from backend.learner import Piece
    from salmon.samplers.active import active_sampler

    class Some:
        n, sampler, answers = 5, active_sampler("Adaptive"), AnswerLog()

    outcomes: list[Any] = []
    workshop = Workshop(open_executor, lambda piece, outcome, seconds: outcomes.append(outcome))
    piece = Piece("refit", Some(), Some.sampler.start(5, 0), 0)  # type: ignore[arg-type]
    for number in range(1, 5):
        workshop.take(piece)
        deadline = time.monotonic() + 20
        while len(outcomes) < number:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    workshop.close()
    assert [type(outcome).__name__ for outcome in outcomes[:3]] == ["OSError"] * 3
    assert len(opened) == 2
