"""From answers that another program recorded to a paused experiment: what a file says is kept, what it does not is said.

Its answers were signed by nobody, and are marked so. Embeddings are not taken over: they are fitted anew from the
answers, by whatever sampler the description names.
"""

from __future__ import annotations

import asyncio
import hashlib
import string
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from frontend.catalogue import make_revision
from frontend.context import Context
from frontend.errors import BundleError
from frontend.restoring.description import Description, described, fitted
from frontend.restoring.restoration import Imported, check_free, free_id, pages_of
from frontend.store.experiments import Change
from frontend.store.restoration import PAGE
from frontend.tally import MINUTE_MS, tally
from salmon.formats import AnswersFileError, ContainerError
from salmon.formats.backup import is_backup, read_backup
from salmon.formats.old_config import modern_config, modern_tree
from salmon.formats.recorded import Recorded
from salmon.formats.survey import Survey, answers_of, survey
from salmon.records import Answer, Served, Timing
from salmon.spec import Manifest, parse_spec
from salmon.wire import encode_answer, encode_json

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


def _placed(known: Survey, now_ms: int) -> Iterator[tuple[str, Recorded]]:
    """(place in the log, answer): the time of receipt, never before that of the answer before it."""
    last_ms, number = 0, 0
    for order, read in enumerate(answers_of(known)):
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
