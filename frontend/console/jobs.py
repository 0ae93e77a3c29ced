"""Routes of jobs of the learning process: request one, read its status, cancel it."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from frontend.auth import WithExperiment, WithExperimenter
from frontend.context import Context, WithContext
from frontend.experiments import ServedExperiment
from frontend.schemas import Body, Json
from salmon.errors import Problem
from salmon.jobs import MOST_LISTED, PARTICIPANT, RequestError, plain_arguments, read_job
from salmon.wire import JobStatus

#: Requests shown in a list.
_LISTED = 20

router = APIRouter(prefix="/api/experiments/{slug}/requests")

Identifier = Annotated[str, Path(pattern=r"^[a-z0-9]{1,40}$")]


class JobBody(Body):
    """What is asked of the learning process: its kind, and arguments that depend on it."""

    kind: Annotated[str, Field(max_length=64)]
    arguments: Annotated[dict[Annotated[str, Field(max_length=64)], Any], Field(max_length=64)] = Field(
        default_factory=dict
    )


@router.post("", status_code=202)
async def ask(body: JobBody, context: WithContext, experiment: WithExperiment, experimenter: WithExperimenter) -> Json:
    """Request a job: its arguments are checked, all mistakes at once; 202 with the id of the request."""
    problems = await _unknown_participants(context, experiment, body)
    try:
        meaning = read_job(body.kind, body.arguments, experiment.spec, len(experiment.targets))
    except RequestError as error:
        raise RequestError((*error.problems, *problems)) from None
    if problems:
        raise RequestError(problems)
    identifier = await context.store.jobs.ask(
        body.kind, experiment.id, plain_arguments(meaning), asked_by=experimenter.name, now_ms=context.now_ms()
    )
    return await _json(context, identifier, await context.store.jobs.read_request(experiment.id, identifier))


@router.get("")
async def list_requests(context: WithContext, experiment: WithExperiment) -> list[Json]:
    """Return the last requests about an experiment, the newest first, without their results."""
    return [
        await _json(context, identifier, standing)
        for identifier, standing in await context.store.jobs.list_requests(experiment.id, count=_LISTED)
    ]


@router.get("/{request}")
async def read(request: Identifier, context: WithContext, experiment: WithExperiment) -> Json:
    """Return the status of a request, and its result when it is done."""
    return await _json(context, request, await context.store.jobs.read_request(experiment.id, request))


@router.delete("/{request}")
async def cancel(request: Identifier, context: WithContext, experiment: WithExperiment) -> Json:
    """Stop a request; one that has ended stays as it is."""
    return await _json(context, request, await context.store.jobs.cancel(experiment.id, request))


async def _unknown_participants(context: Context, experiment: ServedExperiment, body: JobBody) -> tuple[Problem, ...]:
    """Return problems for excluded participants whom the experiment does not have; what is no id is refused elsewhere."""
    written = body.arguments.get("exclude") or ()
    names: list[Any] = written if isinstance(written, list) else [written]
    ids = [name for name in names[:MOST_LISTED] if isinstance(name, str) and PARTICIPANT.fullmatch(name)]
    return tuple(
        Problem(
            f"There is no participant {name!r} in this experiment.",
            path="arguments.exclude",
            hint="Use the ids that Salmon gave to participants.",
        )
        for name in await context.store.jobs.unknown_participants(experiment.id, ids)
    )


async def _json(context: Context, identifier: str, standing: JobStatus) -> Json:
    """Return a request as JSON; `warning` is a sentence where nobody is there to carry it out."""
    content = {name: value for name, value in asdict(standing).items() if name != "backend"}
    warning = ""
    if not standing.ended and await context.store.connection.read_heartbeat() is None:
        warning = (
            "The learning process is not running at the moment. The request waits until it runs again; "
            "the server's log contains the reason."
        )
    return {"request": identifier, **content, "warning": warning}
