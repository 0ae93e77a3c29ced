"""Every example is right as it stands, its targets are what the script makes, and its analysis runs."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from frontend.console.experiments import examples as find_examples
from salmon.spec import check, check_archive
from tests.program import REPOSITORY, Program

EXAMPLES = REPOSITORY / "examples"
NAMES = [example.name for example in find_examples()]


@pytest.fixture(scope="module")
def make_targets() -> ModuleType:
    """The script that makes the targets."""
    specification = importlib.util.spec_from_file_location("make_targets", EXAMPLES / "make_targets.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_no_mistake_and_no_warning(name: str) -> None:
    spec, archive = EXAMPLES / name / "experiment.yaml", EXAMPLES / name / "targets.zip"
    manifest, problems = check_archive(archive, trusted=True) if archive.exists() else (None, ())
    assert problems == ()
    assert check(spec.read_bytes(), spec.name, manifest) == ()


@pytest.mark.parametrize("name", ["eggs", "faces", "sounds"])
def test_the_script_makes_the_same_bytes(make_targets: ModuleType, name: str, tmp_path: Path) -> None:
    make_targets.write(tmp_path / "targets.zip", make_targets.MAKERS[name]())
    assert (tmp_path / "targets.zip").read_bytes() == (EXAMPLES / name / "targets.zip").read_bytes()


def test_the_script_names_the_films_that_are_there(make_targets: ModuleType) -> None:
    # Their bytes depend on the encoder, which is not installed for the tests.
    assert set(make_targets.MAKERS) == {"eggs", "faces", "sounds", "videos"}
    with zipfile.ZipFile(EXAMPLES / "videos" / "targets.zip") as archive:
        assert sorted(archive.namelist()) == [f"ball-{a}{b}.webm" for a in range(3) for b in range(3)]


def test_every_example_is_on_the_list() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name in NAMES if f"[`{name}`]({name}/experiment.yaml)" not in page] == []
    assert len(NAMES) >= 10


def test_the_wheel_carries_every_example() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert [name for name in NAMES if f'"examples/{name}/*"' not in text] == []


def test_the_analysis_ends_with_a_figure(tmp_path: Path) -> None:
    figure = tmp_path / "figure.pdf"
    script = EXAMPLES / "analysis" / "analyse.py"
    done = subprocess.run(
        (sys.executable, str(script), str(script.with_name("responses.csv")), str(figure)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert figure.read_bytes().startswith(b"%PDF")
    assert "the map in 2 dimensions" in done.stdout  # the faces differ in two respects


def test_one_command_launches_an_example(program: Program) -> None:
    listed = program.run("example")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == NAMES
    made = program.run("example", "eggs")
    assert made.returncode == 0, made.stderr
    first, second, _ = made.stdout.splitlines()
    assert first.startswith("Try it as a participant (nothing is recorded): http")
    assert second.endswith("/e/eggs/")
    wrong = program.run("example", "egs")
    assert wrong.returncode == 1
    assert "There is no example called 'egs'." in wrong.stderr
