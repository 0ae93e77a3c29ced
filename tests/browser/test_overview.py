"""The overview's verdict in each of its forms, with numbers that are compared with the answers that were given."""

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from tests.archives import picture, write_zip
from tests.browser.participant import Laboratory, assert_accessible, slug_of, take_picture
from tests.program import poll

NOT_YET = (
    r"Not yet: (about [\d,]+ more answers \(95 %: [\d,]+ (to [\d,]+|or more)\)|it may be enough, or up to [\d,]+ more answers \(95 %\)"
    r"|it cannot be said yet|far more answers are needed)\."
)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LINE = (
    "targets: [ant, bee, cat, dog, eel, fox, gnu]\nhtml: {max_queries: 0}\nsamplers: {Random: {}, Adaptive: {d: 1}}\n"
)
PLAIN = "targets: [ant, bee, cat, dog, eel]\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\n"
LAPSE = 0.05
HELD_OUT = "held-out accuracy"
SCREENS = {"phone": (360, 640), "desktop": (1280, 800), "wide": (1920, 1080), "uhd": (3840, 2160)}


@pytest.fixture(scope="module")
def line(laboratory: Laboratory) -> str:
    """An experiment about animals that stand at 0, 1, … 6 on a line."""
    return laboratory.launch("line", LINE)


def answer(address: str, name: str, count: int) -> None:
    """Answer as somebody who compares positions on a line, and errs now and then."""
    generator = np.random.default_rng(sum(map(ord, name)))
    with httpx.Client(base_url=address, timeout=60) as client:
        session = client.post("arrive", json={"parameters": {"puid": name}}).raise_for_status().json()["session"]
        client.headers["X-Salmon-Session"] = session
        for _ in range(count):
            query = client.get("query").raise_for_status().json()
            near, far = sorted((query["left"], query["right"]), key=lambda foot: abs(foot - query["head"] - 0.1))
            winner = near if generator.random() > LAPSE else far
            reply = {"token": query["token"], "winner": winner, "rt_ms": 900.0, "query_wait_ms": 8.0, "input": "key"}
            client.post("answers", json=reply).raise_for_status()


def answer_together(address: str, names: list[str], count: int) -> None:
    with ThreadPoolExecutor(4) as people:
        for done in [people.submit(answer, address, name, count) for name in names]:
            done.result()


def open_overview(page: Page, laboratory: Laboratory, address: str) -> None:
    """Log in and open the overview; its link can be copied."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/{slug_of(address)}/")
    expect(page.locator("#verdict")).to_be_visible()


def seen(laboratory: Laboratory, address: str) -> dict[str, Any]:
    """What the server says of an experiment."""
    url = f"{laboratory.program.address}/api/experiments/{slug_of(address)}/overview"
    return httpx.get(url, auth=laboratory.login, timeout=60).raise_for_status().json()


def tile(page: Page, name: str, part: str = ".value") -> str:
    return page.locator(f'[data-tile="{name}"] {part}').first.inner_text()


def assert_no_impossible_number(page: Page) -> None:
    words = page.locator("main").inner_text()
    assert "NaN" not in words
    assert "undefined" not in words
    shares = [float(share) for share in re.findall(r"(-?[\d.]+) %", words)]
    assert all(0 <= share <= 100 for share in shares), shares


def take_looks(page: Page, name: str) -> None:
    """Check a verdict for accessibility in light and dark, and take its pictures."""
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if screen == "desktop":
                assert_accessible(page)
            # Figures follow the size of the window a moment later.
            page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
            take_picture(page, f"overview-{name}-{screen}-{scheme}.png")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")


def test_before_the_first_answer_the_button_copies_the_link(laboratory: Laboratory, line: str, page: Page) -> None:
    open_overview(page, laboratory, line)
    expect(page.locator("#verdict-what")).to_have_text("No answers yet.")
    take_looks(page, "no-answers")
    page.locator("#verdict-action").get_by_role("button", name="Copy link").click()
    expect(page.locator("#verdict-action button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == line
    assert (tile(page, "answers"), tile(page, "participants"), tile(page, HELD_OUT)) == ("0", "0", "–")
    assert_no_impossible_number(page)


def test_a_draft_is_opened_by_the_button_and_closed_when_there_are_enough_answers(
    laboratory: Laboratory, page: Page
) -> None:
    url = f"{laboratory.program.address}/api/experiments"
    form = {"files": {"spec": ("goal.yaml", PLAIN.encode())}, "data": {"name": "goal", "state": "draft"}}
    reply = httpx.post(url, auth=laboratory.login, **form)
    assert reply.is_success, reply.text
    address = f"{laboratory.program.address}/e/goal/"
    open_overview(page, laboratory, address)
    expect(page.locator("#verdict-what")).to_have_text("Not open yet.")
    take_looks(page, "not-open")
    page.get_by_role("button", name="Open the experiment").click()
    expect(page.locator("#state")).to_have_text("open")
    expect(page.locator("#verdict-what")).to_have_text("No answers yet.")
    answer_together(address, [f"p{k}" for k in range(5)], 40)
    expect(page.locator("[data-tile=answers] .value")).to_have_text("200")
    # 10 n d log2 n = 232.2 for five targets in two dimensions.
    assert tile(page, "answers", ".quiet") == "of 233 (rule of thumb)"
    expect(page.locator("#verdict-what")).to_have_text("Not yet: about 33 more answers.")
    answer(address, "p5", 33)
    expect(page.locator("#verdict-what")).to_have_text("Enough by a rule of thumb: 233 answers.")
    assert (tile(page, "answers"), tile(page, "expected finish")) == ("233", "reached")
    assert "6 began, 6 opened the link" in tile(page, "participants", ".quiet")
    assert_no_impossible_number(page)
    take_looks(page, "rule-of-thumb")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Close the experiment").click()
    assert seen(laboratory, address)["state"] == "open"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Close the experiment").click()
    expect(page.locator("#state")).to_have_text("closed")
    expect(page.locator("#verdict-action button")).to_have_count(0)
    assert httpx.post(f"{address}arrive", json={"parameters": {"puid": "late"}}).status_code == 409


def test_a_file_that_is_missing_is_named_first(laboratory: Laboratory, page: Page, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "t.zip", [(f"owl{k}.png", picture(k, size=(61, 17 + k))) for k in range(5)])
    address = laboratory.launch("owls", "html: {max_queries: 0}\nsamplers: {Random: {}}\n", archive)
    url = f"{laboratory.program.address}/api/experiments/owls/targets"
    target = httpx.get(url, auth=laboratory.login).json()[2]
    (medium,) = laboratory.program.data.rglob(target["media"].rpartition("/")[2])
    medium.unlink()
    open_overview(page, laboratory, address)
    what = page.locator("#verdict-what")
    expect(what).to_contain_text("Something is wrong: the file of target 2 (owl2.png) is missing")
    expect(page.locator("#verdict")).to_have_attribute("data-level", "error")
    expect(page.locator("#verdict-why")).to_contain_text("Upload the same file again")
    expect(page.locator("#verdict-action button")).to_have_count(0)
    take_looks(page, "something-wrong")


def true_accuracy(coordinates: np.ndarray) -> float:
    """The share of these people's answers to random queries that an embedding predicts."""
    rows = [(h, a, b) for h in range(7) for a in range(7) for b in range(a) if len({h, a, b}) == 3]
    agree = np.mean(
        [
            (abs(a - h - 0.1) < abs(b - h - 0.1))
            == (np.linalg.norm(coordinates[a] - coordinates[h]) < np.linalg.norm(coordinates[b] - coordinates[h]))
            for h, a, b in rows
        ]
    )
    return float((1 - LAPSE) * agree + LAPSE * (1 - agree))


def test_it_is_not_enough_and_then_enough_and_the_map_says_the_same(
    laboratory: Laboratory, line: str, page: Page, tmp_path: Path
) -> None:
    open_overview(page, laboratory, line)
    answers, told, why = 0, "", page.locator("#verdict-why")
    while not (told.startswith("Not yet") and "The map predicts" in why.inner_text()) and answers < 400:
        answer_together(line, [f"early{answers}-{k}" for k in range(4)], 10)
        answers += 40
        expect(page.locator("[data-tile=answers] .value")).to_have_text(f"{answers}")
        wait_until_learned(laboratory, line, answers)
        page.reload()
        expect(page.locator("#verdict")).to_be_visible()
        told = page.locator("#verdict-what").inner_text()
    assert re.fullmatch(NOT_YET, told), told
    assert page.locator("#verdict-action").inner_text() == "Copy link"
    take_looks(page, "not-yet")
    while "Enough" not in told and answers < 9000:
        answer_together(line, [f"late{answers}-{k}" for k in range(8)], 60)
        answers += 480
        expect(page.locator("[data-tile=answers] .value")).to_have_text(f"{answers:,}")
        wait_until_learned(laboratory, line, answers)
        page.reload()
        expect(page.locator("#verdict")).to_be_visible()
        told = page.locator("#verdict-what").inner_text()
    assert re.fullmatch(r"Enough: closing now costs at most (0\.\d|1\.0) points of accuracy \(95 %\)\.", told), told
    expect(page.get_by_role("button", name="Close the experiment")).to_be_visible()
    expect(page.locator("[data-figure=accuracy] svg")).to_be_visible()
    take_looks(page, "enough")
    assert_no_impossible_number(page)

    now = seen(laboratory, line)
    known = next(sampler for sampler in now["samplers"] if sampler["name"] == "Adaptive")
    shown = tile(page, HELD_OUT)
    assert shown == f"{100 * known['accuracy']:.1f} %"
    assert shown in page.locator("#verdict-why").inner_text()
    assert tile(page, "answers") == f"{answers:,}"
    assert sum(sampler["answers"] for sampler in now["samplers"]) == answers
    # Between these limits lies the truth of the simulated people, but for the one time in twenty that an interval
    # misses.
    url = f"{laboratory.program.address}/api/experiments/line/model"
    model = httpx.get(url, params={"sampler": "Adaptive"}, auth=laboratory.login).raise_for_status().json()
    truth = true_accuracy(np.array(model["coordinates"]))
    assert known["accuracy_low"] - 0.03 <= truth <= known["accuracy_high"] + 0.03, (known, truth)

    page.get_by_role("link", name="Map").click()
    expect(page.locator("#caption")).to_contain_text(f"held-out accuracy {shown} ")
    page.locator("#sampler").select_option("All answers")
    expect(page.locator("#caption")).to_contain_text(f"held-out accuracy {shown} ", timeout=60_000)
    # The command leaves out answers that are marked as excluded, so it is asked before somebody is.
    assert shown == fitted_by_the_command(laboratory, "line", tmp_path, dimensions=1)
    assert shown == compared(laboratory, page, "line")


def compared(laboratory: Laboratory, page: Page, slug: str) -> str:
    """Exclude somebody and return the accuracy of everybody's map in Compare."""
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=60) as client:
        people = client.get(f"/api/experiments/{slug}/participants").raise_for_status().json()["participants"]
        person = people[0]["participant"]
        decision = {"keep": "exclude", "note": "for comparison"}
        client.put(f"/api/experiments/{slug}/participants/{person}", json=decision).raise_for_status()
    page.get_by_role("link", name="Participants").click()
    page.get_by_role("button", name="Compare").click()
    first = page.locator("#comparison tbody tr").first
    expect(first).to_contain_text("as on the overview", timeout=120_000)
    return first.locator("td.number").first.inner_text()


def fitted_by_the_command(laboratory: Laboratory, slug: str, folder: Path, *, dimensions: int) -> str:
    """Return the held-out accuracy that `salmon fit` reports of the downloaded answers."""
    url = f"{laboratory.program.address}/api/experiments/{slug}/exports/responses.csv"
    answers = folder / "responses.csv"
    answers.write_bytes(httpx.get(url, auth=laboratory.login, timeout=60).raise_for_status().content)
    output = folder / "embedding.csv"
    command = [sys.executable, "-m", "salmon", "fit", str(answers), "-o", str(output), "--dim", str(dimensions)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    report = json.loads((folder / "embedding-report.json").read_text())
    return f"{100 * report['held_out']['accuracy']:.1f} %"


def wait_until_learned(laboratory: Laboratory, address: str, answers: int) -> None:
    """Wait until the newest generation has seen every answer, and all of them are in the held-out accuracy."""

    def learned() -> float:
        known = next(s for s in seen(laboratory, address)["samplers"] if s["name"] == "Adaptive")
        return min(known["absorbed"] or 0, known["evaluated"])

    poll(lambda: learned() >= answers, "all answers to be learned", seconds=120)


def test_an_import_has_neither_pace_nor_finish(laboratory: Laboratory, page: Page) -> None:
    now = int(time.time())
    generator = np.random.default_rng(1)
    rows = [
        ",".join(map(str, (*(q := generator.choice(7, 3, replace=False)), q[1], now - 60 + k % 50))) for k in range(300)
    ]
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=60) as client:
        content = "\n".join(["head,left,right,winner,time_received", *rows]).encode()
        files = {"bundle": ("a.csv", content), "config": ("a.yaml", LINE.encode())}
        assert client.post("/api/experiments/import", files=files, data={"name": "imported"}).is_success
    address = f"{laboratory.program.address}/e/imported/"
    open_overview(page, laboratory, address)
    expect(page.locator("[data-tile=answers] .value")).to_have_text("300")
    assert tile(page, "expected finish") == "reached"
    assert "per minute" not in page.locator("#tiles").inner_text()
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state")).to_have_text("open")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("[data-tile=answers] .value")).to_have_text("300")
    wait_until_learned(laboratory, address, 300)
    page.reload()
    expect(page.locator("[data-tile='held-out accuracy'] .value")).to_be_visible()
    assert (tile(page, "expected finish"), "per minute" in tile(page, "expected finish", ".quiet")) == (
        "reached",
        False,
    )
    # These people always chose the left foot: no map predicts that.
    expect(page.locator("[data-tile='held-out accuracy'] .value")).to_contain_text(re.compile(r"^(4|5)\d\.\d %$"))
    assert_no_impossible_number(page)


@pytest.mark.parametrize(
    ("platform", "wanted"),
    [
        ("prolific", "?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}"),
        ("sona", "?survey_code=%SURVEY_CODE%"),
        ("connect", ""),
        ("mturk", ""),
        ("link", ""),
    ],
)
def test_what_copy_copies_is_the_link_that_the_platform_needs(
    laboratory: Laboratory, page: Page, platform: str, wanted: str
) -> None:
    more = (
        "sona: {school: x, experiment_id: 1, credit_token: 0123456789abcdef0123456789abcdef}, "
        if platform == "sona"
        else ""
    )
    address = laboratory.launch(
        platform, f"{PLAIN}recruitment: {{{more}platform: {platform}, completion_code: C0DE-7}}\n"
    )
    open_overview(page, laboratory, address)
    for place in ("#verdict-action", ".address"):
        page.locator(place).get_by_role("button", name="Copy link").click()
        expect(page.locator(f"{place} button")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == address + wanted
        page.evaluate("navigator.clipboard.writeText('')")
    # What the platform makes of that link lets a participant in.
    ids = {"PROLIFIC_PID": "5f00a", "STUDY_ID": "s1", "SESSION_ID": "x1", "SURVEY_CODE": "12345"}
    filled = re.sub(r"(?:{{)?%(\w+)%(?:}})?", lambda found: ids[found[1]], copied)
    own = {"connect": "?participantId=c1", "mturk": "?workerId=W1&assignmentId=A1&hitId=H1", "link": ""}.get(
        platform, ""
    )
    reply = httpx.get(filled + own, headers={"Accept": "text/html"})
    assert reply.status_code == 200, reply.text


def test_a_history_that_could_not_be_read_is_read_again(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("reread", LINE)
    answer(address, "once", 30)
    asked: list[str] = []

    def fail_once(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, json={"error": {"code": "store", "message": "The store does not respond."}})
        else:
            route.continue_()

    page.route("**/history?*", fail_once)
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/reread/")
    poll(lambda: page.wait_for_timeout(200) or len(asked) > 1, "the history to be read again", seconds=60)
