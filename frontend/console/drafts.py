"""Routes of files that are being written: check one, keep its versions and its ZIP, and tell who else is writing.

`?slug=` names the experiment whose file is changed; without it the draft is the caller's own, of a new experiment.
"""

import asyncio
import tempfile
import zipfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NotRequired

from fastapi import APIRouter, Depends, File, Form, UploadFile
from typing_extensions import TypedDict

from frontend.auth import UploadRoute, WithExperimenter, find_editable, find_visible
from frontend.console.dashboard import TargetRow, target_rows
from frontend.context import Context, WithContext
from frontend.errors import ConflictError, NotFoundError
from frontend.experiments import ServedExperiment
from frontend.launching import merge_targets
from frontend.media import spool_upload
from frontend.participant import steps
from frontend.schemas import DraftBody, DraftVersionBody, WindowBody
from frontend.store.answers import Counts
from frontend.store.drafts import DraftVersion, DraftZip
from salmon.errors import MediaError, Problem
from salmon.spec import ExaminedSpec, Manifest, Spec, examine_spec, read_tree, targets_of


class ProblemRow(TypedDict):
    """A mistake in a file at its line, or in the ZIP called `source`."""

    message: str
    line: int
    column: int
    path: str
    hint: str
    warning: bool
    sentence: str
    suggestion: str
    source: str


class DraftPicture(TypedDict):
    """A picture of a text, which is no target."""

    name: str
    media: str
    bytes: int
    width: int
    height: int


class DraftFiles(TypedDict):
    """The files of a draft; `reread` where the ZIP has to be sent again."""

    zip: str | None
    bytes: int | None
    reread: bool
    count: int
    odd: int
    targets: list[TargetRow]
    pictures: list[DraftPicture]


#: `class` is a keyword of Python, so these are not written as classes.
SamplerShare = TypedDict("SamplerShare", {"name": str, "class": str, "share": float})


class DraftSummary(TypedDict):
    """What an experiment with this file would be."""

    title: str
    targets: int | None
    pictures: list[str]
    samplers: list[SamplerShare]
    queries: int
    minutes: int | None
    steps: list[str]
    platform: str


class CheckReply(TypedDict):
    """What is wrong with a draft, and what it would be where nothing is."""

    problems: list[ProblemRow]
    summary: DraftSummary | None
    files: DraftFiles | None


class DraftVersionRow(TypedDict):
    """A version of a draft."""

    number: int
    at_ms: int
    by: str
    lines: int


class DraftTextReply(DraftVersionRow):
    """A version of a draft with its text."""

    spec: str


class DraftReply(TypedDict):
    """A draft as it was last saved; `version` is 0 where there is none."""

    version: int
    spec: str | None
    versions: list[DraftVersionRow]
    zip: str | None


class SavedDraftReply(TypedDict):
    """The number of the version that was saved; 0 after the draft was discarded."""

    version: int


class WindowsReply(TypedDict):
    """Who else has a draft open, and its newest version."""

    others: list[str]
    version: int


class DraftZipReply(TypedDict):
    """The ZIP of a draft, and what is wrong with it."""

    zip: str | None
    problems: NotRequired[list[ProblemRow]]


router = APIRouter(prefix="/api", route_class=UploadRoute)
#: Seconds that one answer takes, with its blank and the next pictures, where nobody has answered yet.
SECONDS_AN_ANSWER = 4.0
#: Files of a ZIP that are listed; the editor says how many more there are.
MOST_LISTED = 600


@dataclass(frozen=True)
class OpenDraft:
    """A draft by the id that it is kept under, and the experiment whose file it changes."""

    owner: str
    experiment: ServedExperiment | None


async def find_draft(context: WithContext, experimenter: WithExperimenter, slug: str = "") -> OpenDraft:
    """Return the draft of a new experiment of the caller's, or that of an experiment they may change."""
    experiment = await find_editable(slug, context, experimenter) if slug else None
    return OpenDraft(experiment.id if experiment else experimenter.id, experiment)


WithDraft = Annotated[OpenDraft, Depends(find_draft)]


@router.post("/check")
async def check(body: DraftBody, context: WithContext, experimenter: WithExperimenter) -> CheckReply:
    """Return every problem of a file and of its draft's ZIP, the files of the ZIP, and a
    summary where nothing is wrong.
    """
    experiment = await find_visible(body.slug, context, experimenter) if body.slug else None
    read = await context.store.drafts.read_zip(experiment.id if experiment else experimenter.id) if body.draft else None
    fixed = 0
    if experiment is not None and await context.store.answers.count(experiment.id) > 0:
        fixed = len(experiment.targets)
    return await asyncio.to_thread(_check, body, experiment, read, fixed, context.settings.mount)


@router.get("/draft")
async def read_draft(draft: WithDraft, context: WithContext) -> DraftReply:
    """Return a draft as it was last saved, its versions, and its ZIP's name; `version` is 0 where there is none."""
    versions = await context.store.drafts.read(draft.owner)
    read = await context.store.drafts.read_zip(draft.owner)
    newest = versions[0] if versions else None
    return {
        "version": newest.number if newest else 0,
        "spec": newest.text if newest else None,
        "versions": [_version_json(version) for version in versions],
        "zip": read.name if read else None,
    }


@router.put("/draft")
async def save_draft(
    body: DraftVersionBody, draft: WithDraft, context: WithContext, experimenter: WithExperimenter
) -> SavedDraftReply:
    """Save the next version of a draft; ConflictError where somebody else has saved
    one that the caller has not seen.
    """
    number = await context.store.drafts.save(
        draft.owner,
        body.spec,
        known=body.known,
        by=experimenter.name,
        window=body.window,
        now_ms=context.now_ms(),
    )
    if number is None:
        raise ConflictError(
            "This file was changed in another window since you opened it.",
            hint="Your text is still in the editor: compare the two and choose one.",
        )
    return {"version": number}


@router.delete("/draft")
async def discard_draft(draft: WithDraft, context: WithContext) -> SavedDraftReply:
    """Remove a draft, its versions and what is known of its ZIP."""
    await context.store.drafts.remove(draft.owner)
    return {"version": 0}


@router.get("/draft/versions/{number}")
async def read_draft_version(number: int, draft: WithDraft, context: WithContext) -> DraftTextReply:
    """Return one version of a draft with its text."""
    found = next((each for each in await context.store.drafts.read(draft.owner) if each.number == number), None)
    if found is None:
        raise NotFoundError(f"Version {number} of this draft is no longer kept.", hint="Choose a newer one.")
    return {**_version_json(found), "spec": found.text}


@router.post("/draft/windows")
async def note_window(
    body: WindowBody, draft: WithDraft, context: WithContext, experimenter: WithExperimenter
) -> WindowsReply:
    """Note that a window shows a draft; return who else has it open, and the number of its newest version."""
    if body.closed:
        await context.store.drafts.note_closed(draft.owner, body.window)
        return {"others": [], "version": 0}
    others = await context.store.drafts.note_open(draft.owner, body.window, experimenter.name, now_ms=context.now_ms())
    # Another window of one's own, or one that was left without a word, is nobody else.
    others = [name for name in others if name != experimenter.name]
    return {"others": others, "version": await context.store.drafts.newest(draft.owner)}


@router.post("/draft/targets")
async def upload_draft_targets(
    draft: WithDraft,
    context: WithContext,
    targets: Annotated[list[UploadFile], File()],
    spec: Annotated[str, Form(max_length=2_000_000)] = "",
) -> DraftZipReply:
    """Read a ZIP of targets for a draft, or add files to those that it has; return what is wrong with them.

    The files are stored. `spec` says whether they are trusted.
    """
    trusted = says_trusted(spec)
    before = await context.store.drafts.read_zip(draft.owner)
    is_zip = len(targets) == 1 and (targets[0].filename or "").lower().endswith(".zip")
    manifest: Manifest | None = None
    problems: tuple[Problem, ...] = ()
    async with spool_upload(targets[0]) if is_zip else _zip_of(targets) as archive:
        if archive is None:
            raise NotFoundError("No file was sent.", hint="Choose a ZIP of targets.")
        size_bytes = archive.stat().st_size
        try:
            manifest = await asyncio.to_thread(context.media.unpack, archive, trusted=trusted)
            problems = manifest.warnings
        except MediaError as error:
            problems = error.problems
    name = (targets[0].filename or "targets.zip")[:200] if is_zip else "dropped files"
    if manifest is not None and not is_zip and before is not None and before.manifest and before.trusted <= trusted:
        manifest = _added(Manifest.load(before.manifest), manifest)
        name, size_bytes = before.name, before.size_bytes + size_bytes
    kept = tuple(vars(problem) for problem in problems)
    read = DraftZip(name, size_bytes, trusted, manifest.dump() if manifest is not None else None, kept)
    await context.store.drafts.keep_zip(draft.owner, read)
    return {"zip": name, "problems": [problem_json(problem) for problem in problems]}


@router.delete("/draft/targets")
async def remove_draft_targets(draft: WithDraft, context: WithContext, name: str = "") -> DraftZipReply:
    """Take one file out of a draft's ZIP, by its name, or forget the ZIP."""
    read = await context.store.drafts.read_zip(draft.owner)
    kept = Manifest.load(read.manifest) if name and read is not None and read.manifest else None
    entries = tuple(entry for entry in kept.entries if entry.name != name) if kept is not None else ()
    if read is None or not entries:
        await context.store.drafts.remove_zip(draft.owner)
        return {"zip": None}
    manifest = Manifest(tuple(replace(entry, index=place) for place, entry in enumerate(entries)))
    await context.store.drafts.keep_zip(draft.owner, replace(read, manifest=manifest.dump()))
    return {"zip": read.name}


async def targets_of_draft(context: Context, owner: str, spec: str, known: Manifest | None = None) -> Manifest | None:
    """Return the targets of a draft's ZIP, with those of earlier ZIPs; MediaError where it could not be used."""
    read = await context.store.drafts.read_zip(owner)
    if read is None:
        return known
    manifest, problems = _read_zip(read, known, says_trusted(spec))
    if manifest is None:
        raise MediaError(problems, name=read.name)
    return manifest


def says_trusted(spec: str) -> bool:
    """Return whether a file says `page: {trusted: true}`, as far as it can be read."""
    page = read_tree(spec).get("page")
    return isinstance(page, dict) and page.get("trusted") is True


def problem_json(problem: Problem, source: str = "") -> ProblemRow:
    """Return a problem of a file, or of a ZIP called `source`, as the editor shows it."""
    return {
        "message": problem.message,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "hint": problem.hint,
        "warning": problem.warning,
        "sentence": problem.sentence(),
        "suggestion": problem.suggestion,
        "source": source,
    }


@asynccontextmanager
async def _zip_of(uploads: Sequence[UploadFile]) -> AsyncGenerator[Path]:
    """Yield a ZIP of files that were sent one by one."""
    with tempfile.NamedTemporaryFile(prefix="salmon-upload-", suffix=".zip") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for upload in uploads:
                with archive.open(upload.filename or "nameless", "w", force_zip64=False) as member:
                    while piece := await upload.read(1 << 20):
                        await asyncio.to_thread(member.write, piece)
        file.flush()
        yield Path(file.name)


def _added(old: Manifest, new: Manifest) -> Manifest:
    """Return the files of both; a file of the same name takes the place of the older one."""
    entries = {entry.name: entry for entry in (*old.entries, *new.entries)}.values()
    return Manifest(tuple(replace(entry, index=place) for place, entry in enumerate(entries)), warnings=new.warnings)


def _check(
    body: DraftBody, experiment: ServedExperiment | None, read: DraftZip | None, fixed: int, mount: str
) -> CheckReply:
    known = experiment.manifest if experiment is not None and not body.zip else None
    manifest, in_zip = (known, ()) if read is None else _read_zip(read, known, says_trusted(body.spec))
    is_broken = read is not None and manifest is None
    examined = examine_spec(body.spec, manifest=manifest, zip_follows=body.zip or is_broken, fixed_targets=fixed)
    usable = examined.spec if not any(not problem.warning for problem in in_zip) else None
    return {
        "problems": [
            *(problem_json(replace(problem, line=0, column=0), read.name) for problem in in_zip if read),
            *(problem_json(problem) for problem in examined.problems),
        ],
        "summary": _summary(usable, examined.manifest, counted=not (body.zip or is_broken)) if usable else None,
        "files": _files_json(examined, read, trusted=says_trusted(body.spec), mount=mount)
        if examined.manifest is not None or read is not None
        else None,
    }


def _read_zip(read: DraftZip, known: Manifest | None, trusted: bool) -> tuple[Manifest | None, tuple[Problem, ...]]:
    """Return the targets of a draft's ZIP after those of earlier ZIPs, and what is wrong with it."""
    problems = tuple(Problem(**problem) for problem in read.problems)
    if read.trusted and not trusted:
        again = Problem(
            "The ZIP was read while the file said trusted: true.", hint="Choose the ZIP again.", path=read.name
        )
        return None, (again,)
    if read.manifest is None:
        return None, problems
    try:
        return merge_targets(known, Manifest.load(read.manifest)), problems
    except MediaError as error:
        return None, (*problems, *error.problems)


def _files_json(examined: ExaminedSpec, read: DraftZip | None, *, trusted: bool, mount: str) -> DraftFiles:
    """Return the files of the ZIP: targets with what is odd about them, and the pictures of texts.

    `reread` where the file has come to say something else about whether they are trusted since the ZIP was read.
    """
    manifest = examined.manifest
    targets = manifest.targets() if manifest is not None else ()
    rows = target_rows(targets, manifest, Counts.of({}), mount=mount)
    odd = [row for row in rows if row["odd"]]
    listed = rows if len(rows) <= MOST_LISTED else [*odd, *(row for row in rows if not row["odd"])][:MOST_LISTED]
    pictures = manifest.picture_files() if manifest is not None else ()
    return {
        "zip": read.name if read else None,
        "bytes": read.size_bytes if read else None,
        "reread": read is not None and read.trusted != trusted,
        "count": len(rows),
        "odd": len(odd),
        "targets": sorted(listed, key=lambda row: row["index"]),
        "pictures": [
            {
                "name": picture.filename,
                "media": f"{mount}/media/{picture.media}",
                "bytes": picture.size_bytes,
                "width": picture.width_px,
                "height": picture.height_px,
            }
            for picture in pictures
        ],
    }


def _summary(spec: Spec, manifest: Manifest | None, *, counted: bool) -> DraftSummary:
    """Return what an experiment with this file would be."""
    queries = spec.html.max_queries
    return {
        "title": spec.title,
        "targets": len(targets_of(spec, manifest)) if counted else None,
        "pictures": [picture.name for picture in manifest.pictures] if manifest is not None else [],
        "samplers": [
            {"name": name, "class": spec.samplers[name].sampler_class, "share": share}
            for name, share in spec.probabilities.items()
        ],
        "queries": queries,
        "minutes": round(max(1.0, queries * SECONDS_AN_ANSWER / 60)) if queries > 0 else None,
        "steps": list(steps.steps_of(spec)),
        "platform": spec.recruitment.platform,
    }


def _version_json(version: DraftVersion) -> DraftVersionRow:
    return {
        "number": version.number,
        "at_ms": version.at_ms,
        "by": version.by,
        "lines": version.text.count("\n") + 1,
    }
