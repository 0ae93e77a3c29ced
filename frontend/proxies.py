"""What a proxy in front of this server changes about a request, and what of its word is believed.

A proxy may show this server under a path of its host, such as `https://lab.example.edu/salmon/`: the path of
`SALMON_PUBLIC_URL`, called the mount. Whether the proxy strips the path or keeps it, everything inside sees paths that
begin at the top, and every redirect gets the mount again. `X-Forwarded-For` and `X-Forwarded-Proto` are believed from
the proxies of `SALMON_TRUSTED_PROXIES` only; nobody is trusted whom it does not name. The header that says whom a proxy
has logged in is believed with the proxy's secret besides, because other programs may share the proxy's address. No
header moves the server: `X-Forwarded-Host` and `X-Forwarded-Prefix` are never read, because `SALMON_PUBLIC_URL` says
where it is.
"""

import logging
import secrets
from typing import Any, Literal, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from salmon.logs import fields

log = logging.getLogger("salmon.proxies")

#: The header in which a proxy proves that it is the one which logs people in.
PROXY_SECRET = b"x-salmon-proxy-secret"
#: What the application finds in the scope of a request: what became of the word of a proxy about its sender.
WORD_OF_PROXY = "salmon.word_of_proxy"
WordOfProxy = Literal["none", "believed", "ignored"]
#: Whether the path of a request began with the mount when it came.
PATH_KEPT = "salmon.path_kept"


class Proxies:
    """Middleware, outside of all others, behind which requests look as if there were no proxy."""

    def __init__(self, app: ASGIApp, *, mount: str, trusted: str, login_header: str, login_header_secret: str) -> None:
        named = [each.strip() for each in trusted.split(",") if each.strip()]
        self._forwarded = ProxyHeadersMiddleware(cast("Any", app), named)
        self._mount = mount
        self._login_header = login_header.lower().encode()
        self._login_header_secret = login_header_secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the address of its sender, its scheme and its path below the mount."""
        if scope["type"] != "http":
            await self._forwarded(cast("Any", scope), cast("Any", receive), cast("Any", send))
            return
        scope[WORD_OF_PROXY] = self._word_of_proxy(scope)
        if self._login_header:
            scope["headers"] = self._without_false_login(scope)
        if self._mount:
            if scope["path"] == self._mount:
                await Response(status_code=308, headers={"Location": f"{self._mount}/"})(scope, receive, send)
                return
            send = self._moved(scope, send)
            if scope["path"].startswith(f"{self._mount}/"):
                scope = {**scope, "path": scope["path"][len(self._mount) :], PATH_KEPT: True}
        await self._forwarded(cast("Any", scope), cast("Any", receive), cast("Any", send))

    def _word_of_proxy(self, scope: Scope) -> WordOfProxy:
        if not any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
            return "none"
        return "believed" if self._comes_from_proxy(scope) else "ignored"

    def _without_false_login(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request without the proxy's secret, and without a login that the secret does not
        prove.
        """
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        shown = [value for name, value in headers if name == PROXY_SECRET]
        kept = [pair for pair in headers if pair[0] != PROXY_SECRET]
        if not any(name == self._login_header for name, _ in kept):
            return kept
        is_proven = len(shown) == 1 and secrets.compare_digest(shown[0], self._login_header_secret)
        if is_proven and self._comes_from_proxy(scope):
            return kept
        why = "not from a named proxy" if is_proven else "without the proxy's secret"
        log.warning("login header refused", extra=fields(address=scope["client"] and scope["client"][0], why=why))
        return [pair for pair in kept if pair[0] != self._login_header]

    def _comes_from_proxy(self, scope: Scope) -> bool:
        return bool(scope["client"]) and scope["client"][0] in self._forwarded.trusted_hosts

    def _moved(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds the mount to where a response redirects to, if that is on this server."""
        host = Headers(scope=scope).get("host", "")
        mount = self._mount

        async def moved(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                if location := headers.get("location"):
                    headers["location"] = move(location, mount, host)
            await send(message)

        return moved


def move(location: str, mount: str, host: str) -> str:
    """Return where a redirect leads, below the mount if it leads to this server, which the request calls `host`."""
    for own in (f"http://{host}/", f"https://{host}/"):
        if location.startswith(own):
            location = location[len(own) - 1 :]
    outside = not location.startswith("/") or location.startswith(("//", f"{mount}/"))
    return location if outside else mount + location
