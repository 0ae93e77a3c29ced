"""Routes that begin and end an experiment for scripts: `/init`, `/create_user`, `/init_exp`, `/restore` and `/reset`.

An address without a name means the open experiment, or else the last that was; `ForParticipants` and `ForExperimenter`
find it for the other routes of the first Salmon. What changes an experiment takes name and password with the request.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from starlette.datastructures import FormData, UploadFile
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from frontend.auth import (
    Experimenter,
    WithAccount,
    may_edit,
    may_see,
    note,
    require_experimenter,
    take_up,
)
from frontend.context import Context, WithContext
from frontend.errors import ForbiddenError, LoginError, SubprocessError
from frontend.experiments import ServedExperiment, newest
from frontend.launching import launch, note_change
from frontend.media import spool_upload
from frontend.salmon1.errors import OldError, OldRoute, describe_problems
from frontend.schemas import Json
from frontend.security import complaint_about_name, complaint_about_password, digest_of
from frontend.store.experiments import ExperimentState
from frontend.transfer.routes import import_upload, keep_bundle
from frontend.transfer.subprocesses import Subprocesses, WithSubprocesses
from salmon.errors import SpecError

#: The name under which problems of a posted description are reported.
_SPEC = Path("init.yaml")
_NOTHING = "No data has been uploaded: there is no experiment here."
_HOW_TO_RESET = (
    "Send DELETE /reset?force=1: everything goes into a bundle first, and then the experiment is archived. The console"
    " can delete it as well."
)

router = APIRouter(route_class=OldRoute)


async def for_participants(context: WithContext) -> ServedExperiment:
    """Return the experiment that is open."""
    experiment = await context.catalogue.read_newest()
    if experiment is None:
        raise OldError(500, _NOTHING, hint="Post one to /init_exp.")
    return experiment


async def for_experimenter(context: WithContext, experimenter: WithAccount) -> ServedExperiment:
    """Return the experiment that this experimenter means."""
    return await _read(context, await newest_visible_to(context, experimenter))


async def _read(context: Context, state: ExperimentState | None) -> ServedExperiment:
    if state is None:
        raise OldError(500, _NOTHING, hint="Post one to /init_exp.")
    return await context.catalogue.read(state.experiment)


async def newest_visible_to(context: Context, experimenter: Experimenter) -> ExperimentState | None:
    """Return the newest experiment among those that somebody may see."""
    return newest(state for state in await context.store.experiments.list() if may_see(experimenter, state))


async def by_script(experimenter: WithAccount) -> Experimenter:
    """Return who sends name and password, or an API token that may change things, with the request itself: links and
    other sites' pages change nothing.
    """
    if experimenter.via == "session":
        raise LoginError("This address requires HTTP Basic authentication.", hint="In the browser, use the console.")
    if experimenter.scope == "read":
        raise ForbiddenError("This API token may only read.", hint="Make one that may also change things.")
    return await require_experimenter(experimenter)


ForParticipants = Annotated[ServedExperiment, Depends(for_participants)]
ForExperimenter = Annotated[ServedExperiment, Depends(for_experimenter)]
ByScript = Annotated[Experimenter, Depends(by_script)]


@router.get("/init", response_class=Response)
@router.get("/init_exp", response_class=Response)
async def begin() -> Response:
    """Redirect to the console's form for a new experiment, which was at /init_exp before it was at /init."""
    return RedirectResponse("/console/new", status_code=303)


@router.post("/create_user")
async def create_user(
    request: Request,
    context: WithContext,
    username: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    password2: Annotated[str, Form()] = "",
    invitation: str = "",
) -> Json:
    """Create the owner's account, while there is none, with the `invitation` of the
    link that the server has printed.
    """
    if password != password2:
        raise OldError(409, "The two passwords are not the same.", hint="Nothing was created.", where="password2")
    if await context.store.accounts.exist():
        raise OldError(
            403,
            "A maximum number of users have already been registered: the owner's account is there.",
            hint="Its owner invites others in the console, and `salmon user add NAME` makes accounts on the server.",
        )
    invited = await context.store.accounts.read_invitation(digest_of(invitation)) if invitation else None
    if invited is None or invited.purpose != "first":
        raise OldError(
            403,
            "The first account is made with the link that the server printed when it started.",
            hint="Open that link, or add its ?invitation=… to this address.",
        )
    if complaint := complaint_about_name(username) or complaint_about_password(username, password):
        raise OldError(422, complaint, where="username" if complaint_about_name(username) else "password")
    account = await take_up(context, invited, invitation, username, password)
    await note(request, context, account.name, "account created", "owner, with the first link")
    return {"success": True, "user": account.name}


@router.post("/create_user/{username}/{password}")
async def create_user_by_path(username: str, password: str) -> Json:
    """Refuse a password in the address, where proxies and browsers would keep it."""
    del username, password
    raise OldError(
        400,
        "A password does not belong into an address, which proxies and browsers keep.",
        hint="Send `username`, `password` and `password2` as a form to /create_user?invitation=….",
    )


@router.post("/init_exp", response_class=Response)
async def init_exp(request: Request, context: WithContext, subprocesses: WithSubprocesses, by: ByScript) -> Response:
    """Make and open an experiment of `exp` (YAML) and `targets` (ZIP), or bring one back
    from `rdb`; only one at a time.
    """
    there = await newest_visible_to(context, by)
    if there is not None:
        raise OldError(
            403,
            f"An experiment is already set! {there.slug!r} is here; it has not been deleted, and nothing was initialized.",
            hint="Send DELETE /reset?force=1 to archive it, and post again. The console can hold many experiments side by side.",
        )
    async with request.form() as form:
        rdb = _upload(form.get("rdb"))
        if rdb is not None:
            return await _restore(request, context, subprocesses, rdb, by=by)
        return await _launch(request, context, form, by=by)


@router.post("/restore", response_class=Response)
async def restore(request: Request, context: WithContext, subprocesses: WithSubprocesses, by: ByScript) -> Response:
    """Bring an experiment back from `rdb`: a backup of the first Salmon, or what
    /download gives now. It is paused then.
    """
    async with request.form() as form:
        return await _restore(request, context, subprocesses, _upload(form.get("rdb")), by=by)


@router.get("/reset")
async def explain_reset(_: ByScript) -> Json:
    """Say how an experiment is reset, and change nothing: any site can lead a browser here, which then sends the
    password that it knows.
    """
    return {"success": False, "detail": f"Nothing was changed. {_HOW_TO_RESET}"}


@router.delete("/reset")
async def reset(
    request: Request, context: WithContext, subprocesses: WithSubprocesses, by: ByScript, force: int = 0
) -> Json:
    """Archive the experiment: everything of it goes into a bundle first. Accounts stay."""
    if not force:
        raise OldError(403, "Do you really want to delete *all* data?", hint=_HOW_TO_RESET)
    state = newest(state for state in await context.store.experiments.list() if may_edit(by, state))
    if state is None:
        return {"success": True}
    bundle = await keep_bundle(context, subprocesses, state.slug)
    await context.store.experiments.archive(state.experiment)
    await note_change(context, state.experiment, by.name, "archived", bundle)
    await note(request, context, by.name, "experiment archived", state.slug)
    problems = await asyncio.to_thread(context.media.problems, (await context.catalogue.read(state.experiment)).files)
    return {"success": True} | ({"warnings": list(problems.values())} if problems else {})


async def _launch(request: Request, context: Context, form: FormData, *, by: Experimenter) -> Response:
    exp = form.get("exp")
    source = await exp.read() if isinstance(exp, UploadFile) else str(exp or "").encode()
    try:
        async with spool_upload(_upload(form.get("targets"))) as archive:
            made, warnings = await launch(
                context,
                source,
                spec_name=_SPEC,
                archive=archive,
                name="",
                owner=by.id,
                state="open",
                default_sampler="Random",
            )
    except SpecError as error:
        return PlainTextResponse(await asyncio.to_thread(describe_problems, source, error), status_code=500)
    await note(request, context, by.name, "experiment created", made.slug)
    address = context.address(request)
    links = {"query_page": f"{address}/e/{made.slug}/", "dashboard": f"{address}/dashboard"}
    return JSONResponse({"success": True, "experiment": made.slug, **links, "warnings": warnings})


async def _restore(
    request: Request, context: Context, subprocesses: Subprocesses, upload: Any, *, by: Experimenter
) -> Response:
    if upload is None:
        raise OldError(422, "There is no file in this form.", hint="Send it as `rdb`.", where="rdb")
    try:
        made = await import_upload(context, subprocesses, upload, config=None, targets=None, name="", owner=by.id)
    except SubprocessError as error:
        # A file that cannot be used ended in 500, and scripts look for that.
        status = 500 if error.status == 422 else error.status
        raise OldError(status, error.message, hint=error.hint, where=error.where) from error
    await note(request, context, by.name, "experiment imported", made["slug"])
    return JSONResponse({"success": True, "experiment": made["slug"], "message": made["message"]})


def _upload(field: Any) -> Any:
    """Return a field of a form as an upload; None where it is empty or no file."""
    return field if isinstance(field, UploadFile) and (field.filename or field.size) else None
