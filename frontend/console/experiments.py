"""Routes of experiments: create, list, read, change, share, copy and delete them, and check a file while it is written."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import FileResponse, Response

from frontend.auth import WithExperiment, WithExperimenter, find_visible, may_see
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError
from frontend.launching import free_slug, launch, note_change, revise
from frontend.media import spool_upload
from frontend.participant import steps
from frontend.schemas import DraftBody, Json, NameBody, SharedBody, StateBody
from frontend.store.experiments import ExperimentState, Revision
from frontend.transfer.routes import keep_bundle
from frontend.transfer.subprocesses import WithSubprocesses
from salmon.errors import Problem, SpecError
from salmon.spec import Manifest, ParsedSpec, parse_spec, targets_of

router = APIRouter(prefix="/api")
#: Seconds that one answer takes, with its blank and the next pictures, where nobody has answered yet.
SECONDS_AN_ANSWER = 4.0


@dataclass(frozen=True)
class Example:
    """An experiment that comes with the program: its file, and its targets where they are in a ZIP."""

    name: str
    spec: Path
    archive: Path | None


@router.get("/experiments")
async def list_experiments(context: WithContext, experimenter: WithExperimenter) -> list[Json]:
    """Return the experiments that this experimenter may see, the newest first."""
    return [_json(state) for state in await context.store.experiments.list() if may_see(experimenter, state)]


@router.post("/experiments", status_code=201)
async def create_experiment(
    request: Request,
    context: WithContext,
    experimenter: WithExperimenter,
    spec: Annotated[UploadFile, File()],
    targets: Annotated[UploadFile | None, File()] = None,
    name: Annotated[str, Form()] = "",
    state: Annotated[Literal["draft", "open"], Form()] = "draft",
) -> Json:
    """Check a YAML file and a ZIP, keep the targets, and make the experiment."""
    async with spool_upload(targets) as archive:
        made, warnings = await launch(
            context,
            await spec.read(),
            spec_name=Path(spec.filename or "experiment.yaml"),
            archive=archive,
            name=name,
            owner=experimenter.name,
            state=state,
        )
    return {**_json(made), "address": f"{context.address(request)}/e/{made.slug}/", "warnings": warnings}


@router.get("/experiments/{slug}")
async def read_experiment(request: Request, experiment: WithExperiment, context: WithContext) -> Json:
    """Return one experiment: its state, and its file as it was written."""
    state = experiment.state
    revision = await context.store.experiments.read_revision(experiment.id, state.revision)
    return {
        **_json(state),
        "title": experiment.spec.title,
        "spec": revision.source,
        "address": f"{context.address(request)}/e/{state.slug}/",
    }


@router.put("/experiments/{slug}/state")
async def set_state(
    experiment: WithExperiment, body: StateBody, context: WithContext, experimenter: WithExperimenter
) -> Json:
    """Open, pause or close an experiment."""
    await context.store.experiments.set_state(experiment.id, body.state, now_ms=context.now_ms())
    await note_change(context, experiment.id, experimenter.name, "state", body.state)
    return _json(await context.store.experiments.read(experiment.id))


@router.put("/experiments/{slug}/spec")
async def change_spec(
    experiment: WithExperiment,
    context: WithContext,
    experimenter: WithExperimenter,
    spec: Annotated[UploadFile, File()],
    revision: Annotated[int, Form()],
    targets: Annotated[UploadFile | None, File()] = None,
) -> Json:
    """Make the next revision; `revision` is the one that was changed. Answers already given are kept."""
    async with spool_upload(targets) as archive:
        warnings = await revise(
            context, experiment, await spec.read(), archive=archive, by=experimenter.name, known=revision
        )
    return {**_json(await context.store.experiments.read(experiment.id)), "warnings": warnings}


@router.get("/experiments/{slug}/changes")
async def read_changes(experiment: WithExperiment, context: WithContext) -> list[Json]:
    """Return who did what to this experiment, and when."""
    return [vars(change) for change in await context.store.experiments.read_changes(experiment.id)]


@router.put("/experiments/{slug}/shared")
async def share(
    experiment: WithExperiment, body: SharedBody, context: WithContext, experimenter: WithExperimenter
) -> Json:
    """Say which other experimenters may see and change this experiment."""
    known = {account.name for account in await context.store.accounts.list()}
    if strangers := [name for name in body.names if name not in known]:
        raise NotFoundError(
            f"There is no account called {', '.join(map(repr, strangers))}.",
            hint="The owner of this server can invite them.",
            where="names",
        )
    await context.store.experiments.share(experiment.id, body.names)
    await note_change(context, experiment.id, experimenter.name, "shared", ", ".join(body.names))
    return _json(await context.store.experiments.read(experiment.id))


@router.post("/experiments/{slug}/copy", status_code=201)
async def copy(
    experiment: WithExperiment, body: NameBody, context: WithContext, experimenter: WithExperimenter
) -> Json:
    """Make a draft with the same file and targets, and no answers."""
    stored = await context.store.experiments.read_revision(experiment.id, experiment.state.revision)
    slug = await free_slug(context, body.name or f"{experiment.state.slug}-copy", given=bool(body.name))
    revision = Revision(stored.source, stored.spec, stored.manifest, context.now_ms())
    made = await context.store.experiments.create(
        slug, revision, owner=experimenter.name, state="draft", now_ms=context.now_ms()
    )
    await note_change(context, made.experiment, experimenter.name, "created", f"copy of {experiment.state.slug}")
    return _json(made)


@router.delete("/experiments/{slug}")
async def delete(
    experiment: WithExperiment,
    body: NameBody,
    context: WithContext,
    experimenter: WithExperimenter,
    subprocesses: WithSubprocesses,
) -> Json:
    """Delete an experiment; its name has to be typed once more, and it must not be open.

    A bundle is written first: without it nothing is deleted.
    """
    state = experiment.state
    if experimenter.role != "owner" and state.owner != experimenter.name:
        raise ForbiddenError("Only its owner may delete an experiment.", hint=f"It belongs to {state.owner}.")
    if body.name != state.slug:
        raise BadRequestError(
            f"To delete this experiment, type its name: {state.slug}.", hint="Nothing was deleted.", where="name"
        )
    if state.state == "open":
        raise ConflictError("This experiment is open.", hint="Close it first, so that nobody is in the middle of it.")
    bundle = await keep_bundle(context, subprocesses, state.slug)
    await context.store.experiments.delete(state.slug, experiment.id)
    return {"slug": state.slug, "bundle": bundle}


@router.get("/examples")
async def read_examples(_: WithExperimenter) -> list[Json]:
    """Return experiments to begin with."""
    return [
        {"name": example.name, "spec": example.spec.read_text(), "zip": example.archive is not None}
        for example in examples()
    ]


@router.get("/examples/{name}/targets.zip", response_class=Response)
async def read_example_targets(name: str, _: WithExperimenter) -> Response:
    """Return the targets of an example."""
    archive = next((example.archive for example in examples() if example.name == name), None)
    if archive is None:
        raise NotFoundError(f"There is no example called {name!r} with a ZIP of targets.")
    return FileResponse(archive, media_type="application/zip")


@router.post("/check")
async def check(body: DraftBody, context: WithContext, experimenter: WithExperimenter) -> Json:
    """Return every problem of a file at its line, and a summary of the experiment where there is none."""
    manifest = None
    if body.slug and not body.zip:
        manifest = (await find_visible(body.slug, context, experimenter)).manifest
    return await asyncio.to_thread(_check_draft, body, manifest)


@router.post("/experiments/{slug}/tryout")
async def try_out(request: Request, experiment: WithExperiment, context: WithContext) -> Json:
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


def _json(state: ExperimentState) -> Json:
    return {
        "slug": state.slug,
        "state": state.state,
        "revision": state.revision,
        "owner": state.owner,
        "shared": list(state.shared),
        "created_ms": state.created_ms,
        "opened_ms": state.opened_ms,
        "answers": state.counters.get("answers", 0),
    }


def _check_draft(body: DraftBody, manifest: Manifest | None) -> Json:
    try:
        parsed = parse_spec(body.spec, manifest=manifest, zip_follows=body.zip)
    except SpecError as error:
        return {"problems": [_problem_json(problem) for problem in error.problems], "summary": None}
    return {
        "problems": [_problem_json(problem) for problem in parsed.warnings],
        "summary": _summary(parsed, manifest, body),
    }


def _problem_json(problem: Problem) -> Json:
    return vars(problem) | {"sentence": problem.sentence()}


def _summary(parsed: ParsedSpec, manifest: Manifest | None, body: DraftBody) -> Json:
    """Return what an experiment with this file would be."""
    spec = parsed.spec
    queries = spec.html.max_queries
    return {
        "title": spec.title,
        "targets": None if body.zip else len(targets_of(spec, manifest)),
        "samplers": [
            {"name": name, "class": spec.samplers[name].sampler_class, "share": share}
            for name, share in spec.probabilities.items()
        ],
        "queries": queries,
        "minutes": round(max(1.0, queries * SECONDS_AN_ANSWER / 60)) if queries > 0 else None,
        "steps": list(steps.steps_of(spec)),
        "platform": spec.recruitment.platform,
    }
