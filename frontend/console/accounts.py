"""Routes about accounts: one's own password, and, for the owner of the server, everybody who may log in."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from frontend.auth import WithExperimenter, WithOwner, begin_session, check_password
from frontend.context import WithContext
from frontend.errors import ConflictError, NotFoundError
from frontend.schemas import InvitationBody, Json, PasswordBody
from frontend.security import hash_password

router = APIRouter(prefix="/api")


@router.put("/account/password", response_class=Response)
async def change_password(
    request: Request, body: PasswordBody, context: WithContext, experimenter: WithExperimenter
) -> Response:
    """Choose another password; every other session of this account ends."""
    account = await check_password(context, experimenter.name, body.old)
    changed = await context.store.accounts.change_password(account, await asyncio.to_thread(hash_password, body.new))
    return begin_session(request, context, JSONResponse({"name": changed.name}), changed)


@router.get("/accounts")
async def list_accounts(context: WithContext, _: WithOwner) -> list[Json]:
    """Return everybody who may log in."""
    return [
        {"name": account.name, "role": account.role, "created_ms": account.created_ms}
        for account in await context.store.accounts.list()
    ]


@router.post("/invitations", status_code=201)
async def invite(request: Request, body: InvitationBody, context: WithContext, _: WithOwner) -> Json:
    """Return a link with which somebody chooses the password of a new account, once, within a week."""
    if await context.store.accounts.read(body.name) is not None:
        raise ConflictError(f"There is an account called {body.name!r} already.", hint="Choose another name.")
    return {
        "name": body.name,
        "link": f"{context.address(request)}/console/welcome?invitation={context.signer.sign_invitation(body.name)}",
    }


@router.delete("/accounts/{name}")
async def remove_account(name: str, context: WithContext, owner: WithOwner) -> Json:
    """Remove an account; its experiments stay, and the owner of the server sees them."""
    account = await context.store.accounts.read(name)
    if account is None:
        raise NotFoundError(f"There is no account called {name!r}.")
    if account.name == owner.name:
        raise ConflictError("You cannot remove your own account.", hint="The server would have no owner.")
    await context.store.accounts.remove(name)
    return {"name": name}
