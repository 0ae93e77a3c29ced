"""Files that leave the system, written page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from frontend.accounts import WithExperimenter
from frontend.catalogue import Experiment
from frontend.context import Context, WithContext
from salmon.export import RESPONSES, CsvFile, Responses, Row, TargetNames

#: Rows turned into text at once.
_ROWS = 1000

router = APIRouter(prefix="/api/experiments/{slug}/exports")


@router.get("/responses.csv", response_class=Response)
async def responses_csv(slug: str, context: WithContext, _: WithExperimenter) -> Response:
    """Every answer, in the order in which they came."""
    experiment = await context.catalogue.find(slug)
    names = {"Content-Disposition": f'attachment; filename="{slug}-responses.csv"', "Cache-Control": "no-store"}
    return StreamingResponse(_csv(context, experiment), media_type="text/csv; charset=utf-8", headers=names)


async def _csv(context: Context, experiment: Experiment) -> AsyncIterator[bytes]:
    puids: dict[str, str] = {}
    responses = Responses(
        targets=[TargetNames(target.html, target.filename) for target in experiment.targets],
        started_ms=experiment.state.opened_ms,
        puids=puids,
    )
    rows: list[Row] = []
    file = CsvFile(RESPONSES)
    yield file.begin()
    async for stream_id, answer in context.store.answers.read(experiment.id):
        participant = answer.served.participant
        if participant not in puids:
            values = await context.store.participants.read(experiment.id, participant)
            puids[participant] = values.get("puid", participant)
        rows.append(responses.row(stream_id, answer))
        if len(rows) == _ROWS:
            yield file.rows(rows)
            rows.clear()
    yield file.rows(rows)
