"""Routes of arriving: the page, the experimenter's own files for it, and the reply with which a
participant begins or goes on.
"""

import secrets
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from frontend.admission import address_of
from frontend.context import Context, WithContext
from frontend.errors import ForgedError, status_of
from frontend.experiments import ServedExperiment
from frontend.html import plain
from frontend.languages import direction_of, language_of, strings_of
from frontend.lifecycle import check_load, check_open
from frontend.pages import ErrorPage, ParticipantPage
from frontend.participant.arrival import Arrival, is_preview, mark_of, read_arrival
from frontend.participant.entry import admit, check_invitation, check_signature
from frontend.participant.page_content import (
    ArrivalReply,
    ParticipantSetting,
    elements_of,
    hooks_of,
    page_of,
    policy_of,
    sample_of,
    steps_of,
    target_of,
)
from frontend.participant.queries import (
    TRIALS_AHEAD,
    loads_ahead,
    prefetch_targets,
)
from frontend.participant.steps import (
    next_step,
)
from frontend.schemas import ArriveBody
from frontend.security import Session
from frontend.store.participants import Participant
from frontend.store.statuses import OUT
from salmon.errors import SalmonError
from salmon.wire.keys import draw_tryout_id, is_tryout

#: The parameter of the page's address that holds the key of a try-out.
_TRYOUT = "tryout"
#: Files that change with every new revision of an experiment.
_OWN_FILE = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}

router = APIRouter(prefix="/e/{slug}")


@router.get("", include_in_schema=False)
async def add_slash(slug: str, request: Request) -> Response:
    """Redirect to the address with a slash at its end: the page's own links are relative."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/e/{slug}/{query}", status_code=307)


@router.get("/", response_class=Response)
async def page(slug: str, request: Request, context: WithContext) -> Response:
    """Return the page, which then calls `arrive`. A link that cannot be right is refused
    before anything is shown or stored.
    """
    experiment = await context.catalogue.find(slug)
    spec, parameters = experiment.spec, dict(request.query_params)
    preview = is_preview(parameters)
    language = language_of(parameters.get("lang", ""), spec.page.language)
    strings = strings_of(language, spec.page.strings)
    try:
        if not context.signer.allows_tryout(parameters.get(_TRYOUT, ""), experiment.id):
            await _check_link(context, experiment, request, parameters)
    except SalmonError as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return context.pages.show(_refusal(error, strings, language), status=status_of(error))
    settings = page_of(spec, language)
    setting: ParticipantSetting = {
        "strings": strings,
        "language": language,
        "background": settings["background"],
        "stimulus_size": settings["stimulus_size"],
        "preview": preview,
    }
    shown = ParticipantPage(
        title=plain(settings["title"]),
        language=language,
        direction=direction_of(language),
        strings=strings,
        setting=setting,
        sample=sample_of(experiment, mount=context.settings.mount) if preview else None,
        elements=elements_of(spec),
        hooks=hooks_of(spec),
        script=context.pages.participant_script.name,
    )
    return context.pages.show_compressed(shown, request, headers={"Content-Security-Policy": policy_of(experiment)})


@router.get("/own.css", include_in_schema=False)
async def own_style(slug: str, context: WithContext) -> Response:
    """Return the experimenter's style sheet, `html.css`."""
    return Response((await context.catalogue.find(slug)).spec.html.css, media_type="text/css", headers=_OWN_FILE)


@router.get("/own.js", include_in_schema=False)
async def own_script(slug: str, context: WithContext) -> Response:
    """Return the experimenter's script, `html.js`."""
    return Response((await context.catalogue.find(slug)).spec.html.js, media_type="text/javascript", headers=_OWN_FILE)


@router.post("/arrive")
async def arrive(slug: str, body: ArriveBody, request: Request, context: WithContext) -> ArrivalReply:
    """Make or find the participant; the reply holds all the page needs to begin or to go on."""
    if body.session is None:
        check_load(context)
    experiment = await context.catalogue.find(slug)
    spec, now_ms = experiment.spec, context.now_ms()
    if context.signer.allows_tryout(body.parameters.get(_TRYOUT, ""), experiment.id):
        return await _arrive_to_try(context, experiment, body)
    fresh = secrets.token_hex(8)
    arrival = read_arrival(body.parameters, fresh=fresh, platform=spec.recruitment.platform)
    known = await _find_known(context, experiment, body.session, "" if arrival.puid == fresh else arrival.puid)
    entrant = await admit(context, request, experiment, arrival, door="page", known=known, browser=body.browser)
    experiment, participant = entrant.experiment, entrant.participant
    session, language = await _begin_session(
        context, experiment, participant, body, arrival.companions, address=address_of(request)
    )
    resumed = participant.has_begun
    if resumed:
        await _note_event(context, session, "resumed" if known else "came_back", now_ms)
    own = experiment.for_participant(participant)
    return await _arrival_reply(
        context, own, session, participant, language, resumed=resumed, review=entrant.way == "review"
    )


async def _check_link(
    context: Context, experiment: ServedExperiment, request: Request, parameters: Mapping[str, str]
) -> None:
    """Refuse a link that cannot be right, and an experiment that nobody has opened yet."""
    if is_preview(parameters):
        arrival = Arrival("link", "")
    else:
        arrival = read_arrival(parameters, fresh="", platform=experiment.spec.recruitment.platform)
        check_invitation(context, experiment, arrival)
    await check_signature(context, request, experiment, arrival, expires=False)
    if experiment.state.state == "draft":
        check_open("draft")


def _refusal(error: SalmonError, strings: Mapping[str, str], language: str) -> ErrorPage:
    """Return a refusal in the language of the page, with what exactly is wrong below it for whoever runs the study."""
    translated = strings.get(f"error_{error.code}", "")
    below = error.message if translated else error.hint
    return ErrorPage(status_of(error), translated or error.message, below, language, direction_of(language))


async def _arrive_to_try(context: Context, experiment: ServedExperiment, body: ArriveBody) -> ArrivalReply:
    """Let an experimenter look at the experiment as a participant would; nothing is recorded."""
    known = await _find_known(context, experiment, body.session, "")
    participant = known
    if participant is None or not is_tryout(participant.id):
        wanted = body.parameters.get("group", "")
        ids = _made_up_ids(body.parameters)
        participant = await context.store.participants.arrive_to_try(
            experiment.id,
            draw_tryout_id(),
            ids.source,
            ids.puid,
            now_ms=context.now_ms(),
            group=wanted if wanted in experiment.spec.groups else experiment.group_of(secrets.randbelow(1000)),
        )
    companions = _made_up_ids(body.parameters).companions
    session, language = await _begin_session(context, experiment, participant, body, companions)
    return await _arrival_reply(
        context,
        experiment.for_participant(participant),
        session,
        participant,
        language,
        resumed=known is not None,
        review=False,
    )


def _made_up_ids(parameters: Mapping[str, str]) -> Arrival:
    """Return the ids with which somebody tries out how participants of a platform arrive and are sent back."""
    return read_arrival(parameters, fresh=_TRYOUT, platform="link")


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
    *,
    address: str = "",
) -> tuple[Session, str]:
    """Return (the session of this opening of the page, its language); the newest opening is the one that goes on."""
    language = language_of(body.parameters.get("lang", ""), experiment.spec.page.language)
    session = Session(experiment.id, participant.id, secrets.token_hex(4))
    people, network = context.store.participants, participant.network
    if experiment.spec.privacy.network_hint and address and not network:
        network = await people.mark_network(experiment.id, address)
    await people.begin_session(
        experiment.id,
        participant.id,
        session.session,
        seen_ms=context.now_ms(),
        language=language,
        browser=participant.browser or mark_of(body.browser),
        network=network,
        group=participant.group,
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
) -> ArrivalReply:
    """Return all that the page needs to begin or to go on."""
    spec = experiment.spec
    mount = context.settings.mount
    numbers = await context.store.turns.read_numbers(experiment.id, participant.id)
    return {
        "numbers": {"open": list(numbers.open), "next": numbers.next},
        "session": context.signer.sign_session(session),
        "tryout": is_tryout(participant.id),
        "participant": participant.puid,
        "status": participant.status,
        "answers": participant.answers,
        "step": "out" if participant.status in OUT else next_step(spec, participant),
        "resumed": resumed,
        "review": review,
        "language": language,
        "page": page_of(spec, language),
        "steps": steps_of(experiment, participant, mount=mount),
        "targets": [target_of(target, trusted=spec.page.trusted, mount=mount) for target in experiment.targets],
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
