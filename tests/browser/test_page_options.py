"""Options of the participant page: scales, several choices, a time limit, enlarging, groups, try-outs, coming back."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.archives import picture, write_zip
from tests.browser.participant import (
    MEDIA,
    PHONE,
    Laboratory,
    Participant,
    assert_accessible,
    box_of,
    plain,
    slug_of,
)
from tests.bundles import rows_of

pytestmark = pytest.mark.browser

QUESTIONS = """
questions:
  - {name: hard, text: How hard was it?, type: likert, points: 7, options: [very easy, very hard], required: true}
  - {name: mood, text: How do you feel?, type: likert, points: 3, options: [bad, so-so, good]}
  - {name: used, text: What did you look at?, type: multiple, options: [shape, colour, size], required: true}
"""


def replies_of(laboratory: Laboratory, address: str) -> dict[str, dict[str, str]]:
    """The replies of everybody, by platform id, as the experimenter downloads them."""
    slug = slug_of(address)
    ids = rows_of(laboratory.program.export(slug, "platform_ids.csv", laboratory.login))
    puids = {row["participant"]: row["puid"] for row in ids}
    rows = rows_of(laboratory.program.export(slug, "participants.csv", laboratory.login))
    return {
        puids[row["participant"]]: {
            name.removeprefix("question_"): value for name, value in row.items() if name.startswith("question_")
        }
        for row in rows
    }


def test_scales_and_several_choices_are_answered_by_keyboard_mouse_and_touch(
    laboratory: Laboratory, page: Page, new_page: Callable[..., Page]
) -> None:
    address = laboratory.launch("scales", plain(1, QUESTIONS))
    keys = Participant(page).open(f"{address}?puid=keys")
    keys.answer()
    keys.heading("A few last questions")
    assert_accessible(page)
    keys.button("Send").press("Enter")
    expect(page.locator(".error").filter(has_text="answer")).to_have_count(2)  # the two that are required
    scale = page.get_by_role("radiogroup", name="How hard was it?")
    expect(scale.get_by_role("radio").first).to_be_focused()
    page.keyboard.press("Space")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("checkbox", name="shape")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert keys.code() == "C0DE-7"

    mouse = Participant(new_page()).open(f"{address}?puid=mouse")
    mouse.answer(by="mouse")
    mouse.page.get_by_role("radio", name="1: very easy").click()
    mouse.page.get_by_text("so-so").click()
    mouse.page.get_by_text("colour").click()
    mouse.button("Send").click()
    assert mouse.code() == "C0DE-7"

    phone = Participant(new_page(**{**PHONE, "viewport": {"width": 320, "height": 568}}))
    phone.page.goto(f"{address}?puid=thumb")
    phone.button("Begin").tap()
    phone.answer(by="touch")
    phone.heading("A few last questions")
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 320
    assert min(box_of(label)["height"] for label in phone.page.locator(".likert label").all()) >= 44
    phone.page.get_by_role("radio", name="4", exact=True).tap()
    phone.page.get_by_text("shape").tap()
    phone.button("Send").tap()
    assert phone.code() == "C0DE-7"

    assert replies_of(laboratory, address) == {
        "keys": {"hard": "6", "mood": "", "used": "shape; size"},
        "mouse": {"hard": "1", "mood": "2", "used": "colour"},
        "thumb": {"hard": "4", "mood": "", "used": "shape"},
    }


def test_a_trial_ends_when_its_time_is_up_also_in_practice(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    practice = "practice: {queries: [[0, 1, 2, 1]], feedback: false}\n"
    spec = plain(2, practice).replace("page: {", "page: {max_trial_ms: 4000, ")
    address = laboratory.launch("hurry", spec)
    participant.open(f"{address}?puid=slow")
    participant.button("Continue").click()
    for _ in range(2):  # the first practice query, until it is answered, and the first trial
        expect(page.get_by_text("The time for this question was up.")).to_be_visible()
        participant.button("Continue").click()
        participant.ready()
        page.keyboard.press("ArrowLeft")
        if page.locator("#num-queries").inner_text() != "1 / 2":
            participant.button("Continue").click()
    expect(page.locator("#num-queries")).to_have_text("1 / 2")
    participant.answer()
    assert participant.code() == "C0DE-7"
    assert len(laboratory.rows(address)) == 2
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    page.wait_for_function("fetch('events').then(() => true)")
    skips = [event for event in laboratory.lines(address, "events.jsonl") if event["event"] == "skip"]
    assert {event["detail"] for event in skips} == {"time"}


def test_a_picture_is_enlarged_while_it_is_pressed_and_by_the_keyboard(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    archive = write_zip(tmp_path / "t.zip", [(f"{k}.png", picture(60 * k, size=(80, 60))) for k in range(4)])
    spec = MEDIA.replace("COUNT", "2").replace("page: {", "page: {enlarge: true, stimulus_size: 120px, ")
    address = laboratory.launch("enlarge", spec, archive)
    participant.open(f"{address}?puid=eyes").ready()
    assert_accessible(page)
    large, button = page.locator("#enlarged"), page.get_by_role("button", name="Enlarge: Left")
    small = box_of(page.locator("#q-left img"))
    source = page.locator("#q-left img").get_attribute("src")
    place = box_of(button)
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    expect(large).to_be_visible()
    assert source is not None
    assert large.locator("img").evaluate("(image) => image.src").endswith(source.rpartition("/")[2])
    assert box_of(large.locator("img"))["width"] > 3 * small["width"]
    page.mouse.up()
    expect(large).to_be_hidden()
    expect(page.locator("#num-queries")).to_have_text("0 / 2")
    button.focus()
    page.keyboard.press("Enter")
    expect(large).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    expect(large).to_be_hidden()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(large).to_be_hidden()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")  # an answer ends the enlargement, too
    expect(page.locator("#num-queries")).to_have_text("1 / 2")
    expect(large).to_be_hidden()
    participant.answer()
    expect(page.locator("#debrief")).to_be_visible()


def test_each_group_reads_its_own_question_and_sees_its_own_targets(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    groups = (
        "groups:\n"
        "  warm: {question: Which is WARMER?, samplers: [Warm], targets: [red, orange, yellow]}\n"
        "  cold: {question: Which is COLDER?, samplers: [Cold], instructions: [{text: Think of ice.}]}\n"
    )
    spec = plain(2, groups).replace("{Random: {}}", "{Warm: {class: Random}, Cold: {class: Random}}")
    address = laboratory.launch("grouped", spec)
    seen: dict[str, list[str]] = {}
    for name in ("a", "b", "c", "d"):
        someone = Participant(new_page())
        someone.page.goto(f"{address}?puid={name}")
        someone.button("Begin").click()
        ice = someone.page.get_by_text("Think of ice.")
        expect(ice.or_(someone.page.locator("#trial:not([hidden])"))).to_be_visible()
        told = ice.is_visible()
        if told:
            someone.button("Continue").click()
        someone.ready()
        question = someone.page.locator("#trial #instructions").inner_text()
        assert question == ("Which is COLDER?" if told else "Which is WARMER?")
        seen.setdefault(question, []).append(name)
        someone.answer(2)
        assert someone.code() == "C0DE-7"
        if not told:
            assert {word for pair in someone.given for word in pair} <= {"red", "orange", "yellow"}
    assert sorted(len(names) for names in seen.values()) == [2, 2]
    slug = slug_of(address)
    puids = {
        row["participant"]: row["puid"]
        for row in rows_of(laboratory.program.export(slug, "platform_ids.csv", laboratory.login))
    }
    rows = rows_of(laboratory.program.export(slug, "participants.csv", laboratory.login))
    named = {"Which is WARMER?": "warm", "Which is COLDER?": "cold"}
    assert {puids[row["participant"]]: row["group"] for row in rows} == {
        name: named[question] for question, names in seen.items() for name in names
    }


def test_a_tryout_says_so_and_can_be_skipped_to_the_end(laboratory: Laboratory, page: Page) -> None:
    questions = "questions: [{name: age, text: How old are you?, type: number}]\n"
    address = laboratory.launch("tried", plain(30, questions))
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/tried/settings")
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Try it out").click()
    tried = Participant(popup.value)
    banner = tried.page.locator("#tryout")
    expect(banner).to_contain_text("Try-out: nothing is recorded.")
    assert_accessible(tried.page)
    tried.button("Begin").click()
    tried.answer(2)
    tried.button("Skip to the end").click()
    tried.heading("A few last questions")
    expect(banner).to_contain_text("nothing is recorded")
    expect(tried.button("Skip to the end")).to_have_count(0)
    tried.page.get_by_label("How old are you?").fill("40")
    tried.button("Send").click()
    assert tried.code() == "C0DE-7"
    assert laboratory.rows(address) == []
    assert laboratory.participants(address) == 0
    real = httpx.post(f"{address}arrive", json={"parameters": {"puid": "real"}}).json()
    assert real["tryout"] is False


@pytest.mark.parametrize("state", ["closed", "paused"])
def test_who_has_finished_gets_the_same_code_again_whatever_became_of_the_experiment(
    laboratory: Laboratory, participant: Participant, page: Page, new_page: Callable[..., Page], state: str
) -> None:
    address = laboratory.launch(f"finished-{state}", plain(2)) + "?puid=done"
    participant.open(address).answer(2)
    assert participant.code() == "C0DE-7"
    url = f"{laboratory.program.address}/api/experiments/finished-{state}/state"
    httpx.put(url, json={"state": state}, auth=laboratory.login).raise_for_status()
    for returning in (page, new_page()):  # the same browser, and another one
        returning.goto(address)
        expect(returning.locator("#code code")).to_have_text("C0DE-7")
        expect(returning.get_by_text("Thank you for taking part!")).to_be_visible()
        expect(returning.get_by_text("This study has ended.")).to_have_count(0)
    stranger = new_page()
    stranger.goto(address.replace("done", "late"))
    expect(stranger.get_by_text("Answers you have already given are saved.")).to_be_visible()
    assert "C0DE-7" not in stranger.content()
    assert len(laboratory.rows(address)) == 2
