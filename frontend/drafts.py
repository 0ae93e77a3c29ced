"""Routes for an experiment that is being written: its file checked as it is typed, examples to begin with, a try-out."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from frontend import steps
from frontend.access import WithExperiment, reachable
from frontend.accounts import WithExperimenter
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.schemas import DraftBody, Json
from salmon.errors import Problem, SpecError
from salmon.spec import Manifest, ParsedSpec, parse_spec, targets_of

#: Seconds that one answer takes, with its blank and the next pictures, where nobody has answered yet.
SECONDS_AN_ANSWER = 4.0

router = APIRouter(prefix="/api")


@dataclass(frozen=True)
class Example:
    """An experiment that comes with the program: its file, and its targets where they are in a ZIP."""

    name: str
    spec: Path
    archive: Path | None


def examples() -> tuple[Example, ...]:
    """The examples of this installation: beside the packages, or where the wheel puts them."""
    folders = (Path(__file__).parent.parent / "examples", Path(sys.prefix) / "share" / "salmon" / "examples")
    folder = next((path for path in folders if path.is_dir()), folders[0])
    found = sorted(folder.glob("*/experiment.yaml"))
    archives = [path.with_name("targets.zip") for path in found]
    return tuple(
        Example(path.parent.name, path, archive if archive.exists() else None)
        for path, archive in zip(found, archives, strict=True)
    )


@router.get("/examples")
async def read_examples(_: WithExperimenter) -> list[Json]:
    """Experiments to begin with."""
    return [
        {"name": example.name, "spec": example.spec.read_text(), "zip": example.archive is not None}
        for example in examples()
    ]


@router.get("/examples/{name}/targets.zip", response_class=Response)
async def read_example_targets(name: str, _: WithExperimenter) -> Response:
    """The targets of an example."""
    archive = next((example.archive for example in examples() if example.name == name), None)
    if archive is None:
        raise NotFoundError(f"There is no example called {name!r} with a ZIP of targets.")
    return FileResponse(archive, media_type="application/zip")


@router.post("/check")
async def check(body: DraftBody, context: WithContext, experimenter: WithExperimenter) -> Json:
    """Everything wrong with a file, each at its line, and what the experiment would be if nothing is."""
    manifest = None
    if body.slug and not body.zip:
        manifest = (await reachable(body.slug, context, experimenter)).manifest
    return await asyncio.to_thread(_checked, body, manifest)


@router.post("/experiments/{slug}/tryout")
async def try_out(request: Request, experiment: WithExperiment, context: WithContext) -> Json:
    """A link with which an experimenter walks through the experiment as a participant; nothing is recorded."""
    return {"link": tryout_link(request, context, experiment.id, experiment.state.slug)}


def tryout_link(request: Request, context: Context, experiment: str, slug: str) -> str:
    """Where an experiment can be tried out, for some hours."""
    return f"{context.address(request)}/e/{slug}/?tryout={context.signer.tryout(experiment)}"


def _checked(body: DraftBody, manifest: Manifest | None) -> Json:
    try:
        parsed = parse_spec(body.spec, manifest=manifest, zip_follows=body.zip)
    except SpecError as error:
        return {"problems": [_json(problem) for problem in error.problems], "summary": None}
    return {"problems": [_json(problem) for problem in parsed.warnings], "summary": _summary(parsed, manifest, body)}


def _json(problem: Problem) -> Json:
    return vars(problem) | {"sentence": problem.sentence()}


def _summary(parsed: ParsedSpec, manifest: Manifest | None, body: DraftBody) -> Json:
    """What an experiment with this file would be."""
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
