"""`salmon choose`: one table with a reason, a figure, and the words and works that a paper needs."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from salmon.cli.choose import choose
from salmon.errors import SalmonError
from salmon.estimator.methods import WORKS, bibliography
from salmon.simulate import random_world, stream

pytestmark = pytest.mark.slow
FEW = ("--dim", "1", "--dim", "2", "--folds", "3")


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    world = random_world(15, 2, 0)
    rows = world.answer(world.random_queries(900, stream(0, "queries")), stream(0, "answers"))
    path = tmp_path / "responses.csv"
    path.write_text(
        "head,winner,loser,sampler\n"
        + "".join(f"{h},{w},{x},{'Other' if place % 3 == 0 else 'Random'}\n" for place, (h, w, x) in enumerate(rows))
    )
    return path


def run(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(choose)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_true_dimension_is_chosen_and_everything_for_a_paper_is_written(responses: Path, tmp_path: Path) -> None:
    printed = run(responses, *FEW, "-o", tmp_path / "out" / "choice")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    endings = (".txt", ".json", "-methods.md", ".bib", ".svg", ".png")
    assert set(written) == {f"choice{ending}" for ending in endings}
    choice = json.loads(written["choice.json"])
    assert choice["chosen"]["d"] == 2
    assert {(one["d"], one["noise"]) for one in choice["candidates"]} >= {(1, "CKL"), (2, "PowerTSTE")}
    assert written["choice.txt"].decode() in printed
    methods = written["choice-methods.md"].decode()
    assert methods.strip() in printed
    assert "15 targets in 2 dimensions to 900 triplet judgements" in methods
    assert "3-fold cross-validation" in methods
    assert "one standard error" in methods
    cited = set(re.findall(r"\[@(\w+)\]", methods))
    assert set(re.findall(r"^@\w+\{(\w+),", written["choice.bib"].decode(), re.MULTILINE)) == cited
    assert cited <= set(WORKS)
    run(responses, *FEW, "-o", tmp_path / "out" / "choice")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == written


def test_only_random_answers_are_judged_unless_all_are_asked_for(responses: Path, tmp_path: Path) -> None:
    one = ("--noise", "TSTE", *FEW, "-o", tmp_path / "choice")
    random = run(responses, *one)
    every = run(responses, *one, "--all")
    assert "All answers were judged" in every
    assert "All answers were judged" not in random
    (count,) = re.findall(r"Judged on the ([\d,]+) answers", every)
    (fewer,) = re.findall(r"Judged on the ([\d,]+) answers", random)
    assert count == "900"
    assert int(fewer) < 900


def test_what_cannot_be_compared_is_said_with_what_to_do(responses: Path, tmp_path: Path) -> None:
    with pytest.raises(SalmonError, match=r"(?s)fewer than two candidates.*--all"):
        run(responses, "--dim", "2", "--noise", "TSTE", "-o", tmp_path / "choice")
    with pytest.raises(SalmonError, match=r"(?s)does not exist.*salmon choose responses.csv"):
        run(tmp_path / "nothing.csv")


def test_a_bibliography_holds_what_is_cited_and_nothing_else() -> None:
    assert bibliography("By trees [@breiman1984].").startswith("@book{breiman1984,")
    assert "@inproceedings" not in bibliography("By trees [@breiman1984].")
