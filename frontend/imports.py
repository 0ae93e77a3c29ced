"""The route that brings experiments in: bundles, and what other programs recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from frontend.accounts import WithExperimenter
from frontend.context import Context, WithContext
from frontend.errands import Errands, WithErrands
from frontend.errors import BadRequestError
from frontend.launching import free_slug, slug_of
from frontend.schemas import Json
from frontend.uploads import on_disk
from salmon.wire import decode_json, encode_json

RESTORER = "frontend.restoring"

router = APIRouter(prefix="/api/experiments")


@router.post("/import", status_code=201)
async def import_files(
    request: Request,
    context: WithContext,
    errands: WithErrands,
    experimenter: WithExperimenter,
    bundle: Annotated[UploadFile, File()],
    config: Annotated[UploadFile | None, File()] = None,
    targets: Annotated[UploadFile | None, File()] = None,
    name: Annotated[str, Form(max_length=60)] = "",
) -> Json:
    """Make a paused experiment of a `bundle` that `GET …/bundle` or `salmon export` has written, here or elsewhere.

    In its place may stand the answers or the backup of another program, with the description and the ZIP of targets
    where they are at hand.
    """
    made = await import_upload(
        context, errands, bundle, config=config, targets=targets, name=name, owner=experimenter.name
    )
    return {**made, "address": f"{context.address(request)}/e/{made['slug']}/"}


async def import_upload(
    context: Context,
    errands: Errands,
    upload: UploadFile,
    *,
    config: UploadFile | None,
    targets: UploadFile | None,
    name: str,
    owner: str,
) -> Json:
    """Have a process of its own make an experiment of uploads; what it made."""
    called = Path(upload.filename or "answers").name
    async with on_disk(upload) as path, on_disk(config) as described, on_disk(targets) as media:
        if path is None:
            raise BadRequestError("There is no file in this form.", hint="Send the file as `bundle`.", where="bundle")
        order = {"answers": str(path), "name": called, "slug": slug_of(name) if name else "", "owner": owner}
        order["otherwise"] = await free_slug(context, called.partition(".")[0], given=False)
        order |= {"config": str(described or ""), "targets": str(media or "")}
        return decode_json(await errands.run(RESTORER, encode_json(order)))
