"""Recruitment platforms in a browser (links, redirects, Mechanical Turk), and pages written for Salmon 1."""

import hashlib
from urllib.parse import parse_qs

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.participant import LOCK_OUT_MS, Laboratory, Participant, assert_accessible, plain, take_picture
from tests.program import REPOSITORY

pytestmark = pytest.mark.browser

MTURK = """
targets: [red, orange, yellow, green]
html: {max_queries: 1}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
recruitment: {platform: mturk}
"""


def test_a_mechanical_turk_preview_shows_a_disabled_sample_and_stores_nothing(
    laboratory: Laboratory, page: Page
) -> None:
    address = laboratory.launch("preview", MTURK)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.method))
    page.goto(f"{address}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=H1", wait_until="networkidle")
    expect(page.get_by_text("This is a preview.")).to_be_visible()
    expect(page.locator("#q-head")).to_have_text("red")
    expect(page.locator("#q-left")).to_be_disabled()
    assert_accessible(page)
    take_picture(page, "desktop-0-preview.png")
    assert "POST" not in requests
    reply = httpx.post(f"{address}arrive", json={"parameters": {"assignmentId": "ASSIGNMENT_ID_NOT_AVAILABLE"}})
    assert reply.status_code == 400
    assert laboratory.participants(address) == 0


def test_mechanical_turk_receives_its_form_from_a_page_in_its_frame(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("turk", MTURK)
    sent: list[dict[str, list[str]]] = []

    def serve_study(route: Route) -> None:
        """Serve the program under a public name: browsers do not let a public site frame a local server."""
        route.fulfill(
            response=route.fetch(url=route.request.url.replace("https://study.test", laboratory.program.address))
        )

    def serve_turk(route: Route) -> None:
        if route.request.method == "POST":
            sent.append(parse_qs(route.request.post_data or ""))
            route.fulfill(content_type="text/html", body="<p>Done.</p>")
            return
        ids = "assignmentId=A1&amp;hitId=H1&amp;workerId=W1&amp;turkSubmitTo=https%3A%2F%2Fworkersandbox.mturk.com"
        frame = f"https://study.test/e/turk/?{ids}"
        route.fulfill(content_type="text/html", body=f"<iframe src='{frame}' height=700 width=900></iframe>")

    page.route("https://study.test/**", serve_study)
    page.route("https://workersandbox.mturk.com/**", serve_turk)
    page.goto("https://workersandbox.mturk.com/task")
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Begin").click()
    frame.locator("#q-left:not(.disabled)").wait_for()
    page.wait_for_timeout(LOCK_OUT_MS)
    frame.locator("#q-left").click()
    frame.get_by_role("button", name="Submit").click()
    expect(frame.get_by_text("Done.")).to_be_visible()
    assert sent == [{"assignmentId": ["A1"], "answers": ["1"]}]
    assert laboratory.rows(address)[0]["puid"] == "W1"


def test_the_redirect_with_the_participants_ids_is_sent_only_at_the_end(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = plain(1).replace(
        "recruitment: {completion_code: C0DE-7}",
        "recruitment: {platform: prolific, completion_code: C0DE-7, "
        'redirect: "https://example.org/back?cc={code}&pid={PROLIFIC_PID}&study={STUDY_ID}"}',
    )
    address = laboratory.launch("redirect", spec)
    told: list[str] = []
    page.on("response", lambda response: told.append(response.text()) if response.request.method == "POST" else None)
    page.route("https://example.org/**", lambda route: route.fulfill(body="back"))
    participant.open(f"{address}?PROLIFIC_PID=5f00&STUDY_ID=s1&SESSION_ID=x").ready()
    assert "C0DE-7" not in page.content() + "".join(told)
    assert "example.org" not in page.content() + "".join(told)
    participant.answer()
    participant.button("Finish and return").click()
    expect(page).to_have_url("https://example.org/back?cc=C0DE-7&pid=5f00&study=s1")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("PROLIFIC_PID=%7B%7B%25PROLIFIC_PID%25%7D%7D", "has not filled in who you are"),
        ("PROLIFIC_PID=PROLIFIC_PID", "has not filled in who you are"),
        ("PROLIFIC_PID=a%20b", "is not an id"),
        ("PROLIFIC_PID=" + "x" * 129, "is not an id"),
        ("survey_code=0123", "is not an id"),
        ("workerId=W&turkSubmitTo=https%3A%2F%2Fevil.example", "not Mechanical Turk"),
        ("", "does not say who you are"),
    ],
)
def test_an_invalid_link_gets_an_explanation_and_stores_nothing(
    laboratory: Laboratory, query: str, sentence: str
) -> None:
    address = laboratory.launch("", plain(1).replace("recruitment: {", "recruitment: {platform: prolific, "))
    reply = httpx.get(f"{address}?{query}", headers={"Accept": "text/html"})
    assert reply.status_code == 400
    assert reply.headers["content-type"].startswith("text/html")
    assert sentence in reply.text.replace("&#39;", "'")
    assert laboratory.participants(address) == 0


LEGACY = """
targets: [red, orange, yellow, green]
html:
  max_queries: 3
  css: "#q-head { letter-spacing: 7px } .answer { border-style: dotted }"
  element_top: "<div class='alert alert-info' id='top'>Above</div>"
  element_middle: "<span id='middle'>Between</span>"
  element_bottom: "<span id='bottom'>Below</span>"
  element_standalone: "<span id='alone'>Alone</span>"
  js: |
    window.seen = [];
    $(function () { $("#top").text("jQuery " + $.fn.jquery + ", Bootstrap " + $.fn.modal.Constructor.VERSION); });
    $("#skip-button").parent().append("<button id='other'>Other</button>");
    $("#other").on("click", function () { getquery(); });
    document.addEventListener("keydown", function () { seen.push([num_queries, targets[head], puid, max_queries]); });
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
"""


def test_scripts_and_styles_written_for_salmon_1_work(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    origins: set[str] = set()
    page.on("request", lambda request: origins.add("/".join(request.url.split("/")[:3])))
    participant.open(laboratory.launch("legacy", LEGACY) + "?puid=veteran")
    expect(page.locator("#top")).to_have_text("jQuery 3.2.1, Bootstrap 4.0.0")
    participant.ready()
    places = [page.locator(f"#{name}").bounding_box() for name in ("middle", "q-head", "bottom", "alone")]
    heights = [place["y"] for place in places if place]
    assert heights == sorted(heights)
    assert len(heights) == 4
    assert page.locator("#q-head").evaluate("head => getComputedStyle(head).letterSpacing") == "7px"
    shown = page.locator("#q-head").inner_text()
    page.keyboard.press("a")
    assert page.evaluate("window.seen[0]") == [0, shown, "veteran", 3]
    before = page.locator("#trial").inner_text()
    page.locator("#other").click()
    participant.ready()
    assert page.locator("#trial").inner_text() != before
    for name in ("instructions", "target-text", "comparison-text", "q-head", "q-left", "q-right", "choices", "puid"):
        assert page.locator(f"#{name}").count() == 1
    assert (page.locator(".cell").count(), page.locator(".answer").count()) == (3, 2)
    participant.answer(3)
    expect(page.locator("#debriefModal #debrief")).to_be_visible()
    assert page.locator("body.no-more-queries").count() == 1
    assert {origin for origin in origins if origin.startswith("http")} == {laboratory.program.address}


def test_legacy_files_are_loaded_only_if_needed(laboratory: Laboratory, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(laboratory.launch("modern", plain(1)), wait_until="networkidle")
    assert not [url for url in asked if "/legacy/" in url or "/own." in url]


def test_the_legacy_files_match_their_documented_digests() -> None:
    folder = REPOSITORY / "frontend" / "static" / "legacy"
    notes = (folder / "README.md").read_text()
    for name in ("jquery-3.2.1.min.js", "bootstrap-4.0.0.bundle.min.js", "bootstrap-4.0.0.min.css"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in notes
