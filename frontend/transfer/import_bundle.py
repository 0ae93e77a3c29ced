"""Make an experiment of a bundle: check everything, keep the media, write the log, and only then give it its name."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from frontend.context import Context
from frontend.errors import ConflictError
from frontend.store.experiments import OWN_FIELDS, Change
from frontend.store.export_reader import STEPS_TO_SEND
from frontend.store.importing import PAGE, Importer
from frontend.transfer import bundle_reader
from frontend.transfer.bundle_reader import Outline, Totals
from frontend.transfer.bundle_writer import MEDIA
from frontend.transfer.bundle_zip import BundleZip
from salmon.wire.keys import derive_experiment_id

Item = TypeVar("Item")
_PEOPLE = 100
_OPEN_PAGES = "Pages that were open on the other server cannot send answers to this one."
_EVENTS = 1000


@dataclass(frozen=True)
class Imported:
    """Result of an import."""

    slug: str
    state: str
    answers: int
    participants: int
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What the experimenter should know; `notes` say what could not be taken over."""
        after = "It is paused: open it when participants may continue." if self.state == "paused" else "It is a draft."
        made = f"{self.slug} was imported with {self.answers} answers of {self.participants} participants. {after}"
        return " ".join((made, *self.notes))


async def import_bundle(context: Context, path: Path, *, name: str, owner: str) -> Imported:
    """Make a paused experiment of a bundle; BundleError or ConflictError where that cannot
    be, and nothing is visible then.

    It may be repeated after a crash, with the same bundle and name.
    """
    bundle = BundleZip(path)
    try:
        outline = bundle_reader.outline_of(bundle)
        if outline.state.get("rehearsal_of"):
            raise ConflictError(
                "This is the bundle of a rehearsal: its answers are those of simulated people.",
                hint="Rehearse the experiment again; nothing was imported.",
            )
        slug = name or outline.slug
        await check_free(context, slug)
        bundle.check()
        media = tuple(bundle_reader.media_of(bundle))
        totals = bundle_reader.totals_of(bundle, outline)
        experiment = await free_id(context, bundle.digest, slug, totals.last, totals.state.get("answers", 0))
        for medium in media:
            context.media.keep(medium, bundle.pieces(MEDIA + medium))
        return await _write(context, bundle, outline, totals, experiment=experiment, slug=slug, owner=owner)
    finally:
        bundle.close()


async def check_free(context: Context, slug: str) -> None:
    """Raise ConflictError where an experiment has this name."""
    holder = await context.store.experiments.find(slug)
    if holder is not None and await context.store.experiments.read_fields(holder):
        raise ConflictError(f"There is an experiment called {slug!r} already.", hint="Import it under another name.")


async def free_id(context: Context, digest: str, slug: str, last: str, answers: int) -> str:
    """Return an id that follows from what is imported and the name, so that an import that was killed can be continued.

    `last` is the place of the last of the answers in the log.
    """
    for attempt in range(1000):
        experiment = derive_experiment_id(f"{digest}:{slug}:{attempt}")
        if await context.store.importer.may_hold(experiment, last, answers):
            return experiment
    raise ConflictError("This was imported a thousand times under this name.", hint="Choose another name.")


def batches_of(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of so many items; the last may be shorter."""
    left = iter(items)
    while page := list(islice(left, size)):
        yield page


async def _write(
    context: Context, bundle: BundleZip, outline: Outline, totals: Totals, *, experiment: str, slug: str, owner: str
) -> Imported:
    store, now_ms = context.store.importer, context.now_ms()
    await store.write_hash(experiment, "spec", {str(number): text for number, text in outline.revisions.items()})
    await _append_answers(store, experiment, bundle)
    await store.check(experiment, totals.state.get("answers", 0))
    count = 0
    for page in batches_of(bundle_reader.people_of(bundle), _PEOPLE):
        count += len(page)
        await store.write_people(
            experiment,
            [
                (
                    person.participant,
                    _with_answers(person.fields, totals.people.get(person.participant, 0)),
                    person.asked,
                )
                for person in page
            ],
        )
    for page in batches_of(bundle_reader.arrivals_of(bundle), _EVENTS):
        await store.write_hash(experiment, "arrivals", dict(page))
    for name in ("events", "changes"):
        for page in batches_of(bundle_reader.entries_of(bundle, f"{name}.jsonl"), _EVENTS):
            await store.append(experiment, name, page)
    for model in bundle_reader.models_of(bundle, outline):
        await store.write_model(experiment, model.sampler, {**model.numbers, **model.arrays})
    for line in bundle_reader.history_of(bundle, outline):
        await store.append_generation(experiment, line.sampler, line.stream_id, {**line.numbers, **line.arrays})
    await store.write_hash(experiment, "counts", totals.counts)
    state = "draft" if outline.state["state"] == "draft" else "paused"
    kept = {name: value for name, value in outline.state.items() if name not in OWN_FIELDS and value.isdecimal()}
    await store.reveal(
        experiment,
        slug,
        {
            **{name: value for name, value in kept.items() if not name.startswith("answers")},
            **totals.state,
            "state": state,
            "owner": owner,
            **{name: outline.state[name] for name in ("revision", "created_ms", "opened_ms")},
        },
    )
    answers = totals.state.get("answers", 0)
    detail = f"{answers} answers of {bundle.manifest['slug']}, exported {bundle.manifest.get('exported', '')}"
    await context.store.experiments.note_change(
        experiment, Change(now_ms, await context.store.accounts.name_of(owner), "imported", detail[:200])
    )
    await context.store.experiments.announce(experiment)
    lacking = sorted(name for name in outline.media if MEDIA + name not in bundle.names)
    notes = (f"The bundle lacks these files of targets: {', '.join(lacking)}.",) if lacking else ()
    return Imported(slug, state, answers, count, (_OPEN_PAGES, *notes))


async def _append_answers(store: Importer, experiment: str, bundle: BundleZip) -> None:
    """Append all answers. The store is busy with a page while the next one is read."""
    appending: asyncio.Task[int] | None = None
    for page in batches_of(bundle_reader.answers_of(bundle), PAGE):
        if appending is not None:
            await appending
        appending = asyncio.create_task(store.append_answers(experiment, page))
        for _ in range(STEPS_TO_SEND):
            await asyncio.sleep(0)
    if appending is not None:
        await appending


def _with_answers(fields: dict[str, str], answers: int) -> dict[str, str]:
    """Return the fields of a participant with the answers that are in the log."""
    return {**fields, "answers": str(answers)} if answers or "answers" in fields else fields
