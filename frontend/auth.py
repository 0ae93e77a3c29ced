"""Who is logged in, how they got in, and which experiments they may see and change.

The owner of the server has an account from the first link that the program prints; others are invited. Browsers carry a
session cookie, scripts an API token or HTTP Basic. Each route names one of the dependencies below, from `WithAccount`
(anybody with an account) to `WithOwner`.
"""

import asyncio
import base64
import binascii
import logging
import re
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from frontend.admission import address_of
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ForbiddenError, LoginError, NotFoundError, TooManyError
from frontend.experiments import ServedExperiment
from frontend.security import (
    DEVICE_SECONDS,
    complaint_about_name,
    complaint_about_password,
    csrf_of,
    digest_of,
    draw_secret,
    hash_password,
    mark_of,
    moment_of_code,
    password_fits,
)
from frontend.store.accounts import LOCAL, Account, Invitation, Role, new_account
from frontend.store.experiments import ExperimentState
from frontend.store.sessions import Access, ConsoleSession, Guesser, Scope
from salmon.logs import fields

log = logging.getLogger("salmon.accounts")

#: What somebody may do with an experiment: nothing, look at it without platform ids, change it, or delete it as well.
AccessLevel = Literal["none", "view", "edit", "own"]
_LEVELS: tuple[AccessLevel, ...] = ("none", "view", "edit", "own")
#: Words of a User-Agent and the name of the browser or system; the first that is there counts.
_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS", "macOS"))
WRONG_LOGIN = "The name or the password is wrong."
#: The type of bodies that hold files.
_UPLOADED = "multipart/form-data"


@dataclass(frozen=True)
class Experimenter:
    """Who sends a request, and how they were recognised.

    `csrf` is what forms of a session carry, and `session` its digest; scripts have neither. An API token may be limited
    to reading, and to the `experiment` with this id.
    """

    id: str
    name: str
    role: Role
    via: Literal["session", "password", "api_token"]
    csrf: str = ""
    session: str = ""
    scope: Scope = "write"
    experiment: str = ""


async def begin_session(request: Request, context: Context, response: Response, account: Account) -> Response:
    """Return the response with the cookie of a new session, and with the mark that this browser has logged in.

    The session that the browser had before ends: what was known of its cookie is worth nothing after a login.
    """
    store, now_ms, secret = context.store.sessions, context.now_ms(), draw_secret()
    seconds = round(context.settings.session_days * 24 * 3600)
    if old := request.cookies.get(cookie_name(request, context)):
        await store.end(digest_of(old))
    await store.begin(
        digest_of(secret),
        ConsoleSession(
            account=account.id,
            name=account.name,
            mark=mark_of_account(account),
            created_ms=now_ms,
            ends_ms=now_ms + seconds * 1000,
            address=address_of(request),
            browser=browser_of(request),
        ),
    )
    device = _device_of(request, context, account.name) or secrets.token_urlsafe(12)
    for cookie, value, age in (
        (cookie_name(request, context), secret, seconds),
        (_device_cookie(request, context), context.signer.sign_device(account.name, device), DEVICE_SECONDS),
    ):
        response.set_cookie(
            cookie,
            value,
            max_age=age,
            path=f"{context.settings.mount}/",
            httponly=True,
            samesite="lax",
            secure=context.is_https(request),
        )
    return response


async def check_password(
    request: Request, context: Context, name: str, password: str, *, by_script: bool = False
) -> Account:
    """Return the account of this name and password.

    A place for the guess is reserved before the password is hashed, so guesses at the same moment count each other;
    after the free ones each has to wait. The same password sent several times at once is one guess.
    """
    guesser = Guesser(address_of(request), _device_of(request, context, name))
    digest = context.recent_passwords.digest(name, password, f"{guesser.address} {guesser.device}")
    check = context.checks.get(digest)
    if check is None:
        check = asyncio.ensure_future(_check(request, context, name, password, guesser, digest, by_script=by_script))
        context.checks[digest] = check
        check.add_done_callback(lambda _: context.checks.pop(digest, None))
    return await asyncio.shield(check)


async def _check(
    request: Request,
    context: Context,
    name: str,
    password: str,
    guesser: Guesser,
    digest: bytes,
    *,
    by_script: bool,
) -> Account:
    guesses, recent, now_ms = context.store.guesses, context.recent_passwords, context.now_ms()
    known_hash = recent.known_hash(digest, now_ms)
    account, wait_ms = await guesses.reserve("password", name, guesser, now_ms=now_ms, only_look=bool(known_hash))
    if known_hash and not wait_ms and (account is None or account.password_hash != known_hash):
        known_hash = ""
        account, wait_ms = await guesses.reserve("password", name, guesser, now_ms=now_ms)
    _refuse_to_wait(wait_ms)
    if known_hash and account is not None:
        return account
    # An unknown name is checked against a hash that nothing fits: names cannot be told apart by the time it takes.
    stored = account.password_hash if account else recent.nobodys_hash
    if not await asyncio.to_thread(password_fits, password, stored) or account is None:
        await note(request, context, name, "login failed", "wrong name or password", failed=True)
        raise LoginError(WRONG_LOGIN)
    await guesses.release("password", name, guesser)
    recent.remember(digest, stored, now_ms)
    if by_script:
        await note(request, context, name, "login", "HTTP Basic")
    return account


async def check_code(request: Request, context: Context, account: Account, code: str) -> None:
    """Raise LoginError unless a code is right: a one-time code that was not used before, or a recovery code.

    Only who knows the password comes here, so wrong codes count together, wherever they come from.
    """
    guesser = Guesser("anywhere", _device_of(request, context, account.name))
    _, wait_ms = await context.store.guesses.reserve("code", account.name, guesser, now_ms=context.now_ms())
    _refuse_to_wait(wait_ms)
    accounts = context.store.accounts
    moment = moment_of_code(account.second_factor, code, context.now_ms())
    if moment is not None:
        fits = await accounts.use_code(account.id, moment)
    else:
        fits = await accounts.use_recovery_code(account.id, digest_of(code.strip().lower()))
    if not fits:
        await note(request, context, account.name, "login failed", "wrong code", failed=True)
        raise LoginError("The code is wrong, or it was used before.", hint="Wait for the next one, or check the clock.")
    await context.store.guesses.release("code", account.name, guesser)


def _refuse_to_wait(wait_ms: int) -> None:
    if wait_ms > 0:
        raise TooManyError(
            "There were too many wrong guesses from here.", hint=f"Try again in {-(-wait_ms // 1000)} seconds."
        )


async def make_account(
    context: Context, name: str, password: str, *, owner: bool = False, role: Role = "experimenter"
) -> Account:
    """Make an account; the password is hashed in a thread, because hashing is slow on purpose."""
    if complaint := complaint_about_name(name) or complaint_about_password(name, password):
        raise BadRequestError(complaint, hint="Choose another.")
    password_hash = await asyncio.to_thread(hash_password, password)
    account = new_account(name, password_hash, "owner" if owner else role, now_ms=context.now_ms())
    await context.store.accounts.create(account)
    return account


async def make_first_invitation(context: Context) -> str:
    """Return the secret of a link that makes the owner's account, as long as there is no account."""
    return await invite(context, purpose="first", name="", role="owner", by="server")


async def invite(
    context: Context,
    *,
    purpose: Literal["first", "account", "reset"],
    name: str,
    role: Role,
    by: str,
    account: str = "",
) -> str:
    """Keep a single-use invitation and return its secret; only its digest is stored."""
    secret, now_ms = draw_secret(), context.now_ms()
    hours = 24 if purpose == "reset" else INVITATION_HOURS
    await context.store.accounts.invite(
        digest_of(secret),
        Invitation(
            id=secrets.token_hex(8),
            purpose=purpose,
            name=name,
            role=role,
            by=by,
            created_ms=now_ms,
            ends_ms=now_ms + hours * 3_600_000,
            account=account,
        ),
    )
    return secret


#: An invitation expires after a week; a link for a new password after a day.
INVITATION_HOURS = 7 * 24


async def take_up(context: Context, invited: Invitation, secret: str, name: str, password: str) -> Account:
    """Use an invitation up: make its account and return it, or set the new password; ForbiddenError if it is void."""
    password_hash = await asyncio.to_thread(hash_password, password)
    account = new_account(name, password_hash, invited.role, now_ms=context.now_ms())
    await context.store.accounts.take_up(digest_of(secret), account, now_ms=context.now_ms())
    return account


async def note(
    request: Request | None, context: Context, by: str, what: str, detail: str = "", *, failed: bool = False
) -> None:
    """Note in the log what somebody did; `request` is None for the command line."""
    address = address_of(request) if request is not None else "command line"
    access = Access(context.now_ms(), by[:64], address, what, detail[:200])
    level = logging.WARNING if failed else logging.INFO
    log.log(level, what, extra=fields(account=access.account, detail=access.detail))
    await context.store.sessions.note(access, failed=failed)


#: Where a request keeps who sends it.
_EXPERIMENTER = "salmon.experimenter"


async def read_account(request: Request, context: WithContext) -> Experimenter:
    """Return who sends this request; that is found out once, also where an upload's
    sender is asked for before its body.
    """
    if _EXPERIMENTER not in request.scope:
        request.scope[_EXPERIMENTER] = await _find_sender(request, context)
    return request.scope[_EXPERIMENTER]


async def _find_sender(request: Request, context: Context) -> Experimenter:
    """Return who sends this request, by API token, HTTP Basic or cookie; a change by cookie must carry the session's
    CSRF token.
    """
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return await _by_token(request, context, credentials.strip())
    if scheme.lower() == "basic":
        name, password = _basic(credentials)
        account = await check_password(request, context, name, password, by_script=True)
        if account.second_factor:
            raise ForbiddenError(
                "An account with a second factor cannot use HTTP Basic.",
                hint="Make an API token on the page Account and send it as `Authorization: Bearer …`.",
            )
        return Experimenter(account.id, account.name, account.role, "password")
    secret = request.cookies.get(cookie_name(request, context), "")
    account = await find_session(context, secret)
    if account is None:
        raise LoginError("Please log in first.", hint="Scripts send an API token, or name and password by HTTP Basic.")
    csrf = csrf_of(secret)
    if request.method not in {"GET", "HEAD"}:
        sent = request.headers.get("x-csrf-token") or str((await request.form()).get("csrf", ""))
        if not secrets.compare_digest(sent.encode(), csrf.encode()):
            raise outdated_form()
    return Experimenter(account.id, account.name, account.role, "session", csrf, digest_of(secret))


#: Anybody with an account, by whatever means.
WithAccount = Annotated[Experimenter, Depends(read_account)]


class UploadRoute(APIRoute):
    """A route of uploads: who sends one is asked before its body is read, which may be many gigabytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads who sends the request first."""
        handle = super().get_route_handler()

        async def ask_first(request: Request) -> Response:
            if _UPLOADED in request.headers.get("content-type", ""):
                if "x-csrf-token" not in request.headers and "authorization" not in request.headers:
                    if request.cookies:
                        raise outdated_form()
                    raise LoginError("Please log in first.", hint="Scripts send an API token, or name and password.")
                await read_account(request, request.app.state.context)
            return await handle(request)

        return ask_first


async def require_experimenter(experimenter: WithAccount) -> Experimenter:
    """Return who sends this request; ForbiddenError unless they may make experiments."""
    if experimenter.role == "viewer":
        raise ForbiddenError(
            "A viewer may look at experiments, and change nothing.",
            hint="The owner of this server can change your role.",
        )
    if experimenter.experiment:
        raise ForbiddenError("This API token reaches one experiment only.", hint="Make another for this.")
    return experimenter


async def require_person(experimenter: WithAccount) -> Experimenter:
    """Return who sends this request; ForbiddenError for API tokens, which may do nothing with accounts."""
    if experimenter.via == "api_token":
        raise ForbiddenError("An API token does not reach accounts.", hint="Log in, or use HTTP Basic.")
    return experimenter


async def require_owner(experimenter: Annotated[Experimenter, Depends(require_person)]) -> Experimenter:
    """Return who sends this request; ForbiddenError unless they own the server."""
    if experimenter.role != "owner":
        raise ForbiddenError("Only the owner of this server may do this.", hint="Ask the owner.")
    return experimenter


def access_of(experimenter: Experimenter, state: ExperimentState) -> AccessLevel:
    """Return what somebody may do with an experiment.

    It may be their own, shared with them, or of the server itself, which all experimenters share; the server's owner
    may do everything, and a viewer no more than look.
    """
    if experimenter.experiment not in {"", state.experiment}:
        return "none"
    if experimenter.role == "owner":
        return "own"
    shared: AccessLevel = state.shared.get(experimenter.id, "none")
    if experimenter.role == "viewer":
        return "view" if shared != "none" or state.owner == experimenter.id else "none"
    if state.owner == experimenter.id:
        return "own"
    return "edit" if state.owner == LOCAL else shared


def may_see(experimenter: Experimenter, state: ExperimentState) -> bool:
    """Return whether somebody may look at an experiment."""
    return access_of(experimenter, state) != "none"


def may_edit(experimenter: Experimenter, state: ExperimentState) -> bool:
    """Return whether somebody may change an experiment and see the platform ids of its participants."""
    return access_of(experimenter, state) in {"edit", "own"}


async def find_visible(slug: str, context: WithContext, experimenter: WithAccount) -> ServedExperiment:
    """Return the experiment of this name, for somebody who may see it."""
    return await _find(slug, context, experimenter, "view")


async def find_editable(slug: str, context: WithContext, experimenter: WithAccount) -> ServedExperiment:
    """Return the experiment of this name, for somebody who may change it."""
    return await _find(slug, context, experimenter, "edit")


async def find_own(slug: str, context: WithContext, experimenter: WithAccount) -> ServedExperiment:
    """Return the experiment of this name, for somebody who may delete it and say who else sees it."""
    return await _find(slug, context, experimenter, "own")


async def _find(slug: str, context: Context, experimenter: Experimenter, level: AccessLevel) -> ServedExperiment:
    experiment = await context.catalogue.find(slug)
    access = access_of(experimenter, experiment.state)
    if access == "none":
        # The same words as for an unknown name, so that nobody learns what others call their experiments.
        raise NotFoundError(
            f"There is no experiment called {slug!r} here.",
            hint="Check the link, or ask the people who sent it to you.",
        )
    if _LEVELS.index(access) < _LEVELS.index(level):
        names = await context.store.accounts.names()
        owner = names.get(experiment.state.owner, "the owner of this server")
        what = "delete or share" if level == "own" else "change"
        raise ForbiddenError(f"You may not {what} this experiment.", hint=f"Only its owner may: it belongs to {owner}.")
    return experiment


#: Anybody who may make experiments.
WithExperimenter = Annotated[Experimenter, Depends(require_experimenter)]
#: Anybody with an account, but not an API token.
InPerson = Annotated[Experimenter, Depends(require_person)]
#: The owner of the server.
WithOwner = Annotated[Experimenter, Depends(require_owner)]
#: The experiment of the address, for somebody who may see it, change it, or delete it.
WithExperiment = Annotated[ServedExperiment, Depends(find_visible)]
EditableExperiment = Annotated[ServedExperiment, Depends(find_editable)]
OwnExperiment = Annotated[ServedExperiment, Depends(find_own)]


def browser_of(request: Request) -> str:
    """Return the browser and system of a request in words, such as "Firefox on Linux"."""
    agent = request.headers.get("user-agent", "")
    browser = next((name for word, name in _BROWSERS if word in agent), "")
    system = next((name for word, name in _SYSTEMS if word in agent), "Linux" if "Linux" in agent else "")
    plain = re.sub(r"[^\w ./-]", "", agent)[:40]
    return " on ".join(word for word in (browser, system) if word) or plain or "unknown"


def cookie_name(request: Request, context: Context) -> str:
    """Return the name of the session cookie."""
    return _cookie_prefix(request, context) + "salmon_login"


def _device_cookie(request: Request, context: Context) -> str:
    return _cookie_prefix(request, context) + "salmon_device"


def _cookie_prefix(request: Request, context: Context) -> str:
    """Return what browsers hold a cookie to by its name: over HTTPS, `__Host-` is taken from this very host only.

    That prefix demands the path `/`. Under a path of its own, this server keeps its cookies from the host's other
    applications, and `__Secure-` is the prefix for that.
    """
    if not context.is_https(request):
        return ""
    return "__Secure-" if context.settings.mount else "__Host-"


def _device_of(request: Request, context: Context, name: str) -> str:
    return context.signer.read_device(request.cookies.get(_device_cookie(request, context), ""), name)


def mark_of_account(account: Account) -> str:
    """Return what a session or a half-finished login remembers of an account; another mark ends it."""
    return mark_of(f"{account.id}:{account.password_hash}", account.role)


def outdated_form() -> ForbiddenError:
    """Return the error about a form whose CSRF token is not that of the session."""
    return ForbiddenError("This form is out of date.", hint="Reload the page and try again.")


async def find_session(context: Context, secret: str) -> Account | None:
    """Return the account of a session that goes on."""
    if not secret:
        return None
    found = await context.store.sessions.find(
        digest_of(secret), now_ms=context.now_ms(), idle_ms=round(context.settings.session_idle_hours * 3_600_000)
    )
    return found[1] if found and found[0].mark == mark_of_account(found[1]) else None


async def _by_token(request: Request, context: Context, secret: str) -> Experimenter:
    found = await context.store.sessions.find_token(digest_of(secret), now_ms=context.now_ms())
    if found is None:
        raise LoginError("This API token is unknown, has expired or was revoked.", hint="Make another one.")
    token, account = found
    if token.scope == "read" and request.method not in {"GET", "HEAD"}:
        raise ForbiddenError("This API token may only read.", hint="Make one that may also change things.")
    return Experimenter(
        account.id, account.name, account.role, "api_token", scope=token.scope, experiment=token.experiment
    )


def _basic(credentials: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        raise LoginError("The Authorization header cannot be read.") from None
    name, _, password = text.partition(":")
    return name[:64], password[:1024]
