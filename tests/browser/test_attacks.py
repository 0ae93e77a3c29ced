"""Attacks from a participant page on whoever is logged in and opens it: a script of an
experimenter tries each, and fails.
"""

import json
import re
import time

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.participant import READY, Laboratory, Participant, plain
from tests.program import Program

pytestmark = pytest.mark.browser

#: What the script of the page collects goes to its attribute `data-loot`; each attempt is named for what it tries.
SCRIPT = r"""
const loot = {};
const note = (name, value) => { loot[name] = String(value); document.body.dataset.loot = JSON.stringify(loot); };
const attempt = async (name, work) => { try { note(name, await work()); } catch (error) { note(name, `refused: ${error.name}`); } };
(async () => {
  await attempt("cookie", () => document.cookie);
  await attempt("local storage", () => localStorage.length);
  await attempt("session storage", () => sessionStorage.length);
  await attempt("databases", async () => { const r = indexedDB.open("salmon"); return new Promise((y, n) => { r.onsuccess = () => y("open"); r.onerror = n; }); });
  await attempt("console page", async () => (await fetch("/console/", { credentials: "include" })).text());
  await attempt("cached console page", async () => (await fetch("/console/", { cache: "only-if-cached", mode: "same-origin" })).text());
  await attempt("list of experiments", async () => (await fetch("/api/experiments", { credentials: "include" })).text());
  await attempt("platform ids", async () => (await fetch("/api/experiments/victim/exports/participants.csv", { credentials: "include" })).text());
  await attempt("pause", async () => (await fetch("/api/experiments/victim/state", { method: "PUT", credentials: "include", headers: { "Content-Type": "application/json" }, body: '{"state": "paused"}' })).status);
  await attempt("blind pause", async () => (await fetch("/api/experiments/victim/state", { method: "POST", mode: "no-cors", credentials: "include", body: '{"state": "paused"}' })).type);
  await attempt("request", () => new Promise((y, n) => { const r = new XMLHttpRequest(); r.open("GET", "/console/"); r.withCredentials = true; r.onload = () => y(r.responseText); r.onerror = () => n(new TypeError()); r.send(); }));
  await attempt("frame", () => new Promise((y, n) => { const f = document.createElement("iframe"); f.src = "/console/"; f.onload = () => { try { y(f.contentDocument.body.innerHTML); } catch (e) { n(e); } }; document.body.append(f); setTimeout(() => n(new TypeError()), 3000); }));
  await attempt("frame without an address", () => { const f = document.createElement("iframe"); f.srcdoc = "<p>"; document.body.append(f); return f.contentWindow.localStorage.length; });
  await attempt("window", () => new Promise((y, n) => { const w = open("/console/"); setTimeout(() => { try { y(w.document.body.innerHTML); } catch (e) { n(e); } }, 2000); }));
  await attempt("worker", () => navigator.serviceWorker.register("own.js"));
  await attempt("module", () => import("/console/"));
  await attempt("leave the sandbox", () => { document.domain = "127.0.0.1"; return fetch("/console/"); });
  const form = document.createElement("form");
  Object.assign(form, { action: "/console/logout", method: "post", target: "elsewhere" });
  document.body.append(form);
  await attempt("form", () => { form.submit(); return "sent"; });
  note("finished", true);
})();
"""


def test_a_script_of_an_experimenter_gets_nothing_from_the_owner_who_opens_its_page(
    program: Program, laboratory: Laboratory, page: Page
) -> None:
    victim = laboratory.launch("victim", plain(2))
    attacker = laboratory.launch("attacker", plain(2, "").replace("html: {", "html: {js: " + json.dumps(SCRIPT) + ", "))
    name, password = laboratory.login
    page.goto(f"{program.address}/console/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Experiments", exact=True)).to_be_visible()
    cookies = {cookie.get("name"): cookie.get("value") for cookie in page.context.cookies()}
    page.goto(f"{attacker}?puid=owner")
    expect(page.locator("body")).to_have_attribute("data-loot", re.compile("finished"), timeout=30_000)
    loot = json.loads(page.locator("body").get_attribute("data-loot") or "")
    assert loot.pop("finished") == "true"
    assert loot.pop("form") == "sent"
    refused = {name: said for name, said in loot.items() if not said.startswith("refused: ")}
    assert refused == {"blind pause": "opaque"}, "a request whose reply nobody can read, and which the server refuses"
    # Nothing has changed: the experiment is open, the owner is logged in with the same session.
    state = httpx.get(f"{program.address}/api/experiments/victim", auth=laboratory.login).json()
    assert state["state"] == "open"
    assert {cookie.get("name"): cookie.get("value") for cookie in page.context.cookies()} == cookies
    page.goto(f"{program.address}/console/")
    expect(page.get_by_role("heading", name="Experiments", exact=True)).to_be_visible()
    assert victim.endswith("/e/victim/")


def test_a_page_kept_apart_keeps_its_participant_and_its_answers_over_a_reload(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("kept", plain(6).replace("html: {", "html: {js: 'window.mine = 1', "))
    participant.open(address).answer(2)
    shown = page.locator("#trial").inner_text()
    page.reload()
    page.locator(READY).wait_for()
    assert page.evaluate("window.mine") == 1
    assert page.evaluate("self.origin") == "null"
    assert page.locator("#trial").inner_text() == shown
    # Answers that could not be sent are still there after a reload.
    page.route("**/answers", lambda route: route.abort())
    participant.answer(2)
    page.reload()
    page.unroute("**/answers")
    page.locator(READY).wait_for()
    participant.answer(2)
    assert participant.code() == "C0DE-7"
    rows = laboratory.rows(address)
    assert (len(rows), len({row["puid"] for row in rows})) == (6, 1)


def test_a_page_that_meets_a_crowd_waits_and_begins_by_itself(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("crowd", plain(2))
    refused = {
        "error": {"code": "busy", "message": "Many people are starting at this moment.", "where": "", "hint": ""}
    }
    waits: list[float] = []

    def refuse_twice(route: Route) -> None:
        waits.append(time.monotonic())
        if len(waits) <= 2:
            route.fulfill(status=429, json=refused)
        else:
            route.continue_()

    page.route("**/arrive", refuse_twice)
    page.goto(f"{address}?puid=late")
    expect(page.locator("#status")).to_contain_text("begin by itself")
    participant.button("Begin").click()
    participant.answer(2)
    assert participant.code() == "C0DE-7"
    assert len(waits) == 3
