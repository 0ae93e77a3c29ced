"""Find people in the bundles that are kept in the data directory, write these bundles anew
without them, and search files.

Bundles are ZIP files of tables and of what the store held. A bundle without a person is written under a temporary name
and takes the place of the old one when it is complete, so a crash leaves one of the two. Everything here blocks: it
runs in the subprocess that erases.
"""

import csv
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from frontend.store.experiments import ExperimentState, parse_state
from frontend.store.participants import identity_of
from frontend.store.people import ERASED, anonymous_fields
from frontend.transfer.bundle_writer import FOLDER, MANIFEST, MEDIA
from salmon.wire import change_answer, decode_json, encode_json

_PIECE_BYTES = 1 << 20
#: Columns that say whose a row is.
_WHOSE = ("participant", "puid", "worker_id")
#: Tables with a row an answer: there, rows may stay under another name.
_OF_ANSWERS = frozenset({"responses", "salmon_responses", "triplettools_triplets", "cblearn", "psiz"})
#: Columns that are emptied in rows that stay.
_EMPTIED = ("participant_session", "exclusion_reason")

Lines = Iterator[bytes]


@dataclass(frozen=True)
class BundledPerson:
    """A participant in a kept bundle, and the state of the experiment that it is of, which says who may change it."""

    bundle: str
    state: ExperimentState
    participant: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Erasing:
    """Who is taken out: participant → the id under which the answers stay, or nothing;
    and all of their platform ids.
    """

    people: Mapping[str, str]
    names: frozenset[str]

    def stands_for(self, cell: str) -> str | None:
        """Return the id that takes the place of a cell; nothing in it where the row goes, None for everybody else."""
        cell = cell.removeprefix("'")
        if cell in self.people:
            return self.people[cell]
        return next(iter(self.people.values()), "") if cell and cell in self.names else None


def bundles_in(folder: Path) -> tuple[Path, ...]:
    """Return the bundles that are kept."""
    return tuple(sorted(path for path in folder.glob("*.zip") if not path.name.startswith(".")))


def find_in_bundles(folder: Path, name: str) -> Iterator[BundledPerson]:
    """Yield everybody of whom a platform id, participant id or parameter of the link is `name`."""
    for path in bundles_in(folder):
        try:
            with zipfile.ZipFile(path) as archive:
                state = parse_state("", decode_json(archive.read(f"{FOLDER}state.json")))
                with archive.open(f"{FOLDER}participants.jsonl") as lines:
                    for line in lines:
                        if name.encode() not in line:
                            continue
                        participant, fields, _ = decode_json(line)
                        links = {value for key, value in fields.items() if key.startswith("arrived:")}
                        if name in {participant, fields.get("puid"), fields.get("session"), *links}:
                            yield BundledPerson(path.name, state, participant, fields)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            continue  # no bundle, or a damaged one: `traces_in` searches it too


def export_from_bundle(path: Path, participant: str) -> dict[str, Any]:
    """Return what a bundle holds about a participant: the lines about them, by the name of the member."""
    found: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(FOLDER) and name.endswith(".jsonl"):
                with archive.open(name) as lines:
                    own = [decode_json(line) for line in lines if participant.encode() in line]
                if own:
                    found[name.removeprefix(FOLDER)] = own
    return found


def erase_in_bundle(path: Path, erasing: Erasing) -> None:
    """Write a bundle anew, without some people."""
    temporary = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(path) as old, temporary.open("wb") as file:
        manifest = json.loads(old.read(MANIFEST))
        members: dict[str, dict[str, Any]] = {}
        with zipfile.ZipFile(file, "w", compresslevel=1) as new:
            for info in old.infolist():
                if info.filename == MANIFEST:
                    continue
                fresh = zipfile.ZipInfo(info.filename, info.date_time)
                fresh.compress_type, fresh.external_attr = info.compress_type, info.external_attr
                digest, size_bytes = hashlib.sha256(), 0
                with (
                    old.open(info) as member,
                    new.open(fresh, "w", force_zip64=info.file_size > 2_000_000_000) as written,
                ):
                    for piece in _without(info.filename, member, erasing):
                        digest.update(piece)
                        size_bytes += len(piece)
                        written.write(piece)
                members[info.filename] = {"sha256": digest.hexdigest(), "bytes": size_bytes}
            content = json.dumps({**manifest, "members": members}, ensure_ascii=False, indent=1) + "\n"
            new.writestr(zipfile.ZipInfo(MANIFEST, old.getinfo(MANIFEST).date_time), content, zipfile.ZIP_DEFLATED)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed has left of a bundle that it was writing anew."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def traces_in(path: Path, needles: Collection[str]) -> bool:
    """Return whether a file, or anything in it where it is a bundle, holds one of some texts as a word of its own."""
    pattern = needle_pattern(needles)
    if path.suffix == ".zip" and zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return any(_member_has(archive, info, pattern) for info in archive.infolist())
        except zipfile.BadZipFile:
            pass
    with path.open("rb") as file:
        return _file_has(file, pattern)


def needle_pattern(needles: Collection[str]) -> re.Pattern[bytes]:
    """Return the pattern of texts that stand between characters that no id has; without texts, of nothing."""
    texts = sorted({needle.encode() for needle in needles if needle}, key=len, reverse=True)
    return (
        re.compile(rb"(?<![A-Za-z0-9])(?:" + b"|".join(map(re.escape, texts)) + rb")(?![A-Za-z0-9])")
        if texts
        else _NEVER
    )


_NEVER = re.compile(rb"(?!)")


def mask(path: Path, needles: Collection[str]) -> bool:
    """Write x over some texts in a file where they stand, so that whoever appends to it can
    go on; return whether any was.
    """
    pattern, found = needle_pattern(needles), False
    with path.open("r+b") as file:
        content = file.read()
        for match in pattern.finditer(content):
            file.seek(match.start())
            file.write(b"x" * (match.end() - match.start()))
            found = True
        file.flush()
        os.fsync(file.fileno())
    return found


def _member_has(archive: zipfile.ZipFile, info: zipfile.ZipInfo, pattern: re.Pattern[bytes]) -> bool:
    if info.filename.startswith(MEDIA):
        return False
    with archive.open(info) as member:
        if info.filename.endswith(".parquet"):
            return any(pattern.search(line) for line in _parquet_lines(member))
        return _file_has(member, pattern)


def _file_has(file: IO[bytes], pattern: re.Pattern[bytes]) -> bool:
    before = b""
    while piece := file.read(_PIECE_BYTES):
        if pattern.search(before + piece):
            return True
        before = (before + piece)[-4096:]
    return False


def _parquet_lines(member: IO[bytes]) -> Iterator[bytes]:
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as file:
        for piece in iter(lambda: member.read(_PIECE_BYTES), b""):
            file.write(piece)
        file.seek(0)
        for batch in pq.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                yield encode_json([value for value in row.values() if isinstance(value, str)]).encode()


def _without(name: str, member: IO[bytes], erasing: Erasing) -> Lines:
    """Return the content of a member without some people."""
    if name.startswith(MEDIA) or name.endswith(".npy"):
        return iter(lambda: member.read(_PIECE_BYTES), b"")
    if name.startswith(FOLDER) and (line_of := _LINES.get(name.removeprefix(FOLDER))):
        return _json_lines(member, lambda value: line_of(value, erasing))
    table, _, extension = name.rpartition(".")
    if extension == "csv":
        return _csv_rows(member, table, erasing)
    if extension == "jsonl" and not name.startswith(FOLDER):
        return _json_lines(member, lambda row: _row(row, table, erasing))
    if extension == "parquet":
        return _parquet_rows(member, table, erasing)
    pattern = needle_pattern({*erasing.people, *erasing.names})
    return iter([pattern.sub(ERASED.encode(), member.read())])


def _json_lines(member: IO[bytes], change: Callable[[Any], Any]) -> Lines:
    for line in member:
        value = json.loads(line)
        changed = change(value)
        if changed == value:
            yield line
        elif changed is not None:
            yield json.dumps(changed, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _row(row: Mapping[str, Any], table: str, erasing: Erasing) -> dict[str, Any] | None:
    """Return a row of a table as it stays, or None where it goes."""
    stands = (erasing.stands_for(row[name]) for name in _WHOSE if isinstance(row.get(name), str))
    anonymous = next((found for found in stands if found is not None), None)
    if anonymous is None:
        # Another participant's row may name them: as the one whom somebody repeats, for example.
        return {
            name: "" if isinstance(cell, str) and erasing.stands_for(cell) is not None else cell
            for name, cell in row.items()
        }
    if not anonymous or table not in _OF_ANSWERS:
        return None
    changed = {name: anonymous for name in _WHOSE if name in row} | {name: "" for name in _EMPTIED if name in row}
    return {**row, **changed}


def _csv_rows(member: IO[bytes], table: str, erasing: Erasing) -> Lines:
    reader = csv.DictReader(io.TextIOWrapper(member, "utf-8", newline=""))
    names = list(reader.fieldnames or ())

    def encode(rows: Iterable[Iterable[str]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        return text.getvalue().encode()

    yield encode([names])
    for row in reader:
        changed = _row(row, table, erasing)
        if changed is not None:
            yield encode([[changed[name] for name in names]])


def _parquet_rows(member: IO[bytes], table: str, erasing: Erasing) -> Lines:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as out:
        for piece in iter(lambda: member.read(_PIECE_BYTES), b""):
            file.write(piece)
        file.seek(0)
        source = pq.ParquetFile(file)
        with pq.ParquetWriter(out, source.schema_arrow, compression="zstd") as writer:
            for batch in source.iter_batches():
                rows = (_row(row, table, erasing) for row in batch.to_pylist())
                kept = [row for row in rows if row is not None]
                writer.write_table(pa.Table.from_pylist(kept, schema=source.schema_arrow))
        out.seek(0)
        yield from iter(lambda: out.read(_PIECE_BYTES), b"")


def _arrival(line: list[Any], erasing: Erasing) -> list[Any] | None:
    participant = line[1]
    if participant not in erasing.people:
        return line
    anonymous = erasing.people[participant]
    return [identity_of(ERASED, anonymous), anonymous] if anonymous else None


def _person(line: list[Any], erasing: Erasing) -> list[Any] | None:
    participant, fields, _ = line
    if participant not in erasing.people:
        return line
    anonymous = erasing.people[participant]
    return [anonymous, anonymous_fields(fields, anonymous), []] if anonymous else None


def _answer(line: list[Any], erasing: Erasing) -> list[Any] | None:
    at, fields = line
    if fields.get("participant") not in erasing.people:
        return line
    anonymous = erasing.people[fields["participant"]]
    return [at, change_answer(fields, participant=anonymous, session="")] if anonymous else None


def _event(line: list[Any], erasing: Erasing) -> list[Any] | None:
    return None if line[1].get("participant") in erasing.people else line


def _change(line: list[Any], erasing: Erasing) -> list[Any] | None:
    about = any(erasing.stands_for(word) is not None for word in line[1].get("detail", "").split())
    return None if about else line


_LINES: Mapping[str, Callable[[list[Any], Erasing], list[Any] | None]] = {
    "arrivals.jsonl": _arrival,
    "participants.jsonl": _person,
    "answers.jsonl": _answer,
    "events.jsonl": _event,
    "changes.jsonl": _change,
}
