"""Routes of the trials: the next query, its answer, and what happened on the page meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from frontend import serving
from frontend.catalogue import Parsed
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ElsewhereError, EndedError, NotOpenError, body_of
from frontend.schemas import AnswerBody, EventBody, Json
from frontend.security import Session
from frontend.steps import OUT, UNDER_WAY, Values, next_step, ready_for_trials
from frontend.store.participants import Turn
from frontend.tryouts import is_tryout
from frontend.upcoming import TRIALS_AHEAD, position_of, upcoming_targets
from salmon.errors import SalmonError
from salmon.logs import fields
from salmon.records import Answer, Query, Served, Timing
from salmon.samplers.passive import Random, candidates, fallback

log = logging.getLogger("salmon.trials")

#: How long a participant waits for the store to give a query.
PATIENCE_SECONDS = 0.3

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
    if spare and not await _may_be_random(context, session, values):
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
        chosen = await _random_query(context, session, turn, parsed, nonce)
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


async def _may_be_random(context: Context, session: Session, values: Values) -> bool:
    """Whether a random query may stand in for the next one: where a sampler searches for queries or draws them anyway.

    Queries that the experimenter has fixed, sets for validation and rounds stay as they are: the page waits for them.
    """
    experiment = await context.catalogue.read(session.experiment)
    trial = position_of(values) + 1
    choice = serving.choose_sampler(experiment.plan, participant=session.participant, trial=trial)
    passive = experiment.passive.get(choice.sampler)
    return choice.query is None and (passive is None or passive == Random())


async def next_query(
    context: Context,
    session: Session,
    turn: Turn,
    parsed: Parsed,
    choice: serving.Choice,
    nonce: str,
    *,
    own_turn: int | None = None,
) -> Query:
    """The query of this turn: the experimenter's, a passive sampler's, the best published one, or a fallback.

    `own_turn` counts the sampler's earlier queries to this participant, where they do not follow from the plan.
    """
    store, n, seed = context.store.participants, len(parsed.targets), parsed.plan.seed
    now_ms = context.now_ms()
    if choice.query is not None:
        fixed = (serving.fixed_query(choice.query),)
        return await store.remember_query(session.experiment, session.participant, fixed, token=nonce, now_ms=now_ms)
    sampler = choice.sampler
    if is_tryout(session.participant):
        return await _random_query(context, session, turn, parsed, nonce)
    if sampler in parsed.passive:
        if own_turn is None:
            own_turn = serving.turn_of(
                parsed.plan, participant=session.participant, trial=turn.position, sampler=sampler
            )
        drawn = candidates(parsed.passive[sampler], n, participant=session.participant, turn=own_turn, seed=seed)
        return await store.remember_query(session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms)
    taken = await _in_time(
        store.take_query(
            session.experiment, session.participant, sampler, token=nonce, last_head=turn.last_head, now_ms=now_ms
        )
    )
    if taken is not None:
        return taken
    drawn = fallback(n, participant=session.participant, turn=turn.number, seed=seed)
    remembered = await _in_time(
        store.remember_query(
            session.experiment, session.participant, drawn, token=nonce, now_ms=now_ms, pending_of=sampler
        )
    )
    return remembered or drawn[0]


async def _random_query(context: Context, session: Session, turn: Turn, parsed: Parsed, nonce: str) -> Query:
    """A random query that is nobody's: no learner waits for it, and it is not counted as one that was missing."""
    drawn = fallback(len(parsed.targets), participant=session.participant, turn=turn.number, seed=parsed.plan.seed)
    return await context.store.participants.remember_query(
        session.experiment, session.participant, drawn, token=nonce, now_ms=context.now_ms()
    )


async def _in_time(query: Awaitable[Query | None]) -> Query | None:
    """What the store gives within the time that a participant may wait, or None.

    Where the store is slower, a random query is asked rather than none. Should it have given one all the same, that one
    is pending under a token nobody has, and is published again later; a fallback that could not be noted may be asked
    twice.
    """
    try:
        return await asyncio.wait_for(query, PATIENCE_SECONDS)
    except TimeoutError:
        log.warning("the store is slow", extra=fields(seconds=PATIENCE_SECONDS))
        return None


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
        raise NotOpenError(
            sentences.get(state, "This experiment is not open."),
            state=state,
            hint="Answers already given are kept. Please contact the people who sent you the link.",
        )
