"""Window sizes, loading of files, and participants who return."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from frontend.languages import catalogue
from tests.archives import picture, sound, write_zip
from tests.browser.participant import EVERYTHING, MEDIA, Laboratory, Participant, assert_accessible, chosen, plain

pytestmark = pytest.mark.browser

PICTURES = MEDIA.replace("COUNT", "5")


def test_full_screen_is_optional_and_can_be_left(laboratory: Laboratory, participant: Participant, page: Page) -> None:
    address = laboratory.launch("full-screen", plain(2))
    page.goto(f"{address}?puid=wide")
    participant.button("Full screen").click()
    page.wait_for_function("document.fullscreenElement === document.documentElement")
    participant.button("Begin").click()
    participant.answer(1)
    page.evaluate("document.exitFullscreen()")
    page.wait_for_function("!document.fullscreenElement")
    participant.answer(1)
    assert participant.code() == "C0DE-7"
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    page.wait_for_function("fetch('events').then(() => true)")  # after one more request, the earlier ones have arrived
    assert {"opened", "fullscreenenter", "fullscreenexit"} <= {
        event["event"] for event in laboratory.lines(address, "events.jsonl")
    }
    off = laboratory.launch("no-full-screen", plain(2).replace("page: {", "page: {fullscreen: off, "))
    page.goto(f"{off}?puid=small")
    participant.heading("Welcome")
    assert page.get_by_role("button", name="Full screen").count() == 0


def test_a_window_that_is_too_small_has_to_be_enlarged_first(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = plain(2).replace("page: {", "page: {min_viewport: [800, 600], ")
    address = laboratory.launch("small", spec + 'consent: {text: Hello., decline_url: "https://example.org/out"}\n')
    page.set_viewport_size({"width": 700, "height": 650})
    page.goto(f"{address}?puid=netbook")
    expect(page.get_by_text("at least 800 × 600 pixels")).to_be_visible()
    expect(page.get_by_text("return your submission")).to_be_visible()
    expect(page.get_by_role("link", name="Leave the study")).to_have_attribute("href", "https://example.org/out")
    assert_accessible(page)
    page.set_viewport_size({"width": 1000, "height": 500})
    expect(page.get_by_text("at least 800 × 600 pixels")).to_be_visible()
    page.set_viewport_size({"width": 800, "height": 600})
    participant.heading("Welcome")


def test_at_320_pixels_the_page_scrolls_only_vertically_and_rotating_the_device_keeps_the_trial(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("narrow", EVERYTHING.replace("practice: {", "# practice: {"))
    page.set_viewport_size({"width": 320, "height": 568})
    page.goto(f"{address}?puid=reader")

    def fits() -> bool:
        return page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    for name in ("Begin", "I agree", "Continue", "Continue"):
        expect(participant.button(name)).to_be_visible()
        assert fits()
        participant.button(name).click()
    assert fits()
    page.get_by_text("the more similar word").click()
    participant.button("Send").click()
    participant.ready()
    assert fits()
    shown = page.locator("#trial").inner_text()
    page.set_viewport_size({"width": 568, "height": 320})
    participant.ready()
    assert page.locator("#trial").inner_text() == shown
    assert fits()
    participant.answer(4)
    row = laboratory.rows(address)[0]
    assert (row["viewport_w"], row["viewport_h"]) == ("568", "320")


def test_instructions_show_their_picture_and_status_messages_do_not_move_the_trial(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    archive = write_zip(tmp_path / "t.zip", [(f"{k}.png", picture(60 * k, size=(300, 200))) for k in range(4)])
    spec = PICTURES + "instructions: [{text: It looks like this., image: 2.png}, {text: No picture here.}]\n"
    page.set_viewport_size({"width": 360, "height": 640})
    participant.open(laboratory.launch("illustrated", spec, archive) + "?puid=eyes")
    image = page.locator("img.illustration")
    expect(image).to_be_visible()
    page.wait_for_function("document.querySelector('img.illustration').naturalWidth === 300")
    assert image.get_attribute("alt") == ""
    assert_accessible(page)
    participant.button("Continue").click()
    expect(page.get_by_text("No picture here.")).to_be_visible()
    assert image.count() == 0
    participant.button("Continue").click()
    participant.ready()
    boxes = [page.locator(f"#{name}").bounding_box() for name in ("instructions", "q-head", "q-left", "q-right")]
    widths = {page.locator(f"#q-{place} img").evaluate("image => image.width") for place in ("head", "left", "right")}
    assert len(widths) == 1  # one rule of size for all three
    page.route("**/answers", lambda route: route.abort())
    participant.answer(1)
    expect(page.locator("#status")).to_contain_text("There is no connection")
    participant.ready()
    after = [page.locator(f"#{name}").bounding_box() for name in ("instructions", "q-head", "q-left", "q-right")]
    assert after == boxes


def test_with_many_files_only_those_of_the_next_three_trials_are_loaded(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    files = [(f"{k}.png", picture(k, size=(20 + k, 30))) for k in range(104)]
    address = laboratory.launch("many", PICTURES, write_zip(tmp_path / "t.zip", files))
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url) if "/media/" in request.url else None)
    participant.open(f"{address}?puid=hall")
    for trial in range(1, 6):
        participant.ready()
        assert set(page.locator("#trial img").evaluate_all("images => images.map((image) => image.src)")) <= set(loaded)
        # the trials so far, three ahead, and a spare one: three files each
        assert len(loaded) == len(set(loaded)) <= 3 * (trial + 3 + 1)
        participant.answer()
    expect(page.locator("#debrief")).to_be_visible()


def test_large_files_are_not_all_loaded_in_advance(laboratory: Laboratory, tmp_path: Path) -> None:
    def arrival(name: str, seconds: int) -> dict[str, object]:
        files = [(f"{k}.wav", sound(bytes(96_000 * (seconds + k)), 48_000)) for k in range(8)]
        address = laboratory.launch(name, PICTURES, write_zip(tmp_path / f"{name}.zip", files))
        return httpx.post(f"{address}arrive", json={"parameters": {"puid": "ears"}}).json()

    large, small = arrival("large", 26), arrival("light", 1)  # 8 files of 2.5 to 3.2 MB, and of 0.1 to 0.8 MB
    assert large["load_all"] is False
    assert len(large["soon"]) >= 3  # type: ignore[arg-type]
    assert (small["load_all"], small["soon"]) == (True, [])


def test_participants_who_return_late_read_the_instructions_again_and_continue(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    spec = plain(4, "instructions: [{text: Choose the nearer colour.}]\nresume: {max_gap: 1s}\n")
    address = laboratory.launch("review", spec) + "?puid=slow"
    first, second = Participant(new_page()).open(address), Participant(new_page())
    first.button("Continue").click()
    first.answer(2)
    first.page.wait_for_timeout(1200)
    second.page.goto(address)
    expect(second.page.get_by_text("It has been a while, so please read the instructions once more.")).to_be_visible()
    expect(second.page.get_by_text("Choose the nearer colour.")).to_be_visible()
    assert_accessible(second.page)
    second.button("Continue").click()
    expect(second.page.locator("#status")).to_have_text("Welcome back! You can continue where you left off.")
    second.answer(2)
    assert second.code() == "C0DE-7"
    assert chosen(laboratory.rows(address)) == [*first.given, *second.given]


def test_with_policy_restart_returning_participants_start_again_and_earlier_answers_are_kept(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    address = laboratory.launch("restart", plain(3, "resume: {policy: restart}\n")) + "?puid=anew"
    for given in (2, 3):
        participant = Participant(new_page()).open(address)
        expect(participant.page.locator("#num-queries")).to_have_text("0 / 3")
        participant.answer(given)
        if given == 3:
            assert participant.code() == "C0DE-7"
    assert len(laboratory.rows(address)) == 5


def test_with_policy_block_returning_participants_are_refused_but_a_reload_continues(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    say = catalogue("fr")
    address = laboratory.launch("block", plain(3, "resume: {policy: block}\n")) + "?lang=fr&puid=once"
    first, second = Participant(new_page()), Participant(new_page())
    first.page.goto(address)
    first.button(say["begin"]).click()
    first.answer(1)
    second.page.goto(address)
    expect(second.page.get_by_text(say["error_begun"])).to_be_visible()
    first.page.reload()
    first.answer(2)
    assert first.code() == "C0DE-7"
