"""Read backups of the first Salmon (`exp-…-salmon-….rdb`), and descriptions of experiments in older forms.

A backup is a Redis dump, which may come from anywhere. It is read part by part: only JSON values under the keys that
are asked for are decoded, pickles and all other values are skipped unread, and nothing in it is executed. Every length
in it is checked against the rest of the file and against a bound before bytes are read. The format is that of Redis 5
to 7 (dump versions 1 to 12). The JSON module writes a value as a tree of nodes (version 1) or as its text (version 2);
a long array is passed on one element at a time.

`modern_config` and `modern_tree` bring descriptions that earlier versions wrote (`/config`, backups, files before 0.5)
into today's form.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from salmon.answer_files.rows import ContainerError
from salmon.errors import Problem
from salmon.spec import Spec, read_tree, write_tree
from salmon.spec.schema import Html

#: The largest text that is taken into memory; Redis takes no larger values than twice this by default.
MOST_TEXT_BYTES = 256_000_000
_LONGEST_KEY = 1 << 20
_LATEST_VERSION = 12


class DumpError(ValueError):
    """Raised for bytes that are not a readable dump; the message says where."""


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
    """Reads the parts of a dump from its file, never more than the file still has."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = file.seek(0, 2)
        file.seek(0)
        self._at = 0

    def header(self) -> None:
        """Read the magic word and the version."""
        magic = self.take(9) if self._left >= 9 else b""
        if magic[:5] != b"REDIS" or not magic[5:].isdigit():
            raise DumpError("The file does not begin as a Redis dump does.")
        if int(magic[5:]) > _LATEST_VERSION:
            raise DumpError(f"This is a Redis dump of version {int(magic[5:])}; up to {_LATEST_VERSION} can be read.")

    def next_key(self) -> tuple[str, int] | None:
        """Return (key, kind of its value) of the next value, or None at the end; whatever is between values is
        skipped.
        """
        while True:
            kind = self.take(1)[0]
            if kind == _END:
                return None
            if kind in {_AUX, _FUNCTION}:
                self._skip_texts(2 if kind == _AUX else 1)
            elif kind in _NUMBERS:
                self._skip_numbers(_NUMBERS[kind])
            elif kind in {_EXPIRE_MS, _EXPIRE, _FREQUENCY}:
                self.pass_over({_EXPIRE_MS: 8, _EXPIRE: 4, _FREQUENCY: 1}[kind])
            elif kind == _MODULE_AUX:
                self._skip_numbers(3)
                self.skip_module()
            else:
                return self.text(most=_LONGEST_KEY).decode(errors="replace"), kind

    def take(self, count: int) -> bytes:
        """Return this many bytes."""
        self._advance(count)
        return self._file.read(count)

    def pass_over(self, count: int) -> None:
        """Skip this many bytes."""
        self._advance(count)
        self._file.seek(count, 1)

    def _advance(self, count: int) -> None:
        if count > self._left:
            raise DumpError(f"The dump breaks off at byte {self._at:,}.")
        self._left -= count
        self._at += count

    def length(self) -> int:
        """Read a length or plain number."""
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
        """Read a text: plain, a number, or packed."""
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
        return unpack_lzf(self.take(packed), unpacked)

    def _check_size(self, size: int, most: int) -> None:
        if size > most:
            raise DumpError(f"A text before byte {self._at:,} has {size:,} bytes; at most {most:,} are read.")

    def skip_text(self) -> None:
        """Skip a text without unpacking it."""
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
        """Skip the value of a key."""
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

    def _skip_numbers(self, count: int) -> None:
        for _ in range(count):
            self.length()

    def _skip_stream(self, kind: int) -> None:
        self._skip_texts(2 * self.length())
        self._skip_numbers(3 + (5 if kind > 15 else 0))
        for _ in range(self.length()):  # groups
            self.skip_text()
            self._skip_numbers(2 + (1 if kind > 15 else 0))
            for _ in range(self.length()):  # entries given out: id, time, how often
                self.pass_over(16 + 8)
                self.length()
            for _ in range(self.length()):  # consumers: name, seen, active, their entries
                self.skip_text()
                self.pass_over(16 if kind == 21 else 8)
                self.pass_over(16 * self.length())

    def skip_module(self) -> None:
        """Skip what a module wrote, each part of which states its kind."""
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
        """Return (kind, value) of one part of what a module wrote."""
        kind = self.length()
        if kind in {_SIGNED, _UNSIGNED}:
            number = self.length()
            return kind, number - (1 << 64) if kind == _SIGNED and number >= 1 << 63 else number
        if kind in {_FLOAT, _DOUBLE}:
            return kind, struct.unpack("<f" if kind == _FLOAT else "<d", self.take(4 if kind == _FLOAT else 8))[0]
        if kind == TEXT:
            return kind, self.text()
        raise DumpError(f"A JSON value ends too early, before byte {self._at:,}.")


def unpack_lzf(packed: bytes, size: int) -> bytes:
    """Unpack LZF: literal runs, and copies of what came at most 8 kB before.

    DumpError if the bytes are something else.
    """
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
    """Yield (key, value) of the JSON values of these keys, as they come.

    If a key has a sink, its value is an array whose elements are passed to the sink one by one, and None is yielded.
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
    """Read a value of the JSON module: a tree of nodes (version 1), or its text (version 2)."""
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
    """Builds one JSON value from its nodes, and refuses one that is larger or deeper than any that Salmon wrote."""

    def __init__(self, reader: DumpReader) -> None:
        self._reader = reader
        self._nodes = 0

    def value(self, kind: Any, depth: int = 0) -> Any:
        """Return the value that begins with a node of this kind."""
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
    """The content of a backup: the description as the first Salmon stored it, when it began, and the number of
    answers.
    """

    config: Mapping[str, Any]
    started_ms: int
    answers: int


def is_backup(path: Path) -> bool:
    """Whether a file begins as a Redis dump does."""
    with path.open("rb") as file:
        return file.read(5) == b"REDIS"


def read_backup(path: Path, answers: TextIO) -> Backup:
    """Return the description, and write the answers to `answers` as JSON lines. ContainerError says what is wrong."""
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
    """Return the YAML or JSON of a description in today's form, and sentences about what was moved or left out.

    A text that is in today's form already is returned unchanged, so that mistakes are reported at their own lines.
    """
    written = text.decode("utf-8-sig", errors="replace") if isinstance(text, bytes) else text
    # Nothing is found in a text that cannot be read: the parser reports what is wrong, with its place.
    return modern_tree(read_tree(text), otherwise=written)


def modern_tree(tree: Mapping[str, Any], *, otherwise: str = "") -> tuple[str, tuple[str, ...]]:
    """Do the same for a description that is parsed already; `otherwise` is returned if nothing has to change."""
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
        notes.append(f"Left out because they are unknown: {', '.join(map(str, forgotten))}.")
    try:
        return write_tree(made), tuple(notes)
    except (ValueError, RecursionError) as error:
        raise ContainerError(Problem(f"The description cannot be written as YAML: {error}.")) from error
