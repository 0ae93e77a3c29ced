"""The whole way through an experiment, from the welcome to the code: by keyboard, by touch, and from right to left."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Response, expect

from frontend.languages import catalogue
from tests.browser.participant import EVERYTHING, Laboratory, Participant, assert_accessible, chosen

pytestmark = pytest.mark.browser

Look = Callable[[str], None]


def looker(page: Page, pictures: Path, name: str) -> Look:
    """Looks at each step: nothing that axe objects to, and a picture of it."""

    def look(step: str) -> None:
        assert_accessible(page)
        page.screenshot(path=pictures / f"{name}-{step}.png")

    return look


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the button of this name has the focus, and Enter on it."""
    for _ in range(12):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count() and focused.inner_text().strip() == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not lead to {name}")


def test_the_whole_walk_by_keyboard_alone(
    laboratory: Laboratory, participant: Participant, page: Page, pictures: Path
) -> None:
    address = laboratory.launch("keyboard", EVERYTHING)
    look = looker(page, pictures, "desktop")
    page.goto(f"{address}?puid=ada")
    participant.heading("Welcome")
    look("1-welcome")
    tab_to(page, "Begin")
    participant.heading("Before you begin")
    look("2-consent")
    tab_to(page, "I agree")
    participant.heading("Instructions")
    look("3-instructions")
    tab_to(page, "Continue")
    expect(page.get_by_text("2 of 2")).to_be_visible()
    tab_to(page, "Continue")
    participant.heading("Practice")
    tab_to(page, "Continue")
    for number, sentence in enumerate(("Yes, that is the one we mean.", "Here we mean the other one")):
        participant.ready()
        page.keyboard.press("ArrowRight" if number else "ArrowLeft")
        expect(page.get_by_text(sentence)).to_be_visible()
        look(f"4-practice-{number + 1}")
        page.keyboard.press("Enter")  # the button that goes on has the focus
    participant.heading("Practice")
    tab_to(page, "Continue")
    participant.heading("Is everything clear?")
    look("5-comprehension")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    tab_to(page, "Send")
    for number in range(4):
        participant.ready()
        if number == 1:
            look("6-trial")
        participant.answer(side="left" if number % 2 else "right")
    participant.heading("A few last questions")
    look("7-questions")
    tab_to(page, "Send")
    expect(page.get_by_text("Please answer this question.")).to_be_visible()
    expect(page.get_by_role("radio").first).to_be_focused()
    look("7-questions-marked")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("31")
    tab_to(page, "Send")
    assert participant.code() == "C0DE-7"
    look("8-debriefing")
    rows = laboratory.rows(address)
    assert chosen(rows) == participant.given
    assert {row["input"] for row in rows} == {"key"}
    assert {row["puid"] for row in rows} == {"ada"}


def test_the_whole_walk_by_touch_on_a_small_phone_without_scrolling_a_trial(
    laboratory: Laboratory, browser: Browser, pictures: Path
) -> None:
    address = laboratory.launch("touch", EVERYTHING)
    context = browser.new_context(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    page = context.new_page()
    look = looker(page, pictures, "phone")
    walker = Participant(page)
    page.goto(f"{address}?puid=thumb")
    look("1-welcome")
    walker.button("Begin").tap()
    look("2-consent")
    walker.button("I agree").tap()
    look("3-instructions")
    walker.button("Continue").tap()
    walker.button("Continue").tap()
    walker.button("Continue").tap()
    for number in range(2):
        walker.ready()
        walker.choose("left", "touch")
        walker.button("Continue").wait_for()
        if number == 0:
            look("4-practice")
        walker.button("Continue").tap()
    walker.heading("Practice")
    walker.button("Continue").tap()
    look("5-comprehension")
    page.get_by_text("the more similar word").tap()
    walker.button("Send").tap()
    for number in range(4):
        walker.ready()
        if number == 1:
            look("6-trial")
            assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
            left, right = (page.locator(f"#q-{side}").bounding_box() for side in ("left", "right"))
            head = page.locator("#q-head").bounding_box()
            assert left is not None
            assert right is not None
            assert head is not None
            assert (left["width"], left["height"], left["y"]) == (right["width"], right["height"], right["y"])
            middle = head["x"] + head["width"] / 2
            assert middle - left["x"] == pytest.approx(right["x"] + right["width"] - middle, abs=1)
            assert head["y"] + head["height"] <= left["y"]
        walker.answer(side="right", by="touch")
    page.get_by_text("a phone").tap()
    look("7-questions")
    walker.button("Send").tap()
    assert walker.code() == "C0DE-7"
    look("8-debriefing")
    rows = laboratory.rows(address)
    assert chosen(rows) == walker.given
    assert {row["input"] for row in rows} == {"touch"}
    assert {(row["viewport_w"], row["viewport_h"]) for row in rows} == {("360", "640")}
    context.close()


def test_the_whole_walk_in_arabic_runs_from_right_to_left_and_left_stays_left(
    laboratory: Laboratory, page: Page, pictures: Path
) -> None:
    say = catalogue("ar")
    address = laboratory.launch("arabic", EVERYTHING)
    look = looker(page, pictures, "arabic")
    walker = Participant(page)
    page.goto(f"{address}?puid=layla&lang=ar")
    html = page.locator("html")
    expect(html).to_have_attribute("dir", "rtl")
    expect(html).to_have_attribute("lang", "ar")
    look("1-welcome")
    walker.button(say["begin"]).click()
    walker.heading(say["consent"])
    look("2-consent")
    walker.button(say["agree"]).click()
    for _ in range(3):
        walker.button(say["continue"]).click()
    for _ in range(2):
        walker.ready()
        page.keyboard.press("ArrowLeft")
        walker.button(say["continue"]).click()
    walker.heading(say["practice"])
    walker.button(say["continue"]).click()
    walker.heading(say["check"])
    look("5-comprehension")
    page.get_by_text("the more similar word").click()
    walker.button(say["send"]).click()
    for number in range(4):
        walker.ready()
        if number == 0:
            left, right = (page.locator(f"#q-{side}").bounding_box() for side in ("left", "right"))
            assert left is not None
            assert right is not None
            assert left["x"] < right["x"]
            look("6-trial")
        walker.answer(side="left")
    page.get_by_text("a phone").click()
    walker.button(say["send"]).click()
    assert walker.code() == "C0DE-7"
    look("8-debriefing")
    rows = laboratory.rows(address)
    assert chosen(rows) == walker.given
    assert all(row["winner"] == row["left"] for row in rows)


def test_who_does_not_agree_is_told_how_to_leave_and_asked_nothing_more(
    laboratory: Laboratory, participant: Participant, page: Page, pictures: Path
) -> None:
    address = laboratory.launch("declined", EVERYTHING)
    participant.open(f"{address}?puid=no")
    participant.button("I do not agree").click()
    expect(page.get_by_text("You have chosen not to take part")).to_be_visible()
    expect(page.get_by_role("link", name="Leave the study")).to_have_attribute("href", "https://example.org/declined")
    looker(page, pictures, "desktop")("9-declined")
    page.reload()
    expect(page.get_by_text("You have chosen not to take part")).to_be_visible()
    assert page.locator("#code").count() == 0


def test_two_wrong_attempts_at_the_comprehension_end_the_study_and_a_reload_gives_no_third(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = EVERYTHING.replace("practice: {queries: [[0, 1, 4, 1], [4, 5, 2, 5]]}\n", "")
    address = laboratory.launch("screened", spec)
    participant.open(f"{address}?puid=hasty")
    participant.button("I agree").click()
    participant.button("Continue").click()
    participant.button("Continue").click()
    page.get_by_text("the nicer word").click()
    participant.button("Send").click()
    expect(page.get_by_text("Attempts left: 1.")).to_be_visible()
    page.reload()
    page.get_by_text("the nicer word").click()
    participant.button("Send").click()
    expect(page.get_by_text("so the study ends here")).to_be_visible()
    page.reload()
    expect(page.get_by_text("so the study ends here")).to_be_visible()
    assert laboratory.rows(address) == []


def test_a_minimal_file_gets_a_decent_page_in_the_language_it_names(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("minimal", "targets: [rot, grün, blau]\npage: {language: de, strings: {begin: Los}}\n")
    page.goto(address)
    expect(page.get_by_role("heading", name="Willkommen")).to_be_visible()
    expect(page.get_by_text("50 Fragen")).to_be_visible()
    participant.button("Los").click()
    expect(page.locator("#instructions")).to_contain_text("Bitte wählen Sie")
    assert_accessible(page)


def test_the_page_weighs_little_and_asks_nobody_else(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("weight", EVERYTHING)
    weights = {"script": 0, "stylesheet": 0}
    origins: set[str] = set()

    def weigh(response: Response) -> None:
        request = response.request
        origins.add("/".join(request.url.split("/")[:3]))
        if request.resource_type in weights:
            content = httpx.get(request.url).content
            weights[request.resource_type] += len(gzip.compress(content, 9))

    page.on("response", weigh)
    page.goto(f"{address}?puid=scales", wait_until="networkidle")
    assert 5_000 < weights["script"] <= 30_000
    assert 500 < weights["stylesheet"] <= 8_000
    assert {origin for origin in origins if not origin.startswith("data:")} == {laboratory.program.address}
