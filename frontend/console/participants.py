"""Routes about participants: their quality, and whom the experimenter keeps."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from frontend.auth import WithExperiment, WithExperimenter
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.experiments import ServedExperiment
from frontend.schemas import Body, Json
from frontend.store.participants import Keep, Participant
from frontend.transfer.subprocesses import VERDICTS, ExportOrder, WithSubprocesses
from salmon.quality import Verdict
from salmon.wire import StoredVerdicts

router = APIRouter(prefix="/api/experiments/{slug}/participants")


class DecisionBody(Body):
    """Whether to keep a participant: the experimenter's decision, or `auto` for the proposal."""

    keep: Keep
    note: Annotated[str, Field(max_length=2000)] = ""


@router.get("")
async def list_participants(
    experiment: WithExperiment,
    context: WithContext,
    subprocesses: WithSubprocesses,
    wait: Annotated[bool, Query()] = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Json:
    """Return participants with their figures, flags and reasons; statuses and counters are those of this moment.

    The figures are those found last, as of the answer `as_of`. Where answers or decisions have come since, `fresh` is
    false and newer figures are being found, or soon will be: ask again, or `wait` for them.
    """
    quality, fresh = await _quality(context, experiment)
    if not fresh:
        slug = experiment.state.slug
        order = ExportOrder(slug, *VERDICTS).encode()
        finding = subprocesses.begin(f"verdicts {slug}", "export", order, urgent=wait or quality is None)
        if wait and finding is not None:
            await finding
            quality, fresh = await _quality(context, experiment)
    verdicts = quality.verdicts if quality else {}
    arrivals = await context.store.export_reader.read_arrivals(experiment.id)
    names = list(dict.fromkeys((*arrivals.values(), *verdicts)))
    rows: list[Json] = []
    async for page in context.store.export_reader.read_people(experiment.id, names[offset : offset + limit]):
        rows += [_row(person, verdicts.get(person.id)) for person in page if person.stored]
    return {
        "as_of": quality.as_of if quality else None,
        "fresh": fresh,
        "total": len(names),
        "offset": offset,
        "participants": rows,
    }


@router.put("/{participant}")
async def decide(
    experiment: WithExperiment,
    participant: str,
    body: DecisionBody,
    context: WithContext,
    experimenter: WithExperimenter,
) -> Json:
    """Keep or exclude a participant by hand, or leave it to the proposal. Nothing is deleted, and nobody's payment changes."""
    people = context.store.participants
    if await people.read(experiment.id, participant) is None:
        raise NotFoundError(
            f"There is no participant {participant!r} in this experiment.",
            hint="Use an id from the column `participant` of the exports, not a platform id.",
            where="participant",
        )
    decided = await people.decide(
        experiment.id, participant, body.keep, note=body.note, by=experimenter.name, now_ms=context.now_ms()
    )
    quality = await people.read_verdicts(experiment.id)
    return _row(decided, quality.verdicts.get(participant) if quality else None)


async def _quality(context: Context, experiment: ServedExperiment) -> tuple[StoredVerdicts | None, bool]:
    """Return the verdicts found last, and whether nothing has happened since."""
    quality = await context.store.participants.read_verdicts(experiment.id)
    if quality is None:
        return None, False
    state = await context.store.experiments.read(experiment.id)
    now = (await context.store.export_reader.last_answer(experiment.id), state.counters.get("decisions", 0))
    return quality, now == (quality.as_of, quality.decisions)


def _row(person: Participant, verdict: Verdict | None) -> Json:
    decision = person.decision(verdict)
    return {
        "participant": person.id,
        "puid": person.puid,
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
        "figures": asdict(verdict.figures) if verdict else None,
        "flags": [asdict(flag) for flag in verdict.flags] if verdict else [],
    }
