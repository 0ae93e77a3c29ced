"""One trial: what it shows, what counts as an answer, and what it never reveals."""

import base64
import math
import struct
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.archives import broken_picture, picture, sound, write_zip
from tests.browser.participant import (
    MEDIA,
    PHONE,
    READY,
    Laboratory,
    Participant,
    assert_accessible,
    box_of,
    plain,
    slug_of,
)

pytestmark = pytest.mark.browser


def tone(hertz: int, seconds: float = 0.15) -> bytes:
    samples = (int(9000 * math.sin(2 * math.pi * hertz * k / 8000)) for k in range(int(8000 * seconds)))
    return sound(b"".join(struct.pack("<h", sample) for sample in samples), 8000)


RECORD = """async (shade) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 64;
  const pen = canvas.getContext("2d");
  const recorder = new MediaRecorder(canvas.captureStream(25), { mimeType: "video/webm" });
  const pieces = [];
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  for (let frame = 0; frame < 8; frame += 1) {
    pen.fillStyle = `rgb(${shade}, ${8 * frame}, 0)`;
    pen.fillRect(0, 0, 64, 64);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  recorder.stop();
  await stopped;
  const bytes = new Uint8Array(await new Blob(pieces).arrayBuffer());
  return btoa(String.fromCharCode(...bytes));
}"""


def test_pictures_keep_their_shape_in_like_boxes_and_do_not_reveal_file_names(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    sizes = [(60, 40), (900, 300), (300, 900), (400, 400)]
    files = [(f"secret-condition-{k}.png", picture(60 * k, size=size)) for k, size in enumerate(sizes)]
    address = laboratory.launch("shapes", MEDIA.replace("COUNT", "8"), write_zip(tmp_path / "t.zip", files))
    arrival = httpx.post(f"{address}arrive", json={"parameters": {"puid": "spy"}}).text
    assert "secret" not in arrival + httpx.get(address).text
    participant.open(f"{address}?puid=eyes")
    for _ in range(8):
        participant.ready()
        assert "secret" not in page.content()
        boxes: list[tuple[int, ...]] = []
        for place in ("head", "left", "right"):
            image = page.locator(f"#q-{place} img")
            assert image.get_attribute("alt") == {"head": "Target", "left": "Left", "right": "Right"}[place]
            assert image.evaluate("image => getComputedStyle(image).objectFit") == "contain"
            boxes.append(tuple(round(box_of(image)[side]) for side in ("width", "height")))
        assert len(set(boxes)) == 1, "pictures of unlike sizes are shown in like boxes"
        assert min(boxes[0]) > 200
        participant.answer()


def test_trials_wait_for_all_files_and_files_that_fail_are_retried(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    files = [(f"{k}.png", picture(50 * k, size=(40, 40))) for k in range(4)]
    address = laboratory.launch("failing", MEDIA.replace("COUNT", "2"), write_zip(tmp_path / "t.zip", files))
    target = httpx.post(f"{address}arrive", json={"parameters": {"puid": "look"}}).json()["targets"][2]["source"]
    requests: list[str] = []

    def fail(route: Route) -> None:
        requests.append(route.request.url)
        route.abort()

    page.route(f"**{target}", fail)
    participant.open(f"{address}?puid=unlucky")
    expect(page.get_by_text("Some files of this study could not be loaded")).to_be_visible(timeout=15_000)
    assert len(requests) == 3
    expect(page.locator("#trial")).to_be_hidden()
    assert_accessible(page)
    page.unroute(f"**{target}")
    participant.button("Try again").click()
    participant.answer(2)
    expect(page.locator("#debrief")).to_be_visible()


def test_participants_go_on_without_a_picture_that_cannot_be_shown_and_the_overview_names_it(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    files = [(f"{k}.png", picture(50 * k, size=(40, 40))) for k in range(6)]
    address = laboratory.launch("undecodable", MEDIA.replace("COUNT", "8"), write_zip(tmp_path / "t.zip", files))
    source = httpx.post(f"{address}arrive", json={"parameters": {"puid": "look"}}).json()["targets"][2]["source"]
    page.route(f"**{source}", lambda route: route.fulfill(body=broken_picture(), content_type="image/png"))
    participant.open(f"{address}?puid=stuck")
    expect(page.get_by_text("Some files of this study could not be loaded")).to_be_visible(timeout=15_000)
    expect(participant.button("Go on without them")).to_have_count(0)  # it may be the connection, the first time
    participant.button("Try again").click()
    expect(participant.button("Go on without them")).to_be_visible(timeout=15_000)
    expect(page.get_by_text("you can close this page")).to_be_visible()
    assert_accessible(page)
    participant.button("Go on without them").click()
    participant.answer(8)
    expect(page.locator("#debrief")).to_be_visible()
    rows = laboratory.rows(address)
    assert len(rows) == 8
    assert all("2" not in {row["head"], row["winner"], row["loser"]} for row in rows)
    overview = f"{laboratory.program.address}/api/experiments/{slug_of(address)}/overview"
    sentences = httpx.get(overview, auth=laboratory.login).raise_for_status().json()["sentences"]
    (named,) = [sentence for sentence in sentences if "could not be shown" in sentence["what"]]
    assert (named["level"], named["page"]) == ("error", "targets")
    assert "'2.png'" in named["what"]


def test_answers_count_only_after_every_sound_was_played_with_its_button(
    laboratory: Laboratory, participant: Participant, page: Page, tmp_path: Path
) -> None:
    files = [(f"{k}.wav", tone(220 * (k + 1))) for k in range(3)]
    address = laboratory.launch("sounds", MEDIA.replace("COUNT", "1"), write_zip(tmp_path / "t.zip", files))
    participant.open(f"{address}?puid=ears").ready()
    assert page.evaluate("[...document.querySelectorAll('#trial audio')].every((sound) => sound.paused)")
    expect(page.get_by_text("Please listen to all sounds first.")).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("ArrowLeft")
    page.locator("#q-left").click(force=True)
    expect(page.locator("#num-queries")).to_have_text("0 / 1")
    for place in ("Target", "Left", "Right"):
        page.get_by_role("button", name=f"Play: {place}").click()
        page.wait_for_function("place => document.querySelector(`#q-${place} audio`).ended", arg=PLACES[place])
    expect(page.locator("#listen")).to_be_empty()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#debrief")).to_be_visible()


PLACES = {"Target": "head", "Left": "left", "Right": "right"}


@pytest.fixture
def videos(laboratory: Laboratory, page: Page, tmp_path: Path) -> Path:
    """A ZIP of three short videos, recorded by the browser."""
    page.goto(laboratory.program.address + "/healthz")
    return write_zip(
        tmp_path / "t.zip", [(f"{k}.webm", base64.b64decode(page.evaluate(RECORD, 80 * k))) for k in range(3)]
    )


def test_videos_play_automatically_without_sound_and_can_be_paused(
    laboratory: Laboratory, participant: Participant, page: Page, videos: Path
) -> None:
    participant.open(laboratory.launch("videos", MEDIA.replace("COUNT", "1"), videos) + "?puid=cinema").ready()
    video = page.locator("#q-head video")
    assert video.evaluate("video => [video.muted, video.loop, video.controls, video.paused]") == [
        True,
        True,
        False,
        False,
    ]
    page.get_by_role("button", name="Pause: Target").click()
    assert video.evaluate("video => video.paused")
    assert_accessible(page)
    participant.choose("right", "key")
    expect(page.locator("#debrief")).to_be_visible()


def test_videos_do_not_play_with_reduced_motion(
    laboratory: Laboratory, participant: Participant, page: Page, videos: Path
) -> None:
    page.emulate_media(reduced_motion="reduce")
    participant.open(laboratory.launch("stills", MEDIA.replace("COUNT", "1"), videos) + "?puid=calm").ready()
    assert page.evaluate("[...document.querySelectorAll('#trial video')].every((video) => video.paused)")


HTML = """
targets: ["<b>one</b><script>window.broken = 1</script>", "<i onclick='window.broken = 1'>two</i>", "<u>three</u>"]
html: {max_queries: 3, instructions: "Which? <img src=x onerror='window.broken = 1'>"}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
"""


def test_scripts_and_handlers_are_removed_from_html_unless_it_is_trusted(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    participant.open(laboratory.launch("cleaned", HTML) + "?puid=x").ready()
    assert page.locator("#trial b, #trial i, #trial u").count() == 3
    assert page.locator("#trial script, #trial [onclick], #trial [onerror]").count() == 0
    participant.open(laboratory.launch("raw", HTML.replace("page: {", "page: {trusted: true, ")) + "?puid=x").ready()
    assert page.locator("#trial [onclick]").count() == 1
    assert page.evaluate("window.broken") == 1


def test_early_answers_and_keys_held_since_the_last_trial_do_not_count(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = plain(2).replace("min_rt_ms: 100", "min_rt_ms: 1500")
    participant.open(laboratory.launch("locked", spec) + "?puid=fast")
    page.locator(READY).wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#q-right").click()
    expect(page.locator("#num-queries")).to_have_text("0 / 2")
    page.wait_for_timeout(1500)
    page.keyboard.down("ArrowLeft")
    expect(page.locator("#num-queries")).to_have_text("1 / 2")
    participant.ready()
    page.wait_for_timeout(1500)
    page.keyboard.down("ArrowLeft")  # still held: this event is a repeat
    expect(page.locator("#num-queries")).to_have_text("1 / 2")
    page.keyboard.up("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#debrief")).to_be_visible()


def test_a_fast_answer_counts_and_is_followed_by_a_warning(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("warned", plain(2).replace("min_rt_ms: 100", "min_rt_ms: 100, warn_rt_ms: 60000"))
    participant.open(f"{address}?puid=hasty").ready()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("That was very fast.")).to_be_visible()
    assert_accessible(page)
    participant.button("Continue").click()
    participant.ready()
    assert len(laboratory.rows(address)) == 1


def test_a_skipped_query_is_replaced_and_not_counted(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("skipped", plain(2).replace("max_queries: 2", "max_queries: 2, skip_button: true"))
    participant.open(f"{address}?puid=unsure").ready()
    before = page.locator("#trial").inner_text()
    participant.button("Skip").click()
    participant.ready()
    assert page.locator("#trial").inner_text() != before
    expect(page.locator("#num-queries")).to_have_text("0 / 2")
    with page.expect_request("**/events") as sent:
        pass
    assert "skip" in [event["event"] for event in sent.value.post_data_json]
    participant.answer(2)
    assert participant.code() == "C0DE-7"
    assert len(laboratory.rows(address)) == 2


def test_keys_can_be_configured_and_single_letters_can_be_turned_off(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("letters", plain(2).replace("min_rt_ms", "keys: [f, j], min_rt_ms"))
    page.goto(f"{address}?puid=typist")
    expect(page.get_by_text("the keys F and J")).to_be_visible()
    participant.button("Begin").click()
    participant.ready()
    page.keyboard.press("ArrowLeft")
    participant.button("Turn off keyboard shortcuts (F J)").click()
    page.keyboard.press("f")
    expect(page.locator("#num-queries")).to_have_text("0 / 2")
    participant.button("Turn on keyboard shortcuts (F J)").click()
    page.keyboard.press("f")
    expect(page.locator("#num-queries")).to_have_text("1 / 2")
    row = laboratory.rows(address)[0]
    assert row["winner"] == row["left"]


def test_a_fixation_cross_is_shown_alone_before_the_targets(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = plain(2).replace("blank_ms: 20", "blank_ms: 20, fixation_ms: 1500")
    participant.open(laboratory.launch("cross", spec) + "?puid=still").ready()
    page.keyboard.press("ArrowLeft")
    page.locator("#trial.fixation").wait_for()
    assert page.locator("#q-head > *").is_hidden()
    assert page.evaluate("getComputedStyle(document.getElementById('trial'), '::after').content") == '"+"'
    participant.answer()


def test_text_is_black_or_white_whichever_contrasts_more_with_the_background(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    for name, background, ink in (
        ("black", "'#101010'", "rgb(255, 255, 255)"),
        ("grey", "'#808080'", "rgb(0, 0, 0)"),
    ):
        address = laboratory.launch(name, plain(2).replace("page: {", f"page: {{background: {background}, "))
        page.goto(f"{address}?puid=x")
        participant.heading("Welcome")
        assert page.evaluate("getComputedStyle(document.body).color") == ink
        participant.button("Begin").click()
        participant.ready()
        assert_accessible(page)


def test_without_a_limit_the_participant_decides_when_to_finish(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("endless", plain(0))
    participant.open(f"{address}?puid=enough").answer(3)
    participant.button("Finish here").click()
    assert participant.code() == "C0DE-7"
    assert len(laboratory.rows(address)) == 3


def test_a_study_for_computers_does_not_begin_on_a_phone(laboratory: Laboratory, new_page: Callable[..., Page]) -> None:
    address = laboratory.launch("devices", plain(2).replace("page: {", "page: {devices: [desktop], "))
    page = new_page(**PHONE)
    page.goto(f"{address}?puid=phone")
    expect(page.get_by_text("This study needs a computer")).to_be_visible()
    assert page.get_by_role("button", name="Begin").count() == 0
    assert_accessible(page)
    page.keyboard.press("a")  # a keyboard is connected
    expect(page.get_by_role("button", name="Begin")).to_be_visible()
