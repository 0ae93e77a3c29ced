"""Routes of jobs of the learning process: request one, read its status, cancel it."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment, WithAccount, WithExperiment
from frontend.context import Context, WithContext
from frontend.experiments import ServedExperiment
from frontend.schemas import Body
from salmon.errors import Problem
from salmon.jobs import MOST_LISTED, PARTICIPANT, RequestError, plain_arguments, read_job
from salmon.wire import JobStatus
from salmon.wire.jobs import RequestState


class JobReply(TypedDict):
    """A request to the learning process; the kind says what its result is: that of a fit is a `FitResult`."""

    request: str
    kind: str
    experiment: str
    arguments: dict[str, Any]
    asked_ms: int
    asked_by: str
    state: RequestState
    progress: float
    note: str
    result: Any
    error: str
    cancel: bool
    tries: int
    began_ms: int
    ended_ms: int
    warning: str


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
async def ask(
    body: JobBody, context: WithContext, experiment: EditableExperiment, experimenter: WithAccount
) -> JobReply:
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
async def list_requests(context: WithContext, experiment: WithExperiment) -> list[JobReply]:
    """Return the last requests about an experiment, the newest first, without their results."""
    return [
        await _json(context, identifier, standing)
        for identifier, standing in await context.store.jobs.list_requests(experiment.id, count=_LISTED)
    ]


@router.get("/{request}")
async def read(request: Identifier, context: WithContext, experiment: WithExperiment) -> JobReply:
    """Return the status of a request, and its result when it is done."""
    return await _json(context, request, await context.store.jobs.read_request(experiment.id, request))


@router.delete("/{request}")
async def cancel(request: Identifier, context: WithContext, experiment: EditableExperiment) -> JobReply:
    """Stop a request; one that has ended stays as it is."""
    return await _json(context, request, await context.store.jobs.cancel(experiment.id, request))


async def _unknown_participants(context: Context, experiment: ServedExperiment, body: JobBody) -> tuple[Problem, ...]:
    """Return problems for excluded participants whom the experiment does not have; what
    is no id is refused elsewhere.
    """
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


async def _json(context: Context, identifier: str, standing: JobStatus) -> JobReply:
    """Return a request as JSON; `warning` is a sentence where nobody is there to carry it out."""
    warning = ""
    if not standing.ended and await context.store.connection.read_heartbeat() is None:
        warning = (
            "The learning process is not running at the moment. The request waits until it runs again; "
            "the server's log contains the reason."
        )
    return {
        "request": identifier,
        "kind": standing.kind,
        "experiment": standing.experiment,
        "arguments": dict(standing.arguments),
        "asked_ms": standing.asked_ms,
        "asked_by": standing.asked_by,
        "state": standing.state,
        "progress": standing.progress,
        "note": standing.note,
        "result": standing.result,
        "error": standing.error,
        "cancel": standing.cancel,
        "tries": standing.tries,
        "began_ms": standing.began_ms,
        "ended_ms": standing.ended_ms,
        "warning": warning,
    }
