"""Bundles that somebody has damaged, or has made to do harm: each is refused with a
sentence, and nothing of it is kept.
"""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from frontend.context import Context
from frontend.errors import BundleError
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer.import_bundle import import_bundle
from salmon.wire import encode_array
from tests.bundles import Members, bundle_of, change_bundle
from tests.program import REPOSITORY


def replace_line(name: str, number: int, change: Callable[[list], object]) -> Callable[[Members], None]:
    """Another line of JSON in a member."""

    def put(members: Members) -> None:
        lines = members[name].splitlines(keepends=True)
        value = json.loads(lines[number])
        lines[number] = json.dumps(change(value) or value).encode() + b"\n"
        members[name] = b"".join(lines)

    return put


def person(change: Callable[[dict], object]) -> Callable[[Members], None]:
    """Another field of the first participant."""
    return replace_line("machine/participants.jsonl", 0, lambda entry: change(entry[1]) and None)


def with_field(name: str, value: object) -> Callable[[Members], None]:
    return replace_line("machine/answers.jsonl", 3, lambda entry: entry[1].__setitem__(name, value))


def add(name: str, content: bytes) -> Callable[[Members], None]:
    return lambda members: members.__setitem__(name, content)


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


def array_of(content: bytes) -> Callable[[Members], None]:
    def put(members: Members) -> None:
        members["machine/models/Random/coordinates.npy"] = content
        members["machine/models.jsonl"] = json.dumps(["Random", {"generation": "1"}, ["coordinates"]]).encode()

    return put


def manifest(**values: object) -> Callable[[Members], None]:
    return lambda members: members.__setitem__("manifest.json", json.dumps(values).encode())


def in_spec(revision: str, old: str, new: str) -> str:
    """A revision with something else in its description."""
    content = json.loads(revision)
    assert old in content["spec"]
    return json.dumps({**content, "spec": content["spec"].replace(old, new)})


def without(name: str) -> Callable[[Members], None]:
    return lambda members: members.__delitem__(next(member for member in members if member.startswith(name)))


ANSWERS = "machine/answers.jsonl"
HOSTILE: dict[str, tuple[Callable[[Members], None], str]] = {
    "a winner who was not shown": (with_field("winner", "29"), "answers.jsonl:4 has a winner"),
    "a target that is not there": (with_field("head", "1000"), "answers.jsonl:4 names a target"),
    "a target before the first": (with_field("head", "-1"), "answers.jsonl:4 names a target"),
    "a number that is none": (with_field("trial", "many"), "answers.jsonl:4 is no answer"),
    "a number that is huge": (with_field("trial", "9" * 300), "too long"),
    "a value that is no text": (with_field("winner", 3), "answers.jsonl:4 has a field"),
    "a value with the separator of the log": (with_field("session", "a\x1fb"), "answers.jsonl:4 has control"),
    "a participant that is another key": (with_field("participant", "../a:b"), "answers.jsonl:4 names no participant"),
    "a participant nobody knows": (with_field("participant", "a" * 12), "lacks 1 participants"),
    "a sampler that is another key": (with_field("sampler", "a}:b"), "answers.jsonl:4 names no sampler"),
    "answers out of order": (
        replace_line(ANSWERS, 5, lambda entry: ["1-0", entry[1]]),
        "answers.jsonl:6 is not in order",
    ),
    "a place that is none": (replace_line(ANSWERS, 5, lambda entry: ["*", entry[1]]), "answers.jsonl:6 has no place"),
    "an answer that is a list": (
        replace_line(ANSWERS, 5, lambda entry: [1, 2, 3]),
        "answers.jsonl:6 is not a list of 2",
    ),
    "half a line": (add(ANSWERS, b'["1-0", {"token'), "answers.jsonl:1 cannot be read"),
    "brackets without end": (add(ANSWERS, b"[" * 150_000), "answers.jsonl:1 cannot be read"),
    "a line without end": (add(ANSWERS, b"[" * 900_000), "answers.jsonl:1 is too long"),
    "an array that is a pickle": (array_of(pickled()), "coordinates.npy is no array"),
    "an array that claims to be endless": (
        array_of(encode_array(np.zeros((2, 2))).replace(b"(2, 2)", b"(9999999999, 2)")[:128]),
        "coordinates.npy is no array",
    ),
    "an array of words": (array_of(encode_array(np.array(["a", "b"]))), "array of another shape"),
    "an array for more targets": (array_of(encode_array(np.zeros((9999, 2)))), "array of another shape"),
    "a model of no sampler": (add("machine/models.jsonl", b'["Nobody", {}, ["coordinates"]]\n'), "names no sampler"),
    "a description with mistakes": (
        replace_line("machine/revisions.jsonl", 0, lambda pair: [1, pair[1].replace("Random", "Rundum")]),
        "revisions.jsonl:1 describes",
    ),
    "a description that no file would give": (
        replace_line(
            "machine/revisions.jsonl", 0, lambda pair: [1, in_spec(pair[1], '"n_queries":4', '"n_queries":-4')]
        ),
        "revisions.jsonl:1 describes",
    ),
    "a description with a number as a text": (
        replace_line(
            "machine/revisions.jsonl", 0, lambda pair: [1, in_spec(pair[1], '"n_queries":4', '"n_queries":"4"')]
        ),
        "revisions.jsonl:1 describes",
    ),
    "a medium that is something else": (add("media/" + "0" * 64 + ".png", b"hello"), "not named by its content"),
    "a medium that is missing": (without("media/"), "is missing"),
    "a member outside": (add("../../etc/passwd", b"x"), "not a file that Salmon writes"),
    "a member at the root": (add("/etc/passwd", b"x"), "not a file that Salmon writes"),
    "a bomb": (add("machine/events.jsonl", b"\n" * 60_000_000), "not a file that Salmon writes"),
    "a name that is an address": (manifest(slug="../../console"), "manifest.json names no experiment"),
    "a participant without a name": (person(lambda fields: fields.pop("puid") and None), "lacks the field puid"),
    "a count of answers that is none": (person(lambda fields: fields.__setitem__("turns", "many")), "in turns"),
    "a consent that is none": (person(lambda fields: fields.__setitem__("consent:x", "{}")), "in consent:x"),
    "a reply that is no JSON": (person(lambda fields: fields.__setitem__("question:age", "{")), "in question:age"),
    "an event without a number": (add("machine/events.jsonl", b'["1-0", {"trial": "x"}]\n'), "in trial"),
    "a status that nobody has": (
        person(lambda fields: fields.__setitem__("status", "king")),
        "no known status in status",
    ),
    "a change by nobody": (add("machine/changes.jsonl", b'["1-0", {"what": "x"}]\n'), "lacks the field at_ms"),
    "a model that was never fitted": (array_of(encode_array(np.zeros((3, 2)))), "lacks the field absorbed"),
    "a model with endless coordinates": (array_of(encode_array(np.full((3, 2), np.inf))), "numbers that are none"),
    "no state": (without("machine/state.json"), "is missing"),
    "a later format": (manifest(format=2, salmon="9.0"), "a later version of Salmon (9.0)"),
    "no format": (manifest(format="x"), "is not the manifest of a Salmon bundle"),
    "a bundle to publish": (manifest(complete=False), "made to be published"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_bundle_is_refused_with(what: str, bundle: bytes, elsewhere: Context, tmp_path: Path) -> None:
    change, words = HOSTILE[what]
    await check_refused(elsewhere, tmp_path / "b.zip", change_bundle(bundle, change), words)


async def check_refused(elsewhere: Context, path: Path, content: bytes, words: str) -> None:
    """Nothing of what is imported is kept, and the sentence has these words."""
    path.write_bytes(content)
    with pytest.raises(BundleError) as refused:
        await import_bundle(elsewhere, path, name="hostile", owner="bo")
    assert words in str(refused.value)
    assert await elsewhere.store.experiments.find("hostile") is None


def one_file_twice(bundle: bytes) -> bytes:
    file = io.BytesIO(bundle)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("README.md", "again")
    return file.getvalue()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda bundle: b"", "not a ZIP"),
        (lambda bundle: bundle[: len(bundle) // 2], "not a ZIP"),
        (lambda bundle: b"hello" * 1000, "not a ZIP"),
        (lambda bundle: bundle.replace(b"PK\x01\x02", b"PK\x09\x09", 1), "not a ZIP"),
        (lambda bundle: bundle[:5000] + b"\x00" * 400 + bundle[5400:], "damaged or were changed"),
        (lambda bundle: (REPOSITORY / "examples" / "shapes" / "targets.zip").read_bytes(), "no readable manifest.json"),
        (lambda bundle: change_bundle(bundle, add("quality.csv", b"all is well"), sign=False), "quality.csv"),
        (lambda bundle: change_bundle(bundle, add("more.txt", b"x"), sign=False), "more.txt"),
        (one_file_twice, "do not match"),
    ],
    ids=["nothing", "half", "text", "directory", "inside", "targets", "changed", "more", "twice"],
)
async def test_a_file_that_is_not_the_bundle_that_was_written_is_refused(
    damage: Callable[[bytes], bytes], words: str, bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    await check_refused(elsewhere, tmp_path / "b.zip", damage(bundle), words)


async def test_bundles_without_a_machine_part_are_told_from_damaged_ones(
    settings: Settings, store: Store, bundle: bytes, elsewhere: Context, tmp_path: Path
) -> None:
    published = await bundle_of(settings, store, "shapes", personal=False)
    await check_refused(elsewhere, tmp_path / "b.zip", published, "made to be published")
