"""Routes of rehearsals: fill a scratch copy of an experiment with simulated people, ask how far they are, remove it."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment, WithAccount, WithExperiment, WithExperimenter, note
from frontend.context import WithContext
from frontend.errors import NotFoundError
from frontend.participant.arrival import link_for
from frontend.schemas import Body
from frontend.store.experiments import ExperimentState
from frontend.transfer.rehearsals import (
    KEPT_MS,
    begin_rehearsing,
    find_rehearsal,
    make_scratch_copy,
    outcome_of,
    remove_rehearsal,
)
from frontend.transfer.subprocesses import WithSubprocesses


class RehearsalReply(TypedDict):
    """A scratch copy: the experiment that it rehearses, how many answers it has and will have, and when it is removed.

    `outcome` says how the simulated people came through; it is empty while they take part.
    """

    slug: str
    of: str
    running: bool
    answers: int
    expected_answers: int
    outcome: str
    removed_ms: int


class RehearsalBody(Body):
    """How many simulated people take part."""

    people: Annotated[int, Field(ge=1, le=60)] = 20


router = APIRouter(prefix="/api/experiments/{slug}/rehearsal")


@router.post("", status_code=201)
async def begin(
    request: Request,
    experiment: EditableExperiment,
    body: RehearsalBody,
    context: WithContext,
    experimenter: WithExperimenter,
    subprocesses: WithSubprocesses,
) -> RehearsalReply:
    """Make a scratch copy of an experiment and let simulated people take part in it; there is one at a time."""
    made = await make_scratch_copy(context, experiment, owner=experimenter.id, by=experimenter.name, people=body.people)
    scratch = await context.catalogue.read(made.experiment)
    host, port = request.scope["server"]
    here = f"http://{f'[{host}]' if ':' in host else host}:{port}{context.settings.mount}/e/{made.slug}/"
    link = link_for(here, scratch.spec.recruitment.platform)
    begin_rehearsing(subprocesses, made, link=link, people=body.people)
    await note(request, context, experimenter.name, "experiment rehearsed", f"{experiment.state.slug} as {made.slug}")
    return await _reply(context, made, experiment.state.slug)


@router.get("")
async def read(experiment: WithExperiment, context: WithContext) -> RehearsalReply:
    """Return the scratch copy that this name means: the experiment itself where it is
    one, or that of the experiment.
    """
    state = experiment.state
    if not state.rehearsal_of:
        scratch = await find_rehearsal(context, experiment.id)
        if scratch is None:
            raise NotFoundError("There is no rehearsal of this experiment.", hint="Begin one in its settings.")
        return await _reply(context, scratch, state.slug)
    original = await context.store.experiments.read(state.rehearsal_of)
    return await _reply(context, state, original.slug)


@router.delete("")
async def remove(
    request: Request,
    experiment: EditableExperiment,
    context: WithContext,
    experimenter: WithAccount,
    subprocesses: WithSubprocesses,
) -> RehearsalReply:
    """Stop the simulated people of a scratch copy and remove everything of it; no bundle is kept."""
    found = await read(experiment, context)
    state = experiment.state if experiment.state.rehearsal_of else await find_rehearsal(context, experiment.id)
    assert state is not None  # noqa: S101 - it was read just now
    await remove_rehearsal(context, subprocesses, state, by=experimenter.name)
    await note(request, context, experimenter.name, "rehearsal removed", state.slug)
    return found


async def _reply(context: WithContext, state: ExperimentState, of: str) -> RehearsalReply:
    return {
        "slug": state.slug,
        "of": of,
        "running": state.state == "open",
        "answers": state.counters.get("answers", 0),
        "expected_answers": state.counters.get("expected_answers", 0),
        "outcome": await outcome_of(context, state.experiment),
        "removed_ms": state.created_ms + KEPT_MS,
    }
