"""The description of an experiment whose answers came without one, or with one of an earlier Salmon: pure.

From answers that another program recorded to a paused experiment: what a file says is kept, what it does not is said.

Its answers were signed by nobody, and are marked so. Embeddings are not taken over: they are fitted anew from the
answers, by whatever sampler the description names.

Which way in a file takes: a bundle of this Salmon, or what another program recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import string
import tempfile
import zipfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from frontend.context import Context
from frontend.errors import BundleError
from frontend.experiments import make_revision
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.counters import MINUTE_MS, tally
from frontend.store.experiments import Change
from frontend.store.importing import PAGE
from frontend.transfer.import_bundle import Imported, check_free, free_id, pages_of, restore
from salmon.answer_files.recorded import RecordedAnswer, Survey, read_recorded, survey
from salmon.answer_files.rows import AnswersFileError, ContainerError, bare
from salmon.answer_files.salmon1_backup import is_backup, modern_config, modern_tree, read_backup
from salmon.errors import Problem
from salmon.records import Answer, Served, Timing
from salmon.spec import Manifest, Spec, TargetSpec, parse_spec, targets_of
from salmon.spec.sampler_arguments import OLD_CLASSES, SAMPLER_CLASSES
from salmon.spec.schema import MAX_TARGETS, MIN_TARGETS, SAMPLER_NAME
from salmon.wire import encode_answer, encode_json

#: Samplers are drawn for answers of which nothing says how their query was chosen.
UNNAMED = "random"
_NAMED = 5
_PICTURE = re.compile(r"<\s*(?:img|video|audio|source)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Description:
    """A description that fits a file of answers.

    `indices` gives the index of a target as the file names it, `samplers` today's name of a sampler; `notes` are
    sentences about what could not be known.
    """

    source: str
    spec: Spec
    targets: tuple[TargetSpec, ...]
    indices: Mapping[str, int]
    samplers: Mapping[str, str]
    notes: tuple[str, ...]


def described(known: Survey, manifest: Manifest | None) -> Description:
    """A description made of nothing but the answers: their targets and samplers, and Salmon's defaults."""
    order = sorted(known.names, key=(lambda label: label) if known.naming.labels else int)
    indices = {name: place if known.naming.labels else int(name) for place, name in enumerate(order)}
    samplers = _renamed(known.samplers)
    tree: dict[str, Any] = {
        "targets": _texts(known, indices),
        "samplers": {called: {"class": _class_of(called)} for called in dict.fromkeys(samplers.values())},
    }
    source = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    spec = parse_spec(source, name="the file of answers", manifest=manifest, default_sampler="Random").spec
    notes = ["No description came with the answers: texts, samplers and settings are Salmon's defaults."]
    guessed = [called for called in spec.samplers if _class_of(called) == "Random" and called.casefold() != "random"]
    if guessed:
        notes.append(f"Nothing says what the samplers {_listed(guessed)} were: they are random ones now.")
    targets = targets_of(spec, manifest)
    _check_indices(indices, targets)
    return Description(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


def fitted(known: Survey, source: str, spec: Spec, manifest: Manifest | None) -> Description:
    """The description that came with the answers, held against them."""
    targets = targets_of(spec, manifest)
    if known.naming.labels:
        places = {bare(target.filename): target.index for target in targets}
        places |= {target.filename: target.index for target in targets}
        lacking = [label for label in known.names if label not in places and bare(label) not in places]
        if lacking:
            raise BundleError(
                f"The description has no targets for {_listed(lacking)}, which answers name.",
                hint="Give the description and the targets of this very experiment.",
                where="targets",
            )
        indices = {label: places.get(label, places.get(bare(label), 0)) for label in known.names}
    else:
        indices = {name: int(name) for name in known.names}
    _check_indices(indices, targets)
    samplers = _renamed(known.samplers, spec)
    strange = [called for called in dict.fromkeys(samplers.values()) if called not in spec.samplers]
    notes = (
        [f"The description has no sampler {_listed(strange)}, whose answers are kept under that name."]
        if strange
        else []
    )
    return Description(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


def _texts(known: Survey, indices: Mapping[str, int]) -> list[str]:
    """(n,) what pages show; a target without an answer gets its index, as nothing is known about it."""
    n = max((*indices.values(), MIN_TARGETS - 1)) + 1
    if n > MAX_TARGETS:
        raise AnswersFileError((Problem(f"The answers name target {n - 1:,}; at most {MAX_TARGETS:,} can be.", 1),))
    texts = [str(index) for index in range(n)]
    for name, index in indices.items():
        html, file = known.names[name]
        texts[index] = html or file or name
    return texts


def _renamed(samplers: Sequence[str], spec: Spec | None = None) -> dict[str, str]:
    """Sampler as the file names it → the name it has here."""
    renamed: dict[str, str] = {}
    for name in samplers:
        called = OLD_CLASSES.get(name, name) if spec is None or name not in spec.samplers else name
        called = called or (next(iter(spec.samplers)) if spec is not None else UNNAMED)
        if not re.fullmatch(SAMPLER_NAME, called):
            called = re.sub(r"[^A-Za-z0-9_-]+", "_", called)[:40] or UNNAMED
        renamed[name] = called
    return renamed


def _class_of(name: str) -> str:
    return next((known for known in SAMPLER_CLASSES if known.casefold() == name.casefold()), "Random")


def _check_indices(indices: Mapping[str, int], targets: Sequence[TargetSpec]) -> None:
    highest = max(indices.values())
    if highest >= len(targets):
        raise BundleError(
            f"Answers name target {highest}, and there are only {len(targets)} targets, counted from 0.",
            hint="Give the description and the targets of this very experiment.",
            where="targets",
        )


def _of_pictures(targets: Sequence[TargetSpec], manifest: Manifest | None) -> tuple[str, ...]:
    if manifest is not None or not any(_PICTURE.search(target.html) for target in targets):
        return ()
    return ("Its targets are files that are not here: import it once more with their ZIP, under another name.",)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:60]) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


_ID_LETTERS = string.ascii_lowercase + string.digits
_PEOPLE = 100
_PIECE = 1 << 20
_UNKNOWN = (
    "Such files do not say, and so it is not known: what was skipped, what happened on the pages, who agreed to what, and"
    " who had finished. Embeddings are fitted anew."
)


@dataclass(frozen=True)
class Recording:
    """Files of one experiment: its answers or a backup, and perhaps its description (`config`) and the ZIP of its targets.

    `name` is what the file of answers is called where its experimenter sees it.
    """

    answers: Path
    name: str
    config: Path | None = None
    targets: Path | None = None


@dataclass
class _Person:
    """What the answers tell of one participant."""

    first_ms: int
    last_ms: int
    answers: int = 0
    asked: set[str] = field(default_factory=set[str])


async def restore_recording(context: Context, files: Recording, *, slug: str, owner: str) -> Imported:
    """Make a paused experiment of recorded answers; a sentence, and nothing to be seen, where that cannot be."""
    await check_free(context, slug)
    try:
        with tempfile.TemporaryDirectory(prefix="salmon-import-") as folder:
            return await _restore(context, files, Path(folder), slug=slug, owner=owner)
    except ContainerError as error:
        raise AnswersFileError((error.problem,), name=files.name) from error


async def _restore(context: Context, files: Recording, folder: Path, *, slug: str, owner: str) -> Imported:
    manifest = await asyncio.to_thread(context.media.unpack, files.targets) if files.targets is not None else None
    known, description, began_ms, notes = await asyncio.to_thread(_read, files, folder, manifest)
    now_ms = context.now_ms()
    last = await asyncio.to_thread(_last_place, known, now_ms)
    experiment = await free_id(context, await asyncio.to_thread(_digest, files.answers), slug, last, known.answers)
    store = context.store.restoration
    revision = make_revision(description.source, description.spec, manifest.dump() if manifest else None, now_ms=now_ms)
    await store.write_hash(experiment, "spec", {"1": encode_json(vars(revision))})
    people: dict[str, _Person] = {}
    state: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for page in pages_of(_answers(known, description, experiment, people, now_ms), PAGE):
        await store.append_answers(experiment, [(place, encode_answer(answer)) for place, answer in page])
        for _, answer in page:
            state["answers"] += 1
            state[f"answers:{answer.served.sampler}"] += 1
            counts.update(tally(answer))
    await store.check(experiment, known.answers)
    counts.update(f"began:{person.first_ms // MINUTE_MS}" for person in people.values())
    for page in pages_of(people.items(), _PEOPLE):
        rows = [(_participant(experiment, puid), _fields(puid, person), sorted(person.asked)) for puid, person in page]
        await store.write_people(experiment, rows)
        arrivals = {f"link:{puid}": _participant(experiment, puid) for puid, _ in page}
        await store.write_hash(experiment, "arrivals", arrivals)
    await store.write_hash(experiment, "counts", counts)
    opened_ms = began_ms or known.began_ms or min(person.first_ms for person in people.values())
    await store.reveal(
        experiment,
        slug,
        {**state, "state": "paused", "owner": owner, "revision": 1, "created_ms": now_ms, "opened_ms": opened_ms},
    )
    change = Change(now_ms, owner, "imported", f"{known.answers} answers of {files.name}"[:200])
    await context.store.experiments.note_change(experiment, change)
    await context.store.experiments.announce(experiment)
    return Imported(slug, "paused", known.answers, len(people), (*notes, *description.notes, _UNKNOWN))


def _read(
    files: Recording, folder: Path, manifest: Manifest | None
) -> tuple[Survey, Description, int, tuple[str, ...]]:
    """(what the answers name, the description, when it began in Unix ms or 0, sentences about what was assumed)."""
    path, began_ms, source = files.answers, 0, ""
    notes: tuple[str, ...] = ()
    if is_backup(path):
        spool = folder / "answers.jsonl"
        with spool.open("w", encoding="utf-8") as file:
            backup = read_backup(path, file)
        source, notes = modern_tree(backup.config)
        path, began_ms = spool, backup.started_ms
        if not backup.answers:
            raise BundleError("The backup holds an experiment without answers.", hint="Launch its file anew.")
    if files.config is not None:
        source, notes = modern_config(files.config.read_bytes())
    if not source:
        known = survey(path, name=files.name)
        return known, described(known, manifest), began_ms, (*notes, *_assumed(known))
    parsed = parse_spec(
        source, name=files.config.name if files.config else files.name, manifest=manifest, default_sampler="Random"
    )
    known = survey(
        path, name=files.name, classes={name: one.sampler_class for name, one in parsed.spec.samplers.items()}
    )
    return known, fitted(known, source, parsed.spec, manifest), began_ms, (*notes, *_assumed(known))


def _assumed(known: Survey) -> tuple[str, ...]:
    notes: list[str] = []
    if known.untimed:
        notes.append(
            f"When {known.untimed:,} answers came is not known: they are dated by this import, in their order."
        )
    if known.sideless:
        notes.append(f"On which side the winner stood is not known of {known.sideless:,} answers: sides were drawn.")
    return tuple(notes)


def _placed(known: Survey, now_ms: int) -> Iterator[tuple[str, RecordedAnswer]]:
    """(place in the log, answer): the time of receipt, never before that of the answer before it."""
    last_ms, number = 0, 0
    for order, read in enumerate(read_recorded(known)):
        answer = replace(read, received_ms=now_ms - known.answers + order) if read.received_ms < 0 else read
        milliseconds = max(answer.received_ms, last_ms, 1)
        number = number + 1 if milliseconds == last_ms else 0
        last_ms = milliseconds
        yield f"{milliseconds}-{number}", answer


def _last_place(known: Survey, now_ms: int) -> str:
    (last,) = deque((place for place, _ in _placed(known, now_ms)), maxlen=1)
    return last


def _answers(
    known: Survey, description: Description, experiment: str, people: dict[str, _Person], now_ms: int
) -> Iterator[tuple[str, Answer]]:
    """(place in the log, answer) as they are stored; `people` is filled on the way."""
    probabilities = description.spec.probabilities if known.classes else {}
    for order, (place, read) in enumerate(_placed(known, now_ms)):
        person = people.setdefault(read.puid, _Person(read.received_ms, read.received_ms))
        person.answers += 1
        person.last_ms = max(person.last_ms, read.received_ms)
        head, winner, loser = (description.indices[target] for target in read.targets)
        won_left = read.won_left if read.won_left is not None else _coin(known.path.name, order)
        sampler = description.samplers[read.sampler]
        served = Served(
            experiment=experiment,
            revision=1,
            participant=_participant(experiment, read.puid),
            session="imported",
            trial=person.answers,
            sampler=sampler,
            head=head,
            left=winner if won_left else loser,
            right=loser if won_left else winner,
            score=read.score,
            trial_type=read.trial_type,
            probability=0.0,
            sampler_probability=probabilities.get(sampler, 0) / 100,
            generation=0,
            published_ms=0,
            served_ms=max(0, read.received_ms - round(max(read.rt_ms, 0.0))),
            nonce=f"imported-{order}",
        )
        person.asked.add(served.key)
        timing = Timing(rt_ms=read.rt_ms, network_latency_ms=read.network_latency_ms)
        yield place, Answer(served, winner, timing, read.received_ms, signed=False)


def _fields(puid: str, person: _Person) -> dict[str, str]:
    return {
        "puid": puid,
        "source": "link",
        "status": "active",
        "first_ms": str(person.first_ms),
        "last_ms": str(person.last_ms),
        "turns": str(person.answers),
        "answers": str(person.answers),
    }


def _participant(experiment: str, puid: str) -> str:
    """The id of a participant inside the experiment; it follows from the two, so that an import can be repeated."""
    digest = hashlib.sha256(f"{experiment}:{puid}".encode()).digest()
    return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in digest[:12])


def _coin(name: str, order: int) -> bool:
    return bool(hashlib.sha256(f"{name}:{order}".encode()).digest()[0] & 1)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


_TABLE = re.compile(r"\.(csv|tsv|jsonl?)$", re.IGNORECASE)


def is_recording(path: Path) -> bool:
    """Whether a file is no bundle: tables and backups are no ZIPs, or a ZIP has one among its files and no manifest."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return path.stat().st_size > 0
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False  # a bundle that was cut off: its reader says so
    return "manifest.json" not in names and any(_TABLE.search(name) for name in names)


async def restore_file(context: Context, files: Recording, *, slug: str, otherwise: str, owner: str) -> Imported:
    """Make a paused experiment of whatever was given.

    Without a `slug` a bundle keeps its own name, and what has none is called `otherwise`.
    """
    if is_recording(files.answers):
        return await restore_recording(context, files, slug=slug or otherwise, owner=owner)
    return await restore(context, files.answers, name=slug, owner=owner)


async def restore_here(files: Recording, *, slug: str, otherwise: str, owner: str) -> Imported:
    """The same with the store that the environment names."""
    settings = Settings()  # pyright: ignore[reportCallIssue]
    store = Store.open(settings.redis_url)
    try:
        return await restore_file(Context.build(settings, store), files, slug=slug, otherwise=otherwise, owner=owner)
    finally:
        await store.close()
