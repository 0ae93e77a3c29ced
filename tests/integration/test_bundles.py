"""A bundle is the experiment: it comes back elsewhere, bit for bit, and nothing else than a bundle comes in."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.errors import ConflictError
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.experiments import Revision
from frontend.store.importing import RESTORE_ANSWERS
from frontend.transfer.__main__ import write
from frontend.transfer.import_bundle import import_bundle
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import BUNDLE, ExportOrder
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from salmon.spec import dump_spec, read_stored_spec
from salmon.wire import Keys
from tests.bundles import Members, bundle_of, change_bundle, members_of, read_answers, rows_of, write_export
from tests.living import Crowd, absorbed, client_on, run_until
from tests.oracles import recount
from tests.program import REPOSITORY, Program

SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}, Validation: {}}\nseed: 11\n"


async def import_into(context: Context, bundle: bytes, path: Path, name: str = "") -> str:
    """The id of the experiment that a bundle becomes."""
    path.write_bytes(bundle)
    made = await import_bundle(context, path, name=name, owner="bo")
    experiment = await context.store.experiments.find(made.slug)
    assert experiment is not None
    return experiment


async def test_an_experiment_comes_back_on_another_machine_bit_for_bit(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    experiment = await import_into(elsewhere, bundle, tmp_path / "b.zip")
    before, after = members_of(bundle), members_of(await bundle_of(elsewhere.settings, elsewhere.store, "shapes"))
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
        members["machine/state.json"] = json.dumps(
            {**json.loads(members["machine/state.json"]), "answers": "7", "answers:Random": "0"}
        ).encode()

    experiment = await import_into(elsewhere, change_bundle(bundle, lie), tmp_path / "b.zip", "counted")
    state = await elsewhere.store.experiments.read(experiment)
    assert state.counters["answers"] == 90
    assert sum(count for name, count in state.counters.items() if name.startswith("answers:")) == 90
    answers = await read_answers(elsewhere.store, experiment)
    assert {
        name: int(value) for name, value in (await elsewhere.store.experiments.read_counts(experiment)).items()
    } == recount(answers)


async def test_bundles_of_earlier_versions_hold_their_description_as_yaml(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    def write_as_before(members: Members) -> None:
        number, text = json.loads(members["machine/revisions.jsonl"])
        revision = Revision.decode(text)
        older = replace(revision, spec=dump_spec(read_stored_spec(revision.spec)))
        members["machine/revisions.jsonl"] = (json.dumps([number, older.encode()]) + "\n").encode()

    now = await import_into(elsewhere, bundle, tmp_path / "now.zip", "as-json")
    before = await import_into(elsewhere, change_bundle(bundle, write_as_before), tmp_path / "before.zip", "as-yaml")
    assert not (await elsewhere.store.experiments.read_revision(before, 1)).spec.startswith("{")
    assert (await elsewhere.catalogue.revision(before, 1)) == (await elsewhere.catalogue.revision(now, 1))


async def test_people_go_on_where_they_were_after_an_import(bundle: bytes, elsewhere: Context, tmp_path: Path) -> None:
    experiment = await import_into(elsewhere, bundle, tmp_path / "b.zip", "open-again")
    await elsewhere.store.experiments.set_state(experiment, "open", now_ms=1)
    async with client_on(elsewhere.settings, elsewhere.store) as client:
        crowd = Crowd(client, "open-again")
        assert (await crowd.arrive("p0"))["answers"] == 30
        await crowd.answer_left("new")
    assert await elsewhere.store.answers.count(experiment) == 91
    people = await elsewhere.store.export_reader.read_arrivals(experiment)
    assert len(people) == 4
    reader = elsewhere.store.export_reader
    ((_, _, seen),) = await anext(reader.read_people_entries(experiment, [people["link:p0"]]))
    lines = [json.loads(line) for line in members_of(bundle)["machine/participants.jsonl"].splitlines()]
    assert seen == next(set(asked) for name, _, asked in lines if name == people["link:p0"])
    assert len(seen) >= 4


async def test_models_come_back_and_the_learning_goes_on_after_them(
    learning: Callable[..., Any], settings: Settings, store: Store, elsewhere: Context, tmp_path: Path
) -> None:
    crowd, experiment, service = await learning("learned", SPEC)
    for _ in range(3):
        await crowd.answer(20)
        run_until(service, lambda: absorbed(service, experiment) > 0.5 * len(crowd.given))
    reported = Keys(experiment).model("Adaptive")
    run_until(service, lambda: service._store._binary.hget(reported, "reported") is not None)
    service.stop()
    names = ("responses", "embeddings", "embedding_history", "models", "quality")
    before = [await write_export(settings, store, "learned", name, "csv") for name in names]
    made = await import_into(elsewhere, await bundle_of(settings, store, "learned"), tmp_path / "b.zip")
    after = [await write_export(elsewhere.settings, elsewhere.store, "learned", name, "csv") for name in names]
    assert before == after
    rows = rows_of(after[1])
    assert len(rows) == 30
    assert all(row["0"] == row["dim_0"] and row["alg"] == row["sampler"] == "Adaptive" for row in rows)
    kept = {row["generation"] for row in rows_of(after[2])}
    assert len(rows_of(after[2])) == 30 * len(kept)
    one = rows_of(await write_export(settings, store, "learned", "embeddings", "csv", generation=int(min(kept))))
    assert {row["generation"] for row in one} == {min(kept)}
    await check_that_it_goes_on(elsewhere, made)


async def check_that_it_goes_on(elsewhere: Context, experiment: str) -> None:
    """The learning process there takes the generations up after the imported ones, and keeps them."""
    directory = DataDirectory(Path(elsewhere.settings.data))
    own = BackendStore(directory.redis_url("backend", directory.credentials().backend))
    history = [entry async for entry in elsewhere.store.models.read_history(experiment, "Adaptive")]
    last = int(history[-1][1].numbers["generation"])
    await elsewhere.store.experiments.set_state(experiment, "open", now_ms=1)
    service = Service(own, SerialExecutor)
    try:
        service.begin()
        async with client_on(elsewhere.settings, elsewhere.store) as client:
            await Crowd(client, "learned").answer(20)
        run_until(service, lambda: service.experiments[experiment].learners["Adaptive"].state.generation > last)
    finally:
        service.stop()
        service.close()
        own.close()
    after = [entry async for entry in elsewhere.store.models.read_history(experiment, "Adaptive")]
    assert after[: len(history)] == history
    assert int(after[len(history)][1].numbers["generation"]) == last + 1
    await elsewhere.store.experiments.set_state(experiment, "closed", now_ms=1)


async def test_the_notebook_runs_from_top_to_bottom_in_plain_python(bundle: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        archive.extractall(tmp_path)
    cells = json.loads((tmp_path / "analysis.ipynb").read_text())["cells"]
    (tmp_path / "run.py").write_text(
        "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    )
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
        "from frontend.transfer.__main__ import main\n"
        "from frontend.store.importing import Importer\n"
        "step = sys.argv.pop()\n"
        "async def die(self, *_): os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(Importer, step, die)\n"
        "main(['import', *sys.argv[1:]], sys.stdout.buffer)\n"
    )
    environment = {f"SALMON_{name.upper()}": str(value) for name, value in elsewhere.settings.model_dump().items()}
    order = {"answers": str(path), "name": path.name, "slug": "killed", "otherwise": "", "owner": "bo"}
    for step in ("check", "write_people", "reveal"):
        killed = subprocess.run(
            (sys.executable, str(tmp_path / "dies.py"), json.dumps(order), step),
            cwd=REPOSITORY,
            env={**os.environ, **environment, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            check=False,
        )
        assert killed.returncode == -9, killed.stderr
        assert "killed" not in [state.slug for state in await elsewhere.store.experiments.list()]
    await import_into(elsewhere, bundle, path, "killed")
    assert (
        await write_export(elsewhere.settings, elsewhere.store, "killed", "responses", "csv")
        == members_of(bundle)["responses.csv"]
    )
    with pytest.raises(ConflictError, match="already"):
        await import_bundle(elsewhere, path, name="killed", owner="bo")


async def test_the_log_of_a_deleted_experiment_is_never_mixed_with_an_import(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    first = await import_into(elsewhere, bundle, tmp_path / "b.zip", "deleted")
    await elsewhere.store.experiments.set_state(first, "open", now_ms=1)
    async with client_on(elsewhere.settings, elsewhere.store) as client:
        await Crowd(client, "deleted").answer_left("late")
    await elsewhere.store.experiments.delete("deleted", first)
    second = await import_into(elsewhere, bundle, tmp_path / "b.zip", "deleted")
    assert second != first
    assert await elsewhere.store.answers.count(second) == 90


async def test_the_route_and_the_commands_do_the_same(
    bundle: bytes, owned: Callable[..., Any], settings: Settings, tmp_path: Path
) -> None:
    address = "/api/experiments/import"
    reply = await owned("POST", address, files={"bundle": ("b.zip", bundle)}, data={"name": "By Route"})
    assert reply.status_code == 201, reply.text
    made = reply.json()
    assert (made["slug"], made["state"], made["answers"], made["participants"]) == ("by-route", "paused", 90, 3)
    assert "It is paused" in made["message"]
    for content, status, word in ((b"PK", 422, "not a ZIP"), (bundle, 409, "already")):
        reply = await owned("POST", address, files={"bundle": ("b.zip", content)})
        assert (reply.status_code, word in reply.text) == (status, True), reply.text

    command = Program(Path(settings.data)).run
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


def test_nothing_of_an_import_can_shorten_the_answers() -> None:
    assert "MAXLEN" not in RESTORE_ANSWERS
    assert "MINID" not in RESTORE_ANSWERS
    assert "maxlen" not in (REPOSITORY / "frontend" / "store" / "importing.py").read_text()


async def test_somebody_who_arrives_while_a_bundle_is_written_is_not_half_in_it(
    bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    await import_into(elsewhere, bundle, tmp_path / "first.zip", "busy")
    experiment = await elsewhere.catalogue.find("busy")
    await elsewhere.store.experiments.set_state(experiment.id, "open", now_ms=elsewhere.now_ms())
    source = await ExportSource.open(elsewhere, ExportOrder("busy", *BUNDLE))
    known = await source.people()
    async with client_on(elsewhere.settings, elsewhere.store) as client:
        reply = await client.post("/e/busy/arrive", json={"parameters": {"puid": "late"}})
        assert reply.status_code == 200
    output = io.BytesIO()
    await write(source, output)
    made = await import_into(elsewhere, output.getvalue(), tmp_path / "second.zip", "again")
    arrivals = await elsewhere.store.export_reader.read_arrivals(made)
    assert set(arrivals.values()) <= set(known)
    assert arrivals
