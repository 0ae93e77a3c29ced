"""`salmon report`: one file that needs nothing else, the same for the same bundle, and right by recount."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from salmon.cli.report import report
from salmon.errors import SalmonError
from salmon.simulate import random_world, stream
from tests.bundles import change_bundle, rows_of

SECTIONS = ["Summary", "Accuracy", "Dimension and noise model", "Map", "Methods", "Provenance"]


class _Page(HTMLParser):
    """The headings and the addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.addresses: list[str] = []
        self._in_heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_heading = tag == "h2"
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


def run(*arguments: object) -> str:
    app = typer.Typer()
    app.command()(report)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def kept(members: dict[str, bytes]) -> None:
    """Everybody of the example chose one side and is excluded: keep them all."""
    rows = rows_of(members["responses.csv"])
    names = list(rows[0])
    lines = [",".join(names)] + [
        ",".join("false" if name == "excluded" else row[name].replace(",", " ") for name in names) for row in rows
    ]
    members["responses.csv"] = "\r\n".join(lines).encode()


async def test_a_bundle_becomes_one_page_without_outside_parts_and_always_the_same(
    bundle: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "shapes.zip"
    path.write_bytes(change_bundle(bundle, kept))
    run(path)
    text = (tmp_path / "shapes-report.html").read_text()
    page = _Page(text)
    assert page.headings == ["Summary", "Design", "Participants", *SECTIONS[1:]]
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert len(page.addresses) == 2 * len(re.findall("<figure>", text))
    drawn = base64.b64decode(page.addresses[-1].partition(",")[2])
    assert drawn.startswith(b"<?xml")
    assert b"data:image/" in drawn  # the pictures of the targets are on the map
    assert "90 answers of" in text
    assert "<script" not in text
    run(path, "-o", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == text


def test_a_file_of_answers_alone_becomes_markdown_with_its_figures_beside_it(tmp_path: Path) -> None:
    world = random_world(12, 1, 0)
    rows = world.answer(world.random_queries(400, stream(0, "queries")), stream(0, "answers"))
    answers = tmp_path / "answers.csv"
    answers.write_text("head,winner,loser,sampler\n" + "".join(f"{h},{w},{x},Random\n" for h, w, x in rows))
    run(answers, "-o", tmp_path / "study.md")
    text = (tmp_path / "study.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for name in ("study-accuracy.svg", "study-map.svg"):
        assert f"]({name})" in text
        assert (tmp_path / name).read_bytes().startswith(b"<?xml")
    assert "We fitted an ordinal embedding of 12 targets" in text
    assert "@article{sievert2023" in text


def test_what_cannot_be_read_or_written_is_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\3\4 and nothing more")
    with pytest.raises(SalmonError, match=r"broken.zip is no ZIP"):
        run(broken)
    with pytest.raises(SalmonError, match=r"(?s)cannot be written as report.docx.*html or .md"):
        run(broken, "-o", tmp_path / "report.docx")
    with pytest.raises(SalmonError, match=r"(?s)does not exist.*salmon report colors-bundle.zip"):
        run(tmp_path / "nothing.zip")
