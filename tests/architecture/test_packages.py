"""Wheel and source distribution, built in a checkout in which the program has run: what they hold, and nothing else."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.program import REPOSITORY

BUILD = "import sys, build_backend; getattr(build_backend, 'build_' + sys.argv[1])(sys.argv[2])"
PACKAGES = ("salmon", "frontend", "backend", "templates")
#: What a checkout collects in which the program was run, tested and built.
LEFT_BEHIND = (
    "salmon-data/credentials.json",
    "salmon-data/media/0123.png",
    "salmon-data-of-a-pilot/credentials.json",
    "salmon-data-of-a-pilot/bundles/study.html",
    "build/lib/salmon-data/credentials.json",
    "build/lib/frontend/removed_long_ago.py",
    "requirements/typescript/node_modules/typescript/package.json",
    "docs/.DS_Store",
    ".coverage",
)


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The files of the repository."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no git checkout, so nothing says which files belong to the repository")
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).exists()}


@pytest.fixture(scope="module")
def built(tracked: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built where much was left behind."""
    checkout, dist = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, checkout / name)
    for name in LEFT_BEHIND:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("secret")
    for kind in ("sdist", "wheel"):
        subprocess.run(
            (sys.executable, "-c", BUILD, kind, str(dist)),
            cwd=checkout,
            env={"PYTHONPATH": "requirements", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
    return dist


def test_a_wheel_holds_the_packages_and_the_examples_and_nothing_that_was_left_behind(
    built: Path, tracked: set[str]
) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if PurePosixPath(name).parts[0] in PACKAGES}
    assert inside == {name for name in tracked if PurePosixPath(name).parts[0] in PACKAGES}
    shared = {name.partition(".data/data/share/salmon/")[2] for name in names if ".data/data/" in name}
    assert shared == {name for name in tracked if name.startswith("examples/") and name.count("/") == 2}
    assert {PurePosixPath(name).parts[0].partition("-")[0] for name in names} == {*PACKAGES, "salmon_triplets"}


def test_a_source_distribution_is_the_repository_and_nothing_that_was_left_behind(
    built: Path, tracked: set[str]
) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    made = {name for name in names if name.startswith("salmon_triplets.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    assert names - made == tracked
