"""Routes of logging in and out: by name and password, by an invitation, and by the login of an institution.

A proxy that logs people in by itself may say who they are in a header (`SALMON_LOGIN_HEADER`), which is believed with
its secret and from the proxies of `SALMON_TRUSTED_PROXIES` only. Local accounts stay, and participants never meet any
of this.
"""

import secrets
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from frontend.auth import (
    WRONG_LOGIN,
    begin_session,
    check_code,
    check_password,
    cookie_name,
    find_session,
    mark_of_account,
    note,
    outdated_form,
    take_up,
)
from frontend.context import Context, WithContext
from frontend.errors import ConflictError, ForbiddenError, LoginError, TooManyError, status_of
from frontend.pages import LoginPage
from frontend.security import (
    complaint_about_name,
    complaint_about_password,
    csrf_of,
    digest_of,
    draw_secret,
    hash_password,
)
from frontend.store.accounts import Account, Invitation, new_account
from salmon.errors import SalmonError

router = APIRouter(prefix="/console")


@router.get("/welcome", response_class=Response)
async def welcome(context: WithContext, invitation: str = "") -> Response:
    """Show the form that makes an account or sets a new password, for whoever opens a link that was not used yet."""
    invited = await _read_invitation(context, invitation)
    accounts = context.store.accounts
    taken = invited.purpose != "reset" and (
        await accounts.read(invited.name) is not None if invited.name else await accounts.exist()
    )
    if taken or invited.used_ms:
        return RedirectResponse("/console/login", status_code=303)
    return context.pages.show(LoginPage(invited.purpose, name=invited.name, invitation=invitation))


@router.post("/welcome", response_class=Response)
async def take_up_invitation(
    request: Request,
    context: WithContext,
    name: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    invitation: Annotated[str, Form()] = "",
) -> Response:
    """Make the account that a link stands for and begin a session, or set the new password of one."""
    try:
        invited = await _read_invitation(context, invitation)
    except ForbiddenError as error:
        return context.pages.show(_login_page(context, message=str(error)), status=403)
    name = invited.name or name
    if complaint := complaint_about_name(name) or complaint_about_password(name, password):
        page = LoginPage(invited.purpose, name=name[:64], invitation=invitation, message=complaint)
        return context.pages.show(page, status=422)
    try:
        account = await take_up(context, invited, invitation, name, password)
    except SalmonError as error:
        return context.pages.show(_login_page(context, message=str(error)), status=status_of(error))
    if invited.purpose == "reset":
        await note(request, context, name, "password reset", "by a link")
        return RedirectResponse("/console/login", status_code=303)
    await note(request, context, name, "account created", f"{account.role}, invited by {invited.by}")
    return await begin_session(request, context, RedirectResponse("/console/", status_code=303), account)


@router.get("/login", response_class=Response)
async def login_page(context: WithContext) -> Response:
    """Ask for name and password."""
    return context.pages.show(_login_page(context))


@router.post("/login", response_class=Response)
async def log_in(
    request: Request,
    context: WithContext,
    name: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
) -> Response:
    """Check a name and password and begin a session, or ask for the code of the second factor."""
    if complaint_about_name(name) or not 0 < len(password) <= 1024:
        return context.pages.show(_login_page(context, name=name[:64], message=WRONG_LOGIN), status=422)
    try:
        account = await check_password(request, context, name, password)
    except (LoginError, TooManyError) as error:
        status = 429 if isinstance(error, TooManyError) else 403
        return context.pages.show(_login_page(context, name=name, message=str(error)), status=status)
    return await _go_in(request, context, account)


@router.post("/login/code", response_class=Response)
async def log_in_with_code(
    request: Request,
    context: WithContext,
    invitation: Annotated[str, Form()] = "",
    code: Annotated[str, Form()] = "",
) -> Response:
    """Check the code of the second factor, after the password, and begin a session."""
    known, content = context.signer.read_step(invitation, "login") or ("", "")
    name, _, mark = content.partition(":")
    account = await context.store.accounts.read(name) if name else None
    if account is None or account.id != known or mark_of_account(account) != mark:
        return context.pages.show(_login_page(context, message="The login took too long. Begin again."), status=403)
    try:
        await check_code(request, context, account, code)
    except (LoginError, TooManyError) as error:
        page = LoginPage("code", name=name, invitation=invitation, message=str(error))
        return context.pages.show(page, status=429 if isinstance(error, TooManyError) else 403)
    await note(request, context, name, "login", "with a second factor")
    return await begin_session(request, context, RedirectResponse("/console/", status_code=303), account)


@router.post("/logout", response_class=Response)
async def log_out(request: Request, context: WithContext, csrf: Annotated[str, Form()] = "") -> Response:
    """End the session of this browser."""
    secret = request.cookies.get(cookie_name(request, context), "")
    response = RedirectResponse("/console/login", status_code=303)
    found = await find_session(context, secret)
    if found is None:
        return response
    if not secrets.compare_digest(csrf.encode(), csrf_of(secret).encode()):
        raise outdated_form()
    await context.store.sessions.end(digest_of(secret))
    await note(request, context, found.name, "logout")
    response.delete_cookie(
        cookie_name(request, context),
        path=f"{context.settings.mount}/",
        secure=context.is_https(request),
        httponly=True,
        samesite="lax",
    )
    return response


@router.get("/login/institution", response_class=Response)
async def log_in_by_institution(request: Request, context: WithContext) -> Response:
    """Begin a session for whom the proxy in front has logged in."""
    header = context.settings.login_header
    name = request.headers.get(header, "").strip() if header else ""
    if not name:
        message = "The proxy did not say who you are." if header else "This server knows no login but its own."
        return context.pages.show(_login_page(context, message=message), status=403)
    return await go_in_by_institution(request, context, name)


async def go_in_by_institution(request: Request, context: Context, name: str) -> Response:
    """Begin a session for somebody whom the institution has recognised; `SALMON_LOGIN_ROLE`
    makes an account for newcomers.
    """
    try:
        account = await _find_or_make(context, name)
    except SalmonError as error:
        return context.pages.show(_login_page(context, message=f"{error.message} {error.hint}"), status=403)
    return await _go_in(request, context, account, "by the institution")


async def _find_or_make(context: Context, name: str) -> Account:
    accounts, role = context.store.accounts, context.settings.login_role
    if complaint_about_name(name):
        raise ForbiddenError(f"The name {name[:64]!r} that your institution sends cannot be an account's.", hint="")
    account = await accounts.read(name)
    if account is not None:
        return account
    if not role or not await accounts.exist():
        raise ForbiddenError(
            f"You have no account here yet; it would be called {name!r}.", hint="Ask the owner of this server for one."
        )
    # A password that nobody knows: the account is entered by the institution's login alone until an owner resets it.
    account = new_account(name, hash_password(draw_secret()), role, now_ms=context.now_ms())
    try:
        await accounts.create(account)
    except ConflictError:  # made a moment ago, by another request of the same person
        return await accounts.read(name) or account
    return account


async def _go_in(request: Request, context: Context, account: Account, how: str = "") -> Response:
    """Begin the session of somebody who was recognised, or ask for the code of the second factor first."""
    if account.second_factor:
        pending = context.signer.sign_step("login", account.id, f"{account.name}:{mark_of_account(account)}")
        return context.pages.show(LoginPage("code", name=account.name, invitation=pending))
    await note(request, context, account.name, "login", how)
    return await begin_session(request, context, RedirectResponse("/console/", status_code=303), account)


def _login_page(context: Context, name: str = "", message: str = "") -> LoginPage:
    return LoginPage("log_in", name=name, message=message, institution=context.settings.institution)


async def _read_invitation(context: Context, secret: str) -> Invitation:
    """Return the invitation of a link; ForbiddenError where it is unknown, revoked or expired."""
    invited = await context.store.accounts.read_invitation(digest_of(secret)) if secret else None
    if invited is None or invited.ends_ms < context.now_ms():
        raise ForbiddenError(
            "This link is invalid, was revoked, or has expired.",
            hint="Ask for a new one, or run `salmon user add NAME` on the server.",
        )
    return invited
