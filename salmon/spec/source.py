"""From the bytes of a file to its tree of nodes: size, encoding and the form of YAML."""

from __future__ import annotations

import re

import yaml

from salmon.errors import Problem
from salmon.spec.nodes import Node, UnreadableError
from salmon.spec.suggestions import shown
from salmon.spec.unfolding import read_nodes

MAX_BYTES = 5_000_000  # a spec is text; pictures and long lists belong into the ZIP
_MAX_TABS = 20  # lines mended before we give up and let the experimenter mend the rest

#: First bytes of files that are often uploaded by mistake.
_OTHER_FILES = (
    (b"PK\x03\x04", "a ZIP (or a Word or Excel file)"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x1f\x8b", "a compressed file"),
    (b"{\\rtf", "a rich text document"),
)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def read_source(source: bytes | str, problems: list[Problem]) -> Node | None:
    """The tree of a file; None where it is empty. What is wrong goes to `problems`, and to UnreadableError what ends the reading."""
    if len(source) > MAX_BYTES:
        raise UnreadableError(
            Problem(
                f"The file has more than {MAX_BYTES / 1e6:.0f} MB, the most that a spec may have.",
                hint="Put the targets into a ZIP and upload it beside the spec.",
            )
        )
    text = source if isinstance(source, str) else _decoded(source)
    text = text.removeprefix("\ufeff")
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        raise UnreadableError(
            Problem(
                f"There is a character here that no text holds (code {ord(forbidden[0])}).",
                *_place(text, forbidden.start()),
                hint="Save the file as plain text in UTF-8.",
            )
        )
    return _read_mending_tabs(text, problems)


def _decoded(source: bytes) -> str:
    for start, kind in _OTHER_FILES:
        if source.startswith(start):
            raise UnreadableError(Problem(f"This is {kind}, not a spec.", 1, 1, hint="Upload the YAML file here."))
    if source.startswith(_UTF_16) or (len(source) > 3 and 0 in source[:2] and source.count(0, 0, 200) > 20):
        raise UnreadableError(Problem("The file is saved as UTF-16.", 1, 1, hint="Save it as UTF-8."))
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8")
        raise UnreadableError(
            Problem(
                f"The byte {source[error.start]:#04x} here is not UTF-8; the file may be saved as Latin-1 or Windows-1252.",
                *_place(before, len(before)),
                hint="Save it as UTF-8.",
            )
        ) from None


def _read_mending_tabs(text: str, problems: list[Problem]) -> Node | None:
    """Indentation by tabs ends YAML's reading: it is noted, replaced by what seems to be meant, and reading goes on."""
    tabs: list[Problem] = []
    while True:
        found: list[Problem] = []
        try:
            root = read_nodes(text, found)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line if error.problem_mark else 0
            lines = text.split("\n")
            if line < len(lines) and len(tabs) < _MAX_TABS and "\t" in _indentation(lines[line]):
                tabs.append(_tab(lines[line], line))
                lines[line] = _mended(lines, line)
                text = "\n".join(lines)
                continue
            problems.extend(tabs)
            # After mending, a new complaint may be about our guess and not about the file.
            raise UnreadableError(tabs[-1] if tabs else _syntax(error, text)) from None
        except yaml.YAMLError as error:
            raise UnreadableError(
                Problem(f"The file cannot be read as YAML: {error}.", hint="Save it as plain text in UTF-8.")
            ) from None
        problems.extend(tabs + found)
        return root


def _tab(line: str, place: int) -> Problem:
    return Problem(
        "The line is indented with a tab.",
        place + 1,
        line.index("\t") + 1,
        hint="YAML wants spaces: replace it by two.",
    )


def _mended(lines: list[str], place: int) -> str:
    above = next((line for line in reversed(lines[:place]) if line.strip() and not line.lstrip().startswith("#")), "")
    deeper = "  " if above.rstrip().endswith(":") else ""
    return _indentation(above) + deeper + lines[place].lstrip(" \t")


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """What the parser stumbled over, in other words than its own."""
    mark = error.problem_mark or error.context_mark
    place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    opened = f" in line {error.context_mark.line + 1}" if error.context_mark else ""
    complaint = f"{error.context or ''} {error.problem or ''}"
    lines = text.split("\n")
    rest = lines[mark.line][mark.column :] if mark and mark.line < len(lines) else ""
    if "mapping values are not allowed" in complaint:
        return Problem(
            "There is a second colon here.", *place, hint="Put quotes around text that contains a colon and a space."
        )
    if "quoted scalar" in complaint:
        return Problem(
            f"A quotation mark opened{opened} is not closed, or holds an unknown \\ code.",
            *place,
            hint="Close it; write \\ as \\\\.",
        )
    if "flow sequence" in complaint or "flow mapping" in complaint:
        return Problem(
            f"The bracket opened{opened} is not closed here.",
            *place,
            hint="Close it, or put a comma between the values.",
        )
    if "cannot start any token" in complaint:
        return Problem(f"Text cannot begin with {shown(rest[:1])}.", *place, hint="Put quotes around it.")
    if "block" in complaint or "expected key" in complaint or "simple key" in complaint:
        return Problem(
            "This line does not fit to those above it.",
            *place,
            hint="Check its indentation, its quotes and the colon after its key.",
        )
    return Problem(
        f"This cannot be read as YAML: {error.problem or error.context}.",
        *place,
        hint="Put quotes around text with unusual characters.",
    )


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
