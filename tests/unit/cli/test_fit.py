"""`salmon fit`: files go in, an embedding, a report and a map come out, and mistakes are sentences."""

import csv
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from salmon.cli.fit import fit
from salmon.errors import SalmonError
from salmon.simulate import egg_world, stream

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers_csv():
    world = egg_world(30)
    rows = world.answer(world.random_queries(600, stream(0, "queries")), stream(0, "answers"))
    return "head,winner,loser,sampler,head_filename\n" + "".join(
        f"{h},{w},{x},Random,egg {h}.png\n" for h, w, x in rows.tolist()
    )


@pytest.fixture
def call():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fit)

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def responses(tmp_path, answers_csv):
    path = tmp_path / "responses.csv"
    path.write_text(answers_csv)
    return path


def test_a_file_of_answers_becomes_an_embedding_a_report_and_a_map(call, responses, tmp_path):
    result = call(responses, "-o", tmp_path / "out" / "eggs.csv")
    assert result.exit_code == 0, result.output
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"eggs.csv", "eggs-report.json", "eggs-report.txt", "eggs-map.png", "eggs-map.svg"}
    rows = list(csv.DictReader((tmp_path / "out" / "eggs.csv").read_text().splitlines()))
    assert list(rows[0]) == ["target_html", "target_id", "alg", "0", "1", "target", "dim_0", "dim_1", "sd_0", "sd_1"]
    assert [int(row["target_id"]) for row in rows] == list(range(30))
    assert rows[7]["target"] == "egg 7"
    assert all(row["0"] == row["dim_0"] for row in rows)
    report = json.loads((tmp_path / "out" / "eggs-report.json").read_text())
    assert report["n_targets"] == 30
    assert report["held_out"]["accuracy"] > 0.7
    assert "Held-out accuracy" in result.output


def test_targets_keep_their_index_where_others_have_no_answers(call, tmp_path):
    (tmp_path / "few.csv").write_text("2,5,9\n5,2,9\n9,5,2\n2,9,5\n")
    assert call(tmp_path / "few.csv", "-o", tmp_path / "e.csv").exit_code == 0
    lines = (tmp_path / "e.csv").read_text().splitlines()
    assert [row["target_id"] for row in csv.DictReader(lines)] == ["2", "5", "9"]


def test_the_same_answers_give_the_same_files_however_they_are_packed(call, responses, tmp_path, answers_csv):
    packed = tmp_path / "responses.csv.gz"
    packed.write_bytes(gzip.compress(answers_csv.encode()))
    call(responses, "-o", tmp_path / "a.csv")
    call(packed, "-o", tmp_path / "b.csv")
    for ending in (".csv", "-report.json", "-report.txt", "-map.png", "-map.svg"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_dimension_and_noise_are_taken_as_given(call, responses, tmp_path):
    result = call(responses, "-o", tmp_path / "e.csv", "--dim", 3, "--noise", "ckl", "--folds", 3)
    assert result.exit_code == 0, result.output
    assert "in 3 dimensions" in result.output
    assert "Noise model: CKL" in result.output
    assert "dim_2" in (tmp_path / "e.csv").read_text()


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_features_make_few_answers_go_further(call, responses, tmp_path, ending):
    smoothness, path = egg_world(30).coordinates, tmp_path / f"known.{ending}"
    names = [f"egg {egg}.png" for egg in range(30)]
    if ending == "csv":
        path.write_text("target,smoothness\n" + "".join(f"egg {egg},{smoothness[egg, 0]}\n" for egg in range(30)))
    elif ending == "npy":
        np.save(path, smoothness)
    else:
        pq.write_table(pa.table({"name": names, "smoothness": smoothness[:, 0]}), path)
    few = tmp_path / "few.csv"
    few.write_text("".join(responses.read_text().splitlines(keepends=True)[:200]))
    for options in ((), ("--features", path)):
        assert call(few, "-o", tmp_path / f"{len(options)}.csv", *options).exit_code == 0
    plain, known = (json.loads((tmp_path / f"{count}-report.json").read_text()) for count in (0, 2))
    assert plain["feature_weight"] is None
    assert known["feature_weight"] >= 0.5
    assert known["held_out"]["accuracy"] > plain["held_out"]["accuracy"]
    assert "Features explain about" in (tmp_path / "2-report.txt").read_text()


def test_features_that_do_not_fit_the_targets_are_refused(call, responses, tmp_path):
    path = tmp_path / "known.csv"
    path.write_text("target,smoothness\n" + "".join(f"egg {egg},{egg}\n" for egg in range(28)))
    result = call(responses, "-o", tmp_path / "out.csv", "--features", path)
    assert result.exit_code == 1
    assert "'egg 28' and 'egg 29' have no row among the features" in result.stderr
    assert not (tmp_path / "out.csv").exists()


def test_a_fit_starts_from_the_map_that_it_is_given_and_reports_it(call, responses, tmp_path):
    def written(name, *arguments):
        result = call(responses, "-o", tmp_path / f"{name}.csv", "--no-uncertainty", *arguments)
        assert result.exit_code == 0, result.output
        return (tmp_path / f"{name}.csv").read_bytes(), json.loads((tmp_path / f"{name}-report.json").read_text())

    _, report = written("first")
    assert (report["start"], "published" in report["starts"]) == (None, False)
    start = tmp_path / "first.csv"
    again, report = written("again", "--start", start)
    assert report["start"]["targets"] == list(range(30))
    assert report["start"]["source"] == str(start)
    assert report["starts"]["published"] == pytest.approx(min(report["starts"].values()), abs=1e-3)
    assert written("same", "--start", start)[0] == again
    assert written("stored", "--start", tmp_path / "again-report.json")[0] == again
    # A map of fewer targets, of more dimensions, or under another noise model is continued.
    lines = start.read_text().splitlines(keepends=True)
    (tmp_path / "few.csv").write_text("".join(lines[:20]))
    assert len(written("few", "--start", tmp_path / "few.csv")[1]["start"]["targets"]) == 19
    assert "published" in written("line", "--start", start, "--dim", "1", "--noise", "CKL")[1]["starts"]
    assert "published" in written("space", "--start", start, "--dim", "3")[1]["starts"]


def test_of_several_maps_the_one_of_most_answers_is_taken(call, responses, tmp_path):
    rows = [
        f"{target},{sampler},{answers},3,{(target * step) % 7},{(target * step) % 5},"
        for sampler, answers, step in (("Few", 10, 3), ("Most", 500, 4), ("Some", 90, 5))
        for target in range(30)
    ]
    table = "target_id,sampler,answers,generation,dim_0,dim_1,dim_2\n" + "\n".join(rows)
    (tmp_path / "embeddings.csv").write_text(table)
    result = call(responses, "-o", tmp_path / "e.csv", "--start", tmp_path / "embeddings.csv")
    assert result.exit_code == 0, result.output
    assert "the published map of 30 targets: Most, generation 3." in result.output
    report = json.loads((tmp_path / "e-report.json").read_text())
    assert report["start"]["coordinates"][2] == [1, 3]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"PK\3\4 and nothing more", "cannot be read as a map"),
        (b"a,b\n1,2\n", "has no column target_id"),
        (b"", "has no column target_id"),
        (b"target_id,dim_0\n1,high\n", "cannot be read as a map"),
        (b"target_id,dim_0\n1,1\n1,2\n", "names a target twice"),
        (b"target_id,dim_0\n1,nan\n2,2\n", "targets without a position"),
        (b'{"start": null}', "holds no map that a fit has started from"),
        (b'{"start": {"coordinates": [[1], [2, 3]]}}', "cannot be read as a map"),
        (b"\xff\xfe\x00", "cannot be read as a map"),
    ],
)
def test_a_start_that_is_no_map_is_refused_in_a_sentence(call, responses, tmp_path, content, sentence):
    (tmp_path / "start").write_bytes(content)
    error = call(responses, "-o", tmp_path / "e.csv", "--start", tmp_path / "start").exception
    assert isinstance(error, SalmonError)
    assert sentence in str(error)
    assert "embeddings.csv of a bundle" in str(error) or "one row a target" in str(error) or "finite" in str(error)


def test_cv_chooses_and_says_what_it_compared(call, responses, tmp_path):
    result = call(responses, "-o", tmp_path / "e.csv", "--cv", "--folds", 3)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "e-report.json").read_text())
    candidates = {(one["d"], one["noise"]) for one in report["choice"]["candidates"]}
    assert {d for d, _ in candidates} == {1, 2, 3, 4, 5}
    assert report["n_components"] == report["choice"]["chosen"]["d"]
    assert (2, "SOE") in candidates


def test_a_broken_file_is_answered_with_all_its_places_and_no_traceback(call, tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text("head,left,right,winner\n0,1,2,5\n0,x,2,2\n1,1,2,1\n")
    result = call(broken, "-o", tmp_path / "e.csv")
    assert result.exit_code == 1
    lines = result.stderr.strip().split("\n")
    assert len(lines) == 3
    assert lines[0].startswith(f"{broken}:2:4: In column 'winner'")
    assert "Traceback" not in result.output
    assert not (tmp_path / "e.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.csv",), "missing.csv does not exist"),
        ((".",), "is a folder"),
        (("responses.csv", "--noise", "magic"), "no noise model 'magic'"),
        (("responses.csv", "--test", "Nobody"), "No answer has the sampler Nobody"),
        (("responses.csv", "-o", "responses.csv/e.csv"), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_with_what_to_do(call, responses, monkeypatch, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert isinstance(result.exception, SalmonError)
    assert sentence in str(result.exception)
    assert result.exception.hint


def test_the_command_line_knows_the_command_and_ends_with_1_on_a_broken_file(tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text("head,winner,loser\n0,0,1\n")
    result = subprocess.run(
        [sys.executable, "-m", "salmon", "fit", str(broken)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert result.returncode == 1
    assert f"{broken}:2:2: In column 'winner': The winner is '0', the head itself." in result.stderr
    assert "Traceback" not in result.stderr
