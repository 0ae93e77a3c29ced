"""What leaves the system through the application, from the real store."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet
import pytest

from frontend.context import Context
from frontend.errors import ClientLeftError, ConflictError, SalmonError, TooManyError, status_of
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer import subprocesses as transfer_subprocesses
from frontend.transfer.__main__ import write
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import EXTENSIONS, MOST, BrokenOffError, ExportOrder, Subprocesses, check_order
from salmon.answer_files.answer_table import read_bytes
from salmon.errors import StoreError
from salmon.export import FIRST_COLUMNS
from tests.bundles import bundle_of, rows_of, write_export
from tests.living import started
from tests.program import REPOSITORY
from tests.studies import OWNER

SPEC = """
targets: 30
html: {max_queries: 20}
samplers: {Random: {}, Validation: {n_queries: 5}}
questions: [{name: age, text: How old are you?, type: number}]
recruitment: {platform: prolific, completion_code: SECRET99}
seed: 3
"""
FILES = "/api/experiments/{}/exports/{}"


@pytest.fixture
async def slug(
    client: httpx.AsyncClient, settings: Settings, store: Store, owner: tuple[str, str]
) -> AsyncIterator[str]:
    """An experiment with sixty answers of three people, who came from a platform."""
    if "files" not in [state.slug for state in await store.experiments.list()]:
        crowd, _ = await started(client, settings, store, "files", SPEC)
        for name in ("p0", "p1", "p2"):
            await crowd.arrive(name, PROLIFIC_PID=f"5f00{name}", STUDY_ID="study")
        await crowd.answer(60)
        events = [{"event": "blur", "client_ms": 10.0, "trial": 1}, {"event": "focus", "client_ms": 1010.0, "trial": 1}]
        await client.post("/e/files/events", json=events, headers=crowd.sessions["p0"])
    yield "files"
    if experiment := await store.experiments.find("files"):
        for participant in (await store.export_reader.read_arrivals(experiment)).values():
            await store.participants.decide(experiment, {participant: ("auto", "")}, by="", now_ms=0)


async def test_a_file_comes_through_a_process_of_its_own(client: httpx.AsyncClient, slug: str) -> None:
    reply = await client.get(FILES.format(slug, "responses.csv"), auth=OWNER)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert reply.headers["content-disposition"] == 'attachment; filename="files-responses.csv"'
    rows = rows_of(reply.content)
    assert (len(rows), list(rows[0])[:26]) == (60, list(FIRST_COLUMNS))
    assert [row["num_responses"] for row in rows] == [str(place) for place in range(1, 61)]
    assert {row["puid"] for row in rows} == {"5f00p0", "5f00p1", "5f00p2"}
    assert {row["config_hash"] for row in rows} != {""}


async def test_what_is_written_can_be_fitted_from(settings: Settings, store: Store, slug: str) -> None:
    content = await write_export(settings, store, slug, "responses", "csv")
    table = read_bytes(content)
    # Twenty answers of a noisy world now and then look careless: who is marked as excluded is left out, and nobody
    # else.
    assert len(table.triplets) == sum(row["excluded"] == "false" for row in rows_of(content)) >= 20
    assert set(table.samplers) == {"Random", "Validation"}


@pytest.mark.parametrize(
    "name", [name for name, forms in EXTENSIONS.items() if "csv" in forms and "embeddings" not in name]
)
async def test_every_table_is_the_same_in_every_form(settings: Settings, store: Store, slug: str, name: str) -> None:
    lines = [json.loads(line) for line in (await write_export(settings, store, slug, name, "jsonl")).splitlines()]
    parquet = pyarrow.parquet.read_table(io.BytesIO(await write_export(settings, store, slug, name, "parquet")))
    assert parquet.to_pylist() == lines
    assert len(rows_of(await write_export(settings, store, slug, name, "csv"))) == len(lines)
    assert bool(lines) == (name not in {"models", "embedding_history"})


async def test_ids_of_platforms_are_left_out_on_request(settings: Settings, store: Store, slug: str) -> None:
    with zipfile.ZipFile(io.BytesIO(await bundle_of(settings, store, slug, personal=False))) as archive:
        names = archive.namelist()
        found = [name for name in names if b"5f00p" in archive.read(name) or b"study" in archive.read(name)]
    assert "responses.csv" in names
    assert not [name for name in names if name.startswith(("machine/", "platform_ids"))]
    assert found == []
    ids = rows_of(await write_export(settings, store, slug, "platform_ids", "csv"))
    assert [(row["source"], row["puid"], row["study_id"]) for row in ids][:1] == [("prolific", "5f00p0", "study")]


def passage(path: str, begins: str, ends: str) -> str:
    """The text of a file between two pieces of it, both included."""
    _, begin, rest = (REPOSITORY / path).read_text().partition(begins)
    within, end, _ = rest.partition(ends)
    assert end, f"{path} has no passage from {begins} to {ends}"
    return begin + within + end


def named_in(text: str) -> set[str]:
    """The exported files that a text names."""
    return {name for name in EXTENSIONS if re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", text)}


@pytest.mark.parametrize(
    ("path", "begins", "ends"),
    [
        ("frontend/static/console/exports.js", '["platform_ids",', "TABLE]"),
        ("frontend/transfer/participant_tables.py", "PLATFORM_IDS = Table(", "(\n"),
        ("docs/exports.md", "Platform ids are in", "nowhere else"),
        ("docs/privacy.md", "| platform id, parameters of the link |", "bundle"),
    ],
)
async def test_sentences_name_every_file_that_holds_platform_ids(
    settings: Settings, store: Store, slug: str, path: str, begins: str, ends: str
) -> None:
    holding: set[str] = set()
    for name, extensions in EXTENSIONS.items():
        with suppress(
            ConflictError
        ):  # without an embedding there is nothing about targets to write, and people are not in it
            plain = next(extension for extension in extensions if extension not in {"npz", "parquet"})
            if b"5f00p" in await write_export(settings, store, slug, name, plain):
                holding.add(name)
    assert {"responses", "platform_ids"} < holding
    assert named_in(passage(path, begins, ends)) == holding


@pytest.mark.parametrize(
    ("path", "begins", "ends"),
    [
        ("templates/console/exports.html", "only <code>", "not in it"),
        ("docs/exports.md", "(all but", "which repeat"),
    ],
)
async def test_sentences_name_what_a_bundle_leaves_out(
    settings: Settings, store: Store, slug: str, path: str, begins: str, ends: str
) -> None:
    with zipfile.ZipFile(io.BytesIO(await bundle_of(settings, store, slug))) as archive:
        held = {name.partition(".")[0] for name in archive.namelist() if "/" not in name}
        machine = {name for name in archive.namelist() if name.startswith("machine/")}
        assert any(b"5f00p" in archive.read(name) for name in machine)
    assert named_in(passage(path, begins, ends)) == set(EXTENSIONS) - held


def test_the_page_of_exports_lists_every_file() -> None:
    listed = passage("frontend/static/console/exports.js", "const FILES", "\n];")
    assert named_in(listed) == set(EXTENSIONS)


async def test_completion_codes_are_in_no_file_for_readers(settings: Settings, store: Store, slug: str) -> None:
    with zipfile.ZipFile(io.BytesIO(await bundle_of(settings, store, slug))) as archive:
        told = [name for name in archive.namelist() if b"SECRET99" in archive.read(name)]
    assert told == ["machine/revisions.jsonl"]


async def test_files_of_one_sampler_and_without_whom_is_excluded(
    client: httpx.AsyncClient, settings: Settings, store: Store, slug: str
) -> None:
    one = rows_of(await write_export(settings, store, slug, "responses", "csv", sampler="Validation"))
    assert {row["sampler"] for row in one} == {"Validation"}
    out = one[0]["participant"]
    done = await client.put(
        f"/api/experiments/{slug}/participants/{out}", json={"keep": "exclude", "note": "Slept."}, auth=OWNER
    )
    assert (done.status_code, done.json()["keep"], done.json()["decided_by"]) == (200, False, "owner")
    marked = rows_of(await write_export(settings, store, slug, "responses", "csv"))
    reasons = {row["participant"]: (row["excluded"], row["exclusion_reason"]) for row in marked}
    assert len(marked) == 60
    assert reasons.pop(out) == ("true", "Excluded by hand: Slept.")
    left = rows_of(await write_export(settings, store, slug, "responses", "csv", excluded="leave_out"))
    assert {row["participant"] for row in left} <= set(reasons)
    assert [row["num_responses"] for row in left] == [str(place) for place in range(1, len(left) + 1)]
    arrays = np.load(io.BytesIO(await write_export(settings, store, slug, "cblearn", "npz")), allow_pickle=False)
    assert arrays["excluded"].sum() >= 20
    assert arrays["triplets"].shape == (60, 3)


@pytest.mark.usefixtures("slug")
@pytest.mark.parametrize(
    ("order", "status", "words"),
    [
        (ExportOrder("files", "answers", "csv"), 404, "There are responses,"),
        (ExportOrder("files", "responses", "xlsx"), 404, "responses.csv and responses.jsonl"),
        (ExportOrder("files", "bundle", "zip"), 404, "There is no export called 'bundle'"),
        (ExportOrder("files", "platform_ids", "csv", personal=False), 400, "contains only platform ids"),
        (ExportOrder("files", "responses", "csv", sampler="ARR"), 404, "There is Random, Validation"),
        (ExportOrder("files", "embeddings", "csv"), 409, "There is no embedding yet."),
        (ExportOrder("files", "embeddings", "csv", generation=3), 409, "Kept are none yet"),
        (ExportOrder("nobody", "responses", "csv"), 404, "no experiment called 'nobody'"),
    ],
)
async def test_what_cannot_be_written_is_a_sentence(
    settings: Settings, store: Store, order: ExportOrder, status: int, words: str
) -> None:

    async def ordered() -> None:
        await write(await ExportSource.open(Context(settings, store), check_order(order)), io.BytesIO())

    with pytest.raises(SalmonError) as refused:
        await ordered()
    assert words in str(refused.value)
    assert status_of(refused.value) == status


async def test_the_sentence_comes_before_the_first_byte(client: httpx.AsyncClient, slug: str) -> None:
    for path, status in (("embeddings.csv", 409), ("answers.csv", 404), ("responses.csv?excluded=delete", 422)):
        reply = await client.get(FILES.format(slug, path), auth=OWNER)
        assert (reply.status_code, "message" in reply.json()["error"]) == (status, True)


async def test_figures_of_quality_are_there_at_once_and_new_when_they_are_ready(
    client: httpx.AsyncClient, settings: Settings, store: Store, slug: str
) -> None:
    address = f"/api/experiments/{slug}/participants"
    found = (await client.get(address, params={"wait": "yes"}, auth=OWNER)).json()
    assert (found["fresh"], found["total"]) == (True, 3)
    assert [row["answers"] for row in found["participants"]] == [20, 20, 20]
    assert all(row["figures"]["completeness"] == 1.0 for row in found["participants"])
    first = found["participants"][0]["participant"]
    await client.put(f"{address}/{first}", json={"keep": "exclude"}, auth=OWNER)
    told = (await client.get(address, auth=OWNER)).json()
    assert (told["fresh"], told["as_of"], told["participants"][0]["keep_manual"]) == (False, found["as_of"], "exclude")
    fresh = (await client.get(address, params={"wait": "yes", "offset": 1, "limit": 1}, auth=OWNER)).json()
    assert (fresh["fresh"], len(fresh["participants"])) == (True, 1)
    unknown = await client.put(f"{address}/nobody", json={"keep": "keep"}, auth=OWNER)
    assert (unknown.status_code, unknown.json()["error"]["where"]) == (404, "participant")
    assert (await client.put(f"{address}/{first}", json={"keep": "delete"}, auth=OWNER)).status_code == 422


async def test_several_participants_are_decided_about_at_once_or_none(
    client: httpx.AsyncClient, settings: Settings, store: Store, slug: str
) -> None:
    address = f"/api/experiments/{slug}/participants"
    names = [row["participant"] for row in (await client.get(address, auth=OWNER)).json()["participants"]]
    wrong = [{"participant": name, "keep": "exclude", "note": "N."} for name in (names[0], "nobody")]
    refused = await client.put(address, json={"decisions": wrong}, auth=OWNER)
    assert (refused.status_code, refused.json()["error"]["where"]) == (404, "participant")
    kept = (await client.get(address, auth=OWNER)).json()["participants"]
    assert [row["keep_manual"] for row in kept] == ["", "", ""]
    decisions = [{"participant": name, "keep": "exclude", "note": "N."} for name in names[:2]]
    made = (await client.put(address, json={"decisions": decisions}, auth=OWNER)).json()["participants"]
    assert [(row["participant"], row["keep"], row["note"]) for row in made] == [
        (name, False, "N.") for name in names[:2]
    ]
    assert (await client.put(address, json={"decisions": []}, auth=OWNER)).status_code == 422


async def test_the_answers_of_one_participant_are_told_in_order(
    client: httpx.AsyncClient, settings: Settings, store: Store, slug: str
) -> None:
    address = f"/api/experiments/{slug}/participants"
    who = (await client.get(address, auth=OWNER)).json()["participants"][0]
    one = who["participant"]
    told = (await client.get(f"{address}/{one}/answers", auth=OWNER)).json()
    rows = [dict(zip(told["columns"], row, strict=True)) for row in told["answers"]]
    exported = (await client.get(FILES.format(slug, "responses.jsonl"), auth=OWNER)).text.splitlines()
    own = [row for row in map(json.loads, exported) if row["puid"] == who["puid"]]
    assert len(rows) == 20
    assert [row["side"] for row in rows] == [row["winner_side"] for row in own]
    assert sorted(row["received_ms"] for row in rows) == [row["received_ms"] for row in rows]
    assert (await client.get(f"{address}/nobody/answers", auth=OWNER)).status_code == 404


async def test_a_process_that_ends_in_the_middle_breaks_the_file_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "begins_and_fails.py").write_text("print('half a file', flush=True)\nraise SystemExit(3)\n")
    (tmp_path / "tells.py").write_text(
        'import sys\nprint(\'{"status": 418, "error": {"message": "No."}}\', file=sys.stderr)\nraise SystemExit(1)\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocesses = Subprocesses(settings)
    monkeypatch.setattr(transfer_subprocesses, "MODULE", "begins_and_fails")
    pieces = await subprocesses.stream("export")
    with caplog.at_level(logging.CRITICAL), pytest.raises(BrokenOffError):
        assert b"".join([piece async for piece in pieces]) == b""
    monkeypatch.setattr(transfer_subprocesses, "MODULE", "tells")
    with caplog.at_level(logging.CRITICAL), pytest.raises(SalmonError, match="No") as told:
        await subprocesses.stream("export")
    assert told.value.status == 418  # type: ignore[attr-defined]


async def test_a_process_nobody_listens_to_is_ended_and_only_so_many_run(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "endless.py").write_text("while True: print('x' * 10_000, flush=True)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocesses = Subprocesses(settings)
    monkeypatch.setattr(transfer_subprocesses, "MODULE", "endless")
    open_files = [await subprocesses.stream("export") for _ in range(MOST)]
    with pytest.raises(TooManyError):
        await subprocesses.stream("export")
    for pieces in open_files:
        assert await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]
    again = await subprocesses.stream("export")
    await again.aclose()  # type: ignore[attr-defined]


async def test_two_who_ask_for_the_same_figures_start_one_process_and_it_rests_afterwards(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_subprocesses, "MODULE", "platform")
    subprocesses = Subprocesses(settings)
    one, other = (subprocesses.begin("same", "export", urgent=False) for _ in range(2))
    assert one is other
    assert one is not None
    assert await one
    assert subprocesses.begin("same", "export", urgent=False) is None
    again = subprocesses.begin("same", "export")
    assert again not in {one, None}
    assert await again  # type: ignore[misc]


def test_a_process_whose_reader_is_gone_ends_without_a_word(settings: Settings, slug: str) -> None:
    environment = {f"SALMON_{name.upper()}": str(value) for name, value in settings.model_dump().items()}
    command = (sys.executable, "-m", "frontend.transfer", "export", ExportOrder(slug, "responses", "csv").encode())
    writer = subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert (writer.stderr.read(), writer.wait()) == (b"", 1)
    writer.stderr.close()


async def test_a_page_that_waited_too_long_for_a_slow_reader_is_asked_for_again(
    settings: Settings, store: Store, slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await write_export(settings, store, slug, "responses", "csv")
    run, failed = store.connection.run, []

    async def run_late(script: str, *arguments: object) -> object:
        failed.append(script)
        if len(failed) % 2:
            raise StoreError("The store does not respond at the moment.")
        return await run(script, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("frontend.store.export_reader.PAGE", 7)
    monkeypatch.setattr(store.connection, "run", run_late)
    assert await write_export(settings, store, slug, "responses", "csv") == whole
    assert len(failed) >= 2 * (60 // 7)


async def test_only_experimenters_get_files(client: httpx.AsyncClient, slug: str) -> None:
    for path in ("exports/responses.csv", "bundle", "participants"):
        assert (await client.get(f"/api/experiments/{slug}/{path}")).status_code == 401
    assert (await client.post("/api/experiments/import", files={"bundle": b"x"})).status_code == 401


async def test_work_ends_when_its_client_has_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "silent.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(transfer_subprocesses, "MODULE", "silent")
    subprocesses = Subprocesses(settings)

    async def left() -> bool:
        return (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text())

    for work in (subprocesses.watch(left).run, subprocesses.watch(left).stream):
        with pytest.raises(ClientLeftError):
            await work("import")
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)
        (tmp_path / "pid").unlink()
    assert not subprocesses._running
