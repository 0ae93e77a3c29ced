"""The manual is right: its examples of files are read, its Python runs, its commands
exist, its links lead somewhere.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from salmon.cli.main import COMMANDS, load
from salmon.simulate import egg_world, stream
from salmon.spec import check
from tests.program import REPOSITORY

PAGES = [
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "docker/README.md")),
]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?: {4,}|`)(?:\.venv/bin/)?salmon ([a-z]+)\b([^`#\n]*)", re.MULTILINE)

#: Blocks that no test runs, by page and first line, each with its reason.
NOT_RUN = {
    ("accounts.md", "RequestHeader unset X-Remote-User"): "Apache is not installed for the tests",
    (
        "accounts.md",
        "location = /console/login/institution {",
    ): "tests/integration/test_institution_login.py runs nginx with it",
    ("accounts.md", "lab.example.edu {"): "tests/integration/test_institution_login.py runs Caddy with it",
    (
        "deployment.md",
        "location /salmon/ {",
    ): "tests/integration/test_proxies.py and tests/browser/test_proxies.py run nginx with it",
    ("deployment.md", "lab.example.edu {"): "tests/browser/test_proxies.py runs Caddy with it",
    ("deployment.md", "ProxyPass        /salmon/ http://127.0.0.1:8421/salmon/ flushpackets=on"): (
        "Apache is not installed for the tests"
    ),
    (
        "training.md",
        "from pathlib import Path",
    ): "needs a scheduler of Dask elsewhere, and goes on from the block above it",
    ("fitting.md", "import numpy as np, torch"): "needs torchvision and pictures; it is not a dependency",
    ("training.md", "from functools import partial"): "needs a scheduler of Dask elsewhere",
    (
        "training.md",
        "OrdinalEmbedding(executor=client, batch_size=GeoDamp(4096, delay=5, factor=2), averaging=CPSGD(8), epochs=20).fit(",
    ): ("needs a client of Dask; tests/unit/training runs the same"),
    (
        "training.md",
        "from salmon.training import DaskClassifier, GeoDamp",
    ): "needs a client of Dask; tests/unit/training runs the same",
    ("client.md", "from pathlib import Path"): "tests/integration/test_python_client.py runs it on a server",
    ("client.md", "import asyncio"): "tests/integration/test_python_client.py runs it on a server",
    (
        "analysis-in-r.md",
        'responses <- read.csv("responses.csv", na.strings = "", encoding = "UTF-8")',
    ): "tests/integration/test_r.py runs it where R is installed",
    (
        "analysis-in-r.md",
        'targets <- read.csv("targets.csv", encoding = "UTF-8")',
    ): "tests/integration/test_r.py runs it where R is installed",
    (
        "analysis-in-r.md",
        'map <- read.csv("embedding.csv")',
    ): "tests/integration/test_r.py runs it where R is installed",
    ("analysis-in-r.md", "library(lme4)"): "lme4 is not installed for the tests; tests/integration/test_r.py reads it",
    ("jspsych.md", "<!DOCTYPE html>"): "tests/browser/test_other_pages.py runs it",
    ("jspsych.md", '<script type="module">'): "tests/browser/test_other_pages.py runs it",
    ("jspsych.md", '<iframe id="salmon" title="Comparisons" width="100%" height="700" style="border: 0"'): (
        "tests/browser/test_other_pages.py shows the page in such a frame"
    ),
}


class Block(NamedTuple):
    page: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.first}"

    @property
    def first(self) -> str:
        return self.text.strip().splitlines()[0]


def blocks() -> Iterator[Block]:
    """Yield every fenced block of code with a language."""
    for path in PAGES:
        for indent, language, text in FENCED.findall(path.read_text()):
            if language:
                plain = "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))
                yield Block(path.name, language, plain)


BLOCKS = list(blocks())


def test_a_block_runs_or_has_a_reason() -> None:
    run = [
        block for block in BLOCKS if block.language in {"yaml", "python"} and (block.page, block.first) not in NOT_RUN
    ]
    listed = {(block.page, block.first) for block in BLOCKS}
    left = [block.name for block in BLOCKS if block not in run and (block.page, block.first) not in NOT_RUN]
    assert left == []
    assert [key for key in NOT_RUN if key not in listed] == []
    assert len(run) >= 8


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=lambda block: block.name)
def test_a_file_in_the_manual_has_no_mistake(block: Block) -> None:
    text = block.text if re.search(r"^targets:", block.text, re.MULTILINE) else f"targets: [a, b, c]\n{block.text}"
    assert [problem.sentence() for problem in check(text.encode(), "experiment.yaml")] == []


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language == "python" and (block.page, block.first) not in NOT_RUN],
    ids=lambda block: block.name,
)
def test_python_in_the_manual_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = egg_world()
    triplets = world.answer(world.random_queries(600, stream(1, "queries")), stream(1, "answers"))
    known: dict[str, Any] = {
        "triplets": triplets[:500],
        "held_out": triplets[500:],
        "others": triplets[500:],
        "table": np.asarray(world.coordinates),
        "names": [f"egg {number}" for number in range(world.n)],
        "kinds": ["rough" if number < 15 else "smooth" for number in range(world.n)],
    }
    exec(compile(block.text, block.name, "exec"), known)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "python"], ids=lambda block: block.name
)
def test_python_in_the_manual_is_python(block: Block) -> None:
    ast.parse(block.text)


def written_commands() -> list[tuple[str, str, str]]:
    """Return (page, command, the rest of its line) of every call of salmon in a block of the manual."""
    return [(path.name, name, rest) for path in PAGES for name, rest in COMMAND.findall(path.read_text())]


def options_of(command: Any, rest: list[str]) -> set[str]:
    """Return the options of a command, or of the command below it that is called."""
    below: dict[str, Any] = getattr(command, "commands", {})
    if below:
        return options_of(below[rest[0]], rest[1:])
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }


def test_commands_in_the_manual_exist_with_their_options() -> None:
    written = written_commands()
    assert len(written) > 30
    wrong = []
    for page, name, rest in written:
        if name not in COMMANDS:
            wrong.append(f"{page}: salmon {name}")
            continue
        words = rest.split()
        known = options_of(load(name), words)
        wrong += [
            f"{page}: salmon {name} {word}"
            for word in words
            if word.startswith("-") and word.split("=")[0] not in known
        ]
    assert wrong == []


def test_the_site_is_built_without_a_link_that_leads_nowhere_or_to_another_server(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site)),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["'](https?:)?//|<link\b[^>]*rel=["']stylesheet["'][^>]*href=["'](https?:)?//"""
    )
    assert [path.name for path in pages if loaded.search(path.read_text())] == []
    assert "url(http" not in "".join(path.read_text() for path in site.rglob("*.css"))


def test_every_page_of_the_manual_is_on_the_map_of_the_site() -> None:
    nav = (REPOSITORY / "mkdocs.yml").read_text().partition("nav:")[2]
    assert [
        path.name for path in (REPOSITORY / "docs").glob("*.md") if not re.search(rf"\b{re.escape(path.name)}\b", nav)
    ] == []


#: Words with which a sentence says that its figures were measured, a figure, and what prints it: a command, a program
#: of the repository, or a link to where that stands.
MEASURED = re.compile(
    r"\b(measured|median of|in simulations|simulated (?:studies|people|targets)|on average)\b", re.IGNORECASE
)
FIGURE = re.compile(r"(?<![\w.`-])\d*\.\d+\b|\d ?%|\b\d+ (?:ms|s|MB|GB)\b")
PRINTS = re.compile(
    r"python -m (?:benchmarks|tests)|\bmake [a-z]+|benchmarks/|`salmon [a-z]+|systemd-analyze|tests/|\.md(?:#[\w-]+)?\)|\]\(#"
)


#: The section of a page of measurements in which all of its commands stand.
REPRODUCING = re.compile(
    r"^## (?:Run it yourself|Reproducing the figures)\n[^#]*(?:python -m benchmarks|make bench)", re.MULTILINE
)


def measured_figures(text: str) -> Iterator[str]:
    """Yield the paragraphs with measured figures where neither their section nor one for all
    commands says what prints them.
    """
    if REPRODUCING.search(text):
        return
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        if not PRINTS.search(section):
            for paragraph in re.split(r"\n\s*\n", section):
                if MEASURED.search(paragraph) and FIGURE.search(paragraph):
                    yield paragraph


def test_measured_figures_name_the_command_that_prints_them() -> None:
    bare = [f"{page.name}: {paragraph[:120]}" for page in PAGES for paragraph in measured_figures(page.read_text())]
    assert bare == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Two processes answered .97 of one's queries (median of three runs).", 1),
        ("Measured at 12 ms.\n\n    python -m benchmarks.load", 0),
        ("Measured at 12 ms.\n\n## Other\n\n    python -m benchmarks.load", 1),
        ("In simulations, 0.3 % or fewer ([what it saves](efficiency.md#clickers)).", 0),
    ],
)
def test_a_figure_without_its_command_is_noticed(text: str, count: int) -> None:
    assert len(list(measured_figures(text))) == count
