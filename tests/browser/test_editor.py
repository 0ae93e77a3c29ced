"""The editor of an experiment's file: marks and fixes, undo, drafts that are kept, two
people in one, the form, the files.
"""

import io
import re
import zipfile
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Dialog, FilePayload, Locator, Page, expect

from tests.archives import picture
from tests.browser.participant import Laboratory, assert_accessible, box_of, take_picture
from tests.program import REPOSITORY, poll

pytestmark = pytest.mark.browser

WRONG = """\
# My file.
targets: [red, green, blue]
html:
  max_querys: 20
seed: soon
"""
COMMENTED = """\
# My study, version 3
title: Colours   # short
targets: [red, green, blue]
html:
  # what people read
  instructions: Which is more alike?   # asked on top
  element_top: <i>hello</i>
  max_queries: 30
page: {language: en, blank_ms: 300}   # left alone
# the end
"""
#: Screens at which pictures of the editor are taken.
SCREENS = {"phone": (360, 640), "desktop": (1280, 800), "wide": (1920, 1080), "uhd": (3840, 2160)}
FULL = (REPOSITORY / "examples" / "full" / "experiment.yaml").read_text()
#: Twenty mistakes.
MISTAKES = """\
targets: [red, green, blue, red]
titel: Colours
html:
  max_querys: 20
  skip_button: perhaps
  arrow_keys: 7
samplers:
  Adaptiv: {d: 2}
  Random: {d: 2}
  Greedy: {d: none}
sampling:
  samplers_per_user: 9
  probs: {Random: 50, Greedy: 20}
page:
  language: klingon
  background: reddish
  keys: [a, a]
  blank_ms: soon
  devices: [desktop, fridge]
  strings: {begn: Start}
consent: {text: Hello, decline_url: nowhere}
practice: {queries: [[0, 1, 9, 1]]}
comprehension: {questions: [{text: What?, options: [a, b], answer: c}]}
questions:
  - {name: two words, text: What?, type: choise}
recruitment: {platform: prolifik, completion_code: TODO}
resume: {policy: never, max_gap: long}
seed: -1
"""


TEXT = """async () => {
  const { EditorView } = await import("/static/vendor/VENDORED");
  return EditorView.findFromDOM(document.querySelector(".cm-editor")).state.doc.toString();
}""".replace("VENDORED", next((REPOSITORY / "frontend/static/vendor").glob("codemirror-*.js")).name)
LABEL = "Experiment file (YAML)"


@pytest.fixture(autouse=True)
def _without_draft(laboratory: Laboratory) -> None:
    """Every test begins without a draft of a new experiment."""
    httpx.delete(f"{laboratory.program.address}/api/draft", auth=laboratory.login).raise_for_status()


def yaml_file(text: str) -> FilePayload:
    return {"name": "experiment.yaml", "mimeType": "application/yaml", "buffer": text.encode()}


def zip_file(**files: bytes) -> FilePayload:
    """A ZIP; `_` in the names stands for the dot in front of the extension."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return {"name": "targets.zip", "mimeType": "application/zip", "buffer": file.getvalue()}


def open_editor(
    page: Page, laboratory: Laboratory, path: str = "/console/new", login: tuple[str, str] | None = None
) -> Locator:
    """Log in, open the editor, and return it when it has checked its text."""
    name, password = login or laboratory.login
    page.goto(f"{laboratory.program.address}/console/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Account")).to_be_visible()
    page.goto(f"{laboratory.program.address}{path}")
    expect(page.locator("#summary > *").first).to_be_visible()
    expect(page.locator("#form fieldset").first).to_be_attached()
    return page.get_by_label(LABEL)


def put_text(page: Page, text: str) -> None:
    page.locator("#files").set_input_files(yaml_file(text))
    poll(lambda: page.evaluate(TEXT) == text, "the text to be there")


def text_of(page: Page) -> str:
    """Return the whole text of the editor, of which the page holds only what is in view."""
    return page.evaluate(TEXT)


def saved(page: Page) -> None:
    expect(page.locator("#saved")).to_have_text("Saved")


def test_a_wrong_key_is_marked_and_mended_by_a_click(page: Page, laboratory: Laboratory) -> None:
    editor = open_editor(page, laboratory)
    put_text(page, WRONG)
    expect(page.locator("#problems li")).to_have_count(2)
    expect(page.get_by_role("tab", name="Check (2)")).to_be_visible()
    marks = page.locator(".cm-lintRange")
    expect(marks).to_have_text(["max_querys", "soon"])
    expect(page.locator(".cm-gutter-lint .cm-lint-marker")).to_have_count(2)
    assert_accessible(page)
    marks.first.hover()
    page.locator(".cm-tooltip").get_by_role("button", name="Write max_queries").click()
    assert text_of(page) == WRONG.replace("max_querys", "max_queries")
    expect(page.locator("#problems li")).to_have_count(1)
    editor.press("Control+z")
    assert text_of(page) == WRONG
    page.locator("#problems").get_by_role("button", name="Write max_queries").click()
    assert text_of(page) == WRONG.replace("max_querys", "max_queries")
    page.get_by_role("button", name="Line 5").click()
    expect(page.locator(".cm-activeLineGutter").first).to_have_text("5")


def test_keys_and_choices_are_offered_and_explained(page: Page, laboratory: Laboratory) -> None:
    editor = open_editor(page, laboratory)
    put_text(page, "targets: [a, b, c]\n")
    editor.press("Control+End")
    page.keyboard.type("recr")
    offered = page.locator(".cm-tooltip-autocomplete li")
    expect(offered.first).to_contain_text("recruitment")
    page.wait_for_timeout(150)  # what is offered may be taken after a moment, so that nobody takes it by accident
    page.keyboard.press("Enter")
    page.keyboard.type("plat")
    expect(offered.first).to_contain_text("platform")
    page.wait_for_timeout(150)
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Space")
    expect(offered).to_contain_text(["link", "prolific", "connect", "sona", "mturk"], use_inner_text=True)
    page.keyboard.type("son")
    page.wait_for_timeout(150)
    page.keyboard.press("Enter")
    assert text_of(page) == "targets: [a, b, c]\nrecruitment:\n  platform: sona"
    page.get_by_text("platform", exact=True).first.hover()
    expect(page.locator(".meaning")).to_contain_text("The platform that sends participants.")
    # Tab is no trap: it leaves the editor.
    editor.focus()
    page.keyboard.press("Tab")
    assert not page.evaluate("document.querySelector('.cm-editor').contains(document.activeElement)")


def test_begin_with_is_one_step_that_undo_takes_back(page: Page, laboratory: Laboratory) -> None:
    editor = open_editor(page, laboratory)
    editor.press("Control+End")
    page.keyboard.type("seed: 41")
    before = text_of(page)
    page.get_by_label("Start from").select_option("full")
    # Its first line tells editors of YAML where the schema is.
    example = f"# yaml-language-server: $schema={laboratory.program.address}/schema.json\n{FULL}"
    poll(lambda: text_of(page) == example, "the example")
    height = page.locator("#editor").bounding_box()
    editor.press("Control+z")
    assert text_of(page) == before
    assert page.locator("#editor").bounding_box() == height
    editor.press("Control+y")
    assert text_of(page) == example


def test_what_was_typed_and_dropped_is_there_after_a_reload(page: Page, laboratory: Laboratory) -> None:
    editor = open_editor(page, laboratory)
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", answer)
    page.locator("#files").set_input_files(
        [yaml_file("samplers: {Random: {}}\n"), zip_file(**{f"{k}_png": picture(k) for k in range(4)})]
    )
    expect(page.get_by_role("tab", name="Files (4)")).to_be_visible()
    editor.press("Control+End")
    page.keyboard.type("seed: 5")
    saved(page)
    page.reload()
    expect(page.get_by_role("tab", name="Files (4)")).to_be_visible()
    assert text_of(page) == "samplers: {Random: {}}\nseed: 5"
    assert asked == []  # everything was saved
    editor.press("Control+End")
    page.keyboard.type("9")
    page.reload()
    assert asked == ["beforeunload"]
    expect(page.locator("#summary > *").first).to_be_visible()
    page.get_by_text("Earlier versions").click()
    expect(page.locator("#version-list li")).not_to_have_count(0)
    page.get_by_role("button", name="Discard this draft").click()
    expect(page.locator("#form fieldset").first).to_be_attached()
    poll(lambda: "Colour words" in text_of(page), "the text of a new file")
    page.reload()
    expect(page.get_by_role("tab", name="Files", exact=True)).to_be_visible()


def test_a_draft_becomes_an_experiment_and_nothing_is_asked(page: Page, laboratory: Laboratory) -> None:
    open_editor(page, laboratory)
    page.on("dialog", lambda dialog: dialog.dismiss())
    files = {f"{k}_png": picture(k) for k in range(4)} | {"how_png": picture(9)}
    page.locator("#files").set_input_files(
        [yaml_file("samplers: {Random: {}}\ninstructions: [{text: Look., image: how.png}]\n"), zip_file(**files)]
    )
    expect(page.locator("#summary")).to_contain_text("4; for texts: how.png")
    page.get_by_label("Name in the link").fill("from-editor")
    page.get_by_role("button", name="Open now").click()
    expect(page.locator("#state")).to_have_text("open")
    arrived = httpx.post(f"{laboratory.program.address}/e/from-editor/arrive", json={}).json()
    assert len(arrived["targets"]) == 4
    page.goto(f"{laboratory.program.address}/console/new")
    poll(lambda: "Colour words" in text_of(page), "an empty draft")


def test_two_people_in_one_draft_are_told_and_neither_overwrites_the_other(
    new_page: Callable[..., Page], laboratory: Laboratory
) -> None:
    laboratory.launch("together", "targets: [a, b, c]\ntitle: One\n")
    ines = laboratory.program.add_user("ines", "another password")
    address = f"{laboratory.program.address}/api/experiments/together/shared"
    httpx.put(address, json={"accounts": {"ines": "edit"}}, auth=laboratory.login).raise_for_status()
    first, second = (new_page(viewport={"width": 1280, "height": 800}) for _ in range(2))
    path = "/console/experiments/together/settings"
    one = open_editor(first, laboratory, path)
    two = open_editor(second, laboratory, path, ines)
    expect(second.locator("#others")).to_have_text("ada has this file open, too.")
    expect(first.locator("#others")).to_have_text("ines has this file open, too.", timeout=20_000)

    one.press("Control+End")
    first.keyboard.type("seed: 1")
    saved(first)
    two.press("Control+End")
    second.keyboard.type("seed: 2")
    conflict = second.locator("#conflict")
    expect(conflict).to_contain_text("ada saved another version")
    expect(conflict.locator("pre")).to_have_text([re.compile("seed: 2"), re.compile("seed: 1")])
    assert_accessible(second)
    second.get_by_role("button", name="Take theirs").click()
    expect(conflict).to_be_hidden()
    assert text_of(second).endswith("seed: 1")
    two.press("Control+z")
    assert text_of(second).endswith("seed: 2")
    saved(second)  # on top of the other version, which it had seen
    first.get_by_role("button", name="Show it").click(timeout=20_000)
    poll(lambda: text_of(first).endswith("seed: 2"), "the newer version")
    second.get_by_text("Earlier versions").click()
    expect(second.locator("#version-list li")).to_have_count(2)

    # Who saves the revision takes the draft with them; the other window says so.
    second.get_by_role("button", name="Save as a new revision").click()
    expect(second.locator("#revision-sentence")).to_contain_text("Revision 2 is now in use")
    expect(first.locator("#newer")).to_contain_text("Reload the page", timeout=20_000)


def test_the_form_writes_the_same_file_and_leaves_the_rest_alone(page: Page, laboratory: Laboratory) -> None:
    editor = open_editor(page, laboratory)
    put_text(page, COMMENTED)
    page.get_by_role("tab", name="Form").click()
    form = page.locator("#form")
    expect(form.get_by_label("Title")).to_have_value("Colours")
    expect(form.get_by_label("Targets")).to_have_value("red\ngreen\nblue")
    expect(form.get_by_label("Answers from each participant")).to_have_value("30")
    assert_accessible(page)
    form.get_by_label("Title").fill("Colours: warm and cold")
    form.get_by_label("Question above every trial").fill("Which one?")
    form.get_by_label("Targets").fill("red\ngreen\nblue\npink")
    form.get_by_label("Answers from each participant").fill("12")
    form.get_by_label("Consent").fill("I agree.\n\nI may stop at any time.")
    form.get_by_label("Participants come from").select_option("Prolific")
    form.get_by_label("Completion code").fill("C1ABCDEF")
    form.get_by_role("button", name="Add a question").click()
    question = form.get_by_role("group", name="Question 1")
    question.get_by_label("Text", exact=True).fill("What did you use?")
    question.get_by_label("Column").fill("device")
    question.get_by_label("Answered by").select_option("Choice")
    question.get_by_label("Options").fill("a phone\na computer")
    question.get_by_label("Must be answered").check()
    assert text_of(page) == COMMENTED.replace("title: Colours ", 'title: "Colours: warm and cold" ').replace(
        "targets: [red, green, blue]", "targets:\n  - red\n  - green\n  - blue\n  - pink"
    ).replace("Which is more alike?", "Which one?").replace("max_queries: 30", "max_queries: 12") + (
        "consent:\n  text: |-\n    I agree.\n\n    I may stop at any time.\n"
        "recruitment:\n  platform: prolific\n  completion_code: C1ABCDEF\n"
        "questions:\n  - name: device\n    text: What did you use?\n    type: choice\n"
        "    options:\n      - a phone\n      - a computer\n    required: true\n"
    )
    page.get_by_role("tab", name="Check").click()
    expect(page.locator("#summary")).to_contain_text("welcome → consent → trials → questions → debriefing")
    # What is written in the text is in the form at once, and undo reaches what the form has written.
    put_text(page, text_of(page).replace("Which one?", "Which of the two?"))
    page.get_by_role("tab", name="Form").click()
    expect(form.get_by_label("Question above every trial")).to_have_value("Which of the two?")
    question.get_by_role("button", name="Remove this question").click()
    assert "questions" not in text_of(page)
    editor.press("Control+z")
    expect(question.get_by_label("Column")).to_have_value("device")


def test_a_file_that_cannot_be_read_as_yaml_rests_the_form(page: Page, laboratory: Laboratory) -> None:
    open_editor(page, laboratory)
    put_text(page, "targets: [a, b\ntitle: x\n")
    page.get_by_role("tab", name="Form").click()
    expect(page.locator("#form .unreadable")).to_be_visible()
    expect(page.get_by_label("Title")).to_be_disabled()
    put_text(page, "targets: [a, b, c]\ntitle: x\n")
    expect(page.get_by_label("Title")).to_be_enabled()


def test_the_files_of_the_zip_are_seen_and_checked_with_the_file(page: Page, laboratory: Laboratory) -> None:
    open_editor(page, laboratory)
    broken = {f"{k}_png": picture(k) for k in range(3)} | {"bad_png": b"nothing"}
    page.locator("#files").set_input_files([yaml_file("seed: soon\n"), zip_file(**broken)])
    problems = page.locator("#problems li")
    expect(problems).to_have_count(2)
    expect(problems.first).to_contain_text("bad.png")
    expect(problems.last).to_contain_text("Line 1")
    pictures = {f"{k}_png": picture(k * 20, size=(40, 30)) for k in range(5)}
    odd = {"big_gif": picture(9, "GIF", (400, 300))}
    spec = "practice:\n  queries:\n    - [0.png, 1.png, 77, 1.png]\n"
    page.locator("#files").set_input_files([yaml_file(spec), zip_file(**pictures, **odd)])
    expect(problems).to_have_count(1)
    expect(problems).to_contain_text("Line 3")
    page.get_by_role("tab", name="Files (6)").click()
    cards = page.locator("#files-panel li")
    expect(cards).to_have_count(6)
    loaded = "[...document.querySelectorAll('#files-panel img')].every((image) => image.naturalWidth > 0)"
    poll(lambda: page.evaluate(loaded), "the thumbnails")
    expect(cards.filter(has_text="big.gif")).to_contain_text("400 × 300")
    expect(cards.filter(has_text="big.gif")).to_contain_text("Its type, gif, differs")
    expect(cards.filter(has_text="0.png")).not_to_contain_text("differs")
    assert_accessible(page)
    # Pictures can be dropped one by one, and taken out again.
    page.locator("#files").set_input_files({"name": "more.png", "mimeType": "image/png", "buffer": picture(7)})
    expect(cards).to_have_count(7)
    page.get_by_role("button", name="Remove big.gif").click()
    expect(cards).to_have_count(6)
    page.get_by_role("button", name="Remove all").click()
    expect(page.get_by_role("tab", name="Files", exact=True)).to_be_visible()
    page.get_by_role("tab", name="Check").click()
    expect(page.locator("#problems")).not_to_contain_text("bad.png")


def test_who_may_only_look_sees_the_file_and_changes_nothing(page: Page, laboratory: Laboratory) -> None:
    laboratory.launch("seen", "targets: [a, b, c]\n")
    login = laboratory.program.add_user("lou", "a third password")
    address = f"{laboratory.program.address}/api/experiments/seen/shared"
    httpx.put(address, json={"accounts": {"lou": "view"}}, auth=laboratory.login).raise_for_status()
    editor = open_editor(page, laboratory, "/console/experiments/seen/settings", login)
    editor.press("Control+End")
    page.keyboard.type("seed: 1")
    assert text_of(page) == "targets: [a, b, c]\n"


@pytest.mark.parametrize(("name", "text"), [("full", FULL), ("mistakes", MISTAKES)])
def test_the_editor_fits_every_screen_and_is_accessible_in_light_and_dark(
    page: Page, laboratory: Laboratory, name: str, text: str
) -> None:
    open_editor(page, laboratory)
    put_text(page, text)
    expect(page.locator("#problems li")).to_have_count(0) if name == "full" else expect(
        page.locator("#problems li").nth(19)
    ).to_be_attached()
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert box_of(page.locator("#editor"))["height"] <= height
            take_picture(page, f"editor-{name}-{screen}-{scheme}.png", full_page=screen == "phone")
