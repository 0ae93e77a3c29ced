"""The route that brings a bundle back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from frontend.accounts import WithExperimenter
from frontend.context import WithContext
from frontend.errands import WithErrands
from frontend.errors import BadRequestError
from frontend.launching import slug_of
from frontend.schemas import Json
from frontend.uploads import on_disk
from salmon.wire import decode_json

RESTORER = "frontend.restoring"

router = APIRouter(prefix="/api/experiments")


@router.post("/import", status_code=201)
async def import_bundle(
    request: Request,
    context: WithContext,
    errands: WithErrands,
    experimenter: WithExperimenter,
    bundle: Annotated[UploadFile, File()],
    name: Annotated[str, Form(max_length=60)] = "",
) -> Json:
    """Make a paused experiment of a bundle that `GET …/bundle` or `salmon export` has written, here or elsewhere."""
    async with on_disk(bundle) as path:
        if path is None:
            raise BadRequestError("There is no file in this form.", hint="Send the ZIP as `bundle`.", where="bundle")
        slug = slug_of(name) if name else ""
        made = decode_json(await errands.run(RESTORER, str(path), slug, experimenter.name))
    return {**made, "address": f"{context.address(request)}/e/{made['slug']}/"}
