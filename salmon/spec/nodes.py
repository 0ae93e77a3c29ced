"""A file as a tree of nodes that remember where they were written.

Scalars stay text until somebody knows what is wanted: `no` is a word where a text is wanted and a negation where yes or
no is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from salmon.errors import Problem

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
        """Nothing is written here, or `null`."""
        return not self.quoted and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its value."""

    key: Scalar
    node: Node


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Keys with values, in the order of the file."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    line: int
    column: int
    items: list[Node] = field(default_factory=list["Node"])


Node = Scalar | MappingNode | SequenceNode
Path = tuple[str | int, ...]


class UnreadableError(Exception):
    """The file cannot be read past this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def node_at(root: Node | None, path: Path) -> tuple[Node | None, Scalar | None]:
    """The node at a path and the key it stands under; of the nearest one above where the path leads nowhere."""
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
    """The node at a path, or None where nothing is written."""
    node: Node | None = root
    for key in path:
        entry = node.entries.get(key) if isinstance(node, MappingNode) else None
        node = entry.node if entry is not None else None
    return None if isinstance(node, Scalar) and node.empty else node


def plain(node: Node) -> Any:
    """Nested dicts and lists with Scalars as leaves."""
    if isinstance(node, MappingNode):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node
