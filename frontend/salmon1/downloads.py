"""Routes of what scripts download: `/responses`, `/embeddings`, `/config`, `/meta`,
`/dashboard`, `/download` and `/logs`.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from frontend.auth import WithAccount, may_edit
from frontend.context import WithContext
from frontend.errors import NotFoundError, SubprocessError
from frontend.experiments import ServedExperiment
from frontend.salmon1.errors import OldError, OldRoute
from frontend.salmon1.experiment import ForExperimenter
from frontend.schemas import Json
from frontend.transfer.routes import media_headers, send_file
from frontend.transfer.subprocesses import BUNDLE, ExportOrder, WithSubprocesses
from salmon import __version__
from salmon.spec import spec_tree, write_tree

#: The keys that the first Salmon knew; the whole description is in the console.
_KEYS = ("targets", "html", "samplers", "sampling")

router = APIRouter(route_class=OldRoute)


@router.get("/responses", response_class=Response)
async def responses(
    experiment: ForExperimenter, subprocesses: WithSubprocesses, experimenter: WithAccount, *, json: bool = True
) -> Response:
    """Return every answer in the 26 columns of the first Salmon, as JSON or, with `json=0`, as CSV."""
    extension = "json" if json else "csv"
    personal = may_edit(experimenter, experiment.state)
    order = ExportOrder(experiment.state.slug, "salmon_responses", extension, personal=personal)
    return await send_file(subprocesses, order, f"responses.{extension}")


@router.get("/embeddings", response_class=Response)
async def embeddings(
    experiment: ForExperimenter, subprocesses: WithSubprocesses, sampler: str = "", alg: str = ""
) -> Response:
    """Return the newest embedding of each sampler, or of one, as CSV."""
    wanted = sampler or alg
    order = ExportOrder(experiment.state.slug, "salmon_embeddings", "csv", sampler=wanted)
    try:
        return await send_file(subprocesses, order, f"embedding-{wanted}.csv" if wanted else "embeddings.csv")
    except (NotFoundError, SubprocessError) as error:
        samplers = [wanted] if wanted else list(experiment.spec.samplers)
        raise OldError(
            500, f"No model has been created for any sampler in {samplers}. {error.message}", hint=error.hint
        ) from error


@router.get("/config", response_class=Response)
async def config(experiment: ForExperimenter, *, json: bool = True) -> Response:
    """Return the description with its defaults filled in, as JSON or, with `json=0`, as YAML; /init_exp takes both."""
    content = await asyncio.to_thread(old_config, experiment)
    if json:
        return JSONResponse(content)
    return PlainTextResponse(await asyncio.to_thread(write_tree, content))


@router.get("/meta")
async def meta(experiment: ForExperimenter, context: WithContext) -> Json:
    """Return how many answers there are, and how many have given one."""
    counts = await context.store.experiments.read_counts(experiment.id)
    return {
        "responses": await context.store.answers.count(experiment.id),
        "participants": sum(int(value) for name, value in counts.items() if name.startswith("began:")),
    }


@router.get("/dashboard", response_class=Response)
@router.post("/dashboard", response_class=Response)
async def dashboard(experiment: ForExperimenter) -> Response:
    """Redirect to the experiment's page in the console."""
    return RedirectResponse(f"/console/experiments/{experiment.state.slug}/", status_code=303)


@router.get("/download", response_class=Response)
async def download(
    experiment: ForExperimenter, subprocesses: WithSubprocesses, context: WithContext, experimenter: WithAccount
) -> Response:
    """Return everything of the experiment in one bundle, which /restore brings back."""
    moment = datetime.fromtimestamp(context.now_ms() / 1000, UTC)
    return await send_file(
        subprocesses,
        ExportOrder(experiment.state.slug, *BUNDLE, personal=may_edit(experimenter, experiment.state)),
        f"exp-{moment:%Y-%m-%dT%H:%M}-salmon-{__version__}.zip",
        headers=await media_headers(context, experiment),
    )


@router.get("/logs")
async def logs(experiment: ForExperimenter, context: WithContext) -> dict[str, list[str]]:
    """Return who did what to the experiment, a line each. What the processes do is in the server's own log."""
    return {
        "changes.log": [
            f"{datetime.fromtimestamp(change.at_ms / 1000, UTC).isoformat()} {change.by} {change.what} {change.detail}\n"
            for change in await context.store.experiments.read_changes(experiment.id)
        ]
    }


def old_config(experiment: ServedExperiment) -> dict[str, Any]:
    """Return the four keys of the first Salmon: a sampler has its class and arguments, targets are what pages show."""
    content = spec_tree(experiment.spec, secrets=False)
    content["targets"] = [target.html for target in experiment.targets]
    content["sampling"]["probs"] = experiment.spec.probabilities
    for sampler in content["samplers"].values():
        if not sampler["test"]:
            del sampler["test"]
    return {key: content[key] for key in _KEYS}
