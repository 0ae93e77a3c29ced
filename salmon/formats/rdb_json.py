"""The JSON values in a Redis dump, and nothing else of it: pickles and all other values are stepped over unread.

The JSON module writes a value as a tree of nodes (version 1) or as its text (version 2). A long array is handed on an
element at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from salmon.formats.rdb import MODULE_VALUE, TEXT, DumpError, DumpReader

#: The name of the JSON module, as the high 54 bits of a value's module id hold it.
JSON_MODULE = "ReJSON-RL"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#: Values inside one value or element of an array, and arrays or objects inside each other.
_MOST_NODES = 300_000
_DEEPEST = 64

Sink = Callable[[Any], None]


def json_values(file: BinaryIO, wanted: Mapping[str, Sink | None]) -> Iterator[tuple[str, Any]]:
    """(key, value) of the JSON values of these keys, as they come.

    Where a key has a sink, its value is an array whose elements go there one by one, and what is yielded is None.
    """
    reader = DumpReader(file)
    reader.header()
    while (key_and_kind := reader.next_key()) is not None:
        key, kind = key_and_kind
        if kind != MODULE_VALUE:
            reader.skip(kind)
            continue
        if _module_name(reader.length()) != JSON_MODULE or key not in wanted:
            reader.skip_module()
            continue
        yield key, _json_value(reader, wanted[key])
        reader.skip_module()  # whatever a later version of the module wrote after the value


def _module_name(identifier: int) -> str:
    return "".join(_LETTERS[identifier >> shift & 63] for shift in range(58, 9, -6))


def _json_value(reader: DumpReader, sink: Sink | None) -> Any:
    """A value of the JSON module: a tree of nodes (version 1), or its text (version 2)."""
    kind, first = reader.part()
    if kind == TEXT:
        try:
            value = json.loads(first)
        except (ValueError, RecursionError) as error:
            raise DumpError("A JSON value in the dump is no JSON.") from error
        del first
        if sink is None:
            return value
        for element in value if isinstance(value, list) else ():  # pyright: ignore[reportUnknownVariableType]
            sink(element)
        return None
    if sink is None or first != _ARRAY:
        return _Tree(reader).value(first)
    _, count = reader.part()
    for _ in range(int(count)):
        sink(_Tree(reader).value(reader.part()[1]))
    return None


_NULL, _STRING_NODE, _NUMBER, _INTEGER, _TRUTH, _DICT, _ARRAY, _PAIR = (1 << place for place in range(8))


class _Tree:
    """Builds one JSON value from its nodes, and gives up on one that is larger or deeper than any that is meant."""

    def __init__(self, reader: DumpReader) -> None:
        self._reader = reader
        self._nodes = 0

    def value(self, kind: Any, depth: int = 0) -> Any:
        """The value that begins with a node of this kind."""
        self._nodes += 1
        if self._nodes > _MOST_NODES or depth > _DEEPEST:
            raise DumpError("A JSON value in the dump is larger or deeper than any of Salmon's.")
        if kind == _NULL:
            return None
        if kind not in {_STRING_NODE, _NUMBER, _INTEGER, _TRUTH, _DICT, _ARRAY}:
            raise DumpError(f"A JSON value in the dump has a part of an unknown kind ({kind!r}).")
        content = self._reader.part()[1]
        if kind == _DICT:
            return dict(self._pair(depth) for _ in range(self._count(content)))
        if kind == _ARRAY:
            return [self.value(self._reader.part()[1], depth + 1) for _ in range(self._count(content))]
        if kind == _TRUTH:
            return content == b"1"
        return content.decode(errors="replace") if isinstance(content, bytes) else content

    def _pair(self, depth: int) -> tuple[str, Any]:
        kind, key = self._reader.part()[1], self._reader.part()[1]
        if kind != _PAIR or not isinstance(key, bytes):
            raise DumpError("An object in the dump has something else than names and values.")
        return key.decode(errors="replace"), self.value(self._reader.part()[1], depth + 1)

    @staticmethod
    def _count(content: Any) -> int:
        if not isinstance(content, int):
            raise DumpError("A JSON value in the dump does not say how long it is.")
        return content
