"""Files that leave the system: each written by a process of its own and handed on as it comes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from frontend.access import WithExperiment
from frontend.errands import WRITER, Errands, WithErrands
from frontend.writer.order import BUNDLE, Excluded, Order, checked
from salmon.export import MEDIA_TYPES

router = APIRouter(prefix="/api/experiments")


@router.get("/{slug}/exports/{name}.{extension}", response_class=Response)
async def export(
    experiment: WithExperiment,
    errands: WithErrands,
    name: str,
    extension: str,
    excluded: Annotated[Excluded, Query()] = "mark",
    sampler: Annotated[str, Query(max_length=40)] = "",
    generation: Annotated[int, Query(ge=0)] = 0,
    personal: Annotated[bool, Query()] = True,
) -> Response:
    """One file: `excluded=leave_out` without the answers of participants who are left out, `personal=no` without
    platforms' ids; of one `sampler`, or embeddings as of a `generation`.
    """
    order = Order(experiment.state.slug, name, extension, excluded, sampler, generation, personal)
    return await _file(errands, checked(order))


@router.get("/{slug}/bundle", response_class=Response)
async def bundle(
    experiment: WithExperiment,
    errands: WithErrands,
    excluded: Annotated[Excluded, Query()] = "mark",
    personal: Annotated[bool, Query()] = True,
) -> Response:
    """Every file in one ZIP, which is also the backup that `salmon import` restores."""
    return await _file(errands, Order(experiment.state.slug, *BUNDLE, excluded, personal=personal))


async def _file(errands: Errands, order: Order) -> Response:
    pieces = await errands.stream(WRITER, order.encode())
    headers = {"Content-Disposition": f'attachment; filename="{order.filename}"', "Cache-Control": "no-store"}
    return StreamingResponse(pieces, media_type=MEDIA_TYPES[order.extension], headers=headers)
