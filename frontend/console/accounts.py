"""Routes about accounts: one's own password, second factor, sessions and API tokens; and, for the owner of the server,
everybody who may log in, invitations and the log.

API tokens reach none of them. Functions without a decorator are what the command line uses too.
"""

import asyncio
from collections.abc import Awaitable
from typing import Annotated, NotRequired, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from frontend.auth import (
    Experimenter,
    InPerson,
    WithOwner,
    begin_session,
    check_code,
    check_password,
    find_visible,
    invite,
    note,
)
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, ForbiddenError, LoginError, NotFoundError
from frontend.prolific.credentials import reference_of
from frontend.schemas import (
    ApiTokenBody,
    InvitationBody,
    PasswordBody,
    RoleBody,
    SecondFactorBody,
)
from frontend.security import (
    address_of_second_factor,
    complaint_about_name,
    complaint_about_password,
    digest_of,
    draw_qr_code,
    draw_recovery_codes,
    draw_second_factor,
    draw_secret,
    hash_password,
    moment_of_code,
)
from frontend.store.accounts import LOCAL, Account, Role
from frontend.store.sessions import Access, ApiToken, Scope

T = TypeVar("T")


class IdReply(TypedDict):
    """The id of what was ended or revoked."""

    id: str


class SessionRow(TypedDict):
    """A session of one's own account; `this` is the one that asks."""

    id: str
    this: bool
    browser: str
    address: str
    created_ms: int
    used_ms: int


class TokenRow(TypedDict):
    """An API token without its secret."""

    id: str
    label: str
    scope: Scope
    experiment: str
    created_ms: int
    ends_ms: int
    used_ms: int


class OwnAccountReply(TypedDict):
    """One's own account."""

    name: str
    role: Role
    second_factor: bool
    recovery_codes: int
    sessions: list[SessionRow]
    tokens: list[TokenRow]


class EndedSessionsReply(TypedDict):
    """How many sessions were ended."""

    ended: int


class NewTokenReply(TypedDict):
    """A new API token with its secret, which is sent once."""

    token: str
    id: str
    ends_ms: int


class SecondFactorReply(TypedDict):
    """The secret of a second factor that is being set up."""

    secret: str
    qr_code: str
    setup: str


class RecoveryCodesReply(TypedDict):
    """The recovery codes of a second factor, which are sent once."""

    recovery_codes: list[str]


class AccountRow(TypedDict):
    """An account as the server's owner sees it."""

    name: str
    role: Role
    created_ms: int
    second_factor: bool


class ChangedAccountReply(TypedDict):
    """An account after a change: what was changed about it."""

    name: NotRequired[str]
    role: NotRequired[Role]
    second_factor: NotRequired[bool]
    experiments: NotRequired[int]


class LinkReply(TypedDict):
    """A link that works once, and for whom."""

    link: str
    name: NotRequired[str]
    role: NotRequired[Role]


class InvitationRow(TypedDict):
    """An invitation without its secret; `open` where it can still be used."""

    id: str
    purpose: str
    name: str
    role: Role
    by: str
    created_ms: int
    ends_ms: int
    used_ms: int
    open: bool


router = APIRouter(prefix="/api")

#: What an API token begins with, so that people and scanners of leaked secrets recognise one.
TOKEN_PREFIX = "salmon_"  # noqa: S105
#: Digits of a digest that name a session or an API token, without being of use to anybody.
_ID_DIGITS = 16
_DAY_MS = 24 * 3_600_000


@router.get("/account")
async def read_own_account(context: WithContext, experimenter: InPerson) -> OwnAccountReply:
    """Return one's own account: role, second factor, sessions, API tokens, and the
    experiments that a token can be for.
    """
    account, sessions = await _known(context, experimenter.name), context.store.sessions
    states = {state.experiment: state.slug for state in await context.store.experiments.list()}
    return {
        "name": account.name,
        "role": account.role,
        "second_factor": bool(account.second_factor),
        "recovery_codes": await context.store.accounts.count_recovery_codes(account.id),
        "sessions": [
            {
                "id": digest[:_ID_DIGITS],
                "this": digest == experimenter.session,
                "browser": session.browser,
                "address": session.address,
                "created_ms": session.created_ms,
                "used_ms": used or session.created_ms,
            }
            for digest, session, used in await sessions.list_sessions(account.id)
        ],
        "tokens": [
            {
                "id": digest[:_ID_DIGITS],
                "label": token.label,
                "scope": token.scope,
                "experiment": states.get(token.experiment, "deleted") if token.experiment else "",
                "created_ms": token.created_ms,
                "ends_ms": token.ends_ms,
                "used_ms": used,
            }
            for digest, token, used in await sessions.list_tokens(account.id)
        ],
    }


@router.put("/account/password", response_class=Response)
async def change_password(
    request: Request, body: PasswordBody, context: WithContext, experimenter: InPerson
) -> Response:
    """Choose another password; every other session of this account ends."""
    account = await _confirm(request, context, experimenter, body.old)
    if complaint := complaint_about_password(account.name, body.new):
        raise BadRequestError(complaint, hint="Choose another.", where="new")
    password_hash = await asyncio.to_thread(hash_password, body.new)
    changed = await context.store.accounts.set_password(account, password_hash)
    await note(request, context, account.name, "password changed")
    response = JSONResponse({"name": changed.name})
    if experimenter.via == "session":
        return await begin_session(request, context, response, changed)
    return response


@router.delete("/account/sessions/{identifier}")
async def end_session(request: Request, identifier: str, context: WithContext, experimenter: InPerson) -> IdReply:
    """End one of one's own sessions."""
    for digest, session, _ in await context.store.sessions.list_sessions(experimenter.id):
        if digest[:_ID_DIGITS] == identifier:
            await context.store.sessions.end(digest)
            await note(request, context, experimenter.name, "session ended", session.browser)
            return {"id": identifier}
    raise NotFoundError("There is no such session.", hint="It may have ended already; reload the page.")


@router.delete("/account/sessions")
async def end_other_sessions(request: Request, context: WithContext, experimenter: InPerson) -> EndedSessionsReply:
    """End all of one's own sessions but this one."""
    ended = await context.store.sessions.end_all(experimenter.id, besides=experimenter.session)
    await note(request, context, experimenter.name, "sessions ended", f"{ended} other sessions")
    return {"ended": ended}


@router.post("/account/tokens", status_code=201)
async def make_token(
    request: Request, body: ApiTokenBody, context: WithContext, experimenter: InPerson
) -> NewTokenReply:
    """Make an API token and return it, once: only its digest is kept."""
    experiment = (await find_visible(body.experiment, context, experimenter)).id if body.experiment else ""
    secret, now_ms = TOKEN_PREFIX + draw_secret(), context.now_ms()
    token = ApiToken(
        account=experimenter.id,
        name=experimenter.name,
        label=body.label,
        scope=body.scope,
        experiment=experiment,
        created_ms=now_ms,
        ends_ms=now_ms + body.days * _DAY_MS,
    )
    await context.store.sessions.keep_token(digest_of(secret), token)
    reach = f", only {body.experiment}" if body.experiment else ""
    await note(request, context, experimenter.name, "API token created", f"{body.label} ({body.scope}{reach})")
    return {"token": secret, "id": digest_of(secret)[:_ID_DIGITS], "ends_ms": token.ends_ms}


@router.delete("/account/tokens/{identifier}")
async def revoke_token(request: Request, identifier: str, context: WithContext, experimenter: InPerson) -> IdReply:
    """Revoke one of one's own API tokens."""
    for digest, token, _ in await context.store.sessions.list_tokens(experimenter.id):
        if digest[:_ID_DIGITS] == identifier:
            await context.store.sessions.end_token(digest)
            await note(request, context, experimenter.name, "API token revoked", token.label)
            return {"id": identifier}
    raise NotFoundError("There is no such API token.", hint="It may have been revoked already; reload the page.")


@router.post("/account/second-factor")
async def begin_second_factor(context: WithContext, experimenter: InPerson) -> SecondFactorReply:
    """Return a secret for an authenticator app, as text and as a QR code; it counts when a code of it comes back."""
    secret = draw_second_factor()
    return {
        "secret": secret,
        "qr_code": draw_qr_code(address_of_second_factor(secret, experimenter.name, context.settings.public_url)),
        "setup": context.signer.sign_step("second-factor", experimenter.id, secret),
    }


@router.put("/account/second-factor")
async def switch_second_factor_on(
    request: Request, body: SecondFactorBody, context: WithContext, experimenter: InPerson
) -> RecoveryCodesReply:
    """Ask for a code at each login from now on; return the recovery codes, once."""
    account = await _confirm(request, context, experimenter, body.password)
    known, secret = context.signer.read_step(body.setup, "second-factor") or ("", "")
    if known != account.id:
        raise BadRequestError("Setting this up took too long.", hint="Begin again.", where="setup")
    if account.second_factor:
        raise ConflictError("There is a second factor already.", hint="Switch it off first.")
    moment = moment_of_code(secret, body.code, context.now_ms())
    if moment is None or not await context.store.accounts.use_code(account.id, moment):
        raise BadRequestError(
            "The code is wrong, or it was used before.",
            hint="Enter the next one; if it is wrong too, set the clock of your phone.",
            where="code",
        )
    codes = draw_recovery_codes()
    await context.store.accounts.set_second_factor(account, secret, tuple(digest_of(code) for code in codes))
    await note(request, context, account.name, "second factor switched on")
    return {"recovery_codes": list(codes)}


@router.delete("/account/second-factor")
async def switch_second_factor_off(
    request: Request, body: SecondFactorBody, context: WithContext, experimenter: InPerson
) -> ChangedAccountReply:
    """Ask for no code any more; the password and a last code are needed for it."""
    account = await _confirm(request, context, experimenter, body.password)
    if not account.second_factor:
        raise ConflictError("There is no second factor.")
    await _confirmed(check_code(request, context, account, body.code), "code")
    await context.store.accounts.set_second_factor(account, "", ())
    await note(request, context, account.name, "second factor switched off")
    return {"second_factor": False}


@router.get("/accounts")
async def list_accounts(context: WithContext, _: WithOwner) -> list[AccountRow]:
    """Return everybody who may log in."""
    return [
        {
            "name": account.name,
            "role": account.role,
            "created_ms": account.created_ms,
            "second_factor": bool(account.second_factor),
        }
        for account in await context.store.accounts.list()
    ]


@router.put("/accounts/{name}/role")
async def set_role(
    request: Request, name: str, body: RoleBody, context: WithContext, owner: WithOwner
) -> ChangedAccountReply:
    """Give an account another role; its sessions end."""
    if name == owner.name:
        raise ConflictError("You cannot change your own role.", hint="Another owner can, or `salmon user role`.")
    account = await change_role(context, name, body.role)
    await note(request, context, owner.name, "role changed", f"{name} is {account.role}")
    return {"name": name, "role": account.role}


@router.post("/accounts/{name}/reset", status_code=201)
async def reset_password(request: Request, name: str, context: WithContext, owner: WithOwner) -> LinkReply:
    """Return a link with which somebody chooses a new password, once, within a day."""
    secret = await make_reset(context, name, by=owner.name)
    await note(request, context, owner.name, "password reset offered", name)
    return {"name": name, "link": link_of(context.link_address(request), secret)}


@router.delete("/accounts/{name}/second-factor")
async def remove_second_factor_of(
    request: Request, name: str, context: WithContext, owner: WithOwner
) -> ChangedAccountReply:
    """Ask somebody who has lost their second factor for no code any more."""
    await context.store.accounts.remove_second_factor(await _known(context, name))
    await note(request, context, owner.name, "second factor removed", name)
    return {"name": name, "second_factor": False}


@router.delete("/accounts/{name}")
async def delete_account(request: Request, name: str, context: WithContext, owner: WithOwner) -> ChangedAccountReply:
    """Remove an account with its sessions, API tokens, invitations and shares; its experiments pass to the owner."""
    if name == owner.name:
        raise ConflictError("You cannot remove your own account.", hint="The server would have no owner.")
    given = await remove_account(context, name, heir=owner.id)
    await note(request, context, owner.name, "account removed", f"{name}; {given} experiments passed to {owner.name}")
    return {"name": name, "experiments": given}


@router.post("/invitations", status_code=201)
async def make_invitation(request: Request, body: InvitationBody, context: WithContext, owner: WithOwner) -> LinkReply:
    """Return a link with which somebody chooses the password of a new account, once, within a week."""
    if complaint := complaint_about_name(body.name):
        raise BadRequestError(complaint, hint="Choose another name.", where="name")
    if await context.store.accounts.read(body.name) is not None:
        raise ConflictError(f"There is an account called {body.name!r} already.", hint="Choose another name.")
    secret = await invite(context, purpose="account", name=body.name, role=body.role, by=owner.name)
    await note(request, context, owner.name, "invited", f"{body.name} as {body.role}")
    return {"name": body.name, "role": body.role, "link": link_of(context.link_address(request), secret)}


@router.get("/invitations")
async def list_invitations(context: WithContext, _: WithOwner) -> list[InvitationRow]:
    """Return the invitations of the last days: for whom, by whom, and when they were used."""
    now_ms = context.now_ms()
    return [
        {
            "id": kept.id,
            "purpose": kept.purpose,
            "name": kept.name,
            "role": kept.role,
            "by": kept.by,
            "created_ms": kept.created_ms,
            "ends_ms": kept.ends_ms,
            "used_ms": kept.used_ms,
            "open": not kept.used_ms and kept.ends_ms >= now_ms,
        }
        for kept in await context.store.accounts.list_invitations()
        if kept.purpose != "first"
    ]


@router.delete("/invitations/{identifier}")
async def revoke_invitation(request: Request, identifier: str, context: WithContext, owner: WithOwner) -> IdReply:
    """Make an invitation void."""
    revoked = await context.store.accounts.revoke_invitation(identifier)
    if revoked is None:
        raise NotFoundError("There is no such invitation.", hint="It may have been revoked already; reload the page.")
    await note(request, context, owner.name, "invitation revoked", revoked.name)
    return {"id": identifier}


@router.get("/log")
async def read_log(
    context: WithContext, _: WithOwner, limit: Annotated[int, Query(ge=1, le=2000)] = 200
) -> list[Access]:
    """Return the newest entries of the log: logins and failed ones, changes of accounts, launches and deletions."""
    return await context.store.sessions.read_log(limit)


async def change_role(context: Context, name: str, role: Role) -> Account:
    """Give an account another role and return it; its sessions end, and the last owner stays one."""
    return await context.store.accounts.set_role(await _known(context, name), role)


async def remove_account(context: Context, name: str, *, heir: str = "") -> int:
    """Remove an account and all that lets somebody in with it; return how many experiments passed to the heir.

    Without an heir they pass to an owner of the server.
    """
    account = await _known(context, name)
    await context.store.accounts.remove(account)
    await forget_prolific(context, account.id)
    owners = [other.id for other in await context.store.accounts.list() if other.role == "owner"]
    return await context.store.experiments.hand_over(account.id, heir or (owners[0] if owners else LOCAL))


async def forget_prolific(context: Context, account: str) -> None:
    """Remove an account's token for Prolific, the secret of its webhooks, and the counts of its events."""
    await asyncio.to_thread(context.prolific_files.remove, account)
    await context.store.prolific.forget_events(reference_of(account))


async def make_reset(context: Context, name: str, *, by: str) -> str:
    """Return the secret of a link with which an account gets a new password."""
    account = await _known(context, name)
    return await invite(context, purpose="reset", name=name, role=account.role, by=by, account=account.id)


def link_of(address: str, secret: str) -> str:
    """Return the link of an invitation; without an address the browser that shows it completes it."""
    return f"{address}/console/welcome?invitation={secret}"


async def _confirm(request: Request, context: Context, experimenter: Experimenter, password: str) -> Account:
    """Return one's own account after the password was entered once more."""
    check = check_password(request, context, experimenter.name, password)
    return await _confirmed(check, "password", "Your current password is wrong.", "Nothing was changed.")


async def _confirmed(check: Awaitable[T], where: str, message: str = "", hint: str = "") -> T:
    """Return the outcome of a check of one's own password or code; being wrong about it ends no session."""
    try:
        return await check
    except LoginError as error:
        raise ForbiddenError(message or error.message, hint=hint or error.hint, where=where) from None


async def _known(context: Context, name: str) -> Account:
    account = await context.store.accounts.read(name)
    if account is None:
        raise NotFoundError(f"There is no account called {name!r}.", hint="Look at the list of accounts.")
    return account
