"""Speak to a Salmon server over HTTP: as the page of a participant, or as a script of an experimenter.

This is the one module of the library that reaches a network. A participant's request that fails because the server is
busy, restarts or is out of reach is sent again, under the same turn and token, so nothing is recorded twice.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import httpx

from salmon.errors import SalmonError

#: A request is repeated for so long before the server counts as out of reach, after pauses that grow between these
#: bounds.
PATIENCE_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
#: Statuses after which the same request may succeed.
_PASSING = frozenset({429, 502, 503, 504})
#: Characters of a reply that is not an error of Salmon's which are told.
_MOST_QUOTED = 200


#: Longest time for one request of an experimenter; figures of many participants take a while.
READ_SECONDS = 120.0

#: Connections to servers that several participants share.
Connections = httpx.AsyncClient


class ServerError(SalmonError):
    """Raised for a request that the server refused, or that it did not answer for a minute.

    `problems` are the sentences about a file with mistakes, each with its line.
    """

    def __init__(
        self, message: str, *, hint: str = "", where: str = "", status: int = 0, problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.status = status
        self.problems = problems


@dataclass(frozen=True)
class ServedQuery:
    """A query that the server has placed on the screen, with the token that its answer carries."""

    number: int
    head: int
    left: int
    right: int
    token: str


@dataclass
class PageSession:
    """One opening of an experiment's page: what the server told it, and what the participant can do.

    `content` is the reply to the arrival: texts, settings, steps and targets. `query_seconds` holds how long each query
    took to come.
    """

    client: Connections
    address: str
    content: Mapping[str, Any]
    query_seconds: list[float] = field(default_factory=list[float])

    @classmethod
    async def open(cls, client: Connections, link: str) -> Self:
        """Open a participant's link, with its parameters, and arrive."""
        parts = urlsplit(link)
        address = urlunsplit(parts._replace(query="", fragment="")).rstrip("/") + "/"
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        content = await request(client, "POST", f"{address}arrive", json={"parameters": parameters})
        return cls(client, address, content)

    @property
    def steps(self) -> list[str]:
        """The names of the experiment's steps, in order."""
        return list(self.content["steps"]["order"])

    async def take_step(self, step: str, **done: Any) -> Mapping[str, Any]:
        """Say that a step before or after the trials is done, and how."""
        return await self._request("POST", f"steps/{step}", json=done)

    async def ask(self, number: int) -> ServedQuery | Mapping[str, Any]:
        """Return the query of a turn, or what the server says instead: that the trials, or this turn, are over."""
        began = time.perf_counter()
        reply = await self._request("GET", f"query?number={number}")
        self.query_seconds.append(time.perf_counter() - began)
        if "token" not in reply:
            return reply
        return ServedQuery(number, reply["head"], reply["left"], reply["right"], reply["token"])

    async def answer(self, query: ServedQuery, winner: int, *, rt_ms: float) -> Mapping[str, Any]:
        """Record an answer; return what the server says of it."""
        body = {"token": query.token, "winner": winner, "rt_ms": rt_ms, "input": "script"}
        (result,) = (await self._request("POST", "answers", json=body))["results"]
        if "error" in result:
            raise _error_of(422, result, "answers")
        return result

    async def finish(self, given: int) -> Mapping[str, Any]:
        """Ask for the way out: the completion code, the redirect or the form, once all answers are stored."""
        return await self._request("POST", "finish", json={"given": given})

    async def _request(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        headers = {"X-Salmon-Session": self.content["session"]}
        return await request(self.client, method, self.address + path, headers=headers, **options)


@asynccontextmanager
async def connections(people: int) -> AsyncGenerator[Connections]:
    """Hold the connections of so many people while a `with` block runs."""
    limits = httpx.Limits(max_connections=people, max_keepalive_connections=people)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:
        yield client


@dataclass(frozen=True)
class ApiClient:
    """Client for scripts of an experimenter, at the server of this address: with an API
    token, or with name and password.

    Every method raises ServerError with the server's own sentence where a request is refused. Routes that have no
    method here are reached with `read` and `download`; docs/routes.md lists them.
    """

    address: str
    name: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def experiments(self) -> list[dict[str, Any]]:
        """Return the experiments that the account may see."""
        return self.read("experiments")

    def create(
        self, spec: Path, *, targets: Path | None = None, name: str = "", opened: bool = False
    ) -> dict[str, Any]:
        """Make an experiment of a YAML file and a ZIP of targets; return it with its
        `slug`, `address` and `warnings`.
        """
        with ExitStack() as files:
            sent = {"spec": (spec.name, files.enter_context(spec.open("rb")))}
            if targets is not None:
                sent["targets"] = (targets.name, files.enter_context(targets.open("rb")))
            form = {"name": name, "state": "open" if opened else "draft"}
            return self._send("POST", "experiments", files=sent, data=form).json()

    def change_state(self, slug: str, state: Literal["open", "paused", "closed"]) -> dict[str, Any]:
        """Open, pause or close an experiment; return it."""
        return self._send("PUT", f"experiments/{slug}/state", json={"state": state}).json()

    def overview(self, slug: str) -> dict[str, Any]:
        """Return the figures of an experiment's overview: answers, participants, accuracy, what is wrong."""
        return self.read(f"experiments/{slug}/overview")

    def export(self, slug: str, name: str, to: Path) -> Path:
        """Download one file of an experiment, such as `responses.csv`, or everything
        as `bundle`; return where it is.
        """
        path = f"experiments/{slug}/bundle" if name == "bundle" else f"experiments/{slug}/exports/{name}"
        to.write_bytes(self.download(path))
        return to

    def read(self, path: str) -> Any:
        """Return the JSON of a route below /api/."""
        return self._send("GET", path).json()

    def download(self, path: str) -> bytes:
        """Return a file of a route below /api/."""
        return self._send("GET", path).content

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        url = f"{self.address.rstrip('/')}/api/{path}"
        if self.token:
            options["headers"] = {"Authorization": f"Bearer {self.token}"}
        else:
            options["auth"] = (self.name, self.password)
        try:
            reply = httpx.request(method, url, timeout=READ_SECONDS, **options)
        except httpx.TransportError as error:
            raise _unreachable(method, path, error) from error
        if not reply.is_success:
            raise _error_of(reply.status_code, _json_of(reply), path)
        return reply


async def request(client: Connections, method: str, url: str, **options: Any) -> Any:
    """Return the JSON of a reply; ServerError where the request is refused, or not answered for a minute."""
    path = urlsplit(url).path
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            reply = await client.request(method, url, **options)
        except httpx.TransportError as error:
            refusal = _unreachable(method, path, error)
        else:
            if reply.is_success:
                return reply.json()
            refusal = _error_of(reply.status_code, _json_of(reply), path)
            if reply.status_code not in _PASSING:
                raise refusal
            pause = max(pause, _wanted_pause(reply))
        if time.monotonic() + pause > deadline:
            raise refusal
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _unreachable(method: str, path: str, error: Exception) -> ServerError:
    return ServerError(
        f"The server does not answer {method} {path}: {type(error).__name__}.",
        hint="Check the address, and whether `salmon serve` runs there.",
        where=path,
    )


def _json_of(reply: httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError:
        return {"error": {"message": f"The server said: {reply.text[:_MOST_QUOTED]}"}}


def _wanted_pause(reply: httpx.Response) -> float:
    wanted = reply.headers.get("retry-after", "")
    return min(float(wanted), LONGEST_PAUSE_SECONDS) if wanted.isdecimal() else 0.0


def _error_of(status: int, body: Any, where: str) -> ServerError:
    told = body.get("error", {}) if isinstance(body, dict) else {}
    message = str(told.get("message", "")) or f"The server answered with status {status}."
    problems = tuple(str(problem.get("sentence") or problem.get("message", "")) for problem in told.get("problems", ()))
    place = str(told.get("where", "")) or where
    return ServerError(message, hint=str(told.get("hint", "")), where=place, status=status, problems=problems)
