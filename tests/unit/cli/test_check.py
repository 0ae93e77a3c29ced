"""`salmon check` says in the terminal what the console would say."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from salmon.cli.check import check, schema
from salmon.spec import editor_schema
from tests.archives import broken_picture, picture, write_zip


def _run(*arguments: Path) -> tuple[int, list[str]]:
    app = typer.Typer()
    app.command()(check)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output.splitlines()


def test_a_right_file_is_said_to_be_ready(examples: Path):
    texts = examples / "texts" / "experiment.yaml"
    assert _run(texts) == (0, ["experiment.yaml is ready: 10 targets; Adaptive 85%, Validation 15%."])


def test_targets_from_a_zip_are_counted_also_where_it_lies_beside_the_file(examples: Path):
    ready = (0, ["experiment.yaml is ready: 12 targets; Adaptive 100%."])
    assert _run(examples / "shapes" / "experiment.yaml", examples / "shapes" / "targets.zip") == ready
    assert _run(examples / "shapes" / "experiment.yaml") == ready


def test_a_picture_that_cannot_be_decoded_is_a_mistake(tmp_path: Path):
    spec = tmp_path / "eggs.yaml"
    spec.write_text("samplers: {Random: {}}\n")
    whole = [(f"{name}.png", picture(place)) for place, name in enumerate("abc")]
    code, lines = _run(spec, write_zip(tmp_path / "eggs.zip", [*whole, ("d.png", broken_picture())]))
    assert (code, lines[-1]) == (1, "1 mistake.")
    assert lines[0].startswith("eggs.zip: 'd.png' is damaged: it begins as png files do, but cannot be decoded")


def test_each_mistake_is_a_line_that_editors_understand(tmp_path: Path):
    spec = tmp_path / "eggs.yaml"
    spec.write_text("targets: [a, b, c]\nhtml: {max_queries: many, other: [bold]}\n")
    code, lines = _run(spec)
    assert (code, lines[0]) == (1, "eggs.yaml:2:21: html.max_queries must be a whole number, not 'many'.")
    assert lines[1].startswith("eggs.yaml:2:27: warning: html has no key 'other'.")
    assert lines[2:] == ["1 mistake."]


def test_mistakes_of_both_files_are_said_together(tmp_path: Path):
    spec = tmp_path / "eggs.yaml"
    spec.write_text("seed: -1\n")
    code, lines = _run(spec, write_zip(tmp_path / "eggs.zip", [("a.png", picture()), ("b.txt", b"x")]))
    assert (code, [line.split(" ")[0] for line in lines]) == (1, ["eggs.zip:", "eggs.yaml:1:7:", "2"])


def test_a_spec_that_trusts_its_targets_lets_active_drawings_pass(tmp_path: Path):
    archive = write_zip(tmp_path / "t.zip", [(f"{k}.svg", b"<svg onload='go()'></svg>") for k in range(3)])
    spec = tmp_path / "s.yaml"
    for trusted, code in (("true", 0), ("false", 1)):
        spec.write_text(f"page: {{trusted: {trusted}}}")
        assert _run(spec, archive)[0] == code


def test_the_schema_is_printed_as_the_server_serves_it(capsys: pytest.CaptureFixture[str]):
    schema()
    assert json.loads(capsys.readouterr().out) == editor_schema()
