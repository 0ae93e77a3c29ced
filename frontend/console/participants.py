"""Routes about the quality of participants: what is found, and whom the experimenter keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from frontend.auth import WithExperiment, WithExperimenter
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.experiments import Experiment
from frontend.schemas import Body, Json
from frontend.transfer.orders import JUDGEMENT, Order
from frontend.transfer.subprocesses import WithErrands
from salmon.export.participants import Decision
from salmon.wire import StoredVerdicts

router = APIRouter(prefix="/api/experiments/{slug}/participants")


class DecisionBody(Body):
    """Whom to keep: by the experimenter's word, or by the proposal again."""

    keep: Literal["keep", "exclude", "auto"]
    note: Annotated[str, Field(max_length=2000)] = ""


@router.get("")
async def list_participants(
    experiment: WithExperiment,
    context: WithContext,
    errands: WithErrands,
    wait: Annotated[bool, Query()] = False,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Json:
    """Participants with their figures, flags and reasons; statuses and counters are those of this moment.

    The figures are those found last, as of the answer `as_of`. Where answers or decisions have come since, `fresh` is
    false and newer figures are being found, or soon will be: ask again, or `wait` for them.
    """
    judgement, fresh = await _judgement(context, experiment)
    if not fresh:
        slug = experiment.state.slug
        order = Order(slug, *JUDGEMENT).encode()
        finding = errands.begin(f"judgement {slug}", "export", order, urgent=wait or judgement is None)
        if wait and finding is not None:
            await finding
            judgement, fresh = await _judgement(context, experiment)
    verdicts = judgement.verdicts if judgement else {}
    arrivals = await context.store.logbook.read_arrivals(experiment.id)
    names = list(dict.fromkeys((*arrivals.values(), *verdicts)))
    rows: list[Json] = []
    async for page in context.store.logbook.read_people(experiment.id, names[offset : offset + limit]):
        rows += [_row(name, values, Decision.of(values, verdicts.get(name))) for name, values in page if values]
    return {
        "as_of": judgement.as_of if judgement else None,
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
    values = await context.store.participants.read(experiment.id, participant)
    if "first_ms" not in values:
        raise NotFoundError(
            f"There is no participant {participant!r} in this experiment.",
            hint="Their ids are the column participant of every file, not a platform's.",
            where="participant",
        )
    decided = {
        "keep": body.keep,
        "keep_note": body.note,
        "keep_by": experimenter.name,
        "keep_ms": str(context.now_ms()),
    }
    await context.store.logbook.decide(experiment.id, participant, decided)
    judgement = StoredVerdicts.decode(await context.store.logbook.read_judgement(experiment.id))
    verdict = judgement.verdicts.get(participant) if judgement else None
    return _row(participant, {**values, **decided}, Decision.of({**values, **decided}, verdict))


async def _judgement(context: Context, experiment: Experiment) -> tuple[StoredVerdicts | None, bool]:
    """What was found last, and whether nothing has happened since."""
    logbook = context.store.logbook
    judgement = StoredVerdicts.decode(await logbook.read_judgement(experiment.id))
    if judgement is None:
        return None, False
    state = await context.store.experiments.read(experiment.id)
    now = (await logbook.last_answer(experiment.id), state.counters.get("decisions", 0))
    return judgement, now == (judgement.as_of, judgement.decisions)


def _row(name: str, values: dict[str, str], decision: Decision) -> Json:
    verdict = decision.verdict
    return {
        "participant": name,
        "puid": values.get("puid", ""),
        "source": values.get("source", ""),
        "status": values.get("status", ""),
        "asked": int(values.get("turns", 0)),
        "answers": int(values.get("answers", 0)),
        "first_ms": int(values.get("first_ms", 0)),
        "last_ms": int(values.get("last_ms", 0)),
        "completed_ms": int(values.get("completed_ms", 0)),
        "keep": decision.keep,
        "keep_auto": verdict is None or verdict.keep,
        "keep_manual": decision.manual,
        "note": decision.note,
        "decided_by": decision.by,
        "decided_ms": decision.decided_ms,
        "figures": asdict(verdict.figures) if verdict else None,
        "flags": [asdict(flag) for flag in verdict.flags] if verdict else [],
    }
