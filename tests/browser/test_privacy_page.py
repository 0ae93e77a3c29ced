"""An experimenter finds, exports and erases one person in the console."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.participant import Laboratory, take_picture

PUID = "60d2b1c4f7aa91e35c8e0b17"
SPEC = "targets: 8\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\n"


def answer(address: str, puid: str, count: int) -> None:
    with httpx.Client(base_url=address) as client:
        arrival = client.post("arrive", json={"parameters": {"puid": puid}}).raise_for_status().json()
        session = {"X-Salmon-Session": arrival["session"]}
        for _ in range(count):
            query = client.get("query", headers=session).raise_for_status().json()
            client.post("answers", json={"token": query["token"], "winner": query["left"]}).raise_for_status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_person_is_found_exported_and_erased(
    laboratory: Laboratory, new_page: Callable[..., Page], scheme: str
) -> None:
    address = laboratory.program.launch_text(f"privacy-{scheme}", SPEC)
    answer(address, PUID, 6)
    answer(address, "somebody-else", 3)
    page = new_page(viewport={"width": 1280, "height": 1100}, color_scheme=scheme)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{laboratory.program.address}/console/login")
    page.fill("[name=name]", laboratory.login[0])
    page.fill("[name=password]", laboratory.login[1])
    page.click("button[type=submit]")
    page.goto(f"{laboratory.program.address}/console/privacy")
    page.fill("#find [name=id]", "nobody-of-this-id")
    page.click("#find button")
    expect(page.locator("#find .outcome")).to_contain_text("Nothing is stored")
    page.fill("#find [name=id]", PUID)
    page.click("#find button")
    expect(page.locator("#person")).to_contain_text("6 answers")
    with page.expect_download() as downloaded:
        page.click("#export")
    exported = json.loads(Path(downloaded.value.path()).read_text())
    assert sum(len(each["answers"]) for each in exported["experiments"]) == 6
    violations = Axe().run(page).response["violations"]
    assert [each["id"] for each in violations] == []
    take_picture(page, f"console-privacy-{scheme}.png", full_page=True)
    page.check("[name=answers][value=remove]")
    page.fill("[name=confirm]", "another")
    page.click("#erase button")
    expect(page.locator("#erase .outcome")).to_contain_text("Nothing was erased")
    page.fill("[name=confirm]", PUID)
    page.click("#erase button")
    erasure = page.locator("#erasures tbody tr").filter(has_text=f"privacy-{scheme}")
    expect(erasure).to_contain_text("no trace was found")
    take_picture(page, f"console-privacy-done-{scheme}.png", full_page=True)
    page.goto(f"{laboratory.program.address}/console/privacy?id={PUID}")
    expect(page.locator("#find .outcome")).to_contain_text("Nothing is stored")
    assert errors == []
    found = laboratory.program.run("person", "find", "somebody-else")
    assert f"privacy-{scheme}" in found.stdout, found.stderr
    data = laboratory.program.data
    assert [path for path in data.rglob("*") if path.is_file() and PUID.encode() in path.read_bytes()] == []
