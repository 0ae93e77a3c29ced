"""The console: from the first account to an experiment that is exported and imported on another machine."""

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import LOCK_OUT_MS, READY, assert_accessible, download, take_picture
from tests.program import Program, poll

pytestmark = pytest.mark.browser

WRONG = """\
title: Shapes
html:
  instructions: Which of the two lower shapes is more like the upper one?
  max_querys: 20
samplers:
  Adaptiv: {d: 2}
page:
  min_rt_ms: soon
  blank_ms: 20
"""
PASSWORD = "a long password"
PEOPLE = 4


@pytest.fixture(scope="module")
def two_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Program]]:
    """Two servers: one runs the experiment, the other imports it."""
    with Program(tmp_path_factory.mktemp("first")) as first, Program(tmp_path_factory.mktemp("second")) as second:
        yield first, second


def log_in_for_the_first_time(page: Page, program: Program) -> None:
    page.goto(f"{program.address}/console/welcome?invitation={program.invitation}")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()


def log_in(page: Page, program: Program) -> None:
    page.goto(f"{program.address}/console/login")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Account")).to_be_visible()


def answer_by_http(address: str, slug: str, name: str, *, careless: bool, count: int = 20) -> None:
    """Answer as a participant who compares indices, or (careless) always chooses the left side."""
    generator = np.random.default_rng(len(name))
    with httpx.Client(base_url=f"{address}/e/{slug}/") as client:
        client.headers["X-Salmon-Session"] = (
            client.post("arrive", json={"parameters": {"puid": name}}).raise_for_status().json()["session"]
        )
        for _ in range(count):
            query = client.get("query").raise_for_status().json()
            left_is_nearer = abs(query["left"] - query["head"]) <= abs(query["right"] - query["head"])
            winner = query["left"] if careless or left_is_nearer else query["right"]
            rt_ms = 120.0 if careless else float(generator.lognormal(6.9, 0.4))
            answer = {"token": query["token"], "winner": winner, "rt_ms": rt_ms, "query_wait_ms": 8.0, "input": "key"}
            client.post("answers", json=answer).raise_for_status()
            if os.environ.get("SALMON_PICTURES"):
                time.sleep(0.1)  # slow enough for refits to show in the figures
        client.post("finish", json={"given": count}).raise_for_status()


def answer_as_crowd(address: str, slug: str, wave: str = "") -> None:
    """Let several careful participants and a careless one answer at the same time."""
    names = [f"careful{number}{wave}" for number in range(PEOPLE)] + ["careless"] * (not wave)
    with ThreadPoolExecutor(len(names)) as people:
        answers = [people.submit(answer_by_http, address, slug, name, careless=name == "careless") for name in names]
    for answered in answers:
        answered.result()


def test_an_experiment_is_created_run_judged_exported_and_imported_on_another_server(
    two_programs: tuple[Program, Program], page: Page, examples: Path, tmp_path: Path
) -> None:
    first, second = two_programs
    log_in_for_the_first_time(page, first)

    # A file with three mistakes: the editor shows each at its line.
    page.get_by_role("link", name="Create an experiment").click()
    wrong = tmp_path / "shapes.yaml"
    wrong.write_text(WRONG)
    page.locator("#files").set_input_files([wrong, examples / "shapes" / "targets.zip"])
    problems = page.locator("#problems li")
    expect(problems).to_have_count(3)
    expect(problems.get_by_role("button", name="Line")).to_have_text(["Line 4", "Line 6", "Line 8"])
    expect(problems.nth(0)).to_contain_text("max_queries")
    expect(page.locator(".cm-lintRange")).to_have_text(["max_querys", "Adaptiv", "soon"])
    assert_accessible(page)
    problems.nth(1).get_by_role("button", name="Line 6").click()
    expect(page.locator(".cm-activeLine")).to_have_text("  Adaptiv: {d: 2}")
    problems.nth(0).get_by_role("button", name="Write max_queries").click()
    expect(problems).to_have_count(2)
    problems.nth(0).get_by_role("button", name="Write Adaptive").click()
    expect(problems).to_have_count(1)
    problems.nth(0).get_by_role("button", name="Line 8").click()
    page.keyboard.press("Control+Shift+ArrowRight")
    page.keyboard.type("100")
    expect(problems).to_have_count(0)
    expect(page.locator("#summary")).to_contain_text("20 queries")
    page.get_by_label("Name in the link").fill("shapes")
    page.get_by_role("button", name="Save as draft").click()

    # The draft is tried out as a participant, to the end; nothing is recorded.
    expect(page.get_by_role("heading", name="State")).to_be_visible()
    assert httpx.get(f"{first.address}/e/shapes/", headers={"Accept": "text/html"}).status_code == 409
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Try it out").click()
    complete_trials(popup.value)
    popup.value.close()
    login = ("olga", PASSWORD)
    seen = httpx.get(f"{first.address}/api/experiments/shapes/overview", auth=login).json()
    assert seen["answers"]["total"] == seen["participants"]["arrived"] == seen["participants"]["completed"] == 0

    # The experiment is opened and watched while participants answer.
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator("#state")).to_have_text("open")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#verdict")).to_contain_text("Send participants the link above")
    page.evaluate("window.neverReloaded = true")
    answer_as_crowd(first.address, "shapes")
    expect(page.locator("[data-tile=answers] .value")).to_have_text(str(20 * (PEOPLE + 1)))
    expect(page.locator("[data-tile=participants] .value")).to_have_text(str(PEOPLE + 1))
    expect(page.locator("[data-figure=answers-over-time] svg")).to_be_visible()
    expect(page.locator("[data-figure=learning] svg")).to_be_visible()
    heat_map = page.locator("[data-figure=answers-per-target] svg text")
    expect(heat_map.filter(has_text=re.compile("^(twice the mean or more|no answers)$"))).to_have_count(2)
    # The files are 1.svg to 12.svg, the indices 0 to 11.
    expect(heat_map.filter(has_text=re.compile("^(0|12)$"))).to_have_text(["12"])
    expect(page.locator("#samplers [role=status]")).to_have_text("1 row")
    assert page.evaluate("window.neverReloaded")

    # The careless participant is flagged; another one is excluded manually.
    page.get_by_role("link", name="Participants").click()
    careless = page.get_by_role("row").filter(has_text="careless")
    expect(careless).to_contain_text("? proposed for exclusion")
    expect(careless).to_contain_text("100 % of the answers came within 300 ms")
    page.get_by_label("Select careful1", exact=True).check()
    page.get_by_label("Note, included in every export").fill("told us that the screen was broken")
    page.get_by_role("button", name="Exclude", exact=True).click()
    row = page.get_by_role("row").filter(has_text="careful1")
    expect(row).to_contain_text("✕ excluded")
    expect(row).to_contain_text("told us that the screen was broken")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#comparison")).to_contain_text(
        "without the 1 excluded and 1 proposed for exclusion", timeout=120_000
    )

    # The bundle is downloaded and imported on the other server.
    page.get_by_role("link", name="Export").click()
    bundle = tmp_path / "shapes.zip"
    bundle.write_bytes(download(page, "Download bundle"))
    log_in_for_the_first_time(page, second)
    page.get_by_text("Import an experiment").click()
    page.get_by_label("Bundle, answers or backup").set_input_files(bundle)
    page.get_by_role("button", name="Import").click()
    imported = page.locator("#import").get_by_role("link", name="shapes")
    expect(imported).to_be_in_viewport(timeout=20_000)  # below a long form, unless the page scrolls there
    imported.click()
    expect(page.locator("#state")).to_have_text("paused")
    expect(page.locator("[data-tile=answers] .value")).to_have_text(str(20 * (PEOPLE + 1)))
    here, there = (program.export("shapes", "responses.csv", login) for program in two_programs)
    assert here == there
    assert here.count(b"\r\n") == 1 + 20 * (PEOPLE + 1)


def complete_trials(page: Page) -> None:
    """Complete all trials of the experiment by keyboard."""
    page.get_by_role("button", name="Begin").click()
    for number in range(20):
        expect(page.locator("#num-queries")).to_have_text(f"{number} / 20")
        expect(page.locator(READY)).to_be_visible()
        page.wait_for_timeout(LOCK_OUT_MS)
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#debrief")).to_be_visible()


@pytest.fixture(scope="module")
def busy_program(two_programs: tuple[Program, Program]) -> Program:
    """The first server; when screenshots for the manual are taken, with many more answers."""
    program, _ = two_programs
    for wave in "abcdefghij" if os.environ.get("SALMON_PICTURES") else "":
        answer_as_crowd(program.address, "shapes", wave)
    return program


PAGES = {
    "experiments": "/console/",
    "new": "/console/new",
    "account": "/console/account",
    "people": "/console/people",
    "overview": "/console/experiments/shapes/",
    "map": "/console/experiments/shapes/map",
    "targets": "/console/experiments/shapes/targets",
    "participants": "/console/experiments/shapes/participants",
    "analysis": "/console/experiments/shapes/analysis",
    "exports": "/console/experiments/shapes/exports",
    "settings": "/console/experiments/shapes/settings",
}
SCREENS = {"desktop": (1280, 800), "phone": (360, 640)}
#: An element of each page that appears when its script has finished.
SHOWN = {
    "experiments": "table button",
    "new": "#summary dl",
    "account": "#sessions tbody tr",
    "people": "#accounts tbody tr",
    "overview": "[data-figure=answers-over-time] svg",
    "map": "#map image",
    "targets": "#grid li",
    "participants": "#table tbody tr",
    "analysis": "[data-assumed=pay]",
    "exports": "#files a",
    "settings": "#summary dl",
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_accessible_and_fits_the_screen_in_light_and_dark_on_phone_and_desktop(
    busy_program: Program, page: Page, name: str
) -> None:
    program = busy_program
    log_in(page, program)
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(f"{program.address}{PAGES[name]}")
            expect(page.locator(SHOWN[name]).first).to_be_visible()
            assert_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            take_picture(page, f"console-{name}-{screen}-{scheme}.png", full_page=True)


def test_the_map_can_be_moved_searched_and_saved_by_keyboard(two_programs: tuple[Program, Program], page: Page) -> None:
    program, _ = two_programs
    log_in(page, program)
    page.goto(f"{program.address}/console/experiments/shapes/map")
    mark = page.get_by_role("option", name="4", exact=True)
    expect(mark).to_have_attribute("transform", re.compile("translate"))
    expect(page.locator(".labels text")).to_have_count(12)
    mark.focus()
    expect(page.locator("#point")).to_contain_text("4")
    expect(page.locator("#point li")).to_have_count(5)
    expect(page.locator(".mark.faded")).to_have_count(6)
    mark.blur()
    page.get_by_label("Find").fill("10")
    expect(page.locator(".mark.faded")).to_have_count(11)
    page.get_by_label("Find").fill("")
    page.get_by_label("Uncertainty").select_option("of all targets")
    expect(page.locator(".ellipses ellipse")).to_have_count(12)
    drawing = download(page, "SVG").decode()
    assert drawing.count("data:image/png;base64") == 12
    assert "/media/" not in drawing
    assert download(page, "PNG").startswith(b"\x89PNG")
    assert download(page, "CSV").startswith(b"target,name,dim_0,dim_1\r\n0,1.svg,")


def test_an_invited_experimenter_sees_only_their_own_and_shared_experiments(
    two_programs: tuple[Program, Program], page: Page
) -> None:
    program, _ = two_programs
    with httpx.Client(base_url=program.address, auth=("olga", PASSWORD)) as owner:
        link = owner.post("/api/invitations", json={"name": "ines"}).raise_for_status().json()["link"]
        page.goto(link.replace("localhost", "127.0.0.1"))
        expect(page.get_by_label("Name")).to_have_value("ines")
        page.get_by_label("Password").fill("yet another password")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
        assert page.goto(f"{program.address}/console/experiments/shapes/").status == 404
        owner.put("/api/experiments/shapes/shared", json={"accounts": {"ines": "edit"}}).raise_for_status()
        page.goto(f"{program.address}/console/")
        page.get_by_role("link", name="Shapes", exact=True).click()
        expect(page.locator("#state")).to_have_text("open")
        assert page.goto(link.replace("localhost", "127.0.0.1")).url.endswith("/console/login")


def test_deleting_an_experiment_requires_its_name_and_leaves_a_bundle(
    two_programs: tuple[Program, Program], page: Page
) -> None:
    _, program = two_programs
    log_in(page, program)
    page.goto(f"{program.address}/console/experiments/shapes/settings")
    page.get_by_label("Type shapes to confirm").fill("shape")
    page.get_by_role("button", name="Delete experiment").click()
    expect(page.locator("#delete .outcome")).to_contain_text("type its name: shapes")
    page.get_by_label("Type shapes to confirm").fill("shapes")
    page.get_by_role("button", name="Delete experiment").click()
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    (kept,) = (program.data / "bundles").glob("shapes-*.zip")
    done = program.run("import", str(kept))
    assert done.returncode == 0, done.stderr
    poll(lambda: httpx.get(f"{program.address}/api/experiments", auth=("olga", PASSWORD)).json(), "it to be back")
