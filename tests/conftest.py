"""Fixtures of all tests: the real program, the real store, a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from frontend.app import create_app
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.cli.redis_server import READY, redis_program
from tests.browser.participant import Laboratory, Participant
from tests.program import REPOSITORY, Program

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; without one, the tests that need it are skipped with a sentence."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no Chromium on this machine, so this browser test was not run (install the package chromium)")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless Chromium of this module's own."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, without cookies; an error in its scripts or console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert not errors, errors


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The real program, running, for a module of tests."""
    started = Program(tmp_path_factory.mktemp("data")).start()
    yield started
    assert started.stop() == 0, "\n".join(started.log)


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDirectory]:
    """A data directory with the embedded server running on it, its access list in force."""
    directory = DataDirectory(tmp_path_factory.mktemp("store"))
    directory.prepare()
    server = redis_program(directory)
    process = subprocess.Popen(server.command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(READY in line for line in process.stdout)
    yield directory
    process.terminate()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def settings(data_directory: DataDirectory) -> Settings:
    """The settings of a web process on that store."""
    credentials = data_directory.credentials()
    return Settings(
        redis_url=data_directory.redis_url("frontend", credentials.frontend),
        secret=credentials.secret,
        data=str(data_directory.root),
    )


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """The web process's store."""
    opened = Store.open(settings.redis_url)
    yield opened
    await opened.close()


@pytest.fixture
async def client(settings: Settings, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The application in this process; requests reach it without a socket."""
    transport = httpx.ASGITransport(app=create_app(settings, store))
    async with httpx.AsyncClient(transport=transport, base_url="http://salmon.test") as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: docs/ when they are taken for it (`make pictures`), otherwise away."""
    return REPOSITORY / "docs" / "pictures" if os.environ.get("SALMON_PICTURES") else tmp_path


@pytest.fixture
def examples() -> Path:
    """The examples that come with the project."""
    return REPOSITORY / "examples"


@pytest.fixture(scope="module")
def laboratory(program: Program) -> Laboratory:
    """The running program of this module with an experimenter's account."""
    return Laboratory(program, program.add_user())


@pytest.fixture
def participant(page: Page) -> Participant:
    """Somebody with a keyboard and a mouse in front of a page of their own."""
    return Participant(page)
