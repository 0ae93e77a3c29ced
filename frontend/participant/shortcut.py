"""The two requests of every trial, answered before the framework looks at them: `GET …/query` and `POST …/answers`.

Routing, dependencies and the layers around them take longer than the trial itself. Only plain requests of a participant
page take this way, with the same functions and the same replies. Everything else goes on to the routes of
`frontend.participant.routes`, which describe both requests: other parameters, pages of other origins, what is too long,
and what has no session.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from frontend.admission import PARTICIPANT_BYTES, PARTICIPANT_HEADERS, with_headers
from frontend.errors import answer_salmon_error
from frontend.participant.trials import give_query, record_answers_of
from salmon.errors import SalmonError

if TYPE_CHECKING:
    from frontend.context import Context
    from frontend.metrics import Metrics

_PATH = re.compile(r"/e/[^/]+/(?:query|answers)")
#: What a page asks with: no other parameters, and numbers that are surely within bounds.
_PARAMETERS = re.compile(rb"number=(\d{1,7})((?:&skipped=\d{1,7}){0,100})(&spare=true)?")
_ROUTES = {"GET": "/e/{slug}/query", "POST": "/e/{slug}/answers"}
_REPLY_HEADERS = [
    (b"content-type", b"application/json"),
    *((name.lower().encode(), value.encode()) for name, value in PARTICIPANT_HEADERS.items()),
]


class TrialShortcut:
    """Middleware that answers the plain requests of trials itself, and passes on all others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on; participants' requests are under way meanwhile."""
        if scope["type"] != "http" or not scope["path"].startswith("/e/"):
            await self._app(scope, receive, send)
            return
        metrics: Metrics = scope["app"].state.context.metrics
        metrics.under_way += 1
        try:
            await (self._trial(scope, receive, send) or self._app(scope, receive, send))
        finally:
            metrics.under_way -= 1

    @staticmethod
    def _trial(scope: Scope, receive: Receive, send: Send) -> Awaitable[None] | None:
        """Return what answers a plain request of a trial; None for any other."""
        method, path = scope["method"], scope["path"]
        if not _PATH.fullmatch(path):
            return None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not is_plain(headers):
            return None
        if method == "GET" and path.endswith("/query") and b"x-salmon-session" in headers:
            asked = _PARAMETERS.fullmatch(scope["query_string"])
            return _Trial(scope, receive, send).query(headers[b"x-salmon-session"], asked) if asked else None
        if method == "POST" and path.endswith("/answers") and is_short(headers):
            return _Trial(scope, receive, send).answers()
        return None


def is_plain(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a program or a page of this server sends a request, and no browser wants to show its reply."""
    origin = headers.get(b"origin")
    ours = origin is None or origin.partition(b"://")[2] == headers.get(b"host", b"")
    return ours and b"text/html" not in headers.get(b"accept", b"")


def is_short(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a body is announced with a length that a participant's may have."""
    length = headers.get(b"content-length", b"")
    return length.isdigit() and len(length) <= len(str(PARTICIPANT_BYTES)) and int(length) <= PARTICIPANT_BYTES


class PlainRequest:
    """One request that is answered before routing: how its body is read, how it is
    replied to, and that it is counted.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, route: str) -> None:
        self.context: Context = scope["app"].state.context
        self._scope, self._receive, self._send, self._route = scope, receive, send, route
        self._status = 500
        self._started = time.perf_counter()

    async def answer(
        self,
        work: Callable[[], Awaitable[tuple[int, Mapping[str, Any]] | None]],
        answer_error: Callable[[Request, SalmonError], Awaitable[Response]] = answer_salmon_error,
    ) -> None:
        """Reply with the status and the content that `work` returns, or with the error that it raises; None means that
        the sender has left.
        """
        try:
            done = await work()
            if done is None:
                self._status = 499
            else:
                await self._reply(*done)
        except SalmonError as error:
            response = await answer_error(Request(self._scope), error)
            self._status = response.status_code
            await response(self._scope, self._receive, with_headers(self._send, PARTICIPANT_HEADERS))
        finally:
            self.context.metrics.count(self._route, self._status, time.perf_counter() - self._started)

    async def read_body(self) -> bytes | None:
        """Return the body; None where its sender has left."""
        pieces: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return None
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def _reply(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        self._status = status
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*_REPLY_HEADERS, length]})
        await self._send({"type": "http.response.body", "body": body})


class _Trial(PlainRequest):
    """One request of a trial."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send, _ROUTES[scope["method"]])

    async def query(self, session: bytes, asked: re.Match[bytes]) -> None:
        """Give the query of a turn."""
        number, skipped, spare = asked.groups()

        async def give() -> tuple[int, Mapping[str, Any]]:
            reply = await give_query(
                self.context,
                session.decode("latin-1"),
                number=int(number),
                spare=spare is not None,
                skipped=tuple(map(int, skipped.split(b"&skipped=")[1:])),
            )
            return 200, reply

        await self.answer(give)

    async def answers(self) -> None:
        """Record answers."""

        async def record() -> tuple[int, Mapping[str, Any]] | None:
            content = await self.read_body()
            return None if content is None else await record_answers_of(self.context, content)

        await self.answer(record)
