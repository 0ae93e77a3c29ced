"""Routes that say how a request arrives here: what `salmon doctor` asks, from outside, about the proxies in between.

They tell a caller about its own request and nothing else, so nobody has to log in.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from frontend.context import WithContext
from frontend.proxies import PATH_KEPT, WORD_OF_PROXY, WordOfProxy

#: The cookie that is set at the first request, to see whether it comes back.
COOKIE = "salmon_doctor"
#: The stream sends so many events, so far apart.
EVENTS = 4
EVENT_SECONDS = 0.3
#: Headers of event streams; nginx sends what has `X-Accel-Buffering: no` on at once.
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(prefix="/api/doctor")


class ReachedReply(TypedDict):
    """How a request arrived: by which scheme, for which host, and what proxies did to it.

    `forwarded` says whether `X-Forwarded-For` was there and believed, `path` whether the path of the public address was
    kept or stripped, and `cookie` whether the cookie of an earlier request came back.
    """

    scheme: str
    host: str
    public_url: str
    forwarded: WordOfProxy
    path: Literal["kept", "stripped", "none"]
    cookie: bool
    time_ms: int
    takes_from_network: bool


@router.get("")
async def read_request(request: Request, response: Response, context: WithContext) -> ReachedReply:
    """Return how this request arrived, and set a cookie like that of a login, for a minute."""
    settings = context.settings
    response.set_cookie(
        COOKIE,
        "1",
        max_age=60,
        path=f"{settings.mount}/",
        httponly=True,
        samesite="lax",
        secure=context.is_https(request),
    )
    kept = bool(request.scope.get(PATH_KEPT))
    return {
        "scheme": request.url.scheme,
        "host": request.headers.get("host", ""),
        "public_url": settings.public_url,
        "forwarded": request.scope.get(WORD_OF_PROXY, "none"),
        "path": "none" if not settings.mount else "kept" if kept else "stripped",
        "cookie": COOKIE in request.cookies,
        "time_ms": context.now_ms(),
        "takes_from_network": settings.host not in {"127.0.0.1", "::1", "localhost"},
    }


@router.get("/stream", response_class=Response)
async def stream() -> Response:
    """Send a few server-sent events, as the live pages of the console get them: a proxy must not hold them back."""
    return StreamingResponse(_events(), media_type="text/event-stream", headers=UNBUFFERED)


async def _events() -> AsyncIterator[str]:
    for number in range(EVENTS):
        if number:
            await asyncio.sleep(EVENT_SECONDS)
        yield f"data: {number}\n\n"
