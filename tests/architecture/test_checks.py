"""The checks before a commit are those of `make check`."""

import yaml

from tests.program import REPOSITORY


def test_the_hooks_before_a_commit_run_what_make_check_runs() -> None:
    recipe = (REPOSITORY / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    commands = [line.strip() for line in recipe.splitlines() if line.startswith("\t.venv/")]
    (local,) = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in local["hooks"]] == commands
    assert commands
