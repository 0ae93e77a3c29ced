"""YAML unfolded into a tree of nodes, in bounded memory and time.

The tree is built from the parser's events, one at a time, so that a file that unfolds without end (aliases of aliases),
nests without end or repeats a key is noticed while it is read and not after it has filled the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from salmon.errors import Problem
from salmon.spec.nodes import Entry, MappingNode, Node, Scalar, SequenceNode, UnreadableError
from salmon.spec.suggestions import shown

MAX_NODES = 200_000  # values in one file, aliases unfolded: 100,000 targets and as much again
MAX_DEPTH = 40  # the deepest spec has six levels
MAX_KEY_CHARACTERS = 200
_MAX_DIRECTIVES = 4  # the parser looks through all directives at each new one
_TAGS = frozenset(
    {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq")}
)
_TEXT_TAG = "tag:yaml.org,2002:str"


def read_nodes(text: str, problems: list[Problem]) -> Node | None:
    """The tree of a YAML text; None when it is empty. Adds what is wrong to `problems`; UnreadableError ends the reading."""
    if len(re.findall(r"(?m)^%", text)) > _MAX_DIRECTIVES:
        raise UnreadableError(
            Problem("The file has lines that begin with %.", 1, 1, hint="Remove them, or put the text in quotes.")
        )
    return _Builder(problems).build(_events(text))


def _events(text: str) -> Iterator[Any]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return iter(yaml.parse(text, Loader=loader))  # pyright: ignore[reportArgumentType]


@dataclass(slots=True)
class _Frame:
    """A container that is still open."""

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
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._count = 0
        self._root: Node | None = None
        self._documents = 0

    def build(self, events: Iterator[Any]) -> Node | None:
        for event in events:
            place = (event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self._start_document(place)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, place)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event, place)
            elif isinstance(event, yaml.MappingStartEvent):
                self._open(event, MappingNode(*place), place)
            elif isinstance(event, yaml.SequenceStartEvent):
                self._open(event, SequenceNode(*place), place)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._close()
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
                    f"*{event.anchor} refers to something that is not written above it.",
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
            mapping.entries[key.text] = Entry(key, node)
            return
        self._problems.append(
            Problem(
                f"{shown(key.text)} is written twice here; the first time in line {first.key.line}.",
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
                    f"The file holds more than {MAX_NODES:,} values.",
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
                    f"The tag {shown(event.tag.replace('tag:yaml.org,2002:', '!!'))} means nothing in a spec.",
                    *place,
                    hint="Remove it; put text that begins with ! in quotes.",
                )
            )
