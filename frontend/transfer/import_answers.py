"""Make a paused experiment of answers that another program recorded, or of a backup of the first Salmon.

What a file says is kept, and what it does not say is reported. A description that came with the answers is fitted to
them (`fit_description`); without one it is made of the answers (`describe_answers`). Imported answers were not signed
by this server and are marked so. Embeddings are not imported: the samplers of the description fit them anew.
"""

import asyncio
import hashlib
import re
import tempfile
import zipfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frontend.context import Context, open_context
from frontend.errors import BundleError
from frontend.experiments import make_revision
from frontend.settings import Settings
from frontend.store.answers import MINUTE_MS, counters_of
from frontend.store.experiments import Change
from frontend.store.importing import PAGE
from frontend.store.participants import Participant, identity_of
from frontend.store.statuses import Status
from frontend.transfer.import_bundle import Imported, batches_of, check_free, free_id, import_bundle
from salmon.answer_files.recorded_answers import RecordedAnswer, Survey, read_recorded, survey
from salmon.answer_files.rows import AnswersFileError, ContainerError, bare
from salmon.answer_files.salmon1_backup import is_backup, modern_config, modern_tree, read_backup
from salmon.errors import Problem
from salmon.records import Answer, Served, Timing
from salmon.spec import Manifest, Spec, TargetSpec, parse_spec, targets_of, write_tree
from salmon.spec.kinds import MAX_TARGETS, MIN_TARGETS, SAMPLER_NAME
from salmon.spec.sampler_arguments import OLD_CLASSES, SAMPLER_CLASSES
from salmon.wire import encode_answer
from salmon.wire.keys import derive_participant_id

#: The sampler of answers of which nothing says how their query was chosen.
UNNAMED = "random"
_NAMED = 5
_PICTURE = re.compile(r"<\s*(?:img|video|audio|source)\b", re.IGNORECASE)
_PEOPLE = 100
_UNKNOWN = (
    "Such files do not contain skips, page events, consent, or who had finished, so these are unknown. Embeddings are"
    " fitted again."
)
_TABLE = re.compile(r"\.(csv|tsv|jsonl?)$", re.IGNORECASE)


@dataclass(frozen=True)
class FittedDescription:
    """Description that fits a file of answers.

    `indices` gives the index of a target as the file names it, `samplers` the name that a sampler has here; `notes` are
    sentences about what could not be known.
    """

    source: str
    spec: Spec
    targets: tuple[TargetSpec, ...]
    indices: Mapping[str, int]
    samplers: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ImportFiles:
    """Files of one experiment: its answers or a backup, and perhaps its description
    (`config`) and the ZIP of its targets.

    `name` is what the file of answers is called where its experimenter sees it.
    """

    answers: Path
    name: str
    config: Path | None = None
    targets: Path | None = None


@dataclass
class _Person:
    """What the answers say about one participant."""

    first_ms: int
    last_ms: int
    answers: int = 0
    asked: set[str] = field(default_factory=set[str])


async def import_here(files: ImportFiles, *, slug: str, otherwise: str, owner: str) -> Imported:
    """Import files into the store that the environment names."""
    async with open_context(Settings()) as context:  # pyright: ignore[reportCallIssue]
        return await import_file(context, files, slug=slug, otherwise=otherwise, owner=owner)


async def import_file(context: Context, files: ImportFiles, *, slug: str, otherwise: str, owner: str) -> Imported:
    """Make a paused experiment of a bundle, or of what another program recorded.

    Without a `slug` a bundle keeps its own name, and what has none is called `otherwise`.
    """
    if is_foreign(files.answers):
        return await import_answers(context, files, slug=slug or otherwise, owner=owner)
    return await import_bundle(context, files.answers, name=slug, owner=owner)


def is_foreign(path: Path) -> bool:
    """Return whether a file is no bundle: it is no ZIP, or a ZIP that has a table among its files and no manifest."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return path.stat().st_size > 0
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return False  # perhaps a bundle that was cut off: its reader says so
    return "manifest.json" not in names and any(_TABLE.search(name) for name in names)


async def import_answers(context: Context, files: ImportFiles, *, slug: str, owner: str) -> Imported:
    """Make a paused experiment of recorded answers; an error says why where that cannot
    be, and nothing is visible then.
    """
    await check_free(context, slug)
    try:
        with tempfile.TemporaryDirectory(prefix="salmon-import-") as folder:
            return await _restore(context, files, Path(folder), slug=slug, owner=owner)
    except ContainerError as error:
        raise AnswersFileError((error.problem,), name=files.name) from error


def describe_answers(known: Survey, manifest: Manifest | None) -> FittedDescription:
    """Return a description made of nothing but the answers: their targets and samplers, and Salmon's defaults."""
    order = sorted(known.names, key=(lambda label: label) if known.naming.labels else int)
    indices = {name: place if known.naming.labels else int(name) for place, name in enumerate(order)}
    samplers = _rename_samplers(known.samplers)
    tree: dict[str, Any] = {
        "targets": _texts(known, indices),
        "samplers": {called: {"class": _class_of(called)} for called in dict.fromkeys(samplers.values())},
    }
    source = write_tree(tree)
    spec = parse_spec(source, name="the file of answers", manifest=manifest, default_sampler="Random").spec
    notes = ["No experiment file was given: texts, samplers and settings are Salmon's defaults."]
    guessed = [called for called in spec.samplers if _class_of(called) == "Random" and called.casefold() != "random"]
    if guessed:
        notes.append(f"The classes of the samplers {_list_names(guessed)} are unknown; they are now Random.")
    targets = targets_of(spec, manifest)
    _check_indices(indices, targets)
    return FittedDescription(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


def fit_description(known: Survey, source: str, spec: Spec, manifest: Manifest | None) -> FittedDescription:
    """Return the description that came with the answers; BundleError where it does not fit them."""
    targets = targets_of(spec, manifest)
    if known.naming.labels:
        places = {bare(target.filename): target.index for target in targets}
        places |= {target.filename: target.index for target in targets}
        lacking = [label for label in known.names if label not in places and bare(label) not in places]
        if lacking:
            raise BundleError(
                f"The description has no targets for {_list_names(lacking)}, which answers name.",
                hint="Give the experiment file and the targets of this experiment.",
                where="targets",
            )
        indices = {label: places.get(label, places.get(bare(label), 0)) for label in known.names}
    else:
        indices = {name: int(name) for name in known.names}
    _check_indices(indices, targets)
    samplers = _rename_samplers(known.samplers, spec)
    strange = [called for called in dict.fromkeys(samplers.values()) if called not in spec.samplers]
    notes = (
        [f"The description has no sampler {_list_names(strange)}, whose answers are kept under that name."]
        if strange
        else []
    )
    return FittedDescription(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


async def _restore(context: Context, files: ImportFiles, folder: Path, *, slug: str, owner: str) -> Imported:
    manifest = await asyncio.to_thread(context.media.unpack, files.targets) if files.targets is not None else None
    known, description, manifest, began_ms, notes = await asyncio.to_thread(_read, files, folder, manifest)
    now_ms = context.now_ms()
    last = await asyncio.to_thread(_last_place, known, now_ms)
    experiment = await free_id(context, await asyncio.to_thread(_digest, files.answers), slug, last, known.answers)
    store = context.store.importer
    revision = make_revision(description.source, description.spec, manifest, now_ms=now_ms)
    await store.write_hash(experiment, "spec", {"1": revision.encode()})
    people: dict[str, _Person] = {}
    state: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for page in batches_of(_answers(known, description, experiment, people, now_ms), PAGE):
        await store.append_answers(experiment, [(place, encode_answer(answer)) for place, answer in page])
        for _, answer in page:
            state["answers"] += 1
            state[f"answers:{answer.served.sampler}"] += 1
            counts.update(counters_of(answer))
    await store.check(experiment, known.answers)
    counts.update(f"began:{person.first_ms // MINUTE_MS}" for person in people.values())
    for page in batches_of(people.items(), _PEOPLE):
        names = [_participant(experiment, puid) for puid, _ in page]
        await store.write_people(
            experiment,
            [
                (name, _encode_person(name, puid, person), sorted(person.asked))
                for name, (puid, person) in zip(names, page, strict=True)
            ],
        )
        await store.write_hash(
            experiment, "arrivals", {identity_of("link", puid): _participant(experiment, puid) for puid, _ in page}
        )
    await store.write_hash(experiment, "counts", counts)
    opened_ms = began_ms or known.began_ms or min(person.first_ms for person in people.values())
    await store.reveal(
        experiment,
        slug,
        {**state, "state": "paused", "owner": owner, "revision": 1, "created_ms": now_ms, "opened_ms": opened_ms},
    )
    await context.store.experiments.note_change(
        experiment,
        Change(
            now_ms,
            await context.store.accounts.name_of(owner),
            "imported",
            f"{known.answers} answers of {files.name}"[:200],
        ),
    )
    await context.store.experiments.announce(experiment)
    return Imported(slug, "paused", known.answers, len(people), (*notes, *description.notes, _UNKNOWN))


def _rename_samplers(samplers: Sequence[str], spec: Spec | None = None) -> dict[str, str]:
    """Return the name that each sampler of the file has here."""
    renamed: dict[str, str] = {}
    for name in samplers:
        called = OLD_CLASSES.get(name, name) if spec is None or name not in spec.samplers else name
        called = called or (next(iter(spec.samplers)) if spec is not None else UNNAMED)
        if not re.fullmatch(SAMPLER_NAME, called):
            called = re.sub(r"[^A-Za-z0-9_-]+", "_", called)[:40] or UNNAMED
        renamed[name] = called
    return renamed


def _texts(known: Survey, indices: Mapping[str, int]) -> list[str]:
    """Return (n,) what pages show; a target without an answer gets its index, as nothing is known about it."""
    n = max((*indices.values(), MIN_TARGETS - 1)) + 1
    if n > MAX_TARGETS:
        raise AnswersFileError(
            (
                Problem(
                    f"The answers name target {n - 1:,}, but an experiment can have at most {MAX_TARGETS:,} targets.", 1
                ),
            )
        )
    texts = [str(index) for index in range(n)]
    for name, index in indices.items():
        html, file = known.names[name]
        texts[index] = html or file or name
    return texts


def _class_of(name: str) -> str:
    return next((known for known in SAMPLER_CLASSES if known.casefold() == name.casefold()), "Random")


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:60]) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def _check_indices(indices: Mapping[str, int], targets: Sequence[TargetSpec]) -> None:
    highest = max(indices.values())
    if highest >= len(targets):
        raise BundleError(
            f"The answers name target {highest}, but there are only {len(targets)} targets, counted from 0.",
            hint="Give the experiment file and the targets of this experiment.",
            where="targets",
        )


def _of_pictures(targets: Sequence[TargetSpec], manifest: Manifest | None) -> tuple[str, ...]:
    if manifest is not None or not any(_PICTURE.search(target.html) for target in targets):
        return ()
    return ("The files of its targets are missing: import it again with their ZIP, under another name.",)


def _read(
    files: ImportFiles, folder: Path, manifest: Manifest | None
) -> tuple[Survey, FittedDescription, Manifest | None, int, tuple[str, ...]]:
    """Return what the answers name, the description, the manifest without pictures of texts among its targets, when it
    began in Unix ms or 0, and sentences about what was assumed.
    """
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
        return known, describe_answers(known, manifest), manifest, began_ms, (*notes, *_list_assumptions(known))
    parsed = parse_spec(
        source, name=files.config.name if files.config else files.name, manifest=manifest, default_sampler="Random"
    )
    known = survey(
        path, name=files.name, classes={name: one.sampler_class for name, one in parsed.spec.samplers.items()}
    )
    manifest = parsed.manifest
    description = fit_description(known, source, parsed.spec, manifest)
    return known, description, manifest, began_ms, (*notes, *_list_assumptions(known))


def _last_place(known: Survey, now_ms: int) -> str:
    (last,) = deque((place for place, _ in _place_answers(known, now_ms)), maxlen=1)
    return last


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _answers(
    known: Survey, description: FittedDescription, experiment: str, people: dict[str, _Person], now_ms: int
) -> Iterator[tuple[str, Answer]]:
    """Yield (place in the log, answer) as they are stored; `people` is filled on the way."""
    probabilities = description.spec.probabilities if known.classes else {}
    for order, (place, read) in enumerate(_place_answers(known, now_ms)):
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


def _participant(experiment: str, puid: str) -> str:
    """Return the id of a participant inside the experiment; it follows from the two, so
    that an import can be repeated.
    """
    return derive_participant_id(f"{experiment}:{puid}")


def _encode_person(participant: str, puid: str, person: _Person) -> dict[str, str]:
    return Participant(
        participant,
        puid=puid,
        source="link",
        status=Status.ACTIVE,
        first_ms=person.first_ms,
        last_ms=person.last_ms,
        turns=person.answers,
        answers=person.answers,
    ).encode()


def _list_assumptions(known: Survey) -> tuple[str, ...]:
    notes = (
        (
            known.untimed,
            f"{known.untimed:,} answers have no time: they get the time of this import, in their order.",
        ),
        (
            known.sideless,
            f"{known.sideless:,} answers have no sides: sides were drawn at random.",
        ),
    )
    return tuple(sentence for count, sentence in notes if count)


def _place_answers(known: Survey, now_ms: int) -> Iterator[tuple[str, RecordedAnswer]]:
    """Yield (place in the log, answer): the time of receipt, never before that of the answer before it."""
    last_ms, number = 0, 0
    for order, read in enumerate(read_recorded(known)):
        answer = replace(read, received_ms=now_ms - known.answers + order) if read.received_ms < 0 else read
        milliseconds = max(answer.received_ms, last_ms, 1)
        number = number + 1 if milliseconds == last_ms else 0
        last_ms = milliseconds
        yield f"{milliseconds}-{number}", answer


def _coin(name: str, order: int) -> bool:
    return bool(hashlib.sha256(f"{name}:{order}".encode()).digest()[0] & 1)
