"""What requests through a proxy become: paths below the mount, redirects, cookies, and whose headers are believed."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from frontend.app import create_app
from frontend.context import Context
from frontend.proxies import move
from frontend.settings import OWN_NAMES, Settings
from frontend.store import Store
from frontend.store.participants import ARRIVALS_AT_ONCE
from frontend.store.sessions import FREE_GUESSES
from tests.people import ELSEWHERE, PASSWORD, Browse, MakeAccount
from tests.program import Program
from tests.studies import study

MOUNTED = "https://lab.example.edu/salmon"
Open = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def open_at(settings: Settings, store: Store) -> Open:
    """Opens the application with a public address, for a client at some network address."""

    @asynccontextmanager
    async def open_one(
        public_url: str = MOUNTED, client: str = "127.0.0.1", **changed: str
    ) -> AsyncIterator[httpx.AsyncClient]:
        made = Settings(**{**settings.model_dump(), "public_url": public_url, **changed})
        transport = httpx.ASGITransport(app=create_app(made, store), client=(client, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8421") as opened:
            yield opened

    return open_one


@pytest.mark.parametrize("path", ["/salmon/console/login", "/console/login"], ids=["kept", "stripped"])
async def test_a_page_is_the_same_whether_the_proxy_strips_the_path_or_keeps_it(open_at: Open, path: str) -> None:
    async with open_at() as client:
        page = await client.get(path)
    assert page.status_code == 200
    assert 'action="/salmon/console/login"' in page.text
    assert not re.findall(r'(?:href|src|action)="/(?!salmon/)', page.text)


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/salmon/console/", "/salmon/console/login"),
        ("/console/", "/salmon/console/login"),
        ("/salmon/e/eggs?x=1", "/salmon/e/eggs/?x=1"),
        ("/salmon/console/login/", "/salmon/console/login"),
        ("/salmon", "/salmon/"),
    ],
)
async def test_redirects_stay_below_the_path(open_at: Open, path: str, leads_to: str) -> None:
    async with open_at() as client:
        reply = await client.get(path, headers={"Accept": "text/html"})
    assert (reply.is_redirect, reply.headers["location"]) == (True, leads_to)


def test_only_redirects_to_this_server_are_moved() -> None:
    for location in ("https://app.prolific.com/x", "//elsewhere.example/x", "next", "/salmon/e/eggs/"):
        assert move(location, "/salmon", "lab.example.edu") == location
    assert move("https://lab.example.edu/e/eggs/", "/salmon", "lab.example.edu") == "/salmon/e/eggs/"
    assert move("/salmonella", "/salmon", "lab.example.edu") == "/salmon/salmonella"


async def test_cookies_are_kept_from_the_other_applications_of_the_host(open_at: Open, fresh: MakeAccount) -> None:
    await fresh("pathed")
    async with open_at() as client:
        reply = await client.post("/salmon/console/login", data={"name": "pathed", "password": PASSWORD})
    cookies = reply.headers.get_list("set-cookie")
    assert len(cookies) == 2
    for cookie in cookies:
        assert re.fullmatch(
            r"__Secure-salmon_(login|device)=\S+; HttpOnly; Max-Age=\d+; Path=/salmon/; SameSite=lax; Secure", cookie
        ), cookie


async def test_another_path_of_the_host_is_not_ours(open_at: Open) -> None:
    async with open_at() as client:
        assert (await client.get("/salmonella/healthz")).status_code == 404
        assert (await client.get("/salmon/salmon/healthz")).status_code == 404
        assert (await client.get("/salmon/healthz")).json() == {"status": "ok"}


async def test_the_sender_and_the_scheme_are_believed_from_named_proxies_only(
    open_at: Open, fresh: MakeAccount
) -> None:
    await fresh("named")
    proxy, forwarded = "10.1.2.3", {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    form = {"name": "named", "password": PASSWORD}
    seen: dict[str, str] = {}
    for trusted in ("10.1.0.0/16", "127.0.0.1"):
        async with open_at("", client=proxy, trusted_proxies=trusted) as client:
            reply = await client.post("/console/login", data=form, headers=forwarded)
            seen[trusted] = "; ".join(reply.headers.get_list("set-cookie"))
            client.cookies = {}
    assert "__Host-salmon_login" in seen["10.1.0.0/16"]
    assert "Secure" not in seen["127.0.0.1"]


async def test_of_a_chain_of_addresses_only_what_named_proxies_wrote_counts(browse: Browse, fresh: MakeAccount) -> None:
    """The attack: to choose another address for every guess, from behind a proxy that appends the true one."""
    await fresh("chained")
    attacker = await browse("10.1.2.3", trusted_proxies="10.1.2.3")
    for guess in range(FREE_GUESSES):
        await attacker.log_in("chained", f"guess {guess}", **{"X-Forwarded-For": f"192.0.2.{guess}, {ELSEWHERE}"})
    last = await attacker.log_in("chained", "x", **{"X-Forwarded-For": f"192.0.2.200, {ELSEWHERE}"})
    assert last.status_code == 429


@pytest.mark.parametrize(
    "header",
    [("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Prefix", "/evil"), ("Forwarded", "host=evil.example")],
)
async def test_no_header_moves_the_server(open_at: Open, owner: tuple[str, str], header: tuple[str, str]) -> None:
    async with open_at() as client:
        reply = await client.post(
            "/api/invitations",
            json={"name": f"invited{len(header[0])}"},
            auth=owner,
            headers=dict([header]),
        )
        assert reply.json()["link"].startswith(f"{MOUNTED}/console/welcome?"), reply.text
        assert (await client.get("/console/", headers={"Accept": "text/html", **dict([header])})).headers[
            "location"
        ] == "/salmon/console/login"


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("lab.example.edu/salmon", "no address of a server"),
        ("ftp://lab.example.edu/", "no address of a server"),
        ("https://lab.example.edu/?x=1", "no address of a server"),
        ("https://lab.example.edu/a b", "letters, digits"),
        ("https://lab.example.edu/api", "begin with /api"),
        ("https://lab.example.edu/e/eggs", "begin with /e"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(settings: Settings, address: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Settings(**{**settings.model_dump(), "public_url": address})


@pytest.mark.parametrize("proxies", ["proxy.example", "10.0.0.0/99", "10.0.0.1;10.0.0.2"])
def test_a_proxy_is_named_by_address_or_network(settings: Settings, proxies: str) -> None:
    with pytest.raises(ValidationError, match="neither an address nor a network"):
        Settings(**{**settings.model_dump(), "trusted_proxies": proxies})


def test_no_path_of_ours_can_be_taken_for_the_proxys(settings: Settings) -> None:
    """A request for /api/… could otherwise be one whose path was stripped, or one whose path was kept."""
    routes = create_app(settings).routes
    first = {path.split("/")[1] for path in (getattr(route, "path", "") for route in routes) if path.strip("/")}
    assert first <= OWN_NAMES


@pytest.mark.parametrize("named", [(), ("--trusted-proxies", "127.0.0.1")], ids=["unnamed", "named"])
def test_the_program_says_when_it_starts_which_setting_names_the_proxy(tmp_path: Path, named: tuple[str, ...]) -> None:
    with Program(tmp_path / "data", options=("--public-url", MOUNTED, "--web-processes", "2", *named)) as program:
        pass
    said = [line for line in program.log if "SALMON_TRUSTED_PROXIES or --trusted-proxies" in line]
    assert len(said) == (0 if named else 1)


async def test_participants_behind_a_proxy_that_nobody_named_are_let_in(
    open_at: Open, settings: Settings, store: Store
) -> None:
    """They count as one address, whose limit is that of a class; a participant over it waits for less than a second."""
    async with open_at("") as client:
        one = await study(
            client, Context(settings, store), "targets: [a, b, c, d]\nsamplers: {Random: {}}\n", "unnamed"
        )
        replies = [
            await client.post(
                f"/e/{one.slug}/arrive", json={"parameters": {}}, headers={"X-Forwarded-For": f"192.0.2.{number % 250}"}
            )
            for number in range(ARRIVALS_AT_ONCE)
        ]
    assert {reply.status_code for reply in replies} == {200}
