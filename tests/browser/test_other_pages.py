"""Experiments in pages of other sites: the client for plain pages and lab.js, the plugin for
jsPsych, and the page in a frame.
"""

import functools
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Page, Request, expect

from tests.archives import broken_picture, picture, write_zip
from tests.browser.participant import MEDIA, Laboratory, chosen, plain, slug_of
from tests.nginx import Nginx, free_port
from tests.program import REPOSITORY, Program, poll

pytestmark = pytest.mark.browser

JSPSYCH = REPOSITORY / "requirements" / "jspsych" / "node_modules" / "jspsych"
LAB_JS = JSPSYCH.parent / "lab.js" / "dist"
TRIALS = 10


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


@dataclass
class Site:
    """Another site: a folder that a server of its own serves, under an origin of its own."""

    folder: Path
    origin: str

    def page(self, name: str, html: str) -> str:
        """Put a page into the site; return its address."""
        (self.folder / name).write_text(f"<!DOCTYPE html><meta charset='utf-8'><title>A laboratory</title>{html}")
        return f"{self.origin}/{name}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with an origin of its own on this machine."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Site(folder, f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join()


def adaptive(count: int, origin: str) -> str:
    """An experiment whose queries are adaptive, and which a site may use."""
    spec = plain(count, f"security: {{origins: ['{origin}']}}\n")
    return spec.replace("samplers: {Random: {}}", "samplers: {Adaptive: {d: 1, random_share: 0%}}")


PLAIN_PAGE = """
<p id="question"></p><p id="head"></p><button id="left"></button><button id="right"></button><p id="end"></p>
<p id="status"></p>
<script type="module">
import { Salmon } from "SERVER/client/salmon.js";
const show = (id, content) => document.getElementById(id).replaceChildren(content);
const study = await Salmon.open("ADDRESS", { onStatus: (sentence) => show("status", sentence) });
show("question", study.page.title);
window.study = study;
for (let query = await study.next(); query; query = await study.next()) {
  for (const [place, element] of Object.entries(query.elements)) show(place, element);
  const shown = performance.now();
  const side = await new Promise((resolve) => {
    for (const each of ["left", "right"]) document.getElementById(each).onclick = () => resolve(each);
  });
  study.answer(side, { rt_ms: performance.now() - shown, input: "mouse" });
  show("head", "");
}
show("end", `Code ${study.finished.code}, ${study.given} answers`);
</script>
"""


def test_a_plain_page_of_another_site_asks_queries_and_gets_the_code(
    laboratory: Laboratory, site: Site, page: Page
) -> None:
    address = laboratory.launch("plain-page", plain(3, f"security: {{origins: ['{site.origin}']}}\n"))
    html = PLAIN_PAGE.replace("SERVER", laboratory.program.address).replace("ADDRESS", address)
    page.goto(site.page("index.html", html) + "?puid=elsewhere")
    expect(page.locator("#question")).to_have_text("Similarity judgements")
    given = []
    for number in range(3):
        expect(page.locator("#head span")).to_be_visible()
        given.append((page.locator("#head").inner_text(), page.locator("#left").inner_text()))
        page.locator("#left").click()
        if number < 2:
            page.wait_for_function(f"window.study.given === {number + 1}")
            expect(page.locator("#head span")).to_be_visible()
    expect(page.locator("#end")).to_have_text("Code C0DE-7, 3 answers")
    rows = laboratory.rows(address)
    assert chosen(rows) == given
    assert {row["puid"] for row in rows} == {"elsewhere"}
    assert all(float(row["response_time"]) > 0 for row in rows)


def test_a_plain_page_of_another_site_passes_over_a_picture_that_cannot_be_shown(
    laboratory: Laboratory, site: Site, page: Page, tmp_path: Path
) -> None:
    files = [(f"{k}.png", picture(40 * k, size=(40, 40))) for k in range(5)]
    spec = MEDIA.replace("COUNT", "3") + f"security: {{origins: ['{site.origin}']}}\n"
    fixed = "sampling: {details: {1: {sampler: Random, query: [2, 0, 1]}}}\n"  # the first query shows it
    address = laboratory.launch("passed-over", spec + fixed, write_zip(tmp_path / "t.zip", files))
    source = httpx.post(f"{address}arrive", json={"parameters": {"puid": "look"}}).json()["targets"][2]["source"]
    page.route(f"**{source}", lambda route: route.fulfill(body=broken_picture(), content_type="image/png"))
    page.clock.install()
    html = PLAIN_PAGE.replace("SERVER", laboratory.program.address).replace("ADDRESS", address)
    page.goto(site.page("index.html", html) + "?puid=elsewhere")
    for number in range(3):
        while not page.locator(
            "#head img"
        ).is_visible():  # it is loaded again after pauses, which need not be waited for
            page.clock.run_for(1000)
        page.locator("#left").click()
        page.wait_for_function(f"window.study.given === {number + 1}")
    expect(page.locator("#end")).to_contain_text("3 answers")
    rows = laboratory.rows(address)
    assert len(rows) == 3
    assert all("2" not in {row["head"], row["winner"], row["loser"]} for row in rows)


def test_a_site_that_the_file_does_not_name_gets_nothing(laboratory: Laboratory, site: Site, page: Page) -> None:
    address = laboratory.launch("unnamed", plain(3))
    html = """<p id="said"></p><script type="module">
    const reply = await fetch("ADDRESSarrive", { body: "{}", headers: { "Content-Type": "application/json" }, method: "POST" })
      .catch((error) => error.name);
    document.getElementById("said").textContent = reply;
    </script>"""
    page.goto(site.page("index.html", html.replace("ADDRESS", address)))
    expect(page.locator("#said")).to_have_text("TypeError")
    assert laboratory.participants(address) == 0


def test_steps_that_only_our_own_page_can_show_are_named(laboratory: Laboratory, site: Site, page: Page) -> None:
    address = laboratory.launch(
        "stepped", plain(3, f"consent: {{text: Do you agree?}}\nsecurity: {{origins: ['{site.origin}']}}\n")
    )
    html = """<p id="said"></p><script type="module">
    import { Salmon } from "SERVER/client/salmon.js";
    await Salmon.open("ADDRESS").catch((error) => (document.getElementById("said").textContent = error.message));
    </script>"""
    page.goto(site.page("index.html", html.replace("SERVER", laboratory.program.address).replace("ADDRESS", address)))
    expect(page.locator("#said")).to_contain_text("steps that only its own page can show: consent.")


JSPSYCH_PAGE = """
<script src="jspsych.js"></script><link rel="stylesheet" href="jspsych.css">
<body></body>
<script type="module">
import { Salmon, jsPsychSalmon } from "SERVER/client/jspsych-salmon.js";
const study = await Salmon.open("ADDRESS");
const jsPsych = initJsPsych({ on_finish: () => { window.rows = jsPsych.data.get().values(); } });
window.study = study;
await jsPsych.run([
  jsPsychSalmon.timeline(study, { prompt: "<p>Which is more like the upper one?</p>", blank_duration: 20, data: { task: "colours" } }),
]);
document.body.append(Object.assign(document.createElement("p"), { id: "end", textContent: `Code ${study.finished.code}` }));
</script>
"""


@dataclass
class Sitter:
    """Somebody in front of a page with jsPsych; `given` lists the texts of the heads and chosen feet in order."""

    page: Page
    given: list[tuple[str, str]]

    def answer(self, count: int = 1) -> None:
        """Press the arrow key to the left; after each answer, wait until the page has counted it."""
        for _ in range(count):
            self.page.locator(".salmon-left:not([disabled]) span").wait_for()
            self.page.wait_for_timeout(130)  # answers are ignored for the shortest allowed time, 100 ms
            before = self.page.evaluate("window.study.given")
            seen = self.page.locator(".salmon-head").inner_text(), self.page.locator(".salmon-left").inner_text()
            self.page.keyboard.press("ArrowLeft")
            self.given.append(seen)
            self.page.wait_for_function(f"window.study.given === {before + 1}")
            self.page.locator(".salmon-left[disabled]").wait_for(state="detached")


@pytest.fixture
def jspsych(site: Site) -> Callable[[str, str], str]:
    """Puts a page with the real jsPsych and an experiment into the site; returns its address."""
    if not JSPSYCH.exists():
        pytest.skip("jsPsych is not installed here: run requirements/install test.")
    (site.folder / "jspsych.js").write_bytes((JSPSYCH / "dist" / "index.browser.min.js").read_bytes())
    (site.folder / "jspsych.css").write_bytes((JSPSYCH / "css" / "jspsych.css").read_bytes())
    return lambda server, address: site.page(
        "jspsych.html", JSPSYCH_PAGE.replace("SERVER", server).replace("ADDRESS", address)
    )


def test_ten_adaptive_trials_in_jspsych_survive_a_server_that_is_killed(
    tmp_path: Path, site: Site, jspsych: Callable[[str, str], str], page: Page
) -> None:
    with Program(tmp_path / "data") as program:
        laboratory = Laboratory(program, program.add_user())
        address = laboratory.launch("jspsych", adaptive(TRIALS, site.origin))
        program.port = urlsplit(address).port
        program.wait_until_ready()
        wait_for_queries(laboratory, address)
        sitter = Sitter(page, [])
        page.goto(jspsych(program.address, address) + "?puid=sitter")
        sitter.answer(4)
        page.locator(".salmon-left:not([disabled]) span").wait_for()
        page.wait_for_timeout(130)
        program.kill()
        before = page.evaluate("window.study.given")
        sitter.given.append((page.locator(".salmon-head").inner_text(), page.locator(".salmon-left").inner_text()))
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(f"window.study.given === {before + 1}")
        expect(page.locator(".salmon-status")).to_contain_text("There is no connection")
        program.start()
        sitter.answer(TRIALS - len(sitter.given) - 1)
        sitter.page.locator(".salmon-left:not([disabled]) span").wait_for()
        page.wait_for_timeout(130)
        sitter.given.append((page.locator(".salmon-head").inner_text(), page.locator(".salmon-left").inner_text()))
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#end")).to_have_text("Code C0DE-7")
        rows = [row for row in laboratory.rows(address) if row["puid"] == "sitter"]
        assert chosen(rows) == sitter.given
        assert {row["sampler"] for row in rows} == {"Adaptive"}
        assert len({row["trial_index"] for row in rows}) == TRIALS
        noted = page.evaluate("window.rows")
        assert [(row["head"], row["winner"]) for row in noted] == [
            (int(row["head"]), int(row["winner"])) for row in rows
        ]
        assert {row["trial_type"] for row in noted} == {"salmon"}
        assert {row["task"] for row in noted} == {"colours"}
        assert {row["participant"] for row in noted} == {"sitter"}
        assert all(row["rt"] >= 100 for row in noted)
        # Queries that the model has ranked, and not random ones in their place.
        assert sum(float(row["score"]) != -9999 for row in rows) >= TRIALS - 2


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A program behind nginx, under a path of its host."""
    upstream = free_port()
    nginx = Nginx(tmp_path_factory.mktemp("nginx"), upstream, "/salmon/")
    options = ("--public-url", nginx.address, "--trusted-proxies", "127.0.0.1")
    with nginx, Program(tmp_path_factory.mktemp("data"), options=options, port=upstream) as program:
        yield Laboratory(program, program.add_user())


def asked_of(page: Page, program: Program) -> list[str]:
    """Return a list that grows with the path of every request of a page to the server."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(program.address))
    paths: list[str] = []

    def note(request: Request) -> None:
        if request.url.startswith(f"{origin}/"):
            paths.append(urlsplit(request.url).path)

    page.on("request", note)
    return paths


def test_the_client_works_under_a_path_behind_a_proxy(mounted: Laboratory, site: Site, page: Page) -> None:
    address = mounted.launch("plain-page", plain(3, f"security: {{origins: ['{site.origin}']}}\n"))
    assert urlsplit(address).path == "/salmon/e/plain-page/"
    paths = asked_of(page, mounted.program)
    html = PLAIN_PAGE.replace("SERVER", mounted.program.address).replace("ADDRESS", address)
    page.goto(site.page("index.html", html) + "?puid=elsewhere")
    given = []
    for number in range(3):
        expect(page.locator("#head span")).to_be_visible()
        given.append((page.locator("#head").inner_text(), page.locator("#left").inner_text()))
        page.locator("#left").click()
        page.wait_for_function(f"window.study.given === {number + 1}")
    expect(page.locator("#end")).to_have_text("Code C0DE-7, 3 answers")
    assert chosen(mounted.rows(address)) == given
    assert "/salmon/client/salmon.js" in paths
    assert [path for path in paths if not path.startswith("/salmon/")] == []


def test_the_plugin_works_under_a_path_behind_a_proxy(
    mounted: Laboratory, site: Site, jspsych: Callable[[str, str], str], page: Page
) -> None:
    address = mounted.launch("jspsych", plain(3, f"security: {{origins: ['{site.origin}']}}\n"))
    paths = asked_of(page, mounted.program)
    sitter = Sitter(page, [])
    page.goto(jspsych(mounted.program.address, address) + "?puid=sitter")
    sitter.answer(2)
    page.locator(".salmon-left:not([disabled]) span").wait_for()
    page.wait_for_timeout(130)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#end")).to_have_text("Code C0DE-7")
    rows = mounted.rows(address)
    assert chosen(rows)[:2] == sitter.given
    assert len(rows) == 3
    assert "/salmon/client/jspsych-salmon.js" in paths
    assert [path for path in paths if not path.startswith("/salmon/")] == []


def lab_js_page(server: str, address: str) -> str:
    """The page with lab.js that docs/jspsych.md shows, for a server and an experiment of
    the tests, with as many trials.
    """
    text = (REPOSITORY / "docs" / "jspsych.md").read_text()
    block = next(block for block in text.split("```html\n")[1:] if "lab.flow.Loop" in block).partition("```")[0]
    for old, new in (
        ("https://salmon.example.edu/e/colours/", address),
        ("https://salmon.example.edu", server),
        ("https://unpkg.com/lab.js@20/dist/", ""),
        ("length: 40", f"length: {TRIALS}"),
    ):
        assert old in block, f"the manual's page has no {old!r}"
        block = block.replace(old, new)
    return block


def test_ten_adaptive_trials_in_lab_js(laboratory: Laboratory, site: Site, page: Page) -> None:
    if not LAB_JS.exists():
        pytest.skip("lab.js is not installed here: run requirements/install test.")
    for name in ("lab.js", "lab.css"):
        (site.folder / name).write_bytes((LAB_JS / name).read_bytes())
    address = laboratory.launch("lab-js", adaptive(TRIALS, site.origin))
    laboratory.program.wait_until_ready()
    wait_for_queries(laboratory, address)
    page.goto(site.page("study.html", lab_js_page(laboratory.program.address, address)) + "?puid=sitter")
    given = []
    for _ in range(TRIALS):
        page.locator("main:not([data-seen]) #left span").wait_for()
        page.locator("main").evaluate("(main) => { main.dataset.seen = 'yes'; }")  # the next trial makes another one
        given.append((page.locator("#head").inner_text(), page.locator("#left").inner_text()))
        page.wait_for_timeout(130)
        page.locator("#left").click()
    expect(page.locator("#code")).to_have_text("C0DE-7")
    rows = [row for row in laboratory.rows(address) if row["puid"] == "sitter"]
    assert chosen(rows) == given
    assert {row["sampler"] for row in rows} == {"Adaptive"}
    assert all(float(row["response_time"]) >= 0.1 for row in rows)
    assert sum(float(row["score"]) != -9999 for row in rows) >= TRIALS - 2, "ranked by the model, not random"


def wait_for_queries(laboratory: Laboratory, address: str) -> None:
    """Let eight others answer everything, and wait until the learning process has published queries."""
    for person in range(8):
        arrival = httpx.post(f"{address}arrive", json={"parameters": {"puid": f"other{person}"}}).json()
        session = {"X-Salmon-Session": arrival["session"]}
        for number in range(1, TRIALS + 1):
            query = httpx.get(f"{address}query?number={number}", headers=session).json()
            winner = min(query["left"], query["right"], key=lambda foot: abs(foot - query["head"]))
            httpx.post(f"{address}answers", json={"token": query["token"], "winner": winner}).raise_for_status()
    url = f"{laboratory.program.address}/api/experiments/{slug_of(address)}/history?sampler=Adaptive"
    poll(lambda: httpx.get(url, auth=laboratory.login).json().get("points"), "the first model")


FRAME = """
<h1>A survey</h1>
<iframe id="salmon" title="Similarity judgements" width="900" height="700" style="border:0"></iframe>
<script>
document.getElementById("salmon").src = "ADDRESS?puid=" + encodeURIComponent("${e://Field/ResponseID}");
</script>
"""


def test_a_survey_shows_the_page_in_a_frame_and_hands_its_id_through(
    laboratory: Laboratory, site: Site, page: Page
) -> None:
    address = laboratory.launch("framed", plain(2, f"security: {{origins: ['{site.origin}']}}\n"))
    # A survey fills in its placeholder before it sends the page.
    html = FRAME.replace("ADDRESS", address).replace("${e://Field/ResponseID}", "R_3fQ2vTq")
    page.goto(site.page("survey.html", html))
    frame = page.frame_locator("#salmon")
    frame.get_by_role("button", name="Begin").click()
    for number in (1, 2):
        frame.locator("#trial:not([hidden]):not(.blank) #q-left:not(.disabled)").wait_for()
        page.wait_for_timeout(130)
        frame.locator("#q-left").click()
        expect(frame.locator("#num-queries")).to_have_text(re.compile(rf"^{number}\b"))
    expect(frame.locator("#code code")).to_have_text("C0DE-7")
    assert {row["puid"] for row in laboratory.rows(address)} == {"R_3fQ2vTq"}


def test_the_modules_are_one_file_each_and_asked_for_again_only_when_they_change(laboratory: Laboratory) -> None:
    for name, exported in (("salmon.js", "{ Salmon }"), ("jspsych-salmon.js", "{ jsPsychSalmon }")):
        reply = httpx.get(f"{laboratory.program.address}/client/{name}", headers={"Origin": "https://lab.example.edu"})
        assert reply.headers["access-control-allow-origin"] == "*"
        assert exported in reply.text
        assert not re.search(r"^import\b", reply.text, re.MULTILINE)
        again = httpx.get(str(reply.url), headers={"If-None-Match": reply.headers["etag"]})
        assert again.status_code == 304
    missing = httpx.get(f"{laboratory.program.address}/client/other.js")
    assert missing.status_code == 404
    assert "salmon.js and jspsych-salmon.js" in json.loads(missing.text)["error"]["hint"]


def manual_page(first: str, address: str, server: str) -> str:
    """Return the block of HTML of docs/jspsych.md that begins with a line, for a server
    and an experiment of the tests.
    """
    text = (REPOSITORY / "docs" / "jspsych.md").read_text()
    block = next(block for block in text.split("```html\n")[1:] if block.startswith(first)).partition("```")[0]
    block = block.replace("https://salmon.example.edu/e/colours/", address).replace(
        "https://salmon.example.edu", server
    )
    block = block.replace("https://unpkg.com/jspsych@8/css/jspsych.css", "jspsych.css")
    return block.replace("https://unpkg.com/jspsych@8", "jspsych.js")


def test_the_pages_of_the_manual_work(
    laboratory: Laboratory, site: Site, jspsych: Callable[[str, str], str], page: Page
) -> None:
    spec = plain(3, f"security: {{origins: ['{site.origin}']}}\n")
    address = laboratory.launch("manual-plain", spec)
    places = "".join(f"<button id='{name}'></button>" for name in ("head", "left", "right", "status", "end"))
    page.goto(site.page("plain.html", places + manual_page("<script", address, laboratory.program.address)))
    for _ in range(3):
        page.locator("#left span").wait_for()
        page.evaluate("window.before = document.getElementById('left').onclick")
        page.locator("#left").click()
        # The same target may stand there again, but with the next query comes the next handler.
        page.wait_for_function(
            "document.getElementById('left').onclick !== window.before || document.getElementById('end').textContent"
        )
    expect(page.locator("#end")).to_have_text("Your code: C0DE-7")
    assert len(laboratory.rows(address)) == 3

    address = laboratory.launch(
        "manual-jspsych", spec.replace("completion_code: C0DE-7", f"redirect: '{site.origin}/back.html'")
    )
    jspsych("", "")
    back = site.page("back.html", "<p>Back.</p>")
    (site.folder / "shown.html").write_text(manual_page("<!DOCTYPE", address, laboratory.program.address))
    page.goto(f"{site.origin}/shown.html")
    expect(page.get_by_text("Which colour is more like the upper one?")).to_be_visible()
    for _ in range(3):
        button = page.locator(".salmon-right:not([disabled])")
        button.locator("span").wait_for()
        page.wait_for_timeout(130)
        button.click()
        page.locator(".salmon-right[disabled]").wait_for(state="detached")
    expect(page).to_have_url(back)
    assert {row["winner"] == row["right"] for row in laboratory.rows(address)} == {True}
