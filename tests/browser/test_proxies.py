"""Salmon behind a real nginx and a real Caddy, at the top of its host and under a path, with two
web processes: the whole walk.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Page, Request, expect

from tests.browser.participant import Participant, download
from tests.caddy import Caddy
from tests.nginx import Nginx, free_port
from tests.program import Program

pytestmark = pytest.mark.browser

PASSWORD = "a long password"
SPEC = """\
title: Shapes
html:
  instructions: Which of the two lower shapes is more like the <b>upper</b> one?
  max_queries: 6
consent: {text: '<p>You compare shapes.</p>'}
instructions:
  - {text: 'Look at this shape: <img src="1.svg" alt="a shape">'}
page: {min_rt_ms: 100, blank_ms: 20}
recruitment: {completion_code: C0DE-7}
"""


class Proxied:
    """A program behind a proxy: `inside` is where the program itself listens."""

    def __init__(self, program: Program, proxy: Nginx | Caddy) -> None:
        self.program = program
        self.address = proxy.address
        self.mount = proxy.path.rstrip("/")
        self.inside = f"http://127.0.0.1:{proxy.upstream}"


@pytest.fixture(
    scope="module",
    params=[("/", False), ("/salmon/", False), ("/salmon/", True), ("/", "caddy"), ("/salmon/", "caddy")],
    ids=["at the top", "under a path", "under a path that the proxy strips", "Caddy at the top", "Caddy under a path"],
)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """Salmon with two web processes behind a proxy."""
    path, kind = request.param
    upstream, folder = free_port(), tmp_path_factory.mktemp("proxy")
    proxy = Caddy(folder, upstream, path) if kind == "caddy" else Nginx(folder, upstream, path, strips=kind)
    options = ("--public-url", f"{proxy.address}/", "--trusted-proxies", "127.0.0.1", "--web-processes", "2")
    with proxy, Program(tmp_path_factory.mktemp("data"), options=options, port=upstream) as program:
        yield Proxied(program, proxy)


def test_experimenter_and_participant_walk_from_the_first_link_to_the_export(
    proxied: Proxied, page: Page, examples: Path, tmp_path: Path
) -> None:
    requests, failed = watch(page)
    assert proxied.program.address == proxied.address

    # The owner's account, from the link that the program prints.
    page.goto(f"{proxied.address}/console/welcome?invitation={proxied.program.invitation}")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    cookies = {cookie.get("name"): cookie for cookie in page.context.cookies()}
    assert {cookie.get("path") for cookie in cookies.values()} == {f"{proxied.mount}/"}

    # Log out and in again: forms and redirects stay below the path.
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{proxied.address}/console/login")
    assert page.goto(f"{proxied.address}/console/account") is not None
    expect(page).to_have_url(f"{proxied.address}/console/login")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{proxied.address}/console/")

    # An experiment with pictures is uploaded and opened.
    spec = tmp_path / "shapes.yaml"
    spec.write_text(SPEC)
    page.get_by_role("link", name="Create an experiment").click()
    page.locator("#files").set_input_files([spec, examples / "shapes" / "targets.zip"])
    expect(page.locator("#summary")).to_contain_text("6 queries")
    page.get_by_role("tab", name=re.compile("^Files")).click()
    assert_loaded(page.get_by_role("tabpanel").locator("img").first)
    page.get_by_label("Name in the link").fill("shapes")
    page.get_by_role("button", name="Save as draft").click()
    expect(page).to_have_url(f"{proxied.address}/console/experiments/shapes/settings")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator("#state")).to_have_text("open")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#address")).to_have_text(f"{proxied.address}/e/shapes/")
    page.evaluate("window.neverReloaded = true")

    # A participant answers to the end; the overview follows by its event stream, without being loaded again.
    answer_to_the_end(proxied, page)
    expect(page.locator("[data-tile=answers] .value")).to_have_text("6")
    assert page.evaluate("window.neverReloaded")
    answer_by_http(proxied, 40)
    expect(page.locator("[data-tile=answers] .value")).to_have_text("246")

    # Map, targets, recruitment and every tab; then the export.
    page.get_by_role("link", name="Map", exact=True).click()
    expect(page.locator("#map image")).to_have_count(11)
    for tab, shown in (
        ("Targets", "#grid img"),
        ("Participants", "#table tbody tr"),
        ("Recruitment", "#qr"),
        ("Payment", "h2"),
        ("Settings", "#summary dl"),
        ("Export", "#files a"),
    ):
        page.get_by_role("link", name=tab, exact=True).click()
        expect(page.locator(shown).first).to_be_visible()
    with page.expect_download() as started:
        page.locator("#files a").first.click()
    assert started.value.url.startswith(f"{proxied.address}/api/experiments/shapes/exports/")
    assert download(page, "Download bundle").startswith(b"PK")

    assert failed == []
    outside = [url for url in requests if not url.startswith((f"{proxied.address}/", "data:", "blob:"))]
    assert outside == [], "every request stays below the path"


def watch(page: Page) -> tuple[list[str], list[str]]:
    """Note the address of every request of a page, and those that were refused."""
    requests: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    def note(request: Request) -> None:
        response = request.response()
        if response is not None and response.status >= 400:
            failed.append(f"{response.status} {request.url}")

    page.on("requestfinished", note)
    return requests, failed


def assert_loaded(picture: Locator) -> None:
    """Assert that a picture is there and has loaded."""
    expect(picture).to_be_visible()
    expect(picture).to_have_js_property("complete", value=True)
    assert picture.evaluate("(image) => image.naturalWidth") > 0


def answer_to_the_end(proxied: Proxied, page: Page) -> None:
    """Answer as a participant in another window; the link without a slash at its end leads to the same page."""
    assert page.context.browser is not None
    with page.context.browser.new_context() as context:
        tab = context.new_page()
        requests, failed = watch(tab)
        tab.goto(f"{proxied.address}/e/shapes?puid=ada")
        expect(tab).to_have_url(f"{proxied.address}/e/shapes/?puid=ada")
        participant = Participant(tab)
        participant.button("Begin").click()
        participant.button("I agree").click()
        assert_loaded(tab.get_by_alt_text("a shape"))
        participant.button("Continue").click()
        participant.answer(3)
        tab.reload()
        participant.answer(3)
        assert participant.code() == "C0DE-7"
        assert failed == []
        assert [url for url in requests if not url.startswith((f"{proxied.address}/", "data:", "blob:"))] == []
        assert context.cookies() == []


def answer_by_http(proxied: Proxied, people: int) -> None:
    """Let more people answer by the page's own protocol."""
    for person in range(people):
        with httpx.Client(base_url=f"{proxied.address}/e/shapes/", timeout=60) as client:
            arrival = client.post("arrive", json={"parameters": {"puid": f"p{person}"}}).raise_for_status().json()
            assert all(target["source"].startswith(f"{proxied.mount}/media/") for target in arrival["targets"])
            client.headers["X-Salmon-Session"] = arrival["session"]
            client.post("steps/welcome", json={}).raise_for_status()
            client.post("steps/consent", json={"agreed": True}).raise_for_status()
            client.post("steps/instructions", json={}).raise_for_status()
            for _ in range(6):
                query = client.get("query").raise_for_status().json()
                body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
                client.post("answers", json=body).raise_for_status()


def test_the_description_for_scripts_names_the_public_address(proxied: Proxied) -> None:
    described = httpx.get(f"{proxied.address}/openapi.json").raise_for_status().json()
    assert described["servers"] == [{"url": proxied.address}]


def test_both_web_processes_answer_and_share_the_login(proxied: Proxied) -> None:
    login = ("olga", PASSWORD)
    for _ in range(8):  # a connection each: the system gives them to both processes
        assert httpx.get(f"{proxied.address}/api/experiments", auth=login).status_code == 200
        assert httpx.get(f"{proxied.inside}/api/experiments", auth=login).status_code == 200
    assert all(proxied.program.child(name).is_running() for name in ("frontend", "frontend-2"))
    text = httpx.get(f"{proxied.address}/metrics").text
    counted = re.findall(r'salmon_requests_total\{route="/api/experiments",[^}]*\} ([\d.]+)', text)
    assert sum(map(float, counted)) >= 2 * 8, "they count together"


def test_a_link_to_the_path_without_a_slash_leads_to_the_server(proxied: Proxied) -> None:
    if not proxied.mount:
        pytest.skip("at the top of a host there is no path")
    reply = httpx.get(proxied.inside + proxied.mount)
    assert (reply.status_code, reply.headers["location"]) == (308, f"{proxied.mount}/")
    for path in ("", "/"):
        reply = httpx.get(proxied.address + path, follow_redirects=True, headers={"Accept": "text/html"})
        assert urlsplit(str(reply.url)).path.startswith(f"{proxied.mount}/")
        assert reply.status_code in {200, 409}
