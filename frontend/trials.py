"""Routes of the trials: the next query, its answer, and what happened on the page meanwhile."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from frontend import serving
from frontend.catalogue import Parsed
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ElsewhereError, body_of
from frontend.schemas import AnswerBody, EventBody, Json
from frontend.security import Session
from frontend.steps import OUT, UNDER_WAY, Values, next_step, ready_for_trials
from frontend.store.participants import Turn
from frontend.tryouts import is_tryout
from salmon.errors import SalmonError
from salmon.records import Answer, Query, Served, Timing
from salmon.samplers.passive import candidates, fallback

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
async def query(slug: str, session_key: SessionHeader, context: WithContext) -> Json:
    """The next query of this participant, placed left and right, with the token that answers it."""
    del slug
    session = context.signer.read_session(session_key)
    values = await context.store.participants.read(session.experiment, session.participant)
    await _check_may_ask(context, session, values)
    turn = await context.store.participants.begin_turn(session.experiment, session.participant)
    if not is_tryout(session.participant):
        check_open(turn.state)
    parsed = await context.catalogue.revision(session.experiment, turn.revision)
    limit = parsed.spec.html.max_queries
    if 0 < limit <= turn.answers or turn.status in {"completed", "redirected"}:
        return {"done": True, "answers": turn.answers}
    choice = serving.choose_sampler(parsed.plan, participant=session.participant, trial=turn.number)
    nonce = context.nonce()
    chosen = await _next_query(context, session, turn, parsed, choice, nonce)
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
        raise ConflictError("Your part in this study has ended.", hint="Answers already given are kept.")
    if status in UNDER_WAY:
        return
    experiment = await context.catalogue.read(session.experiment)
    if not ready_for_trials(experiment.spec, values):
        step = next_step(experiment.spec, {**values, "step:welcome": ""})
        raise ConflictError(f"The step {step} comes before the trials.", hint="Reload the page.", where=step)
    await context.store.participants.note(session.experiment, session.participant, {"status": "active"})


async def _next_query(
    context: Context, session: Session, turn: Turn, parsed: Parsed, choice: serving.Choice, nonce: str
) -> Query:
    """The query of this turn: the experimenter's, a passive sampler's, the best published one, or a fallback."""
    store, n, seed = context.store.participants, len(parsed.targets), parsed.plan.seed
    now_ms = context.now_ms()
    if choice.query is not None:
        fixed = (serving.fixed_query(choice.query),)
        return await store.remember_query(session.experiment, session.participant, fixed, token=nonce, now_ms=now_ms)
    sampler = choice.sampler
    if is_tryout(session.participant):
        drawn = fallback(n, participant=session.participant, turn=turn.number, seed=seed)
        return await store.remember_query(session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms)
    own_turn = serving.turn_of(parsed.plan, participant=session.participant, trial=turn.number, sampler=sampler)
    if sampler in parsed.passive:
        drawn = candidates(parsed.passive[sampler], n, participant=session.participant, turn=own_turn, seed=seed)
        return await store.remember_query(session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms)
    taken = await store.take_query(
        session.experiment, session.participant, sampler, token=nonce, last_head=turn.last_head, now_ms=now_ms
    )
    if taken is not None:
        return taken
    return await store.remember_query(
        session.experiment,
        session.participant,
        fallback(n, participant=session.participant, turn=turn.number, seed=seed),
        token=nonce,
        now_ms=now_ms,
        pending_of=sampler,
    )


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


def check_open(state: str) -> None:
    """Refuse what only an open experiment does, with a sentence that says why."""
    if state != "open":
        sentences = {
            "draft": "This experiment has not been opened yet.",
            "paused": "This experiment is paused at the moment.",
            "closed": "This experiment has ended.",
        }
        raise ConflictError(
            sentences.get(state, "This experiment is not open."),
            hint="Answers already given are kept. Please contact the people who sent you the link.",
        )
