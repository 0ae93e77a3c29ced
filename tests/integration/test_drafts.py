"""Files that are being written: saved version by version, checked together with their ZIP, never overwritten unseen."""

import io
import random
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from frontend.admission import REQUEST_BYTES
from frontend.auth import make_account
from frontend.context import Context
from frontend.store.drafts import GONE_MS, MOST_VERSIONS, ONE_VERSION_MS
from salmon.spec import parse_spec
from tests.archives import broken_picture, picture, sound
from tests.people import PASSWORD

pytestmark = pytest.mark.usefixtures("quick_hashes")

HERE, THERE, ELSEWHERE = "window-here", "window-there", "window-elsewhere"
SPEC = "samplers: {Random: {}}\n"
SHOWING = SPEC + "instructions: [{text: Look., image: how.png}]\n"
Owned = Callable[..., Any]


def zipped(*names: str, bad: str = "") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for place, name in enumerate(names):
            archive.writestr(name, b"no picture" if name == bad else picture(place, size=(40, 30)))
    return file.getvalue()


async def save(owned: Owned, spec: str, known: int, window: str = HERE, slug: str = "") -> httpx.Response:
    return await owned(
        "PUT", "/api/draft", params={"slug": slug}, json={"spec": spec, "known": known, "window": window}
    )


async def upload(owned: Owned, content: bytes, spec: str = SPEC) -> dict[str, Any]:
    reply = await owned("POST", "/api/draft/targets", files={"targets": ("t.zip", content)}, data={"spec": spec})
    return reply.raise_for_status().json()


async def check(owned: Owned, spec: str, **more: Any) -> dict[str, Any]:
    return (await owned("POST", "/api/check", json={"spec": spec, "draft": True, **more})).raise_for_status().json()


@pytest.fixture(autouse=True)
async def empty(owned: Owned) -> None:
    """Every test begins without a draft."""
    (await owned("DELETE", "/api/draft")).raise_for_status()


async def test_what_was_typed_comes_back(owned: Owned) -> None:
    assert (await owned("GET", "/api/draft")).json() == {"version": 0, "spec": None, "versions": [], "zip": None}
    assert (await save(owned, "targets: [a", 0)).json() == {"version": 1}
    assert (await save(owned, "targets: [a, b]", 1)).json() == {"version": 2}
    draft = (await owned("GET", "/api/draft")).json()
    assert (draft["version"], draft["spec"]) == (2, "targets: [a, b]")
    assert [(version["number"], version["by"]) for version in draft["versions"]] == [(2, "owner")]
    (await owned("DELETE", "/api/draft")).raise_for_status()
    assert (await owned("GET", "/api/draft")).json()["spec"] is None


async def test_nobody_overwrites_what_they_have_not_seen(owned: Owned) -> None:
    await save(owned, "first", 0)
    assert (await save(owned, "second", 1, THERE)).status_code == 200
    refused = await save(owned, "mine", 1)
    assert refused.status_code == 409
    assert "another window" in refused.json()["error"]["message"]
    assert (await owned("GET", "/api/draft")).json()["spec"] == "second"
    assert (await save(owned, "mine", 2)).json() == {"version": 3}
    kept = [(await owned("GET", f"/api/draft/versions/{number}")).json()["spec"] for number in (1, 2, 3)]
    assert kept == ["first", "second", "mine"]
    assert (await owned("GET", "/api/draft/versions/99")).status_code == 404


async def test_what_one_window_types_within_minutes_is_one_version(context: Context) -> None:
    drafts, owner, now = context.store.drafts, "draft-test-1", 1_000_000

    async def type_(known: int, at: int, window: str = HERE) -> None:
        assert await drafts.save(owner, f"text {known + 1}", known=known, by="a", window=window, now_ms=at) == known + 1

    await type_(0, now)
    await type_(1, now + ONE_VERSION_MS - 1)
    await type_(2, now + ONE_VERSION_MS)
    await type_(3, now + ONE_VERSION_MS + 1, THERE)
    assert [version.number for version in await drafts.read(owner)] == [4, 3, 2]
    for number in range(4, 4 + MOST_VERSIONS):
        await type_(number, now + number * 2 * ONE_VERSION_MS)
    numbers = [version.number for version in await drafts.read(owner)]
    assert numbers == list(range(4 + MOST_VERSIONS, 4, -1))
    assert await drafts.newest(owner) == numbers[0]
    await drafts.remove(owner)
    assert await drafts.read(owner) == ()
    assert await drafts.save(owner, "x", known=3, by="a", window=HERE, now_ms=now) is None


async def test_people_in_one_draft_are_told_of_each_other(context: Context, owned: Owned) -> None:
    drafts = context.store.drafts
    assert await drafts.note_open("draft-test-2", HERE, "ada", now_ms=0) == ()
    assert await drafts.note_open("draft-test-2", THERE, "ines", now_ms=10) == ("ada",)
    assert await drafts.note_open("draft-test-2", HERE, "ada", now_ms=20) == ("ines",)
    assert await drafts.note_open("draft-test-2", HERE, "ada", now_ms=11 + GONE_MS) == ()
    reply = {"others": [], "version": 0}
    for window in (THERE, HERE):  # two windows of one person are not announced
        assert (await owned("POST", "/api/draft/windows", json={"window": window})).json() == reply
    (account,) = [account for account in await context.store.accounts.list() if account.name == "owner"]
    await drafts.note_open(account.id, ELSEWHERE, "ines", now_ms=context.now_ms())
    assert (await owned("POST", "/api/draft/windows", json={"window": HERE})).json()["others"] == ["ines"]
    await drafts.note_closed(account.id, ELSEWHERE)
    assert (await owned("POST", "/api/draft/windows", json={"window": HERE})).json() == reply


async def test_file_and_zip_are_checked_together(owned: Owned) -> None:
    await upload(owned, zipped("a.png", "b.png", "c.png", bad="b.png"))
    both = await check(owned, "seed: soon\n")
    assert [(problem["source"], problem["path"], problem["line"]) for problem in both["problems"]] == [
        ("t.zip", "b.png", 0),
        ("", "seed", 1),
    ]
    assert both["summary"] is None
    assert (await check(owned, SPEC))["summary"] is None
    await upload(owned, zipped("a.png", "b.png", "c.png"))
    repaired = await check(owned, SPEC)
    assert (repaired["problems"], repaired["summary"]["targets"]) == ([], 3)
    (await owned("DELETE", "/api/draft/targets")).raise_for_status()
    without = await check(owned, SPEC)
    assert without["files"] is None
    assert without["problems"][0]["path"] == "targets" or "targets" in without["problems"][0]["message"]


async def test_the_files_of_a_zip_are_shown_and_odd_ones_named(owned: Owned, client: httpx.AsyncClient) -> None:
    await upload(owned, zipped("a.png", "b.png", "c.png", "d.png", "how.png"))
    files = (await check(owned, SHOWING))["files"]
    assert (files["count"], [file["name"] for file in files["targets"]]) == (4, ["a.png", "b.png", "c.png", "d.png"])
    assert [file["name"] for file in files["pictures"]] == ["how.png"]
    assert {(file["width"], file["height"]) for file in files["targets"]} == {(40, 30)}
    assert (await client.get(files["pictures"][0]["media"])).status_code == 200
    odd = io.BytesIO(zipped("a.png", "b.png", "c.png", "d.png", "e.png"))
    with zipfile.ZipFile(odd, "a") as archive:
        archive.writestr("f.gif", picture(9, "GIF", (400, 300)))
    await upload(owned, odd.getvalue())
    (strange,) = [file for file in (await check(owned, SPEC))["files"]["targets"] if file["odd"]]
    assert strange["name"] == "f.gif"
    assert "type, gif" in strange["odd"][0]
    assert "size in pixels" in strange["odd"][1]


async def test_a_picture_that_cannot_be_decoded_is_named_by_the_editor_and_when_it_is_launched(owned: Owned) -> None:
    whole = [(f"{name}.png", picture(place, size=(40, 30))) for place, name in enumerate("abc")]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (*whole, ("d.png", broken_picture())):
            archive.writestr(name, content)
    await upload(owned, file.getvalue())
    problems = (await check(owned, SPEC))["problems"]
    assert [(problem["source"], problem["path"], problem["warning"]) for problem in problems] == [
        ("t.zip", "d.png", False)
    ]
    assert "cannot be decoded" in problems[0]["message"]
    files = {"spec": ("x.yaml", SPEC.encode()), "targets": ("t.zip", file.getvalue())}
    refused = await owned("POST", "/api/experiments", files=files)
    assert refused.status_code == 422
    assert "'d.png' is damaged" in refused.text
    alone = await owned("POST", "/api/draft/targets", files={"targets": ("d.png", broken_picture())})
    assert [problem["path"] for problem in alone.json()["problems"]] == ["d.png"]


async def test_single_files_are_added_and_taken_out(owned: Owned) -> None:
    for name in ("a.png", "b.png", "c.png", "d.png"):
        reply = await owned("POST", "/api/draft/targets", files={"targets": (name, picture(ord(name[0])))})
        assert reply.json()["problems"] == []
    assert (await check(owned, SPEC))["files"]["count"] == 4
    (await owned("DELETE", "/api/draft/targets", params={"name": "b.png"})).raise_for_status()
    files = (await check(owned, SPEC))["files"]
    assert [(file["index"], file["name"]) for file in files["targets"]] == [(0, "a.png"), (1, "c.png"), (2, "d.png")]


async def test_a_practice_trial_out_of_range_is_marked_at_its_line(owned: Owned) -> None:
    await upload(owned, zipped("a.png", "b.png", "c.png"))
    found = await check(owned, "practice:\n  queries:\n    - [0, 1, 7, 1]\n    - [a.png, b.png, bb.png, b.png]\n")
    assert [(problem["line"], problem["suggestion"]) for problem in found["problems"]] == [(3, ""), (4, "b.png")]


async def test_a_draft_becomes_an_experiment_with_its_targets_and_is_gone(
    owned: Owned, client: httpx.AsyncClient
) -> None:
    await upload(owned, zipped("a.png", "b.png", "c.png", "how.png"))
    await save(owned, SHOWING, 0)
    data = {"name": "from-a-draft", "state": "open", "from_draft": "true"}
    made = await owned("POST", "/api/experiments", files={"spec": ("x.yaml", SHOWING.encode())}, data=data)
    assert made.status_code == 201, made.text
    page = (await client.post("/e/from-a-draft/arrive", json={})).json()
    assert len(page["targets"]) == 3
    assert page["steps"]["instructions"][0]["image"].startswith("/media/")
    draft = (await owned("GET", "/api/draft")).json()
    assert (draft["version"], draft["zip"]) == (0, None)


async def test_a_revision_takes_the_files_of_its_own_draft(owned: Owned, client: httpx.AsyncClient) -> None:
    data = {"name": "to-be-revised", "state": "open"}
    files = {"spec": ("x.yaml", SPEC.encode()), "targets": ("t.zip", zipped("a.png", "b.png", "c.png"))}
    (await owned("POST", "/api/experiments", files=files, data=data)).raise_for_status()
    slug = {"slug": "to-be-revised"}
    sent = {"targets": ("d.png", picture(200))}
    (await owned("POST", "/api/draft/targets", params=slug, files=sent)).raise_for_status()
    checked = await check(owned, SPEC, **slug)
    assert [file["name"] for file in checked["files"]["targets"]] == ["a.png", "b.png", "c.png", "d.png"]
    change = {"revision": "1", "from_draft": "true"}
    path = "/api/experiments/to-be-revised/spec"
    (await owned("PUT", path, files={"spec": ("x.yaml", SPEC.encode())}, data=change)).raise_for_status()
    assert len((await client.post("/e/to-be-revised/arrive", json={})).json()["targets"]) == 4
    assert (await owned("GET", "/api/draft", params=slug)).json()["zip"] is None


async def test_a_zip_that_was_read_as_trusted_is_not_used_by_a_file_that_is_not(owned: Owned) -> None:
    trusting = SPEC + "page: {trusted: true}\n"
    await upload(owned, zipped("a.png", "b.png", "c.png"), trusting)
    assert (await check(owned, trusting))["problems"] == []
    found = await check(owned, SPEC)
    assert found["files"]["reread"]
    assert "Choose the ZIP again" in found["problems"][0]["hint"]
    data = {"name": "untrusted", "from_draft": "true"}
    refused = await owned("POST", "/api/experiments", files={"spec": ("x.yaml", SPEC.encode())}, data=data)
    assert refused.status_code == 422


async def test_a_draft_belongs_to_its_account_and_that_of_an_experiment_to_who_may_change_it(
    client: httpx.AsyncClient, context: Context, owned: Owned
) -> None:
    await make_account(context, "ines", PASSWORD, role="experimenter")
    files = {"spec": ("x.yaml", b"targets: [a, b, c]")}
    (await owned("POST", "/api/experiments", files=files, data={"name": "shared-draft"})).raise_for_status()
    await save(owned, "mine alone", 0)
    await save(owned, "ours", 0, slug="shared-draft")

    async def ask(slug: str) -> httpx.Response:
        return await client.get("/api/draft", params={"slug": slug}, auth=("ines", PASSWORD))

    assert (await ask("")).json()["spec"] is None
    assert (await ask("shared-draft")).status_code == 404
    path = "/api/experiments/shared-draft/shared"
    for may, status in (("view", 403), ("edit", 200)):
        (await owned("PUT", path, json={"accounts": {"ines": may}})).raise_for_status()
        assert (await ask("shared-draft")).status_code == status
    assert (await ask("shared-draft")).json()["spec"] == "ours"


async def test_the_editor_page_lets_its_scripts_add_styles_and_nothing_else(owned: Owned) -> None:
    first, second = [await owned("GET", "/console/new") for _ in range(2)]
    policies = [reply.headers["Content-Security-Policy"] for reply in (first, second)]
    assert policies[0] != policies[1]
    assert all("script-src 'self';" in policy and "style-src 'self' 'nonce-" in policy for policy in policies)
    assert first.text.partition('name="style-nonce" content="')[2].partition('"')[0] in policies[0]
    assert "nonce" not in (await owned("GET", "/console/")).headers["Content-Security-Policy"]


async def test_a_zip_may_be_larger_than_other_requests(owned: Owned) -> None:
    samples = random.Random(1).randbytes(REQUEST_BYTES)
    file = io.BytesIO(zipped("a.png", "b.png"))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("long.wav", sound(samples, 8000))
    assert (await upload(owned, file.getvalue()))["problems"] == []


async def test_editors_on_any_machine_get_the_schema_without_a_login(client: httpx.AsyncClient) -> None:
    reply = await client.get("/schema.json", headers={"Origin": "https://editor.example.org"})
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "questions" in reply.json()["properties"]


async def test_an_example_begins_with_the_line_that_names_the_schema(owned: Owned) -> None:
    examples = (await owned("GET", "/api/examples")).json()
    (address,) = {each["spec"].splitlines()[0].removeprefix("# yaml-language-server: $schema=") for each in examples}
    assert (await owned("GET", address)).json()["title"] == "Salmon experiment"
    assert all(parse_spec(each["spec"].encode(), zip_follows=each["zip"]) for each in examples)
