"""Network failures, reloads and other faults: every answer is recorded exactly once,
and participants get their code.
"""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Route, expect

from tests.browser.participant import EVERYTHING, Laboratory, Participant, chosen, plain
from tests.program import Program

pytestmark = pytest.mark.browser


def assert_complete(
    laboratory: Laboratory, address: str, participant: Participant, puid: str, earlier: Sequence[tuple[str, str]] = ()
) -> None:
    """Assert that the participant gets the code, and the experimenter exactly the answers given, in this order."""
    assert participant.code() == "C0DE-7"
    rows = [row for row in laboratory.rows(address) if row["puid"] == puid]
    assert chosen(rows) == [*earlier, *participant.given]
    assert len({row["trial_index"] for row in rows}) == len(rows)


def test_no_answer_is_lost_when_the_server_is_down_for_twenty_seconds(
    tmp_path: Path, participant: Participant, page: Page
) -> None:
    with Program(tmp_path / "data") as program:
        laboratory = Laboratory(program, program.add_user())
        address = laboratory.launch("away", plain(8))
        program.port = urlsplit(address).port
        participant.open(f"{address}?puid=patient").answer(3)
        participant.ready()
        program.kill()
        participant.answer(2)  # one query is shown and one fetched ahead, so two can be answered
        expect(page.locator("#status")).to_contain_text("There is no connection")
        threading.Event().wait(20)
        program.start()
        participant.answer(3)
        assert_complete(laboratory, address, participant, "patient")


def test_every_answer_arrives_once_when_many_requests_or_replies_are_lost(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("lossy", plain(20))
    chance = random.Random(1)
    lost = {"there": 0, "back": 0}

    def lose(route: Route) -> None:
        fate = chance.random()
        if fate < 0.15:
            lost["there"] += 1
            route.abort("connectionfailed")
        elif fate < 0.30:
            lost["back"] += 1
            with suppress(PlaywrightError):  # the server may close the connection, and at the end the page does
                route.fetch()  # the server handles it, but the reply is lost
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route(
        lambda url: urlsplit(url).path.rpartition("/")[2] in {"arrive", "query", "answers", "finish", "welcome"}, lose
    )
    participant.open(f"{address}?puid=lossy").answer(20)
    assert_complete(laboratory, address, participant, "lossy")
    assert min(lost.values()) > 2


def test_a_reload_at_any_step_continues_at_that_step(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("reloads", EVERYTHING)

    def reload_at(heading: str) -> None:
        participant.heading(heading)
        page.reload()
        participant.heading(heading)

    page.goto(f"{address}?puid=again")
    reload_at("Welcome")
    participant.button("Begin").click()
    reload_at("Before you begin")
    participant.button("I agree").click()
    reload_at("Instructions")
    participant.button("Continue").click()
    participant.button("Continue").click()
    reload_at("Practice")
    participant.button("Continue").click()
    for _ in range(2):
        participant.ready()
        page.keyboard.press("ArrowLeft")
        participant.button("Continue").click()
    participant.heading("Practice")
    participant.button("Continue").click()
    reload_at("Is everything clear?")
    page.get_by_text("the more similar word").click()
    participant.button("Send").click()
    for number in range(4):
        participant.ready()
        shown = page.locator("#trial").inner_text()
        page.reload()
        participant.ready()
        assert page.locator("#trial").inner_text() == shown  # a reload does not change the query
        if number == 0:
            expect(page.locator("#num-queries")).to_have_text("0 / 4")
        participant.answer()
    reload_at("A few last questions")
    page.get_by_text("a phone").click()
    participant.button("Send").click()
    assert participant.code() == "C0DE-7"
    page.reload()
    assert_complete(laboratory, address, participant, "again")


def test_with_two_tabs_the_newer_continues_and_the_older_says_so(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("tabs", plain(6)) + "?puid=twins"
    first, second = Participant(page), Participant(page.context.new_page())
    first.open(address).answer(2)
    second.page.goto(address)
    expect(first.page.get_by_text("open in another window")).to_be_visible()
    second.answer(2)
    first.button("Continue here").click()
    expect(second.page.get_by_text("open in another window")).to_be_visible()
    first.answer(2)
    assert first.code() == "C0DE-7"
    assert chosen(laboratory.rows(address)) == [*first.given[:2], *second.given, *first.given[2:]]


def test_with_two_browsers_the_older_page_is_told_by_the_server(
    laboratory: Laboratory, new_page: Callable[..., Page]
) -> None:
    address = laboratory.launch("browsers", plain(6)) + "?puid=two"
    first, second = Participant(new_page()), Participant(new_page())
    first.open(address).answer(1)
    second.page.goto(address)
    second.ready()
    # the first can answer the queries it has, but gets no more
    first.answer(1)
    first.ready()
    first.page.keyboard.press("ArrowLeft")
    expect(first.page.get_by_text("open in another window")).to_be_visible()
    assert second.page.locator("#message").is_hidden()


def test_leaving_with_the_back_button_and_returning_continues_the_run(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("back", plain(4))
    page.goto("about:blank")
    participant.open(f"{address}?puid=back").answer(2)
    page.go_back()
    expect(page).to_have_url("about:blank")
    page.go_forward()
    expect(page.locator("#num-queries")).to_have_text("2 / 4")
    participant.answer(2)
    assert_complete(laboratory, address, participant, "back")


def test_double_clicks_and_held_keys_give_one_answer_each(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("doubles", plain(6))
    participant.open(f"{address}?puid=nervous")
    for number in range(6):
        participant.ready()
        seen = page.locator("#q-head").inner_text(), page.locator("#q-left").inner_text()
        if number % 2:
            page.locator("#q-left").dblclick()
        else:
            for _ in range(15):
                page.keyboard.down("ArrowLeft")  # held: the first event is a press, the others are repeats
                page.wait_for_timeout(20)
            expect(page.locator("#num-queries")).to_have_text(f"{number + 1} / 6")
            page.keyboard.up("ArrowLeft")
        participant.given.append(seen)
        expect(page.locator("#num-queries")).to_have_text(f"{number + 1} / 6")
    assert_complete(laboratory, address, participant, "nervous")


WITHOUT_STORAGE = """
for (const name of ["sessionStorage", "localStorage", "indexedDB"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
}
"""


@pytest.mark.parametrize("script", ["", WITHOUT_STORAGE], ids=["kept", "nothing-kept"])
def test_with_and_without_browser_storage_a_run_can_be_reloaded_and_completed(
    laboratory: Laboratory, participant: Participant, page: Page, script: str
) -> None:
    page.add_init_script(script)
    address = laboratory.launch("", plain(4))
    participant.open(address).answer(2)
    code = page.locator("#puid").inner_text()
    page.reload()
    expect(page.locator("#num-queries")).to_have_text("2 / 4")
    assert page.locator("#puid").inner_text() == code
    participant.answer(2)
    assert_complete(laboratory, address, participant, code)


WANDERING_CLOCK = """
let wrong = 0;
const right = Date.now;
Date.now = () => right() + wrong;
addEventListener("keydown", () => { wrong = wrong ? 0 : -7200000; }, true);
"""


def test_changes_of_the_system_clock_do_not_affect_response_times(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    page.add_init_script(WANDERING_CLOCK)
    address = laboratory.launch("clock", plain(4))
    participant.open(f"{address}?puid=traveller").answer(4)
    assert_complete(laboratory, address, participant, "traveller")
    assert all(0.1 <= float(row["response_time"]) < 60 for row in laboratory.rows(address))


def test_unsent_answers_survive_closing_the_tab_and_are_sent_at_the_next_visit(
    laboratory: Laboratory, page: Page
) -> None:
    address = laboratory.launch("survivors", plain(4)) + "?puid=offline"
    context = page.context
    first = Participant(page).open(address)
    first.answer(1)
    first.ready()
    context.route("**/answers", lambda route: route.abort())
    first.answer(1)
    expect(first.page.locator("#status")).to_contain_text("There is no connection")
    assert len(laboratory.rows(address)) == 1
    first.page.close()
    context.unroute("**/answers")
    second = Participant(context.new_page())
    second.page.goto(address)
    second.answer(2)
    assert_complete(laboratory, address, second, "offline", earlier=first.given)


def test_the_code_is_shown_only_when_the_server_has_every_answer(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("held-up", plain(3))
    participant.open(f"{address}?puid=early").answer(2)
    page.route("**/answers", lambda route: route.abort())
    participant.answer(1)
    participant.heading("Saving your answers…")
    assert page.locator("#code").count() == 0
    page.unroute("**/answers")
    page.evaluate("dispatchEvent(new Event('online'))")
    assert_complete(laboratory, address, participant, "early")


def test_a_refused_answer_is_replaced_by_another_trial(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("refused", plain(3))
    participant.open(f"{address}?puid=forged").answer(1)

    def damage(route: Route) -> None:
        answers = route.request.post_data_json
        for answer in answers:
            answer["token"] = answer["token"][:-3] + "AAA"
        reply = httpx.post(route.request.url, json=answers)
        results = reply.json()["results"]
        for result, answer in zip(results, route.request.post_data_json, strict=True):
            result["token"] = answer["token"]
        route.fulfill(status=reply.status_code, json={"results": results})

    page.route("**/answers", damage)
    participant.ready()
    with page.expect_response("**/answers"):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#num-queries")).to_have_text("1 / 3")
    page.unroute("**/answers")
    participant.answer(2)
    assert_complete(laboratory, address, participant, "forged")
