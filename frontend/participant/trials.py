"""The trials of participants: the query of a turn, and the record of its answer. Every trial waits for both."""

import asyncio
from typing import Annotated, TypeVar, cast

from pydantic import FailFast, Field, TypeAdapter, ValidationError

from frontend.context import Context
from frontend.errors import (
    BadRequestError,
    ConflictError,
    ElsewhereError,
    EndedError,
    GoneError,
    NotFoundError,
    body_of,
)
from frontend.experiments import OpenPage, ServedExperiment
from frontend.lifecycle import check_open, close_at_last_answer, come_back
from frontend.participant.checks import follow_up
from frontend.participant.page_content import AnswerReply, AnswersReply, ErrorContent, QueryReply
from frontend.participant.queries import (
    TRIALS_AHEAD,
    allows_spare,
    foresee,
    last_fixed,
    loads_ahead,
    next_query,
    prefetch_targets,
)
from frontend.participant.steps import missing_before_trials
from frontend.schemas import AnswerBody
from frontend.security import Session
from frontend.store.participants import Participant
from frontend.store.statuses import FINISHED, OUT, UNDER_WAY, Status
from frontend.store.turns import Turn
from salmon.errors import SalmonError, StoreError
from salmon.records import Answer, Served, Timing
from salmon.wire.keys import is_tryout

#: Answers accepted in one request: more than a page ever keeps unsent.
_MOST_ANSWERS = 500
#: Mistakes of one request that are told.
_MOST_TOLD = 20

Item = TypeVar("Item")
_answers = TypeAdapter(Annotated[list[AnswerBody], FailFast(), Field(max_length=_MOST_ANSWERS)])


async def give_query(
    context: Context, session_key: str, *, number: int = 0, spare: bool = False, skipped: tuple[int, ...] = ()
) -> QueryReply:
    """Return the query of a participant's turn, or what the page is told in its place.

    Of a page that has asked before, everything but its turn is known: the turn begins if the store has nothing else of
    the participant and the experiment, and all is read anew where it has.
    """
    page = context.open_pages.find(session_key)
    if page is not None and not spare:
        turn = await _begin(context, page, number, skipped=skipped, expected=True)
        if turn.outcome != "changed":
            return await _reply(context, page, turn)
        context.open_pages.forget(session_key)
    session = context.signer.read_session(session_key)
    experiment, participant = await asyncio.gather(
        context.catalogue.read(session.experiment),
        context.store.participants.read(session.experiment, session.participant),
    )
    if participant is None:
        raise NotFoundError("This session is unknown.", hint="Open the link of the study again.")
    experiment = experiment.for_participant(participant)
    if participant.status == Status.FAILED_CHECKS:
        return {"done": True, "answers": participant.answers, "out": participant.status}
    await _check_may_ask(context, experiment, session, participant)
    if not is_tryout(session.participant) and not experiment.state.lets_finish:
        check_open(experiment.state.state)
    ends_here = experiment.spec.html.max_queries <= 0 and experiment.state.state == "closed"
    if ends_here or participant.status in FINISHED:
        return {"done": True, "answers": participant.answers}
    if spare and not allows_spare(experiment, participant=session.participant, after=participant.position):
        return {"none": True}
    parts = (last_fixed(experiment), loads_ahead(experiment.targets), participant.position)
    page = OpenPage(session, participant, experiment, *parts)
    turn = await _begin(context, page, number, spare=spare, skipped=skipped)
    context.open_pages.remember(session_key, page)
    return await _reply(context, page, turn)


async def _begin(
    context: Context,
    page: OpenPage,
    number: int,
    *,
    spare: bool = False,
    skipped: tuple[int, ...] = (),
    expected: bool = False,
) -> Turn:
    session, experiment = page.session, page.experiment
    foreseen = None
    if expected and number > 0:
        foreseen = foresee(context, session, experiment, number=number, position=page.position + 1)
    turn = await context.store.turns.begin_turn(
        session.experiment,
        session.participant,
        now_ms=context.now_ms(),
        number=number,
        spare=spare,
        skipped=skipped,
        ends_after=experiment.spec.html.max_queries,
        listed_until=page.last_fixed,
        expected=(session.session, experiment.state.tag) if expected else ("", ""),
        foreseen=foreseen,
    )
    if turn.outcome == "begun" and not turn.spare:
        page.position = turn.position
    return turn


async def _reply(context: Context, page: OpenPage, turn: Turn) -> QueryReply:
    """Return what the page is told of a turn that has begun, or could not."""
    if turn.outcome != "begun":
        return _explain(turn)
    session, parsed = page.session, page.experiment
    if turn.revision != page.experiment.state.revision:
        parsed = (await context.catalogue.revision(session.experiment, turn.revision)).for_participant(page.participant)
    served = await next_query(context, session, turn, parsed)
    soon: list[int] = []
    if page.loads_ahead and not turn.spare:
        soon = await prefetch_targets(
            context.store,
            session.experiment,
            parsed,
            session.participant,
            after=turn.position,
            spares=turn.number - turn.position,
            trials=TRIALS_AHEAD - 1,
        )
    return {
        "token": context.signer.sign_served(served),
        "head": served.head,
        "left": served.left,
        "right": served.right,
        "sampler": served.sampler,
        "score": served.score,
        "trial": served.trial,
        "soon": soon,
    }


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


async def record_answers_of(context: Context, content: bytes) -> tuple[int, AnswersReply]:
    """Record the answers of a request's body; return the status and what became of each."""
    bodies = read_one_or_many(content, _answers, _MOST_ANSWERS, "answers")
    results = [await _record(context, body) for body in bodies]
    refused = [result["error"]["code"] for result in results if "error" in result]
    status = 200 if len(refused) < len(results) else 410 if set(refused) == {GoneError.code} else 422
    return status, {"results": results}


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


def read_one_or_many(content: bytes, adapter: TypeAdapter[list[Item]], most: int, what: str) -> list[Item]:
    """Return the body as a list, whether one thing was sent or several.

    Reading ends at the first item too many, and of many mistakes the first ones are told.
    """
    content = content.strip()
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
