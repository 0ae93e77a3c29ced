"""Requests on a real store: asked over HTTP, carried out behind the live work, fetched, stopped, taken up again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from backend.jobs import desk, embeddings, rehearsal
from backend.jobs.desk import Jobs
from backend.jobs.embeddings import fit_first
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.accounts import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.parallel import SerialExecutor
from salmon.wire import BACKEND, EXPERIMENTS, KEPT_SECONDS, WAITS_SECONDS, Heartbeat, Keys, Request, Standing, request
from tests.living import Crowd, absorbed, run_until, started

OWNER = ("owner", "a good password")


@pytest.fixture
async def owned(client: httpx.AsyncClient, settings: Settings, store: Store) -> Callable[..., Any]:
    """Sends a request to the application as its owner."""
    if not await store.accounts.exist():
        await make_account(Context.build(settings, store), *OWNER, owner=True)

    async def send(method: str, path: str, **options: Any) -> httpx.Response:
        return await client.request(method, path, auth=OWNER, **options)

    return send


@pytest.fixture
def probe(backend_url: str) -> Iterator[BackendStore]:
    opened = BackendStore(backend_url)
    yield opened
    opened.close()


def standing(probe: BackendStore, identifier: str) -> Standing:
    found = Standing.decode(probe._client.hgetall(request(identifier)))
    assert found is not None
    return found


def run_to_the_end(service: Service, probe: BackendStore, identifier: str) -> Standing:
    run_until(service, lambda: standing(probe, identifier).ended)
    return standing(probe, identifier)


async def asked(owned: Callable[..., Any], slug: str, kind: str, **arguments: Any) -> str:
    reply = await owned("POST", f"/api/experiments/{slug}/requests", json={"kind": kind, "arguments": arguments})
    assert reply.status_code == 202, reply.text
    return reply.json()["request"]


async def answered(crowd: Crowd, service: Service, experiment: str, count: int = 60) -> None:
    await crowd.answer(count)
    run_until(service, lambda: absorbed(service, experiment) == len(crowd.given))


class Held:
    """A step that waits until it is let go, and says when it has begun."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.times = 0
        self._work = work

    def __call__(self, *arguments: Any) -> Any:
        self.times += 1
        self.begun.release()
        assert self.let_go.wait(30)
        return self._work(*arguments)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Embeddings as of then wait until they are let go."""
    step = Held(fit_first)
    monkeypatch.setattr(embeddings, "fit_first", step)
    monkeypatch.setattr(desk, "LOOK_SECONDS", 0.05)
    yield step
    step.let_go.set()


async def test_every_kind_is_asked_over_http_carried_out_and_fetched(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "kinds")
    service = open_service()
    service.begin()
    await answered(crowd, service, experiment, 120)
    run_until(service, lambda: probe.read_model(experiment, "Adaptive") is not None)
    line = probe._binary.xrange(Keys(experiment).history("Adaptive"))[0][1]
    generation = int(line[b"generation"])
    people = [answer.served.participant async for _, answer in store.answers.read(experiment)]
    identifiers = [
        await asked(owned, "kinds", "fit", exclude=[people[0]], folds=3),
        await asked(owned, "kinds", "embedding", generation=generation),
        await asked(owned, "kinds", "cross_validation", dimensions=[1, 2], noise="TSTE", folds=3),
        await asked(owned, "kinds", "rehearsal", answers=60, runs=1),
    ]
    ended = [run_to_the_end(service, probe, identifier) for identifier in identifiers]
    assert [item.state for item in ended] == ["done"] * 4, [item.error for item in ended]
    assert all(first.ended_ms <= second.began_ms for first, second in pairwise(ended))
    results = [(await owned("GET", f"/api/experiments/kinds/requests/{one}")).json()["result"] for one in identifiers]
    fitted, earlier, comparison, rehearsed = results
    assert fitted["excluded"]["answers"] == people.count(people[0])
    assert fitted["answers"] == 120 - people.count(people[0])
    assert (earlier["generation"], earlier["cursor"]) == (generation, line[b"cursor"].decode())
    assert earlier["answers"] == int(line[b"absorbed"])
    assert np.array(earlier["coordinates"]).shape == (30, 2)
    assert len(comparison["candidates"]) == 2
    assert set(rehearsed["curves"]) == {"Random", "Adaptive"}
    listed = (await owned("GET", "/api/experiments/kinds/requests")).json()
    assert [item["request"] for item in listed] == identifiers[::-1]
    assert all(item["result"] is None and item["asked_by"] == "owner" for item in listed)
    assert all(expires_within(probe, one, KEPT_SECONDS) for one in identifiers)


async def test_live_work_goes_on_while_a_request_runs(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, held: Held,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "behind")
    service = open_service()
    service.begin()
    await answered(crowd, service, experiment)
    identifier = await asked(owned, "behind", "embedding", answers=50)
    run_until(service, lambda: held.begun.acquire(blocking=False))
    learner = service.experiments[experiment].learners["Adaptive"]
    generation, searched = learner.state.generation, learner._searched
    for _ in range(3):
        await answered(crowd, service, experiment, 20)
    run_until(service, lambda: learner._searched > searched)
    assert learner.state.generation >= generation + 3
    running = standing(probe, identifier)
    assert (running.state, running.note) == ("running", "fitting the first 50 answers")
    held.let_go.set()
    assert run_to_the_end(service, probe, identifier).result["answers"] == 50


async def test_what_waits_is_cancelled_at_once_and_what_runs_soon_and_the_next_one_comes(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, held: Held,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "cancelled")
    service = open_service()
    service.begin()
    await answered(crowd, service, experiment)
    path = "/api/experiments/cancelled/requests/"
    first, second, third = [await asked(owned, "cancelled", "embedding", answers=count) for count in (10, 20, 30)]
    run_until(service, lambda: held.begun.acquire(blocking=False))
    assert (await owned("DELETE", path + second)).json()["state"] == "cancelled"
    assert (await owned("DELETE", path + first)).json()["state"] == "running"
    assert run_to_the_end(service, probe, first).state == "cancelled"
    held.let_go.set()
    assert run_to_the_end(service, probe, third).state == "done"
    assert held.times == 2, "a cancelled request was carried out"
    late = (await owned("DELETE", path + third)).json()
    assert (late["state"], late["result"]["answers"]) == ("done", 30)
    assert standing(probe, first).result is None


async def test_a_restarted_backend_takes_up_what_runs_and_what_waits_in_order(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, held: Held,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "restarted")
    older = open_service()
    older.begin()
    await answered(crowd, older, experiment)
    first, second = [await asked(owned, "restarted", "embedding", answers=count) for count in (10, 20)]
    run_until(older, lambda: held.begun.acquire(blocking=False))
    older.close()
    newer = open_service()
    newer.begin()
    run_until(newer, lambda: held.begun.acquire(blocking=False))
    held.let_go.set()
    ended = [run_to_the_end(newer, probe, identifier) for identifier in (first, second)]
    assert [(item.state, item.tries) for item in ended] == [("done", 2), ("done", 1)]
    assert ended[0].ended_ms <= ended[1].ended_ms


async def test_a_request_that_three_backends_did_not_survive_is_given_up_in_a_sentence(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    owned: Callable[..., Any],
    probe: BackendStore,
    held: Held,
) -> None:
    crowd, _ = await started(client, settings, store, "poison")
    await crowd.answer(10)
    identifier = await asked(owned, "poison", "embedding", answers=10)
    for tries in (1, 2, 3, 4):
        jobs = Jobs(probe, SerialExecutor, lambda: None, now_ms=lambda: 1)
        jobs.take(probe.unended_requests())
        if tries <= 3:
            assert held.begun.acquire(timeout=20)
            assert standing(probe, identifier).tries == tries
        else:
            wait_for(lambda: standing(probe, identifier).ended)
        jobs.close()
    ended = standing(probe, identifier)
    assert (ended.state, held.times) == ("failed", 3)
    assert ended.error.startswith("The learning process ended 3 times while it carried this request out.")


async def test_of_two_backends_the_newer_carries_out_and_the_older_writes_no_more(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, held: Held,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "two")
    older, newer = open_service(), open_service()
    older.begin()
    await answered(crowd, older, experiment)
    identifier = await asked(owned, "two", "embedding", answers=10)
    run_until(older, lambda: held.begun.acquire(blocking=False))
    before = standing(probe, identifier).backend
    newer.begin()
    run_until(newer, lambda: standing(probe, identifier).backend != before)
    assert probe.note_request(identifier, before, {"state": "done"}, now_ms=1) == "lost"
    held.let_go.set()
    ended = run_to_the_end(newer, probe, identifier)
    assert (ended.state, ended.tries, ended.backend) == ("done", 2, newer._jobs._name)


async def test_an_experiment_that_is_deleted_meanwhile_is_a_sentence(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, held: Held,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "deleted")
    service = open_service()
    service.begin()
    await answered(crowd, service, experiment)
    during, before = [await asked(owned, "deleted", "embedding", answers=count) for count in (10, 20)]
    run_until(service, lambda: held.begun.acquire(blocking=False))
    await store.connection.do(lambda client: client.hdel(EXPERIMENTS, "deleted"))
    await store.connection.do(lambda client: client.delete(Keys(experiment).state))
    held.let_go.set()
    assert (
        run_to_the_end(service, probe, during).error == "The experiment was deleted while this request was carried out."
    )
    assert run_to_the_end(service, probe, before).error == (
        "The experiment was deleted before this request was carried out."
    )


async def test_what_cannot_be_carried_out_fails_in_a_sentence_and_the_next_one_is_carried_out(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service],
    owned: Callable[..., Any], probe: BackendStore, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    crowd, experiment = await started(client, settings, store, "failing-requests")
    service = open_service()
    service.begin()
    early = await asked(owned, "failing-requests", "embedding", answers=10)
    assert run_to_the_end(service, probe, early).error == (
        "There are no answers yet that can be fitted. Ask again when there are some."
    )
    await answered(crowd, service, experiment, 40)

    def blow_up(*arguments: Any) -> Any:
        raise FloatingPointError("it blew up")

    monkeypatch.setattr(rehearsal, "advance", blow_up)
    identifiers = [
        await asked(owned, "failing-requests", "embedding", answers=41),
        await asked(owned, "failing-requests", "embedding", generation=10_000),
        await asked(owned, "failing-requests", "rehearsal"),
        await asked(owned, "failing-requests", "embedding", answers=40),
    ]
    ended = [run_to_the_end(service, probe, identifier) for identifier in identifiers]
    assert [item.error for item in ended] == [
        "There are only 40 answers that can be fitted, not 41. Ask for fewer.",
        "The history of Adaptive has no generation 10,000. Give one that it has, or answers.",
        "The computation failed (FloatingPointError: it blew up).",
        "",
    ]
    assert [item.state for item in ended] == ["failed"] * 3 + ["done"]


async def test_steps_are_sent_again_when_workers_are_lost_and_live_work_is_told(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(desk, "RETRY_SECONDS", 0.01)
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
        jobs = Jobs(probe, lambda shaky=shaky: shaky, lambda: lost.append(1), now_ms=lambda: 1)
        identifier = await asked(owned, "lost", "embedding", answers=40)
        jobs.take([Request(identifier, "embedding", experiment, {"answers": 40})])
        wait_for(lambda identifier=identifier: standing(probe, identifier).ended)
        jobs.close()
        assert standing(probe, identifier).state == state
        assert len(lost) == min(losses, 4)
    assert standing(probe, identifier).error.startswith("The workers were lost again and again")


async def test_a_request_waits_for_a_store_that_is_away_and_goes_on(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], backend_url: str,
    probe: BackendStore, open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(desk, "RETRY_SECONDS", 0.01)
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
    jobs = Jobs(flaky, SerialExecutor, lambda: None, now_ms=lambda: 1)
    identifier = await asked(owned, "away", "rehearsal", answers=60, runs=1)
    jobs.take([Request(identifier, "rehearsal", experiment, {"answers": 60, "runs": 1})])
    wait_for(lambda: standing(probe, identifier).ended)
    jobs.close()
    flaky.close()
    assert (standing(probe, identifier).state, standing(probe, identifier).tries) == ("done", 1)


async def test_all_mistakes_of_a_request_come_back_together(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any]
) -> None:
    await started(client, settings, store, "mistaken")
    body = {"kind": "fit", "arguments": {"exclude": ["nobody", "Not an id"], "d": 77, "colour": 1}}
    reply = await owned("POST", "/api/experiments/mistaken/requests", json=body)
    assert reply.status_code == 422
    problems = reply.json()["error"]["problems"]
    assert [problem["path"] for problem in problems] == [
        *("arguments.exclude", "arguments.d", "arguments.colour", "arguments.exclude"),
    ]
    assert problems[-1]["message"] == "There is no participant 'nobody' in this experiment."
    assert all(problem["sentence"] for problem in problems)
    assert (await owned("GET", "/api/experiments/mistaken/requests")).json() == []
    assert (await owned("POST", "/api/experiments/mistaken/requests", json={"kind": 3})).status_code == 422
    assert (await owned("POST", "/api/experiments/nothing/requests", json={"kind": "fit"})).status_code == 404


async def test_only_experimenters_ask_and_each_experiment_has_its_own_requests(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any]
) -> None:
    await started(client, settings, store, "mine")
    await started(client, settings, store, "other")
    identifier = await asked(owned, "mine", "rehearsal")
    assert (await owned("GET", f"/api/experiments/mine/requests/{identifier}")).status_code == 200
    missing = await owned("GET", f"/api/experiments/other/requests/{identifier}")
    assert (missing.status_code, missing.json()["error"]["hint"]) == (404, "Results are kept for a day. Ask again.")
    assert (await owned("DELETE", f"/api/experiments/other/requests/{identifier}")).status_code == 404
    assert (await owned("GET", "/api/experiments/other/requests")).json() == []
    for method, path in (("GET", ""), ("POST", ""), ("GET", f"/{identifier}"), ("DELETE", f"/{identifier}")):
        reply = await client.request(method, f"/api/experiments/mine/requests{path}", json={"kind": "rehearsal"})
        assert reply.status_code == 401
    await client.post("/console/login", data={"name": OWNER[0], "password": OWNER[1]})
    by_cookie = await client.post("/api/experiments/mine/requests", json={"kind": "rehearsal"})
    assert by_cookie.status_code == 403, "a change by cookie needs the session's token"


async def test_while_no_learning_process_lives_a_request_says_so_and_waits_for_a_week(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], probe: BackendStore
) -> None:
    await started(client, settings, store, "alone")
    probe._client.set(BACKEND, Heartbeat(1, 1).encode(), px=1)
    wait_for(lambda: not probe._client.exists(BACKEND))
    identifier = await asked(owned, "alone", "rehearsal")
    path = f"/api/experiments/alone/requests/{identifier}"
    waiting = (await owned("GET", path)).json()
    assert waiting["state"] == "waiting"
    assert waiting["warning"].startswith("The learning process is not running at the moment.")
    assert not expires_within(probe, identifier, KEPT_SECONDS)
    assert expires_within(probe, identifier, WAITS_SECONDS)
    probe.beat(Heartbeat(1, 1), lives_seconds=10)
    assert (await owned("GET", path)).json()["warning"] == ""


def wait_for(condition: Callable[[], bool]) -> None:
    from tests.program import poll

    poll(condition, "the request")


def expires_within(probe: BackendStore, identifier: str, seconds: int) -> bool:
    """Whether a request will be gone by then; the access list lets nobody ask for the time that is left."""
    key = request(identifier)
    expires = not probe._client.expire(key, seconds, nx=True)
    return expires and bool(probe._client.expire(key, seconds + 60, gt=True))
