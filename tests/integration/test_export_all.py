"""`salmon export --all`: a bundle of every experiment, which is what a nightly line of cron runs."""

import re
import subprocess
import zipfile
from pathlib import Path

from tests.program import REPOSITORY, Program


def test_all_experiments_are_written_into_a_directory(program: Program, tmp_path: Path) -> None:
    for name in ("one", "two"):
        program.launch_text(name, "targets: [a, b, c]\nsamplers: {Random: {}}\n")
    done = program.run("export", "--all", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one-bundle.zip", "two-bundle.zip"]
    assert all(zipfile.ZipFile(path).testzip() is None for path in tmp_path.iterdir())
    assert program.run("import", str(tmp_path / "two-bundle.zip"), "--name", "again").returncode == 0


def test_the_choice_of_one_or_all_is_asked_for(program: Program, tmp_path: Path) -> None:
    for arguments in (("export",), ("export", "one", "--all")):
        done = program.run(*arguments)
        assert done.returncode == 1
        assert "Name one experiment, or write --all." in done.stderr
    done = program.run("export", "--all", "--out", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "There is no directory" in done.stderr


def test_the_line_for_cron_in_the_manual_is_one_that_works(program: Program, tmp_path: Path) -> None:
    manual = (REPOSITORY / "docs" / "operating.md").read_text()
    found = re.search(r"^    30 3 \* \* \*  (.+)$", manual, re.MULTILINE)
    assert found
    line = found[1].replace("\\%", "%").replace("/backup", str(tmp_path))
    line = line.replace("cd /opt/salmon", f"cd {REPOSITORY}").replace("--all", f"--all --data {program.data}")
    done = subprocess.run(("sh", "-c", line), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*/*-bundle.zip"))
