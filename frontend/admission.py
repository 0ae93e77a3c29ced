"""Which requests are let in, decided before anything of them is parsed: by their size and by the page that sent them.

Participants' routes carry a token of their own, so they answer pages of every origin that may show an experiment, and
cookies never reach them: what a script on a participant page sends is the participant's, whoever looks at the page.
All other routes belong to experimenters, whose browser adds their session to what any page sends: there, requests that
another page caused are refused, except links that are followed.
"""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from salmon.errors import SalmonError

#: Longest body of what a form with a name and a password sends, in bytes.
FORM_BYTES = 64_000
#: Longest body of a participant's request: far more than the 500 answers that one may hold.
PARTICIPANT_BYTES = 2_000_000
#: Longest body of an experimenter's request that uploads nothing: a description has at most 2 MB.
REQUEST_BYTES = 4_000_000

#: Longest body of an event that a recruitment platform sends.
EVENT_BYTES = 64_000

_EVENTS = re.compile(r"/api/prolific/events/[^/]+")
_FORMS = re.compile(r"/console/.*|/create_user.*")
_UPLOADS = re.compile(r"/api/experiments(?:/import|/[^/]+/spec)?|/api/draft/targets|/init_exp|/restore")
_PARTICIPANTS = re.compile(
    r"/e/([^/]+)/(?:arrive|steps/[a-z]+|query|answers|events|finish|withdraw|skip)|/query|/answer"
)
#: Files and pages that are the same for everybody, whoever asks.
_PUBLIC = re.compile(r"/(?:media|static|scripts|client|e)/.*|/|/healthz|/readyz|/schema\.json")
#: Files that pages of other origins load as modules, or to measure them.
_SHARED_FILES = ("/media/", "/static/", "/scripts/", "/client/", "/schema.json")

_PUBLIC_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
#: Pages of other origins may ask, and get another reply than others.
PARTICIPANT_HEADERS = {**_PUBLIC_HEADERS, "Vary": "Origin"}
#: No page of another site keeps a hold on a window of the console, or reads what it shows.
_OWN_HEADERS = {**_PUBLIC_HEADERS, "Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "same-origin"}
_FILE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}

#: The origin that a browser names for a page that is kept apart from the site it comes from.
NULL_ORIGIN = "null"

#: What is read and thrown away of a body that is too large, so that whoever sends it sees the reply.
_DRAINED_BYTES = 32_000_000
_DRAINED_SECONDS = 5.0


def most_bytes(path: str, *, uploads: int) -> int:
    """Return how long the body of a request to this address may be."""
    if _PARTICIPANTS.fullmatch(path):
        return PARTICIPANT_BYTES
    if _FORMS.fullmatch(path):
        return FORM_BYTES
    if _EVENTS.fullmatch(path):
        return EVENT_BYTES
    return uploads if _UPLOADS.fullmatch(path) else REQUEST_BYTES


def address_of(request: Request) -> str:
    """Return the network address that a request comes from; of IPv6, the part that one household or campus has."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def came_from_elsewhere(method: str, headers: Headers, hosts: Iterable[str]) -> bool:
    """Return whether another site's page caused a request, by what browsers say and pages cannot change.

    A link from elsewhere may be followed to a page; a form, a script and a frame from elsewhere are refused, and so is
    every page without an origin. Programs that are not browsers send none of these headers. `hosts` are our own.
    """
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in hosts:
        return True
    if headers.get("sec-fetch-site", "none") in {"none", "same-origin"}:
        return False
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (method == "GET" and follows_link)


class Admission:
    """Middleware that refuses what is too large or was sent by another site's page, and
    answers what browsers ask first.

    `origins_of(slug)` returns the origins whose pages may show an experiment; `public_host` is the name under which a
    proxy is reached.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        origins_of: Callable[[str], Awaitable[tuple[str, ...]]],
        public_host: str,
        most_upload_bytes: int,
    ) -> None:
        self._app = app
        self._origins_of = origins_of
        self._public_host = public_host
        self._most_upload_bytes = most_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method, headers = scope["path"], scope["method"], Headers(scope=scope)
        most = most_bytes(path, uploads=self._most_upload_bytes)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            await _drain(receive)
            await _refuse(413, too_large(most), "Send less at once.", path)(scope, receive, send)
            return
        receive = _limited(receive, most)
        participants = _PARTICIPANTS.fullmatch(path)
        if participants:
            await self._let_participants_in(participants[1], scope, receive, send)
            return
        if not _PUBLIC.fullmatch(path) and came_from_elsewhere(method, headers, self._hosts(headers)):
            await _refuse(403, "This request was sent by a page of another site.", "Open the address yourself.", path)(
                scope, receive, send
            )
            return
        shared = path.startswith(_SHARED_FILES)
        added = _FILE_HEADERS if shared else _PUBLIC_HEADERS if _PUBLIC.fullmatch(path) else _OWN_HEADERS
        await self._app(scope, receive, with_headers(send, added))

    async def _let_participants_in(self, slug: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin")
        added = dict(PARTICIPANT_HEADERS)
        if origin is not None and (origin == NULL_ORIGIN or origin in await self._allowed(slug)):
            added["Access-Control-Allow-Origin"] = origin
        send = with_headers(send, added)
        if scope["method"] == "OPTIONS":
            allowed = {
                "Access-Control-Allow-Methods": "GET, POST",
                "Access-Control-Allow-Headers": "Content-Type, X-Salmon-Session",
                "Access-Control-Max-Age": "7200",
            }
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        # A participant is who their token says; an experimenter's session would say something else.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in {b"cookie", b"authorization"}]
        await self._app(scope, receive, send)

    async def _allowed(self, slug: str | None) -> tuple[str, ...]:
        try:
            return await self._origins_of(slug) if slug else ()
        except SalmonError:
            return ()  # the request itself is answered with the error

    def _hosts(self, headers: Headers) -> frozenset[str]:
        return frozenset({headers.get("host", ""), self._public_host} - {""})


def too_large(most: int) -> str:
    """Return the sentence about a body of more than `most` bytes."""
    return f"This request is too large: at most {most:,} bytes are possible at this address."


def _refuse(status: int, message: str, hint: str, where: str) -> Response:
    code = "too_large" if status == 413 else "forbidden"
    content = {"error": {"code": code, "message": message, "where": where, "hint": hint}}
    return JSONResponse(content, status_code=status, headers={"Connection": "close"} if status == 413 else None)


def _limited(receive: Receive, most: int) -> Receive:
    """Return a `receive` that raises as soon as a body without a length turns out to be longer than `most` bytes."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise HTTPException(413, too_large(most))
        return message

    return limited


def with_headers(send: Send, added: Mapping[str, str]) -> Send:
    """Return a `send` that adds headers to a response, where it does not have them."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return with_headers


async def _drain(receive: Receive) -> None:
    """Read and throw away a body, within bounds: a browser that still writes would not read the reply."""
    drained = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAINED_SECONDS):
            while drained < _DRAINED_BYTES:
                message = await receive()
                drained += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
