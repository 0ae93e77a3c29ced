"""Routes of participants: arrive, ask, answer, finish."""

from __future__ import annotations

import secrets
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, RedirectResponse, Response

from frontend import serving
from frontend.arrivals import arrival_of
from frontend.catalogue import Experiment, Parsed
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ForgedError, body_of
from frontend.html import clean
from frontend.pages import ParticipantPage
from frontend.schemas import AnswerBody, ArriveBody, EventBody, FinishBody, Json
from frontend.security import Session
from frontend.store.participants import Turn
from salmon.errors import SalmonError
from salmon.records import Answer, Query, Served, Timing
from salmon.samplers.passive import candidates, fallback

#: Languages written from right to left.
_RIGHT_TO_LEFT = {"ar", "fa", "he", "ur"}
#: Answers accepted in one request: more than a page ever keeps unsent.
_MOST_ANSWERS = 500
#: Events accepted in one request.
_MOST_EVENTS = 200

Item = TypeVar("Item")
_answers = TypeAdapter(list[AnswerBody])
_events = TypeAdapter(list[EventBody])

SessionHeader = Annotated[str, Header(alias="X-Salmon-Session")]

router = APIRouter(prefix="/e/{slug}")


@router.get("", include_in_schema=False)
async def add_slash(slug: str, request: Request) -> Response:
    """The page's own links are relative, so its address ends with a slash."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/e/{slug}/{query}", status_code=307)


@router.get("/", response_class=Response)
async def page(slug: str, context: WithContext) -> Response:
    """The page; it arrives by itself."""
    experiment = await context.catalogue.find(slug)
    settings = experiment.spec.page
    return context.pages.show(
        ParticipantPage(
            title=experiment.spec.title,
            language=settings.language,
            direction="rtl" if settings.language.split("-")[0] in _RIGHT_TO_LEFT else "ltr",
            slug=slug,
            background=settings.background,
        )
    )


@router.post("/arrive")
async def arrive(slug: str, body: ArriveBody, context: WithContext) -> Json:
    """Make or find the participant; the reply holds all the page needs to begin or to go on."""
    experiment = await context.catalogue.find(slug)
    _check_open(experiment.state.state)
    known = _known_session(context, experiment, body.session)
    if known is not None:
        participant = known.participant
        values = await context.store.participants.read(experiment.id, participant)
    else:
        arrival = arrival_of(body.parameters, fresh=secrets.token_hex(8))
        first: dict[str, str | int] = {
            "puid": arrival.puid,
            "source": arrival.source,
            "first_ms": context.now_ms(),
            "status": "active",
        }
        participant, values = await context.store.participants.arrive(experiment.id, arrival.identity, first)
    session = Session(experiment.id, participant, secrets.token_hex(4))
    return {
        "session": context.signer.session(session),
        "participant": values["puid"],
        "status": values["status"],
        "answers": int(values.get("answers", 0)),
        "page": _page_of(experiment),
        "targets": [_target_of(experiment, index) for index in range(len(experiment.targets))],
    }


@router.get("/query")
async def query(slug: str, session_key: SessionHeader, context: WithContext) -> Json:
    """The next query of this participant, placed left and right, with the token that answers it."""
    del slug
    session = context.signer.read_session(session_key)
    turn = await context.store.participants.begin_turn(session.experiment, session.participant)
    _check_open(turn.state)
    parsed = await context.catalogue.revision(session.experiment, turn.revision)
    limit = parsed.spec.html.max_queries
    if 0 < limit <= turn.answers:
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
    await context.store.participants.add_events(session.experiment, session.participant, entries)
    return {"stored": len(entries)}


@router.post("/finish")
async def finish(slug: str, session_key: SessionHeader, body: FinishBody, context: WithContext) -> Json:
    """The way out: the code or the redirect, only when as many answers are stored as were given."""
    del slug
    session = context.signer.read_session(session_key)
    experiment = await context.catalogue.read(session.experiment)
    values = await context.store.participants.read(session.experiment, session.participant)
    stored = int(values.get("answers", 0))
    if stored < body.given:
        return {"stored": stored, "complete": False}
    await context.store.participants.note(
        session.experiment, session.participant, {"status": "completed", "completed_ms": context.now_ms()}
    )
    recruitment = experiment.spec.recruitment
    return {
        "stored": stored,
        "complete": True,
        "debrief": clean(experiment.spec.html.debrief, trusted=experiment.spec.page.trusted),
        "participant": values["puid"],
        "code": recruitment.completion_code,
        "redirect": recruitment.redirect,
    }


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


def _known_session(context: Context, experiment: Experiment, key: str | None) -> Session | None:
    """The session a page had before a reload; one of another experiment or server is passed over."""
    if not key:
        return None
    try:
        session = context.signer.read_session(key)
    except ForgedError:
        return None
    return session if session.experiment == experiment.id else None


def _check_open(state: str) -> None:
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


def _page_of(experiment: Experiment) -> Json:
    spec = experiment.spec
    return {
        "title": spec.title,
        "instructions": clean(spec.html.instructions, trusted=spec.page.trusted),
        "max_queries": spec.html.max_queries,
        "skip_button": spec.html.skip_button,
        "keys": list(spec.page.keys) if spec.html.arrow_keys else [],
        "blank_ms": spec.page.blank_ms,
        "min_rt_ms": spec.page.min_rt_ms,
        "stimulus_size": spec.page.stimulus_size,
        "background": spec.page.background,
    }


def _target_of(experiment: Experiment, index: int) -> Json:
    """A target as the page shows it; never its file name, which may tell the condition."""
    target = experiment.targets[index]
    if target.media:
        return {
            "kind": target.kind,
            "source": f"/media/{target.media}",
            "alt": target.alt,
            "width": target.width_px,
            "height": target.height_px,
        }
    if target.kind == "text":
        return {"kind": "text", "text": target.html}
    return {"kind": "html", "html": clean(target.html, trusted=experiment.spec.page.trusted)}
