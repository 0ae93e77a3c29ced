"""Fixtures of the tests that hold the learning loop in their hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from backend.jobs import desk, embeddings
from backend.jobs.embeddings import fit_first
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.accounts import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from tests.asking import OWNER, Held

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


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Embeddings as of then wait until they are let go."""
    step = Held(fit_first)
    monkeypatch.setattr(embeddings, "fit_first", step)
    monkeypatch.setattr(desk, "LOOK_SECONDS", 0.05)
    yield step
    step.let_go.set()
