"""Routes of participants who have arrived: the steps around the trials, queries, answers, events, finishing.

They translate HTTP: what participants are shown, asked and allowed is decided by the pure modules beside this one.
"""

import asyncio
from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Header, Query, Request
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from frontend.context import Context, WithContext
from frontend.errors import (
    BadRequestError,
    ConflictError,
    ElsewhereError,
    EndedError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    body_of,
)
from frontend.experiments import ServedExperiment
from frontend.lifecycle import check_open, close_at_last_answer, close_if_due, come_back
from frontend.participant.checks import follow_up
from frontend.participant.completion import completion_of, screen_out
from frontend.participant.page_content import (
    AnswerReply,
    AnswersReply,
    ErrorContent,
    FinishReply,
    QueryReply,
    SkippedReply,
    StepReply,
    StoredReply,
    WithdrawnReply,
    text_of,
)
from frontend.participant.queries import (
    TRIALS_AHEAD,
    allows_spare,
    last_fixed,
    next_query,
    prefetch_targets,
)
from frontend.participant.steps import (
    carry_out,
    missing_before_trials,
    next_step,
    ready_to_finish,
    shortest_way,
)
from frontend.schemas import AnswerBody, EventBody, FinishBody, StepBody, one_or_many_of
from frontend.security import Session
from frontend.store.participants import Keep, Participant
from frontend.store.statuses import FINISHED, OUT, UNDER_WAY, Status
from frontend.store.turns import Turn
from salmon.errors import SalmonError, StoreError
from salmon.records import Answer, Served, Timing
from salmon.wire.keys import is_tryout

#: Of a participant whose page cannot bring all answers across, at least this part of them must be stored.
_ENOUGH = 0.5
#: Answers accepted in one request: more than a page ever keeps unsent.
_MOST_ANSWERS = 500
#: Events accepted in one request.
_MOST_EVENTS = 200

Item = TypeVar("Item")
_answers = TypeAdapter(Annotated[list[AnswerBody], FailFast(), Field(max_length=_MOST_ANSWERS)])
_events = TypeAdapter(Annotated[list[EventBody], FailFast(), Field(max_length=_MOST_EVENTS)])
#: Mistakes of one request that are told.
_MOST_TOLD = 20


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
    """Give the way out, the code or the redirect: only when as many answers are stored as were given, and every query that the
    experimenter has listed is answered. Before, `missing` says how many trials there are left.

    Where the page has tried for long and cannot bring the rest across, a participant who was asked everything and of
    whom at least half has arrived is let go all the same, if the experiment wants that; the experimenter sees who it was.
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

    Asking for a `number` again gives the same query until it is answered, or skipped; 0 asks for the next. Where the trials
    would end before a query was answered that the experimenter has listed, that query is given instead, with the number of
    its turn as `trial`. A `spare` one is random. The page keeps it in hand, and shows it when the next query does not come in
    time.
    """
    del slug
    session, people = context.signer.read_session(session_key), context.store.participants
    experiment, participant = await asyncio.gather(
        context.catalogue.read(session.experiment), people.read(session.experiment, session.participant)
    )
    if participant is None:
        raise NotFoundError("This session is unknown.", hint="Open the link of the study again.")
    experiment = experiment.for_participant(participant)
    if participant.status == Status.FAILED_CHECKS:
        return JSONResponse(QueryReply(done=True, answers=participant.answers, out=participant.status))
    await _check_may_ask(context, experiment, session, participant)
    if not is_tryout(session.participant) and not experiment.state.lets_finish:
        check_open(experiment.state.state)
    limit = experiment.spec.html.max_queries
    ends_here = limit <= 0 and experiment.state.state == "closed"
    if ends_here or participant.status in FINISHED:
        return JSONResponse(QueryReply(done=True, answers=participant.answers))
    if spare and not allows_spare(experiment, participant=session.participant, after=participant.position):
        return JSONResponse(QueryReply(none=True))
    turn = await context.store.turns.begin_turn(
        session.experiment,
        session.participant,
        now_ms=context.now_ms(),
        number=number,
        spare=spare,
        skipped=skipped,
        ends_after=limit,
        listed_until=last_fixed(experiment),
    )
    if turn.outcome != "begun":
        return JSONResponse(_explain(turn))
    parsed = (await context.catalogue.revision(session.experiment, turn.revision)).for_participant(participant)
    served = await next_query(context, session, turn, parsed)
    reply: QueryReply = {
        "token": context.signer.sign_served(served),
        "head": served.head,
        "left": served.left,
        "right": served.right,
        "sampler": served.sampler,
        "score": served.score,
        "trial": served.trial,
        "soon": await prefetch_targets(
            context.store,
            session.experiment,
            parsed,
            session.participant,
            after=turn.position,
            spares=turn.number - turn.position,
            trials=0 if turn.spare else TRIALS_AHEAD - 1,
        ),
    }
    return JSONResponse(reply)  # not checked here: every trial waits for it


@router.post(
    "/answers", response_model=None, responses={200: {"model": AnswersReply}}, openapi_extra=one_or_many_of(AnswerBody)
)
async def record_answers(slug: str, request: Request, context: WithContext) -> Response:
    """Record one answer or a list of them; each token's result says whether it is stored, and nothing else counts."""
    del slug
    results = [await _record(context, body) for body in await _one_or_many(request, _answers, _MOST_ANSWERS, "answers")]
    refused = [result["error"]["code"] for result in results if "error" in result]
    status = 200 if len(refused) < len(results) else 410 if set(refused) == {GoneError.code} else 422
    return JSONResponse(AnswersReply(results=results), status_code=status)


@router.post("/events", openapi_extra=one_or_many_of(EventBody))
async def add_events(slug: str, session_key: SessionHeader, request: Request, context: WithContext) -> StoredReply:
    """Keep what happened on the page: focus, sizes, skips, files that did not load."""
    del slug
    session = context.signer.read_session(session_key)
    await context.catalogue.read(session.experiment)  # a deleted experiment keeps nothing
    bodies = await _one_or_many(request, _events, _MOST_EVENTS, "events")
    now_ms = str(context.now_ms())
    entries = [
        {"event": body.event, "trial": str(body.trial), "client_ms": str(body.client_ms), "detail": body.detail}
        | {"received_ms": now_ms}
        for body in bodies
    ]
    if not is_tryout(session.participant):
        await context.store.participants.add_events(session.experiment, session.participant, entries)
    return {"stored": len(entries)}


def _explain(turn: Turn) -> QueryReply:
    """Return what to tell a page whose turn has no query; ConflictError where it has to ask in another way."""
    if turn.outcome == "over":
        return {"over": True, "answers": turn.answers}
    if turn.outcome == "ended":
        return {"done": True, "answers": turn.answers}
    if turn.outcome == "none":
        return {"none": True}
    if turn.outcome == "early":
        raise ConflictError(f"The turns before number {turn.number} have not begun.", hint="Reload the page.")
    raise ConflictError(
        "Too many queries are not answered yet.", hint="Answer them first; reload the page to see them."
    )


async def _count_due(context: Context, experiment: ServedExperiment, session: Session, participant: Participant) -> int:
    """Return how many trials are left that must not be passed over; none of somebody who tries, or who says when it is enough."""
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


async def _check_may_ask(
    context: Context, experiment: ServedExperiment, session: Session, participant: Participant
) -> None:
    """Queries go to the newest opening of the page, of somebody who has done what comes before the trials.

    The first query makes the participant active.
    """
    if participant.session not in {"", session.session}:
        raise ElsewhereError("This study was opened again in another window.", hint="Go on there, or reload this page.")
    if participant.status in OUT:
        raise EndedError("Your part in this study has ended.", hint="Answers already given are kept.")
    if participant.status in UNDER_WAY:
        return
    if missing := missing_before_trials(experiment.spec, participant):
        step = missing[0]
        raise ConflictError(f"The step {step} comes before the trials.", hint="Reload the page.", where=step)
    await come_back(context, experiment, participant)
    await context.store.participants.activate(session.experiment, session.participant)


async def _record(context: Context, body: AnswerBody) -> AnswerReply:
    try:
        served = context.signer.read_served(body.token)
        answer = _answer_of(served, body, context.now_ms())
        return await _keep(context, answer, body.token)
    except StoreError:
        raise  # nothing is known of the answer: the page sends it again
    except SalmonError as error:
        return {"token": body.token, "error": cast("ErrorContent", body_of(error)["error"])}


async def _keep(context: Context, answer: Answer, token: str) -> AnswerReply:
    served = answer.served
    if is_tryout(served.participant):
        fresh, count = await context.store.participants.answer_to_try(
            served.experiment, served.participant, served.nonce, served.trial
        )
        kept: AnswerReply = {"token": token, "recorded": fresh, "duplicate": not fresh, "count": count}
    else:
        recorded = await context.store.answers.record(answer)
        if (await context.catalogue.revision(served.experiment, served.revision)).has_enough(recorded.total):
            await close_at_last_answer(context, served.experiment, recorded.total)
        kept = {
            "token": token,
            "recorded": not recorded.duplicate,
            "duplicate": recorded.duplicate,
            "count": recorded.count,
        }
    if served.trial_type != "catch":
        return kept
    return cast("AnswerReply", {**kept, **await follow_up(context, answer)})


def _answer_of(served: Served, body: AnswerBody, now_ms: int) -> Answer:
    if body.winner not in {served.left, served.right}:
        raise BadRequestError(
            f"The winner {body.winner} is neither the left target {served.left} nor the right one {served.right}.",
            hint="Send the index of the target that was chosen.",
            where="winner",
        )
    return Answer(
        served=served,
        winner=body.winner,
        timing=Timing(**body.model_dump(exclude={"token", "winner"})),
        received_ms=now_ms,
    )


async def _one_or_many(request: Request, adapter: TypeAdapter[list[Item]], most: int, what: str) -> list[Item]:
    """Return the body as a list, whether one thing was sent or several.

    Reading ends at the first item too many, and of many mistakes the first ones are told.
    """
    content = (await request.body()).strip()
    try:
        return adapter.validate_json(content if content.startswith(b"[") else b"[" + content + b"]")
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False, include_context=False)
        if problems[0]["type"] == "too_long":
            raise BadRequestError(f"One request can contain at most {most} {what}.") from None
        places = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in problems[:_MOST_TOLD]
        )
        raise BadRequestError(f"The {what} cannot be read: {places}.") from None
