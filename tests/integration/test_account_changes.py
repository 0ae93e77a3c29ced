"""Changes of one account at the same moment: none is undone by another that had read the account before it."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from pyotp.totp import TOTP

from frontend.app import create_app
from frontend.console import accounts as account_routes
from frontend.security import hash_password, password_fits
from frontend.settings import Settings
from frontend.store import Store, lua
from tests.people import HOME, PASSWORD, Browse, Browser, Clock, MakeAccount, Send
from tests.studies import OWNER

pytestmark = pytest.mark.usefixtures("quick_hashes")

CHANGED, RESET = "a changed password", "a password by link"


class HeldHash:
    """The hashing of a changed password, which takes until the test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, password: str) -> str:
        self.begun.set()
        assert self.may_end.wait(30)
        return hash_password(password)


@pytest.fixture
def held_hash(monkeypatch: pytest.MonkeyPatch) -> HeldHash:
    held = HeldHash()
    monkeypatch.setattr(account_routes, "hash_password", held)
    return held


async def change_meanwhile(browser: Browser, held: HeldHash, change: Callable[[], Awaitable[Any]]) -> httpx.Response:
    """The reply to a change of one's own password, during whose hashing something else changes the account."""
    body = {"old": PASSWORD, "new": CHANGED}
    changing = asyncio.create_task(browser.send("PUT", "/api/account/password", json=body))
    assert await asyncio.to_thread(held.begun.wait, 30)
    await change()
    held.may_end.set()
    return await changing


@pytest.fixture
async def browse(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Browse]:
    """Opens browsers, all on one web process: these tests open hundreds."""
    app = create_app(settings, store)
    app.state.context = replace(app.state.context, now_ms=lambda: clock.ms)
    transport = httpx.ASGITransport(app=app, client=(HOME, 50000))
    async with AsyncExitStack() as opened:

        async def open_one() -> Browser:
            client = httpx.AsyncClient(transport=transport, base_url="http://salmon.test")
            return Browser(await opened.enter_async_context(client))

        yield open_one


async def log_in(browse: Browse, name: str) -> Browser:
    browser = await browse()
    assert (await browser.log_in(name, PASSWORD)).status_code == 303
    return browser


async def switch_on(browser: Browser, clock: Clock) -> httpx.Response:
    begun = (await browser.send("POST", "/api/account/second-factor")).json()
    code = TOTP(begun["secret"]).at(clock.ms // 1000)
    body = {"password": PASSWORD, "setup": begun["setup"], "code": code}
    return await browser.send("PUT", "/api/account/second-factor", json=body)


async def take_link_up(owned: Send, browse: Browse, name: str) -> httpx.Response:
    link = (await owned("POST", f"/api/accounts/{name}/reset")).json()["link"]
    form = {"invitation": link.partition("invitation=")[2], "password": RESET}
    return await (await browse()).client.post("/console/welcome", data=form)


async def test_a_change_of_password_does_not_undo_a_demotion(
    owned: Send, browse: Browse, store: Store, fresh: MakeAccount, held_hash: HeldHash
) -> None:
    await fresh("demoted")
    assert (await owned("PUT", "/api/accounts/demoted/role", json={"role": "owner"})).status_code == 200
    browser = await log_in(browse, "demoted")
    demote = {"json": {"role": "viewer"}}
    reply = await change_meanwhile(browser, held_hash, lambda: owned("PUT", "/api/accounts/demoted/role", **demote))
    account = await store.accounts.read("demoted")
    assert account is not None
    assert account.role == "viewer"
    assert not await browser.is_in()
    assert (reply.status_code, password_fits(PASSWORD, account.password_hash)) == (409, True)


async def test_a_change_of_password_does_not_bring_a_removed_account_back(
    owned: Send, browse: Browse, store: Store, fresh: MakeAccount, held_hash: HeldHash
) -> None:
    await fresh("removed")
    browser = await log_in(browse, "removed")
    reply = await change_meanwhile(browser, held_hash, lambda: owned("DELETE", "/api/accounts/removed"))
    assert await store.accounts.read("removed") is None
    assert (reply.status_code, await browser.is_in()) == (404, False)


async def test_a_change_of_password_does_not_undo_a_reset_by_link(
    owned: Send, browse: Browse, store: Store, fresh: MakeAccount, held_hash: HeldHash
) -> None:
    await fresh("stolen")
    thief = await log_in(browse, "stolen")
    reply = await change_meanwhile(thief, held_hash, lambda: take_link_up(owned, browse, "stolen"))
    account = await store.accounts.read("stolen")
    assert account is not None
    assert password_fits(RESET, account.password_hash)
    assert (reply.status_code, await thief.is_in()) == (409, False)


async def test_a_change_of_password_does_not_switch_the_second_factor_off(
    browse: Browse, store: Store, fresh: MakeAccount, held_hash: HeldHash, clock: Clock
) -> None:
    await fresh("factored")
    thief, browser = await log_in(browse, "factored"), await log_in(browse, "factored")

    async def set_up() -> None:
        assert (await switch_on(browser, clock)).status_code == 200

    reply = await change_meanwhile(thief, held_hash, set_up)
    account = await store.accounts.read("factored")
    assert account is not None
    assert account.second_factor
    assert reply.status_code == 409


class Gate:
    """Holds the next change of an account between reading and writing."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = store.connection.run
        self._closed = False
        self._reached, self._opened = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(store.connection, "run", self._hold)

    async def _hold(self, script: str, *arguments: Any, **options: Any) -> Any:
        if self._closed and script in {lua.CHANGE_ACCOUNT, lua.REMOVE_ACCOUNT, lua.TAKE_UP_INVITATION}:
            self._closed = False
            self._reached.set()
            await self._opened.wait()
        return await self._run(script, *arguments, **options)

    async def interleave(self, first: Awaitable[bool], second: Callable[[], Awaitable[bool]]) -> tuple[bool, bool]:
        """Whether each of two requests was carried out; the second is answered before the first one writes."""
        self._closed = True
        held = asyncio.ensure_future(first)
        reached = asyncio.ensure_future(self._reached.wait())
        await asyncio.wait({held, reached}, return_when=asyncio.FIRST_COMPLETED)
        self._closed = False
        meanwhile = await second()
        self._opened.set()
        reached.cancel()
        return await held, meanwhile


@dataclass
class Life:
    """One account with two sessions, an API token and perhaps a second factor, and what may happen to it."""

    store: Store
    owned: Send
    browse: Browse
    clock: Clock
    name: str
    browser: Browser
    other: Browser
    token: str
    link: str
    codes: list[str]
    csrf: dict[str, str] = field(default_factory=dict[str, str])

    async def do(self, operation: str) -> bool:
        """Send one request as it would have been sent before anything happened; return whether it was carried out."""
        reply = await getattr(self, operation)()
        assert reply.status_code < 500, reply.text
        return reply.status_code < 400

    async def change_password(self) -> httpx.Response:
        return await self._send("PUT", "/api/account/password", {"old": PASSWORD, "new": CHANGED})

    async def switch_on(self) -> httpx.Response:
        begun = await self._send("POST", "/api/account/second-factor", None)
        if begun.status_code != 200:
            return begun
        code = TOTP(begun.json()["secret"]).at(self.clock.ms // 1000)
        body = {"password": PASSWORD, "setup": begun.json()["setup"], "code": code}
        return await self._send("PUT", "/api/account/second-factor", body)

    async def switch_off(self) -> httpx.Response:
        body = {"password": PASSWORD, "code": (self.codes or ["none-none"])[0]}
        return await self._send("DELETE", "/api/account/second-factor", body)

    async def demote(self) -> httpx.Response:
        return await self.owned("PUT", f"/api/accounts/{self.name}/role", json={"role": "viewer"})

    async def remove(self) -> httpx.Response:
        return await self.owned("DELETE", f"/api/accounts/{self.name}")

    async def remove_factor(self) -> httpx.Response:
        return await self.owned("DELETE", f"/api/accounts/{self.name}/second-factor")

    async def reset(self) -> httpx.Response:
        form = {"invitation": self.link, "password": RESET}
        return await (await self.browse()).client.post("/console/welcome", data=form)

    async def state(self) -> dict[str, Any]:
        """All that is left of the account, and who is still in."""
        account = await self.store.accounts.read(self.name)
        bearer = {"Authorization": f"Bearer {self.token}"}
        known = {
            "password": [text for text in (PASSWORD, CHANGED, RESET) if password_fits(text, account.password_hash)],
            "role": account.role,
            "second factor": bool(account.second_factor),
            "recovery codes": bool(await self.store.accounts.count_recovery_codes(account.id)),
        } if account else {}  # fmt: skip
        return {
            **known,
            "the browser is in": await self.browser.is_in(),
            "the other is in": await self.other.is_in(),
            "the token works": (await self.browser.client.get("/api/experiments", headers=bearer)).status_code == 200,
        }

    async def _send(self, method: str, path: str, body: Any) -> httpx.Response:
        return await self.browser.client.request(method, path, json=body, headers=self.csrf)


OPERATIONS = ("change_password", "switch_on", "switch_off", "demote", "remove", "remove_factor", "reset")
#: What an owner does, also by a link, is done whatever its account does at the same moment.
BY_OWNER = {"demote", "remove", "remove_factor", "reset"}


@pytest.mark.parametrize(("first", "second"), list(itertools.product(OPERATIONS, OPERATIONS)))
@pytest.mark.parametrize("factor", [False, True], ids=["without", "with"])
async def test_two_changes_at_once_end_as_one_after_the_other(
    owned: Send,
    browse: Browse,
    store: Store,
    fresh: MakeAccount,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    *,
    factor: bool,
) -> None:
    gate, number = Gate(store, monkeypatch), itertools.count()

    async def begin() -> Life:
        name = f"{first}.{second}.{'with' if factor else 'without'}.{next(number)}".replace("_", "-")
        await fresh(name)
        browser, other = await log_in(browse, name), await log_in(browse, name)
        made = await browser.send("POST", "/api/account/tokens", json={"label": "a script", "scope": "read"})
        codes = (await switch_on(browser, clock)).json()["recovery_codes"] if factor else []
        link = (await owned("POST", f"/api/accounts/{name}/reset")).json()["link"].partition("invitation=")[2]
        life = Life(store, owned, browse, clock, name, browser, other, made.json()["token"], link, codes)
        life.csrf = await browser.csrf()
        return life

    async def one_after_the_other(*operations: str) -> tuple[tuple[bool, ...], dict[str, Any]]:
        life = await begin()
        done = tuple([await life.do(operation) for operation in operations])
        return done, await life.state()

    life = await begin()
    held, meanwhile = await gate.interleave(life.do(first), lambda: life.do(second))
    state = await life.state()
    if not held and first not in BY_OWNER:  # what was refused must have changed nothing
        assert ((meanwhile,), state) == await one_after_the_other(second)
        return
    if ((held, meanwhile), state) != await one_after_the_other(first, second):
        done, expected = await one_after_the_other(second, first)
        assert ((meanwhile, held), state) == (done, expected)


async def test_two_owners_who_demote_each_other_leave_an_owner(
    owned: Send, browse: Browse, store: Store, fresh: MakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fresh("other.owner")
    assert (await owned("PUT", "/api/accounts/other.owner/role", json={"role": "owner"})).status_code == 200
    gate, browser, viewer = Gate(store, monkeypatch), await log_in(browse, "other.owner"), {"role": "viewer"}

    async def demote_owner() -> bool:
        return (await browser.send("PUT", f"/api/accounts/{OWNER[0]}/role", json=viewer)).status_code == 200

    async def demote_other() -> bool:
        return (await owned("PUT", "/api/accounts/other.owner/role", json=viewer)).status_code == 200

    assert await gate.interleave(demote_owner(), demote_other) == (False, True)
    assert [account.name for account in await store.accounts.list() if account.role == "owner"] == [OWNER[0]]
