"""Routes of files that leave the system or come in: exports, bundles and imports.

Each file is written or read by a subprocess. Bundles that are written before an experiment is deleted are kept in the
folder `bundles` of the data directory.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import fsspec
from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from frontend.auth import Experimenter, UploadRoute, WithAccount, WithExperiment, WithExperimenter, may_edit, note
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ForbiddenError
from frontend.experiments import ServedExperiment
from frontend.launching import free_slug, slug_of
from frontend.media import spool_upload
from frontend.schemas import Json
from frontend.transfer.subprocesses import (
    BUNDLE,
    Damaged,
    Excluded,
    ExportOrder,
    ImportOrder,
    Subprocesses,
    WithSubprocesses,
    check_order,
)
from salmon.export import MEDIA_TYPES
from salmon.wire import decode_json


class ImportedReply(TypedDict):
    """An experiment that was imported; `notes` say what could not be taken over."""

    slug: str
    state: str
    answers: int
    participants: int
    notes: list[str]
    message: str
    address: str


_LONGEST_HEADER = 4000

router = APIRouter(prefix="/api/experiments", route_class=UploadRoute)


@router.get("/{slug}/exports/{name}.{extension}", response_class=Response)
async def export(
    experiment: WithExperiment,
    subprocesses: WithSubprocesses,
    experimenter: WithAccount,
    name: str,
    extension: str,
    excluded: Annotated[Excluded, Query()] = "mark",
    sampler: Annotated[str, Query(max_length=40)] = "",
    generation: Annotated[int, Query(ge=0)] = 0,
    personal: Annotated[bool | None, Query()] = None,
    damaged: Annotated[Damaged, Query()] = "refuse",
) -> Response:
    """Return one file of an experiment.

    `excluded=leave_out` omits the answers of participants who are left out, `personal=no` the ids of platforms, which
    only those get who may change the experiment; `sampler` and `generation` choose embeddings. `damaged=leave_out`
    omits answers whose checksum is wrong, which otherwise are an error that names them.
    """
    shown = shows_platform_ids(experimenter, experiment, personal, only_them=name == "platform_ids")
    return await send_file(
        subprocesses,
        check_order(ExportOrder(experiment.state.slug, name, extension, excluded, sampler, generation, shown, damaged)),
    )


@router.get("/{slug}/bundle", response_class=Response)
async def bundle(
    context: WithContext,
    experiment: WithExperiment,
    subprocesses: WithSubprocesses,
    experimenter: WithAccount,
    excluded: Annotated[Excluded, Query()] = "mark",
    personal: Annotated[bool | None, Query()] = None,
    damaged: Annotated[Damaged, Query()] = "refuse",
) -> Response:
    """Return every file in one ZIP, which is also the backup that `salmon import` restores.

    Files of targets that are missing or were altered are left out; the header `X-Salmon-Media-Problems` names them, and
    so do the manifest and the README.
    """
    shown = shows_platform_ids(experimenter, experiment, personal)
    order = ExportOrder(experiment.state.slug, *BUNDLE, excluded, personal=shown, damaged=damaged)
    return await send_file(subprocesses, order, headers=await media_headers(context, experiment))


@router.post("/import", status_code=201)
async def import_files(
    request: Request,
    context: WithContext,
    subprocesses: WithSubprocesses,
    experimenter: WithExperimenter,
    bundle: Annotated[UploadFile, File()],
    config: Annotated[UploadFile | None, File()] = None,
    targets: Annotated[UploadFile | None, File()] = None,
    name: Annotated[str, Form(max_length=60)] = "",
) -> ImportedReply:
    """Make a paused experiment of a `bundle` that `GET …/bundle` or `salmon export` has written, here or elsewhere.

    In its place may stand the answers or the backup of another program, with the description and the ZIP of targets
    where they are at hand.
    """
    made = await import_upload(
        context, subprocesses, bundle, config=config, targets=targets, name=name, owner=experimenter.id
    )
    await note(request, context, experimenter.name, "experiment imported", made["slug"])
    return cast("ImportedReply", {**made, "address": f"{context.address(request)}/e/{made['slug']}/"})


def shows_platform_ids(
    experimenter: Experimenter, experiment: ServedExperiment, asked: bool | None, *, only_them: bool = False
) -> bool:
    """Return whether a file holds platform ids; ForbiddenError where they are asked for by who may only look."""
    may = may_edit(experimenter, experiment.state)
    if not may and (asked or only_them):
        raise ForbiddenError(
            "Platform ids are shown to those only who may change the experiment.", hint="Ask its owner for them."
        )
    return may if asked is None else asked


async def import_upload(
    context: Context,
    subprocesses: Subprocesses,
    upload: UploadFile,
    *,
    config: UploadFile | None,
    targets: UploadFile | None,
    name: str,
    owner: str,
) -> Json:
    """Have a subprocess make an experiment of uploads; return what it made."""
    called = Path(upload.filename or "answers").name
    async with spool_upload(upload) as path, spool_upload(config) as described, spool_upload(targets) as media:
        if path is None:
            raise BadRequestError("There is no file in this form.", hint="Send the file as `bundle`.", where="bundle")
        order = ImportOrder(
            answers=str(path),
            name=called,
            slug=slug_of(name) if name else "",
            otherwise=await free_slug(context, called.partition(".")[0], given=False),
            owner=owner,
            config=str(described or ""),
            targets=str(media or ""),
        )
        return decode_json(await subprocesses.run("import", order.encode()))


async def keep_bundle(context: Context, subprocesses: Subprocesses, slug: str) -> str:
    """Write everything of an experiment into a file that `salmon import` restores; return its name.

    The file gets its name when it is complete: an error in the middle leaves nothing that looks like a bundle.
    """
    filesystem, root = fsspec.core.url_to_fs(context.settings.bundles_location)
    await asyncio.to_thread(filesystem.makedirs, root, exist_ok=True)
    moment = datetime.fromtimestamp(context.now_ms() / 1000, UTC)
    name = f"{slug}-{moment:%Y%m%dT%H%M%SZ}.zip"
    temporary = f"{root}/.{name}"
    file: Any = await asyncio.to_thread(filesystem.open, temporary, "wb")
    try:
        async for piece in await subprocesses.stream("export", ExportOrder(slug, *BUNDLE).encode(), watched=False):
            await asyncio.to_thread(file.write, piece)
    except BaseException:
        file.close()
        filesystem.rm(temporary)
        raise
    await asyncio.to_thread(file.close)
    await asyncio.to_thread(filesystem.mv, temporary, f"{root}/{name}")
    return name


async def media_headers(context: Context, experiment: ServedExperiment) -> dict[str, str]:
    """Return the header of a reply that names the media that are missing or were altered; none where all are there."""
    problems = await asyncio.to_thread(context.media.problems, experiment.files)
    return {"X-Salmon-Media-Problems": ", ".join(problems)[:_LONGEST_HEADER]} if problems else {}


async def send_file(
    subprocesses: Subprocesses, order: ExportOrder, filename: str = "", *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return what was ordered as a download, under the order's own name or another."""
    return StreamingResponse(
        await subprocesses.stream("export", order.encode()),
        media_type=MEDIA_TYPES[order.extension],
        headers={
            "Content-Disposition": f'attachment; filename="{filename or order.filename}"',
            "Cache-Control": "no-store",
            **(headers or {}),
        },
    )
