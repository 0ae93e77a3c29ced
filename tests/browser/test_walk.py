"""Walks to the end of long studies on the real page: 200 trials in the suite, 1,000 by `make walk`."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Route, expect

from tests.browser.participant import Laboratory, Participant, chosen

pytestmark = pytest.mark.browser

TRIALS = int(os.environ.get("SALMON_WALK", "200"))
#: Trials of each walk that something disturbs: enough to pass the bound of open turns.
DISTURBED = max(80, TRIALS // 5)

STUDY = """
targets: [TARGETS]
html: {max_queries: COUNT}
samplers: {SAMPLER: {}}
page: {min_rt_ms: 100, blank_ms: 0}
recruitment: {completion_code: C0DE-7}
"""


def study(trials: int, sampler: str = "Adaptive") -> str:
    targets = ", ".join(f"t{k}" for k in range(30))
    return STUDY.replace("COUNT", str(trials)).replace("TARGETS", targets).replace("SAMPLER", sampler)


def assert_walked(laboratory: Laboratory, address: str, *walkers: Participant) -> list[dict[str, str]]:
    """Assert that the last walker has the code, and that each answer of all is stored once, in order."""
    assert walkers[-1].code() == "C0DE-7"
    rows = laboratory.rows(address)
    assert chosen(rows) == [answer for walker in walkers for answer in walker.given]
    assert len({row["trial_index"] for row in rows}) == len(rows)
    return rows


def on_requests(page: Page, every: int, disturb: Callable[[Route], None]) -> None:
    """Disturb one in `every` requests for a query or with an answer; those for a reserve go through."""
    numbers = count(1)

    def handle(route: Route) -> None:
        url = urlsplit(route.request.url)
        wanted = url.path.endswith(("/query", "/answers")) and "spare" not in parse_qs(url.query)
        if wanted and next(numbers) % every == 0:
            disturb(route)
        else:
            route.continue_()

    page.route(lambda url: urlsplit(url).path.endswith(("/query", "/answers")), handle)


def test_a_study_is_walked_to_its_last_trial(laboratory: Laboratory, participant: Participant) -> None:
    address = laboratory.launch("walk", study(TRIALS))
    participant.open(f"{address}?puid=walker").answer(TRIALS)
    rows = assert_walked(laboratory, address, participant)
    assert len(rows) == TRIALS


def test_a_study_is_walked_with_late_queries_for_which_the_reserve_is_shown(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("walk-reserve", study(DISTURBED, "Random"))

    def delay(route: Route) -> None:
        page.wait_for_timeout(800)
        route.continue_()

    on_requests(page, 12, delay)
    participant.open(f"{address}?puid=waits").answer(DISTURBED)
    rows = assert_walked(laboratory, address, participant)
    assert sum(row["trial_type"] == "fallback" for row in rows) >= 2


def test_a_study_is_walked_in_two_tabs_in_turn(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("walk-tabs", study(DISTURBED)) + "?puid=twins"
    first = Participant(page).open(address)
    first.answer(DISTURBED // 4)
    second, third = Participant(page.context.new_page()), Participant(page)  # timers of a tab behind another are slow
    second.page.goto(address)
    expect(first.page.get_by_text("open in another window")).to_be_visible()
    second.answer(DISTURBED // 2)
    first.page.bring_to_front()
    first.button("Continue here").click()
    third.answer(DISTURBED - DISTURBED // 4 - DISTURBED // 2)
    assert_walked(laboratory, address, first, second, third)


def test_a_study_is_walked_although_replies_are_lost(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("walk-lost", study(DISTURBED))

    def lose_reply(route: Route) -> None:
        with suppress(PlaywrightError):  # at the end, the page closes the connection
            route.fetch()
        route.abort("connectionreset")

    on_requests(page, 15, lose_reply)
    participant.open(f"{address}?puid=lossy").answer(DISTURBED)
    assert_walked(laboratory, address, participant)


def test_a_study_is_walked_to_its_end_after_a_spell_without_a_connection(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("walk-offline", study(DISTURBED))
    participant.open(f"{address}?puid=tunnel").answer(DISTURBED // 2)
    participant.ready()
    page.context.set_offline(True)
    participant.answer()  # what is on the screen needs no connection
    expect(page.locator("#status")).to_contain_text("There is no connection")
    page.context.set_offline(False)
    participant.answer(DISTURBED - DISTURBED // 2 - 1)
    assert_walked(laboratory, address, participant)
