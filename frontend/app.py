"""The web application: its routers, error handlers, health checks, media and scripts."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from frontend import errors, login, reached, salmon1
from frontend.admission import Admission
from frontend.console import (
    accounts,
    dashboard,
    drafts,
    experiments,
    jobs,
    pages,
    participants,
    payment,
    prolific,
    prolific_payments,
    recruitment,
    rehearsals,
)
from frontend.console import map as maps
from frontend.context import Context, WithContext
from frontend.languages import LANGUAGES, catalogue
from frontend.metrics import MetricsMiddleware
from frontend.pages import Script, accepts_gzip
from frontend.participant import arrival_routes
from frontend.participant import routes as participant
from frontend.participant.shortcut import TrialShortcut
from frontend.proxies import Proxies
from frontend.salmon1.answering import ScriptShortcut
from frontend.schemas import Json
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer import routes as transfer
from salmon import __version__
from salmon.errors import SalmonError, StoreError
from salmon.spec import editor_schema
from salmon.spec.media_files import MEDIA_TYPES

#: Files are stored under the hash of their content, so what an address shows never changes.
_IMMUTABLE = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}

#: Participants, of whom there are most requests, come first. `/api/experiments/import` comes before
#: `/api/experiments/{slug}`; the first Salmon's addresses come last.
_ROUTERS = (
    *(
        participant,
        arrival_routes,
        login,
        accounts,
        transfer,
        drafts,
        experiments,
        rehearsals,
        dashboard,
        maps,
        participants,
        recruitment,
        prolific,
        prolific_payments,
        payment,
        jobs,
        pages,
    ),
    salmon1,
)

_server = APIRouter()


def create_app(settings: Settings, store: Store | None = None, *, causes: Mapping[str, str] | None = None) -> FastAPI:
    """Build the application of settings and a store, which it closes at the end.

    `causes` are told by the supervisor: why programs have died.
    """
    own = store or Store.open(settings.redis_url, copies=settings.copies)
    context = Context(settings, own, causes={} if causes is None else causes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await own.close()

    app = FastAPI(
        title="Salmon",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": settings.public_url}] if settings.public_url else None,
        exception_handlers={
            SalmonError: errors.answer_salmon_error,
            ClientDisconnect: errors.answer_client_left,
            HTTPException: errors.answer_http_error,
            RequestValidationError: errors.answer_invalid_body,
            OSError: errors.answer_system_error,
            Exception: errors.answer_unexpected,
        },
    )
    for language in LANGUAGES:  # now, because a process without descriptors cannot open their files later
        catalogue(language)
    app.state.context = context
    app.state.closing = lambda: False  # whoever serves the application says when it ends
    app.add_middleware(
        Admission,
        origins_of=context.catalogue.origins_of,
        public_host=urlsplit(settings.public_url).netloc,
        most_upload_bytes=int(settings.upload_gb * 1e9),
    )
    app.add_middleware(MetricsMiddleware, metrics=context.metrics)
    app.add_middleware(ScriptShortcut)  # these two are outside of the metrics: they count their requests themselves
    app.add_middleware(TrialShortcut)
    app.add_middleware(
        Proxies,
        mount=settings.mount,
        trusted=settings.trusted_proxies,
        login_header=settings.login_header,
        login_header_secret=settings.login_header_secret,
    )
    for module in _ROUTERS:
        app.include_router(module.router)
    app.include_router(_server)
    app.include_router(reached.router)
    app.add_api_route("/media/{name}", _media, response_class=Response)
    app.add_api_route("/scripts/{name}", _script, response_class=Response)
    app.add_api_route("/client/{name}", _client, response_class=Response)
    # Only what is ours and small is compressed: media are compressed already, and are asked for in ranges.
    app.mount("/static", GZipMiddleware(StaticFiles(directory=context.pages.static)), name="static")
    return app


async def _media(name: str, request: Request, context: WithContext) -> Response:
    """Return a target's file; from this machine where it lies here, otherwise read through from where it is kept."""
    try:
        path = context.media.path(name)
        if not context.media.is_compared(name) and await asyncio.to_thread(context.media.problem, name) == "altered":
            raise errors.GoneError(
                f"The file {name!r} was altered since it was uploaded, so it is not shown.",
                hint="Whoever runs the study uploads it again.",
            )
        if path is not None:
            return FileResponse(path, headers=_IMMUTABLE)
        size = await asyncio.to_thread(context.media.size, name)
    except FileNotFoundError:
        raise errors.NotFoundError(f"There is no file {name!r} here.", hint="Reload the page.") from None
    start, end = _asked_range(request.headers.get("range", ""), size)
    headers = {**_IMMUTABLE, "Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if (part := end - start < size) and size:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        context.media.read(name, start, end),
        status_code=206 if part else 200,
        media_type=MEDIA_TYPES[name.rpartition(".")[2]],
        headers=headers,
    )


def _asked_range(header: str, size: int) -> tuple[int, int]:
    """Return the part of a file that a Range header asks for, as start and end; all of it
    where it asks for no single part.

    Browsers ask for parts of videos and sounds; Safari plays none from a server that does not send them.
    """
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", header.replace(" ", ""))
    if not found or not any(found.groups()):
        return 0, size
    first, last = found.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    return (start, end) if start < end else (0, size)


async def _script(name: str, request: Request, context: WithContext) -> Response:
    """Return the participant page's program; its name is a digest of it.

    While a server is being updated, the page may come from one process and ask another: that one sends the script it
    has, which is not cached then.
    """
    script = context.pages.participant_script
    return _script_reply(script, request, _IMMUTABLE if name == script.name else {"Cache-Control": "no-store"})


async def _client(name: str, request: Request, context: WithContext) -> Response:
    """Return a module that pages of other sites import: `salmon.js`, or
    `jspsych-salmon.js` with the plugin for jsPsych.

    Its address stays the same when it changes, so browsers ask each time whether it has.
    """
    script = context.pages.clients.get(name)
    if script is None:
        raise errors.NotFoundError(
            f"There is no module {name!r} here.", hint=f"There are {' and '.join(context.pages.clients)}."
        )
    headers = {"Cache-Control": "no-cache", "ETag": f'"{script.name}"'}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return _script_reply(script, request, headers)


def _script_reply(script: Script, request: Request, headers: Mapping[str, str]) -> Response:
    """Return a script as a response, compressed if the browser accepts it."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        return Response(
            script.compressed, media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"}
        )
    return Response(script.plain, media_type="text/javascript", headers=headers)


@_server.get("/healthz")
async def healthz() -> Response:
    """Answer 200 as long as the process runs."""
    return JSONResponse({"status": "ok"})


@_server.get("/readyz")
async def readyz(context: WithContext) -> Response:
    """Answer 200 when Redis answers and the backend's heartbeat is there, and 503 with what is missing otherwise.

    A disk that is full is named first; one that is nearly full is a warning. Without Redis, the hint says why it has
    stopped if that is known.

    Without a backend participants can still answer: queries are then random, and counted as fallbacks.
    """
    if context.disk.full:
        return JSONResponse({"status": "disk full", "hint": context.disk.problem}, status_code=503)
    try:
        heartbeat = await context.store.connection.read_heartbeat()
    except StoreError:
        hint = context.store_problem or "Redis does not respond."
        return JSONResponse({"status": "no redis", "hint": hint}, status_code=503)
    if heartbeat is None:
        return JSONResponse(
            {"status": "no backend", "hint": "The learning process sends no heartbeat."}, status_code=503
        )
    return JSONResponse({"status": "ready"} | ({"warning": context.warning} if context.warning else {}))


@_server.get("/schema.json")
async def read_schema() -> Json:
    """Return the JSON schema of experiments' files, for editors on any machine."""
    return editor_schema()


@_server.get("/metrics")
async def metrics(context: WithContext) -> Response:
    """Return counters and durations of this process, for Prometheus."""
    return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)
