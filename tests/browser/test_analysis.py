"""The analysis page: studies are planned with sliders, dimensions are compared, and a report is written."""

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from salmon.simulate import SimulatedParticipant, random_world, stream
from tests.browser.participant import Laboratory, assert_accessible, take_picture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

N, PEOPLE, EACH = 12, 20, 60
SPEC = f"title: Analysis\ntargets: {N}\nsamplers: {{Random: {{}}, Adaptive: {{d: 2}}}}\npayment: {{reward: 1.50}}\n"


@pytest.fixture(scope="module")
def analysed(laboratory: Laboratory) -> str:
    """The address of the page of an experiment with answers of people whose world has two dimensions."""
    world, rng = random_world(N, 2, 4), stream(4, "answers")
    queries = world.random_queries(PEOPLE * EACH, rng)
    answers, _ = SimulatedParticipant(world).react_all(queries, rng)
    lines = ["head,left,right,winner,puid,rt_ms"]
    for place, ((head, left, right), (_, won, _)) in enumerate(zip(queries, answers, strict=True)):
        lines.append(f"{head},{left},{right},{won},p{place % PEOPLE},900")
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=60) as client:
        reply = client.post(
            "/api/experiments/import",
            files={"bundle": ("answers.csv", "\n".join(lines).encode()), "config": ("a.yaml", SPEC.encode())},
            data={"name": "analysed"},
        )
        assert reply.is_success, reply.text
    return f"{laboratory.program.address}/console/experiments/analysed/analysis"


def set_slider(page: Page, name: str, said: str) -> None:
    """Move a slider until it says this; the last step is let go."""
    slider = page.locator(f"[data-assumed={name}]")
    slider.focus()
    slider.press("Home")
    for _ in range(30):
        if slider.get_attribute("aria-valuetext") == said:
            return
        slider.press("ArrowRight")
    raise AssertionError(f"{name} never says {said}")


def test_a_plan_is_refined_while_one_looks_and_follows_the_sliders(
    laboratory: Laboratory, analysed: str, page: Page
) -> None:
    laboratory.log_in(page)
    page.goto(analysed)
    expect(page.locator("[data-assumed=targets]")).to_have_attribute("aria-valuetext", str(N))
    page.get_by_role("button", name="Simulate studies").click()
    needed = page.locator("#plan-needed")
    expect(needed).to_contain_text("From 1 simulated study of 12 targets in 2 dimensions", timeout=60_000)
    expect(needed).to_contain_text("From 6 simulated studies", timeout=120_000)
    expect(page.locator("#plan-progress")).to_be_empty()
    rows = {name: page.locator(f"[data-contender='{name}']").inner_text() for name in ("random queries", "Adaptive")}
    at_random, chosen = (int(re.search(r"\t([\d,]+) \(", row)[1].replace(",", "")) for row in rows.values())  # type: ignore[index]
    assert 30 < chosen < at_random < 2000
    ethics = page.locator("#plan-texts details").first
    ethics.locator("summary").click()
    expect(ethics).to_contain_text("12 targets with queries by Adaptive")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"
    take_picture(page, "console-analysis.png", full_page=True)

    set_slider(page, "pay", "9 GBP")
    expect(needed.locator("thead")).to_contain_text("Pay", timeout=60_000)
    page.get_by_role("button", name="Cancel").first.click()
    expect(page.get_by_role("button", name="Cancel").first).to_be_hidden()

    page.reload()  # what was found is kept
    expect(page.locator("#plan-needed")).to_contain_text("simulated stud", timeout=30_000)


def test_dimensions_are_compared_and_the_true_one_is_chosen(laboratory: Laboratory, analysed: str, page: Page) -> None:
    laboratory.log_in(page)
    page.goto(analysed)
    for model in ("STE", "CKL"):
        page.get_by_label(model, exact=True).uncheck()
    page.get_by_role("button", name="Compare", exact=True).click()
    chosen = page.locator("#choice tr.chosen")
    expect(chosen).to_be_visible(timeout=120_000)
    expect(chosen.locator("th")).to_have_text("2")
    assert page.locator("#choice tbody tr").count() == 3
    shares = [float(cell.split()[0]) for cell in page.locator("#choice tbody td:nth-child(3)").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    expect(page.locator("#choice")).to_contain_text("Judged on 1,200 of 1,200 answers")
    assert_accessible(page)


def test_a_report_is_one_file_that_needs_nothing_else(laboratory: Laboratory, analysed: str, page: Page) -> None:
    laboratory.log_in(page)
    page.goto(analysed)
    with page.expect_download(timeout=180_000) as saved:
        page.get_by_role("button", name="Write the report").click()
    assert saved.value.suggested_filename == "analysed-report.html"
    report = saved.value.path().read_text()
    assert "1,200 answers" in report
    assert not re.search(r'(src|href)="https?:', report)
    expect(page.locator("#report-progress")).to_have_text("analysed-report.html was saved.")
    again = httpx.get(
        analysed.replace("/console/", "/api/").removesuffix("analysis") + "exports/report.html",
        auth=laboratory.login,
        timeout=180,
    )
    assert again.raise_for_status().headers["content-disposition"].startswith("attachment")
    assert "<h2>Methods</h2>" in again.text


RACE = f"title: Race\ntargets: {N}\nsamplers: {{wide: {{class: Random}}, narrow: {{class: Random}}}}\nsampling: {{race: 25%}}\n"


def test_a_race_is_judged_and_says_who_is_ahead(laboratory: Laboratory, page: Page) -> None:
    """The participants of one sampler answer by chance, so that its map predicts little."""
    world, rng = random_world(N, 2, 4), stream(4, "answers")
    looking, guessing = SimulatedParticipant(world), SimulatedParticipant(world, lapse=1.0)
    lines = ["head,left,right,winner,puid,rt_ms,sampler,trial_type"]
    for number, (head, left, right) in enumerate(world.random_queries(2400, rng).tolist()):
        held_out, person = number % 4 == 0, number // 60
        looks = held_out or person % 2 == 0
        winner = (looking if looks else guessing).react(head, left, right, rng).winner
        sampler, kind = ("wide", "narrow")[person % 2], "held_out" if held_out else "random"
        lines.append(f"{head},{left},{right},{winner},p{person},900,{sampler},{kind}")
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=60) as client:
        reply = client.post(
            "/api/experiments/import",
            files={"bundle": ("answers.csv", "\n".join(lines).encode()), "config": ("a.yaml", RACE.encode())},
            data={"name": "raced"},
        )
        assert reply.is_success, reply.text
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/raced/analysis")
    page.get_by_role("button", name="Judge the race").click()
    verdict = page.locator("#race-verdict p").first
    expect(verdict).to_have_text(
        re.compile(r"^wide is ahead of narrow by [\d.]+ points \(95 %: [\d.]+ to [\d.]+\), however often you look\.$"),
        timeout=120_000,
    )
    expect(page.locator("#race-progress")).to_be_empty(timeout=60_000)
    expect(page.locator("#race-verdict")).to_contain_text("of 600 held-out answers")
    expect(page.locator("[data-figure=race] canvas, [data-figure=race] svg").first).to_be_visible()
    assert page.locator("#race-verdict tbody tr").count() == 2
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"
    page.reload()
    expect(page.locator("#race-verdict p").first).to_contain_text("wide is ahead of narrow", timeout=30_000)


def test_where_no_samplers_race_the_page_has_no_race(laboratory: Laboratory, analysed: str, page: Page) -> None:
    laboratory.log_in(page)
    page.goto(analysed)
    expect(page.get_by_role("button", name="Write the report")).to_be_visible()
    expect(page.get_by_role("heading", name="Sampler race")).to_be_hidden()


GROUPS = f"title: Groups\ntargets: {N}\nsamplers: {{Random: {{}}}}\n"


def imported(laboratory: Laboratory, name: str, worlds: int) -> str:
    """The address of the page of an experiment with answers of 16 people who live in one of some worlds by turns."""
    rng = stream(7, "answers")
    seen = [SimulatedParticipant(random_world(N, 2, 50 + place)) for place in range(worlds)]
    lines = ["head,left,right,winner,puid,rt_ms"]
    for person in range(16):
        own = seen[person % worlds]
        queries = own.world.random_queries(120, rng)
        answers, _ = own.react_all(queries, rng)
        lines += [
            f"{head},{left},{right},{won},p{person},900"
            for (head, left, right), (_, won, _) in zip(queries, answers, strict=True)
        ]
    with httpx.Client(base_url=laboratory.program.address, auth=laboratory.login, timeout=60) as client:
        reply = client.post(
            "/api/experiments/import",
            files={"bundle": ("answers.csv", "\n".join(lines).encode()), "config": ("a.yaml", GROUPS.encode())},
            data={"name": name},
        )
        assert reply.is_success, reply.text
    return f"{laboratory.program.address}/console/experiments/{name}/analysis"


def test_people_of_two_worlds_are_shown_as_two_groups_with_their_maps_side_by_side(
    laboratory: Laboratory, page: Page
) -> None:
    address = imported(laboratory, "two-worlds", 2)
    laboratory.log_in(page)
    page.goto(address)
    page.get_by_role("button", name="Find groups").click()
    verdict = page.locator("#groups-verdict")
    expect(verdict).to_contain_text("People fall into 2 groups.", timeout=180_000)
    expect(verdict).to_contain_text("Every pair of maps differs more than those of shuffled groups (p at most 0.0")
    expect(page.locator("#group-maps figure")).to_have_count(2)
    expect(page.locator("[data-figure=people]")).to_be_visible()
    for group in (1, 2):
        expect(page.locator("#groups-found summary", has_text=f"Group {group}: 8 people")).to_be_visible()
    expect(page.locator("#groups-found caption")).to_have_count(3)
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window"


def test_people_of_one_world_are_not_split(laboratory: Laboratory, page: Page) -> None:
    address = imported(laboratory, "one-world", 1)
    laboratory.log_in(page)
    page.goto(address)
    page.get_by_role("button", name="Find groups").click()
    expect(page.locator("#groups-verdict")).to_contain_text("No split: people fall into one group.", timeout=180_000)
    expect(page.locator("#group-maps figure")).to_have_count(0)
