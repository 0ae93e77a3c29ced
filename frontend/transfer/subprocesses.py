"""Run slow work in subprocesses, so that it never delays the requests of participants.

An order says which file of which experiment to write, or which uploaded files to import. A subprocess gets its order
and the address of the store by its environment, which other users of the machine cannot read. It reports an error as
one line of JSON on standard error. It is killed when nobody waits for it any more.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, Self, get_args

from fastapi import Depends, Request

from frontend.context import WithContext
from frontend.errors import BadRequestError, ClientLeftError, NotFoundError, SubprocessError, TooManyError
from frontend.settings import Settings
from salmon.logs import fields
from salmon.parent_watch import SUPERVISED
from salmon.wire import decode_json, encode_json

Excluded = Literal["mark", "leave_out"]
#: What happens when answers are not as they were recorded: no file, or a file without them.
Damaged = Literal["refuse", "leave_out"]

_TABLE = ("csv", "jsonl", "parquet")

#: Every file that can be asked for by name, and its forms.
EXTENSIONS: dict[str, tuple[str, ...]] = {
    "responses": _TABLE,
    "salmon_responses": ("csv", "json"),
    "participants": _TABLE,
    "platform_ids": _TABLE,
    "quality": _TABLE,
    "events": _TABLE,
    "targets": _TABLE,
    "models": _TABLE,
    "embeddings": _TABLE,
    "salmon_embeddings": ("csv",),
    "embedding_history": _TABLE,
    "triplettools_triplets": _TABLE,
    "triplettools_embeddings": _TABLE,
    "cblearn": ("npz", *_TABLE),
    "psiz": ("npz", *_TABLE),
    "config": ("yaml",),
    "provenance": ("json",),
    "README": ("md",),
    "analysis": ("ipynb", "R"),
    "report": ("html",),
}
#: Not asked for by name: the bundle has a route of its own, and finding verdicts writes no file but stores them.
BUNDLE = ("bundle", "zip")
VERDICTS = ("verdicts", "json")


#: Files in which every answer counts; those that follow from answers are written from the same ones.
OF_ANSWERS = frozenset({"responses", "salmon_responses", "triplettools_triplets", "cblearn", "psiz", BUNDLE[0]})


@dataclass(frozen=True)
class ExportOrder:
    """Order of one file. `generation` 0 is the newest; `personal` says whether ids of platforms are in it."""

    slug: str
    name: str
    extension: str
    excluded: Excluded = "mark"
    sampler: str = ""
    generation: int = 0
    personal: bool = True
    damaged: Damaged = "refuse"

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))

    @property
    def filename(self) -> str:
        """The name under which it is saved."""
        return f"{self.slug}-{self.name}.{self.extension}"

    @property
    def filters(self) -> dict[str, str]:
        """What was asked for, as provenance tells it."""
        return {
            "excluded": self.excluded,
            "sampler": self.sampler or "all",
            "generation": str(self.generation or "newest"),
            "personal": "yes" if self.personal else "no",
            "damaged": self.damaged,
        }


@dataclass(frozen=True)
class ImportOrder:
    """Order to import files: paths of the answers or bundle, of its description and of the ZIP of its targets.

    `name` is what the experimenter calls the file, `slug` the wanted name of the experiment; without one a bundle keeps
    its own, and other files are called `otherwise`.
    """

    answers: str
    name: str
    slug: str
    otherwise: str
    owner: str
    config: str = ""
    targets: str = ""

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))


@dataclass(frozen=True)
class FigureOrder:
    """Order of a map for print: coordinates (n, d) on the axes to draw; `groups` has one number a target."""

    slug: str
    extension: Literal["svg", "pdf", "png"]
    coordinates: list[list[float]]
    width_mm: float
    groups: tuple[int, ...] | None = None
    group_names: tuple[str, ...] = ()

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))


def check_order(order: ExportOrder) -> ExportOrder:
    """Return the order, if a file of this name can be asked for; otherwise a sentence that lists what there is."""
    forms = EXTENSIONS.get(order.name)
    if forms is None:
        raise NotFoundError(
            f"There is no export called {order.name!r}.", hint=f"There are {', '.join(EXTENSIONS)}.", where="name"
        )
    if order.extension not in forms:
        raise NotFoundError(
            f"There is no {order.name}.{order.extension}.",
            hint=f"There is {' and '.join(f'{order.name}.{form}' for form in forms)}.",
            where="extension",
        )
    if order.excluded not in get_args(Excluded):
        raise BadRequestError("excluded must be mark or leave_out.", where="excluded")
    if order.name == "platform_ids" and not order.personal:
        raise BadRequestError("This file contains only platform ids.", hint="Leave out personal=no.", where="personal")
    return order


log = logging.getLogger("salmon.subprocesses")

#: The program that subprocesses run.
MODULE = "frontend.transfer"
#: The variable that holds the order.
ORDER = "SALMON_ORDER"
#: Subprocesses at once: each takes some 100 MB and as much of a core as participants leave it.
MOST = 4
#: A subprocess that is not urgent is not started again for so many times as long as it took.
_REST = 4.0
_PIECE_BYTES = 1 << 16
#: How often a request that waits for its subprocess looks whether its client is still there.
_LOOK_SECONDS = 1.0
#: Bytes that are kept of the end of standard error.
_MOST_SAID = 1 << 16


#: Says whether the client of a request has left, like `Request.is_disconnected`.
Left = Callable[[], Awaitable[bool]]


class BrokenOffError(Exception):
    """A file that was sent in part could not be finished: the connection breaks, so that
    nobody takes a part for the whole.
    """


class Subprocesses:
    """The subprocesses of one web process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: set[object] = set()
        self._underway: dict[str, asyncio.Task[bytes]] = {}
        self._rests_until: dict[str, float] = {}
        #: Says whether the client of the request has left; None where no request waits.
        self.left: Left | None = None

    def watch(self, left: Left) -> Self:
        """Return the same subprocesses for one request, which end when its client has left."""
        watching = copy(self)
        watching.left = left
        return watching

    async def stream(self, *arguments: str, watched: bool = True) -> AsyncIterator[bytes]:
        """Return the output of `python -m frontend.transfer`, piece by piece; an error before the
        first piece is raised at once.

        A client that leaves before the first piece is noticed here, and afterwards by the reply. `watched` is False for
        work that goes on without its client.
        """
        pieces = self._pieces(arguments)
        first = await _unless_left(anext(pieces, b""), self.left if watched else None)
        return _join_pieces(first, pieces)

    async def run(self, *arguments: str) -> bytes:
        """Return the whole output of `python -m frontend.transfer`, where it is short."""
        return await _unless_left(self._gather(arguments), self.left)

    def begin(self, name: str, *arguments: str, urgent: bool = True) -> asyncio.Task[bytes] | None:
        """Start `python -m frontend.transfer` unless one of this name is under way, and wait for nothing.

        One that is not urgent rests each time for four times as long as it took: pages that ask again and again keep a
        fifth of a core busy at the most.
        """
        now, task = asyncio.get_running_loop().time(), self._underway.get(name)
        if task is not None and not task.done():
            return task
        if not urgent and now < self._rests_until.get(name, 0.0):
            return None

        def rest(done: asyncio.Task[bytes]) -> None:
            ended = asyncio.get_running_loop().time()
            self._rests_until[name] = ended + _REST * (ended - now)
            _ = done.cancelled() or done.exception()  # the exception is raised for whoever waits

        task = self._underway[name] = asyncio.create_task(self._gather(arguments))
        task.add_done_callback(rest)
        return task

    def end(self, name: str) -> None:
        """Stop what was begun under this name, if it is under way in this process."""
        task = self._underway.get(name)
        if task is not None:
            task.cancel()

    async def _gather(self, arguments: tuple[str, ...]) -> bytes:
        return b"".join([piece async for piece in self._pieces(arguments)])

    async def _pieces(self, arguments: tuple[str, ...]) -> AsyncGenerator[bytes]:
        began = False
        async with self._process(arguments) as process:
            output, errors = process.stdout, process.stderr
            assert output is not None  # noqa: S101 - both are pipes
            assert errors is not None  # noqa: S101
            said = asyncio.create_task(_read_errors(errors))
            try:
                while piece := await output.read(_PIECE_BYTES):
                    began = True
                    yield piece
                complaint, code = await said, await process.wait()
            finally:
                said.cancel()
        if code:
            raise _make_error(arguments[0], code, complaint, began=began)

    @asynccontextmanager
    async def _process(self, arguments: tuple[str, ...]) -> AsyncGenerator[asyncio.subprocess.Process]:
        if len(self._running) >= MOST:
            raise TooManyError(
                f"{len(self._running)} files are being written already.", hint="Wait until one of them is finished."
            )
        own = object()
        self._running.add(own)
        try:
            what, *order = arguments
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", MODULE, what),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**_environment(self._settings), ORDER: "".join(order)},
            )
            try:
                yield process
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await asyncio.shield(_wait_until_gone(process))
        finally:
            self._running.discard(own)


async def _unless_left(work: Awaitable[bytes], left: Left | None) -> bytes:
    """Return the result of some work; end it if the client leaves, because nobody else would see the result."""
    task = asyncio.ensure_future(work)
    try:
        while left is not None and not (await asyncio.wait((task,), timeout=_LOOK_SECONDS))[0]:
            if await left():
                raise ClientLeftError
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def find_subprocesses(request: Request, context: WithContext) -> Subprocesses:
    """Return the subprocesses of the application, for this request."""
    state = request.app.state
    if not hasattr(state, "subprocesses"):
        state.subprocesses = Subprocesses(context.settings)
    return state.subprocesses.watch(request.is_disconnected)


WithSubprocesses = Annotated[Subprocesses, Depends(find_subprocesses)]


async def _read_errors(errors: asyncio.StreamReader) -> bytes:
    """Return the end of what a subprocess writes on standard error."""
    said = b""
    while piece := await errors.read(_PIECE_BYTES):
        said = (said + piece)[-_MOST_SAID:]
    return said


async def _wait_until_gone(process: asyncio.subprocess.Process) -> None:
    """Wait until a subprocess that was killed is gone; its pipes are read empty, or its end would not be seen."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_PIECE_BYTES):
            pass
    await process.wait()


async def _join_pieces(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        if first:
            yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


def _environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a subprocess: that of this process, without the supervisor's watch."""
    own = {
        f"SALMON_{name.upper()}": str(value)
        for name, value in settings.model_dump(mode="json", exclude_none=True).items()
    }
    return {**{name: value for name, value in os.environ.items() if name != SUPERVISED}, **own}


def _make_error(what: str, code: int, complaint: bytes, *, began: bool) -> Exception:
    try:
        reported = decode_json(complaint.strip().rpartition(b"\n")[2])
    except ValueError:
        reported = None
    log.error("subprocess failed", extra=fields(what=what, code=code, said=complaint.decode(errors="replace")[-2000:]))
    if began:
        return BrokenOffError(f"the {what} subprocess ended with {code} in the middle")
    if reported is not None:
        return SubprocessError(reported["status"], reported["error"])
    return RuntimeError(f"the {what} subprocess ended with {code}")
