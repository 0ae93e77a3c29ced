"""Routes of the console on the real store: what it shows, what it changes, who may."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.store import Store as BackendStore
from frontend.app import create_app
from frontend.auth import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.errors import Problem
from salmon.spec import parse
from salmon.spec.yaml_tree import read_source
from tests.archives import picture, write_zip
from tests.bundles import read_answers
from tests.job_requests import answer_and_absorb
from tests.living import Crowd, client_on, run_until, started
from tests.oracles import recount
from tests.program import REPOSITORY
from tests.studies import OWNER

ADA = ("ada", "a good password")
TEXTS = b"targets: [red, green, blue, yellow, orange]\nsamplers: {Random: {}}\n"
PIXEL = picture(size=(1, 1))

Send = Callable[..., Any]


@pytest.fixture
async def ada(client: httpx.AsyncClient, context: Context) -> Send:
    """Sends requests as an experimenter who is not the owner of the server."""
    if await context.store.accounts.read(ADA[0]) is None:
        await make_account(context, *ADA, owner=False)
    return partial(client.request, auth=ADA)


async def make_experiment(send: Send, name: str, spec: bytes = TEXTS, **files: Any) -> str:
    reply = await send(
        "POST",
        "/api/experiments",
        files={"spec": ("x.yaml", spec), **files},
        data={"name": name, "state": "open"},
    )
    assert reply.status_code == 201, reply.text
    return f"/api/experiments/{reply.json()['slug']}"


def archive(folder: Path, **pictures: bytes) -> tuple[str, bytes]:
    path = write_zip(folder / "targets.zip", [(f"{name}.png", data) for name, data in pictures.items()])
    return path.name, path.read_bytes()


async def test_counters_moved_by_recording_equal_a_recount_of_the_answers(
    client: httpx.AsyncClient, settings: Settings, store: Store
) -> None:
    crowd, experiment = await started(client, settings, store, "counted")
    await crowd.answer(40, participants=4)
    answers = await read_answers(store, experiment)
    counts = await store.experiments.read_counts(experiment)
    assert {name: int(value) for name, value in counts.items()} == recount(answers)


async def test_the_overview_history_and_map_follow_the_learning(
    learning: Callable[..., Any], owned: Send, probe: BackendStore
) -> None:
    crowd, experiment, service = await learning("mapped")
    base = "/api/experiments/mapped"
    empty = await owned("GET", f"{base}/model")
    assert (empty.status_code, "no embedding yet" in empty.text) == (404, True)
    for _ in range(6):
        await answer_and_absorb(crowd, service, experiment, 40)
    learner = service.experiments[experiment].learners["Adaptive"]
    # The first evaluation may come before there are enough answers to random queries.
    run_until(
        service,
        lambda: (
            learner._reported is not None and "held_out" in probe.read_model(experiment, "Adaptive").numbers  # type: ignore[union-attr]
        ),
    )

    seen = (await owned("GET", f"{base}/overview")).json()
    assert seen["answers"]["total"] == sum(row[1] for row in seen["series"]["rows"]) == 240
    assert seen["participants"]["began"] == 3
    (sampler,) = seen["samplers"]
    assert sampler["generation"] == learner.state.generation
    history = (await owned("GET", f"{base}/history")).json()
    seen_by = [point[history["columns"].index("absorbed")] for point in history["points"]]
    assert seen_by == sorted(seen_by)
    newest = (await owned("GET", f"{base}/model")).json()
    assert len(newest["coordinates"]) == len(newest["spread"]) == len(newest["nearest"]) == 30
    assert all(target not in near for target, near in enumerate(newest["nearest"]))
    drawn = [
        (await owned("GET", f"{base}/model", params={"line": item["line"]})).json()["coordinates"]
        for item in history["maps"]
    ]
    again = (await owned("GET", f"{base}/model", params={"line": history["maps"][-1]["line"]})).json()["coordinates"]
    assert again == drawn[-1]
    assert (await owned("GET", f"{base}/model", params={"line": "1-1"})).status_code == 404
    assert (await owned("GET", f"{base}/history", params={"sampler": "Nobody"})).status_code == 400
    # One accuracy on every page.
    assert newest["numbers"]["accuracy"] == sampler["accuracy"]

    saved = await owned("GET", f"{base}/map.svg", params={"width_mm": 174})
    assert saved.headers["content-type"].startswith("image/svg+xml")
    assert b'width="493.2' in saved.content  # 174 mm in points
    groups = {"groups": [0, 1] * 15, "group_names": ["even", "odd"]}
    assert (await owned("POST", f"{base}/map.pdf", json=groups)).content.startswith(b"%PDF")
    for wrong, named in (({"axes": [0, 7]}, "dimensions"), ({**groups, "group_names": ["even"]}, "groups must have")):
        refused = await owned("POST", f"{base}/map.svg", json=wrong)
        assert (refused.status_code, named in refused.text) == (400, True)
    uneven = {"frame": [500, 400], "points": [[1, 2]], "pictures": [], "labels": []}
    sizes = {"smallest": 20, "largest": 72, "dot": 4, "gap": 4}
    assert (await owned("POST", f"{base}/map/layout", json=uneven | sizes)).status_code == 400


async def test_the_stream_tells_of_every_change_and_ends_with_the_server(
    settings: Settings, store: Store, owned: Send
) -> None:
    app = create_app(settings, store)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
        crowd, _ = await started(client, settings, store, "streamed", TEXTS.decode())
        stopping = False
        app.state.closing = lambda: stopping
        request = asyncio.create_task(client.get("/api/experiments/streamed/stream", auth=OWNER))
        await asyncio.sleep(0)
        for _ in range(2):
            await crowd.answer_left("p")
        await asyncio.wait({request}, timeout=1.5)
        stopping = True
        body = (await request).text
    totals = [json.loads(line[6:])["answers"]["total"] for line in body.splitlines() if line.startswith("data: ")]
    assert totals == sorted(set(totals))
    assert totals[-1] == 2


async def test_a_revision_may_add_targets_and_never_move_them_once_answers_are_there(
    client: httpx.AsyncClient, owned: Send
) -> None:
    base = await make_experiment(owned, "revised")
    freely = await revised(owned, base, TEXTS.replace(b"red", b"pink"), known=1)
    assert freely.status_code == 200, freely.text
    await Crowd(client, "revised").answer_left("p")
    moved = await revised(owned, base, TEXTS, known=2)
    assert moved.status_code == 422
    assert "Target 0 was 'pink'" in moved.json()["error"]["problems"][0]["message"]
    fewer = await revised(owned, base, b"targets: [pink, green, blue]\n", known=2)
    assert [p["message"].split(",")[0] for p in fewer.json()["error"]["problems"]] == [
        "Target 3",
        "Target 4",
    ]
    more = await revised(owned, base, b"targets: [pink, green, blue, yellow, orange, black]\n", known=2)
    assert (more.status_code, more.json()["revision"]) == (200, 3)
    late = await revised(owned, base, b"targets: [pink, green, blue, yellow, orange, black]\n", known=2)
    assert (late.status_code, "Somebody else" in late.text) == (409, True)
    changes = (await owned("GET", f"{base}/changes")).json()
    assert [change["what"] for change in changes] == ["created", "state", "revised", "revised"]


async def revised(send: Send, base: str, spec: bytes, *, known: int, **files: Any) -> httpx.Response:
    files = {"spec": ("x.yaml", spec), **files}
    return await send("PUT", f"{base}/spec", files=files, data={"revision": str(known)})


async def test_a_second_zip_adds_pictures_and_refuses_other_content_under_an_old_name(
    owned: Send, tmp_path: Path
) -> None:
    other = picture(9, size=(1, 1))
    base = await make_experiment(
        owned, "zipped", b"samplers: {Random: {}}\n", targets=archive(tmp_path, a=PIXEL, b=PIXEL, c=PIXEL)
    )
    kept = await revised(owned, base, b"title: Kept\nsamplers: {Random: {}}\n", known=1)
    assert kept.status_code == 200, kept.text
    assert len((await owned("GET", f"{base}/targets")).json()) == 3
    changed = await revised(
        owned, base, b"samplers: {Random: {}}\n", known=2, targets=archive(tmp_path, a=other, b=PIXEL, c=PIXEL)
    )
    assert changed.status_code == 422
    assert "a.png" in changed.text
    assert "same as target 0" in " ".join((await owned("GET", f"{base}/targets")).json()[1]["odd"])


async def test_others_see_an_experiment_only_when_it_is_shared_and_only_its_owner_deletes_it(
    owned: Send, ada: Send, client: httpx.AsyncClient
) -> None:
    base = await make_experiment(owned, "private")
    paths = ["", "/overview", "/stream", "/history", "/model", "/targets", "/changes", "/participants", "/bundle"]
    paths += ["/exports/responses.csv", "/requests"]
    for path in paths:
        assert (await ada("GET", base + path)).status_code == 404, path
    assert (await ada("PUT", f"{base}/state", json={"state": "closed"})).status_code == 404
    assert "private" not in (await ada("GET", "/api/experiments")).text
    assert (await ada("POST", "/api/check", json={"spec": "", "slug": "private"})).status_code == 404
    strangers = await owned("PUT", f"{base}/shared", json={"accounts": {"nobody": "edit"}})
    assert (strangers.status_code, "'nobody'" in strangers.text) == (404, True)
    assert (await owned("PUT", f"{base}/shared", json={"accounts": {"ada": "edit"}})).json()["shared"] == {
        "ada": "edit"
    }
    assert (await ada("GET", base)).json()["spec"] == TEXTS.decode()
    refused = await ada("DELETE", base, **named("private"))
    assert (refused.status_code, "Only its owner" in refused.text) == (403, True)
    still_open = await owned("DELETE", base, **named("private"))
    assert (still_open.status_code, "Close it first" in still_open.text) == (409, True)
    await owned("PUT", f"{base}/state", json={"state": "closed"})
    assert (await owned("DELETE", base, **named("privat"))).status_code == 400
    gone = await owned("DELETE", base, **named("private"))
    assert gone.status_code == 200, gone.text
    assert (await owned("GET", base)).status_code == 404
    assert (await client.get("/e/private/")).status_code == 404


def named(name: str) -> dict[str, Any]:
    return {"content": json.dumps({"name": name}), "headers": {"Content-Type": "application/json"}}


async def test_a_copy_is_a_draft_of_the_same_and_a_free_name_is_found_for_it(owned: Send) -> None:
    base = await make_experiment(owned, "copied")
    copy = (await owned("POST", f"{base}/copy", json={"name": ""})).json()
    assert (copy["slug"], copy["state"], copy["answers"]) == ("copied-copy", "draft", 0)
    assert (await owned("POST", f"{base}/copy", json={"name": ""})).json()["slug"] == "copied-copy-2"
    assert (await owned("POST", f"{base}/copy", json={"name": "copied"})).status_code == 409


async def test_a_file_is_checked_as_it_is_typed(owned: Send) -> None:
    wrong = {"spec": "targets: [a, b, c]\nsamplers: {Randon: {}}\n"}
    (problem,) = (await owned("POST", "/api/check", json=wrong)).json()["problems"]
    assert (problem["line"], problem["column"]) == (2, 12)
    assert "Random" in problem["hint"]
    checked = (await owned("POST", "/api/check", json={"spec": "targets: [a, b, c]\nhtml: {max_queries: 45}\n"})).json()
    assert (checked["problems"], checked["summary"]["targets"], checked["summary"]["minutes"]) == ([], 3, 3)
    assert (await owned("POST", "/api/check", json={"spec": "", "zip": True})).json()["summary"]["targets"] is None


async def test_examples_can_be_launched_as_they_are(owned: Send) -> None:
    found = (await owned("GET", "/api/examples")).json()
    assert {example["name"] for example in found} >= {"colors", "shapes", "texts", "full"}
    for example in found:
        files: dict[str, Any] = {}
        if example["zip"]:
            content = await owned("GET", f"/api/examples/{example['name']}/targets.zip")
            files["targets"] = ("targets.zip", content.content)
        await make_experiment(owned, f"example-{example['name']}", example["spec"].encode(), **files)


async def test_an_uploaded_file_is_parsed_once_and_its_spec_is_read_back_as_a_value(
    owned: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []

    def read_and_count(text: bytes | str, problems: list[Problem]) -> object:
        parsed.append(text)
        return read_source(text, problems)

    monkeypatch.setattr(parse, "read_source", read_and_count)
    example = REPOSITORY / "examples" / "shapes"
    files = {"targets": ("targets.zip", (example / "targets.zip").read_bytes())}
    address = await make_experiment(owned, "parsed-once", (example / "experiment.yaml").read_bytes(), **files)
    assert (await owned("GET", address)).status_code == 200
    assert len(parsed) == 1


@pytest.mark.usefixtures("ada")
async def test_a_new_password_ends_every_other_session(settings: Settings, store: Store) -> None:
    form = {"name": ADA[0], "password": ADA[1]}
    async with client_on(settings, store) as here, client_on(settings, store) as elsewhere:
        for browser in (here, elsewhere):
            assert (await browser.post("/console/login", data=form)).status_code == 303
        token = (await here.get("/console/account")).text.split('name="csrf" content="')[1].split('"')[0]
        wrong = await here.put(
            "/api/account/password", json={"old": "not this", "new": ADA[1]}, headers={"X-CSRF-Token": token}
        )
        assert (wrong.status_code, "current password is wrong" in wrong.text) == (403, True)
        changed = await here.put(
            "/api/account/password", json={"old": ADA[1], "new": ADA[1]}, headers={"X-CSRF-Token": token}
        )
        assert changed.status_code == 200, changed.text
        assert (await here.get("/console/account")).status_code == 200
        assert (await elsewhere.get("/console/account", headers={"Accept": "text/html"})).status_code == 303


async def test_only_the_owner_of_the_server_invites_and_takes_accounts_away(owned: Send, ada: Send) -> None:
    assert (await ada("GET", "/api/accounts")).status_code == 403
    assert (await ada("POST", "/api/invitations", json={"name": "eva"})).status_code == 403
    assert (await owned("POST", "/api/invitations", json={"name": "ada"})).status_code == 409
    assert (await owned("DELETE", f"/api/accounts/{OWNER[0]}")).status_code == 409
    assert (await owned("DELETE", "/api/accounts/nobody")).status_code == 404
