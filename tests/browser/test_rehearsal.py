"""An experiment is rehearsed on the console: simulated people fill a scratch copy, its pages
show them, and a click removes it.
"""

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import Laboratory, assert_accessible
from tests.program import poll

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SPEC = """
title: Fruits
targets: [apple, pear, banana, cherry, grape, lemon, plum, kiwi, fig, lime]
html: {max_queries: 25}
samplers: {Adaptive: {d: 2}}
consent: {text: You compare words.}
recruitment: {platform: prolific, completion_code: C0DE-7, invited_only: false}
payment: {reward: 1.50}
questions:
  - {name: age, text: How old are you?, type: number}
stopping: {participants: 3}
"""


def test_a_rehearsal_shows_the_pages_of_a_real_experiment_and_is_removed_by_a_click(
    laboratory: Laboratory, page: Page
) -> None:
    laboratory.launch("rehearsed", SPEC)
    address = laboratory.program.address
    laboratory.log_in(page)
    page.goto(f"{address}/console/experiments/rehearsed/settings")
    page.get_by_label("simulated people").fill("10")
    page.get_by_role("button", name="Rehearse").click()
    page.wait_for_url(re.compile(r"/console/experiments/rehearsed-rehearsal/$"))
    note = page.locator("#rehearsal")
    expect(note).to_contain_text("Rehearsal with simulated people of rehearsed. Nothing here is counted in it.")
    expect(note).to_contain_text("It is removed by itself on")
    expect(note.locator("progress")).to_be_visible()
    expect(page.get_by_role("heading", name="Rehearsal: Fruits", level=1)).to_be_visible()
    assert_accessible(page)
    expect(page.locator("#rehearsal-progress")).to_contain_text(
        re.compile(
            r"^10 simulated people: \d+ completed, 0 screened out, \d+ left in the middle, 0 stopped by an error\.$"
        ),
        timeout=120_000,
    )
    expect(page.locator("#tiles")).to_contain_text("Answers")

    base = f"{address}/console/experiments/rehearsed-rehearsal"
    page.goto(f"{base}/map")
    expect(page.locator("#map svg, #map canvas, main svg").first).to_be_visible(timeout=60_000)
    expect(page.locator("main")).to_contain_text("apple", timeout=60_000)
    page.goto(f"{base}/participants")
    expect(page.locator("main tbody tr")).to_have_count(10, timeout=30_000)
    page.goto(f"{base}/payment")
    expect(page.locator("main")).to_contain_text(
        re.compile(r"[1-9]\d*\.\d\d GBP|approve", re.IGNORECASE), timeout=30_000
    )
    page.goto(f"{base}/settings")
    expect(page.locator("#rehearsal")).to_be_visible()
    expect(page.get_by_role("button", name="Reopen")).to_have_count(0)

    def read(path: str) -> httpx.Response:
        return httpx.get(f"{address}/api/{path}", auth=laboratory.login, timeout=30)

    assert read("experiments/rehearsed/overview").json()["answers"]["total"] == 0, "the real one stays empty"
    assert read("experiments/rehearsed-rehearsal/overview").json()["answers"]["total"] >= 200
    page.goto(f"{address}/console/")
    row = page.locator("tr", has_text="rehearsed-rehearsal")
    expect(row).to_contain_text("simulated people only")
    expect(row.locator("[data-state=rehearsal]")).to_have_text("rehearsal")

    reopened = httpx.put(
        f"{address}/api/experiments/rehearsed-rehearsal/state", json={"state": "open"}, auth=laboratory.login
    )
    assert reopened.status_code == 409
    assert "This is a rehearsal" in reopened.text
    second = httpx.post(f"{address}/api/experiments/rehearsed/rehearsal", json={"people": 3}, auth=laboratory.login)
    assert (second.status_code, "There is a rehearsal of this experiment already" in second.text) == (409, True)

    page.goto(base + "/")
    page.get_by_role("button", name="Remove the rehearsal").click()
    page.wait_for_url(re.compile(r"/console/experiments/rehearsed/settings$"))
    assert read("experiments/rehearsed-rehearsal").status_code == 404
    assert read("experiments/rehearsed").json()["state"] == "open"
    expect(page.get_by_role("button", name="Rehearse")).to_be_enabled()


def test_a_rehearsal_is_cancelled_while_its_people_answer(laboratory: Laboratory, page: Page) -> None:
    laboratory.launch("cut", SPEC.replace("max_queries: 25", "max_queries: 300"))
    address = laboratory.program.address
    laboratory.log_in(page)
    page.goto(f"{address}/console/experiments/cut/settings")
    page.get_by_role("button", name="Rehearse").click()
    page.wait_for_url(re.compile(r"/console/experiments/cut-rehearsal/$"))
    expect(page.locator("#rehearsal-progress")).to_contain_text(
        re.compile(r"[1-9]\d* of about 6,000 answers"), timeout=60_000
    )
    page.get_by_role("button", name="Cancel and remove the rehearsal").click()
    page.wait_for_url(re.compile(r"/console/experiments/cut/settings$"))

    def has_room() -> bool:
        reply = httpx.post(f"{address}/api/experiments/cut/rehearsal", json={"people": 1}, auth=laboratory.login)
        return reply.status_code == 201

    poll(has_room, "another rehearsal to begin")
    removed = httpx.request("DELETE", f"{address}/api/experiments/cut/rehearsal", auth=laboratory.login)
    assert removed.status_code == 200, removed.text
