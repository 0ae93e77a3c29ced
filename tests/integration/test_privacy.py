"""One person is found, exported and erased, and nothing of them is left in the data directory."""

import asyncio
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.launching import launch
from frontend.lifecycle import why_it_would_close
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.connection import Connection
from frontend.transfer import erasure
from frontend.transfer.erasure import PeopleOrder
from frontend.transfer.import_bundle import import_bundle
from salmon.cli.data_directory import DataDirectory
from salmon.errors import StoreError
from salmon.simulate import random_world
from tests.bundles import bundle_of, members_of, read_answers, rows_of
from tests.living import Crowd, absorbed, client_on, run_until
from tests.oracles import recount

PUID = "5f3c9a77e1b24d0012ab34cd"
REPLY = "Ich sah nur Lachse im Nebel."
NOTE = "Slept through the third block."
SPEC = """targets: 12
html: {max_queries: 0}
samplers: {Adaptive: {random_share: 50%}}
questions: [{name: remark, text: Anything else?, type: text}]
"""
FIGURES = """targets: 12
html: {max_queries: 0}
samplers: {Adaptive: {random_share: 60%}}
stopping: {accuracy_gain_below: 20%, per: 100}
"""


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture
def eraser_settings(settings: Settings, data_directory: DataDirectory, tmp_path: Path) -> Settings:
    secret = data_directory.credentials().eraser
    return settings.model_copy(
        update={"eraser_url": data_directory.redis_url("eraser", secret), "log_directory": str(tmp_path / "logs")}
    )


@pytest.fixture
async def eraser(eraser_settings: Settings) -> AsyncIterator[Context]:
    async with erasure.open_eraser(eraser_settings) as context:
        yield context


class Study:
    """An experiment with the answers of three people, one of whom began twice and left traces everywhere."""

    def __init__(self, context: Context, client: httpx.AsyncClient, experiment: str, slug: str) -> None:
        self.context, self.client, self.experiment, self.slug = context, client, experiment, slug
        self.people: list[str] = []
        self.session: dict[str, str] = {}
        self.query: dict[str, Any] = {}

    @staticmethod
    async def make(context: Context, client: httpx.AsyncClient, slug: str, logs: Path) -> "Study":
        made, _ = await launch(
            context, SPEC.encode(), spec_name=Path("x.yaml"), archive=None, name=slug, owner="local", state="open"
        )
        study = Study(context, client, made.experiment, slug)
        crowd, people = Crowd(client, slug), context.store.participants
        for number in range(24):
            await crowd.answer_left((PUID, "other-person-one", "other-person-two")[number % 3])
        first = (await context.store.export_reader.read_arrivals(made.experiment))[f"link:{PUID}"]
        await client.post(f"/e/{slug}/events", json={"event": "skip", "detail": REPLY}, headers=crowd.sessions[PUID])
        restarted = await people.restart(made.experiment, first, "link", PUID, now_ms=5)
        crowd.sessions.pop(PUID)
        for _ in range(4):
            await crowd.answer_left(PUID)
        study.people = [first, restarted.id]
        study.session = crowd.sessions[PUID]
        study.query = (await client.get(f"/e/{slug}/query", headers=study.session)).json()
        key = f"salmon:{{{made.experiment}}}:p:{restarted.id}"
        await context.store.connection.do(
            lambda c: c.hset(key, mapping={"question:remark": json.dumps(REPLY), "arrived:SESSION_ID": "sess-" + PUID})
        )
        await people.decide(made.experiment, {restarted.id: ("exclude", NOTE)}, by="ada", now_ms=5)
        await people.complete(made.experiment, restarted.id, now_ms=60_000)
        data = Path(context.settings.data)
        (data / "bundles").mkdir(exist_ok=True)
        kept = await bundle_of(context.settings, context.store, slug)
        (data / "bundles" / f"{slug}-20260101T000000Z.zip").write_bytes(kept)
        (data / "damaged").mkdir(exist_ok=True)
        (data / "damaged" / "appendonly.aof.1.incr.aof.20260101T000000Z").write_text(
            f"$29\r\nsalmon:{{{made.experiment}}}:p:x\r\n$24\r\n{PUID}\r\n{REPLY}"
        )
        logs.mkdir(exist_ok=True)
        (logs / "frontend.log").write_text(f"arrived puid={PUID} participant={first}\nsomething else\n")
        return study


@pytest.fixture
async def study(context: Context, client: httpx.AsyncClient, tmp_path: Path, request: Any) -> AsyncIterator[Study]:
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:50]
    made = await Study.make(context, client, slug, tmp_path / "logs")
    yield made
    await context.store.experiments.delete(slug, made.experiment)
    for path in (Path(context.settings.data) / "bundles").glob("*"):
        path.unlink()


def order(do: Any, name: str = PUID, **more: Any) -> PeopleOrder:
    return PeopleOrder(do, name, "ada", "ada", "owner", **more)


def grep(roots: list[Path], texts: list[str]) -> list[str]:
    """Every file below some folders in which a text stands, with the members of ZIP files and Parquet unpacked."""
    found: list[str] = []
    for path in (path for root in roots for path in root.rglob("*") if path.is_file()):
        contents = {path.name: path.read_bytes()}
        if zipfile.is_zipfile(path):
            contents = members_of(path.read_bytes())
            for name in [name for name in contents if name.endswith(".parquet")]:
                contents[f"{name}.txt"] = str(pq.read_table(io.BytesIO(contents[name])).to_pylist()).encode()
        found += [f"{path}: {name}: {text}" for name, c in contents.items() for text in texts if text.encode() in c]
    return found


async def stored(store: Store) -> str:
    """Everything in the store's memory, as text: a compressed file could hide it."""
    texts: list[str] = []
    cursor, keys = 0, set[str]()
    while True:
        cursor, page = await store.connection.do(lambda client, cursor=cursor: client.scan(cursor, count=5000))
        keys.update(page)
        if not int(cursor):
            break
    for key in sorted(keys):
        for read in ("hgetall", "xrange", "smembers", "get"):
            try:
                value = await store.connection.do_binary(lambda client, read=read, key=key: getattr(client, read)(key))
            except StoreError:
                continue  # of another type
            texts.append(f"{key} {value}")
            break
    return "\n".join(texts)


def needles(study: Study) -> list[str]:
    return [PUID, REPLY, NOTE, *study.people]


async def check_nothing_is_left(study: Study, eraser: Context, tmp_path: Path) -> None:
    roots = [Path(eraser.settings.data), tmp_path / "logs"]
    assert grep(roots, needles(study)) == []
    dump = await stored(eraser.store)
    # Experiments of the tests before this one lost their names only; nobody asked to erase their people.
    own = [line for line in dump.splitlines() if "{" not in line.partition(" ")[0] or study.experiment in line]
    assert [line[:80] for line in own if any(text in line for text in needles(study))] == []
    assert "other-person-one" in dump
    assert "something else" in (tmp_path / "logs" / "frontend.log").read_text()


async def check_counters(study: Study) -> None:
    """Counters are those of counting again; completions are noted with the participants."""
    answers = await read_answers(study.context.store, study.experiment)
    counts = await study.context.store.experiments.read_counts(study.experiment)
    assert {name: int(n) for name, n in counts.items() if not name.startswith("completed")} == recount(answers)
    state = await study.context.store.experiments.read(study.experiment)
    assert state.counters["answers"] == len(answers) == state.counters["answers:Adaptive"]


@pytest.mark.parametrize("answers", ["keep", "remove"])
async def test_nothing_of_an_erased_person_is_left(study: Study, eraser: Context, tmp_path: Path, answers: Any) -> None:
    before = await read_answers(study.context.store, study.experiment)
    ids = [
        at
        async for page in study.context.store.export_reader.read_answers(study.experiment, until="+")
        for at, _ in page
    ]
    assert grep([Path(eraser.settings.data), tmp_path / "logs"], [PUID])
    identifier = await erasure.order_erasure(eraser, order("erase", answers=answers))
    await erasure.carry_out(eraser)
    done = (await erasure.read_erasures(eraser))[identifier]
    assert (done.error, done.state, done.progress, done.people) == ("", "done", 1.0, 2)
    assert done.removed == 12
    await check_nothing_is_left(study, eraser, tmp_path)
    await check_counters(study)
    after = await read_answers(study.context.store, study.experiment)
    ids_after = [
        at
        async for page in study.context.store.export_reader.read_answers(study.experiment, until="+")
        for at, _ in page
    ]
    assert len(after) == (28 if answers == "keep" else 16)
    assert set(ids_after) <= set(ids)
    assert ids_after == sorted(ids_after, key=lambda at: [int(part) for part in at.split("-")])
    await study.context.store.export_reader.verify(study.experiment, until="+")
    if answers == "keep":
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 12
        assert all(
            replace(a, served=replace(a.served, participant=b.served.participant, session="")) == b for a, b in changed
        )
    assert (await erasure.find_person(eraser, order("find")))["experiments"] == []
    changes = await study.context.store.experiments.read_changes(study.experiment)
    assert changes[-1].what == "erased"
    # The bundle is whole: it can be imported elsewhere, with the others' answers.
    path = next((Path(eraser.settings.data) / "bundles").glob("*.zip"))
    members = members_of(path.read_bytes())
    assert len(rows_of(members["responses.csv"])) == len(after)
    made = await import_bundle(study.context, path, name=f"again-{answers}", owner="local")
    assert made.answers == len(after)


@pytest.mark.parametrize("answers", ["keep", "remove"])
async def test_an_erasure_that_is_killed_anywhere_goes_on(
    context: Context, client: httpx.AsyncClient, eraser: Context, tmp_path: Path, answers: Any, monkeypatch: Any
) -> None:
    """The process ends after so many calls to the store; the next one finishes what it began."""
    calls, most = 0, 0

    def dying(method: str) -> None:
        original = getattr(Connection, method)

        async def call(self: Connection, *arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if self is eraser.store.connection and most:
                calls += 1
                if calls > most:
                    raise KilledError
            return await original(self, *arguments, **options)

        monkeypatch.setattr(Connection, method, call)

    for method in ("do", "run", "together"):
        dying(method)
    kills = 0
    for number, limit in enumerate((8, 25, 45, 60, 75, 90, 120)):
        study = await Study.make(context, client, f"killed-{answers}-{number}", tmp_path / "logs")
        identifier = await erasure.order_erasure(eraser, order("erase", answers=answers))
        calls, most = 0, limit
        try:
            await erasure.carry_out(eraser)
        except KilledError:
            kills += 1
        most = 0
        await eraser.store.people.unlock()  # it expires by itself
        await erasure.carry_out(eraser)
        done = (await erasure.read_erasures(eraser))[identifier]
        assert (done.error, done.state) == ("", "done")
        await check_nothing_is_left(study, eraser, tmp_path)
        await check_counters(study)
        assert len(await read_answers(context.store, study.experiment)) == (28 if answers == "keep" else 16)
        await context.store.experiments.delete(study.slug, study.experiment)
    assert kills >= 4


async def test_models_are_fitted_again_without_the_answers_that_went(
    study: Study, eraser: Context, open_service: Callable[..., Service]
) -> None:
    service = open_service()
    run_until(service, lambda: absorbed(service, study.experiment) >= 28)
    before = await study.context.store.models.read(study.experiment, "Adaptive")
    assert before is not None
    assert int(before.numbers["absorbed"]) == 28
    await erasure.order_erasure(eraser, order("erase", answers="remove"))
    await erasure.carry_out(eraser)
    run_until(service, lambda: absorbed(service, study.experiment) == 16)
    after = await study.context.store.models.read(study.experiment, "Adaptive")
    assert after is not None
    assert int(after.numbers["absorbed"]) == 16
    assert [len(log) for log in service.experiments[study.experiment].logs.values()] == [16]


async def test_the_figures_after_an_erasure_follow_the_answers_that_are_left(
    learning: Callable[..., Any],
    owned: Callable[..., Any],
    settings: Settings,
    store: Store,
    eraser: Context,
    probe: BackendStore,
    owner: tuple[str, str],
) -> None:
    slug = "figures-of-the-rest"
    crowd, experiment, service = await learning(slug, FIGURES)
    context = Context(settings, store)
    probe.beat(service.report(), lives_seconds=600)
    crowd.world = random_world(12, 2, seed=3)
    overview = f"/api/experiments/{slug}/overview"

    async def answer(count: int) -> None:
        """Answer in small parts, so that the map of each predicts the next, and look at the overview after each."""
        for _ in range(0, count, 24):
            await crowd.answer(24, participants=4)
            total = (await store.experiments.read(experiment)).counters["answers"]
            run_until(service, lambda total=total: absorbed(service, experiment) == total)
            (await owned("GET", overview)).raise_for_status()

    await answer(648)
    before = (await owned("GET", overview)).json()["samplers"][0]["held_total"]
    assert (await why_it_closes(context, experiment)).startswith("after ")
    await erasure.order_erasure(eraser, PeopleOrder("erase", "p3", "ada", "ada", "owner", answers="remove"))
    await erasure.carry_out(eraser)
    run_until(service, lambda: absorbed(service, experiment) == 486)
    shown = (await owned("GET", overview)).json()
    assert before > 200
    assert shown["samplers"][0]["held_total"] == 0, "nothing was predicted since the learning began again"
    assert shown["verdict"]["what"].startswith("Too early to say: ")
    assert await why_it_closes(context, experiment) == ""
    await check_a_fresh_process_agrees(owned, settings, store, overview, owner)
    crowd.sessions.pop("p3")
    await answer(480)
    await check_a_fresh_process_agrees(owned, settings, store, overview, owner)
    found = (await context.histories.read(experiment, "Adaptive")).outlook(12, 2, worth=0.01)
    assert found is not None
    assert 200 < found.predictions < 480, "the predictions are those since the erasure"
    assert (await why_it_closes(context, experiment)).startswith("after ")
    # A target that nobody was asked about, as after a change of the targets, keeps the experiment open.
    counts = f"salmon:{{{experiment}}}:counts"
    await store.connection.do(lambda c: c.hset(counts, mapping={"head:5": 0, "foot:5": 0}))
    assert await why_it_closes(context, experiment) == ""


async def why_it_closes(context: Context, experiment: str) -> str:
    """Why the experiment would close by itself at this moment; "" where it would not."""
    ending = await why_it_would_close(context, await context.catalogue.read(experiment))
    return ending.sentence if ending else ""


async def check_a_fresh_process_agrees(
    owned: Callable[..., Any], settings: Settings, store: Store, overview: str, owner: tuple[str, str]
) -> None:
    """A web process that has looked since the beginning shows what one does that looks for the first time."""
    async with client_on(settings, store) as another:
        fresh = (await another.get(overview, auth=owner)).raise_for_status().json()
    shown = (await owned("GET", overview)).raise_for_status().json()
    assert (fresh["verdict"], fresh["samplers"]) == (shown["verdict"], shown["samplers"])


async def test_what_the_page_of_an_erased_person_still_sends_is_not_kept(
    study: Study, eraser: Context, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    await erasure.order_erasure(eraser, order("erase", answers="keep"))
    await erasure.carry_out(eraser)
    body = {"token": study.query["token"], "winner": study.query["left"]}
    reply = (await client.post(f"/e/{study.slug}/answers", json=body)).json()
    assert "erased" in str(reply)
    await client.post(f"/e/{study.slug}/events", json={"event": "skip", "detail": REPLY}, headers=study.session)
    await check_nothing_is_left(study, eraser, tmp_path)


async def test_a_person_is_exported_in_readable_form(study: Study, eraser: Context) -> None:
    for name in (PUID, study.people[0], "sess-" + PUID):
        found = await erasure.export_person(eraser, order("export", name))
        assert {each["participant"] for each in found["experiments"]} == set(study.people)
    text = json.dumps(found, ensure_ascii=False)
    assert all(wanted in text for wanted in (PUID, REPLY, NOTE))
    assert sum(len(each["answers"]) for each in found["experiments"]) == 12
    assert found["experiments"][0]["answers"][0]["received"].startswith("20")
    assert found["kept_bundles"]


async def test_only_experiments_that_one_may_see_are_searched(study: Study, eraser: Context) -> None:
    await study.context.store.connection.do(
        lambda c: c.hset(f"salmon:{{{study.experiment}}}:state", "owner", "somebody")
    )
    stranger = PeopleOrder("find", PUID, "eve", "eve", "experimenter")
    assert (await erasure.find_person(eraser, stranger))["experiments"] == []
    owner = PeopleOrder("find", PUID, "eve", "eve", "owner")
    assert len((await erasure.find_person(eraser, owner))["experiments"]) == 2


async def test_kept_bundles_are_reached_by_those_who_could_change_the_experiment(study: Study, eraser: Context) -> None:
    store, settings = study.context.store, study.context.settings
    state = f"salmon:{{{study.experiment}}}:state"
    await store.connection.do(lambda c: c.hset(state, "owner", "somebody"))
    await store.experiments.share(study.experiment, {"ada": "edit", "eve": "view"})
    shared = Path(settings.data) / "bundles" / "shared.zip"
    shared.write_bytes(await bundle_of(settings, store, study.slug))
    for account, reached in (("ada", True), ("eve", False), ("somebody", True), ("stranger", False)):
        found = await erasure.find_person(eraser, PeopleOrder("find", PUID, account, account, "experimenter"))
        assert ("shared.zip" in {each["bundle"] for each in found["bundles"]}) == reached, account


async def test_the_routes_find_export_and_erase(
    study: Study, eraser_settings: Settings, tmp_path: Path, eraser: Context, owner: tuple[str, str]
) -> None:
    async with client_on(eraser_settings, study.context.store) as client:
        found = (await client.get("/api/people", params={"id": PUID}, auth=owner)).raise_for_status().json()
        assert {each["participant"] for each in found["experiments"]} == set(study.people)
        assert sum(each["stored"]["answers"] for each in found["experiments"]) == 12
        assert sum(each["stored"]["replies"] for each in found["experiments"]) == 1
        exported = await client.get("/api/people/export", params={"id": PUID}, auth=owner)
        assert REPLY in exported.raise_for_status().text
        body = {"id": PUID, "answers": "remove"}
        begun = (await client.post("/api/people/erasures", json=body, auth=owner)).raise_for_status().json()
        while True:
            now = (await client.get(f"/api/people/erasures/{begun['erasure']}", auth=owner)).raise_for_status().json()
            if now["state"] in {"done", "failed"}:
                break
            await asyncio.sleep(0.1)
        assert (now["error"], now["state"]) == ("", "done")
        await check_nothing_is_left(study, eraser, tmp_path)
        again = await client.post("/api/people/erasures", json=body, auth=owner)
        assert again.status_code == 404
        assert "Nothing is stored" in again.text
        assert (await client.get("/api/people", params={"id": PUID})).status_code == 401
        page = await client.get("/console/privacy", auth=owner)
        assert page.status_code == 200
        assert PUID not in page.text


async def test_without_the_eraser_one_reads_what_to_set(client: httpx.AsyncClient, owner: tuple[str, str]) -> None:
    reply = await client.get("/api/people", params={"id": PUID}, auth=owner)
    assert "SALMON_ERASER_URL" in reply.text


async def test_a_deleted_experiment_leaves_only_its_bundle(
    study: Study,
    eraser_settings: Settings,
    eraser: Context,
    open_service: Callable[..., Service],
    owner: tuple[str, str],
) -> None:
    service = open_service()
    run_until(service, lambda: absorbed(service, study.experiment) >= 28)
    key = f"salmon:{{{study.experiment}}}:"
    before = await stored(eraser.store)
    assert all(f"{key}{part}" in before for part in ("answers", "model:Adaptive", "history:Adaptive", "fence", "p:"))
    async with client_on(eraser_settings, study.context.store) as client:
        await client.put(f"/api/experiments/{study.slug}/state", json={"state": "closed"}, auth=owner)
        gone = await client.request("DELETE", f"/api/experiments/{study.slug}", json={"name": study.slug}, auth=owner)
        reply = gone.raise_for_status().json()
        assert reply["kept_days"] == 365
        for _ in range(200):
            erasures = (await client.get("/api/people/erasures", auth=owner)).json()
            if erasures[0]["state"] == "done":
                break
            await asyncio.sleep(0.1)
    assert (erasures[0]["state"], erasures[0]["kind"]) == ("done", "experiment")
    assert key not in await stored(eraser.store)
    for path in Path(eraser.settings.data, "bundles").glob("*.zip"):
        if path.name != reply["bundle"]:
            path.unlink()
    left = grep([Path(eraser.settings.data)], [PUID])
    assert left, "the bundle holds the person"
    assert [line for line in left if reply["bundle"] not in line] == []
    # The person can be erased from the bundle too.
    await erasure.order_erasure(eraser, order("erase", answers="keep"))
    await erasure.carry_out(eraser)
    assert grep([Path(eraser.settings.data)], needles(study)) == []
