"""Errors of the web process, and how they are answered: a status, a sentence and what to do; never a traceback."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from salmon.errors import SalmonError, SpecError, StoreError, TripletError
from salmon.logs import fields

log = logging.getLogger("salmon.frontend")


class NotFoundError(SalmonError):
    """What is asked for does not exist."""

    code = "not_found"


class ConflictError(SalmonError):
    """The request contradicts the present state."""

    code = "conflict"


class ElsewhereError(ConflictError):
    """The participant has opened the page again, and only the newest page goes on."""

    code = "elsewhere"


class NotOpenError(ConflictError):
    """The experiment takes nobody in the state that it is in: draft, paused or closed, which is the code of the error."""

    def __init__(self, message: str, *, state: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = state


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


class TooManyError(SalmonError):
    """Too many attempts; `hint` says how long to wait."""

    code = "too_many"


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
    NotFoundError: 404,
    ConflictError: 409,
    FormError: 422,
    ForgedError: 403,
    LoginError: 401,
    ForbiddenError: 403,
    BadRequestError: 400,
    TooManyError: 429,
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


async def answer_salmon_error(request: Request, error: SalmonError) -> Response:
    """Answer with a SalmonError: as a page for people and as JSON for programs."""
    status = status_of(error)
    return _answer(request, status, body_of(error)["error"], challenge_of(status))


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
