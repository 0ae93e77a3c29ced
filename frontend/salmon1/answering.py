"""Routes `/`, `/query` and `/answer`: scripts that ask and answer instead of a participant's page.

Scripts send the whole query back with the answer, and the token travels in it: their answers are as unforgeable as
those of the page. Many ask without saying for whom, and name the participant only when they answer.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, EndedError, ForbiddenError, GoneError
from frontend.experiments import OpenPage, ServedExperiment
from frontend.lifecycle import close_at_last_answer
from frontend.participant import queries
from frontend.participant.arrival import Arrival
from frontend.participant.entry import admit, check_script
from frontend.participant.shortcut import PlainRequest, is_plain, is_short
from frontend.salmon1.errors import OldError, OldRoute, answer_old_error
from frontend.salmon1.experiment import ForParticipants, for_participants, newest
from frontend.schemas import Json
from frontend.security import Session
from frontend.store.participants import Participant
from frontend.store.statuses import OUT
from frontend.store.turns import Turn
from salmon.records import NO_SCORE, Answer, Query, Served, Timing
from salmon.wire.keys import NOBODY, is_tryout

_LONGEST_PUID = 512
#: The longest time that anybody can have thought, in seconds.
_LONGEST_SECONDS = 86_400_000

Target = Annotated[int, Field(ge=0, le=10_000_000)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]

router = APIRouter(route_class=OldRoute)


class OldAnswer(BaseModel):
    """An answer as the first Salmon takes it, and the token that came with the query. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, frozen=True)

    head: Target
    left: Target
    right: Target
    winner: Target
    sampler: Annotated[str, Field(max_length=64, validation_alias=AliasChoices("sampler", "alg_ident"))]
    score: Annotated[float, Field(allow_inf_nan=False)] = 0
    puid: Annotated[str, Field(max_length=_LONGEST_PUID)] = ""
    response_time: Seconds = -1
    network_latency: Seconds = -1
    token: Annotated[str, Field(max_length=4096)] = ""

    @property
    def timing(self) -> Timing:
        """What the script measured, in milliseconds."""
        rt, latency = (
            1000 * seconds if 0 <= seconds <= _LONGEST_SECONDS else -1.0
            for seconds in (self.response_time, self.network_latency)
        )
        return Timing(rt_ms=rt, network_latency_ms=latency, input="script")


@router.get("/", response_class=Response)
async def front_door(request: Request, context: WithContext) -> Response:
    """Redirect to the participant page of the open experiment; without one, to the console."""
    state = newest(await context.store.experiments.list())
    if state is None or state.state != "open":
        return RedirectResponse("/console/", status_code=303)
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/e/{state.slug}/{query}", status_code=307)


@router.get("/query")
async def query(
    request: Request, experiment: ForParticipants, context: WithContext, sampler: str = "", puid: str = ""
) -> Json:
    """Return a query of the given sampler, or of one drawn by `sampling.probs`; with the token that its answer should
    carry.
    """
    return await _give(context, request, experiment, sampler, puid)


async def _give(context: Context, request: Request, experiment: ServedExperiment, sampler: str, puid: str) -> Json:
    check_script(context, experiment)
    if sampler and sampler not in experiment.spec.samplers:
        raise OldError(
            500,
            f"There is no sampler {sampler!r}.",
            hint=f"The samplers are {', '.join(experiment.spec.samplers)}.",
            where="sampler",
        )
    if puid:
        served = await _next_query(context, request, experiment, puid, sampler)
    else:
        served = await _anonymous_query(context, experiment, sampler)
    return {
        "sampler": served.sampler,
        "score": served.score,
        "head": served.head,
        "left": served.left,
        "right": served.right,
        "token": context.signer.sign_served(served),
    }


@router.post("/answer")
async def record_answer(request: Request, context: WithContext) -> Json:
    """Record an answer; the same one sent again is recorded once, and one that comes late is taken."""
    return await _record(context, request, await request.body())


class ScriptShortcut:
    """Middleware that answers the plain requests of scripts before routing, as `TrialShortcut` does those of pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        kind = (scope["method"], scope["path"]) if scope["type"] == "http" else None
        if kind in {("GET", "/query"), ("POST", "/answer")}:
            headers: dict[bytes, bytes] = dict(scope["headers"])
            plain = PlainRequest(scope, receive, send, scope["path"])
            if kind == ("POST", "/answer") and is_plain(headers) and is_short(headers):
                await plain.answer(partial(_answer_script, plain, Request(scope)), answer_old_error)
                return
            asked = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            if kind == ("GET", "/query") and is_plain(headers) and asked.keys() <= {"puid", "sampler"}:
                await plain.answer(partial(_ask_for_script, plain.context, Request(scope), **asked), answer_old_error)
                return
        await self._app(scope, receive, send)


async def _ask_for_script(context: Context, request: Request, sampler: str = "", puid: str = "") -> tuple[int, Json]:
    return 200, await _give(context, request, await for_participants(context), sampler, puid)


async def _answer_script(plain: PlainRequest, request: Request) -> tuple[int, Json] | None:
    content = await plain.read_body()
    return None if content is None else (200, await _record(plain.context, request, content))


async def _record(context: Context, request: Request, content: bytes) -> Json:
    body = _read(content)
    if body.token:
        served = await _read_token(context, request, body)
    else:
        named = await for_participants(context)
        served = await _read_unsigned(context, request, await context.catalogue.read(named.id), body)
    if is_tryout(served.participant):
        await context.store.participants.answer_to_try(
            served.experiment, served.participant, served.nonce, served.trial
        )
        return {"success": True}
    recorded = await context.store.answers.record(
        Answer(served, body.winner, body.timing, context.now_ms(), signed=bool(body.token))
    )
    if (await context.catalogue.revision(served.experiment, served.revision)).has_enough(recorded.total):
        await close_at_last_answer(context, served.experiment, recorded.total)
    return {"success": True}


async def _anonymous_query(context: Context, experiment: ServedExperiment, sampler: str) -> Served:
    """Return a query for whoever answers it, from the experiment as it is now."""
    while (served := await queries.anonymous_query(context, experiment, sampler)) is None:
        context.catalogue.forget_newest()
        experiment = await for_participants(context)
        check_script(context, experiment)
    return served


async def _begin_turn(
    context: Context, request: Request, experiment: ServedExperiment, puid: str
) -> tuple[ServedExperiment, str, Turn]:
    """Return the experiment as it is now, the participant of this puid and their next turn.

    Whoever has asked before is found without an arrival.
    """
    turns, key = context.store.turns, f"{experiment.id} {puid}"
    page = context.open_pages.find(key)
    if page is not None:
        participant = page.participant.id
        with suppress(GoneError):
            turn = await turns.begin_turn(
                experiment.id, participant, now_ms=context.now_ms(), expected=("*", experiment.state.tag)
            )
            if turn.outcome != "changed":
                return experiment, participant, turn
        context.open_pages.forget(key)
        context.catalogue.forget_newest()
        experiment = await for_participants(context)
        check_script(context, experiment)
    arrived = await _arrive(context, request, experiment, puid, door="script")
    turn = await turns.begin_turn(experiment.id, arrived.id, now_ms=context.now_ms())
    session = Session(experiment.id, arrived.id, queries.SCRIPT)
    context.open_pages.remember(
        key, OpenPage(session, arrived, experiment, 0, loads_ahead=False, position=turn.position)
    )
    return experiment, arrived.id, turn


async def _next_query(
    context: Context, request: Request, experiment: ServedExperiment, puid: str, sampler: str
) -> Served:
    """Return the next query of this puid; one that is on a list is given again until it is answered."""
    experiment, participant, turn = await _begin_turn(context, request, experiment, puid)
    session = Session(experiment.id, participant, queries.SCRIPT)
    if turn.status in OUT:
        raise EndedError("This participant's part has ended.", hint="Answers already given are kept.")
    if turn.outcome == "full":
        raise ConflictError(
            "Too many queries of this participant are not answered yet.", hint="Answer some of them first."
        )
    parsed = await context.catalogue.revision(experiment.id, turn.revision)
    given = turn.given
    if given is None:
        choice = queries.choose_sampler(parsed.plan, participant=participant, trial=turn.position)
        if sampler:
            choice = queries.SamplerChoice(sampler, 1.0)
        # Scripts name samplers as they like, so a sampler's turns do not follow from the trials before: they are
        # counted.
        own_turn = await context.store.turns.count_turn(experiment.id, participant, choice.sampler)
        plan = partial(
            queries.plan_query,
            *(parsed, choice),
            participant=participant,
            trial=turn.position,
            number=turn.number,
            own_turn=own_turn,
        )
        given = await queries.take_query(context, session, turn, parsed, choice, plan)
    return queries.serve(given, session=session, revision=turn.revision, number=turn.number, seed=parsed.plan.seed)


def _read(content: bytes) -> OldAnswer:
    try:
        body = OldAnswer.model_validate_json(content)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors())
        raise OldError(422, f"The answer cannot be read: {problems}.", hint="Send it as JSON.") from None
    if body.winner not in {body.left, body.right}:
        raise OldError(
            422,
            f"The winner {body.winner} is neither the left target {body.left} nor the right one {body.right}.",
            hint="Send the index of the target that was chosen.",
            where="winner",
        )
    return body


async def _read_token(context: Context, request: Request, body: OldAnswer) -> Served:
    """Return the query that was served, on the sides where the script says it showed them."""
    served = context.signer.read_served(body.token)
    if served.head != body.head or {served.left, served.right} != {body.left, body.right}:
        raise BadRequestError(
            f"The answer is to the query {served.key}, and says {body.head},{body.left},{body.right}.",
            hint="Send the query back as it came, with its token.",
            where="token",
        )
    participant = served.participant
    if participant == NOBODY:
        experiment = await context.catalogue.read(served.experiment)
        answering = await _arrive(context, request, experiment, body.puid, door="answer")
        participant = await context.store.turns.claim(served.experiment, NOBODY, served.nonce, answering.id)
        if served.published_ms or served.generation:
            await context.store.turns.withdraw_query(served.experiment, served.sampler, _asked(served))
    return replace(served, participant=participant, left=body.left, right=body.right)


def _asked(served: Served) -> Query:
    """Return the query as it was published."""
    return Query(
        served.head,
        (min(served.left, served.right), max(served.left, served.right)),
        score=served.score,
        trial_type=served.trial_type,
        probability=served.probability,
        generation=served.generation,
        published_ms=served.published_ms,
    )


async def _read_unsigned(context: Context, request: Request, experiment: ServedExperiment, body: OldAnswer) -> Served:
    """Return the query that a script made up itself, where the experiment allows it."""
    check_script(context, experiment)
    if not experiment.spec.security.accept_unsigned_answers:
        raise ForbiddenError(
            "The answer has no token, so the server cannot tell whether this query was asked.",
            hint="Send back everything that /query returned, or write security: {accept_unsigned_answers: true} into the description.",
            where="token",
        )
    n = len(experiment.targets)
    if max(body.head, body.left, body.right) >= n or len({body.head, body.left, body.right}) < 3:
        raise OldError(
            422,
            f"{body.head},{body.left},{body.right} is not a query.",
            hint=f"A query has three different targets from 0 to {n - 1}.",
            where="head",
        )
    if body.sampler not in experiment.spec.samplers:
        raise OldError(422, f"There is no sampler {body.sampler!r}.", where="sampler")
    participant = (await _arrive(context, request, experiment, body.puid, door="script")).id
    turn = await context.store.turns.begin_turn(experiment.id, participant, now_ms=context.now_ms())
    await context.store.turns.end_turn(experiment.id, participant, turn.number)
    passive = experiment.passive.get(body.sampler)
    drawn = "validation" if passive is not None and passive.repeats else "random"
    return Served(
        experiment=experiment.id,
        revision=turn.revision,
        participant=participant,
        session=queries.SCRIPT,
        trial=turn.number,
        sampler=body.sampler,
        head=body.head,
        left=body.left,
        right=body.right,
        score=body.score,
        trial_type=drawn if passive is not None else ("fallback" if body.score == NO_SCORE else "active"),
        probability=0.0,
        sampler_probability=0.0,
        generation=0,
        published_ms=0,
        served_ms=context.now_ms(),
        nonce=context.nonce(),
    )


async def _arrive(
    context: Context, request: Request, experiment: ServedExperiment, puid: str, *, door: Literal["script", "answer"]
) -> Participant:
    """Return the participant of this puid, as if their page had been opened."""
    if len(puid) > _LONGEST_PUID or not puid.isprintable():
        raise OldError(422, "The puid is not a valid id: it is too long or has invisible characters.", where="puid")
    return (await admit(context, request, experiment, Arrival("link", puid), door=door)).participant
