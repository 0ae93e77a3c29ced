"""Waiting: idle participants, unsent answers, late queries and paused studies."""

import json
import re
from threading import Event

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from frontend.languages import catalogue
from tests.browser.participant import Laboratory, Participant, assert_accessible, chosen, plain, slug_of

pytestmark = pytest.mark.browser


def test_the_page_asks_after_one_idle_minute_and_pauses_after_ten(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("away", plain(2))
    page.clock.install()
    participant.open(f"{address}?puid=tea").ready()
    shown = page.locator("#trial").inner_text()
    page.clock.fast_forward(61_000)
    expect(page.locator("#status")).to_have_text("Are you still there? Take all the time you need.")
    expect(page.locator("#trial")).to_be_visible()
    page.clock.fast_forward(540_000)
    expect(page.get_by_text("The study is paused.")).to_be_visible()
    expect(page.locator("#trial")).to_be_hidden()
    assert_accessible(page)
    participant.button("Continue").click()
    expect(page.locator("#trial")).to_be_visible()
    assert page.locator("#trial").inner_text() == shown  # the same query is shown after the pause
    expect(page.locator("#status")).to_be_empty()


def test_with_twenty_unsent_answers_the_page_waits_until_some_are_sent(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("twenty", plain(22))
    participant.open(f"{address}?puid=cellar")
    page.route("**/answers", lambda route: route.abort())
    participant.answer(19)
    participant.ready()
    seen = page.locator("#q-head").inner_text(), page.locator("#q-left").inner_text()
    page.keyboard.press("ArrowLeft")
    participant.given.append(seen)
    participant.heading("Saving your answers…")
    expect(page.get_by_text("it will keep trying")).to_be_visible()
    expect(page.locator("#num-queries")).to_have_text("20 / 22")
    assert_accessible(page)
    page.unroute("**/answers")
    page.evaluate("dispatchEvent(new Event('online'))")
    participant.answer(2)
    assert participant.code() == "C0DE-7"
    assert chosen(laboratory.rows(address)) == participant.given


def finish_with_unsent(participant: Participant, page: Page, *, sent: int, unsent: int) -> None:
    """Give all answers, keep the last ones from arriving, and wait for more than a minute."""
    participant.answer(sent)
    page.route("**/answers", lambda route: route.abort())
    participant.answer(unsent)
    participant.heading("Saving your answers…")
    page.clock.fast_forward(61_000)


def test_participants_who_answered_everything_get_the_code_even_if_some_answers_never_arrive(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("incomplete", plain(4).replace("C0DE-7", "C0DE-7, unsent: release"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.clock.install()
    participant.open(f"{address}?puid=unlucky")
    finish_with_unsent(participant, page, sent=3, unsent=1)
    assert participant.code() == "C0DE-7"
    expect(page.get_by_text("Some of your answers could not be saved.")).to_be_visible()
    assert_accessible(page)
    participant.button("Copy a backup of your answers").click()
    expect(page.locator("#status")).to_have_text("Copied")
    (answer,) = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert httpx.post(f"{address}answers", json=[answer]).json()["results"][0]["recorded"] is True
    (row,) = laboratory.lines(address, "participants.jsonl")
    assert row["given_unsaved"] == 4


def test_if_most_answers_are_unsent_they_can_be_copied_while_the_page_keeps_trying(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("backup", plain(4))
    page.clock.install()
    participant.open(f"{address}?puid=basement")
    finish_with_unsent(participant, page, sent=1, unsent=3)
    expect(page.get_by_text("Please keep this page open")).to_be_visible()
    assert page.locator("#code").count() == 0
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    participant.button("Copy a backup of your answers").click()
    assert len(json.loads(page.get_by_role("textbox", name="Copy a backup of your answers").input_value())) == 3
    assert_accessible(page)
    page.unroute("**/answers")
    page.clock.fast_forward(31_000)
    assert participant.code() == "C0DE-7"
    assert chosen(laboratory.rows(address)) == participant.given


def test_a_late_query_is_replaced_by_a_spare_one_and_shown_a_trial_later(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("late", plain(6))
    held: list[Route] = []
    released = Event()

    def hold(route: Route) -> None:
        if released.is_set() or len(held) > 0 or "spare" in route.request.url:
            route.continue_()
        else:
            held.append(route)

    participant.open(f"{address}?puid=slow").ready()
    page.wait_for_load_state("networkidle")  # the first query, the second one ahead, and a spare one are here
    page.route(re.compile(r"/query"), hold)
    participant.answer(3)  # the third one is the spare
    released.set()
    assert len(held) == 1
    held[0].continue_()
    participant.answer(3)
    assert participant.code() == "C0DE-7"
    rows = laboratory.rows(address)
    assert chosen(rows) == participant.given
    assert [row["trial_type"] for row in rows].count("fallback") == 1
    waited = next(row for row in rows if row["trial_type"] == "fallback")
    assert float(waited["query_wait_ms"]) >= 299
    assert all(float(row["network_latency"]) >= 0 for row in rows)


def test_a_paused_study_says_so_in_the_language_of_the_page_and_can_be_resumed(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    say = catalogue("de")
    address = laboratory.launch("pause", plain(6))
    state = f"{laboratory.program.address}/api/experiments/{slug_of(address)}/state"
    page.goto(f"{address}?puid=dora&lang=de")
    participant.button(say["begin"]).click()
    participant.answer(1)
    httpx.put(state, json={"state": "paused"}, auth=laboratory.login).raise_for_status()
    for _ in range(3):  # queries already on the page can still be answered
        if page.get_by_text(say["error_paused"]).count():
            break
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(400)
    expect(page.get_by_text(say["error_paused"])).to_be_visible()
    assert_accessible(page)
    httpx.put(state, json={"state": "open"}, auth=laboratory.login).raise_for_status()
    participant.button(say["try_again"]).click()
    participant.ready()


@pytest.mark.parametrize(
    ("query", "name", "detail"),
    [
        ("", "error_link_missing", "it has no PROLIFIC_PID"),
        ("PROLIFIC_PID=PROLIFIC_PID", "error_link_unfilled", "has not filled in who you are"),
        ("PROLIFIC_PID=a%20b", "error_link_wrong", "is not an id"),
    ],
)
def test_a_wrong_link_is_refused_in_the_language_of_the_link(
    laboratory: Laboratory, page: Page, query: str, name: str, detail: str
) -> None:
    spec = plain(1).replace("recruitment: {", "recruitment: {platform: prolific, ")
    page.goto(f"{laboratory.launch('', spec)}?lang=ar&{query}")
    expect(page.get_by_role("heading", name=catalogue("ar")[name])).to_be_visible()
    expect(page.locator("html")).to_have_attribute("dir", "rtl")
    expect(page.get_by_text(detail)).to_be_visible()
