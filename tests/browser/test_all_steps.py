"""All steps of an experiment, from the welcome to the completion code: by keyboard, by
touch, and from right to left.
"""

import gzip
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, Response, expect

from frontend.languages import catalogue
from tests.browser.participant import (
    EVERYTHING,
    PHONE,
    Laboratory,
    Participant,
    assert_accessible,
    box_of,
    chosen,
    plain,
    take_picture,
)

pytestmark = pytest.mark.browser

TakeLook = Callable[[str], None]


def make_look(page: Page, name: str) -> TakeLook:
    """Return a function that checks a step with axe-core and takes a screenshot of it."""

    def look(step: str) -> None:
        assert_accessible(page)
        take_picture(page, f"{name}-{step}.png")

    return look


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the button with this name has the focus, then press Enter."""
    for _ in range(12):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count() and focused.inner_text().strip() == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not lead to {name}")


def test_all_steps_can_be_completed_by_keyboard_alone(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("keyboard", EVERYTHING)
    look = make_look(page, "desktop")
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
        page.keyboard.press("Enter")  # the Continue button has the focus
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
    assert {(row["input"], row["puid"]) for row in rows} == {("key", "ada")}


def test_all_steps_can_be_completed_by_touch_on_a_small_phone_and_trials_need_no_scrolling(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    address = laboratory.launch("touch", EVERYTHING)
    page = new_page(**PHONE)
    look = make_look(page, "phone")
    visitor = Participant(page)
    page.goto(f"{address}?puid=thumb")
    look("1-welcome")
    visitor.button("Begin").tap()
    look("2-consent")
    visitor.button("I agree").tap()
    look("3-instructions")
    visitor.button("Continue").tap()
    visitor.button("Continue").tap()
    visitor.button("Continue").tap()
    for number in range(2):
        visitor.ready()
        visitor.choose("left", "touch")
        visitor.button("Continue").wait_for()
        if number == 0:
            look("4-practice")
        visitor.button("Continue").tap()
    visitor.heading("Practice")
    visitor.button("Continue").tap()
    look("5-comprehension")
    page.get_by_text("the more similar word").tap()
    visitor.button("Send").tap()
    for number in range(4):
        visitor.ready()
        if number == 1:
            look("6-trial")
            assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
            left, right, head = (box_of(page.locator(f"#q-{place}")) for place in ("left", "right", "head"))
            assert (left["width"], left["height"], left["y"]) == (right["width"], right["height"], right["y"])
            middle = head["x"] + head["width"] / 2
            assert middle - left["x"] == pytest.approx(right["x"] + right["width"] - middle, abs=1)
            assert head["y"] + head["height"] <= left["y"]
        visitor.answer(side="right", by="touch")
    page.get_by_text("a phone").tap()
    look("7-questions")
    visitor.button("Send").tap()
    assert visitor.code() == "C0DE-7"
    look("8-debriefing")
    rows = laboratory.rows(address)
    assert chosen(rows) == visitor.given
    assert {(row["input"], row["viewport_w"], row["viewport_h"]) for row in rows} == {("touch", "360", "640")}


def test_in_arabic_the_page_runs_from_right_to_left_and_the_left_foot_stays_left(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    say = catalogue("ar")
    address = laboratory.launch("arabic", EVERYTHING)
    look = make_look(page, "arabic")
    page.goto(f"{address}?puid=layla&lang=ar")
    html = page.locator("html")
    expect(html).to_have_attribute("dir", "rtl")
    expect(html).to_have_attribute("lang", "ar")
    look("1-welcome")
    participant.button(say["begin"]).click()
    participant.heading(say["consent"])
    look("2-consent")
    participant.button(say["agree"]).click()
    for _ in range(3):
        participant.button(say["continue"]).click()
    for _ in range(2):
        participant.ready()
        page.keyboard.press("ArrowLeft")
        participant.button(say["continue"]).click()
    participant.heading(say["practice"])
    participant.button(say["continue"]).click()
    participant.heading(say["check"])
    look("5-comprehension")
    page.get_by_text("the more similar word").click()
    participant.button(say["send"]).click()
    for number in range(4):
        participant.ready()
        if number == 0:
            left, right = (box_of(page.locator(f"#q-{side}")) for side in ("left", "right"))
            assert left["x"] < right["x"]
            look("6-trial")
        participant.answer(side="left")
    page.get_by_text("a phone").click()
    participant.button(say["send"]).click()
    assert participant.code() == "C0DE-7"
    look("8-debriefing")
    rows = laboratory.rows(address)
    assert chosen(rows) == participant.given
    assert all(row["winner"] == row["left"] for row in rows)


def test_participants_who_do_not_agree_are_told_how_to_leave(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("declined", EVERYTHING)
    participant.open(f"{address}?puid=no")
    participant.button("I do not agree").click()
    expect(page.get_by_text("You have chosen not to take part")).to_be_visible()
    expect(page.get_by_role("link", name="Leave the study")).to_have_attribute("href", "https://example.org/declined")
    make_look(page, "desktop")("9-declined")
    page.reload()
    expect(page.get_by_text("You have chosen not to take part")).to_be_visible()
    assert page.locator("#code").count() == 0


def test_two_failed_comprehension_checks_end_the_study_and_a_reload_gives_no_third_attempt(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch(
        "screened", EVERYTHING.replace("practice: {queries: [[0, 1, 4, 1], [4, 5, 2, 5]]}\n", "")
    )
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


def test_a_minimal_file_gets_a_complete_page_in_its_language(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    page.goto(laboratory.launch("minimal", "targets: [rot, grün, blau]\npage: {language: de, strings: {begin: Los}}\n"))
    expect(page.get_by_role("heading", name="Willkommen")).to_be_visible()
    expect(page.get_by_text("50 Fragen")).to_be_visible()
    participant.button("Los").click()
    expect(page.locator("#instructions")).to_contain_text("Bitte wählen Sie")
    assert_accessible(page)


def test_pasting_and_copying_is_noted_in_questions_that_ask_for_a_text_and_never_what(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    questions = "questions: [{name: age, text: How old are you?, type: number}, {name: remarks, text: Remarks?}]\n"
    address = laboratory.launch("pasted", plain(1, questions))
    sent: list[dict[str, str]] = []
    page.on("request", lambda request: request.url.endswith("/events") and sent.extend(request.post_data_json))
    participant.open(f"{address}?puid=copycat")
    participant.answer()
    participant.heading("A few last questions")
    page.get_by_label("Remarks?").fill("written elsewhere")
    for label in ("How old are you?", "Remarks?"):  # a number is not noted
        field = page.get_by_label(label)
        field.press("Control+a")
        field.press("Control+c")
        field.press("Control+v")
    expect(page.get_by_label("Remarks?")).to_have_value("written elsewhere")
    with page.expect_request(lambda request: request.url.endswith("/events")):
        page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    noted = [(event["event"], event["detail"]) for event in sent if event["event"] in {"copy", "paste"}]
    assert noted == [("copy", ""), ("paste", "")]
    assert "elsewhere" not in str(sent)


def test_scripts_and_styles_are_small_and_all_come_from_this_server(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("weight", EVERYTHING)
    weights = {"script": 0, "stylesheet": 0}
    origins: set[str] = set()

    def weigh(response: Response) -> None:
        request = response.request
        origins.add("/".join(request.url.split("/")[:3]))
        if request.resource_type in weights:
            weights[request.resource_type] += len(gzip.compress(httpx.get(request.url).content, 9))

    page.on("response", weigh)
    page.goto(f"{address}?puid=scales", wait_until="networkidle")
    assert 5_000 < weights["script"] <= 30_000
    assert 500 < weights["stylesheet"] <= 8_000
    assert {origin for origin in origins if not origin.startswith("data:")} == {laboratory.program.address}
