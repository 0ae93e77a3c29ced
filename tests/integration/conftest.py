"""Fixtures of the tests that hold the learning loop in their hands."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from backend.jobs import embeddings, runner
from backend.jobs.embeddings import fit_first
from backend.service import Service
from backend.store import Store as BackendStore
from frontend import security
from frontend.app import create_app
from frontend.auth import make_account
from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.accounts import Account
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from tests.bundles import bundle_of, server_on
from tests.job_requests import BlockedStep, answer_and_absorb
from tests.living import SPEC, Crowd, started
from tests.people import HOME, PASSWORD, Browse, Browser, Clock, MakeAccount
from tests.studies import OWNER

SHAPES = "samplers: {Random: {}, Validation: {n_queries: 4}}\nhtml: {max_queries: 30}\n"


@pytest.fixture
def backend_url(data_directory: DataDirectory) -> str:
    return data_directory.redis_url("backend", data_directory.credentials().backend)


@pytest.fixture
def open_service(backend_url: str) -> Iterator[Callable[..., Service]]:
    """Makes services and, unless told otherwise, begins them; each is stopped at the end."""
    made: list[tuple[Service, BackendStore]] = []

    def make(store: BackendStore | None = None, *, begin: bool = True) -> Service:
        own = store or BackendStore(backend_url)
        service = Service(own, SerialExecutor)
        made.append((service, own))
        if begin:
            service.begin()
        return service

    yield make
    for service, own in made:
        service.stop()
        service.close()
        own.close()


@pytest.fixture
def learning(
    client: httpx.AsyncClient, settings: Settings, store: Store, open_service: Callable[..., Service]
) -> Callable[..., Awaitable[tuple[Crowd, str, Service]]]:
    """Launches an experiment, begins to learn from it, and waits until so many answers are absorbed."""

    async def begin(name: str, spec: str = SPEC, *, answers: int = 0) -> tuple[Crowd, str, Service]:
        crowd, experiment = await started(client, settings, store, name, spec)
        service = open_service()
        await answer_and_absorb(crowd, service, experiment, answers)
        return crowd, experiment, service

    return begin


@pytest.fixture
async def owner(context: Context) -> tuple[str, str]:
    """The account of the owner of the server, for HTTP Basic."""
    if not await context.store.accounts.exist():
        await make_account(context, *OWNER, owner=True)
    return OWNER


@pytest.fixture
def owned(client: httpx.AsyncClient, owner: tuple[str, str]) -> Callable[..., Any]:
    """Sends a request to the application as its owner."""
    return partial(client.request, auth=owner)


@pytest.fixture
def context(settings: Settings, store: Store) -> Context:
    """The parts of a web process, to look at what the application has stored."""
    return Context(settings, store)


@pytest.fixture
def probe(backend_url: str) -> Iterator[BackendStore]:
    opened = BackendStore(backend_url)
    yield opened
    opened.close()


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedStep]:
    """Embeddings as of then wait until they are let go."""
    step = BlockedStep(fit_first)
    monkeypatch.setattr(embeddings, "fit_first", step)
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.05)
    yield step
    step.let_go.set()


@pytest.fixture(scope="module")
def bundles() -> dict[str, bytes]:
    """What was exported in this module already."""
    return {}


@pytest.fixture
async def bundle(client: httpx.AsyncClient, context: Context, examples: Path, bundles: dict[str, bytes]) -> bytes:
    """The bundle of an experiment with pictures, ninety answers of three people, a decision, events and a change."""
    if "shapes" not in bundles:
        made, _ = await launch(
            context,
            SHAPES.encode(),
            spec_name=Path("shapes.yaml"),
            archive=examples / "shapes" / "targets.zip",
            name="shapes",
            owner="ada",
            state="open",
        )
        crowd = Crowd(client, "shapes")
        for number in range(90):
            await crowd.answer_left(f"p{number % 3}")
        await client.post("/e/shapes/events", json={"event": "skip", "detail": "button"}, headers=crowd.sessions["p0"])
        people = await context.store.export_reader.read_arrivals(made.experiment)
        await context.store.participants.decide(
            made.experiment, {people["link:p1"]: ("exclude", "Slept.")}, by="ada", now_ms=5
        )
        bundles["shapes"] = await bundle_of(context.settings, context.store, "shapes")
    return bundles["shapes"]


@pytest.fixture(scope="module")
def another_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A second data directory with a store of its own."""
    with server_on(tmp_path_factory.mktemp("elsewhere")) as settings:
        yield settings


@pytest.fixture
async def elsewhere(another_machine: Settings) -> AsyncIterator[Context]:
    """The parts of a web process there."""
    store = Store.open(another_machine.redis_url)
    yield Context(another_machine, store)
    await store.close()


@pytest.fixture
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed quickly: it takes its time on purpose, which would be most of some tests."""
    monkeypatch.setattr(security, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))


@pytest.fixture
def clock() -> Clock:
    """The time of the servers of `browse`."""
    return Clock()


@pytest.fixture
async def browse(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Browse]:
    """Opens browsers at an address, each on a web process of its own."""
    async with AsyncExitStack() as opened:

        async def open_one(address: str = HOME, base_url: str = "http://salmon.test", **changed: Any) -> Browser:
            app = create_app(Settings(**{**settings.model_dump(), **changed}), store)
            app.state.context = replace(app.state.context, now_ms=lambda: clock.ms)
            transport = httpx.ASGITransport(app=app, client=(address, 50000))
            return Browser(await opened.enter_async_context(httpx.AsyncClient(transport=transport, base_url=base_url)))

        yield open_one


@pytest.fixture
async def fresh(context: Context, owner: tuple[str, str]) -> MakeAccount:
    """Makes accounts, with a name that no other test has guessed, on a server that has an owner."""
    del owner

    async def make(name: str, **role: Any) -> Account:
        return await make_account(context, name, PASSWORD, **role)

    return make
