"""The ZIP of a bundle: opened only if it can be one, and every member held against the manifest before it is used.

The fields of hashes and stream entries in a bundle: what the program will read as numbers or JSON must be that.

What is in a bundle, as typed values: each line checked when it is read, so that what follows need not ask again.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from frontend.errors import BundleError, NotFoundError
from frontend.experiments import Parsed, parsed_revision
from frontend.store.counters import MINUTE_MS, recount
from frontend.store.experiments import Revision
from frontend.transfer.bundle_writer import FOLDER, FORMAT, MANIFEST, MEDIA
from salmon.records import Answer
from salmon.spec.schema import SAMPLER_NAME
from salmon.wire import decode_answer, decode_array, decode_json

#: The largest bundle, packed and unpacked; a million answers take about 200 MB and 4 GB.
MOST_PACKED_BYTES = 50_000_000_000
MOST_UNPACKED_BYTES = 400_000_000_000
#: The directory of the ZIP is read whole, and so is the manifest.
_MOST_DIRECTORY_BYTES = 50_000_000
_MOST_MANIFEST_BYTES = 50_000_000
#: Text packs to a tenth or, where rows are alike, a hundredth; more is a trap. Small members may be anything.
_MOST_RATIO = 500
_SMALL_BYTES = 1_000_000
#: The longest line of JSON: an answer or event has less than a thousand characters, a participant has a list of queries, a
#: revision holds a whole description.
_LONGEST_LINES = {"participants.jsonl": 4_000_000, "revisions.jsonl": 32_000_000}
_LONGEST_LINE = 200_000
#: What is read whole: revisions, and one array at a time.
_MOST_REVISIONS_BYTES = 200_000_000
_LONGEST_ARRAY = 500_000_000
_PIECE_BYTES = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")
_MANY = 10


class Archive:
    """A bundle whose manifest fits its members. Their contents are held against it by `check`."""

    def __init__(self, path: Path) -> None:
        self._zip = _opened(path)
        try:
            self.manifest = self._manifest()
            self._compare()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Give the file back."""
        self._zip.close()

    @property
    def digest(self) -> str:
        """Names the contents: two bundles of the same digest hold the same."""
        return hashlib.sha256(json.dumps(self.manifest["members"], sort_keys=True).encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """All members but the manifest."""
        return tuple(self.manifest["members"])

    def check(self) -> None:
        """Read every member once; BundleError names those that are not what the manifest says."""
        wrong: list[str] = []
        for name, wanted in self.manifest["members"].items():
            digest = hashlib.sha256()
            try:
                for piece in self.pieces(name):
                    digest.update(piece)
            except BundleError:
                wrong.append(name)
                continue
            if digest.hexdigest() != wanted["sha256"]:
                wrong.append(name)
        if wrong:
            raise BundleError(
                f"These files of the bundle are damaged or were changed: {_listed(wrong)}.",
                hint="Nothing was imported. Export it again, or use another copy.",
                where=wrong[0],
            )

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a member, never more than the manifest says."""
        left = self.manifest["members"][name]["bytes"]
        try:
            with self._zip.open(name) as member:
                while piece := member.read(_PIECE_BYTES):
                    left -= len(piece)
                    if left < 0:
                        break
                    yield piece
        except _BROKEN as error:
            raise BundleError(f"{name} is damaged.", hint="Nothing was imported.", where=name) from error
        if left:
            raise BundleError(f"{name} has not the length that the manifest says.", where=name)

    def lines(self, name: str) -> Iterator[tuple[int, Any]]:
        """(number, value) of each line of JSON; a file that is not there has none."""
        if FOLDER + name not in self.manifest["members"]:
            return
        if name == "revisions.jsonl" and self.manifest["members"][FOLDER + name]["bytes"] > _MOST_REVISIONS_BYTES:
            raise BundleError(f"{FOLDER}{name} is larger than any list of revisions.", where=FOLDER + name)
        longest = _LONGEST_LINES.get(name, _LONGEST_LINE)
        with self._zip.open(FOLDER + name) as member:
            number = 0
            while line := member.readline(longest):
                number += 1
                if len(line) >= longest:  # it may read a little further than it is told
                    raise BundleError(f"{FOLDER}{name}:{number} is too long.", where=f"{FOLDER}{name}:{number}")
                yield number, _parsed(line, f"{FOLDER}{name}:{number}")

    def text(self, name: str) -> Any:
        """The value of a member that is one piece of JSON."""
        return _parsed(self._whole(FOLDER + name, _LONGEST_LINE), FOLDER + name)

    def array(self, name: str) -> bytes:
        """The bytes of an array."""
        return self._whole(FOLDER + name, _LONGEST_ARRAY)

    def _whole(self, name: str, most_bytes: int) -> bytes:
        found = self.manifest["members"].get(name)
        if found is None or found["bytes"] > most_bytes:
            raise BundleError(f"{name} is missing or too large.", hint="Export the experiment again.", where=name)
        return b"".join(self.pieces(name))

    def _manifest(self) -> dict[str, Any]:
        try:
            info = self._zip.getinfo(MANIFEST)
            content = self._zip.read(MANIFEST) if info.file_size <= _MOST_MANIFEST_BYTES else b""
        except (KeyError, *_BROKEN):
            content = b""
        if not content:
            raise BundleError(
                "This ZIP is no bundle of Salmon: it has no manifest.json that can be read.",
                hint="`salmon export` and the console make bundles; targets are uploaded with a new experiment.",
                where=MANIFEST,
            )
        manifest = _parsed(content, MANIFEST)
        if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
            raise BundleError("manifest.json is not a bundle's.", where=MANIFEST)
        if manifest["format"] > FORMAT:
            raise BundleError(
                f"This bundle was made by a later version of Salmon ({manifest.get('salmon')}).",
                hint="Import it with that version or a newer one.",
                where=MANIFEST,
            )
        if not manifest.get("complete"):
            raise BundleError(
                "This bundle was made to be published: it leaves out what an import needs.",
                hint="Export it without personal=no.",
                where=MANIFEST,
            )
        return manifest

    def _compare(self) -> None:
        """The members and the manifest name each other, and no member unpacks to more than can be meant."""
        members = self.manifest.get("members")
        infos = self._zip.infolist()
        found = [info.filename for info in infos if info.filename != MANIFEST]
        if not isinstance(members, dict) or not all(_is_entry(entry) for entry in members.values()):
            raise BundleError("The list of files in manifest.json cannot be read.", where=MANIFEST)
        if len(set(found)) < len(found) or set(found) != set(members):
            differing = sorted(set(found) ^ set(members)) or found
            raise BundleError(
                f"manifest.json and the files do not fit each other: {_listed(differing)}.",
                hint="A file is missing, was added, or is there twice: use the bundle as it was exported.",
                where=MANIFEST,
            )
        for info in infos:
            if info.filename == MANIFEST:
                continue
            odd = not _NAME.fullmatch(info.filename) or ".." in info.filename.split("/") or info.flag_bits & 1
            if odd or info.file_size != members[info.filename]["bytes"] or _is_trap(info):
                raise BundleError(
                    f"{info.filename[:100]!r} is not a file that Salmon writes, or not as long as it says.",
                    hint="Nothing was imported.",
                    where=info.filename[:100],
                )
        if sum(entry["bytes"] for entry in members.values()) > MOST_UNPACKED_BYTES:
            raise BundleError("The bundle unpacks to more than 400 GB.", where=MANIFEST)


def _opened(path: Path) -> zipfile.ZipFile:
    size_bytes = path.stat().st_size
    if size_bytes > MOST_PACKED_BYTES or _directory_bytes(path, size_bytes) > _MOST_DIRECTORY_BYTES:
        raise BundleError("The file is larger than any bundle.", hint="Nothing was imported.")
    try:
        return zipfile.ZipFile(path)
    except _BROKEN as error:
        raise BundleError(
            "The file is no ZIP, or only a part of one.", hint="Download or copy it again; nothing was imported."
        ) from error


def _directory_bytes(path: Path, size_bytes: int) -> int:
    """How long the ZIP says its directory is, which is read whole; 0 where it has none."""
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - 65_557 - 76))
        tail = file.read()
    large = tail.rfind(b"PK\x06\x06")
    if large >= 0 and len(tail) >= large + 48:
        return int.from_bytes(tail[large + 40 : large + 48], "little")
    end = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0


def _is_trap(info: zipfile.ZipInfo) -> bool:
    limit = max(_SMALL_BYTES, _MOST_RATIO * info.compress_size)
    return info.file_size > limit or (info.filename.startswith(MEDIA) and info.file_size > MOST_PACKED_BYTES)


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("sha256"), str)
        and isinstance(entry.get("bytes"), int)
        and entry["bytes"] >= 0
    )


def _parsed(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"{where} cannot be read: it is not JSON.", hint="Nothing was imported.", where=where
        ) from error


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:100] for name in names[:_MANY])
    return f"{shown} and {len(names) - _MANY} more" if len(names) > _MANY else shown


Hash = Mapping[str, str]

#: The name of an experiment in its link.
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
STREAM_ID = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")
_WHOLE = re.compile(r"[0-9]{1,15}")
_LETTERS = re.compile(r"[rwt]{0,10000}")

_PERSON_REQUIRED = ("puid", "source", "status", "first_ms")
_PERSON_WHOLE = frozenset(
    {"first_ms", "seen_ms", "last_ms", "completed_ms", "redirected_ms", "declined_ms", "keep_ms", "answers", "turns"}
    | {"spares", "save_incomplete"}
)
_MODEL_REQUIRED = ("generation", "absorbed", "loss", "cursor")
_MODEL_WHOLE = frozenset({"generation", "absorbed", "published_ms", "held_total", "thinned_at", "reported_of"})
#: Hash of a model that are no numbers.
_MODEL_WORDS = frozenset({"cursor", "held_recent"})


def check_person(fields: Hash, where: str) -> None:
    """The fields of a participant."""
    for name in _PERSON_REQUIRED:
        require(name in fields, where, f"lacks the field {name}")
    for name, text in fields.items():
        kind, _, _ = name.partition(":")
        if name in _PERSON_WHOLE or kind == "step":
            require(_WHOLE.fullmatch(text) is not None, where, f"has no whole number in {name}")
        elif kind == "consent":
            content = _json(text, name, where)
            fits = isinstance(content, dict) and isinstance(content.get("agreed_ms"), int)
            require(fits and isinstance(content.get("version"), str), where, f"has no consent in {name}")
        elif kind == "comprehension":
            content = _json(text, name, where)
            require(
                isinstance(content, dict) and isinstance(content.get("options"), list),
                where,
                f"has no answers in {name}",
            )
        elif kind in {"question", "practice"}:
            _json(text, name, where)


def check_event(fields: Hash, where: str) -> None:
    """The fields of an event."""
    for name in ("trial", "received_ms"):
        require(_WHOLE.fullmatch(fields.get(name, "0")) is not None, where, f"has no whole number in {name}")
    require(_is_number(fields.get("client_ms", "-1")), where, "has no number in client_ms")


def check_change(fields: Hash, where: str) -> None:
    """The fields of a line of what was changed."""
    fits = {"at_ms", "by", "what", "detail"} <= fields.keys() and _WHOLE.fullmatch(fields["at_ms"])
    require(bool(fits), where, "is no change")


def check_model(fields: Hash, where: str) -> None:
    """The numbers of a model or of a line of history."""
    for name in _MODEL_REQUIRED:
        require(name in fields, where, f"lacks the field {name}")
    for name, text in fields.items():
        if name in _MODEL_WHOLE:
            require(_WHOLE.fullmatch(text) is not None, where, f"has no whole number in {name}")
        elif name not in _MODEL_WORDS:
            require(text in {"", "nan", "inf"} or _is_number(text), where, f"has no number in {name}")
    cursor = fields["cursor"]
    require(cursor == "0" or STREAM_ID.fullmatch(cursor) is not None, where, "has no place in the log")
    require(_LETTERS.fullmatch(fields.get("held_recent", "")) is not None, where, "has no predictions")


#: How the entries of each stream are checked.
CHECKS: Mapping[str, Callable[[Hash, str], None]] = {"events.jsonl": check_event, "changes.jsonl": check_change}


def require(holds: bool, where: str, what: str) -> None:
    """BundleError, with the place, unless something holds."""
    if not holds:
        raise wrong(where, what)


def wrong(where: str, what: str) -> BundleError:
    """The sentence about something in a bundle."""
    return BundleError(f"{where} {what}.", hint="Nothing was imported; use the bundle as it was exported.", where=where)


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _json(text: str, name: str, where: str) -> Any:
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise wrong(where, f"has no JSON in {name}") from error


Fields = dict[str, str]
Entry = tuple[str, Fields]

_PARTICIPANT = re.compile(r"[a-z0-9]{12}")
_QUERY = re.compile(r"[0-9]{1,7},[0-9]{1,7},[0-9]{1,7}|")
_MEDIUM = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,4}")
_LONGEST_VALUE = 100_000
_LONGEST_NAME = 200
_LONGEST_SLUG = 80
#: An answer's values, and control characters, which separate them where they are read.
_LONGEST_ANSWER_VALUE = 200
_CONTROL = re.compile(r"[\x00-\x1f]")
_MOST_DIMENSIONS = 1000


@dataclass(frozen=True)
class Outline:
    """What is known of an experiment before its answers are read. `n` targets, over all revisions."""

    slug: str
    state: Fields
    revisions: Mapping[int, str]
    samplers: frozenset[str]
    n: int
    media: frozenset[str]


@dataclass(frozen=True)
class Person:
    """A participant: the fields as they lie in the store, and the queries seen."""

    participant: str
    fields: Fields
    asked: tuple[str, ...]


@dataclass(frozen=True)
class Arrays:
    """A model, or a line of history where `stream_id` is not empty; arrays as .npy bytes."""

    sampler: str
    stream_id: str
    numbers: Fields
    arrays: Mapping[str, bytes]


@dataclass(frozen=True)
class Totals:
    """What follows from the answers: the counters of the state, of each participant, and those figures are drawn from;
    `last` is the place of the last of them in the log.
    """

    state: Mapping[str, int]
    people: Mapping[str, int]
    counts: Mapping[str, int]
    last: str


def outline_of(archive: Archive) -> Outline:
    """The state, the revisions with all they say about targets, and the files the experiment cannot do without."""
    where = "machine/state.json"
    state = _fields(archive.text("state.json"), where)
    require({"slug", "state", "revision", "created_ms", "opened_ms"} <= state.keys(), where, "has not all fields")
    require(all(state[name].isdecimal() for name in ("revision", "created_ms", "opened_ms")), where, "has no numbers")
    revisions: dict[int, str] = {}
    samplers: set[str] = set()
    media: set[str] = set()
    n = 0
    for number, value in archive.lines("revisions.jsonl"):
        where = f"machine/revisions.jsonl:{number}"
        key, text = _row(value, 2, where)
        require(isinstance(key, int) and isinstance(text, str), where, "is no revision")
        parsed = _revision(text, where)
        revisions[key] = text
        samplers |= set(parsed.spec.samplers)
        n = max(n, len(parsed.targets))
        media |= {target.media for target in parsed.targets if target.media}
    newest = int(state["revision"])
    require(newest in revisions, where, f"lacks revision {newest}")
    missing = sorted(name for name in media if MEDIA + name not in archive.names)
    require(not missing, MEDIA + (missing or [""])[0], "is missing")
    slug: Any = archive.manifest.get("slug")
    require(_is(slug, SLUG) and len(slug) <= _LONGEST_SLUG, "manifest.json", "names no experiment")
    return Outline(slug, state, revisions, frozenset(samplers), n, frozenset(media))


def arrivals_of(archive: Archive) -> Iterator[tuple[str, str]]:
    """(platform identity, participant)."""
    for number, value in archive.lines("arrivals.jsonl"):
        where = f"machine/arrivals.jsonl:{number}"
        identity, participant = _row(value, 2, where)
        require(isinstance(identity, str) and len(identity) <= _LONGEST_NAME * 2, where, "has no identity")
        require(_is(participant, _PARTICIPANT), where, "names no participant")
        yield identity, participant


def people_of(archive: Archive) -> Iterator[Person]:
    """Every participant."""
    for number, value in archive.lines("participants.jsonl"):
        where = f"machine/participants.jsonl:{number}"
        participant, fields, asked = _row(value, 3, where)
        require(_is(participant, _PARTICIPANT), where, "names no participant")
        require(isinstance(asked, list) and all(_is(query, _QUERY) for query in asked), where, "has no list of queries")
        found = _fields(fields, where)
        check_person(found, where)
        yield Person(participant, found, tuple(asked))


def answers_of(archive: Archive, outline: Outline) -> Iterator[tuple[str, Fields, Answer]]:
    """(stream id, fields, answer), in the order of the stream."""
    before = (0, 0)
    for number, value in archive.lines("answers.jsonl"):
        where = f"machine/answers.jsonl:{number}"
        stream_id, fields = _row(value, 2, where)
        before = _later(stream_id, before, where)
        entry = _fields(fields, where, longest=_LONGEST_ANSWER_VALUE)
        try:
            answer = decode_answer("", entry)
        except (KeyError, ValueError, TypeError) as error:
            raise wrong(where, "is no answer") from error
        served = answer.served
        require(max(served.head, served.left, served.right) < outline.n, where, "names a target that is not there")
        require(min(served.head, served.left, served.right) >= 0, where, "names a target that is not there")
        require(answer.winner in {served.left, served.right}, where, "has a winner that was not shown")
        require(served.left != served.right, where, "shows one target twice")
        require(_is(served.participant, _PARTICIPANT), where, "names no participant")
        require(bool(re.fullmatch(SAMPLER_NAME, served.sampler)), where, "names no sampler")
        require(0 <= answer.received_ms < 10**14 and 0 <= served.served_ms < 10**14, where, "has no time")
        yield stream_id, entry, answer


def entries_of(archive: Archive, name: str) -> Iterator[Entry]:
    """(stream id, fields) of events or changes, in the order of the stream."""
    before = (0, 0)
    for number, value in archive.lines(name):
        where = f"machine/{name}:{number}"
        stream_id, fields = _row(value, 2, where)
        before = _later(stream_id, before, where)
        found = _fields(fields, where)
        require(bool(found), where, "is empty")
        CHECKS[name](found, where)
        yield stream_id, found


def models_of(archive: Archive, outline: Outline) -> Iterator[Arrays]:
    """The newest model of each sampler."""
    for number, value in archive.lines("models.jsonl"):
        where = f"machine/models.jsonl:{number}"
        sampler, numbers, names = _row(value, 3, where)
        require(isinstance(names, list) and "coordinates" in names, where, "has no coordinates")
        yield _arrays(archive, outline, (sampler, "", numbers, names), f"models/{sampler}", where)


def history_of(archive: Archive, outline: Outline) -> Iterator[Arrays]:
    """All generations, sampler by sampler."""
    before: tuple[str, tuple[int, int]] = ("", (0, 0))
    for number, value in archive.lines("history.jsonl"):
        where = f"machine/history.jsonl:{number}"
        sampler, stream_id, numbers, names = _row(value, 4, where)
        place = _later(stream_id, before[1] if sampler == before[0] else (0, 0), where)
        before = (sampler, place)
        yield _arrays(archive, outline, (sampler, stream_id, numbers, names), f"history/{sampler}/{stream_id}", where)


def totals_of(archive: Archive, outline: Outline) -> Totals:
    """Counted again from the answers, whatever the bundle says; every line of the bundle is checked on the way."""
    state: Counter[str] = Counter()
    people: Counter[str] = Counter()
    last = "0-0"

    def counted() -> Iterator[Answer]:
        nonlocal last
        for stream_id, _, answer in answers_of(archive, outline):
            last = stream_id
            state["answers"] += 1
            state[f"answers:{answer.served.sampler}"] += 1
            people[answer.served.participant] += 1
            yield answer

    counts = recount(counted())
    known: set[str] = set()
    for person in people_of(archive):
        known.add(person.participant)
        done_ms = person.fields.get("completed_ms", "")
        if done_ms.isdecimal():
            minute = f"completed:{int(done_ms) // MINUTE_MS}"
            counts[minute] = counts.get(minute, 0) + 1
    unknown = sorted(people.keys() - known)
    require(not unknown, "machine/participants.jsonl", f"lacks {len(unknown)} participants who have answered")
    arrived = {participant for _, participant in arrivals_of(archive)}
    require(arrived <= known, "machine/arrivals.jsonl", "names participants who are not there")
    for lines in (
        entries_of(archive, "events.jsonl"),
        entries_of(archive, "changes.jsonl"),
        models_of(archive, outline),
        history_of(archive, outline),
    ):
        for _ in lines:
            pass
    return Totals(state, people, counts, last)


def media_of(archive: Archive) -> Iterator[str]:
    """The names of the media, each the hash of its content."""
    for name in archive.names:
        if name.startswith(MEDIA):
            medium = name.removeprefix(MEDIA)
            fits = _is(medium, _MEDIUM) and medium.startswith(archive.manifest["members"][name]["sha256"])
            require(fits, name, "is not named by its content")
            yield medium


def _arrays(archive: Archive, outline: Outline, row: tuple[Any, ...], folder: str, where: str) -> Arrays:
    from numpy import isfinite

    sampler, stream_id, numbers, names = row
    require(isinstance(sampler, str) and sampler in outline.samplers, where, "names no sampler of the experiment")
    require(
        isinstance(names, list) and all(_is(name, re.compile("[a-z_]{1,40}")) for name in names), where, "has no arrays"
    )
    arrays = {name: archive.array(f"{folder}/{name}.npy") for name in names}
    for name, content in arrays.items():
        try:
            array = decode_array(content)
        except (ValueError, EOFError, OSError, SyntaxError, MemoryError) as error:
            raise wrong(f"machine/{folder}/{name}.npy", "is no array of numbers") from error
        fits = array.dtype.kind == "f" and array.ndim in {2, 3} and len(array) <= outline.n
        require(fits and max(array.shape[1:], default=0) <= _MOST_DIMENSIONS, where, "has an array of another shape")
        require(bool(isfinite(array).all()), where, "has an array with numbers that are none")
    found = _fields(numbers, where)
    check_model(found, where)
    return Arrays(sampler, stream_id, found, arrays)


def _revision(text: str, where: str) -> Parsed:
    try:
        return parsed_revision(Revision(**decode_json(text)))
    except (NotFoundError, TypeError, ValueError, KeyError) as error:
        raise BundleError(
            f"{where} describes an experiment that this version cannot read: {error}",
            hint="Nothing was imported.",
            where=where,
        ) from error


def _later(stream_id: Any, before: tuple[int, int], where: str) -> tuple[int, int]:
    require(_is(stream_id, STREAM_ID), where, "has no place in the log")
    milliseconds, _, number = str(stream_id).partition("-")
    place = (int(milliseconds), int(number))
    require(place > before, where, "is not in order")
    return place


def _fields(value: Any, where: str, *, longest: int = _LONGEST_VALUE) -> Fields:
    require(isinstance(value, dict), where, "has no fields")
    for name, text in value.items():
        require(
            len(name) <= _LONGEST_NAME and isinstance(text, str) and len(text) <= longest,
            where,
            "has a field that is too long or no text",
        )
        if longest == _LONGEST_ANSWER_VALUE:
            require(not _CONTROL.search(name) and not _CONTROL.search(text), where, "has control characters")
    return value


def _row(value: Any, length: int, where: str) -> list[Any]:
    require(isinstance(value, list) and len(value) == length, where, f"is not a list of {length}")
    return value


def _is(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
