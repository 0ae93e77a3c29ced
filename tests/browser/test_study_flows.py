"""A paid study from the platform and back to it: each platform's whole way, second visits,
places, leaving, the payments.

The platforms are stand-ins that the browser finds under their own names; nothing leaves this machine.
"""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, Route, expect

from frontend.store import Store
from frontend.store.statuses import PlatformStatus
from salmon.cli.data_directory import DataDirectory
from tests.browser.participant import (
    LOCK_OUT_MS,
    Laboratory,
    Participant,
    assert_accessible,
    plain,
    slug_of,
    take_picture,
)
from tests.conftest import CHROMIUM_FLAGS

pytestmark = pytest.mark.browser

TRIALS = 2
CODE = "C0DE-7"


@dataclass(frozen=True)
class Platform:
    """A platform as the study meets it: what the file says, how people arrive, and where they are sent back to."""

    name: str
    recruitment: str
    ids: dict[str, str]
    submission: str = ""
    back: str = ""

    @property
    def spec(self) -> str:
        return plain(TRIALS).replace(f"{{completion_code: {CODE}}}", f"{{platform: {self.name}, {self.recruitment}}}")

    def link(self, address: str, **changes: str) -> str:
        return f"{address}?{httpx.QueryParams({**self.ids, **changes})}"


PLATFORMS = [
    Platform(
        "prolific",
        f"completion_code: {CODE}, screen_out_code: 0UT-8",
        {"PROLIFIC_PID": "5f00000000000000000000aa", "STUDY_ID": "st1", "SESSION_ID": "se1"},
        "SESSION_ID",
        f"https://app.prolific.com/submissions/complete?cc={CODE}",
    ),
    Platform(
        "connect",
        "connect: {project: ABCD1234}",
        {"participantId": "C1", "assignmentId": "A1", "projectId": "ABCD1234"},
        "assignmentId",
        "https://connect.cloudresearch.com/participant/project/ABCD1234/complete",
    ),
    Platform(
        "sona",
        "sona: {school: psych-uni, experiment_id: 9, credit_token: abcdef012345}",
        {"survey_code": "4711"},
        "",
        "https://psych-uni.sona-systems.com/webstudy_credit.aspx"
        "?experiment_id=9&credit_token=abcdef012345&survey_code=4711",
    ),
    Platform("link", f"completion_code: {CODE}", {"puid": "ada"}),
]


@dataclass
class StandIn:
    """Pages under the platforms' names; `visited` are the addresses that people were sent back to."""

    visited: list[str] = field(default_factory=list)

    def serve(self, page: Page) -> None:
        for host in ("app.prolific.com", "connect.cloudresearch.com", "psych-uni.sona-systems.com"):
            page.route(f"https://{host}/**", self._answer)

    def _answer(self, route: Route) -> None:
        self.visited.append(route.request.url)
        route.fulfill(content_type="text/html", body="<p>Thank you, the platform knows.</p>")


@pytest.fixture
def stand_in(page: Page) -> StandIn:
    made = StandIn()
    made.serve(page)
    return made


def tell(laboratory: Laboratory, address: str, source: str, puid: str, status: PlatformStatus) -> None:
    """Let the platform say something about somebody's submission, as a message of its would be stored."""

    async def note() -> None:
        directory = DataDirectory(Path(laboratory.program.data))
        store = Store.open(directory.redis_url("frontend", directory.credentials().frontend))
        experiment = await store.experiments.find(slug_of(address))
        assert experiment is not None
        participant = (await store.export_reader.read_arrivals(experiment))[f"{source}:{puid}"]
        await store.participants.note_platform_status(experiment, participant, status, 10**12)
        await store.close()

    with ThreadPoolExecutor(1) as thread:  # the browser has an event loop in this one
        thread.submit(asyncio.run, note()).result()


def people_of(laboratory: Laboratory, address: str) -> dict[str, dict[str, str]]:
    """Return the payment of each, by the platform's id."""
    slug = slug_of(address)
    url = f"{laboratory.program.address}/api/experiments/{slug}/payment"
    reply = httpx.get(url, auth=laboratory.login, timeout=60).raise_for_status().json()
    return {row["platform_id"]: row for row in reply["rows"]}


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
def test_the_whole_way_of_a_platform(
    laboratory: Laboratory,
    page: Page,
    new_page: Callable[..., Page],
    stand_in: StandIn,
    platform: Platform,
) -> None:
    address = laboratory.launch(f"way-{platform.name}", platform.spec)
    somebody = Participant(page)
    somebody.open(platform.link(address))
    somebody.answer(1)
    elsewhere = Participant(new_page())
    elsewhere.page.goto(platform.link(address))
    elsewhere.ready()
    assert elsewhere.count() == 1, "another browser with the same id goes on"
    page.reload()  # and the first takes over again
    somebody.ready()
    assert somebody.count() == 1
    assert CODE not in page.content()
    somebody.answer(1)
    if platform.back:
        somebody.button("Finish and return").click()
        page.wait_for_url(platform.back)
        assert stand_in.visited == [platform.back]
    else:
        assert somebody.code() == CODE
    again = new_page()
    stand_in.serve(again)
    again.goto(platform.link(address))
    if platform.back:
        again.get_by_role("button", name="Finish and return").click()
        again.wait_for_url(platform.back)
    else:
        assert Participant(again).code() == CODE
    if platform.submission:
        late = new_page()
        late.goto(platform.link(address, **{platform.submission: "another"}))
        expect(late.get_by_text("You have already taken part in this study")).to_be_visible()
    assert laboratory.participants(address) == 1
    assert len(laboratory.rows(address)) == TRIALS
    (paid,) = people_of(laboratory, address).values()
    assert paid["action"] == "pay"


def test_somebody_who_ran_out_of_time_finishes_gets_the_code_and_is_paid_by_hand(
    laboratory: Laboratory, page: Page, stand_in: StandIn
) -> None:
    prolific = PLATFORMS[0]
    address = laboratory.launch("timed-out", prolific.spec)
    somebody = Participant(page).open(prolific.link(address))
    somebody.answer(1)
    tell(laboratory, address, "prolific", prolific.ids["PROLIFIC_PID"], PlatformStatus.TIMED_OUT)
    somebody.answer(1)
    somebody.button("Finish and return").click()
    page.wait_for_url(prolific.back)
    assert people_of(laboratory, address)[prolific.ids["PROLIFIC_PID"]]["action"] == "pay by hand"


def test_a_returned_place_is_free_for_the_next_and_the_full_page_speaks_the_language_of_the_study(
    laboratory: Laboratory, page: Page, new_page: Callable[..., Page]
) -> None:
    prolific = PLATFORMS[0]
    spec = prolific.spec.replace("page: {", "page: {language: de, ") + "stopping: {participants: 1}\n"
    address = laboratory.launch("one-place", spec)
    page.goto(prolific.link(address))
    page.get_by_role("button", name="Beginnen").click()
    Participant(page).ready()
    second = new_page()
    second.goto(prolific.link(address, PROLIFIC_PID="second", SESSION_ID="se2"))
    expect(second.get_by_text("Alle Plätze dieser Studie sind zurzeit vergeben.")).to_be_visible()
    assert_accessible(second)
    assert laboratory.participants(address) == 1, "nothing is stored of them"
    tell(laboratory, address, "prolific", prolific.ids["PROLIFIC_PID"], PlatformStatus.RETURNED)
    second.get_by_role("button", name="Noch einmal versuchen").click()
    expect(second.get_by_role("button", name="Beginnen")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Das ist das Ende der Studie.")).to_be_visible()


def test_a_study_that_is_not_open_yet_says_when_it_opens(laboratory: Laboratory, page: Page) -> None:
    address = laboratory.launch(
        "early", plain(1).replace("recruitment: {", "recruitment: {opens_at: 2099-05-01 08:30, ")
    )
    page.goto(f"{address}?puid=ada")
    expect(page.get_by_text("This study is not open yet.")).to_be_visible()
    assert laboratory.participants(address) == 0


def test_somebody_withdraws_in_the_middle_of_the_trials_after_being_asked_once_more(
    laboratory: Laboratory, page: Page
) -> None:
    address = laboratory.launch("withdrawn", plain(5, "consent: {text: You can stop at any time.}\n"))
    somebody = Participant(page)
    page.goto(f"{address}?puid=ada")
    withdraw = page.locator("#withdraw")
    expect(page.get_by_role("button", name="Begin")).to_be_visible()
    assert withdraw.is_hidden(), "nobody has agreed to anything yet"
    somebody.button("Begin").click()
    somebody.button("I agree").click()
    somebody.answer(2)
    somebody.ready()
    withdraw.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Do you want to stop here and withdraw")
    assert_accessible(page)
    page.keyboard.press("ArrowLeft")
    dialog.get_by_role("button", name="Continue").click()
    assert somebody.count() == 2, "no key answered while the question stood there"
    somebody.answer(1)
    somebody.ready()
    withdraw.click()
    dialog.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("You have withdrawn from this study.")).to_be_visible()
    assert withdraw.is_hidden()
    (row,) = laboratory.lines(address, "participants.jsonl")
    assert (row["status"], row["answers"], row["keep"]) == ("withdrawn", 3, False)
    assert people_of(laboratory, address)["ada"]["action"] == "look at"
    # The page Participants leads the experimenter to the erasure.
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/withdrawn/participants")
    expect(page.locator("#as-of")).to_contain_text("1 participant withdrew: what they gave is kept until you erase it.")
    page.get_by_role("link", name="Erase ada").click()
    expect(page.locator("#person tbody tr")).to_have_count(1)
    expect(page.locator("#person tbody tr")).to_contain_text(re.compile("ada.*withdrawn.*3 answers"))


def test_mechanical_turk_in_a_frame_of_another_origin_without_any_cookies(
    laboratory: Laboratory, browser: Browser, chromium: str
) -> None:
    spec = plain(TRIALS).replace(f"{{completion_code: {CODE}}}", "{platform: mturk}")
    address = laboratory.launch("turk-frame", spec)
    slug = slug_of(address)
    sent: list[dict[str, list[str]]] = []

    def serve_study(route: Route) -> None:
        at = urlsplit(route.request.url)
        if at.path == "/cookie":
            body = "<script>document.cookie = 'x=1; SameSite=None; Secure'; document.title = document.cookie</script>"
            route.fulfill(content_type="text/html", body=body)
            return
        route.fulfill(
            response=route.fetch(url=route.request.url.replace("https://study.test", laboratory.program.address))
        )

    def serve_turk(route: Route) -> None:
        if route.request.method == "POST":
            sent.append(parse_qs(route.request.post_data or ""))
            route.fulfill(content_type="text/html", body="<p>Done.</p>")
            return
        query = urlsplit(route.request.url).query
        frames = f"<iframe id=task src='https://study.test/e/{slug}/?{query}' height=700 width=900></iframe>"
        route.fulfill(
            content_type="text/html", body=f"{frames}<iframe id=cookie src='https://study.test/cookie'></iframe>"
        )

    def task(page: Page, ids: str) -> FrameLocator:
        page.goto(f"https://workersandbox.mturk.com/task?{ids}")
        return page.frame_locator("#task")

    ids = "assignmentId=A1&hitId=H1&workerId=W1&turkSubmitTo=https%3A%2F%2Fworkersandbox.mturk.com"
    flags = [*CHROMIUM_FLAGS, "--test-third-party-cookie-phaseout"]
    with (
        browser.browser_type.launch(executable_path=chromium, args=flags) as strict,
        strict.new_context(viewport={"width": 1280, "height": 900}) as context,
    ):
        page = context.new_page()
        page.route("https://study.test/**", serve_study)
        page.route("https://workersandbox.mturk.com/**", serve_turk)

        preview = task(page, "assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=H1")
        expect(preview.get_by_text("This is a preview.")).to_be_visible()
        assert laboratory.participants(address) == 0
        (cookie,) = [each for each in page.frames if each.url.endswith("/cookie")]
        assert cookie.title() == "", "the browser keeps no cookies of frames"

        frame = task(page, ids)
        frame.get_by_role("button", name="Begin").click()
        for number in range(TRIALS):
            expect(frame.locator("#num-queries")).to_have_text(f"{number} / {TRIALS}" if number else f"0 / {TRIALS}")
            frame.locator("#q-left:not(.disabled)").wait_for()
            page.wait_for_timeout(LOCK_OUT_MS)
            frame.locator("#q-left").click()
        frame.get_by_role("button", name="Submit").click()
        expect(frame.get_by_text("Done.")).to_be_visible()
        assert sent == [{"assignmentId": ["A1"], "answers": [str(TRIALS)]}]

        again = task(page, ids)
        expect(again.get_by_role("button", name="Submit")).to_be_visible()
        other = task(page, ids.replace("A1", "A2"))
        expect(other.get_by_text("You have already taken part in this study")).to_be_visible()
        assert context.cookies() == []
    assert laboratory.participants(address) == 1


def test_the_payment_page_lists_everybody_with_reasons_sums_and_files(laboratory: Laboratory, page: Page) -> None:
    prolific = PLATFORMS[0]
    payment = "payment: {reward: 2.50, bonus: [{amount: 0.25, answers: 2}]}\n"
    address = laboratory.launch("payment-page", prolific.spec + payment)
    with httpx.Client(base_url=address) as client:
        for name, answers in (("p-done", 2), ("p-late", 2), ("p-left", 1)):
            ids = {"PROLIFIC_PID": name, "SESSION_ID": f"s-{name}"}
            arrival = client.post("arrive", json={"parameters": ids}).raise_for_status().json()
            client.headers["X-Salmon-Session"] = arrival["session"]
            for _ in range(answers):
                query = client.get("query").raise_for_status().json()
                client.post("answers", json={"token": query["token"], "winner": query["left"]}).raise_for_status()
            client.post("finish", json={"given": 2})
    tell(laboratory, address, "prolific", "p-late", PlatformStatus.TIMED_OUT)
    laboratory.log_in(page)
    page.goto(f"{laboratory.program.address}/console/experiments/payment-page/")
    page.get_by_role("link", name="Payment").click()
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text="p-done").first).to_contain_text("They finished.")
    expect(rows.filter(has_text="p-late").first).to_contain_text("Pay by hand")
    expect(rows.filter(has_text="p-left")).to_contain_text("have not finished")
    expect(page.locator("#sums")).to_contain_text("2 participants, 0.50 GBP")
    assert_accessible(page)
    take_picture(page, "payment.png")
    with page.expect_download() as started:
        page.get_by_role("link", name="People to pay for Prolific").click()
    assert started.value.path().read_text() == "p-done\n"
    with page.expect_download() as started:
        page.get_by_role("link", name="Bonuses for Prolific").click()
    assert started.value.path().read_text() == "p-done,0.25\np-late,0.25\n"
