"""Every example is walked from its link to its end by somebody in front of a browser."""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PageTimeoutError

from frontend.console.experiments import examples as find_examples
from salmon.spec import parse_spec
from tests.browser.participant import LOCK_OUT_MS, READY, Laboratory
from tests.program import REPOSITORY

pytestmark = pytest.mark.browser

NAMES = [example.name for example in find_examples()]


def shortened(text: str) -> tuple[str, int]:
    """Return an example that asks only a few queries, and how many: its checks need room between other trials."""
    count = 12 if "checks:" in text else 3
    return re.sub(r"max_queries: \d+", f"max_queries: {count}", text), count


def take_step(page: Page) -> None:
    """Do what the screen asks for, whatever it is: read, agree, practise, answer questions."""
    for box in page.locator("#message input[type=number]:visible").all():
        box.fill("30")
    for options in page.locator("#message [role=radiogroup]:visible").all():
        options.locator("input").first.check()
    for name in ("Begin", "Let us begin", "I agree", "Continue", "Send"):
        button = page.get_by_role("button", name=name, exact=True)
        if button.is_visible():
            with suppress(PageTimeoutError):  # the screen may change between the look and the click
                button.click(timeout=2000)
            return


def answer(page: Page) -> None:
    """Hear what has to be heard, and choose the left foot."""
    for place in ("head", "left", "right"):
        sound = page.locator(f"#q-{place} audio")
        if sound.count():
            page.locator(f"#play-{place} button").click()
            sound.evaluate(
                "each => each.ended || new Promise((done) => (each.addEventListener('ended', () => done())))"
            )
    page.wait_for_timeout(LOCK_OUT_MS + 100)
    page.locator("#q-left").click()


def answer_with_care(page: Page) -> None:
    """Choose the animal of the same kind, and otherwise the one that comes first in the alphabet, by its key."""
    head, left, right = (page.locator(f"#q-{place}").inner_text() for place in ("head", "left", "right"))
    near = {("dog", "cat"), ("eagle", "sparrow"), ("tiger", "lion")}
    likes_right = right == head or (head, right) in near
    likes_left = left == head or (head, left) in near
    page.wait_for_timeout(LOCK_OUT_MS + 100)
    page.keyboard.press("ArrowRight" if likes_right or (right < left and not likes_left) else "ArrowLeft")


def walk(page: Page, decide: Callable[[Page], None]) -> None:
    """Take every step and answer every trial until the page shows the end."""
    trial = page.locator(READY)
    ended = page.locator("#debriefModal")
    for _ in range(300):
        expect(
            page.locator("#message button:visible, #below button:visible").or_(trial).or_(ended).first
        ).to_be_visible()
        if ended.is_visible():
            break
        if trial.is_visible():
            decide(page)
            page.wait_for_timeout(350)  # the blank between two trials
        else:
            take_step(page)
            page.wait_for_timeout(50)
    expect(ended).to_be_visible()


def test_the_example_for_prolific_is_walked_to_its_last_trial_as_it_is(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("prolific", (REPOSITORY / "examples" / "prolific" / "experiment.yaml").read_text())
    page.goto(f"{address}?PROLIFIC_PID=5f00&STUDY_ID=s1&SESSION_ID=x1")
    walk(page, answer_with_care)
    assert len(laboratory.rows(address)) == 80
    expect(page.locator("body")).to_contain_text("ANIMALS-1")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_walked_to_its_end(laboratory: Laboratory, page: Page, name: str) -> None:
    folder = REPOSITORY / "examples" / name
    archive = folder / "targets.zip"
    text, count = shortened((folder / "experiment.yaml").read_text())
    address = laboratory.launch(f"walk-{name}", text, archive if archive.exists() else None)
    platform = parse_spec(text.encode(), zip_follows=archive.exists()).spec.recruitment.platform
    ids = "PROLIFIC_PID=5f00&STUDY_ID=s1&SESSION_ID=x1" if platform == "prolific" else "puid=walker"
    page.goto(f"{address}?{ids}")
    walk(page, answer)
    assert len(laboratory.rows(address)) == count
