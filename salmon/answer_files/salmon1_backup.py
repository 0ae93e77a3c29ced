"""A Redis dump, read part by part: what is not asked for is stepped over, and nothing in it is ever carried out.

The dump may come from anywhere. Every length in it is held against what is left of the file and against a bound before
a byte is taken. The format is that of Redis 5 to 7 (dump versions 1 to 12).

The JSON values in a Redis dump, and nothing else of it: pickles and all other values are stepped over unread.

The JSON module writes a value as a tree of nodes (version 1) or as its text (version 2). A long array is handed on an
element at a time.

A backup of the first Salmon (`exp-…-salmon-….rdb`): its description and its answers, and no more of it.

Descriptions of experiments as earlier Salmons wrote them, in today's form: `/config`, backups, and files before 0.5.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import yaml

from salmon.answer_files.rows import ContainerError
from salmon.errors import Problem
from salmon.spec import Spec
from salmon.spec.schema import Html

#: The largest text that is taken into memory; Redis takes no larger values than twice this by default.
MOST_TEXT_BYTES = 256_000_000
_LONGEST_KEY = 1 << 20
_LATEST_VERSION = 12


class DumpError(ValueError):
    """The bytes are no dump that can be read; the message says where."""


_STRING, _LIST, _SET, _SORTED, _HASH, _SORTED_2, MODULE_VALUE = 0, 1, 2, 3, 4, 5, 7
#: Kinds of value that are one string as they lie in the dump.
_PACKED = frozenset({9, 10, 11, 12, 13, 16, 17, 20})
_QUICKLIST, _QUICKLIST_2 = 14, 18
#: Streams of Redis 5, 7.0 and 7.2.
_STREAMS = frozenset({15, 19, 21})
_AUX, _RESIZE, _EXPIRE_MS, _EXPIRE, _SELECT, _END = 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF
_FREQUENCY, _IDLE, _MODULE_AUX, _FUNCTION, _SLOT = 0xF9, 0xF8, 0xF7, 0xF5, 0xF4
#: What stands between values and is so many numbers.
_NUMBERS = {_RESIZE: 2, _SELECT: 1, _IDLE: 1, _SLOT: 3}
_MODULE_END, _SIGNED, _UNSIGNED, _FLOAT, _DOUBLE, TEXT = 0, 1, 2, 3, 4, 5


class DumpReader:
    """Takes the parts of a dump from its file, never more than the file still has."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = file.seek(0, 2)
        file.seek(0)
        self._at = 0

    def header(self) -> None:
        """The magic word and the version."""
        magic = self.take(9) if self._left >= 9 else b""
        if magic[:5] != b"REDIS" or not magic[5:].isdigit():
            raise DumpError("The file does not begin as a Redis dump does.")
        if int(magic[5:]) > _LATEST_VERSION:
            raise DumpError(f"This is a Redis dump of version {int(magic[5:])}; up to {_LATEST_VERSION} can be read.")

    def next_key(self) -> tuple[str, int] | None:
        """(key, kind of its value) of the next value; None at the end. What stands between values is stepped over."""
        while True:
            kind = self.take(1)[0]
            if kind == _END:
                return None
            if kind in {_AUX, _FUNCTION}:
                for _ in range(2 if kind == _AUX else 1):
                    self.skip_text()
            elif kind in _NUMBERS:
                for _ in range(_NUMBERS[kind]):
                    self.length()
            elif kind in {_EXPIRE_MS, _EXPIRE, _FREQUENCY}:
                self.pass_over({_EXPIRE_MS: 8, _EXPIRE: 4, _FREQUENCY: 1}[kind])
            elif kind == _MODULE_AUX:
                self.length()
                self.length()
                self.length()
                self.skip_module()
            else:
                return self.text(most=_LONGEST_KEY).decode(errors="replace"), kind

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count > self._left:
            raise DumpError(f"The dump breaks off at byte {self._at:,}.")
        taken = self._file.read(count)
        self._left -= count
        self._at += count
        return taken

    def pass_over(self, count: int) -> None:
        """Step over so many bytes."""
        if count > self._left:
            raise DumpError(f"The dump breaks off at byte {self._at:,}.")
        self._file.seek(count, 1)
        self._left -= count
        self._at += count

    def length(self) -> int:
        """A length or plain number."""
        number, encoding = self._length()
        if encoding:
            raise DumpError(f"There is a text where a length should be, before byte {self._at:,}.")
        return number

    def _length(self) -> tuple[int, bool]:
        first = self.take(1)[0]
        kind = first >> 6
        if kind == 0:
            return first & 0x3F, False
        if kind == 1:
            return (first & 0x3F) << 8 | self.take(1)[0], False
        if kind == 3:
            return first & 0x3F, True
        if first in {0x80, 0x81}:
            return int.from_bytes(self.take(4 if first == 0x80 else 8), "big"), False
        raise DumpError(f"Byte {self._at - 1:,} of the dump begins no length.")

    def text(self, *, most: int = MOST_TEXT_BYTES) -> bytes:
        """A text: plain, a number, or packed."""
        size, encoded = self._length()
        if not encoded:
            self._check_size(size, most)
            return self.take(size)
        if size in {0, 1, 2}:
            return str(int.from_bytes(self.take(1 << size), "little", signed=True)).encode()
        if size != 3:
            raise DumpError(f"There is an unknown kind of text before byte {self._at:,}.")
        packed, unpacked = self.length(), self.length()
        self._check_size(max(packed, unpacked), most)
        return lzf_unpacked(self.take(packed), unpacked)

    def _check_size(self, size: int, most: int) -> None:
        if size > most:
            raise DumpError(f"A text before byte {self._at:,} has {size:,} bytes; at most {most:,} are read.")

    def skip_text(self) -> None:
        """Step over a text without unpacking it."""
        size, encoded = self._length()
        if not encoded:
            self.pass_over(size)
        elif size in {0, 1, 2}:
            self.pass_over(1 << size)
        elif size == 3:
            packed = self.length()
            self.length()
            self.pass_over(packed)
        else:
            raise DumpError(f"There is an unknown kind of text before byte {self._at:,}.")

    def skip(self, kind: int) -> None:
        """Step over the value of a key."""
        if kind == _STRING or kind in _PACKED:
            self.skip_text()
        elif kind in {_LIST, _SET, _QUICKLIST}:
            self._skip_texts(self.length())
        elif kind == _HASH:
            self._skip_texts(2 * self.length())
        elif kind == _QUICKLIST_2:
            for _ in range(self.length()):
                self.length()
                self.skip_text()
        elif kind in {_SORTED, _SORTED_2}:
            for _ in range(self.length()):
                self.skip_text()
                # Scores were once texts with a length of one byte, of which the last three stand for no numbers.
                size = 8 if kind == _SORTED_2 else self.take(1)[0]
                self.pass_over(size if size < 253 else 0)
        elif kind in _STREAMS:
            self._skip_stream(kind)
        else:
            raise DumpError(f"There is a value of an unknown kind ({kind}) before byte {self._at:,}.")

    def _skip_texts(self, count: int) -> None:
        for _ in range(count):
            self.skip_text()

    def _skip_stream(self, kind: int) -> None:
        self._skip_texts(2 * self.length())
        for _ in range(3 + (5 if kind > 15 else 0)):
            self.length()
        for _ in range(self.length()):  # groups
            self.skip_text()
            for _ in range(2 + (1 if kind > 15 else 0)):
                self.length()
            for _ in range(self.length()):  # entries given out: id, time, how often
                self.pass_over(16 + 8)
                self.length()
            for _ in range(self.length()):  # consumers: name, seen, active, their entries
                self.skip_text()
                self.pass_over(16 if kind == 21 else 8)
                self.pass_over(16 * self.length())

    def skip_module(self) -> None:
        """Step over what a module wrote, which says of each part what it is."""
        while (kind := self.length()) != _MODULE_END:
            if kind in {_SIGNED, _UNSIGNED}:
                self.length()
            elif kind in {_FLOAT, _DOUBLE}:
                self.pass_over(4 if kind == _FLOAT else 8)
            elif kind == TEXT:
                self.skip_text()
            else:
                raise DumpError(f"A module wrote something unknown before byte {self._at:,}.")

    def part(self) -> tuple[int, Any]:
        """(kind, value) of one part of what a module wrote."""
        kind = self.length()
        if kind in {_SIGNED, _UNSIGNED}:
            number = self.length()
            return kind, number - (1 << 64) if kind == _SIGNED and number >= 1 << 63 else number
        if kind in {_FLOAT, _DOUBLE}:
            return kind, struct.unpack("<f" if kind == _FLOAT else "<d", self.take(4 if kind == _FLOAT else 8))[0]
        if kind == TEXT:
            return kind, self.text()
        raise DumpError(f"A JSON value ends too early, before byte {self._at:,}.")


def lzf_unpacked(packed: bytes, size: int) -> bytes:
    """What was packed by LZF: literal runs, and copies of what came at most 8 kB before. DumpError where it is not that."""
    found = bytearray()
    at, end = 0, len(packed)
    try:
        while at < end and len(found) <= size:
            control = packed[at]
            at += 1
            if control < 32:
                found += packed[at : at + control + 1]
                at += control + 1
                continue
            count = control >> 5
            if count == 7:
                count += packed[at]
                at += 1
            start = len(found) - ((control & 31) << 8) - packed[at] - 1
            at += 1
            if start < 0:
                break
            count += 2
            # A copy may reach into what it is just making: then what is there so far is repeated.
            while count > 0:
                piece = found[start : start + count]
                found += piece
                count -= len(piece)
    except IndexError:
        found.clear()
    if len(found) != size or at != end:
        raise DumpError("A packed text in the dump is damaged.")
    return bytes(found)


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


_CONFIG, _ANSWERS, _START = "exp_config", "all-responses", "start_time"


@dataclass(frozen=True)
class Backup:
    """What a backup holds: the description as the old program stored it, when it began, and how many answers there are."""

    config: Mapping[str, Any]
    started_ms: int
    answers: int


def is_backup(path: Path) -> bool:
    """Whether a file begins as a Redis dump does."""
    with path.open("rb") as file:
        return file.read(5) == b"REDIS"


def read_backup(path: Path, answers: TextIO) -> Backup:
    """The description; the answers are written to `answers` as JSON, one a line. ContainerError says what is wrong."""
    count = 0

    def keep(answer: Any) -> None:
        nonlocal count
        count += 1
        answers.write(json.dumps(answer) + "\n")

    found: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            found.update(json_values(file, {_CONFIG: None, _START: None, _ANSWERS: keep}))
    except DumpError as error:
        raise ContainerError(
            Problem(f"The backup cannot be read. {error}", hint="Download it again; nothing was imported.")
        ) from error
    config = found.get(_CONFIG)
    if not isinstance(config, dict) or not config:
        raise ContainerError(
            Problem(
                "The backup holds no experiment.",
                hint="It was made after a reset, or by another program than Salmon.",
            )
        )
    started = found.get(_START)
    seconds = started if isinstance(started, int | float) and 0 < started < 1e11 else 0
    return Backup(cast("dict[str, Any]", config), round(1000 * seconds), count)


#: Keys that stood at the top before there was `html`.
_WERE_AT_THE_TOP = frozenset(Html.model_fields) - {"title"}
#: Keys that the old program added by itself: the number of targets follows from the targets.
_ADDED = frozenset({"n"})


def modern_config(text: bytes | str) -> tuple[str, tuple[str, ...]]:
    """(the YAML or JSON of a description in today's form, sentences about what was moved or left out).

    A text that is in today's form already is given back as it is, so that mistakes are told at their own lines.
    """
    written = text.decode("utf-8-sig", errors="replace") if isinstance(text, bytes) else text
    try:
        tree = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError):
        return written, ()  # whoever parses it tells what is wrong, with its place
    if not isinstance(tree, dict):
        return written, ()
    return modern_tree(cast("dict[str, Any]", tree), otherwise=written)


def modern_tree(tree: Mapping[str, Any], *, otherwise: str = "") -> tuple[str, tuple[str, ...]]:
    """The same for a description that is read already; `otherwise` is given back where nothing has to change."""
    old = {
        key for key in tree if key in _WERE_AT_THE_TOP and not (key == "instructions" and isinstance(tree[key], list))
    }
    dropped = [key for key in tree if key not in Spec.model_fields and key not in old | {"title", "d"}]
    if otherwise and not old and "d" not in tree and not _ADDED & set(tree):
        return otherwise, ()
    made = {key: value for key, value in tree.items() if key in Spec.model_fields and key not in old}
    notes: list[str] = []
    html = dict(cast("dict[str, Any]", tree.get("html") or {}))
    if old:
        html |= {key: tree[key] for key in tree if key in old and tree[key] is not None}
        notes.append(f"Moved under html, where they belong now: {', '.join(key for key in tree if key in old)}.")
    if html:
        made["html"] = html
    if isinstance(tree.get("d"), int):
        sampling = dict(cast("dict[str, Any]", made.get("sampling") or {}))
        sampling["common"] = {"d": tree["d"]} | dict(cast("dict[str, Any]", sampling.get("common") or {}))
        made["sampling"] = sampling
    if forgotten := [key for key in dropped if key not in _ADDED]:
        notes.append(f"Left out, because nothing is known about them: {', '.join(map(str, forgotten))}.")
    try:
        return yaml.safe_dump(made, sort_keys=False, allow_unicode=True), tuple(notes)
    except yaml.YAMLError as error:
        raise ContainerError(Problem(f"The description cannot be written as YAML: {error}.")) from error
