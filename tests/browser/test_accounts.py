"""The pages of accounts in a browser: invitations, roles, sessions, API tokens, a second factor, a new password."""

import time
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect
from pyotp.totp import TOTP

from tests.browser.participant import assert_accessible
from tests.program import Program

pytestmark = pytest.mark.browser

PASSWORD = "a long password"


def log_in(page: Page, program: Program, name: str, password: str = PASSWORD) -> None:
    page.goto(f"{program.address}/console/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.fixture(scope="module")
def owner(program: Program) -> tuple[str, str]:
    """The owner of the server, with an experiment to share."""
    login = ("olga", PASSWORD)
    done = program.run("user", "add", "--owner", login[0], text=f"{login[1]}\n")
    assert done.returncode == 0, done.stderr
    files = {"spec": ("shapes.yaml", b"targets: [circle, square, star, heart]\nsamplers: {Random: {}}\n")}
    reply = httpx.post(f"{program.address}/api/experiments", files=files, data={"state": "open"}, auth=login)
    assert reply.status_code == 201, reply.text
    return login


def check_accessible(page: Page) -> None:
    """Check a page for accessibility in light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)
    page.emulate_media(color_scheme="light")


def test_an_owner_invites_a_viewer_who_looks_and_changes_nothing(
    program: Program, owner: tuple[str, str], page: Page, new_page: Callable[..., Page]
) -> None:
    log_in(page, program, *owner)
    page.get_by_role("link", name="People").click()
    page.get_by_label("Account name").fill("vera")
    page.locator("#invite").get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Create invitation link").click()
    link = page.locator("#invite code").inner_text()
    assert link.startswith(program.address)
    expect(page.locator("#invitations tbody")).to_contain_text("not yet")
    check_accessible(page)

    viewer = new_page(viewport={"width": 360, "height": 640})
    viewer.goto(link)
    check_accessible(viewer)
    expect(viewer.get_by_label("Name")).to_have_value("vera")
    viewer.get_by_label("Password").fill("short")
    viewer.get_by_role("button", name="Create account").click()  # the browser itself asks for more characters
    viewer.get_by_label("Password").fill("1234567890")
    viewer.get_by_role("button", name="Create account").click()
    expect(viewer.get_by_role("alert")).to_contain_text("guessed first")
    viewer.get_by_label("Password").fill(PASSWORD)
    viewer.get_by_role("button", name="Create account").click()
    expect(viewer.get_by_role("heading", name="No experiments yet")).to_be_visible()
    expect(viewer.get_by_role("link", name="New")).to_have_count(0)

    page.goto(f"{program.address}/console/experiments/shapes/settings")
    page.get_by_label("vera may").select_option("view")
    page.locator("#share").get_by_role("button", name="Save").click()
    expect(page.locator("#share .outcome")).to_have_text("Saved.")
    viewer.goto(f"{program.address}/console/")
    viewer.locator("tbody th a").click()
    for tab in ("Map", "Targets", "Participants", "Export", "Settings"):
        viewer.get_by_role("link", name=tab, exact=True).click()
        expect(viewer.get_by_role("link", name=tab, exact=True)).to_have_attribute("aria-current", "page")
        assert_accessible(viewer)
    expect(viewer.get_by_role("button", name="Pause")).to_have_count(0)
    expect(viewer.get_by_role("button", name="Save")).to_have_count(0)
    expect(viewer.get_by_text("Only the owner can delete")).to_be_visible()


def test_a_link_is_revoked_and_the_log_says_who_did_what(program: Program, owner: tuple[str, str], page: Page) -> None:
    log_in(page, program, *owner)
    page.get_by_role("link", name="People").click()
    page.get_by_label("Account name").fill("nora")
    page.get_by_role("button", name="Create invitation link").click()
    link = page.locator("#invite code").inner_text()
    page.get_by_role("button", name="Revoke the link for nora").click()
    expect(page.locator("#log tbody tr").first).to_contain_text("invitation revoked")
    assert page.goto(link).status == 403


def test_a_person_sets_up_a_second_factor_a_token_and_ends_a_session(
    program: Program, owner: tuple[str, str], page: Page, new_page: Callable[..., Page]
) -> None:
    del owner
    done = program.run("user", "add", "paula", text=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr
    elsewhere = new_page(viewport={"width": 1280, "height": 800})
    log_in(elsewhere, program, "paula")
    log_in(page, program, "paula")
    page.get_by_role("link", name="Account").click()

    page.get_by_label("What it is for").fill("nightly export")
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#token pre").inner_text()
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{program.address}/api/experiments", headers=bearer).status_code == 200

    page.get_by_role("button", name="Set up").click()
    secret = page.locator("#factor code").inner_text()
    expect(page.get_by_alt_text("QR code")).to_have_js_property("complete", value=True)
    assert page.get_by_alt_text("QR code").evaluate("image => image.naturalWidth") > 0
    check_accessible(page)
    app = TOTP(secret)
    page.get_by_label("Code that the app shows").fill(app.at(int(time.time()) - 30))
    page.locator("#factor").get_by_label("Current password").fill(PASSWORD)
    page.get_by_role("button", name="Switch on").click()
    codes = page.locator("#factor pre").inner_text().split()
    assert len(codes) == 10
    page.locator("#sessions").get_by_role("button", name="Log out").click()
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    expect(page.locator("#sessions-outcome")).to_have_text("That browser is logged out.")
    expect(page.locator("#factor pre")).to_contain_text(codes[9])
    check_accessible(page)
    elsewhere.goto(f"{program.address}/console/")
    expect(elsewhere.get_by_role("heading", name="Log in")).to_be_visible()

    log_in(elsewhere, program, "paula")
    check_accessible(elsewhere)
    elsewhere.get_by_label("Code").fill("123 456")
    elsewhere.keyboard.press("Enter")
    expect(elsewhere.get_by_role("alert")).to_contain_text("wrong")
    elsewhere.get_by_label("Code").fill(codes[0])
    elsewhere.keyboard.press("Enter")
    expect(elsewhere.get_by_role("heading", name="No experiments yet")).to_be_visible()

    page.get_by_role("button", name="Revoke: nightly export").click()
    expect(page.locator("#tokens tbody tr")).to_have_count(0)
    assert httpx.get(f"{program.address}/api/experiments", headers=bearer).status_code == 401
    page.get_by_role("button", name="Log out", exact=True).first.click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_forgotten_password_is_reset_from_the_command_line(
    program: Program, owner: tuple[str, str], page: Page
) -> None:
    del owner
    assert program.run("user", "add", "fred", text=f"{PASSWORD}\n").returncode == 0
    listed = program.run("user", "list").stdout
    assert "fred" in listed
    assert "experimenter" in listed
    link = program.run("user", "reset", "fred").stdout.strip()
    page.goto(link.replace("localhost", "127.0.0.1"))
    expect(page.get_by_role("heading", name="Choose a new password")).to_be_visible()
    page.get_by_label("Password").fill("another long password")
    page.get_by_role("button", name="Save password").click()
    log_in(page, program, "fred", "another long password")
    expect(page.get_by_role("heading", name="No experiments yet")).to_be_visible()
    assert program.run("user", "role", "fred", "viewer").returncode == 0
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    refused = program.run("user", "role", "olga", "viewer")
    assert (refused.returncode, "only owner" in refused.stderr) == (1, True)
    assert program.run("user", "remove", "fred").returncode == 0
    assert "fred" not in program.run("user", "list").stdout
    for command in (("reset", "fred"), ("remove", "fred"), ("role", "fred", "viewer"), ("role", "olga", "king")):
        failed = program.run("user", *command)
        assert failed.returncode == 1, command
        assert failed.stderr.startswith("salmon: There is no "), failed.stderr
