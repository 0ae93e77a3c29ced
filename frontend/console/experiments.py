"""Routes of experiments: create, list, read, change, share, copy and delete them."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import FileResponse, Response
from typing_extensions import TypedDict

from frontend.auth import (
    EditableExperiment,
    OwnExperiment,
    UploadRoute,
    WithAccount,
    WithExperiment,
    WithExperimenter,
    may_see,
    note,
)
from frontend.console.accounts import LinkReply
from frontend.console.drafts import targets_of_draft
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, NotFoundError
from frontend.launching import free_slug, launch, note_change, revise
from frontend.lifecycle import why_it_would_close
from frontend.media import spool_upload
from frontend.schemas import NameBody, SharedBody, StateBody
from frontend.store.experiments import Change, ExperimentState, Revision, State
from frontend.transfer.erasure import begin_erasing, order_deletion
from frontend.transfer.rehearsals import check_is_real
from frontend.transfer.routes import keep_bundle
from frontend.transfer.subprocesses import WithSubprocesses


class ExperimentReply(TypedDict):
    """An experiment with the accounts that it belongs to and is shared with, by their names."""

    slug: str
    state: State
    revision: int
    owner: str
    shared: dict[str, str]
    created_ms: int
    opened_ms: int
    answers: int


class NewExperimentReply(ExperimentReply):
    """An experiment that was just made, with its link and what `check` warns of."""

    address: str
    warnings: list[str]


class RevisedExperimentReply(ExperimentReply):
    """An experiment after a new revision of its file."""

    warnings: list[str]


class FullExperimentReply(ExperimentReply):
    """An experiment with its file as it was written."""

    title: str
    spec: str
    address: str


class DeletedReply(TypedDict):
    """What is kept of an experiment that was deleted, and for how long; None: for ever."""

    slug: str
    bundle: str
    kept_days: int | None
    media_problems: list[str]


class ExampleRow(TypedDict):
    """An experiment to begin with."""

    name: str
    spec: str
    zip: bool


router = APIRouter(prefix="/api", route_class=UploadRoute)


@dataclass(frozen=True)
class Example:
    """An experiment that comes with the program: its file, and its targets where they are in a ZIP."""

    name: str
    spec: Path
    archive: Path | None


@router.get("/experiments")
async def list_experiments(context: WithContext, experimenter: WithAccount) -> list[ExperimentReply]:
    """Return the experiments that this experimenter may see, the newest first."""
    names = await context.store.accounts.names()
    return [_json(state, names) for state in await context.store.experiments.list() if may_see(experimenter, state)]


@router.post("/experiments", status_code=201)
async def create_experiment(
    request: Request,
    context: WithContext,
    experimenter: WithExperimenter,
    spec: Annotated[UploadFile, File()],
    targets: Annotated[UploadFile | None, File()] = None,
    name: Annotated[str, Form()] = "",
    state: Annotated[Literal["draft", "open"], Form()] = "draft",
    from_draft: Annotated[bool, Form()] = False,
) -> NewExperimentReply:
    """Check a YAML file and a ZIP, keep the targets, and make the experiment.

    `from_draft` takes the targets of the caller's draft, which is removed.
    """
    source = await spec.read()
    manifest = await targets_of_draft(context, experimenter.id, source.decode(errors="replace")) if from_draft else None
    async with spool_upload(targets) as archive:
        made, warnings = await launch(
            context,
            source,
            manifest=manifest,
            spec_name=Path(spec.filename or "experiment.yaml"),
            archive=archive,
            name=name,
            owner=experimenter.id,
            state=state,
        )
    if from_draft:
        await context.store.drafts.remove(experimenter.id)
    await note(request, context, experimenter.name, "experiment created", made.slug)
    return {
        **await _json_now(context, made),
        "address": f"{context.address(request)}/e/{made.slug}/",
        "warnings": warnings,
    }


@router.get("/experiments/{slug}")
async def read_experiment(request: Request, experiment: WithExperiment, context: WithContext) -> FullExperimentReply:
    """Return one experiment: its state, and its file as it was written."""
    state = experiment.state
    revision = await context.store.experiments.read_revision(experiment.id, state.revision)
    return {
        **await _json_now(context, state),
        "title": experiment.spec.title,
        "spec": revision.source,
        "address": f"{context.address(request)}/e/{state.slug}/",
    }


@router.put("/experiments/{slug}/state")
async def set_state(
    request: Request, experiment: EditableExperiment, body: StateBody, context: WithContext, experimenter: WithAccount
) -> ExperimentReply:
    """Open, pause or close an experiment; one that would close by itself at once is not opened."""
    check_is_real(experiment.state)
    if body.state == "open" and (ending := await why_it_would_close(context, experiment)):
        raise ConflictError(
            f"The experiment would close again at once: {ending.sentence}",
            hint="Change stopping in its file first.",
            where=f"stopping.{ending.by}",
        )
    await context.store.experiments.set_state(experiment.id, body.state, now_ms=context.now_ms())
    await note_change(context, experiment.id, experimenter.name, "state", body.state)
    await note(request, context, experimenter.name, "experiment state", f"{experiment.state.slug} {body.state}")
    return await _json_now(context, await context.store.experiments.read(experiment.id))


@router.put("/experiments/{slug}/spec")
async def change_spec(
    experiment: EditableExperiment,
    context: WithContext,
    experimenter: WithAccount,
    spec: Annotated[UploadFile, File()],
    revision: Annotated[int, Form()],
    targets: Annotated[UploadFile | None, File()] = None,
    from_draft: Annotated[bool, Form()] = False,
) -> RevisedExperimentReply:
    """Make the next revision; `revision` is the one that was changed. Answers already given are kept.

    `from_draft` takes the targets of the experiment's draft, which is removed.
    """
    check_is_real(experiment.state)
    source, known = await spec.read(), experiment.manifest
    text = source.decode(errors="replace")
    manifest = await targets_of_draft(context, experiment.id, text, known) if from_draft else None
    async with spool_upload(targets) as archive:
        warnings = await revise(
            context,
            experiment,
            source,
            archive=archive,
            by=experimenter.name,
            known=revision,
            manifest=manifest,
        )
    if from_draft:
        await context.store.drafts.remove(experiment.id)
    return {**await _json_now(context, await context.store.experiments.read(experiment.id)), "warnings": warnings}


@router.get("/experiments/{slug}/changes")
async def read_changes(experiment: WithExperiment, context: WithContext) -> list[Change]:
    """Return who did what to this experiment, and when."""
    return list(await context.store.experiments.read_changes(experiment.id))


@router.put("/experiments/{slug}/shared")
async def share(
    request: Request, experiment: OwnExperiment, body: SharedBody, context: WithContext, experimenter: WithAccount
) -> ExperimentReply:
    """Say which other accounts may look at this experiment, and which may change it."""
    ids = {account.name: account.id for account in await context.store.accounts.list()}
    if strangers := [name for name in body.accounts if name not in ids]:
        raise NotFoundError(
            f"There is no account called {', '.join(map(repr, strangers))}.",
            hint="The owner of this server can invite them.",
            where="accounts",
        )
    await context.store.experiments.share(experiment.id, {ids[name]: may for name, may in body.accounts.items()})
    detail = ", ".join(f"{name}: {may}" for name, may in sorted(body.accounts.items())) or "nobody"
    await note_change(context, experiment.id, experimenter.name, "shared", detail)
    await note(request, context, experimenter.name, "experiment shared", f"{experiment.state.slug}: {detail}")
    return await _json_now(context, await context.store.experiments.read(experiment.id))


@router.post("/experiments/{slug}/copy", status_code=201)
async def copy(
    request: Request, experiment: WithExperiment, body: NameBody, context: WithContext, experimenter: WithExperimenter
) -> ExperimentReply:
    """Make a draft with the same file and targets, and no answers."""
    check_is_real(experiment.state)
    stored = await context.store.experiments.read_revision(experiment.id, experiment.state.revision)
    slug = await free_slug(context, body.name or f"{experiment.state.slug}-copy", given=bool(body.name))
    revision = Revision(stored.source, stored.spec, stored.manifest, context.now_ms())
    made = await context.store.experiments.create(
        slug, revision, owner=experimenter.id, state="draft", now_ms=context.now_ms()
    )
    await note_change(context, made.experiment, experimenter.name, "created", f"copy of {experiment.state.slug}")
    await note(request, context, experimenter.name, "experiment created", f"{made.slug}, a copy")
    return await _json_now(context, made)


@router.delete("/experiments/{slug}")
async def delete(
    request: Request,
    experiment: OwnExperiment,
    body: NameBody,
    context: WithContext,
    experimenter: WithAccount,
    subprocesses: WithSubprocesses,
) -> DeletedReply:
    """Delete an experiment; its name has to be typed once more, and it must not be open.

    A bundle is written first: without it nothing is deleted. Then everything goes, answers and models included. The
    bundle is kept for `kept_days`, or for ever where the server's settings say so.
    """
    state = experiment.state
    if body.name != state.slug:
        raise BadRequestError(
            f"To delete this experiment, type its name: {state.slug}.", hint="Nothing was deleted.", where="name"
        )
    if state.state == "open":
        raise ConflictError("This experiment is open.", hint="Close it first, so that nobody is in the middle of it.")
    bundle = await keep_bundle(context, subprocesses, state.slug)
    if context.settings.eraser_url:
        await order_deletion(context, experiment.id, state.slug, by=experimenter.name)
    await context.store.experiments.delete(state.slug, experiment.id)
    await note(request, context, experimenter.name, "experiment deleted", f"{state.slug}, kept in {bundle}")
    if context.settings.eraser_url:
        begin_erasing(subprocesses)
    days = context.settings.keep_bundles_days
    return {
        "slug": state.slug,
        "bundle": bundle,
        "kept_days": days or None,
        "media_problems": list((await asyncio.to_thread(context.media.problems, experiment.files)).values()),
    }


@router.get("/examples")
async def read_examples(request: Request, context: WithContext, _: WithAccount) -> list[ExampleRow]:
    """Return experiments to begin with; their first line tells editors of YAML where the schema is."""
    schema = f"# yaml-language-server: $schema={context.address(request)}/schema.json\n"
    return [
        {"name": example.name, "spec": schema + example.spec.read_text(), "zip": example.archive is not None}
        for example in examples()
    ]


@router.get("/examples/{name}/targets.zip", response_class=Response)
async def read_example_targets(name: str, _: WithAccount) -> Response:
    """Return the targets of an example."""
    archive = next((example.archive for example in examples() if example.name == name), None)
    if archive is None:
        raise NotFoundError(f"There is no example called {name!r} with a ZIP of targets.")
    return FileResponse(archive, media_type="application/zip")


@router.post("/experiments/{slug}/tryout")
async def try_out(request: Request, experiment: WithExperiment, context: WithContext) -> LinkReply:
    """Return a link with which an experimenter walks through the experiment as a participant; nothing is recorded."""
    return {"link": tryout_link(request, context, experiment.id, experiment.state.slug)}


def examples() -> tuple[Example, ...]:
    """Return the examples of this installation: beside the packages, or where the wheel puts them."""
    folders = (Path(__file__).parents[2] / "examples", Path(sys.prefix) / "share" / "salmon" / "examples")
    folder = next((path for path in folders if path.is_dir()), folders[0])
    found = sorted(folder.glob("*/experiment.yaml"))
    archives = [path.with_name("targets.zip") for path in found]
    return tuple(
        Example(path.parent.name, path, archive if archive.exists() else None)
        for path, archive in zip(found, archives, strict=True)
    )


def tryout_link(request: Request, context: Context, experiment: str, slug: str) -> str:
    """Return where an experiment can be tried out, for some hours."""
    return f"{context.address(request)}/e/{slug}/?tryout={context.signer.sign_tryout(experiment)}"


async def _json_now(context: Context, state: ExperimentState) -> ExperimentReply:
    return _json(state, await context.store.accounts.names())


def _json(state: ExperimentState, names: Mapping[str, str]) -> ExperimentReply:
    """Return an experiment with the accounts that it belongs to and is shared with, by their names."""
    return {
        "slug": state.slug,
        "state": state.state,
        "revision": state.revision,
        "owner": names.get(state.owner, state.owner),
        "shared": {names[account]: may for account, may in state.shared.items() if account in names},
        "created_ms": state.created_ms,
        "opened_ms": state.opened_ms,
        "answers": state.counters.get("answers", 0),
    }
