"""The rows of what a user of the first Salmon counts on, and which test holds each: a test says `@covers(row, …)`."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

#: Every row, by the part it belongs to.
ROWS: dict[str, tuple[str, ...]] = {
    "file": (
        "top: other keys are errors",
        "top: html keys are moved",
        "targets: list",
        "targets: number",
        "html: defaults",
        "html: other keys are kept",
        "html: max_queries without end",
        "samplers: default",
        "samplers: class or name",
        "sampling.common",
        "sampling.probs: default",
        "sampling.probs: checked",
        "sampling.samplers_per_user",
        "sampling.details",
        "Random",
        "RoundRobin",
        "Validation",
        "ARR",
        "SRR",
        "named after noise models",
        "adaptive arguments",
        "RandomSampling",
        "lenient: common keys",
        "lenient: samplers as a list",
    ),
    "zip": (
        "hidden members",
        "folders are flattened",
        "one csv",
        "csv: BOM and line ends",
        "csv: NA words",
        "order",
        "images",
        "videos",
        "other kinds are errors",
        "replaces targets",
        "filenames",
    ),
    "http": (
        "/",
        "/query",
        "/answer",
        "/init",
        "/create_user",
        "/init_exp",
        "/responses",
        "/embeddings",
        "/config",
        "/meta",
        "/dashboard",
        "/download",
        "/restore",
        "/reset",
        "/logs",
        "/metrics",
        "basic",
        "second init",
        "port",
        "page hooks",
        "unsigned answers",
    ),
    "responses": (
        "26 columns in order",
        "units",
        "winner and loser are the feet",
        "sorted by receipt",
        "json",
        "object columns",
        "alg_ident",
        "no counts",
        "no loser",
        "index column",
        "list-order",
        "with and without config",
    ),
    "files": ("embeddings.csv", "join", "config download", "backup", "pickles are never read"),
    "behaviours": (
        "sides are random",
        "random fallback",
        "no query twice",
        "blank of 200 ms",
        "puid at the end",
        "samplers_per_user works",
        "details without query",
        "times without the blank",
    ),
    "tripletTools": ("triplets", "embeddings", "legacy names", "jsPsych template"),
}


def covers(part: str, *rows: str) -> Callable[[Test], Test]:
    """Says which rows a test holds."""
    unknown = set(rows) - set(ROWS[part])
    assert not unknown, f"{part} has no rows {unknown}"
    return lambda test: test


def covered() -> dict[str, set[str]]:
    """The rows that the contract tests say they hold."""
    found: dict[str, set[str]] = {part: set() for part in ROWS}
    for path in Path(__file__).parent.glob("test_salmon_files_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "covers":
                part, *rows = (ast.literal_eval(argument) for argument in node.args)
                found[part] |= set(rows)
    return found
