"""The documentation site is searched without a server and without a network."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.program import REPOSITORY

pytestmark = pytest.mark.browser


def test_the_site_is_searched_from_a_disk_and_asks_no_server(tmp_path: Path, page: Page) -> None:
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site"))
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    search = page.get_by_label("Search").first
    found = page.locator(".md-search-result__item a").filter(has_text="participant page").first
    # From a disk, the theme's index is sometimes not there on a busy machine until the page is opened again.
    for _ in range(8):
        page.goto((tmp_path / "site" / "tutorial.html").as_uri())
        page.wait_for_timeout(1000)
        search.fill("completion code")
        try:
            found.wait_for(timeout=8_000)
        except PlaywrightTimeout:
            continue
        break
    expect(found).to_be_visible()
    found.click()
    expect(page.locator("h1")).to_contain_text("The participant page")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
