"""Files that the first Salmon and its neighbours left behind become paused experiments with the same answers."""

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from frontend.context import Context
from frontend.errors import BundleError
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer.import_answers import ImportFiles, import_file
from frontend.transfer.import_bundle import Imported
from salmon.answer_files.answer_table import read_answers
from salmon.answer_files.rows import AnswersFileError
from salmon.errors import SalmonError
from tests.bundles import rows_of, write_export
from tests.contracts.salmon_rows import covers
from tests.old_scripts import OLD_COLUMNS, OldScript, old_answers, old_backup, old_rows

CONFIG = {
    "targets": [f"<i>{k}</i>" for k in range(6)],
    "html": {"title": "Eggs", "max_queries": 20},
    "samplers": {"ARR": {"R": 1}, "random": {"class": "Random"}},
    "sampling": {"probs": {"ARR": 60, "random": 40}},
}
Rows = list[dict[str, Any]]


def as_csv(rows: Rows) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_json(rows: Rows) -> bytes:
    return json.dumps(rows).encode()


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
        archive.writestr("__MACOSX/._" + name, b"\x00")
    return file.getvalue()


def renamed(rows: Rows, names: dict[str, str], without: tuple[str, ...] = ()) -> Rows:
    return [{names.get(key, key): value for key, value in row.items() if key not in without} for row in rows]


OBJECTS = {name: name.replace("_html", "_object") for name in OLD_COLUMNS if name.endswith("_html")}
COUNTS = ("puid_num_responses", "num_responses")
LOSERS = ("loser", "loser_html", "loser_filename")
HISTORIES: dict[str, Callable[[Rows], bytes]] = {
    "1.0 csv": as_csv,
    "1.0 json": as_json,
    "1.0 json lines": lambda rows: "\n".join(json.dumps(row) for row in rows).encode(),
    "0.9": lambda rows: as_csv(renamed(rows, {}, COUNTS)),
    "0.8": lambda rows: as_csv(renamed(rows, {"sampler": "alg_ident"}, COUNTS)),
    "0.4": lambda rows: as_csv(renamed(rows, {"sampler": "alg_ident", **OBJECTS}, COUNTS)),
    "0.2": lambda rows: as_csv(renamed(rows, {"sampler": "alg_ident", **OBJECTS}, (*COUNTS, *LOSERS))),
    "with an index": lambda rows: as_csv([{"": number, **row} for number, row in enumerate(rows)]),
    "gzip": lambda rows: gzip.compress(as_csv(rows)),
    "zip": lambda rows: zipped("responses.csv", as_csv(rows)),
    "BOM": lambda rows: b"\xef\xbb\xbf" + as_csv(rows),
}


class Ways:
    """Ways of bringing a file in, and what is there afterwards."""

    def __init__(self, settings: Settings, store: Store, folder: Path) -> None:
        self.settings, self.store, self.folder = settings, store, folder
        self.context = Context(settings, store)

    async def bring(self, slug: str, content: bytes, *, config: Any = None, targets: Path | None = None) -> Imported:
        path = self.folder / f"{slug}.table"
        path.write_bytes(content)
        described = None
        if config is not None:
            described = self.folder / "init.yaml"
            described.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        return await import_file(
            self.context, ImportFiles(path, path.name, described, targets), slug=slug, otherwise="x", owner="ada"
        )

    async def rows(self, slug: str) -> list[dict[str, str]]:
        return rows_of(await write_export(self.settings, self.store, slug, "responses", "csv"))


@pytest.fixture
async def ways(settings: Settings, store: Store, tmp_path: Path) -> Ways:
    for state in await store.experiments.list():
        await store.experiments.delete(state.slug, state.experiment)
    return Ways(settings, store, tmp_path)


def same(row: dict[str, str], answer: dict[str, Any]) -> bool:
    """Whether a row of ours says what the old program stored."""
    return (
        all(row[key] == str(answer[key]) for key in ("head", "left", "right", "winner", "sampler", "puid", "loser"))
        and all(float(row[key]) == answer[key] for key in ("score", "response_time", "network_latency"))
        and abs(float(row["time_received"]) - answer["time_received"]) < 0.001
    )


@covers("responses", "object columns", "alg_ident", "no counts", "no loser", "index column", "with and without config")
@pytest.mark.parametrize("version", HISTORIES)
async def test_responses_of_every_version_are_brought_in(version: str, ways: Ways) -> None:
    answers = old_answers(30)
    made = await ways.bring("eggs", HISTORIES[version](old_rows(answers)))
    assert (made.state, made.answers, made.participants) == ("paused", 30, 3)
    assert "No experiment file was given" in made.sentence
    rows = await ways.rows("eggs")
    assert len(rows) == 30
    assert all(map(same, rows, answers))
    assert {row["signed"] for row in rows} == {"false"}
    assert {row["trial_type"] for row in rows} == {"active", "random"}
    assert rows[0]["head_html"] == f"<img src='/static/targets/{rows[0]['head']}.png' />"
    assert float(rows[0]["start_time"]) == 1_699_999_990
    assert [row["num_responses"] for row in rows] == [str(k + 1) for k in range(30)]


@covers("responses", "list-order")
async def test_bare_triplets_come_in_with_sentences_about_what_is_not_known(ways: Ways) -> None:
    made = await ways.bring("bare", b"head,winner,loser\n0,1,2\n2,0,1\n1,2,0\n3,1,0\n")
    assert "get the time of this import" in made.sentence
    assert "sides were drawn" in made.sentence
    rows = await ways.rows("bare")
    assert [(row["head"], row["winner"], row["loser"]) for row in rows] == [
        ("0", "1", "2"),
        ("2", "0", "1"),
        ("1", "2", "0"),
        ("3", "1", "0"),
    ]
    assert {(row["puid"], row["response_time"]) for row in rows} == {("", "-1.0")}


@covers("responses", "with and without config")
async def test_with_its_description_an_experiment_goes_on_as_it_was(
    ways: Ways, client: httpx.AsyncClient, store: Store
) -> None:
    assert (
        "No experiment file"
        not in (await ways.bring("known", as_csv(old_rows(old_answers(30))), config=CONFIG)).sentence
    )
    rows = await ways.rows("known")
    assert {row["prob_sampler"] for row in rows} == {"0.6", "0.4"}
    assert rows[0]["head_html"] == f"<i>{rows[0]['head']}</i>"
    assert (await client.get("/e/known/query", headers={"X-Salmon-Session": ""})).status_code == 403
    experiment = str(await store.experiments.find("known"))
    await store.experiments.set_state(experiment, "open", now_ms=1)
    session = (await client.post("/e/known/arrive", json={"parameters": {"puid": "p1"}})).json()
    assert session["error"]["code"] == "gap"  # as for everybody who comes back after years
    assert (await client.post("/e/known/arrive", json={"parameters": {"puid": "new"}})).json()["answers"] == 0
    assert await store.answers.count(experiment) == 30


async def test_a_description_of_another_experiment_is_refused(ways: Ways) -> None:
    content = as_csv(old_rows(old_answers(30)))
    with pytest.raises(BundleError, match="only 5 targets"):
        await ways.bring("other", content, config={**CONFIG, "targets": 5})
    assert "no sampler 'ARR'" in (await ways.bring("less", content, config={"targets": 6})).sentence
    assert await ways.store.experiments.find("other") is None


async def test_a_zip_of_targets_gives_the_pictures_back(ways: Ways, examples: Path) -> None:
    content = as_csv(old_rows(old_answers(12)))
    assert "files of its targets are missing" in (await ways.bring("without", content)).sentence
    assert (
        "targets are missing"
        not in (await ways.bring("with", content, targets=examples / "shapes" / "targets.zip")).sentence
    )
    assert (await ways.rows("with"))[0]["head_html"].startswith("<img src='/media/")


@covers("files", "backup", "pickles are never read")
@pytest.mark.parametrize("trees", [True, False])
async def test_a_backup_is_read_by_its_json_alone(trees: bool, ways: Ways) -> None:
    answers = old_answers(40)
    made = await ways.bring("backup", old_backup({**CONFIG, "n": 6}, answers, trees=trees).bytes())
    assert (made.state, made.answers, made.participants) == ("paused", 40, 3)
    rows = await ways.rows("backup")
    assert all(map(same, rows, answers))
    assert rows[0]["head_html"] == f"<i>{rows[0]['head']}</i>"
    config = yaml.safe_load(await write_export(ways.settings, ways.store, "backup", "config", "yaml"))
    assert config["html"]["title"] == "Eggs"
    assert float(rows[0]["start_time"]) == 1_699_999_990


async def test_a_description_from_before_there_was_html_is_understood(ways: Ways) -> None:
    flat = {
        "instructions": "Which?",
        "max_queries": -1,
        "debrief": "Thanks!",
        "samplers": {"random": {"class": "RandomSampling"}, "ARR": {"class": "ARR"}},
        "d": 3,
        "skip_button": False,
        "css": "",
        "targets": [str(k) for k in range(6)],
        "n": 6,
        "sampling": {"probs": {"random": 50, "ARR": 50}},
    }
    assert "Moved under html" in (await ways.bring("flat", old_backup(flat, old_answers(10)).bytes())).sentence
    config = yaml.safe_load(await write_export(ways.settings, ways.store, "flat", "config", "yaml"))
    assert (config["html"]["instructions"], config["samplers"]["ARR"]["d"]) == ("Which?", 3)


@covers("http", "/restore")
@covers("files", "backup")
async def test_scripts_restore_an_old_backup(server: OldScript, settings: Settings) -> None:
    backup = old_backup(CONFIG, old_answers(25)).bytes()
    made = await server.post("/init_exp", files={"rdb": ("exp-2023-11-14T22:13-salmon-1.0.0.rdb", backup)})
    assert "25 answers of 3 participants" in made.json()["message"]
    assert [row["head"] for row in (await server.get("/responses")).json()] == [
        answer["head"] for answer in old_answers(25)
    ]
    assert (await server.client.get("/query")).status_code == 409  # paused, until somebody opens it
    files = {
        "bundle": ("responses.csv", as_csv(old_rows(old_answers(5)))),
        "config": ("init.yaml", yaml.safe_dump(CONFIG).encode()),
    }
    assert (await server.post("/api/experiments/import", 201, files=files)).json()["answers"] == 5


TRIPLETTOOLS = """head,winner,loser,worker_id,rt,Center,Left,Right,Answer,sampleAlg,sampleSet
0,1,2,w1,812.5,ant,bee,cat,bee,random,train
1,2,0,w1,700,bee,ant,cat,cat,validation,test
2,0,1,w2,650,cat,ant,bee,ant,adaptive,train
2,2,1,w2,640,cat,cat,bee,cat,check,
"""


@covers("tripletTools", "triplets", "legacy names", "jsPsych template")
@pytest.mark.parametrize(
    "text",
    [
        TRIPLETTOOLS,
        TRIPLETTOOLS.replace("worker_id", "session_id").replace("Left", "Option1").replace("Right", "Option2"),
        TRIPLETTOOLS.replace("Center", "Target").replace("Left", "Option1").replace("Right", "Option2"),
        (
            "rt,Center,Left,Right,Answer,worker_id,sampleAlg,sampleSet,trial_index\n"
            "812.5,img/ant.png,img/bee.png,img/cat.png,left,w1,random,train,4\n"
            "700,img/bee.png,img/ant.png,img/cat.png,right,w1,validation,test,5\n"
            "650,img/cat.png,img/ant.png,img/bee.png,left,w2,adaptive,train,6\n"
            "640,img/cat.png,img/cat.png,img/bee.png,left,w2,check,,7\n"
        ),
    ],
)
async def test_tables_of_labels_are_brought_in(text: str, ways: Ways) -> None:
    await ways.bring("labels", text.encode())
    rows = await ways.rows("labels")
    columns = ("head", "left", "right", "winner", "trial_type", "rt_ms", "puid")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("0", "1", "2", "1", "random", "812.5", "w1"),
        ("1", "0", "2", "2", "validation", "700.0", "w1"),
        ("2", "0", "1", "0", "active", "650.0", "w2"),
        ("2", "2", "1", "2", "catch", "640.0", "w2"),
    ]
    assert {row["head_html"].rpartition("/")[2].partition(".")[0] for row in rows} == {"ant", "bee", "cat"}


@covers("tripletTools", "triplets", "embeddings")
async def test_what_goes_out_to_tripletTools_comes_back_in(ways: Ways) -> None:
    await ways.bring("out", as_csv(old_rows(old_answers(20))))
    table = await write_export(ways.settings, ways.store, "out", "triplettools_triplets", "csv")
    row = rows_of(table)[0]
    assert ",".join(list(row)[:11]) == TRIPLETTOOLS.partition("\n")[0]
    assert row["rt"] == "1250.0"  # milliseconds there, seconds in responses
    assert {row["sampleAlg"] for row in rows_of(table)} <= {"random", "validation", "check", "adaptive"}
    await ways.bring("back", table)
    first, second = await ways.rows("out"), await ways.rows("back")
    assert [row["winner"] for row in first] == [row["winner"] for row in second]
    with pytest.raises(SalmonError, match="no embedding yet"):
        await write_export(ways.settings, ways.store, "out", "triplettools_embeddings", "csv")
    assert len(read_answers(table.decode()).triplets) == 20


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "the columns are a, b"),
        (
            b"head,left,right,winner\n0,1,2,3\n",
            "2:4: In column 'winner': The winner is '3' but the feet are '1' and '2'",
        ),
        (b"head,winner,loser\n0,1,1\n-1,0,2\nx,1,2\n0,,2\n", "The winner is missing"),
        (b"head,winner,loser\n0,1,2\n0,1\n", "3: The row has 2 cells but the table has 3 columns"),
        (b"head,winner,loser\n0,1,999999999\n", "at most 100,000"),
        (b"head,winner,loser,time_received\n0,1,2,soon\n", "The time 'soon' cannot be read"),
        (b"[" * 200_000, "not JSON"),
        (b'[{"head": 1}, 2]', "the columns are head"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"REDIS0009\xff", "holds no experiment"),
        (b"REDIS0099\xff", "up to 12 can be read"),
        (b"REDIS0009\x00\x03abc\xc3\x7f", "breaks off at byte"),
    ],
)
async def test_what_cannot_be_brought_in_says_where_and_why(content: bytes, words: str, ways: Ways) -> None:
    with pytest.raises(AnswersFileError, match=re.escape(words)):
        await ways.bring("wrong", content)
    assert await ways.store.experiments.find("wrong") is None
