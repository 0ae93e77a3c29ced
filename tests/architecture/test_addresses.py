"""Every address of this server is written in one way, so that all of them hold below the path of a proxy."""

import re
from pathlib import Path

import pytest

from tests.program import REPOSITORY

TEMPLATES = sorted((REPOSITORY / "templates").rglob("*.html"))
SCRIPTS = sorted(
    path
    for folder in ("console", "participant")
    for path in (REPOSITORY / "frontend" / "static" / folder).iterdir()
    if path.suffix in {".js", ".css"}
)
MODULES = sorted((REPOSITORY / "frontend").rglob("*.py"))
#: A literal that begins with a slash, with what stands before it.
LITERAL = re.compile(r"""(?P<before>.{0,40})(?P<quote>["'`])/[a-z$][\w.$-]*[/?"'`{$]""")
#: What begins with the base of the console's requests. Participants' pages have a base of their own, from their
#: address.
BASED = re.compile(r"(?P<before>.{0,40})`\$\{(?:base|this\.#base)\}")
#: Who gets a path of this server and adds where the server is; a constant is given to one of these.
PLACED = re.compile(r"(?:\b(?:at|get|post|put|remove|download)\(|const\} \*/ \(|#base = |@type \{)$")


def unplaced_in_template(text: str) -> list[str]:
    """Addresses in a template that begin with a slash and not with the mount."""
    plain = re.findall(r"""=\s*["']/[^"']*""", text)
    return plain + [
        found[0] for found in LITERAL.finditer(text) if not found["before"].endswith(("mount ~ ", ".split("))
    ]


def unplaced_in_script(text: str, *, console: bool = True) -> list[str]:
    """Addresses in a script that begin with a slash and are given to nobody who places them."""
    found = [*LITERAL.finditer(text), *(BASED.finditer(text) if console else ())]
    return [each[0] for each in found if not PLACED.search(each["before"])]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_templates_begin_their_addresses_with_the_mount(path: Path) -> None:
    assert unplaced_in_template(path.read_text()) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_scripts_place_every_address(path: Path) -> None:
    assert unplaced_in_script(path.read_text(), console=path.parent.name == "console") == []


def test_media_are_placed_where_the_web_process_names_them() -> None:
    for path in MODULES:
        for line in path.read_text().splitlines():
            if re.search(r"""f?["']/media/""", line):
                assert re.search(r"add_api_route|_SHARED_FILES", line), f"{path.name}: {line.strip()}"


@pytest.mark.parametrize(
    "text",
    ['<a href="/console/">', "<img src='/media/x.png'>", '{% set there = "/console/login" %}', '<form action="/x">'],
)
def test_an_address_that_begins_with_a_slash_is_found_in_a_template(text: str) -> None:
    assert unplaced_in_template(text)


@pytest.mark.parametrize(
    "text",
    [
        'location.assign("/console/")',
        "fetch(`/api/draft/${x}`)",
        'h("a", { href: `/console/experiments/${slug}/` })',
        "new EventSource(`${base}/stream`)",
        'import * as echarts from "/static/vendor/echarts.js";',
        "element.href = `${this.#base}/x`",
    ],
)
def test_an_address_that_begins_with_a_slash_is_found_in_a_script(text: str) -> None:
    assert unplaced_in_script(text)
