"""What `salmon doctor` sees of a server from outside, through every proxy that is in between.

Each check returns findings, and none needs a login. Where the server cannot be reached, the other checks are left out.
"""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal, cast
from urllib.parse import urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from frontend.reached import EVENT_SECONDS, EVENTS, ReachedReply

Level = Literal["ok", "warning", "problem"]

_SECONDS = 15.0
#: Certificates are renewed a month before they end, so one that ends sooner was not.
_CERTIFICATE_DAYS = 14
#: Codes of a second factor last half a minute, and signed links of Prolific some minutes.
_CLOCK_SECONDS, _CLOCK_TOO_FAR_SECONDS = 5.0, 30.0
_REPLY = TypeAdapter(ReachedReply)
_NGINX_PATH = (
    "In nginx, for example: location /salmon/ { proxy_pass http://127.0.0.1:8421; }, as docs/deployment.md shows."
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: its short name, whether it is as it should be, a sentence, and what to do."""

    check: str
    level: Level
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return what programs read."""
        return asdict(self)


async def examine_address(address: str, *, upload_mb: int) -> list[Finding]:
    """Return what there is to say about a server at an address."""
    address = (address if "://" in address else f"https://{address}").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return [Finding("address", "problem", f"{address!r} is no address.", "Write it as in a browser.")]
    found: list[Finding] = []
    async with httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client:
        try:
            found += [each async for each in _reach(client, address)]
        except httpx.HTTPError as error:
            return [await _explain_failure(address, error)]
        if any(each.level == "problem" for each in found):
            return found
        found += [each async for each in _readiness(client, address)]
        found += [each async for each in _certificate(address)]
        try:
            reached, seconds_off = await _ask(client, address)
        except (httpx.HTTPError, ValidationError):
            text = "The server does not say how requests reach it: it is of an earlier version, or a proxy keeps /api from it."
            found.append(Finding("path", "problem", text, "Let the proxy pass everything below the path on."))
            return found
        again, _ = await _ask(client, address)
        found += _judge(address, reached)
        if urlsplit(reached["public_url"]).path == urlsplit(address).path or not reached["public_url"]:
            found.append(_cookie(again))
        found.append(_clock(seconds_off))
        found.append(await _stream(client, address))
    found.append(await _upload(address, upload_mb))
    return found


async def _reach(client: httpx.AsyncClient, address: str) -> AsyncIterator[Finding]:
    began = time.monotonic()
    reply = await client.get(f"{address}/healthz")
    took_ms = (time.monotonic() - began) * 1000
    if _is_healthy(reply):
        yield Finding("reachable", "ok", f"{address} answers in {took_ms:,.0f} ms.")
        return
    if reply.is_redirect:
        leads_to = reply.headers.get("location", "")
        yield Finding(
            "reachable",
            "problem",
            f"{address} redirects to {leads_to}.",
            f"Give participants the address that it leads to: salmon doctor {leads_to.removesuffix('/healthz')}",
        )
        return
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    elsewhere = ""
    if parts.path:
        with suppress(httpx.HTTPError):
            elsewhere = origin if _is_healthy(await client.get(f"{origin}/healthz")) else ""
    if elsewhere:
        yield Finding(
            "path",
            "problem",
            f"Salmon is at {elsewhere}, not at {address}.",
            f"Let the proxy pass {parts.path}/ on to it. {_NGINX_PATH}",
        )
    elif reply.status_code in {502, 503, 504}:
        yield Finding(
            "reachable",
            "problem",
            f"A proxy answers at {address} with status {reply.status_code}: it does not reach Salmon.",
            "Start Salmon, and let the proxy pass requests to the port that it listens on.",
        )
    else:
        yield Finding(
            "path",
            "problem",
            f"Something else answers at {address}, with status {reply.status_code}.",
            f"Check the address, and the path in the proxy's configuration. {_NGINX_PATH}",
        )


def _is_healthy(reply: httpx.Response) -> bool:
    try:
        return reply.status_code == 200 and reply.json() == {"status": "ok"}
    except ValueError:
        return False


async def _explain_failure(address: str, error: httpx.HTTPError) -> Finding:
    """Return why a server cannot be reached at all."""
    said = str(error)
    host = urlsplit(address).hostname
    if "CERTIFICATE_VERIFY_FAILED" in said:
        reason = (
            said.partition("CERTIFICATE_VERIFY_FAILED]")[2]
            .partition("(_ssl")[0]
            .strip(" :")
            .removeprefix("certificate ")
        )
        return Finding(
            "certificate",
            "problem",
            f"Browsers do not accept the certificate of {host}: {reason}.",
            "Get one from your institution or by Let's Encrypt; Caddy does so by itself.",
        )
    if isinstance(error, httpx.TimeoutException):
        text = f"{address} does not answer within {_SECONDS:g} seconds."
        return Finding(
            "reachable", "problem", text, "Ask whether a firewall is in between, and look whether Salmon runs."
        )
    if "Name or service not known" in said or "nodename nor servname" in said or "No address associated" in said:
        return Finding("reachable", "problem", f"There is no host called {host}.", "Check the name, or its DNS entry.")
    if "SSL" in said.upper():
        text = f"{host} does not speak HTTPS at this port."
        return Finding("certificate", "problem", text, "Switch TLS on in the proxy; Caddy does so by itself.")
    return Finding(
        "reachable",
        "problem",
        f"{address} takes no connections: {said or type(error).__name__}.",
        "Start Salmon and the proxy, and open the port in the firewall.",
    )


async def _readiness(client: httpx.AsyncClient, address: str) -> AsyncIterator[Finding]:
    reply = await client.get(f"{address}/readyz")
    try:
        content = cast("dict[str, str]", reply.json())
    except ValueError:
        content = {}
    if reply.status_code == 200:
        warning = content.get("warning", "")
        yield (
            Finding("ready", "warning", warning)
            if warning
            else Finding("ready", "ok", "Store and learning process run.")
        )
    else:
        said = content.get("hint", f"The server answers with status {reply.status_code}.")
        yield Finding(
            "ready", "problem", said, "Look at the log of the server; `salmon serve` starts all of its parts."
        )


async def _certificate(address: str) -> AsyncIterator[Finding]:
    """Say until when the certificate is good; that it is accepted was seen before."""
    parts = urlsplit(address)
    if parts.scheme == "http":
        if not _is_this_machine(parts.hostname or ""):
            yield Finding(
                "certificate",
                "problem",
                "Passwords and answers travel unencrypted over http://.",
                "Put a proxy with HTTPS in front; Caddy gets certificates by itself (docs/deployment.md).",
            )
        return
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=ssl.create_default_context())
    shown = cast("dict[str, str] | None", writer.get_extra_info("peercert")) or {}
    await _close(writer)
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC)
    days = (ends - datetime.now(UTC)).days
    said = f"The certificate ends on {ends:%d %B %Y}, in {days} days."
    if days < _CERTIFICATE_DAYS:
        yield Finding("certificate", "warning", said, "Renew it, or look why it is not renewed by itself.")
    else:
        yield Finding("certificate", "ok", said)


async def _ask(client: httpx.AsyncClient, address: str) -> tuple[ReachedReply, float]:
    """Return how a request reaches the server, and by how many seconds its clock is ahead of this one."""
    before = time.time()
    reply = (await client.get(f"{address}/api/doctor")).raise_for_status()
    after = time.time()
    reached = _REPLY.validate_json(reply.content)
    return reached, reached["time_ms"] / 1000 - (before + after) / 2


def _judge(address: str, reached: ReachedReply) -> Iterator[Finding]:
    """Say whether the server knows where it is, and whom it takes a request to be from."""
    parts, public = urlsplit(address), reached["public_url"]
    if public and public != address:
        yield Finding(
            "path",
            "problem",
            f"Salmon takes {public} to be its address, and makes all links with it.",
            f"If participants use {address}, start it with --public-url {address}",
        )
    elif public:
        done = {"kept": " The proxy passes the path on.", "stripped": " The proxy strips the path."}.get(
            reached["path"], ""
        )
        yield Finding("path", "ok", f"Links begin with {public}.{done}")
    elif reached["host"] != parts.netloc:
        yield Finding(
            "host",
            "problem",
            f"The proxy calls the server {reached['host']!r}, so links lead there and logins are refused.",
            f"Start Salmon with --public-url {address}",
        )
    elif reached["scheme"] != parts.scheme:
        yield Finding(
            "scheme",
            "problem",
            f"Salmon takes itself to be reached by {reached['scheme']}://, so links and cookies are not for {parts.scheme}://.",
            f"Start it with --public-url {address}, or let the proxy send X-Forwarded-Proto and name it in SALMON_TRUSTED_PROXIES.",
        )
    elif not _is_this_machine(parts.hostname or ""):
        yield Finding(
            "path",
            "warning",
            "Salmon has not been told its address; links with a secret are completed by the browser.",
            f"Start it with --public-url {address}",
        )
    if reached["forwarded"] == "ignored":
        yield Finding(
            "sender",
            "problem",
            "The proxy says who sends a request, but it is not believed: all people seem to come from one address.",
            "Name the proxy's address in SALMON_TRUSTED_PROXIES.",
        )
    elif reached["forwarded"] == "none" and public and not _is_this_machine(parts.hostname or ""):
        yield Finding(
            "sender",
            "warning",
            "No proxy says who sends a request. If there is one, all people seem to come from its address.",
            "In nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        )
    else:
        yield Finding("sender", "ok", "Requests are known by the address that they come from.")
    if reached["takes_from_network"] and reached["forwarded"] != "none":
        yield Finding(
            "listens",
            "warning",
            "The web process takes requests from the whole network, also past the proxy.",
            "Start it with --host 127.0.0.1, unless a firewall or a network of containers keeps others away.",
        )


def _cookie(again: ReachedReply) -> Finding:
    if again["cookie"]:
        return Finding("cookies", "ok", "Cookies come back.")
    return Finding(
        "cookies",
        "problem",
        "A cookie that the server set did not come back, so nobody can log in.",
        "Let the proxy pass Set-Cookie and Cookie on unchanged: no proxy_cookie_path, no proxy_hide_header, no cache.",
    )


def _clock(seconds_off: float) -> Finding:
    far = abs(seconds_off)
    if far < _CLOCK_SECONDS:
        return Finding("clock", "ok", "The server's clock agrees with this one.")
    way = "ahead of" if seconds_off > 0 else "behind"
    return Finding(
        "clock",
        "problem" if far > _CLOCK_TOO_FAR_SECONDS else "warning",
        f"The server's clock is {far:,.0f} seconds {way} this one.",
        "Switch time synchronisation on (timedatectl set-ntp true); codes of a second factor fail otherwise.",
    )


async def _stream(client: httpx.AsyncClient, address: str) -> Finding:
    """Say whether events arrive as they are sent: a proxy that holds them back shows them all at the end."""
    came: list[float] = []
    try:
        async with client.stream("GET", f"{address}/api/doctor/stream") as reply:
            came += [time.monotonic() async for line in reply.aiter_lines() if line.startswith("data:")]
    except httpx.HTTPError as error:
        return Finding(
            "live pages", "problem", f"The event stream broke off: {type(error).__name__}.", "Look at the proxy's log."
        )
    if len(came) < EVENTS or came[-1] - came[0] < (EVENTS - 1) * EVENT_SECONDS / 2:
        return Finding(
            "live pages",
            "problem",
            "The proxy holds events back, so pages of the console do not follow what happens.",
            "In nginx: proxy_buffering off; and no proxy_ignore_headers X-Accel-Buffering. Elsewhere: no buffering of text/event-stream.",
        )
    return Finding("live pages", "ok", "Events arrive as they are sent.")


async def _upload(address: str, upload_mb: int) -> Finding:
    """Say whether proxies take an upload of a size, without sending it: they answer to the announced length.

    `Expect: 100-continue` lets a server refuse a body before it comes. A proxy that takes it asks for it, or passes the
    request on to Salmon, which asks for a login first.
    """
    parts = urlsplit(address)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    head = (
        f"POST {parts.path}/api/experiments HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {upload_mb * 1_000_000}\r\n"
        "Content-Type: multipart/form-data; boundary=doctor\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    try:
        status = await _first_status(parts.hostname or "", parts.port or (443 if secure else 80), secure, head)
    except (OSError, ssl.SSLError, TimeoutError):
        status = ""
    if status == "413":
        return Finding(
            "uploads",
            "problem",
            f"An upload of {upload_mb} MB is refused as too large.",
            "In nginx: client_max_body_size 0; in Caddy and Apache look for a limit of request bodies.",
        )
    if status in {"100", "401"}:
        return Finding("uploads", "ok", f"Uploads of {upload_mb} MB are let through.")
    said = f"with status {status}" if status else "not at all"
    return Finding("uploads", "warning", f"An upload of {upload_mb} MB is answered {said}.", "Look at the proxy's log.")


async def _first_status(host: str, port: int, secure: ssl.SSLContext | None, head: str) -> str:
    """Return the status of the first reply to the head of a request; "" where the connection ends without one."""
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=secure)
        try:
            writer.write(head.encode())
            words = (await reader.readline()).decode(errors="replace").split()
        finally:
            await _close(writer)
    return words[1] if len(words) > 1 else ""


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, ssl.SSLError):
        await writer.wait_closed()


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
