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
