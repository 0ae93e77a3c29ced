"""Errors of the web process, and how they are answered: a status, a sentence and what to do; never a traceback."""

import logging
import math
from collections.abc import Mapping, Sequence
from errno import EMFILE, ENFILE
from typing import Any, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from salmon.errors import SalmonError, SpecError, StoreError, TripletError
from salmon.logs import fields

log = logging.getLogger("salmon.frontend")

#: Damaged answers named in one sentence.
_NAMED = 10


class NotFoundError(SalmonError):
    """What is asked for does not exist."""

    code = "not_found"


class GoneError(NotFoundError):
    """An experiment was deleted, and somebody who took part in it still sends something."""

    code = "gone"


class ConflictError(SalmonError):
    """The request contradicts the present state."""

    code = "conflict"


class ElsewhereError(ConflictError):
    """The participant has opened the page again, and only the newest page goes on."""

    code = "elsewhere"


class NotOpenError(ConflictError):
    """The experiment takes nobody in the state that it is in: draft, paused or closed,
    which is the code of the error.
    """

    def __init__(self, message: str, *, state: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = state


class FullError(ConflictError):
    """All places of an experiment, or of the participant's group, are taken."""

    code = "full"

    def __init__(self) -> None:
        super().__init__(
            "All places in this study are taken at the moment.",
            hint="A place may become free when somebody leaves; whoever has begun can still finish.",
        )


class EarlyError(ConflictError):
    """An experiment lets nobody in before a certain time."""

    code = "early"


class AgainError(ConflictError):
    """Somebody has taken part before, and the experiment does not let them take part again."""

    code = "again"


class BegunError(ConflictError):
    """Somebody has begun before, and the experiment does not let them go on."""

    code = "begun"


class GapError(ConflictError):
    """Somebody comes back after too long a time."""

    code = "gap"


class EndedError(ConflictError):
    """The participant's part has ended: there is no way on."""

    code = "ended"


class FormError(SalmonError):
    """Fields of a form that have to be filled in again: name of the field -> name of the text that says why."""

    code = "form"

    def __init__(self, message: str, problems: dict[str, str]) -> None:
        super().__init__(message, hint="They are marked.", where=", ".join(problems))
        self.problems = problems


class ForgedError(SalmonError):
    """Something that should carry our signature does not."""

    code = "forged"


class LoginError(SalmonError):
    """Only an experimenter may do this, and nobody has said who they are."""

    code = "login"


class ForbiddenError(SalmonError):
    """An experimenter asks for something that only somebody else may do."""

    code = "forbidden"


class BadRequestError(SalmonError):
    """A request that cannot be understood or carried out as it is."""

    code = "bad_request"


class LinkError(BadRequestError):
    """A participant's link cannot be right: `fault` says how, and is the end of the error's code."""

    def __init__(self, message: str, *, fault: Literal["unfilled", "wrong", "missing"], hint: str, where: str) -> None:
        super().__init__(message, hint=hint, where=where)
        self.code = f"link_{fault}"


class BusyError(SalmonError):
    """So many people arrive at once that some have to wait: the page tries again by itself after `wait_seconds`."""

    code = "busy"

    def __init__(self, message: str, *, hint: str, wait_seconds: float) -> None:
        super().__init__(message, hint=hint)
        self.wait_seconds = wait_seconds


class OverloadError(BusyError):
    """So many requests are under way that nobody new is let in: those who have begun go first."""


class TooManyError(SalmonError):
    """Too many attempts; `hint` says how long to wait."""

    code = "too_many"


class PlatformError(SalmonError):
    """A recruitment platform refuses a request, or cannot answer; `passing` where it may answer a repetition."""

    code = "platform"

    def __init__(self, message: str, *, hint: str, passing: bool = False, wait_seconds: float = 0) -> None:
        super().__init__(message, hint=hint)
        self.passing = passing
        self.wait_seconds = wait_seconds


class LostReplyError(PlatformError):
    """A platform's reply did not arrive, so it is not known whether the request was carried out."""

    code = "platform_unknown"

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, passing=True)


class DamagedError(ConflictError):
    """Answers in the store are not as they were recorded, by their checksums."""

    code = "damaged"

    def __init__(self, stream_ids: Sequence[str]) -> None:
        named = ", ".join(each[:40] for each in stream_ids[:_NAMED]) + (", …" if len(stream_ids) > _NAMED else "")
        super().__init__(
            f"The store returns answers that are not as they were recorded: {named}.",
            hint="Its disk or memory is damaged. Restore a backup; `salmon verify` lists all of them, and"
            " damaged=leave_out exports the others.",
            where="answers",
        )
        self.stream_ids = tuple(stream_ids)


class ClientLeftError(SalmonError):
    """The client has closed its connection: nobody reads this error."""

    code = "client_left"

    def __init__(self) -> None:
        super().__init__("The client has closed the connection.")


class BundleError(SalmonError):
    """A bundle cannot be imported; the sentence names the file in it, and nothing of it was kept."""

    code = "bad_bundle"


class SubprocessError(SalmonError):
    """An error that a subprocess reported, with its words and its status."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], hint=error.get("hint", ""), where=error.get("where", ""))
        self.code = error.get("code", self.code)
        self.status = status
        self.problems: list[dict[str, Any]] = error.get("problems", [])


_STATUS: dict[type[SalmonError], int] = {
    GoneError: 410,
    NotFoundError: 404,
    ConflictError: 409,
    FormError: 422,
    ForgedError: 403,
    LoginError: 401,
    ForbiddenError: 403,
    BadRequestError: 400,
    TooManyError: 429,
    OverloadError: 503,
    BusyError: 429,
    ClientLeftError: 499,
    PlatformError: 502,
    SpecError: 422,
    BundleError: 422,
    TripletError: 422,
    StoreError: 503,
}


def status_of(error: SalmonError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, SubprocessError):
        return error.status
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 400)


def body_of(error: SalmonError) -> dict[str, Any]:
    """Return the JSON of an error; a file's problems are listed one by one."""
    content: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, SpecError):
        content["problems"] = [
            {**vars(problem), "sentence": problem.sentence(error.name)} for problem in error.problems
        ]
    if isinstance(error, FormError):
        content["problems"] = [{"where": name, "message": text} for name, text in error.problems.items()]
    if isinstance(error, SubprocessError) and error.problems:
        content["problems"] = error.problems
    return {"error": content}


def challenge_of(status: int) -> dict[str, str]:
    """Return the headers with which an error of this status asks for a name and password, if it does."""
    return {"WWW-Authenticate": 'Basic realm="Salmon", charset="UTF-8"'} if status == 401 else {}


def waiting_of(error: SalmonError) -> dict[str, str]:
    """Return the header that says when a request may be repeated, if an error does."""
    return {"Retry-After": str(math.ceil(error.wait_seconds))} if isinstance(error, BusyError) else {}


async def answer_salmon_error(request: Request, error: SalmonError) -> Response:
    """Answer with a SalmonError: as a page for people and as JSON for programs."""
    status, content = status_of(error), body_of(error)["error"]
    if isinstance(error, StoreError) and (problem := request.app.state.context.store_problem):
        content["hint"] = problem
    return _answer(request, status, content, challenge_of(status) | waiting_of(error))


async def answer_http_error(request: Request, error: HTTPException) -> Response:
    """Answer with an error of the framework (no such route, wrong method) in the same form."""
    sentences = {
        404: ("There is nothing at this address.", "Check the link: an experiment's begins with /e/ and its name."),
        405: ("This address does not accept requests of this method.", ""),
    }
    message, hint = sentences.get(error.status_code, (str(error.detail), ""))
    content = {"code": "http", "message": message, "where": request.url.path, "hint": hint}
    return _answer(request, error.status_code, content, dict(error.headers or {}))


async def answer_invalid_body(request: Request, error: RequestValidationError) -> Response:
    """Answer to a body or parameter of the wrong shape: every problem with its place."""
    problems = [
        {"where": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])} for item in error.errors()
    ]
    sentence = "; ".join(f"{item['where']}: {item['message']}" for item in problems)
    content = {"code": "invalid", "message": sentence, "where": request.url.path, "hint": "", "problems": problems}
    return _answer(request, 422, content, {})


async def answer_client_left(request: Request, error: ClientDisconnect) -> Response:
    """Answer to a client that closed its connection before its request was complete; nobody reads it."""
    del error
    return await answer_salmon_error(request, ClientLeftError())


async def answer_system_error(request: Request, error: OSError) -> Response:
    """Answer to an error of the system: where no file can be opened for the moment, ask to try again."""
    if error.errno not in {EMFILE, ENFILE}:
        return await answer_unexpected(request, error)
    log.warning("no file descriptor is left", extra=fields(path=request.url.path, method=request.method))
    content = {
        "code": "busy",
        "message": "The server has too many connections open at the moment.",
        "where": request.url.path,
        "hint": "Confirmed answers are safe. Try again in a few seconds.",
    }
    return _answer(request, 503, content, {"Retry-After": "5"})


async def answer_unexpected(request: Request, error: Exception) -> Response:
    """Answer to an error of the program: the traceback goes to the log, and the reader is told what is safe."""
    log.error("request failed", exc_info=error, extra=fields(path=request.url.path, method=request.method))
    content = {
        "code": "internal",
        "message": "Something went wrong on the server, and it was logged.",
        "where": request.url.path,
        "hint": "Confirmed answers are safe. Try again; if the error persists, contact the operator of this server.",
    }
    return _answer(request, 500, content, {})


def _answer(request: Request, status: int, content: dict[str, Any], headers: dict[str, str]) -> Response:
    if "text/html" in request.headers.get("accept", "") and request.method == "GET":
        return request.app.state.context.pages.error(request, status=status, error=content, headers=headers)
    return JSONResponse({"error": content}, status_code=status, headers=headers)
