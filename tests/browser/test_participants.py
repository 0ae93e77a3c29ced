"""The participants page with 200 simulated people: the careless come first, and decisions reach every file."""

import re
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

from salmon.simulate import SimulatedParticipant, egg_world, stream
from tests.browser.participant import Laboratory, assert_accessible, box_of, download, take_picture
from tests.bundles import rows_of
from tests.program import poll

pytestmark = [pytest.mark.browser, pytest.mark.slow]

N, EACH = 30, 60
PEOPLE = {"careful": 190, "flipper": 5, "clicker": 5}
SCREENS = {"phone": (360, 640), "desktop": (1280, 800), "wide": (1920, 1080), "uhd": (3840, 2160)}
SPEC = "title: Eggs\ntargets: 30\nhtml: {max_queries: 60}\nsamplers: {Random: {}, Adaptive: {d: 2}}\n"


@dataclass(frozen=True)
class Crowd:
    """An experiment with answers of 200 people; `sides` is what each of them chose, in order."""

    laboratory: Laboratory
    sides: dict[str, list[str]]

    def read(self) -> dict[str, dict[str, Any]]:
        """What the server says of everybody, by platform id."""
        url = f"{self.laboratory.program.address}/api/experiments/eggs/participants"
        reply = httpx.get(url, params={"wait": "yes"}, auth=self.laboratory.login, timeout=60).raise_for_status().json()
        assert reply["fresh"]
        return {person["puid"]: person for person in reply["participants"]}


def answers_of_people() -> tuple[list[str], dict[str, list[str]]]:
    """Lines of a CSV file, and the sides that each person chose."""
    world, rng = egg_world(N), stream(3, "sides")
    names = [f"{kind}{number:03d}" for kind, count in PEOPLE.items() for number in range(count)]
    lines, sides = ["head,left,right,winner,puid,rt_ms"], {}
    for place in rng.permutation(len(names)).tolist():
        name, own = names[place], stream(3, "answers", place)
        lapse, bias, median_ms = {
            "careful": (float(rng.beta(1, 20)), float(rng.uniform(-1, 1)), 1400.0),
            "flipper": (1.0, 0.0, 900.0),
            "clicker": (float(rng.uniform(0.8, 1.0)), float(rng.choice([-1.0, 1.0])), 900.0),
        }[name.rstrip("0123456789")]
        someone = SimulatedParticipant(world, lapse, bias, median_ms * float(np.exp(0.3 * rng.normal())))
        queries = world.random_queries(EACH, own)
        queries[:, 1:] = own.permuted(queries[:, 1:], axis=1)
        triplets, times = someone.react_all(queries, own)
        sides[name] = [
            "left" if won == left else "right" for (_, won, _), (_, left, _) in zip(triplets, queries, strict=True)
        ]
        lines += [
            f"{head},{left},{right},{won},{name},{rt_ms:.0f}"
            for (head, left, right), (_, won, _), rt_ms in zip(queries, triplets, times, strict=True)
        ]
    return lines, sides


@pytest.fixture(scope="module")
def crowd(laboratory: Laboratory) -> Crowd:
    lines, sides = answers_of_people()
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=120) as client:
        reply = client.post(
            "/api/experiments/import",
            files={"bundle": ("answers.csv", "\n".join(lines).encode()), "config": ("eggs.yaml", SPEC.encode())},
            data={"name": "eggs"},
        )
        assert reply.is_success, reply.text
        # Whoever looks before there is a map sees the same figures later as whoever comes then.
        client.get("/api/experiments/eggs/participants", params={"wait": "yes"}).raise_for_status()

        def maps() -> list[object]:
            return client.get("/api/experiments/eggs/history", params={"sampler": "Adaptive"}).json()["maps"]

        state = "/api/experiments/eggs/state"
        client.put(state, json={"state": "open"}).raise_for_status()
        poll(maps, "a map of the answers", seconds=200)
        client.put(state, json={"state": "paused"}).raise_for_status()
    return Crowd(laboratory, sides)


def open_page(page: Page, crowd: Crowd) -> None:
    """Open the participants page and wait until everybody is there with figures that are up to date."""
    crowd.laboratory.log_in(page)
    page.goto(f"{crowd.laboratory.program.address}/console/experiments/eggs/participants")
    expect(page.locator("#table tbody tr")).to_have_count(200)
    expect(page.locator("#as-of")).not_to_contain_text("Updating")


#: Of every row: the platform's id, and the texts of the cells by their column.
READ = """() => {
  const columns = [...document.querySelectorAll("#table thead th")].map((cell) => cell.dataset.name);
  return [...document.querySelectorAll("#table tbody tr")].map((row) =>
    [row.querySelector("button").textContent, Object.fromEntries([...row.cells].map((cell, place) => [columns[place], cell.textContent]))]);
}"""


def is_careless(name: str) -> bool:
    return not name.startswith("careful")


def test_the_most_careless_come_first_with_their_fit_beside_the_name(crowd: Crowd, page: Page) -> None:
    truth = crowd.read()
    open_page(page, crowd)
    rows: list[tuple[str, dict[str, str]]] = page.evaluate(READ)
    assert {name for name, _ in rows} == set(crowd.sides)
    evidence = [truth[name]["figures"]["careless_p"] for name, _ in rows]
    assert evidence == sorted(evidence)
    assert all(is_careless(name) for name, _ in rows[:8]), [name for name, _ in rows[:12]]
    for name, cells in rows:
        figures = truth[name]["figures"]
        share, expected = re.findall(r"(\d+) %", cells["fit_accuracy"])
        assert (int(share), int(expected)) == (
            round(100 * figures["fit_accuracy"]),
            round(100 * figures["fit_expected"]),
        )
        assert int(cells["answers"]) == EACH
        assert int(cells["left_share"].removesuffix(" %")) == round(100 * crowd.sides[name].count("left") / EACH)
        assert cells["keep"].startswith("✓ kept" if truth[name]["keep"] else "? proposed for exclusion")
        assert bool(truth[name]["flags"]) == bool(cells["reasons"])
    careful = [truth[name] for name in truth if not is_careless(name)]
    assert np.mean([bool(person["flags"]) for person in careful]) <= 0.05
    assert np.mean([not person["keep_auto"] for person in careful]) <= 0.01
    found = [name for name in truth if is_careless(name) and truth[name]["flags"]]
    assert len(found) >= 9, found
    proposed = sum(not person["keep"] for person in truth.values())
    assert f" {proposed} proposed for exclusion, 0 excluded." in page.locator("#as-of").inner_text()
    assert page.locator("#propose").inner_text() == f"Select the {proposed} proposed"


def test_the_overview_names_those_who_wait_for_a_decision(crowd: Crowd, page: Page) -> None:
    proposed = [person for person in crowd.read().values() if not person["keep"]]
    open_page(page, crowd)
    page.get_by_role("link", name="Overview").click()
    row = page.locator("#sentences li").filter(has_text="look careless")
    expect(row.locator("b")).to_have_text(f"{len(proposed)} participants look careless.", timeout=60_000)
    expect(page.locator("#sentences")).not_to_contain_text("No problems.")
    row.get_by_role("link", name="Review them").click()
    expect(page.get_by_role("heading", name="Participants", exact=True)).to_be_visible()
    page.locator("#propose").click()
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator("#decided")).to_have_text(f"{len(proposed)} participants kept.")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#sentences li").first).to_be_visible()
    expect(page.locator("#sentences")).not_to_contain_text("look careless")
    page.get_by_role("link", name="Participants").click()
    page.locator("#propose").click()
    page.get_by_role("button", name="Leave to the proposal").click()
    expect(page.locator("#decided")).to_have_text(f"{len(proposed)} participants left to the proposal.")


def test_the_name_stays_while_the_table_is_scrolled(crowd: Crowd, page: Page) -> None:
    open_page(page, crowd)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    row, region = page.locator("#table tbody tr").first, page.get_by_role("region", name="Participants table")
    name, fit = row.locator("th"), row.locator("td").first
    before = box_of(name)
    for cell in (before, box_of(fit)):
        assert cell["x"] >= 0
        assert cell["x"] + cell["width"] <= 1280
    assert box_of(fit)["x"] == pytest.approx(before["x"] + before["width"], abs=1)
    region.evaluate("(region) => region.scrollTo(region.scrollWidth, 0)")
    assert box_of(name)["x"] == before["x"]
    assert box_of(fit)["x"] < before["x"] + before["width"], "the table is not wider than the page"
    shown = box_of(row.locator("td").last)
    assert shown["x"] + shown["width"] <= 1280


def test_a_name_leads_to_the_answers_in_order(crowd: Crowd, page: Page) -> None:
    truth = crowd.read()
    open_page(page, crowd)
    for name in ("careful007", "flipper002", "clicker003"):
        page.get_by_role("button", name=f"Answers of {name}").click()
        expect(page.get_by_role("heading", name=f"Answers of {name}")).to_be_focused()
        marks = page.locator("#answers-figure svg path")
        expect(marks).to_have_count(EACH)
        told = marks.locator("title").all_text_contents()
        assert [re.split(r"[:,] ", words)[1] for words in told] == crowd.sides[name]
        assert [int(words.split(":")[0]) for words in told] == list(range(1, EACH + 1))
        left = crowd.sides[name].count("left")
        predicted = sum("as the map predicts" in words for words in told)
        words = page.locator("#answers-words").inner_text()
        assert words == f"60 answers, {left} on the left. The map predicts {predicted} of 60."
        assert predicted / EACH == pytest.approx(truth[name]["figures"]["fit_accuracy"])
        points = marks.evaluate_all(
            "(all) => all.map((mark) => mark.getAttribute('d').match(/^M(\\S+) \\S+ L(\\S+)/).slice(1).map(Number))"
        )
        assert ["left" if tip < back else "right" for tip, back in points] == crowd.sides[name]
    assert_accessible(page)
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("#answers")).to_be_hidden()


def test_thresholds_show_who_is_beyond_them_and_the_accuracy_without_those(crowd: Crowd, page: Page) -> None:
    truth = crowd.read()
    open_page(page, crowd)
    fits = {name: person["figures"]["fit_accuracy"] for name, person in truth.items()}
    fast = {name for name, person in truth.items() if person["figures"]["geometric_mean_rt_ms"] < 700}
    page.locator("#thresholds summary").click()
    expect(page.locator("#thresholds [role=status]")).to_have_text("All sliders are off.")
    page.get_by_label("Fit", exact=True).fill("3")
    expect(page.locator("#thresholds output").nth(1)).to_have_text("below 60 %")
    low = {name for name, fit in fits.items() if fit < 0.6}
    kept = sum(truth[name]["keep"] for name in low)
    summary = "{} participants of 200 beyond a threshold; {} of them are kept now."
    expect(page.locator("#thresholds [role=status]")).to_have_text(summary.format(len(low), kept))
    page.get_by_label("Response time", exact=True).fill("5")
    both = low | fast
    kept = sum(truth[name]["keep"] for name in both)
    expect(page.locator("#thresholds [role=status]")).to_have_text(summary.format(len(both), kept))
    page.get_by_role("button", name="Select them").click()
    expect(page.locator("#selected")).to_have_text(f"{len(both)} participants selected")
    page.get_by_label("Response time", exact=True).fill("0")
    page.get_by_role("button", name="Accuracy without them").click()
    expect(page.locator("#comparison")).to_contain_text(
        f"without the {len(low)} beyond the thresholds", timeout=120_000
    )
    expect(page.locator("#comparison")).to_contain_text("percentage points")
    assert {name: person["keep"] for name, person in crowd.read().items()} == {
        name: person["keep"] for name, person in truth.items()
    }
    assert_accessible(page)
    page.set_viewport_size({"width": 360, "height": 640})
    page.locator("#thresholds").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_proposed_are_excluded_together_with_a_note_and_undo_restores_them(crowd: Crowd, page: Page) -> None:
    before = crowd.read()
    proposed = {name for name, person in before.items() if not person["keep_auto"]}
    assert len(proposed) >= 8
    open_page(page, crowd)
    page.locator("#propose").click()
    expect(page.locator("#selected")).to_have_text(f"{len(proposed)} participants selected")
    ticked = (
        page.locator("#table tbody tr").filter(has=page.locator("input:checked")).locator("button").all_inner_texts()
    )
    assert set(ticked) == proposed
    page.get_by_label("Note, included in every export").fill("guessed, or always one side")
    page.get_by_role("button", name="Exclude", exact=True).click()
    expect(page.locator("#decided")).to_have_text(f"{len(proposed)} participants excluded.")
    noted = page.locator("#table tbody tr").filter(has_text="guessed, or always one side")
    expect(noted).to_have_count(len(proposed))
    for name, cells in page.evaluate(READ):
        assert cells["keep"].startswith("✕ excluded" if name in proposed else "✓ kept"), name
        assert cells["note"] == ("guessed, or always one side" if name in proposed else "")
    ids = {before[name]["participant"] for name in proposed}
    rows = exported(crowd)
    assert {row["participant"] for row in rows if row["keep"] == "false"} == ids
    assert {row["note"] for row in rows if row["participant"] in ids} == {"guessed, or always one side"}
    assert len(rows) == 200
    table = rows_of(download(page, "CSV"))
    assert {row["puid"] for row in table if row["keep"] == "excluded"} == proposed
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#decided")).to_have_text(f"{len(proposed)} participants as before.")
    expect(page.locator("#undo")).to_be_hidden()
    after = crowd.read()
    same = ("keep", "keep_manual", "note")
    assert [[person[name] for name in same] for person in after.values()] == [
        [before[puid][name] for name in same] for puid in after
    ]
    assert {row["note"] for row in exported(crowd)} == {""}


def exported(crowd: Crowd) -> list[dict[str, str]]:
    return rows_of(crowd.laboratory.program.export("eggs", "participants.csv", crowd.laboratory.login))


def test_with_200_people_the_page_fits_every_screen_and_is_accessible(crowd: Crowd, page: Page) -> None:
    open_page(page, crowd)
    assert_accessible(page)
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.locator("#table" if screen == "phone" else "h2").first.evaluate("(element) => element.scrollIntoView()")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            take_picture(page, f"participants-200-{screen}-{scheme}.png")
