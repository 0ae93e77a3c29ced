"""Start the web process: `python -m frontend`, with its settings in the environment."""

import asyncio
import os
import socket
import sys

import uvicorn
from pydantic import ValidationError

from frontend.app import create_app
from frontend.security import Signer
from frontend.settings import Settings
from frontend.store import Store
from salmon import logs, parent_watch


def main() -> int:
    """Listen, say where on standard output, and serve until told to stop."""
    try:
        settings = Settings()  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        for problem in error.errors():
            print(f"salmon frontend: SALMON_{str(problem['loc'][0]).upper()}: {problem['msg']}.", file=sys.stderr)
        return 1
    logs.configure("frontend", level=settings.log_level, style=settings.log_format)
    parent_watch.watch(os.environ)
    try:
        listener = _listen(settings)
    except OSError as error:
        print(
            f"salmon: The port {settings.port} on {settings.host} cannot be used: {error.strerror}."
            " Is another Salmon running? Choose another with --port.",
            file=sys.stderr,
        )
        return 1
    asyncio.run(_serve(settings, listener))
    return 0


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is given: otherwise asyncio leaves Nagle's algorithm on, and every second reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    listener.listen(2048)
    return listener


async def _serve(settings: Settings, listener: socket.socket) -> None:
    store = Store.open(settings.redis_url)
    app = create_app(settings, store)
    server = uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, proxy_headers=True, timeout_graceful_shutdown=5, server_header=False
        )
    )
    app.state.closing = lambda: server.should_exit
    announcing = asyncio.create_task(_announce(settings, store, server, listener.getsockname()[1]))
    await server.serve(sockets=[listener])
    announcing.cancel()


async def _announce(settings: Settings, store: Store, server: uvicorn.Server, port: int) -> None:
    """Tell the supervisor the address and, while nobody has an account, the link that makes the owner's."""
    while not (server.started and await store.connection.alive()):  # noqa: ASYNC110 - uvicorn tells nobody that it has started
        await asyncio.sleep(0.02)
    host = "localhost" if settings.host in {"127.0.0.1", "0.0.0.0", "::", "::1"} else settings.host  # noqa: S104
    address = settings.public_url.rstrip("/") or f"http://{host}:{port}"
    if await store.accounts.exist():
        parent_watch.announce(f"{port} {address}")
    else:
        invitation = Signer(settings.secret).sign_first_invitation()
        parent_watch.announce(f"{port} {address} {address}/console/welcome?invitation={invitation}")


if __name__ == "__main__":
    raise SystemExit(main())
