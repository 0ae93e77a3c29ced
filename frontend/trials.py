"""Routes of the trials: the next query, its answer, and what happened on the page meanwhile."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from frontend import serving
from frontend.choosing import check_open, may_be_random, next_query, random_query
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ElsewhereError, EndedError, body_of
from frontend.schemas import AnswerBody, EventBody, Json
from frontend.security import Session
from frontend.steps import OUT, UNDER_WAY, Values, next_step, ready_for_trials
from frontend.tryouts import is_tryout
from frontend.upcoming import TRIALS_AHEAD, upcoming_targets
from salmon.errors import SalmonError
from salmon.records import Answer, Served, Timing

#: Answers accepted in one request: more than a page ever keeps unsent.
_MOST_ANSWERS = 500
#: Events accepted in one request.
_MOST_EVENTS = 200

Item = TypeVar("Item")
_answers = TypeAdapter(list[AnswerBody])
_events = TypeAdapter(list[EventBody])

SessionHeader = Annotated[str, Header(alias="X-Salmon-Session")]

router = APIRouter(prefix="/e/{slug}")


@router.get("/query")
async def query(slug: str, session_key: SessionHeader, context: WithContext, *, spare: bool = False) -> Json:
    """The next query of this participant, placed left and right, with the token that answers it.

    A `spare` one is random. The page keeps it in hand, and shows it when the next query does not come in time.
    """
    del slug
    session = context.signer.read_session(session_key)
    values = await context.store.participants.read(session.experiment, session.participant)
    await _check_may_ask(context, session, values)
    if spare and not await may_be_random(context, session, values):
        return {"none": True}
    turn = await context.store.participants.begin_turn(session.experiment, session.participant, spare=spare)
    if not is_tryout(session.participant):
        check_open(turn.state)
    parsed = await context.catalogue.revision(session.experiment, turn.revision)
    limit = parsed.spec.html.max_queries
    if 0 < limit <= turn.answers or turn.status in {"completed", "redirected"}:
        return {"done": True, "answers": turn.answers}
    trial = turn.position + int(spare)  # a spare one may stand in for the query that comes next
    choice = serving.choose_sampler(parsed.plan, participant=session.participant, trial=trial)
    nonce = context.nonce()
    if spare:
        chosen = await random_query(context, session, turn, parsed, nonce)
    else:
        chosen = await next_query(context, session, turn, parsed, choice, nonce)
    served = serving.serve(
        chosen,
        choice,
        experiment=session.experiment,
        revision=turn.revision,
        participant=session.participant,
        session=session.session,
        trial=turn.number,
        seed=parsed.plan.seed,
        nonce=nonce,
        now_ms=context.now_ms(),
    )
    return {
        "token": context.signer.token(served),
        "head": served.head,
        "left": served.left,
        "right": served.right,
        "sampler": served.sampler,
        "score": served.score,
        "trial": served.trial,
        "soon": await upcoming_targets(
            context.store,
            session.experiment,
            parsed,
            session.participant,
            after=turn.position,
            trials=0 if spare else TRIALS_AHEAD - 1,
        ),
    }


@router.post("/answers")
async def record_answers(slug: str, request: Request, context: WithContext) -> Response:
    """Record one answer or a list of them; each token's result says whether it is stored, and nothing else counts."""
    del slug
    bodies = await _one_or_many(request, _answers, _MOST_ANSWERS, "answers")
    results = [await _record(context, body) for body in bodies]
    refused = all("error" in result for result in results)
    return JSONResponse({"results": results}, status_code=422 if refused and results else 200)


@router.post("/events")
async def add_events(slug: str, session_key: SessionHeader, request: Request, context: WithContext) -> Json:
    """Keep what happened on the page: focus, sizes, skips, files that did not load."""
    del slug
    session = context.signer.read_session(session_key)
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


async def _check_may_ask(context: Context, session: Session, values: Values) -> None:
    """Queries go to the newest opening of the page, of somebody who has done what comes before the trials.

    The first query makes the participant active.
    """
    if values.get("session", session.session) != session.session:
        raise ElsewhereError("This study was opened again in another window.", hint="Go on there, or reload this page.")
    status = values.get("status", "")
    if status in OUT:
        raise EndedError("Your part in this study has ended.", hint="Answers already given are kept.")
    if status in UNDER_WAY:
        return
    experiment = await context.catalogue.read(session.experiment)
    if not ready_for_trials(experiment.spec, values):
        step = next_step(experiment.spec, {**values, "step:welcome": ""})
        raise ConflictError(f"The step {step} comes before the trials.", hint="Reload the page.", where=step)
    await context.store.participants.note(session.experiment, session.participant, {"status": "active"})


async def _record(context: Context, body: AnswerBody) -> Json:
    try:
        served = context.signer.served(body.token)
        answer = _answer_of(served, body, context.now_ms())
    except SalmonError as error:
        return {"token": body.token, **body_of(error)}
    if is_tryout(served.participant):
        fresh, count = await context.store.participants.answer_to_try(
            served.experiment, served.participant, served.nonce
        )
        return {"token": body.token, "recorded": fresh, "duplicate": not fresh, "count": count}
    recorded = await context.store.answers.record(answer)
    return {
        "token": body.token,
        "recorded": not recorded.duplicate,
        "duplicate": recorded.duplicate,
        "count": recorded.count,
    }


def _answer_of(served: Served, body: AnswerBody, now_ms: int) -> Answer:
    if body.winner not in {served.left, served.right}:
        raise BadRequestError(
            f"The winner {body.winner} is neither the left target {served.left} nor the right one {served.right}.",
            hint="Send the index of the target that was chosen.",
            where="winner",
        )
    timing = Timing(**body.model_dump(exclude={"token", "winner"}))
    return Answer(served=served, winner=body.winner, timing=timing, received_ms=now_ms)


async def _one_or_many(request: Request, adapter: TypeAdapter[list[Item]], most: int, what: str) -> list[Item]:
    """The body as a list, whether one thing was sent or several."""
    try:
        content = await request.json()
        items = adapter.validate_python(content if isinstance(content, list) else [content])
    except (ValueError, ValidationError) as error:
        problems = error.errors() if isinstance(error, ValidationError) else []
        places = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)
        raise BadRequestError(f"The {what} cannot be read: {places or 'this is not JSON'}.") from error
    if len(items) > most:
        raise BadRequestError(f"These are {len(items)} {what}; at most {most} go in one request.")
    return items
