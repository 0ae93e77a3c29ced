"""The login of an institution by a header of its proxy: believed from named proxies, and from nobody else."""

import httpx
import pytest
from pydantic import ValidationError

from frontend.settings import Settings
from frontend.store import Store
from tests.people import PASSWORD, Browse, MakeAccount

PROXY = "10.1.2.3"
HEADER = "X-Remote-User"
LOGIN = {"login_header": HEADER, "trusted_proxies": PROXY, "login_name": "Example University"}


async def come_in(browse: Browse, name: str, address: str = PROXY, **changed: str) -> tuple[httpx.Response, bool]:
    """What somebody gets whom a proxy calls by this name, and whether they are in."""
    browser = await browse(address, **{**LOGIN, **changed})
    reply = await browser.client.get("/console/login/institution", headers={HEADER: name} if name else {})
    return reply, await browser.is_in()


async def test_whom_a_named_proxy_has_logged_in_is_in(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("by.proxy")
    page = (await (await browse(PROXY, **LOGIN)).client.get("/console/login")).text
    assert 'href="/console/login/institution">Log in with Example University</a>' in page
    reply, is_in = await come_in(browse, "by.proxy")
    assert (reply.status_code, reply.headers["location"], is_in) == (303, "/console/", True)


@pytest.mark.parametrize("header", [HEADER, HEADER.lower(), HEADER.upper()], ids=["as it is", "lower", "upper"])
async def test_the_header_of_anybody_else_is_worth_nothing(
    browse: Browse, store: Store, fresh: MakeAccount, header: str
) -> None:
    """The attack: to send the header oneself, past the proxy or to a server without one."""
    if await store.accounts.read("victim") is None:
        await fresh("victim")
    attacker = await browse("203.0.113.66", **LOGIN)
    for forwarded in ({}, {"X-Forwarded-For": PROXY}, {"X-Forwarded-For": f"{PROXY}, 127.0.0.1"}):
        reply = await attacker.client.get("/console/login/institution", headers={header: "victim", **forwarded})
        assert reply.status_code == 403
        assert "The proxy did not say who you are" in reply.text
    assert not await attacker.is_in()


async def test_the_header_alone_opens_no_other_route(browse: Browse, fresh: MakeAccount) -> None:
    """A session begins on the login page only, so changes need its CSRF token as ever."""
    await fresh("headed")
    browser = await browse(PROXY, **LOGIN)
    for path in ("/api/experiments", "/api/account"):
        assert (await browser.client.get(path, headers={HEADER: "headed"})).status_code == 401
    assert (await browser.client.post("/api/experiments", headers={HEADER: "headed"})).status_code == 401


async def test_without_the_setting_there_is_no_such_login(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("unset")
    browser = await browse(PROXY, trusted_proxies=PROXY)
    assert "login/institution" not in (await browser.client.get("/console/login")).text
    reply = await browser.client.get("/console/login/institution", headers={HEADER: "unset"})
    assert reply.status_code == 403
    assert not await browser.is_in()


async def test_newcomers_get_an_account_where_the_settings_give_them_a_role(
    browse: Browse, fresh: MakeAccount, owner: tuple[str, str]
) -> None:
    await fresh("somebody.else")
    refused, is_in = await come_in(browse, "new@example.edu")
    assert (refused.status_code, is_in) == (403, False)
    assert "it would be called &#39;new@example.edu&#39;" in refused.text
    _, is_in = await come_in(browse, "new@example.edu", login_role="viewer")
    assert is_in
    known = await browse()
    accounts = (await known.client.get("/api/accounts", auth=owner)).json()
    assert [each["role"] for each in accounts if each["name"] == "new@example.edu"] == ["viewer"]
    for password in ("", "new@example.edu", PASSWORD):
        reply = await known.client.get("/api/experiments", auth=("new@example.edu", password))
        assert reply.status_code in {401, 403}, "no password opens such an account"


async def test_a_second_factor_is_asked_for_all_the_same(browse: Browse, fresh: MakeAccount, store: Store) -> None:
    account = await fresh("careful")
    await store.accounts.set_second_factor(account, "JBSWY3DPEHPK3PXP", ())
    reply, is_in = await come_in(browse, "careful")
    assert reply.status_code == 200
    assert "Enter a code" in reply.text
    assert not is_in


@pytest.mark.parametrize("name", ["", "a b", "@nobody", "server", "x" * 65, "<b>"])
async def test_a_name_that_no_account_can_have_is_refused(browse: Browse, owner: tuple[str, str], name: str) -> None:
    assert owner
    reply, is_in = await come_in(browse, name, login_role="experimenter")
    assert (reply.status_code, is_in) == (403, False)
    assert "<b>" not in reply.text


async def test_local_accounts_log_in_as_before(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("local.one")
    browser = await browse(PROXY, **LOGIN)
    assert (await browser.log_in("local.one", PASSWORD)).status_code == 303
    assert await browser.is_in()


def test_a_header_has_a_header_s_name(settings: Settings) -> None:
    with pytest.raises(ValidationError, match="login_header"):
        Settings(**{**settings.model_dump(), "login_header": "Remote User:"})
