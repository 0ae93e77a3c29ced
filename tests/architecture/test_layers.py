"""The layers of the design: kept as they are, and seen to break when they are broken on purpose."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.program import REPOSITORY

CONTRACTS: list[str] = [
    contract["name"]
    for contract in tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
]

#: Contract -> (file, line that breaks it).
BREACHES = {
    "Services stand on the library and never on each other": ("backend/store.py", "import frontend.settings"),
    "The library touches no network, no template, no pickle": ("salmon/geometry.py", "import pickle"),
    "The library reads downwards": ("salmon/records.py", "import salmon.estimator"),
    "The frontend reads downwards": ("frontend/media.py", "import frontend.participant.routes"),
    "The backend reads downwards": ("backend/plan.py", "import backend.service"),
    "The web process carries no learning code": ("frontend/participant/queries.py", "import torch"),
    "The learning process carries no web code": ("backend/service.py", "import fastapi"),
    "Redis is spoken in two files": ("frontend/participant/queries.py", "import redis"),
    "Dask is opened in two files": ("salmon/parallel/executor.py", "import distributed"),
    "YAML is read within bounds, in one package": ("frontend/salmon1/errors.py", "import yaml"),
}


def lint(tree: Path) -> str:
    """What import-linter says about a tree."""
    command = (
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    )
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=120).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources that may be spoilt."""
    copy = tmp_path_factory.mktemp("tree")
    for package in ("salmon", "frontend", "backend"):
        shutil.copytree(REPOSITORY / package, copy / package, ignore=shutil.ignore_patterns("static", "__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    return copy


def test_every_contract_is_kept_and_has_its_breach_here(tree: Path) -> None:
    report = lint(tree)
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in report, report
    assert sorted(CONTRACTS) == sorted(BREACHES)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_breaking_a_contract_is_noticed(tree: Path, contract: str) -> None:
    name, line = BREACHES[contract]
    path = tree / name
    kept = path.read_text()
    try:
        path.write_text(f"{kept}\n\ndef breach() -> None:\n    {line}\n")
        assert f"{contract} BROKEN" in lint(tree)
    finally:
        path.write_text(kept)


def test_the_web_process_starts_without_learning_code_and_stays_small() -> None:
    code = (
        "import sys, psutil, frontend.app\n"
        "from frontend.settings import Settings\n"
        "frontend.app.create_app(Settings(redis_url='redis://localhost:1', secret='0123456789abcdef'))\n"
        "print([name for name in ('torch', 'dask', 'distributed', 'scipy', 'sklearn') if name in sys.modules])\n"
        "print(psutil.Process().memory_info().rss // 1_000_000)\n"
    )
    done = subprocess.run((sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True, check=True)
    loaded, megabytes = done.stdout.split("\n")[:2]
    assert loaded == "[]"
    assert int(megabytes) < 100, f"the web process takes {megabytes} MB"


def test_nothing_is_built_at_import() -> None:
    code = (
        "import sys, logging, frontend.app, backend.service, salmon.wire, salmon.cli\n"
        "print(logging.getLogger().handlers, 'fastapi.applications' in sys.modules)"
    )
    done = subprocess.run((sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
