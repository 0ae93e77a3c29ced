"""The house: modules with names of their own, and a table that says where things are."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.architecture.flows import FLOWS, flows
from tests.program import REPOSITORY

PACKAGES = ("salmon", "frontend", "backend")
MODULES = [path for package in PACKAGES for path in sorted((REPOSITORY / package).rglob("*.py"))]
ROW = re.compile(r"^\| (?P<question>.+?) \| `(?P<file>[^`|]+)` \| `(?P<name>[^`|]+)` \|$", re.MULTILINE)
MANUAL = (REPOSITORY / "docs" / "architecture.md").read_text()


def short(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_no_two_public_classes_have_one_name() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        if path.is_relative_to(REPOSITORY / "salmon" / "triplets"):
            continue  # names that scripts of the first Salmon import
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(short(path))
    # Each of the two services has its settings and its half of the store.
    assert {name: paths for name, paths in where.items() if len(paths) > 1 and name not in {"Settings", "Store"}} == {}
    assert len(where["Settings"]) == len(where["Store"]) == 2


def test_unit_tests_mirror_the_packages() -> None:
    unit = REPOSITORY / "tests" / "unit"
    folders = {
        short(path)[len("tests/unit/") :] for path in unit.rglob("*") if path.is_dir() and path.name != "__pycache__"
    }
    known = {"benchmarks", "frontend", "backend"}
    for folder in sorted(folders):
        inside = REPOSITORY / folder if folder.split("/")[0] in known else REPOSITORY / "salmon" / folder
        assert inside.is_dir() or (inside.with_suffix(".py")).exists(), f"tests/unit/{folder} tests no package"


def test_where_is_table_names_files_and_symbols_that_exist() -> None:
    rows = list(ROW.finditer(MANUAL))
    assert len(rows) >= 40
    missing = [
        f"{row['question']}: {row['file']} {row['name']}"
        for row in rows
        if not defines(REPOSITORY / row["file"], row["name"])
    ]
    assert missing == []
    assert [name for name, count in Counter(row["question"] for row in rows).items() if count > 1] == []


def defines(path: Path, name: str) -> bool:
    """Whether a module of Python or JavaScript defines this name at its top."""
    if not path.exists():
        return False
    text = path.read_text()
    if path.suffix == ".js":
        return (
            re.search(rf"^(export )?(class|(async )?function|const) {re.escape(name)}\b", text, re.MULTILINE)
            is not None
        )
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return name in names


def test_every_package_is_on_the_map() -> None:
    layers = MANUAL.partition("These are the layers")[2]
    for package in PACKAGES:
        for path in (REPOSITORY / package).iterdir():
            name = path.stem
            if name.startswith("__") or name in {"static", "settings", "triplets"} or path.suffix not in {"", ".py"}:
                continue
            assert re.search(rf"\b{name}\b", layers), f"{short(path)} is not on the map of docs/architecture.md"


@pytest.mark.slow
def test_every_flow_can_be_measured() -> None:
    assert {flow: len(files) > 5 for flow, files in flows().items()} == dict.fromkeys(FLOWS, True)
