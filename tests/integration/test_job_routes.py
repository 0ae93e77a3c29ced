"""The routes of requests on a real store: who may ask, what is checked, what is said."""

from collections.abc import Callable
from typing import Any

import httpx

from backend.store import Store as BackendStore
from frontend.auth import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.wire import BACKEND, KEPT_SECONDS, WAITS_SECONDS, Heartbeat
from tests.job_requests import ask_for, expires_within
from tests.living import started
from tests.program import poll
from tests.studies import OWNER


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
    identifier = await ask_for(owned, "mine", "plan")
    assert (await owned("GET", f"/api/experiments/mine/requests/{identifier}")).status_code == 200
    missing = await owned("GET", f"/api/experiments/other/requests/{identifier}")
    assert (missing.status_code, missing.json()["error"]["hint"]) == (404, "Results are kept for a day. Ask again.")
    assert (await owned("DELETE", f"/api/experiments/other/requests/{identifier}")).status_code == 404
    assert (await owned("GET", "/api/experiments/other/requests")).json() == []
    for method, path in (("GET", ""), ("POST", ""), ("GET", f"/{identifier}"), ("DELETE", f"/{identifier}")):
        assert (
            await client.request(method, f"/api/experiments/mine/requests{path}", json={"kind": "plan"})
        ).status_code == 401
    stranger = ("stranger", "another password")
    await make_account(Context(settings, store), *stranger, owner=False)
    assert (await client.get(f"/api/experiments/mine/requests/{identifier}", auth=stranger)).status_code == 404, (
        "what belongs to others is not there"
    )
    await client.post("/console/login", data={"name": OWNER[0], "password": OWNER[1]})
    assert (await client.post("/api/experiments/mine/requests", json={"kind": "plan"})).status_code == 403, (
        "a change by cookie needs the session's token"
    )


async def test_while_no_learning_process_lives_a_request_says_so_and_waits_for_a_week(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any], probe: BackendStore
) -> None:
    await started(client, settings, store, "alone")
    probe._client.set(BACKEND, Heartbeat(1, 1).encode(), px=1)
    poll(lambda: not probe._client.exists(BACKEND), "the heartbeat to expire")
    identifier = await ask_for(owned, "alone", "plan")
    path = f"/api/experiments/alone/requests/{identifier}"
    waiting = (await owned("GET", path)).json()
    assert waiting["state"] == "waiting"
    assert waiting["warning"].startswith("The learning process is not running at the moment.")
    assert not expires_within(probe, identifier, KEPT_SECONDS)
    assert expires_within(probe, identifier, WAITS_SECONDS)
    probe.beat(Heartbeat(1, 1), lives_seconds=10)
    assert (await owned("GET", path)).json()["warning"] == ""
