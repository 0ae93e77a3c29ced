"""Other users of the machine cannot read the data directory: what an earlier version wrote, and what is written now."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.test_operation import Answering
from tests.program import Program

pytestmark = pytest.mark.crash


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(root: Path) -> list[str]:
    found: list[str] = []
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):  # the program writes files beside their place, and renames them
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append(f"{path.relative_to(root)} {stat.S_IMODE(mode):o}")
    return sorted(found)


def test_a_directory_that_others_could_read_is_made_private(tmp_path: Path, examples: Path) -> None:
    data = tmp_path / "data"
    (data / "bundles").mkdir(parents=True)
    (data / "bundles" / "colors.zip").write_bytes(b"PK")
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Program(data) as program:
        assert readable_by_others(data) == []
        login = program.add_user()
        program.launch(examples / "shapes" / "experiment.yaml")  # with targets' files
        with Answering(program, "shapes") as participant:
            participant.one()
        program.export("shapes", "responses.csv", login)
        assert readable_by_others(data) == []
    assert readable_by_others(data) == []
    assert not any("cannot be made private" in line for line in program.log)
