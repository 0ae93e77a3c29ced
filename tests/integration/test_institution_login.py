"""The login of an institution by a header of its proxy: believed with the proxy's secret, from named proxies, and from
nobody else.
"""

import base64
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from frontend.settings import Settings
from frontend.store import Store
from tests.caddy import Caddy
from tests.nginx import Nginx, free_port
from tests.people import PASSWORD, Browse, MakeAccount
from tests.program import REPOSITORY, Program
from tests.studies import OWNER

PROXY = "10.1.2.3"
HEADER = "X-Remote-User"
SECRET = "a-secret-of-the-proxy-alone"
PROOF = {"X-Salmon-Proxy-Secret": SECRET}
LOGIN = {
    "login_header": HEADER,
    "login_header_secret": SECRET,
    "trusted_proxies": PROXY,
    "login_name": "Example University",
}


async def come_in(browse: Browse, name: str, address: str = PROXY, **changed: str) -> tuple[httpx.Response, bool]:
    """What somebody gets whom a proxy calls by this name, and whether they are in."""
    browser = await browse(address, **{**LOGIN, **changed})
    reply = await browser.client.get("/console/login/institution", headers={HEADER: name, **PROOF} if name else PROOF)
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
        reply = await attacker.client.get(
            "/console/login/institution", headers={header: "victim", **forwarded, **PROOF}
        )
        assert reply.status_code == 403
        assert "The proxy did not say who you are" in reply.text
    assert not await attacker.is_in()


async def test_the_header_alone_opens_no_other_route(browse: Browse, fresh: MakeAccount) -> None:
    """A session begins on the login page only, so changes need its CSRF token as ever."""
    await fresh("headed")
    browser = await browse(PROXY, **LOGIN)
    for path in ("/api/experiments", "/api/account"):
        assert (await browser.client.get(path, headers={HEADER: "headed", **PROOF})).status_code == 401
    assert (await browser.client.post("/api/experiments", headers={HEADER: "headed", **PROOF})).status_code == 401


async def test_without_the_setting_there_is_no_such_login(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("unset")
    browser = await browse(PROXY, trusted_proxies=PROXY)
    assert "login/institution" not in (await browser.client.get("/console/login")).text
    reply = await browser.client.get("/console/login/institution", headers={HEADER: "unset", **PROOF})
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


@pytest.mark.parametrize("secret", [None, "", "a-secret-of-another-proxy-1", SECRET[:-1], f"{SECRET}x"])
async def test_the_header_without_the_secret_is_worth_nothing_also_from_the_proxys_address(
    browse: Browse, owner: tuple[str, str], secret: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The attack: another user of the machine on which the proxy and the server are."""
    attacker = await browse("127.0.0.1", **{**LOGIN, "trusted_proxies": "127.0.0.1"})
    sent = {} if secret is None else {"X-Salmon-Proxy-Secret": secret}
    with caplog.at_level(logging.WARNING):
        reply = await attacker.client.get("/console/login/institution", headers={HEADER: owner[0], **sent})
    assert (reply.status_code, await attacker.is_in()) == (403, False)
    assert "login header refused" in caplog.messages
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"login_header_secret": ""}, "at least 16 characters"),
        ({"login_header_secret": "fifteen-letters"}, "at least 16 characters"),
        ({"login_header_secret": "with a space in between"}, "at least 16 characters"),
        ({"trusted_proxies": ""}, "SALMON_TRUSTED_PROXIES"),
    ],
)
def test_the_settings_of_the_login_are_whole_or_refused(
    settings: Settings, changed: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Settings(**{**settings.model_dump(), **LOGIN, **changed})


def test_the_program_does_not_start_with_the_header_alone(settings: Settings) -> None:
    environment = {
        "SALMON_REDIS_URL": settings.redis_url,
        "SALMON_SECRET": settings.secret,
        "SALMON_LOGIN_HEADER": HEADER,
        "SALMON_TRUSTED_PROXIES": "127.0.0.1",
    }
    command = (sys.executable, "-m", "frontend")
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "SALMON_LOGIN_HEADER_SECRET" in done.stderr
    assert "Traceback" not in done.stderr


def lines_of_the_manual(language: str) -> str:
    """The lines for a proxy in docs/accounts.md."""
    found = re.search(rf"```{language}\n(.*?)```", (REPOSITORY / "docs" / "accounts.md").read_text(), re.DOTALL)
    assert found
    return found[1].replace("the-secret-of-the-proxy", SECRET)


@contextmanager
def salmon_behind(proxy: Nginx | Caddy, data: Path) -> Iterator[None]:
    """Salmon with an owner, behind a proxy that logs people in."""
    environment = {
        "SALMON_LOGIN_HEADER": HEADER,
        "SALMON_LOGIN_HEADER_SECRET": SECRET,
        "SALMON_TRUSTED_PROXIES": "127.0.0.1",
    }
    options = ("--public-url", proxy.address)
    with proxy, Program(data, environment, options, port=proxy.upstream) as program:
        done = program.run("user", "add", OWNER[0], "--owner", text=f"{OWNER[1]}\n")
        assert done.returncode == 0, done.stderr
        yield


def assert_lets_in_only_whom_it_has_logged_in(proxy: Nginx | Caddy, proof: dict[str, str]) -> None:
    """`proof` is the header with which the proxy's own login is passed."""
    institution = "/console/login/institution"
    with httpx.Client(base_url=proxy.address) as browser:
        entered = browser.get(institution, headers={HEADER: "somebody.else", **proof})
        assert (entered.status_code, entered.headers.get("location")) == (303, "/console/"), entered.text
        assert browser.get("/api/account").json()["name"] == OWNER[0]
    forged = {HEADER: OWNER[0], "X-Salmon-Proxy-Secret": "a guess of sixteen letters"}
    for address in (proxy.address, f"http://127.0.0.1:{proxy.upstream}"):
        with httpx.Client(base_url=address, headers=forged) as attacker:
            assert attacker.get(institution).status_code in {401, 403}
            assert attacker.get("/api/account").status_code == 401


def test_the_nginx_of_the_manual_logs_in_and_strips_what_browsers_send(tmp_path: Path) -> None:
    upstream, users = free_port(), tmp_path / "users"
    users.write_text(f"{OWNER[0]}:{{PLAIN}}of the institution\n")
    lines = lines_of_the_manual("nginx").replace("127.0.0.1:8421", f"127.0.0.1:{upstream}")
    nginx = Nginx(tmp_path / "nginx", upstream, lines=lines.replace("/etc/nginx/salmon-users", str(users)))
    with salmon_behind(nginx, tmp_path / "data"):
        password = base64.b64encode(f"{OWNER[0]}:of the institution".encode()).decode()
        assert_lets_in_only_whom_it_has_logged_in(nginx, {"Authorization": f"Basic {password}"})


class InstitutionHandler(BaseHTTPRequestHandler):
    """The program of an institution that says who a cookie belongs to, as oauth2-proxy does."""

    def do_GET(self) -> None:
        known = self.path == "/oauth2/auth" and self.headers.get("Cookie") == "institution=1"
        self.send_response(202 if known else 401)
        if known:
            self.send_header("X-Auth-Request-User", OWNER[0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_caddy_of_the_manual_logs_in_and_strips_what_browsers_send(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), InstitutionHandler) as institution:
        threading.Thread(target=institution.serve_forever, daemon=True).start()
        lines = lines_of_the_manual("caddy").replace("127.0.0.1:4180", f"127.0.0.1:{institution.server_port}")
        caddy = Caddy(tmp_path / "caddy", free_port(), lines=lines)
        with salmon_behind(caddy, tmp_path / "data"):
            assert_lets_in_only_whom_it_has_logged_in(caddy, {"Cookie": "institution=1"})
        institution.shutdown()


def test_a_header_has_a_header_s_name(settings: Settings) -> None:
    with pytest.raises(ValidationError, match="login_header"):
        Settings(**{**settings.model_dump(), "login_header": "Remote User:"})
