"""An experimenter makes a study at Prolific, raises its places and approves it, in the
console, against the stand-in.
"""

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import Laboratory, assert_accessible, take_picture
from tests.program import Program
from tests.prolific import SPEC, TERMS, TOKEN, StandIn, stand_in

BONUS = "reward: 1.50, bonus: [{amount: 0.25, answers: 1}]"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def prolific() -> Iterator[StandIn]:
    with stand_in() as made:
        yield made


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, prolific: StandIn) -> Iterator[Program]:
    with Program(tmp_path_factory.mktemp("data"), {"SALMON_PROLIFIC_URL": prolific.address}) as started:
        yield started


def take_part(address: str, prolific: StandIn, study: str, number: int) -> None:
    person, submission = prolific.submit(study, number)
    parameters = {"PROLIFIC_PID": person, "STUDY_ID": study, "SESSION_ID": submission}
    with httpx.Client(base_url=address) as client:
        arrival = client.post("arrive", json={"parameters": parameters}).raise_for_status().json()
        session = {"X-Salmon-Session": arrival["session"]}
        query = client.get("query", headers=session).raise_for_status().json()
        client.post("answers", json={"token": query["token"], "winner": query["left"]}).raise_for_status()
        client.post("finish", json={"given": 1}, headers=session).raise_for_status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_study_from_the_token_to_the_approval(
    laboratory: Laboratory,
    new_page: Callable[..., Page],
    prolific: StandIn,
    scheme: str,
) -> None:
    address = laboratory.launch(
        f"paid-{scheme}", SPEC.replace("{TERMS}", f"{{{TERMS}}}").replace("reward: 1.50", BONUS)
    )
    page = new_page(viewport={"width": 1280, "height": 1100}, color_scheme=scheme)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    laboratory.log_in(page)
    tab = address.replace("/e/", "/console/experiments/") + "recruitment"

    page.goto(tab)
    expect(page.locator("#prolific-state")).to_contain_text("no token for Prolific")
    page.get_by_role("link", name="Enter it on the page Account").click()
    page.fill("#prolific [name=token]", "a-token-that-prolific-does-not-know")
    page.get_by_role("button", name="Save token").click()
    expect(page.locator("#prolific .outcome")).to_contain_text("does not know the token")
    page.fill("#prolific [name=token]", TOKEN)
    page.get_by_role("button", name="Save token").click()
    expect(page.locator("#prolific-sentence")).to_contain_text("There is a token for the workspace Lab")
    assert TOKEN not in page.content()
    expect(page.locator("#prolific [name=token]")).to_have_value("")
    assert_accessible(page)

    page.goto(tab)
    expect(page.locator("#prolific-facts")).to_contain_text("15.00")
    page.get_by_role("button", name="Create the draft study").click()
    expect(page.locator("#prolific .question")).to_contain_text("promises 15.00 GBP for 10 places")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#prolific .question")).to_be_hidden()
    before = len(prolific.studies)
    page.get_by_role("button", name="Create the draft study").click()
    page.get_by_role("button", name="Create the draft", exact=True).click()
    expect(page.locator("#prolific-state")).to_contain_text("The study is unpublished")
    assert len(prolific.studies) == before + 1
    study = list(prolific.studies)[-1]

    page.fill("#prolific-places [name=places]", "30")
    page.locator("#prolific-places button").click()
    page.locator("#prolific .question").get_by_role("button", name="Raise places").click()
    expect(page.locator("#prolific .orders")).to_contain_text("spend_at_most is 20.00")
    page.fill("#prolific-places [name=places]", "12")
    page.locator("#prolific-places button").click()
    expect(page.locator("#prolific .question")).to_contain_text("2 further places of 1.50 GBP: 3.00 GBP")
    page.locator("#prolific .question").get_by_role("button", name="Raise places").click()
    expect(page.locator("#prolific-facts")).to_contain_text("0 of 12 taken")

    number = 500 if scheme == "light" else 600
    for place in range(2):
        take_part(address, prolific, study, number + place)
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("#prolific-facts")).to_contain_text("2 awaiting review")
    assert_accessible(page)
    take_picture(page.locator("#prolific"), f"console-prolific-study-{scheme}.png")
    page.locator("#prolific").get_by_role("link", name="Payment").click()
    expect(page.locator("#prolific-sentence")).to_contain_text("18.00 GBP of 20.00 GBP")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#prolific .question")).to_contain_text("approves 2 submissions and pays 3.00 GBP")
    prolific.lose.add("bulk-approve")
    page.get_by_role("button", name="Pay 3.00 GBP").click()
    expect(page.locator("#prolific .orders")).to_contain_text("nothing is paid twice")
    expect(page.locator("#prolific-payments")).to_contain_text("not confirmed")
    assert_accessible(page)
    page.locator("#prolific-payments").get_by_role("button", name="Check").click()
    expect(page.locator("#prolific .orders")).to_contain_text("has confirmed the payment")
    assert len([each for each in prolific.approvals if prolific.submissions[each]["study_id"] == study]) == 2
    page.get_by_role("button", name="Pay bonuses").click()
    expect(page.locator("#prolific .question")).to_contain_text("bonuses of 0.50 GBP to 2 participants")
    page.get_by_role("button", name="Pay 0.50 GBP").click()
    expect(page.locator("#prolific .orders")).to_contain_text("has confirmed the payment")
    assert [amount for each, amount in prolific.paid if prolific.submissions[each]["study_id"] == study] == [0.25, 0.25]
    page.get_by_role("button", name="Pay bonuses").click()
    expect(page.locator("#prolific .orders")).to_contain_text("nobody to pay through Prolific")
    assert_accessible(page)
    take_picture(page.locator("#prolific"), f"console-prolific-desktop-{scheme}.png")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert_accessible(page)
    take_picture(page.locator("#prolific"), f"console-prolific-phone-{scheme}.png")

    page.goto(f"{laboratory.program.address}/console/account")
    page.get_by_role("button", name="Remove token").click()
    expect(page.locator("#prolific-sentence")).to_contain_text("With a token")
    assert not errors, errors


def test_the_section_is_about_studies_at_prolific_only(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch("elsewhere", "targets: 4\nsamplers: {Random: {}}\n")
    laboratory.log_in(page)
    page.goto(address.replace("/e/", "/console/experiments/") + "recruitment")
    expect(page.locator("#steps li").first).to_be_visible()
    expect(page.locator("#prolific")).to_be_hidden()
