"""A bundle is the experiment: it comes back elsewhere, bit for bit, and nothing else than a bundle comes in."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.accounts import make_account
from frontend.app import create_app
from frontend.context import Context
from frontend.errors import BundleError, ConflictError
from frontend.launching import launch
from frontend.restoring.restoration import restore
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.restoration import RESTORE_ANSWERS
from frontend.tally import recount
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from salmon.wire import Keys, encode_array
from tests.bundles import Members, bundle_of, changed, rows_of, server_on, written
from tests.living import Crowd, absorbed, run_until, started
from tests.program import REPOSITORY

OWNER = ("owner", "a good password")
SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}, Validation: {}}\nseed: 11\n"
SHAPES = "samplers: {Random: {}, Validation: {n_queries: 4}}\nhtml: {max_queries: 30}\n"


@pytest.fixture
async def bundle(client: httpx.AsyncClient, settings: Settings, store: Store, examples: Path) -> bytes:
    """The bundle of an experiment with pictures, ninety answers of three people, a decision, events and a change."""
    if "shapes" not in [state.slug for state in await store.experiments.list()]:
        context = Context.build(settings, store)
        made, _ = await launch(
            context,
            SHAPES.encode(),
            spec_name=Path("shapes.yaml"),
            archive=examples / "shapes" / "targets.zip",
            name="shapes",
            owner="ada",
            state="open",
        )
        crowd = Crowd(client, "shapes")
        for number in range(90):
            await answer_one(crowd, f"p{number % 3}")
        await client.post("/e/shapes/events", json={"event": "skip", "detail": "button"}, headers=crowd.sessions["p0"])
        people = await store.logbook.read_arrivals(made.experiment)
        decided = {"keep": "exclude", "keep_note": "Slept.", "keep_by": "ada", "keep_ms": "5"}
        await store.logbook.decide(made.experiment, people["link:p1"], decided)
    return await bundle_of(settings, store, "shapes")


async def answer_one(crowd: Crowd, name: str) -> None:
    """One answer, for the left target."""
    if name not in crowd.sessions:
        reply = await crowd.client.post(f"/e/{crowd.slug}/arrive", json={"parameters": {"puid": name}})
        crowd.sessions[name] = {"X-Salmon-Session": reply.raise_for_status().json()["session"]}
    query = (await crowd.client.get(f"/e/{crowd.slug}/query", headers=crowd.sessions[name])).raise_for_status().json()
    body = {"token": query["token"], "winner": query["left"], "rt_ms": 900.5}
    (await crowd.client.post(f"/e/{crowd.slug}/answers", json=body)).raise_for_status()


@pytest.fixture(scope="module")
def another_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A second data directory with a store of its own."""
    with server_on(tmp_path_factory.mktemp("elsewhere")) as settings:
        yield settings


@pytest.fixture
async def elsewhere(another_machine: Settings) -> AsyncIterator[Context]:
    """The parts of a web process there."""
    store = Store.open(another_machine.redis_url)
    yield Context.build(another_machine, store)
    await store.close()


async def imported(context: Context, bundle: bytes, path: Path, name: str = "") -> str:
    """The id of the experiment that a bundle becomes."""
    path.write_bytes(bundle)
    made = await restore(context, path, name=name, owner="bo")
    experiment = await context.store.experiments.find(made.slug)
    assert experiment is not None
    return experiment


def members_of(bundle: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


async def test_an_experiment_comes_back_on_another_machine_bit_for_bit(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    experiment = await imported(elsewhere, bundle, tmp_path / "b.zip")
    again = await bundle_of(elsewhere.settings, elsewhere.store, "shapes")
    before, after = members_of(bundle), members_of(again)
    assert set(before) == set(after)
    # The import is a change, the state is paused, and files that tell when they were made tell it.
    moved = {"manifest.json", "provenance.json", "README.md", "machine/state.json", "machine/changes.jsonl"}
    assert [name for name in before if before[name] != after[name] and name not in moved] == []
    assert len(rows_of(after["responses.csv"])) == 90
    assert {row["excluded"] for row in rows_of(after["responses.csv"])} == {"true"}  # all chose the left side only
    state = await elsewhere.store.experiments.read(experiment)
    assert (state.state, state.owner, state.counters["answers"]) == ("paused", "bo", 90)
    assert (await elsewhere.store.experiments.read_changes(experiment))[-1].what == "imported"
    medium = next(name for name in before if name.startswith("media/"))
    assert elsewhere.media.open(medium.removeprefix("media/")).read() == before[medium]


async def test_counters_are_counted_again(bundle: bytes, elsewhere: Context, tmp_path: Path) -> None:
    def lie(members: Members) -> None:
        state = json.loads(members["machine/state.json"])
        members["machine/state.json"] = json.dumps({**state, "answers": "7", "answers:Random": "0"}).encode()

    experiment = await imported(elsewhere, changed(bundle, lie), tmp_path / "b.zip", "counted")
    state = await elsewhere.store.experiments.read(experiment)
    assert state.counters["answers"] == 90
    assert sum(count for name, count in state.counters.items() if name.startswith("answers:")) == 90
    answers = [answer async for _, answer in elsewhere.store.answers.read(experiment)]
    counts = await elsewhere.store.experiments.read_counts(experiment)
    assert {name: int(value) for name, value in counts.items()} == recount(answers)


async def test_people_go_on_where_they_were_after_an_import(bundle: bytes, elsewhere: Context, tmp_path: Path) -> None:
    experiment = await imported(elsewhere, bundle, tmp_path / "b.zip", "open-again")
    await elsewhere.store.experiments.set_state(experiment, "open", now_ms=1)
    app = create_app(elsewhere.settings, elsewhere.store)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
        arrival = (await client.post("/e/open-again/arrive", json={"parameters": {"puid": "p0"}})).json()
        assert arrival["answers"] == 30
        fresh = Crowd(client, "open-again")
        await answer_one(fresh, "new")
    assert await elsewhere.store.answers.count(experiment) == 91
    people = await elsewhere.store.logbook.read_arrivals(experiment)
    assert len(people) == 4
    seen = await elsewhere.store.logbook.read_asked(experiment, [people["link:p0"]])
    lines = [json.loads(line) for line in members_of(bundle)["machine/participants.jsonl"].splitlines()]
    assert seen[0] == next(set(asked) for name, _, asked in lines if name == people["link:p0"])
    assert len(seen[0]) >= 4


async def test_models_come_back_and_the_learning_goes_on_after_them(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    open_service: Callable[..., Service],
    elsewhere: Context,
    tmp_path: Path,
) -> None:
    crowd, experiment = await started(client, settings, store, "learned", SPEC)
    service = open_service()
    service.begin()
    for _ in range(3):
        await crowd.answer(20)
        run_until(service, lambda: absorbed(service, experiment) > 0.5 * len(crowd.given))
    reported = Keys(experiment).model("Adaptive")
    run_until(service, lambda: service_store(service)._binary.hget(reported, "reported") is not None)
    service.stop()
    names = ("responses", "embeddings", "embedding_history", "models", "quality")
    before = [await written(settings, store, "learned", name, "csv") for name in names]
    bundle = await bundle_of(settings, store, "learned")
    made = await imported(elsewhere, bundle, tmp_path / "b.zip")
    after = [await written(elsewhere.settings, elsewhere.store, "learned", name, "csv") for name in names]
    assert before == after
    rows = rows_of(after[1])
    assert len(rows) == 30
    assert all(row["0"] == row["dim_0"] and row["alg"] == row["sampler"] == "Adaptive" for row in rows)
    kept = {row["generation"] for row in rows_of(after[2])}
    assert len(rows_of(after[2])) == 30 * len(kept)
    one = rows_of(await written(settings, store, "learned", "embeddings", "csv", generation=int(min(kept))))
    assert {row["generation"] for row in one} == {min(kept)}
    await check_that_it_goes_on(elsewhere, made)


def service_store(service: Service) -> BackendStore:
    return service._store


async def check_that_it_goes_on(elsewhere: Context, experiment: str) -> None:
    """The learning process there takes the generations up after the imported ones, and keeps them."""
    directory = DataDirectory(Path(elsewhere.settings.data))
    own = BackendStore(directory.redis_url("backend", directory.credentials().backend))
    history = [line async for line in elsewhere.store.models.read_history(experiment, "Adaptive")]
    last = int(history[-1].numbers["generation"])
    await elsewhere.store.experiments.set_state(experiment, "open", now_ms=1)
    app = create_app(elsewhere.settings, elsewhere.store)
    service = Service(own, SerialExecutor)
    try:
        service.begin()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
            await Crowd(client, "learned").answer(20)
        run_until(service, lambda: service.experiments[experiment].learners["Adaptive"].state.generation > last)
    finally:
        service.stop()
        service.close()
        own.close()
    after = [line async for line in elsewhere.store.models.read_history(experiment, "Adaptive")]
    assert [line.stream_id for line in after[: len(history)]] == [line.stream_id for line in history]
    assert int(after[len(history)].numbers["generation"]) == last + 1
    await elsewhere.store.experiments.set_state(experiment, "closed", now_ms=1)


async def test_the_notebook_runs_from_top_to_bottom_in_plain_python(bundle: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        archive.extractall(tmp_path)
    cells = json.loads((tmp_path / "analysis.ipynb").read_text())["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "run.py").write_text(code)
    done = subprocess.run(
        (sys.executable, "-W", "error", "-S", "run.py"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "90 answers of 3 participants, 0 kept" in done.stdout
    assert "Chose the left side in 100 %" in done.stdout


async def test_an_import_that_is_killed_leaves_nothing_to_be_seen_and_can_be_repeated(
    bundle: bytes, elsewhere: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(bundle)
    # The process kills itself where the log is written and the participants are not.
    (tmp_path / "dies.py").write_text(
        "import os, signal, sys\n"
        "from frontend.restoring.__main__ import main\n"
        "from frontend.store.restoration import Restoration\n"
        "step = sys.argv.pop()\n"
        "async def die(self, *_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(Restoration, step, die)\n"
        "main(sys.argv[1:])\n"
    )
    values = elsewhere.settings.model_dump()
    environment = {f"SALMON_{name.upper()}": str(value) for name, value in values.items()}
    for step in ("check", "write_people", "reveal"):
        killed = subprocess.run(
            (sys.executable, str(tmp_path / "dies.py"), str(path), "killed", "bo", step),
            cwd=REPOSITORY,
            env={**os.environ, **environment, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -9, killed.stderr
        assert "killed" not in [state.slug for state in await elsewhere.store.experiments.list()]
    await imported(elsewhere, bundle, path, "killed")
    assert (
        await written(elsewhere.settings, elsewhere.store, "killed", "responses", "csv")
        == members_of(bundle)["responses.csv"]
    )
    with pytest.raises(ConflictError, match="already"):
        await restore(elsewhere, path, name="killed", owner="bo")


async def test_the_log_of_a_deleted_experiment_is_never_mixed_with_an_import(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    first = await imported(elsewhere, bundle, tmp_path / "b.zip", "deleted")
    await elsewhere.store.experiments.set_state(first, "open", now_ms=1)
    app = create_app(elsewhere.settings, elsewhere.store)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
        await answer_one(Crowd(client, "deleted"), "late")
    await elsewhere.store.experiments.delete("deleted", first)
    second = await imported(elsewhere, bundle, tmp_path / "b.zip", "deleted")
    assert second != first
    assert await elsewhere.store.answers.count(second) == 90


async def test_the_route_and_the_commands_do_the_same(
    bundle: bytes, client: httpx.AsyncClient, settings: Settings, store: Store, tmp_path: Path
) -> None:
    if not await store.accounts.exist():
        await make_account(Context.build(settings, store), *OWNER, owner=True)
    address = "/api/experiments/import"
    reply = await client.post(address, files={"bundle": ("b.zip", bundle)}, data={"name": "By Route"}, auth=OWNER)
    assert reply.status_code == 201, reply.text
    made = reply.json()
    assert (made["slug"], made["state"], made["answers"], made["participants"]) == ("by-route", "paused", 90, 3)
    assert "It is paused" in made["message"]
    for content, status, word in ((b"PK", 422, "no ZIP"), (bundle, 409, "already")):
        reply = await client.post(address, files={"bundle": ("b.zip", content)}, auth=OWNER)
        assert (reply.status_code, word in reply.text) == (status, True), reply.text

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, "-m", "salmon", *arguments, "--data", settings.data),
            cwd=REPOSITORY,
            env={name: value for name, value in os.environ.items() if not name.startswith("SALMON_")},
            capture_output=True,
            text=True,
            check=False,
        )

    out = tmp_path / "out.zip"
    done = command("export", "by-route", "--out", str(out))
    assert (done.returncode, done.stdout.strip()) == (0, str(out)), done.stderr
    assert members_of(out.read_bytes())["responses.csv"] == members_of(bundle)["responses.csv"]
    assert list(tmp_path.iterdir()) == [out]
    done = command("import", str(out), "--name", "by command")
    assert (done.returncode, "/e/by-command/" in done.stdout, "It is paused" in done.stderr) == (0, True, True), (
        done.stderr
    )
    refused = command("import", str(out), "--name", "by command")
    assert refused.returncode == 1
    assert "already" in refused.stderr
    assert "Traceback" not in refused.stderr
    absent = command("export", "nobody", "--out", str(tmp_path / "x.zip"))
    assert (absent.returncode, "Traceback" in absent.stderr) == (1, False)
    assert not (tmp_path / "x.zip").exists()


def replace_line(name: str, number: int, change: Callable[[list], object]) -> Callable[[Members], None]:
    """Another line of JSON in a member."""

    def put(members: Members) -> None:
        lines = members[name].splitlines(keepends=True)
        value = json.loads(lines[number])
        lines[number] = json.dumps(change(value) or value).encode() + b"\n"
        members[name] = b"".join(lines)

    return put


def with_field(name: str, value: object) -> Callable[[Members], None]:
    return replace_line("machine/answers.jsonl", 3, lambda entry: entry[1].__setitem__(name, value))


def add(name: str, content: bytes) -> Callable[[Members], None]:
    return lambda members: members.__setitem__(name, content)


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


def array_of(content: bytes) -> Callable[[Members], None]:
    def put(members: Members) -> None:
        members["machine/models/Random/coordinates.npy"] = content
        members["machine/models.jsonl"] = json.dumps(["Random", {"generation": "1"}, ["coordinates"]]).encode()

    return put


def manifest(**values: object) -> Callable[[Members], None]:
    return lambda members: members.__setitem__("manifest.json", json.dumps(values).encode())


def without(name: str) -> Callable[[Members], None]:
    return lambda members: members.__delitem__(next(member for member in members if member.startswith(name)))


ANSWERS = "machine/answers.jsonl"
HOSTILE: dict[str, tuple[Callable[[Members], None], str]] = {
    "a winner who was not shown": (with_field("winner", "29"), "answers.jsonl:4 has a winner"),
    "a target that is not there": (with_field("head", "1000"), "answers.jsonl:4 names a target"),
    "a target before the first": (with_field("head", "-1"), "answers.jsonl:4 names a target"),
    "a number that is none": (with_field("trial", "many"), "answers.jsonl:4 is no answer"),
    "a number that is huge": (with_field("trial", "9" * 300), "too long"),
    "a value that is no text": (with_field("winner", 3), "answers.jsonl:4 has a field"),
    "a value with the separator of the log": (with_field("session", "a\x1fb"), "answers.jsonl:4 has control"),
    "a participant that is another key": (with_field("participant", "../a:b"), "answers.jsonl:4 names no participant"),
    "a participant nobody knows": (with_field("participant", "a" * 12), "lacks 1 participants"),
    "a sampler that is another key": (with_field("sampler", "a}:b"), "answers.jsonl:4 names no sampler"),
    "answers out of order": (
        replace_line(ANSWERS, 5, lambda entry: ["1-0", entry[1]]),
        "answers.jsonl:6 is not in order",
    ),
    "a place that is none": (replace_line(ANSWERS, 5, lambda entry: ["*", entry[1]]), "answers.jsonl:6 has no place"),
    "an answer that is a list": (
        replace_line(ANSWERS, 5, lambda entry: [1, 2, 3]),
        "answers.jsonl:6 is not a list of 2",
    ),
    "half a line": (add(ANSWERS, b'["1-0", {"token'), "answers.jsonl:1 cannot be read"),
    "brackets without end": (add(ANSWERS, b"[" * 200_000), "answers.jsonl:1 cannot be read"),
    "an array that is a pickle": (array_of(pickled()), "coordinates.npy is no array"),
    "an array that claims to be endless": (
        array_of(encode_array(np.zeros((2, 2))).replace(b"(2, 2)", b"(9999999999, 2)")[:128]),
        "coordinates.npy is no array",
    ),
    "an array of words": (array_of(encode_array(np.array(["a", "b"]))), "array of another shape"),
    "an array for more targets": (array_of(encode_array(np.zeros((9999, 2)))), "array of another shape"),
    "a model of no sampler": (add("machine/models.jsonl", b'["Nobody", {}, []]\n'), "names no sampler"),
    "a description with mistakes": (
        replace_line("machine/revisions.jsonl", 0, lambda pair: [1, pair[1].replace("Random", "Rundum")]),
        "revisions.jsonl:1 describes",
    ),
    "a medium that is something else": (add("media/" + "0" * 64 + ".png", b"hello"), "not named by its content"),
    "a medium that is missing": (without("media/"), "is missing"),
    "a member outside": (add("../../etc/passwd", b"x"), "not a file that Salmon writes"),
    "a member at the root": (add("/etc/passwd", b"x"), "not a file that Salmon writes"),
    "a bomb": (add("machine/events.jsonl", b"\n" * 60_000_000), "not a file that Salmon writes"),
    "no state": (without("machine/state.json"), "is missing"),
    "a later format": (manifest(format=2, salmon="9.0"), "a later version of Salmon (9.0)"),
    "no format": (manifest(format="x"), "is not a bundle's"),
    "a bundle to publish": (manifest(complete=False), "made to be published"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_bundle_is_refused_with(what: str, bundle: bytes, elsewhere: Context, tmp_path: Path) -> None:
    change, words = HOSTILE[what]
    path = tmp_path / "b.zip"
    path.write_bytes(changed(bundle, change))
    with pytest.raises(BundleError) as refused:
        await restore(elsewhere, path, name="hostile", owner="bo")
    assert words in str(refused.value)
    assert await elsewhere.store.experiments.find("hostile") is None


def one_byte_changed(bundle: bytes) -> bytes:
    return changed(bundle, add("quality.csv", b"all is well"), sign=False)


def one_file_more(bundle: bytes) -> bytes:
    return changed(bundle, add("more.txt", b"x"), sign=False)


def one_file_twice(bundle: bytes) -> bytes:
    file = io.BytesIO(bundle)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("README.md", "again")
    return file.getvalue()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda bundle: b"", "no ZIP"),
        (lambda bundle: bundle[: len(bundle) // 2], "no ZIP"),
        (lambda bundle: b"hello" * 1000, "no ZIP"),
        (lambda bundle: bundle.replace(b"PK\x01\x02", b"PK\x09\x09", 1), "no ZIP"),
        (lambda bundle: bundle[:5000] + b"\x00" * 400 + bundle[5400:], "damaged or were changed"),
        (lambda bundle: (REPOSITORY / "examples" / "shapes" / "targets.zip").read_bytes(), "no manifest.json"),
        (one_byte_changed, "quality.csv"),
        (one_file_more, "more.txt"),
        (one_file_twice, "do not fit each other"),
    ],
    ids=["nothing", "half", "text", "directory", "inside", "targets", "changed", "more", "twice"],
)
async def test_a_file_that_is_not_the_bundle_that_was_written_is_refused(
    damage: Callable[[bytes], bytes], words: str, bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(damage(bundle))
    with pytest.raises(BundleError) as refused:
        await restore(elsewhere, path, name="damaged", owner="bo")
    assert words in str(refused.value)
    assert await elsewhere.store.experiments.find("damaged") is None


async def test_bundles_without_a_machine_part_are_told_from_damaged_ones(
    settings: Settings, store: Store, bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(await bundle_of(settings, store, "shapes", personal=False))
    with pytest.raises(BundleError, match="made to be published"):
        await restore(elsewhere, path, name="published", owner="bo")


def test_nothing_of_an_import_can_shorten_the_answers() -> None:
    assert "MAXLEN" not in RESTORE_ANSWERS
    assert "MINID" not in RESTORE_ANSWERS
    assert "maxlen" not in (REPOSITORY / "frontend" / "store" / "restoration.py").read_text()
