"""Who is logged in, and which experiments they may see and change.

The owner of the server has an account from the first link that the program prints; others are invited. People log in
with a session cookie, scripts with HTTP Basic.
"""

import asyncio
import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from frontend.context import Context, WithContext
from frontend.errors import ForbiddenError, LoginError, NotFoundError, TooManyError
from frontend.experiments import ServedExperiment
from frontend.pages import LoginPage
from frontend.schemas import LoginBody
from frontend.security import LOGIN_SECONDS, hash_password, password_fits
from frontend.store.accounts import Account, Role
from frontend.store.experiments import ExperimentState
from salmon.errors import SalmonError

COOKIE = "salmon_login"
#: The owner of what was launched on the server itself: all of its experimenters share it.
LOCAL = "local"

router = APIRouter(prefix="/console")


@dataclass(frozen=True)
class Experimenter:
    """Who is logged in. `csrf` is what forms of this session carry; scripts have none and need none."""

    name: str
    csrf: str
    role: Role


@router.get("/welcome", response_class=Response)
async def welcome(context: WithContext, invitation: str = "") -> Response:
    """Show the form that makes an account, for whoever opens the first link or an invitation; each link works once."""
    invited = context.signer.read_invitation(invitation)
    if await _is_used(context, invited):
        return RedirectResponse("/console/login", status_code=303)
    if invited is None:
        raise ForbiddenError(
            "This invitation link is invalid or more than a week old.",
            hint="Ask for a new one, or run `salmon user add NAME` on the server.",
        )
    return context.pages.show(LoginPage(first=True, invitation=invitation, message="", name=invited, owner=not invited))


@router.get("/login", response_class=Response)
async def login_page(context: WithContext) -> Response:
    """Ask for name and password."""
    return context.pages.show(LoginPage(first=False, invitation="", message="", name="", owner=False))


@router.post("/login", response_class=Response)
async def log_in(
    request: Request,
    context: WithContext,
    name: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    invitation: Annotated[str, Form()] = "",
) -> Response:
    """Check a name and password, or make the owner's account, and begin a session."""
    check_origin(request)
    first = bool(invitation)
    owner = context.signer.read_invitation(invitation) == ""
    try:
        body = LoginBody(name=name, password=password, invitation=invitation)
    except ValidationError:
        sentence = (
            "A name has letters, digits, dots, dashes and underscores only; a password has at least 8 characters."
            if first
            else "The name or the password is wrong."
        )
        return context.pages.show(LoginPage(first, invitation, sentence, name[:64], owner), status=422)
    try:
        account = await (_take_up(context, body) if first else check_password(context, body.name, body.password))
    except SalmonError as error:
        return context.pages.show(LoginPage(first, invitation, str(error), body.name, owner), status=403)
    return begin_session(request, context, RedirectResponse("/console/", status_code=303), account)


@router.post("/logout", response_class=Response)
async def log_out(request: Request) -> Response:
    """End the session on this browser."""
    check_origin(request)
    response = RedirectResponse("/console/login", status_code=303)
    response.delete_cookie(COOKIE)
    return response


def begin_session(request: Request, context: Context, response: Response, account: Account) -> Response:
    """Return the response with a cookie that logs this browser in."""
    response.set_cookie(
        COOKIE,
        context.signer.sign_login(account.name, account.password_hash),
        max_age=LOGIN_SECONDS,
        httponly=True,
        samesite="lax",
        secure=context.address(request).startswith("https://"),
    )
    return response


async def check_password(context: Context, name: str, password: str) -> Account:
    """Return the account of this name and password; after too many wrong ones within a minute no password is tried."""
    wait_seconds = context.attempts.wait_seconds(name, context.now_ms())
    if wait_seconds > 0:
        raise TooManyError(
            "There were too many wrong passwords for this name.", hint=f"Try again in {wait_seconds:.0f} seconds."
        )
    account = await context.store.accounts.read(name)
    # An unknown name is checked against a hash that nothing fits: names cannot be told apart by the time it takes.
    known = account.password_hash if account else context.attempts.nobodys_hash
    fits = await asyncio.to_thread(password_fits, password, known)
    if not fits or account is None:
        context.attempts.note_failure(name, context.now_ms())
        raise LoginError("The name or the password is wrong.")
    return account


async def make_account(context: Context, name: str, password: str, *, owner: bool) -> Account:
    """Make an account; the password is hashed in a thread, because hashing is slow on purpose."""
    account = Account(
        name, await asyncio.to_thread(hash_password, password), "owner" if owner else "experimenter", context.now_ms()
    )
    await context.store.accounts.create(account)
    return account


async def read_experimenter(request: Request, context: WithContext) -> Experimenter:
    """Return who sends this request, by cookie or by HTTP Basic; a change by cookie must carry the session's CSRF
    token.
    """
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith("basic "):
        name, password = _basic(authorization)
        account = await check_password(context, name, password)
        return Experimenter(name, "", account.role)
    known = context.signer.read_login(request.cookies.get(COOKIE, ""))
    account = await context.store.accounts.read(known.name) if known else None
    if known is None or account is None or not known.fits(account.password_hash):
        raise LoginError("Please log in first.", hint="Scripts send name and password by HTTP Basic.")
    if request.method not in {"GET", "HEAD"}:
        sent = request.headers.get("x-csrf-token") or str((await request.form()).get("csrf", ""))
        if not secrets.compare_digest(sent.encode(), known.csrf.encode()):
            raise ForbiddenError("This form is out of date.", hint="Reload the page and try again.")
    return Experimenter(account.name, known.csrf, account.role)


WithExperimenter = Annotated[Experimenter, Depends(read_experimenter)]


def check_origin(request: Request) -> None:
    """Refuse a form that another site has sent; forms that need a session are protected by its CSRF token."""
    origin = request.headers.get("origin")
    if origin and origin != "null" and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise ForbiddenError("This form was sent from another site.")


def may_see(experimenter: Experimenter, state: ExperimentState) -> bool:
    """Return whether an experiment is this experimenter's own, shared with them, or everybody's; the server's owner
    sees all.
    """
    return (
        experimenter.role == "owner" or state.owner in {experimenter.name, LOCAL} or experimenter.name in state.shared
    )


async def find_visible(slug: str, context: WithContext, experimenter: WithExperimenter) -> ServedExperiment:
    """Return the experiment of this name, for somebody who may see it."""
    experiment = await context.catalogue.find(slug)
    if not may_see(experimenter, experiment.state):
        # The same words as for an unknown name, so that nobody learns what others call their experiments.
        raise NotFoundError(
            f"There is no experiment called {slug!r} here.",
            hint="Check the link, or ask the people who sent it to you.",
        )
    return experiment


async def require_owner(experimenter: WithExperimenter) -> Experimenter:
    """Return who sends this request; ForbiddenError unless they own the server."""
    if experimenter.role != "owner":
        raise ForbiddenError("Only the owner of this server may do this.", hint="Ask the owner.")
    return experimenter


#: The experiment of the address, for somebody who may see it.
WithExperiment = Annotated[ServedExperiment, Depends(find_visible)]
#: The owner of the server.
WithOwner = Annotated[Experimenter, Depends(require_owner)]


async def _take_up(context: Context, body: LoginBody) -> Account:
    """Make the account that an invitation stands for; ForbiddenError where it was used."""
    invited = context.signer.read_invitation(body.invitation)
    if invited is None or await _is_used(context, invited):
        raise ForbiddenError(
            "This link has been used already.", hint="Log in with the account that was created with it."
        )
    return await make_account(context, invited or body.name, body.password, owner=not invited)


async def _is_used(context: Context, invited: str | None) -> bool:
    """Return whether the account of this link has been made."""
    accounts = context.store.accounts
    return await accounts.read(invited) is not None if invited else await accounts.exist()


def _basic(authorization: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(authorization[6:].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        raise LoginError("The Authorization header cannot be read.") from None
    name, _, password = text.partition(":")
    return name[:64], password[:1024]
