"""Start the web process: `python -m frontend`, with its settings in the environment."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping

import uvicorn
import uvloop
from pydantic import ValidationError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontend.app import create_app
from frontend.auth import make_first_invitation
from frontend.context import Context
from frontend.lifecycle import keep_watch
from frontend.notifications import keep_telling
from frontend.settings import Settings
from frontend.store import Store
from frontend.submissions import keep_asking
from frontend.transfer.erasure import maintain
from frontend.transfer.nightly_bundles import keep_writing
from frontend.transfer.rehearsals import keep_clearing
from frontend.transfer.subprocesses import Subprocesses
from salmon import logs, parent_watch

log = logging.getLogger("salmon.proxies")

#: How long a client may take for the head of a request, or until the next piece of its body.
READ_SECONDS = 25.0
#: How often the supervisor hears that this process serves.
LIFE_SECONDS = 2.0
#: What is said at the start if there is a public address, and so a proxy, whose word is not believed.
_UNNAMED_PROXY = (
    "No proxy is named, so all visitors have the proxy's address: they share one limit of password guesses and of"
    " arrivals. Name the proxy by its address in SALMON_TRUSTED_PROXIES or --trusted-proxies, such as 127.0.0.1 if it"
    " runs on this machine."
)
#: Descriptors kept for the store's connections, files, and pipes of subprocesses.
_OTHER_DESCRIPTORS = 300


def main() -> int:
    """Listen, say where on standard output, and serve until told to stop."""
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        for problem in error.errors():
            print(f"salmon frontend: SALMON_{str(problem['loc'][0]).upper()}: {problem['msg']}.", file=sys.stderr)
        return 1
    os.umask(parent_watch.PRIVATE_UMASK)
    logs.configure("frontend", level=settings.log_level, style=settings.log_format, directory=settings.log_directory)
    causes: dict[str, str] = {}
    parent_watch.watch(os.environ, causes)
    if settings.public_url and not settings.trusted_proxies and settings.share_port != "join":
        log.warning(_UNNAMED_PROXY)
    try:
        listener = _listen(settings)
    except OSError as error:
        print(
            f"salmon: The port {settings.port} on {settings.host} cannot be used: {error.strerror}."
            " Is another Salmon running? Choose another with --port.",
            file=sys.stderr,
        )
        return 1
    uvloop.run(_serve(settings, listener, causes))
    return 0


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is given: otherwise asyncio leaves Nagle's algorithm on, and every second reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if settings.share_port == "first" and settings.port:
        # A port that is shared could be shared with a stranger: only one that is free is taken.
        with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((settings.host, settings.port))
    if settings.share_port != "no":
        # The system gives each connection to one of the processes that listen.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((settings.host, settings.port))
    listener.listen(2048)
    return listener


class TimedProtocol(HttpToolsProtocol):
    """HTTP on one connection, which is closed when its client sends nothing for `READ_SECONDS` where a request is due.

    uvicorn limits the time between two requests only. Here the whole head of a request has to come in that time, and
    each further piece of its body. A connection beyond `most_connections` is closed at once: without a descriptor left,
    nobody could be served, and every attempt to accept would be an error.
    """

    most_connections = 10_000

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._wait_for_data()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and wait for the rest of the request."""
        super().data_received(data)
        if not self._request_is_under_way():
            self._wait_for_data(anew=False)
        elif self.cycle.more_body:
            self._wait_for_data()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _request_is_under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _wait_for_data(self, *, anew: bool = True) -> None:
        if self._deadline is not None and not anew:
            return
        self._stop_waiting()
        self._deadline = self.loop.call_later(READ_SECONDS, self._close_late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused:  # nothing is read because the application has not taken what came before
            self._wait_for_data()
        elif not self._request_is_under_way() or self.cycle.more_body:
            self.transport.abort()


async def _serve(settings: Settings, listener: socket.socket, causes: Mapping[str, str]) -> None:
    store = Store.open(settings.redis_url, copies=settings.copies)
    app = create_app(settings, store, causes=causes)
    TimedProtocol.most_connections = max(64, parent_watch.raise_descriptor_limit() - _OTHER_DESCRIPTORS)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=TimedProtocol,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # `frontend.proxies` reads them
            timeout_graceful_shutdown=5,
            server_header=False,
        )
    )
    app.state.closing = lambda: server.should_exit
    app.state.subprocesses = Subprocesses(settings)

    async def work() -> None:
        await _announce(settings, store, server, listener.getsockname()[1])
        parent_watch.spare_collector()
        parts = (app.state.context, app.state.subprocesses)
        context = app.state.context
        await asyncio.gather(
            _show_life(),
            maintain(*parts),
            keep_writing(*parts),
            keep_clearing(*parts),
            keep_watch(context),
            keep_asking(context),
            keep_telling(context),
        )

    working = asyncio.create_task(work())
    await server.serve(sockets=[listener])
    working.cancel()


async def _show_life() -> None:
    """Tell the supervisor again and again that requests are being taken: this loop serves them, too."""
    while True:
        parent_watch.show_life()
        await asyncio.sleep(LIFE_SECONDS)


async def _announce(settings: Settings, store: Store, server: uvicorn.Server, port: int) -> None:
    """Tell the supervisor the address and, while nobody has an account, the link that makes the owner's."""
    while not (server.started and await store.connection.alive()):  # noqa: ASYNC110 - uvicorn tells nobody that it has started
        await asyncio.sleep(0.02)
    host = "localhost" if settings.host in {"127.0.0.1", "0.0.0.0", "::", "::1"} else settings.host  # noqa: S104
    address = settings.public_url or f"http://{host}:{port}"
    if await store.accounts.exist():
        parent_watch.announce(f"{port} {address}")
    else:
        invitation = await make_first_invitation(Context(settings, store))
        parent_watch.announce(f"{port} {address} {address}/console/welcome?invitation={invitation}")


if __name__ == "__main__":
    raise SystemExit(main())
