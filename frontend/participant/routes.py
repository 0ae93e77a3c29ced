"""Routes of participants: the page, arriving, the steps around the trials, queries, answers, events, finishing.

They translate HTTP: what participants are shown, asked and allowed is decided by the pure modules beside this one.
"""

import secrets
from collections.abc import Mapping
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, RedirectResponse, Response

from frontend.context import Context, WithContext
from frontend.errors import (
    BadRequestError,
    ConflictError,
    ElsewhereError,
    EndedError,
    ForgedError,
    NotFoundError,
    body_of,
    status_of,
)
from frontend.experiments import ServedExperiment
from frontend.html import plain
from frontend.languages import direction_of, language_of, strings_of
from frontend.pages import ErrorPage, ParticipantPage
from frontend.participant.arrival import is_preview, read_arrival, way_back
from frontend.participant.completion import completion_of
from frontend.participant.page_content import (
    elements_of,
    hooks_of,
    page_of,
    policy_of,
    sample_of,
    steps_of,
    target_of,
    text_of,
)
from frontend.participant.queries import (
    TRIALS_AHEAD,
    allows_spare,
    check_open,
    choose_sampler,
    loads_ahead,
    next_query,
    prefetch_targets,
)
from frontend.participant.steps import carry_out, missing_before_trials, next_step, ready_to_finish
from frontend.schemas import AnswerBody, ArriveBody, EventBody, FinishBody, Json, StepBody
from frontend.security import Session
from frontend.store.participants import FINISHED, OUT, UNDER_WAY, Participant
from salmon.errors import SalmonError
from salmon.records import Answer, Served, Timing
from salmon.wire.keys import draw_tryout_id, is_tryout

#: The parameter of the page's address that holds the key of a try-out.
_TRYOUT = "tryout"
#: Files that change with every new revision of an experiment.
_OWN_FILE = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
#: Of a participant whose page cannot bring all answers across, at least this part of them must be stored.
_ENOUGH = 0.5
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
    """Redirect to the address with a slash at its end: the page's own links are relative."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/e/{slug}/{query}", status_code=307)


@router.get("/", response_class=Response)
async def page(slug: str, request: Request, context: WithContext) -> Response:
    """Return the page, which then calls `arrive`. A link that cannot be right is refused before anything is shown or stored."""
    experiment = await context.catalogue.find(slug)
    spec, parameters = experiment.spec, dict(request.query_params)
    preview = is_preview(parameters)
    language = language_of(parameters.get("lang", ""), spec.page.language)
    strings = strings_of(language, spec.page.strings)
    try:
        _check_link(context, experiment, parameters)
    except SalmonError as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return context.pages.show(_refusal(error, strings, language), status=status_of(error))
    settings = page_of(spec, language)
    shown = ParticipantPage(
        title=plain(settings["title"]),
        language=language,
        direction=direction_of(language),
        strings=strings,
        setting={
            "strings": strings,
            "language": language,
            "background": settings["background"],
            "stimulus_size": settings["stimulus_size"],
            "preview": preview,
        },
        sample=sample_of(experiment) if preview else None,
        elements=elements_of(spec),
        hooks=hooks_of(spec),
        script=context.pages.participant_script.name,
    )
    return context.pages.show(shown, headers={"Content-Security-Policy": policy_of(experiment)})


@router.get("/own.css", include_in_schema=False)
async def own_style(slug: str, context: WithContext) -> Response:
    """Return the experimenter's style sheet, `html.css`."""
    return Response((await context.catalogue.find(slug)).spec.html.css, media_type="text/css", headers=_OWN_FILE)


@router.get("/own.js", include_in_schema=False)
async def own_script(slug: str, context: WithContext) -> Response:
    """Return the experimenter's script, `html.js`."""
    return Response((await context.catalogue.find(slug)).spec.html.js, media_type="text/javascript", headers=_OWN_FILE)


@router.post("/arrive")
async def arrive(slug: str, body: ArriveBody, context: WithContext) -> Json:
    """Make or find the participant; the reply holds all the page needs to begin or to go on."""
    experiment = await context.catalogue.find(slug)
    spec, now_ms, people = experiment.spec, context.now_ms(), context.store.participants
    if context.signer.allows_tryout(body.parameters.get(_TRYOUT, ""), experiment.id):
        return await _arrive_to_try(context, experiment, body)
    fresh = secrets.token_hex(8)
    arrival = read_arrival(body.parameters, fresh=fresh, platform=spec.recruitment.platform)
    known = await _find_known(context, experiment, body.session, "" if arrival.puid == fresh else arrival.puid)
    participant = known
    if participant is None:
        check_open(experiment.state.state)
        participant = await people.arrive(experiment.id, arrival.source, arrival.puid, now_ms=now_ms)
    if participant.status not in FINISHED:
        check_open(experiment.state.state)
    way = way_back(spec.resume, participant, same_tab=known is not None, now_ms=now_ms)
    if way == "restart":
        participant = await people.restart(experiment.id, participant.id, arrival.source, arrival.puid, now_ms=now_ms)
    session, language = await _begin_session(context, experiment, participant, body, arrival.companions)
    resumed = participant.has_begun
    if resumed:
        await _note_event(context, session, "resumed" if known else "came_back", now_ms)
    return await _arrival_reply(
        context, experiment, session, participant, language, resumed=resumed, review=way == "review"
    )


@router.post("/steps/{step}")
async def take_step(slug: str, step: str, body: StepBody, session_key: SessionHeader, context: WithContext) -> Json:
    """Carry out a step before or after the trials; the reply names the step that comes next."""
    del slug
    session = context.signer.read_session(session_key)
    experiment = await context.catalogue.read(session.experiment)
    participant = await context.store.participants.read(session.experiment, session.participant)
    if participant is None or participant.session != session.session:
        raise ElsewhereError("This study was opened again in another window.", hint="Go on there, or reload this page.")
    result = carry_out(experiment.spec, participant, step, body, now_ms=context.now_ms())
    if result.change is not None:
        await context.store.participants.change(session.experiment, session.participant, result.change)
        participant = participant.after(result.change)
    return {
        **result.reply,
        "status": participant.status,
        "next": "out" if participant.status in OUT else next_step(experiment.spec, participant),
    }


@router.post("/finish")
async def finish(slug: str, session_key: SessionHeader, body: FinishBody, context: WithContext) -> Json:
    """Give the way out, the code or the redirect: only when as many answers are stored as were given.

    Where the page has tried for long and cannot bring the rest across, a participant who was asked everything and of
    whom at least half has arrived is let go all the same, and marked for the experimenter.
    """
    del slug
    session = context.signer.read_session(session_key)
    experiment, people = await context.catalogue.read(session.experiment), context.store.participants
    participant = await people.read(session.experiment, session.participant)
    if participant is None:
        raise NotFoundError("This session is unknown.", hint="Open the link of the study again.")
    _check_may_finish(experiment, participant)
    wanted, stored = max(experiment.spec.html.max_queries, body.given, 1), participant.answers
    finished_before = participant.status in FINISHED
    asked_everything = participant.turns >= wanted and stored >= _ENOUGH * wanted
    incomplete = participant.given_unsaved is not None or (body.incomplete and asked_everything and stored < wanted)
    if stored < wanted and not incomplete and not finished_before:
        return {"stored": stored, "complete": False}
    if not finished_before and is_tryout(session.participant):
        await people.complete_to_try(session.experiment, session.participant)
    elif not finished_before:
        await people.complete(
            session.experiment,
            session.participant,
            now_ms=context.now_ms(),
            given_unsaved=body.given if incomplete else None,
        )
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


@router.get("/query")
async def query(slug: str, session_key: SessionHeader, context: WithContext, *, spare: bool = False) -> Json:
    """Give this participant the next query, placed left and right, with the token that answers it.

    A `spare` one is random. The page keeps it in hand, and shows it when the next query does not come in time.
    """
    del slug
    session, people = context.signer.read_session(session_key), context.store.participants
    participant = await people.read(session.experiment, session.participant)
    if participant is None:
        raise NotFoundError("This session is unknown.", hint="Open the link of the study again.")
    await _check_may_ask(context, session, participant)
    if spare:
        experiment = await context.catalogue.read(session.experiment)
        upcoming = choose_sampler(experiment.plan, participant=session.participant, trial=participant.position + 1)
        if not allows_spare(experiment, upcoming):
            return {"none": True}
    turn = await people.begin_turn(session.experiment, session.participant, spare=spare)
    if not is_tryout(session.participant):
        check_open(turn.state)
    parsed = await context.catalogue.revision(session.experiment, turn.revision)
    limit = parsed.spec.html.max_queries
    if 0 < limit <= turn.answers or turn.status in FINISHED:
        return {"done": True, "answers": turn.answers}
    served = await next_query(context, session, turn, parsed, spare=spare)
    return {
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
            trials=0 if spare else TRIALS_AHEAD - 1,
        ),
    }


@router.post("/answers")
async def record_answers(slug: str, request: Request, context: WithContext) -> Response:
    """Record one answer or a list of them; each token's result says whether it is stored, and nothing else counts."""
    del slug
    results = [await _record(context, body) for body in await _one_or_many(request, _answers, _MOST_ANSWERS, "answers")]
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


def _check_link(context: Context, experiment: ServedExperiment, parameters: Mapping[str, str]) -> None:
    """Refuse a link that cannot be right, and an experiment that nobody has opened yet."""
    if context.signer.allows_tryout(parameters.get(_TRYOUT, ""), experiment.id):
        return
    if not is_preview(parameters):
        read_arrival(parameters, fresh="", platform=experiment.spec.recruitment.platform)
    if experiment.state.state == "draft":
        check_open("draft")


def _refusal(error: SalmonError, strings: Mapping[str, str], language: str) -> ErrorPage:
    """Return a refusal in the language of the page, with what exactly is wrong below it for whoever runs the study."""
    translated = strings.get(f"error_{error.code}", "")
    below = error.message if translated else error.hint
    return ErrorPage(status_of(error), translated or error.message, below, language, direction_of(language))


async def _arrive_to_try(context: Context, experiment: ServedExperiment, body: ArriveBody) -> Json:
    """Let an experimenter look at the experiment as a participant would; nothing is recorded."""
    known = await _find_known(context, experiment, body.session, "")
    participant = known
    if participant is None or not is_tryout(participant.id):
        participant = await context.store.participants.arrive_to_try(
            experiment.id, draw_tryout_id(), now_ms=context.now_ms()
        )
    session, language = await _begin_session(context, experiment, participant, body, {})
    return await _arrival_reply(
        context, experiment, session, participant, language, resumed=known is not None, review=False
    )


async def _find_known(context: Context, experiment: ServedExperiment, key: str | None, puid: str) -> Participant | None:
    """Return the participant of the session that a page had before a reload.

    A session of another experiment or server, or of somebody else than the link says, is passed over.
    """
    if not key:
        return None
    try:
        session = context.signer.read_session(key)
    except ForgedError:
        return None
    if session.experiment != experiment.id:
        return None
    participant = await context.store.participants.read(experiment.id, session.participant)
    return participant if participant is not None and puid in {"", participant.puid} else None


async def _begin_session(
    context: Context,
    experiment: ServedExperiment,
    participant: Participant,
    body: ArriveBody,
    companions: Mapping[str, str],
) -> tuple[Session, str]:
    """Return (the session of this opening of the page, its language); the newest opening is the one that goes on."""
    language = language_of(body.parameters.get("lang", ""), experiment.spec.page.language)
    session = Session(experiment.id, participant.id, secrets.token_hex(4))
    await context.store.participants.begin_session(
        experiment.id,
        participant.id,
        session.session,
        seen_ms=context.now_ms(),
        language=language,
        companions=companions,
    )
    return session, language


async def _arrival_reply(
    context: Context,
    experiment: ServedExperiment,
    session: Session,
    participant: Participant,
    language: str,
    *,
    resumed: bool,
    review: bool,
) -> Json:
    """Return all that the page needs to begin or to go on."""
    spec = experiment.spec
    return {
        "session": context.signer.sign_session(session),
        "participant": participant.puid,
        "status": participant.status,
        "answers": participant.answers,
        "step": "out" if participant.status in OUT else next_step(spec, participant),
        "resumed": resumed,
        "review": review,
        "language": language,
        "page": page_of(spec, language),
        "steps": steps_of(experiment, participant),
        "targets": [target_of(target, trusted=spec.page.trusted) for target in experiment.targets],
        "load_all": not loads_ahead(experiment.targets),
        "soon": await prefetch_targets(
            context.store,
            experiment.id,
            experiment,
            participant.id,
            after=participant.position,
            spares=participant.spares,
            trials=TRIALS_AHEAD,
        ),
    }


async def _note_event(context: Context, session: Session, event: str, now_ms: int) -> None:
    """Keep an event that the server saw, beside those that pages tell of."""
    await context.store.participants.add_events(
        session.experiment,
        session.participant,
        [{"event": event, "trial": "0", "client_ms": "-1", "detail": "", "received_ms": str(now_ms)}],
    )


def _check_may_finish(experiment: ServedExperiment, participant: Participant) -> None:
    if participant.status in OUT:
        raise EndedError("Your part in this study has ended.", hint="Answers already given are kept.")
    if not ready_to_finish(experiment.spec, participant):
        raise ConflictError("There is a step left before the end.", hint="Reload the page.")


async def _check_may_ask(context: Context, session: Session, participant: Participant) -> None:
    """Queries go to the newest opening of the page, of somebody who has done what comes before the trials.

    The first query makes the participant active.
    """
    if participant.session not in {"", session.session}:
        raise ElsewhereError("This study was opened again in another window.", hint="Go on there, or reload this page.")
    if participant.status in OUT:
        raise EndedError("Your part in this study has ended.", hint="Answers already given are kept.")
    if participant.status in UNDER_WAY:
        return
    experiment = await context.catalogue.read(session.experiment)
    if missing := missing_before_trials(experiment.spec, participant):
        step = missing[0]
        raise ConflictError(f"The step {step} comes before the trials.", hint="Reload the page.", where=step)
    await context.store.participants.activate(session.experiment, session.participant)


async def _record(context: Context, body: AnswerBody) -> Json:
    try:
        served = context.signer.read_served(body.token)
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
    return Answer(
        served=served,
        winner=body.winner,
        timing=Timing(**body.model_dump(exclude={"token", "winner"})),
        received_ms=now_ms,
    )


async def _one_or_many(request: Request, adapter: TypeAdapter[list[Item]], most: int, what: str) -> list[Item]:
    """Return the body as a list, whether one thing was sent or several."""
    try:
        content = await request.json()
        items = adapter.validate_python(content if isinstance(content, list) else [content])
    except (ValueError, ValidationError) as error:
        problems = error.errors() if isinstance(error, ValidationError) else []
        places = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)
        raise BadRequestError(f"The {what} cannot be read: {places or 'this is not JSON'}.") from error
    if len(items) > most:
        raise BadRequestError(f"These are {len(items)} {what}; one request can contain at most {most}.")
    return items
