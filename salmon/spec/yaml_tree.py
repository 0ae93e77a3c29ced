"""Parse YAML into a tree of nodes that remember where they were written, in bounded memory and time.

Scalars stay text until the wanted type is known: `no` is a word where a text is wanted and a negation where yes or no
is. The tree is built from the parser's events, one at a time, so that a file that unfolds without end (aliases of
aliases), nests too deeply or repeats a key is noticed while it is read, before it fills the memory. `read_source`
begins with the bytes of a file: its size, its encoding and the syntax of YAML.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from salmon.errors import Problem, shown

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as it was written. `quoted` means that it is text whatever it looks like."""

    text: str
    quoted: bool = True
    line: int = 0
    column: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is written here, or `null`."""
        return not self.quoted and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """A key and its value."""

    key: Scalar
    node: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Keys with values, in the order of the file."""

    line: int
    column: int
    entries: dict[str, MappingEntry] = field(default_factory=dict[str, MappingEntry])


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    line: int
    column: int
    items: list["Node"] = field(default_factory=list["Node"])


Node = Scalar | MappingNode | SequenceNode
Path = tuple[str | int, ...]


class UnreadableError(Exception):
    """Raised when the file cannot be read past this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def node_at(root: Node | None, path: Path) -> tuple[Node | None, Scalar | None]:
    """Return the node at a path and its key; those of the nearest node above where the path leads nowhere."""
    node, key = root, None
    for part in path:
        if isinstance(node, MappingNode) and str(part) in node.entries:
            entry = node.entries[str(part)]
            node, key = entry.node, entry.key
        elif isinstance(node, SequenceNode) and isinstance(part, int) and 0 <= part < len(node.items):
            node, key = node.items[part], None
        else:
            break
    return node, key


def node_of(root: Node, *path: str) -> Node | None:
    """Return the node at a path, or None if nothing is written there."""
    node: Node | None = root
    for key in path:
        entry = node.entries.get(key) if isinstance(node, MappingNode) else None
        node = entry.node if entry is not None else None
    return None if isinstance(node, Scalar) and node.empty else node


def plain(node: Node) -> Any:
    """Return nested dicts and lists with Scalars as leaves."""
    if isinstance(node, MappingNode):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node


MAX_NODES = 200_000  # values in one file, aliases unfolded: 100,000 targets and as much again
MAX_DEPTH = 40  # the deepest spec has six levels
MAX_KEY_CHARACTERS = 200
_MAX_DIRECTIVES = 4  # the parser looks through all directives at each new one
_TAGS = frozenset(
    {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq")}
)
_TEXT_TAG = "tag:yaml.org,2002:str"
#: JSON writes a character outside the basic plane as two escapes, \\uD83D\\uDE00; YAML knows one long one, \\U0001F600.
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_SHORTER_BY = 2


def read_nodes(text: str, problems: list[Problem]) -> Node | None:
    """Return the tree of a YAML text; None when it is empty.

    Adds what is wrong to `problems`; UnreadableError ends the reading.
    """
    if text.startswith("%") + text.count("\n%") > _MAX_DIRECTIVES:
        raise UnreadableError(
            Problem("The file has lines that begin with %.", 1, 1, hint="Remove them, or put the text in quotes.")
        )
    text, shifts = _join_surrogates(text)
    return _Builder(problems, shifts).build(_events(text))


def _join_surrogates(text: str) -> tuple[str, Mapping[int, Sequence[int]]]:
    """Return the text with YAML's long escapes in place of JSON's pairs, and line → columns behind which it became
    shorter.
    """
    shifts: dict[int, list[int]] = {}
    if "\\ud" not in text and "\\uD" not in text:  # quick; the search tries every character
        return text, shifts
    lines = text.split("\n")
    for number, line in enumerate(lines):
        pieces: list[str] = []
        end = length = 0
        for pair in _SURROGATES.finditer(line):
            code = 0x10000 + ((int(pair[2], 16) & 0x3FF) << 10) + (int(pair[3], 16) & 0x3FF)
            pieces.append(f"{line[end : pair.start()]}{pair[1]}\\U{code:08x}")
            end = pair.end()
            length += len(pieces[-1])
            shifts.setdefault(number, []).append(length)
        lines[number] = "".join(pieces) + line[end:]
    return "\n".join(lines), shifts


class _Pieces:
    """A text as a file that is read in pieces.

    The parser is C code that keeps every other thread waiting until it has found the next event, which may be megabytes
    away. Each call of this method lets them run.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self, size: int = -1) -> str:
        """Return the next piece."""
        start, self._at = self._at, len(self._text) if size < 0 else self._at + size
        return self._text[start : self._at]


def _events(text: str) -> Iterator[Any]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return iter(yaml.parse(_Pieces(text), Loader=loader))  # pyright: ignore[reportArgumentType]


@dataclass(slots=True)
class _Frame:
    """A container that has not ended yet."""

    node: MappingNode | SequenceNode
    anchor: str | None
    nodes_before: int
    key: Scalar | None = None
    awaits_value: bool = False
    merged: list[Node] = field(default_factory=list[Node])
    deepest: int = 1


@dataclass(frozen=True, slots=True)
class _Anchor:
    node: Node
    size: int
    depth: int


class _Builder:
    def __init__(self, problems: list[Problem], shifts: Mapping[int, Sequence[int]]) -> None:
        self._problems = problems
        self._shifts = shifts
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._count = 0
        self._root: Node | None = None
        self._documents = 0

    def build(self, events: Iterator[Any]) -> Node | None:
        for event in events:
            line, column = event.start_mark.line, event.start_mark.column
            shifted = bisect_right(self._shifts.get(line, ()), column)
            place = (line + 1, column + 1 + _SHORTER_BY * shifted)
            match event:
                case yaml.DocumentStartEvent():
                    self._start_document(place)
                case yaml.ScalarEvent():
                    self._scalar(event, place)
                case yaml.AliasEvent():
                    self._alias(event, place)
                case yaml.MappingStartEvent():
                    self._open(event, MappingNode(*place), place)
                case yaml.SequenceStartEvent():
                    self._open(event, SequenceNode(*place), place)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._close()
                case _:  # the stream and its document begin and end without saying anything
                    pass
        return self._root

    def _start_document(self, place: tuple[int, int]) -> None:
        self._documents += 1
        if self._documents > 1:
            raise UnreadableError(
                Problem(
                    "A second document begins here; a spec is one document.", *place, hint="Remove this line of dashes."
                )
            )

    def _scalar(self, event: Any, place: tuple[int, int]) -> None:
        self._grow(1, 0, place)
        self._check_tag(event, place)
        node = Scalar(event.value, bool(event.style) or event.tag == _TEXT_TAG, *place)
        if event.anchor:
            self._anchors[event.anchor] = _Anchor(node, 1, 0)
        self._attach(node)

    def _alias(self, event: Any, place: tuple[int, int]) -> None:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            self._problems.append(
                Problem(
                    f"*{event.anchor} refers to an anchor that is not defined above it.",
                    *place,
                    hint="Put text that begins with * in quotes.",
                )
            )
            self._attach(Scalar("", quoted=False, line=place[0], column=place[1]))
            return
        self._grow(anchor.size, anchor.depth, place)
        self._attach(anchor.node)
        for frame in self._stack[-1:]:
            frame.deepest = max(frame.deepest, anchor.depth + 1)

    def _open(self, event: Any, node: MappingNode | SequenceNode, place: tuple[int, int]) -> None:
        self._grow(1, 1, place)
        self._check_tag(event, place)
        self._stack.append(_Frame(node, event.anchor, self._count))

    def _close(self) -> None:
        frame = self._stack.pop()
        if isinstance(frame.node, MappingNode):
            self._merge(frame.node, frame.merged)
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(frame.node, self._count - frame.nodes_before + 1, frame.deepest)
        if self._stack:
            self._stack[-1].deepest = max(self._stack[-1].deepest, frame.deepest + 1)
        self._attach(frame.node)

    def _attach(self, node: Node) -> None:
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        if isinstance(frame.node, SequenceNode):
            frame.node.items.append(node)
        elif not frame.awaits_value:
            frame.key, frame.awaits_value = self._key(node), True
        else:
            frame.awaits_value = False
            if frame.key is None:
                return
            if frame.key.text == "<<" and not frame.key.quoted:
                frame.merged.append(node)
            else:
                self._enter(frame.node, frame.key, node)

    def _key(self, node: Node) -> Scalar | None:
        if isinstance(node, Scalar) and node.text and len(node.text) <= MAX_KEY_CHARACTERS:
            return node
        found = "a list" if isinstance(node, SequenceNode) else "a mapping in braces"
        if isinstance(node, Scalar):
            found = "a very long text" if node.text else "nothing"
        self._problems.append(
            Problem(
                f"A key must be a word, not {found}.",
                node.line,
                node.column,
                hint="Put text with brackets or braces in quotes.",
            )
        )
        return None

    def _enter(self, mapping: MappingNode, key: Scalar, node: Node) -> None:
        first = mapping.entries.get(key.text)
        if first is None:
            mapping.entries[key.text] = MappingEntry(key, node)
            return
        self._problems.append(
            Problem(
                f"{shown(key.text)} is defined twice here; the first definition is on line {first.key.line}.",
                key.line,
                key.column,
                path=key.text,
                hint="Keep one of them.",
            )
        )

    def _merge(self, mapping: MappingNode, merged: list[Node]) -> None:
        """YAML's `<<`: keys of another mapping for those that are not written here."""
        for node in merged:
            for source in node.items if isinstance(node, SequenceNode) else [node]:
                if isinstance(source, MappingNode):
                    for name, entry in source.entries.items():
                        mapping.entries.setdefault(name, entry)
                else:
                    self._problems.append(
                        Problem("<< needs a mapping.", source.line, source.column, hint="Write <<: *name.")
                    )

    def _grow(self, size: int, depth: int, place: tuple[int, int]) -> None:
        self._count += size
        if self._count > MAX_NODES:
            raise UnreadableError(
                Problem(
                    f"The file has more than {MAX_NODES:,} values.",
                    *place,
                    hint="Put many targets into a ZIP with a CSV file.",
                )
            )
        if len(self._stack) + depth > MAX_DEPTH:
            raise UnreadableError(
                Problem(
                    f"The file nests deeper than {MAX_DEPTH} levels.",
                    *place,
                    hint="Look for brackets that are not closed.",
                )
            )

    def _check_tag(self, event: Any, place: tuple[int, int]) -> None:
        if event.tag and event.tag != "!" and event.tag not in _TAGS:
            self._problems.append(
                Problem(
                    f"The tag {shown(event.tag.replace('tag:yaml.org,2002:', '!!'))} has no meaning in a spec.",
                    *place,
                    hint="Remove it; put text that begins with ! in quotes.",
                )
            )


MAX_BYTES = 5_000_000  # a spec is text; pictures and long lists belong into the ZIP
_MAX_TABS = 20  # lines corrected before the rest is left to the experimenter

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
_PIECE = 1 << 16  # characters looked at before other threads may run
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def read_source(source: bytes | str, problems: list[Problem]) -> Node | None:
    """Return the tree of a file; None if it is empty.

    Adds what is wrong to `problems`, and raises UnreadableError for what ends the reading.
    """
    if len(source) > MAX_BYTES:
        raise UnreadableError(
            Problem(
                f"The file has more than {MAX_BYTES / 1e6:.0f} MB, the maximum for a spec.",
                hint="Put the targets into a ZIP and upload it beside the spec.",
            )
        )
    text = source if isinstance(source, str) else _decode(source)
    text = text.removeprefix("\ufeff")
    pieces = (_FORBIDDEN.search(text, start, start + _PIECE) for start in range(0, len(text), _PIECE))
    if forbidden := next(filter(None, pieces), None):
        raise UnreadableError(
            Problem(
                f"There is a character here that is not allowed in text (code {ord(forbidden[0])}).",
                *_place(text, forbidden.start()),
                hint="Save the file as plain text in UTF-8.",
            )
        )
    return _read_replacing_tabs(text, problems)


def _decode(source: bytes) -> str:
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


def _read_replacing_tabs(text: str, problems: list[Problem]) -> Node | None:
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
                lines[line] = _replace_tabs(lines, line)
                text = "\n".join(lines)
                continue
            problems.extend(tabs)
            # After a correction, a new error may be about our guess and not about the file.
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
        hint="YAML requires spaces: replace the tab with two spaces.",
    )


def _replace_tabs(lines: list[str], place: int) -> str:
    above = next((line for line in reversed(lines[:place]) if line.strip() and not line.lstrip().startswith("#")), "")
    deeper = "  " if above.rstrip().endswith(":") else ""
    return _indentation(above) + deeper + lines[place].lstrip(" \t")


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """Describe a syntax error in other words than the parser's."""
    mark = error.problem_mark or error.context_mark
    place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    opened = f" on line {error.context_mark.line + 1}" if error.context_mark else ""
    complaint = f"{error.context or ''} {error.problem or ''}"
    lines = text.split("\n")
    rest = lines[mark.line][mark.column :] if mark and mark.line < len(lines) else ""
    if "mapping values are not allowed" in complaint:
        return Problem(
            "There is a second colon here.", *place, hint="Put quotes around text that contains a colon and a space."
        )
    if "quoted scalar" in complaint:
        return Problem(
            f"A quotation mark opened{opened} is not closed, or contains an unknown \\ code.",
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
            "This line does not fit those above it.",
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


def part_of(tree: Any, *path: str) -> Any:
    """Return the part of a tree of dicts, lists and Scalars at a path; None where there
    is none, or nothing is written.
    """
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return None if is_nothing(tree) else tree


def items_of(part: Any) -> list[tuple[str, Any]]:
    """Return the keys and values of a mapping; none of anything else."""
    return list(part.items()) if isinstance(part, dict) else []


def is_nothing(value: Any) -> bool:
    """Return whether nothing stands there."""
    return value is None or (isinstance(value, Scalar) and value.empty)


def list_at(tree: dict[str, Any], *path: str) -> list[Any]:
    """Return the list at a path; an empty one where there is none."""
    part = part_of(tree, *path)
    return part if isinstance(part, list) else []  # pyright: ignore[reportUnknownVariableType]
