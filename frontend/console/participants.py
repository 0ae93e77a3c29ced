"""Routes about participants: their quality, whom the experimenter keeps, and finding,
exporting and erasing one person.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment, WithAccount, WithExperiment, WithExperimenter, may_edit
from frontend.context import Context, CountedUndecided, WithContext
from frontend.errors import NotFoundError
from frontend.experiments import ServedExperiment
from frontend.history import MapEmbedding
from frontend.schemas import Body
from frontend.store.participants import Keep, Participant
from frontend.transfer.erasure import AnswersOf, ErasureRow, PeopleOrder, begin_erasing, check_may_erase, read_erasures
from frontend.transfer.subprocesses import VERDICTS, ExportOrder, Subprocesses, WithSubprocesses
from salmon.errors import listed
from salmon.quality import Figures, Flag, Verdict
from salmon.records import Answer
from salmon.wire import StoredVerdicts, decode_json


class ParticipantRow(TypedDict):
    """A participant with their figures, the flags and the decision."""

    participant: str
    puid: str
    source: str
    status: str
    asked: int
    answers: int
    first_ms: int
    last_ms: int
    completed_ms: int
    keep: bool
    keep_auto: bool
    keep_manual: str
    note: str
    decided_by: str
    decided_ms: int
    figures: Figures | None
    flags: list[Flag]


class ParticipantsReply(TypedDict):
    """Participants, as of the answer `as_of`; `fresh` is false where newer figures are being found."""

    as_of: str | None
    fresh: bool
    total: int
    offset: int
    participants: list[ParticipantRow]


class DecidedReply(TypedDict):
    """The participants about whom was decided."""

    participants: list[ParticipantRow]


class AnswersOfParticipantReply(TypedDict):
    """Answers in order, rows of `columns`: time, response time, side, type, and whether the newest map predicts it."""

    columns: list[str]
    answers: list[tuple[int, float | None, Literal["left", "right"], str, bool | None]]


class PersonInExperiment(TypedDict):
    """What an experiment stores of a person, as counts."""

    slug: str
    participant: str
    puid: str
    source: str
    status: str
    first_ms: int
    stored: dict[str, int]


class PersonInBundle(TypedDict):
    """A kept bundle that a person is in."""

    bundle: str
    slug: str
    participant: str


class PersonReply(TypedDict):
    """What is stored of a person."""

    id: str
    experiments: list[PersonInExperiment]
    bundles: list[PersonInBundle]


router = APIRouter(prefix="/api")

#: The flags of participants who used one browser or one network, and how many of the others they name.
SAME_BROWSER, SAME_NETWORK = "same_browser", "same_network"
_MOST_NAMED = 3
#: The columns of one participant's answers, and how many of them are shown.
ANSWER_COLUMNS = ("received_ms", "rt_ms", "side", "trial_type", "predicted")
MOST_ANSWERS_SHOWN = 2000


class DecisionBody(Body):
    """Whether to keep a participant: the experimenter's decision, or `auto` for the proposal."""

    keep: Keep
    note: Annotated[str, Field(max_length=2000)] = ""


class NamedDecision(DecisionBody):
    """A decision about one participant."""

    participant: Annotated[str, Field(min_length=1, max_length=64)]


class DecisionsBody(Body):
    """Decisions about several participants; all are carried out, or none."""

    decisions: Annotated[tuple[NamedDecision, ...], Field(min_length=1, max_length=1000)]


class ErasureBody(Body):
    """Whom to erase: a platform id, participant id or link's id; what becomes of the
    answers; experiments, all if none.
    """

    id: Annotated[str, Field(min_length=1, max_length=200)]
    answers: AnswersOf
    experiments: tuple[str, ...] = ()


@router.get("/people")
async def find_person(
    context: WithContext,
    experimenter: WithExperimenter,
    subprocesses: WithSubprocesses,
    name: Annotated[str, Query(alias="id", min_length=1, max_length=200)],
) -> PersonReply:
    """Return what is stored of a person in the experiments that one may see, as counts.

    `id` is a platform id, a participant id, or the value of a parameter of the link.
    """
    order = PeopleOrder("find", name, experimenter.name, experimenter.id, experimenter.role)
    return cast("PersonReply", await _about(context, subprocesses, order))


@router.get("/people/export", response_class=Response)
async def export_person(
    context: WithContext,
    experimenter: WithExperimenter,
    subprocesses: WithSubprocesses,
    name: Annotated[str, Query(alias="id", min_length=1, max_length=200)],
) -> Response:
    """Return everything that is stored of a person, as readable JSON."""
    found = await _about(
        context, subprocesses, PeopleOrder("export", name, experimenter.name, experimenter.id, experimenter.role)
    )
    headers = {"Content-Disposition": 'attachment; filename="person.json"', "Cache-Control": "no-store"}
    content = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
    return Response(content, media_type="application/json", headers=headers)


@router.post("/people/erasures", status_code=202)
async def erase_person(
    body: ErasureBody, context: WithContext, experimenter: WithExperimenter, subprocesses: WithSubprocesses
) -> ErasureRow:
    """Erase a person. The answers stay as rows of nobody (`keep`) or go (`remove`). Ask
    for the erasure until it is done.
    """
    order = PeopleOrder(
        "erase", body.id, experimenter.name, experimenter.id, experimenter.role, body.experiments, body.answers
    )
    made = await _about(context, subprocesses, order)
    begin_erasing(subprocesses)
    return (await read_erasures(context))[made["erasure"]].shown(made["erasure"])


@router.get("/people/erasures")
async def list_erasures(context: WithContext, experimenter: WithExperimenter) -> list[ErasureRow]:
    """Return erasures, the newest first: one's own; the server's owner sees all. They lead to nobody."""
    found = sorted((await read_erasures(context)).items(), key=lambda item: -item[1].asked_ms)
    return [
        erasure.shown(name)
        for name, erasure in found
        if experimenter.role == "owner" or erasure.by == experimenter.name
    ]


@router.get("/people/erasures/{erasure}")
async def read_erasure(erasure: str, context: WithContext, experimenter: WithExperimenter) -> ErasureRow:
    """Return how far an erasure is."""
    known = next((each for each in await list_erasures(context, experimenter) if each["erasure"] == erasure), None)
    if known is None:
        raise NotFoundError(
            f"There is no erasure {erasure!r}.", hint="The list of erasures is at /api/people/erasures."
        )
    return known


@router.get("/experiments/{slug}/participants")
async def list_participants(
    experiment: WithExperiment,
    context: WithContext,
    subprocesses: WithSubprocesses,
    experimenter: WithAccount,
    wait: Annotated[bool, Query()] = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> ParticipantsReply:
    """Return participants with their figures, flags and reasons; statuses and counters are those of this moment.

    The figures are those found last, as of the answer `as_of`. Where answers, decisions or a newer map have come since,
    `fresh` is false and newer figures are being found, or soon will be: ask again, or `wait` for them. Who may only
    look at the experiment sees no platform ids.
    """
    quality, fresh = await find_verdicts(context, experiment, subprocesses, wait=wait)
    verdicts = quality.verdicts if quality else {}
    arrivals = await context.store.export_reader.read_arrivals(experiment.id)
    names = list(dict.fromkeys((*arrivals.values(), *verdicts)))
    personal = may_edit(experimenter, experiment.state)
    rows: list[ParticipantRow] = []
    browsers: dict[str, str] = {}
    networks: dict[str, str] = {}
    async for page in context.store.export_reader.read_people(experiment.id, names[offset : offset + limit]):
        rows += [_row(person, verdicts.get(person.id), personal=personal) for person in page if person.stored]
        browsers |= {person.id: person.browser for person in page if person.stored}
        networks |= {person.id: person.network for person in page if person.stored}
    _add_shared(rows, browsers, SAME_BROWSER, "Took part with the same browser as")
    _add_shared(rows, networks, SAME_NETWORK, "Came from the same network, within three days, as")
    return {
        "as_of": quality.as_of if quality else None,
        "fresh": fresh,
        "total": len(names),
        "offset": offset,
        "participants": rows,
    }


@router.get("/experiments/{slug}/participants/{participant}/answers")
async def list_answers(experiment: WithExperiment, participant: str, context: WithContext) -> AnswersOfParticipantReply:
    """Return the answers of one participant in order, as rows of `columns`; at most the first 2,000.

    `predicted` says whether the newest embedding predicts the answer, where there is an embedding.
    """
    if await context.store.participants.read(experiment.id, participant) is None:
        raise _unknown(participant)
    answers = await context.store.export_reader.read_answers_of(experiment.id, participant, most=MOST_ANSWERS_SHOWN)
    shown = await _newest_map(context, experiment)
    predicted = _predictions(shown.coordinates, answers) if shown is not None else [None] * len(answers)
    return {
        "columns": list(ANSWER_COLUMNS),
        "answers": [
            (
                answer.received_ms,
                answer.timing.rt_ms if answer.timing.rt_ms >= 0 else None,
                "left" if answer.winner == answer.served.left else "right",
                answer.served.trial_type,
                fits,
            )
            for answer, fits in zip(answers, predicted, strict=True)
        ],
    }


@router.put("/experiments/{slug}/participants/{participant}")
async def decide(
    experiment: EditableExperiment,
    participant: str,
    body: DecisionBody,
    context: WithContext,
    experimenter: WithAccount,
) -> ParticipantRow:
    """Keep or exclude a participant by hand, or leave it to the proposal. Nothing is
    deleted, and nobody's payment changes.
    """
    decision = NamedDecision(participant=participant, keep=body.keep, note=body.note)
    (row,) = await _decide(context, experiment, (decision,), by=experimenter.name)
    return row


@router.put("/experiments/{slug}/participants")
async def decide_together(
    experiment: EditableExperiment, body: DecisionsBody, context: WithContext, experimenter: WithAccount
) -> DecidedReply:
    """Decide about several participants at once: all decisions are stored, or none where somebody is unknown."""
    return {"participants": await _decide(context, experiment, body.decisions, by=experimenter.name)}


async def _decide(
    context: Context, experiment: ServedExperiment, decisions: Sequence[NamedDecision], *, by: str
) -> list[ParticipantRow]:
    people, known = context.store.participants, set[str]()
    names = [decision.participant for decision in decisions]
    async for page in context.store.export_reader.read_people(experiment.id, names):
        known.update(person.id for person in page if person.stored)
    if unknown := [name for name in names if name not in known]:
        raise _unknown(unknown[0])
    wanted: dict[str, tuple[Keep, str]] = {each.participant: (each.keep, each.note) for each in decisions}
    decided = await people.decide(experiment.id, wanted, by=by, now_ms=context.now_ms())
    quality = await people.read_verdicts(experiment.id)
    verdicts = quality.verdicts if quality else {}
    return [_row(person, verdicts.get(person.id), personal=True) for person in decided]


def _unknown(participant: str) -> NotFoundError:
    return NotFoundError(
        f"There is no participant {participant!r} in this experiment.",
        hint="Use an id from the column `participant` of the exports, not a platform id.",
        where="participant",
    )


async def _newest_map(context: Context, experiment: ServedExperiment) -> MapEmbedding | None:
    """Return the newest embedding of the sampler whose model has seen most answers."""
    newest = await context.store.models.find_newest(experiment.id, tuple(experiment.spec.samplers))
    return await context.histories.newest(experiment.id, newest.sampler) if newest else None


def _predictions(coordinates: Any, answers: Sequence[Answer]) -> list[bool | None]:
    """Return whether each answer's winner lies nearer to the head; None for catch trials and practice."""

    def d2(one: int, other: int) -> float:
        return float(((coordinates[one] - coordinates[other]) ** 2).sum())

    return [
        None
        if served.trial_type in {"catch", "practice"}
        else d2(served.head, winner) < d2(served.head, served.left + served.right - winner)
        for served, winner in ((answer.served, answer.winner) for answer in answers)
    ]


async def _about(context: Context, subprocesses: Subprocesses, order: PeopleOrder) -> dict[str, Any]:
    """Have a subprocess read everything about a person; it may take seconds where there are many answers."""
    check_may_erase(context.settings)
    return decode_json(await subprocesses.run("people", order.encode()))


#: What is under way may have begun before the last answer or decision, so a second one is waited for.
_MOST_WAITS = 2


async def find_verdicts(
    context: Context, experiment: ServedExperiment, subprocesses: Subprocesses, *, wait: bool
) -> tuple[StoredVerdicts | None, bool]:
    """Return the verdicts found last, and whether nothing has happened since; newer ones are begun, or waited for."""
    quality, fresh = await _quality(context, experiment)
    for _ in range(_MOST_WAITS if wait else 1):
        if fresh:
            break
        finding = _begin_finding(subprocesses, experiment, urgent=wait or quality is None)
        if wait and finding is not None:
            await finding
            quality, fresh = await _quality(context, experiment)
    return quality, fresh


async def count_proposed(context: Context, experiment: ServedExperiment, subprocesses: Subprocesses) -> int:
    """Return of how many participants the exclusion is proposed and nobody has decided; newer verdicts are begun.

    The subprocess that finds verdicts counts them. They are counted here only after a decision, once for all pages that
    are open, until it has found verdicts again.
    """
    people = context.store.participants
    known, now = await people.read_proposals(experiment.id), await _newest(context, experiment)
    if known is None or (known.as_of, known.decisions, known.model) != now:
        _begin_finding(subprocesses, experiment, urgent=known is None)
    if known is None:
        return 0
    _, decisions, _ = now
    if decisions == known.decisions:
        return known.undecided
    counted = context.undecided.get(experiment.id)
    if counted is None or counted.of != (known, decisions):
        counted = CountedUndecided((known, decisions), await people.count_undecided(experiment.id))
        context.undecided[experiment.id] = counted
    return counted.count


def _begin_finding(
    subprocesses: Subprocesses, experiment: ServedExperiment, *, urgent: bool
) -> asyncio.Task[bytes] | None:
    slug = experiment.state.slug
    return subprocesses.begin(f"verdicts {slug}", "export", ExportOrder(slug, *VERDICTS).encode(), urgent=urgent)


async def _quality(context: Context, experiment: ServedExperiment) -> tuple[StoredVerdicts | None, bool]:
    """Return the verdicts found last, and whether nothing has happened since."""
    quality = await context.store.participants.read_verdicts(experiment.id)
    if quality is None:
        return None, False
    return quality, await _newest(context, experiment) == (quality.as_of, quality.decisions, quality.model)


async def _newest(context: Context, experiment: ServedExperiment) -> tuple[str, int, str]:
    """Return what verdicts depend on, as it is now: the last answer, the number of decisions, and the newest model."""
    state = await context.store.experiments.read(experiment.id)
    newest = await context.store.models.find_newest(experiment.id, tuple(experiment.spec.samplers))
    last = await context.store.export_reader.last_answer(experiment.id)
    return last, state.counters.get("decisions", 0), newest.name if newest else ""


def _add_shared(rows: Sequence[ParticipantRow], marks: Mapping[str, str], name: str, shared: str) -> None:
    """Add a flag, which excludes nobody, to those who share a browser or a network: one
    person twice, or two of one place.

    `marks` holds what is stored of it for each participant: a digest of a secret of the browser's, or of an address
    under a key that was thrown away. `shared` begins the sentence.
    """
    together: dict[str, list[ParticipantRow]] = {}
    for row in rows:
        if marks.get(row["participant"]):
            together.setdefault(marks[row["participant"]], []).append(row)
    for group in (each for each in together.values() if len(each) > 1):
        for row in group:
            others = [other["puid"] or other["participant"] for other in group if other is not row]
            shown = others[:_MOST_NAMED] + ([f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else [])
            row["flags"] = [*row["flags"], Flag(name, f"{shared} {listed(shown, 'and')}.", False)]


def _pasted(person: Participant) -> list[Flag]:
    """Return a flag, which excludes nobody, for somebody who pasted texts into text questions."""
    if not person.pasted:
        return []
    copied = f", and copied from them {_times(person.copied)}" if person.copied else ""
    return [Flag("pasted", f"Pasted into text questions {_times(person.pasted)}{copied}.", False)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _row(person: Participant, verdict: Verdict | None, *, personal: bool) -> ParticipantRow:
    decision = person.decision(verdict)
    return {
        "participant": person.id,
        "puid": person.puid if personal else "",
        "source": person.source,
        "status": person.status,
        "asked": person.turns,
        "answers": person.answers,
        "first_ms": person.first_ms,
        "last_ms": person.last_ms,
        "completed_ms": person.completed_ms,
        "keep": decision.keep,
        "keep_auto": verdict is None or verdict.keep,
        "keep_manual": decision.manual,
        "note": decision.note,
        "decided_by": decision.by,
        "decided_ms": decision.decided_ms,
        "figures": verdict.figures if verdict else None,
        "flags": [*(verdict.flags if verdict else ()), *_pasted(person)],
    }
