"""Routes of participants who have arrived: the steps around the trials, queries, answers, events, finishing.

They translate HTTP: what participants are shown, asked and allowed is decided by the pure modules beside this one.
"""

import re
from collections.abc import Iterable
from typing import Annotated, cast

from fastapi import APIRouter, Header, Query, Request
from pydantic import FailFast, Field, TypeAdapter
from starlette.responses import JSONResponse, Response

from frontend.context import Context, WithContext
from frontend.errors import (
    BadRequestError,
    ConflictError,
    ElsewhereError,
    EndedError,
    ForbiddenError,
    NotFoundError,
)
from frontend.experiments import ServedExperiment
from frontend.lifecycle import close_if_due, come_back
from frontend.participant.completion import completion_of, screen_out
from frontend.participant.page_content import (
    AnswersReply,
    FinishReply,
    QueryReply,
    SkippedReply,
    StepReply,
    StoredReply,
    WithdrawnReply,
    text_of,
)
from frontend.participant.queries import (
    last_fixed,
)
from frontend.participant.steps import (
    carry_out,
    next_step,
    ready_to_finish,
    shortest_way,
)
from frontend.participant.trials import give_query, read_one_or_many, record_answers_of
from frontend.schemas import AnswerBody, EventBody, FinishBody, StepBody, one_or_many_of
from frontend.security import Session
from frontend.sona import grant_credit
from frontend.store.participants import Keep, Participant
from frontend.store.statuses import FINISHED, OUT, Status
from salmon.wire.keys import is_tryout

#: Of a participant whose page cannot bring all answers across, at least this part of them must be stored.
_ENOUGH = 0.5
#: Events accepted in one request.
_MOST_EVENTS = 200

_events = TypeAdapter(Annotated[list[EventBody], FailFast(), Field(max_length=_MOST_EVENTS)])


SessionHeader = Annotated[str, Header(alias="X-Salmon-Session")]
router = APIRouter(prefix="/e/{slug}")


@router.post("/steps/{step}")
async def take_step(
    slug: str, step: str, body: StepBody, session_key: SessionHeader, context: WithContext
) -> StepReply:
    """Carry out a step before or after the trials; the reply names the step that comes next."""
    del slug
    session = context.signer.read_session(session_key)
    experiment = await context.catalogue.read(session.experiment)
    participant = await context.store.participants.read(session.experiment, session.participant)
    if participant is None or participant.session != session.session:
        raise ElsewhereError("This study was opened again in another window.", hint="Go on there, or reload this page.")
    participant = await come_back(context, experiment, participant)
    experiment = experiment.for_participant(participant)
    result = carry_out(experiment.spec, participant, step, body, now_ms=context.now_ms())
    if result.change is not None:
        await context.store.participants.change(session.experiment, session.participant, result.change)
        participant = participant.after(result.change)
    return {
        **result.reply,
        "status": participant.status,
        "next": "out" if participant.status in OUT else next_step(experiment.spec, participant),
    }


@router.post("/withdraw")
async def withdraw(slug: str, session_key: SessionHeader, context: WithContext) -> WithdrawnReply:
    """End the part of a participant who withdraws: nothing more is asked, and their answers are left out of analyses.

    The answers stay stored until the experimenter erases them; the page says so before.
    """
    del slug
    session, people, now_ms = context.signer.read_session(session_key), context.store.participants, context.now_ms()
    experiment = await context.catalogue.read(session.experiment)
    if experiment.spec.consent is None:
        raise BadRequestError("This study asks for no consent that could be withdrawn.", hint="Just close the page.")
    status = await people.withdraw(session.experiment, session.participant, now_ms=now_ms)
    if status == Status.WITHDRAWN and not is_tryout(session.participant):
        decision: dict[str, tuple[Keep, str]] = {session.participant: ("exclude", "They withdrew.")}
        await people.decide(session.experiment, decision, by="participant", now_ms=now_ms)
    return {"status": status}


@router.post("/skip")
async def skip_to_the_end(slug: str, session_key: SessionHeader, context: WithContext) -> SkippedReply:
    """Take an experimenter who tries the experiment out past everything up to the last questions and the end."""
    del slug
    session = context.signer.read_session(session_key)
    experiment, people = await context.catalogue.read(session.experiment), context.store.participants
    participant = await people.read(session.experiment, session.participant)
    if participant is None or not is_tryout(session.participant):
        raise ForbiddenError("Only a try-out can be skipped.", hint="Answer the questions, or close the page.")
    experiment = experiment.for_participant(participant)
    for step, body in shortest_way(experiment.spec, participant):
        result = carry_out(experiment.spec, participant, step, body, now_ms=context.now_ms())
        if result.change is not None:
            await people.change(session.experiment, session.participant, result.change)
            participant = participant.after(result.change)
    await people.skip_trials_to_try(
        session.experiment, session.participant, answers=max(experiment.spec.html.max_queries, 1)
    )
    return {"skipped": True}


@router.post("/finish")
async def finish(slug: str, session_key: SessionHeader, body: FinishBody, context: WithContext) -> FinishReply:
    """Give the way out, the code or the redirect: only when as many answers are stored as were given, and every query
    that the experimenter has listed is answered. Before, `missing` says how many trials there are left.

    Where the page has tried for long and cannot bring the rest across, a participant who was asked everything and of
    whom at least half has arrived is let go all the same, if the experiment wants that; the experimenter sees who it
    was.
    """
    del slug
    session = context.signer.read_session(session_key)
    experiment, people = await context.catalogue.read(session.experiment), context.store.participants
    participant = await people.read(session.experiment, session.participant)
    if participant is None:
        raise NotFoundError("This session is unknown.", hint="Open the link of the study again.")
    experiment = experiment.for_participant(participant)
    if participant.status == Status.FAILED_CHECKS:
        return cast("FinishReply", screen_out(experiment.spec.recruitment, participant))
    _check_may_finish(experiment, participant)
    wanted, stored = max(experiment.spec.html.max_queries, body.given, 1), participant.answers
    finished_before = participant.status in FINISHED
    missing = (
        0 if finished_before else max(wanted - stored, await _count_due(context, experiment, session, participant))
    )
    asked_everything = participant.turns >= wanted and stored >= _ENOUGH * wanted
    may_leave = experiment.spec.recruitment.unsent == "release" and body.incomplete and asked_everything
    incomplete = participant.given_unsaved is not None or (may_leave and missing > 0)
    if missing > 0 and not incomplete:
        return {"stored": stored, "complete": False, "missing": missing}
    if not finished_before and is_tryout(session.participant):
        await people.complete_to_try(session.experiment, session.participant)
    elif not finished_before:
        finished = await people.complete(
            session.experiment,
            session.participant,
            now_ms=context.now_ms(),
            given_unsaved=body.given if incomplete else None,
        )
        await close_if_due(context, experiment, finished=finished)
    if not is_tryout(session.participant) and not incomplete:
        await grant_credit(context, session.experiment, experiment.spec.recruitment, participant)
        participant = await people.read(session.experiment, session.participant) or participant
    completion = completion_of(experiment.spec.recruitment, participant)
    return {
        "stored": stored,
        "complete": True,
        "save_incomplete": incomplete,
        "debrief": text_of(experiment.spec, "debrief", participant.language or experiment.spec.page.language),
        "participant": participant.puid,
        "code": completion.code,
        "redirect": completion.redirect,
        "form": completion.form,
        "credited": participant.credit == "granted",
    }


@router.get("/query", response_model=None, responses={200: {"model": QueryReply}})
async def query(
    slug: str,
    session_key: SessionHeader,
    context: WithContext,
    *,
    number: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    spare: bool = False,
    skipped: Annotated[tuple[int, ...], Query(max_length=100)] = (),
) -> Response:
    """Give this participant the query of a turn, placed left and right, with the token that answers it.

    Asking for a `number` again gives the same query until it is answered, or skipped; 0 asks for the next. Where the
    trials would end before a query was answered that the experimenter has listed, that query is given instead, with the
    number of its turn as `trial`. A `spare` one is random. The page keeps it in hand, and shows it when the next query
    does not come in time.
    """
    del slug
    return JSONResponse(await give_query(context, session_key, number=number, spare=spare, skipped=skipped))


@router.post(
    "/answers", response_model=None, responses={200: {"model": AnswersReply}}, openapi_extra=one_or_many_of(AnswerBody)
)
async def record_answers(slug: str, request: Request, context: WithContext) -> Response:
    """Record one answer or a list of them; each token's result says whether it is stored, and nothing else counts."""
    del slug
    status, reply = await record_answers_of(context, await request.body())
    return JSONResponse(reply, status_code=status)


@router.post("/events", openapi_extra=one_or_many_of(EventBody))
async def add_events(slug: str, session_key: SessionHeader, request: Request, context: WithContext) -> StoredReply:
    """Keep what happened on the page: focus, sizes, skips, files that did not load."""
    del slug
    session = context.signer.read_session(session_key)
    experiment = await context.catalogue.read(session.experiment)  # a deleted experiment keeps nothing
    bodies = read_one_or_many(await request.body(), _events, _MOST_EVENTS, "events")
    now_ms = str(context.now_ms())
    entries = [
        {"event": body.event, "trial": str(body.trial), "client_ms": str(body.client_ms), "detail": body.detail}
        | {"received_ms": now_ms}
        for body in bodies
    ]
    if not is_tryout(session.participant):
        unloaded = unloaded_targets(bodies, len(experiment.targets))
        await context.store.participants.add_events(session.experiment, session.participant, entries, unloaded=unloaded)
    return {"stored": len(entries)}


def unloaded_targets(bodies: Iterable[EventBody], n: int) -> list[int]:
    """Return the targets of which a page says that a file could not be loaded or shown."""
    told = [re.fullmatch(r"target ([0-9]{1,7})", body.detail) for body in bodies if body.event == "load_failed"]
    return [int(match[1]) for match in told if match is not None and int(match[1]) < n]


async def _count_due(context: Context, experiment: ServedExperiment, session: Session, participant: Participant) -> int:
    """Return how many trials are left that must not be passed over; none of somebody who tries,
    or who says when it is enough.
    """
    limit = experiment.spec.html.max_queries
    if limit <= 0 or is_tryout(session.participant):
        return 0
    due = await context.store.turns.count_due(session.experiment, session.participant, ends_after=limit)
    return due + max(0, last_fixed(experiment) - participant.position)


def _check_may_finish(experiment: ServedExperiment, participant: Participant) -> None:
    if participant.status in OUT:
        raise EndedError("Your part in this study has ended.", hint="Answers already given are kept.")
    if not ready_to_finish(experiment.spec, participant):
        raise ConflictError("There is a step left before the end.", hint="Reload the page.")
