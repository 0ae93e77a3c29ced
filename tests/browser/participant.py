"""Helpers of browser tests: act as a participant, and read the answers as the experimenter."""

import io
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import FloatRect, Locator, Page, expect

from tests.bundles import rows_of
from tests.program import REPOSITORY, Program

READY = "#trial:not([hidden]):not(.blank) #q-left:not(.disabled)"
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
LOCK_OUT_MS = 130  # these tests ignore answers for the shortest allowed time, 100 ms

#: Every step of the page; short waits, so that tests are short.
EVERYTHING = """
targets: [red, orange, yellow, green, blue, purple]
title: Colour words
html: {instructions: Which of the two is more like the <b>upper</b> one?, max_queries: 4}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
consent: {text: You compare words. You can stop at any time., decline_url: "https://example.org/declined"}
instructions:
  - text: You will see one word above and two below.
  - text: Choose the lower word that is more like the upper one.
practice: {queries: [[0, 1, 4, 1], [4, 5, 2, 5]]}
comprehension:
  questions:
    - {text: What do you choose?, options: [the more similar word, the nicer word], answer: the more similar word}
questions:
  - {name: age, text: How old are you?, type: number}
  - {name: screen, text: What did you use?, type: choice, options: [a computer, a phone], required: true}
  - {name: remarks, text: Was anything unclear?}
recruitment: {completion_code: C0DE-7}
"""

#: Nothing but trials.
PLAIN = """
targets: [red, orange, yellow, green, blue, purple, pink, brown]
html: {max_queries: COUNT}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
recruitment: {completion_code: C0DE-7}
"""


#: The same about targets from a ZIP.
MEDIA = """
html: {max_queries: COUNT}
samplers: {Random: {}}
page: {min_rt_ms: 100, blank_ms: 20}
"""


def plain(count: int, extra: str = "") -> str:
    return PLAIN.replace("COUNT", str(count)) + extra


@dataclass
class Laboratory:
    """A running program and the account of an experimenter on it."""

    program: Program
    login: tuple[str, str]

    def launch(self, name: str, spec: str, archive: Path | None = None) -> str:
        """Launch and open an experiment; return its address for participants."""
        files: dict[str, tuple[str, bytes]] = {"spec": ("spec.yaml", spec.encode())}
        if archive is not None:
            files["targets"] = ("targets.zip", archive.read_bytes())
        reply = httpx.post(
            f"{self.program.address}/api/experiments",
            files=files,
            data={"name": name, "state": "open"},
            auth=self.login,
        )
        assert reply.status_code == 201, reply.text
        return f"{self.program.address}/e/{reply.json()['slug']}/"

    def log_in(self, page: Page) -> None:
        """Log in to the console as the experimenter."""
        page.goto(f"{self.program.address}/console/login")
        page.get_by_label("Name").fill(self.login[0])
        page.get_by_label("Password").fill(self.login[1])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="Account")).to_be_visible()

    def rows(self, address: str) -> list[dict[str, str]]:
        """Return the answers as the experimenter downloads them."""
        return rows_of(self.program.export(slug_of(address), "responses.csv", self.login))

    def lines(self, address: str, name: str) -> list[dict[str, Any]]:
        """Return the lines of a JSON Lines file that the experimenter downloads."""
        return [json.loads(line) for line in self.program.export(slug_of(address), name, self.login).splitlines()]

    def participants(self, address: str) -> int:
        """Return how many participants the overview counts."""
        url = f"{self.program.address}/api/experiments/{slug_of(address)}/overview"
        return httpx.get(url, auth=self.login).raise_for_status().json()["participants"]["arrived"]


@dataclass
class Participant:
    """A participant and their page; `given` lists the texts of the heads and chosen feet in order."""

    page: Page
    given: list[tuple[str, str]] = field(default_factory=list)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def heading(self, name: str) -> None:
        expect(self.page.get_by_role("heading", name=name, exact=True, level=2)).to_be_visible()

    def open(self, address: str) -> Self:
        """Open the link and press Begin."""
        self.page.goto(address)
        self.button("Begin").click()
        return self

    def ready(self) -> None:
        """Wait until the page accepts an answer."""
        self.page.locator(READY).wait_for(timeout=60_000)
        self.page.wait_for_timeout(LOCK_OUT_MS)

    def answer(self, count: int = 1, *, side: str = "left", by: str = "key") -> None:
        """Answer queries; after each, wait until the page has counted it."""
        for _ in range(count):
            self.ready()
            before = self.count()
            seen = self.page.locator("#q-head").inner_text(), self.page.locator(f"#q-{side}").inner_text()
            self.choose(side, by)
            self.given.append(seen)
            expect(self.page.locator("#num-queries")).to_have_text(re.compile(rf"^{before + 1}\b"), timeout=60_000)

    def choose(self, side: str, by: str) -> None:
        if by == "key":
            self.page.keyboard.press("ArrowLeft" if side == "left" else "ArrowRight")
        elif by == "touch":
            self.page.locator(f"#q-{side}").tap()
        else:
            self.page.locator(f"#q-{side}").click()

    def count(self) -> int:
        """Return how many answers the page has counted."""
        return int((self.page.locator("#num-queries").text_content() or "0").split("/")[0])

    def code(self) -> str:
        """Wait for the completion code and return it."""
        expect(self.page.locator("#code code")).to_be_visible(timeout=60_000)
        return self.page.locator("#code code").inner_text()


def slug_of(address: str) -> str:
    """Return the name of an experiment in its link."""
    return urlsplit(address).path.rstrip("/").rpartition("/")[2]


def box_of(locator: Locator) -> FloatRect:
    """Return the place and size of an element that is on the screen."""
    box = locator.bounding_box()
    assert box is not None
    return box


def download(page: Page, name: str) -> bytes:
    """Press a button and return the file that is downloaded."""
    with page.expect_download() as started:
        page.get_by_role("button", name=name, exact=True).click()
    return started.value.path().read_bytes()


def take_picture(shown: Page | Locator, name: str, **options: Any) -> None:
    """Take a screenshot for the manual; without `make pictures` nothing is done, because encoding takes long.

    PNG files get 256 colours: a third of the bytes, and nothing of a page of the console is lost.
    """
    if not os.environ.get("SALMON_PICTURES"):
        return
    path = REPOSITORY / "docs" / "pictures" / name
    if path.suffix == ".png":
        shot = Image.open(io.BytesIO(shown.screenshot(**options))).convert("RGB")
        shot.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    else:
        shown.screenshot(path=path, **options)


def chosen(rows: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Return the texts of the heads and winners from the experimenter's file."""
    return [(row["head_html"], row["winner_html"]) for row in rows]


def assert_accessible(page: Page) -> None:
    """Assert that axe-core finds no violation on the current screen."""
    violations = Axe().run(page).response["violations"]
    assert not violations, "\n".join(f"{item['id']}: {[node['html'] for node in item['nodes']]}" for item in violations)
