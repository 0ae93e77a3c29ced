"""An experiment with pictures, from launch to CSV, seen by a participant and an experimenter."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import take_picture
from tests.bundles import rows_of
from tests.program import Program

pytestmark = pytest.mark.browser

SPEC = """
html:
  title: Shapes
  instructions: Which of the two lower shapes is more like the upper one?
  max_queries: 10
samplers:
  Random: {}
"""
#: Requests for queries, but for those that are kept in hand.
OWN_TURN = re.compile(r"/query\?number=\d+$")


def test_ten_answers_by_keyboard_and_mouse_become_exactly_ten_rows_of_the_csv(
    program: Program, page: Page, examples: Path
) -> None:
    address = program.launch_text("shapes", SPEC, "--targets", str(examples / "shapes" / "targets.zip"))
    login = program.add_user()
    asked: list[dict[str, object]] = []
    page.on(
        "response",
        lambda response: asked.append(response.json()) if OWN_TURN.search(response.url) and response.ok else None,
    )
    page.goto(f"{address}?puid=first-participant")
    page.get_by_role("button", name="Begin").click()

    chosen: list[str] = []
    for number in range(10):
        expect(page.locator("#num-queries")).to_have_text(f"{number} / 10")
        expect(page.locator("#trial:not(.blank) #q-head img")).to_be_visible()
        if number == 3:
            take_picture(page, "participant-page.png")
        page.wait_for_timeout(250)  # by default the page ignores answers before 200 ms
        side = "left" if number % 3 else "right"
        if number % 2:
            page.keyboard.press("ArrowLeft" if side == "left" else "ArrowRight")
        else:
            page.locator(f"#q-{side}").click()
        chosen.append(side)

    expect(page.locator("#debrief")).to_be_visible()
    expect(page.locator("#puid")).to_have_text("first-participant")
    rows = rows_of(program.export("shapes", "responses.csv", login))
    queries = [query for query in asked if "token" in query]
    assert len(rows) == 10
    for row, query, side in zip(rows, queries, chosen, strict=True):
        assert [int(row[name]) for name in ("head", "left", "right")] == [
            query[name] for name in ("head", "left", "right")
        ]
        assert int(row["winner"]) == query[side]
        assert row["puid"] == "first-participant"
        assert row["winner_filename"].endswith((".png", ".svg"))
        assert 0.2 <= float(row["response_time"]) < 60
    assert [row["puid_num_responses"] for row in rows] == [str(number) for number in range(1, 11)]
    assert [row["input"] for row in rows] == ["mouse", "key"] * 5
