"""Checks on the participant page: a catch trial shows its head twice, a failed one is
followed by a sentence or the end.
"""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import Laboratory, Participant, assert_accessible, plain

pytestmark = pytest.mark.browser


def answer_wrongly(participant: Participant, page: Page) -> bool:
    """Answer a trial, a catch trial wrongly; return whether it was one."""
    participant.ready()
    head, left, right = (page.locator(f"#q-{place}").inner_text().strip() for place in ("head", "left", "right"))
    assert "" not in {head, left, right}, "a target that is shown twice is seen twice"
    page.keyboard.press("ArrowRight" if head == left else "ArrowLeft")
    return head in {left, right}


def test_who_fails_too_many_catch_trials_is_thanked_and_gets_the_code_of_the_platform(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    spec = plain(20, "checks: {catch: 40%, on_failure: screen_out, tolerate: 1}\n")
    spec = spec.replace("completion_code: C0DE-7", "completion_code: C0DE-7, screen_out_code: 0UT-8")
    address = laboratory.launch("screen-out", spec)
    seen: list[str] = []
    page.on(
        "response",
        lambda reply: seen.append(reply.text()) if "/query" in reply.url or "/answers" in reply.url else None,
    )
    participant.open(f"{address}?puid=hasty")
    failed = 0
    while failed < 2:
        failed += answer_wrongly(participant, page)
        page.wait_for_timeout(150)
    expect(page.get_by_text("so the study ends here")).to_be_visible()
    assert participant.code() == "0UT-8"
    assert page.locator("#trial").is_hidden()
    assert_accessible(page)
    assert seen
    assert not any("0UT-8" in text or "C0DE-7" in text for text in seen)
    page.reload()
    expect(page.get_by_text("so the study ends here")).to_be_visible()
    assert participant.code() == "0UT-8"
    assert [row["trial_type"] for row in laboratory.rows(address)].count("catch") >= 2
    (row,) = laboratory.lines(address, "participants.jsonl")
    assert row["status"] == "failed_checks"


def test_a_failed_catch_trial_is_followed_by_a_kind_sentence(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("warn", plain(10, "checks: {catch: 20%, on_failure: warn}\n"))
    participant.open(f"{address}?puid=hasty")
    warned = page.get_by_text("That can happen!")
    for _ in range(9):
        failed = answer_wrongly(participant, page)
        page.wait_for_timeout(300)
        if failed:
            break
    if not warned.is_visible():  # the server's reply came after the next trial had begun
        participant.ready()
        page.keyboard.press("ArrowLeft")
    expect(warned).to_be_visible()
    assert_accessible(page)
    participant.button("Continue").click()
    participant.ready()
