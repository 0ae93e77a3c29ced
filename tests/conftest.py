"""Fixtures of all tests: the real program, the real store, a real browser."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import hypothesis
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from tests.browser.participant import Laboratory, Participant
from tests.bundles import server_on
from tests.living import client_on
from tests.program import REPOSITORY, Program

# A slow machine is no failure of a law.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


#: How long a browser test waits for what the page shows to become so; a loaded machine takes many times its usual time.
PATIENCE_MS = 60_000


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
    expect.set_options(timeout=PATIENCE_MS)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS)) as opened,
    ):
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, without cookies; an error in its scripts or console fails the test."""
    errors: list[str] = []
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        opened = context.new_page()
        opened.on("pageerror", lambda error: errors.append(str(error)))
        yield opened
        if not opened.is_closed():
            # Requests that a handler of the test still holds end with the page.
            opened.unroute_all(behavior="ignoreErrors")
    assert not errors, errors


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a context of its own that is closed at the end."""
    with ExitStack() as pages:
        yield lambda **options: pages.enter_context(browser.new_page(**options))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The real program, running, for a module of tests."""
    with Program(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of a web process on a data directory and store of this module's own."""
    with server_on(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture(scope="module")
def data_directory(settings: Settings) -> DataDirectory:
    """The data directory of those settings, with the embedded server running on it, its access list in force."""
    return DataDirectory(Path(settings.data))


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    """The web process's store."""
    opened = Store.open(settings.redis_url)
    yield opened
    await opened.close()


@pytest.fixture
async def client(settings: Settings, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """The application in this process; requests reach it without a socket."""
    async with client_on(settings, store) as opened:
        yield opened


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
