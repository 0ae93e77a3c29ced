"""Routes of experimenters: launch an experiment, list experiments, open, pause and close."""

from __future__ import annotations

import asyncio
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import RedirectResponse, Response

from frontend.accounts import WithExperimenter
from frontend.catalogue import make_revision
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.pages import ExperimentLine, ExperimentsPage
from frontend.schemas import Json, StateBody
from frontend.store.experiments import ExperimentState, State
from salmon.errors import SalmonError, SpecError
from salmon.spec import Manifest, parse_spec

#: A file that is called like this says nothing about its experiment: its folder does.
_PLAIN_NAMES = {"experiment", "init", "exp", "config", "spec"}
_PIECE = 1 << 20

router = APIRouter()


@router.get("/api/experiments")
async def list_experiments(context: WithContext, _: WithExperimenter) -> list[Json]:
    """All experiments, the newest first."""
    return [_json(state) for state in await context.store.experiments.list()]


@router.post("/api/experiments", status_code=201)
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
    archive = await _on_disk(targets) if targets is not None and targets.filename else None
    try:
        made, warnings = await launch(
            context,
            await spec.read(),
            spec_name=Path(spec.filename or "experiment.yaml"),
            archive=archive,
            name=name,
            owner=experimenter.name,
            state=state,
        )
    finally:
        if archive is not None:
            archive.unlink(missing_ok=True)
    return {**_json(made), "address": f"{context.address(request)}/e/{made.slug}/", "warnings": warnings}


@router.put("/api/experiments/{slug}/state")
async def set_state(slug: str, body: StateBody, context: WithContext, _: WithExperimenter) -> Json:
    """Open, pause or close an experiment."""
    experiment = await context.catalogue.find(slug)
    await context.store.experiments.set_state(experiment.id, body.state, now_ms=context.now_ms())
    return _json(await context.store.experiments.read(experiment.id))


@router.get("/console/", response_class=Response)
async def experiments_page(request: Request, context: WithContext, experimenter: WithExperimenter) -> Response:
    """The experiments of this server, and the form that makes another."""
    return await _experiments_page(request, context, experimenter, ())


@router.post("/console/experiments", response_class=Response)
async def upload(
    request: Request,
    context: WithContext,
    experimenter: WithExperimenter,
    spec: Annotated[UploadFile, File()],
    targets: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """The form: the same as the route for scripts, with the problems shown on the page."""
    try:
        await create_experiment(request, context, experimenter, spec, targets, "", "open")
    except SpecError as error:
        problems = tuple(problem.sentence(error.name) for problem in error.problems)
        return await _experiments_page(request, context, experimenter, problems)
    except SalmonError as error:
        return await _experiments_page(request, context, experimenter, (str(error),))
    return RedirectResponse("/console/", status_code=303)


async def launch(
    context: Context,
    source: bytes,
    *,
    spec_name: Path,
    archive: Path | None,
    name: str,
    owner: str,
    state: State,
) -> tuple[ExperimentState, list[str]]:
    """Make an experiment of a file and its targets; (the experiment, sentences about what was odd but usable)."""
    manifest = await asyncio.to_thread(_unpack, context, source, spec_name, archive) if archive is not None else None
    parsed = await asyncio.to_thread(parse_spec, source, name=spec_name.name, manifest=manifest)
    revision = make_revision(
        source.decode("utf-8-sig"),
        parsed.spec,
        manifest.dump() if manifest is not None else None,
        now_ms=context.now_ms(),
    )
    slug = await _free_slug(context, name or _name_of(spec_name, parsed.spec.title), given=bool(name))
    made = await context.store.experiments.create(slug, revision, owner=owner, state=state, now_ms=context.now_ms())
    return made, [problem.sentence(spec_name.name) for problem in parsed.warnings]


def _unpack(context: Context, source: bytes, spec_name: Path, archive: Path) -> Manifest:
    """Store the files of a ZIP; a spec that says `trusted` lets active SVG through."""
    try:
        trusted = parse_spec(source, name=spec_name.name, zip_follows=True).spec.page.trusted
    except SpecError:
        trusted = False  # what is wrong with the spec is reported with the manifest at hand
    return context.media.unpack(archive, trusted=trusted)


async def _free_slug(context: Context, wanted: str, *, given: bool) -> str:
    """The wanted name as it stands in an address; a name that nobody chose gets a number when it is taken."""
    base = slug_of(wanted)
    if given:
        return base
    slug, number = base, 2
    while await context.store.experiments.find(slug) is not None:
        slug, number = f"{base}-{number}", number + 1
    return slug


def slug_of(name: str) -> str:
    """A name as it stands in an address: small letters, digits and dashes."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "experiment"


def _name_of(path: Path, title: str) -> str:
    stem = path.stem.lower()
    if stem not in _PLAIN_NAMES:
        return stem
    return path.parent.name or title


async def _on_disk(upload: UploadFile) -> Path:
    """An upload as a file, copied piece by piece."""
    with tempfile.NamedTemporaryFile(prefix="salmon-upload-", suffix=".zip", delete=False) as file:
        while piece := await upload.read(_PIECE):
            await asyncio.to_thread(file.write, piece)
    return Path(file.name)


async def _experiments_page(
    request: Request, context: Context, experimenter: WithExperimenter, problems: tuple[str, ...]
) -> Response:
    lines: list[ExperimentLine] = []
    for state in await context.store.experiments.list():
        try:
            parsed = await context.catalogue.revision(state.experiment, state.revision)
        except NotFoundError:
            continue
        lines.append(
            ExperimentLine(
                slug=state.slug,
                title=parsed.spec.title,
                state=state.state,
                targets=len(parsed.targets),
                answers=state.counters.get("answers", 0),
                participants=await context.store.participants.count(state.experiment),
                address=f"{context.address(request)}/e/{state.slug}/",
            )
        )
    shown = ExperimentsPage(experimenter.name, experimenter.csrf, tuple(lines), problems)
    return context.pages.show(shown, status=422 if problems else 200)


def _json(state: ExperimentState) -> Json:
    return {
        "slug": state.slug,
        "state": state.state,
        "revision": state.revision,
        "owner": state.owner,
        "created_ms": state.created_ms,
        "opened_ms": state.opened_ms,
        "answers": state.counters.get("answers", 0),
    }
