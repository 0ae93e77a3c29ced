"""Errors as scripts of the first Salmon expect them: its statuses and its `detail`, with
the sentences of this program.
"""

from collections.abc import Callable, Coroutine, Iterator
from itertools import chain
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from frontend.errors import LoginError, body_of, challenge_of, status_of, waiting_of
from salmon.errors import Problem, SalmonError, SpecError
from salmon.spec import read_tree, write_tree
from salmon.spec.schema import Html, Spec

#: What every login error says; scripts compare it.
_WRONG_LOGIN = "Incorrect username or password"


class OldError(SalmonError):
    """Something wrong for which the first Salmon had a status of its own."""

    def __init__(self, status: int, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.status = status


class OldRoute(APIRoute):
    """Route whose errors look to scripts as they did in the first Salmon; browsers get a page, as everywhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with SalmonErrors answered."""
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except SalmonError as error:
                return await answer_old_error(request, error)

        return handle_errors


async def answer_old_error(request: Request, error: SalmonError) -> Response:
    """Answer with an error as scripts of the first Salmon expect it; browsers get a page."""
    status = error.status if isinstance(error, OldError) else status_of(error)
    content, headers = body_of(error), {**challenge_of(status), **waiting_of(error)}
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        pages = request.app.state.context.pages
        return pages.error(request, status=status, error=content["error"], headers=headers)
    sentence = f"{_WRONG_LOGIN}: {error}" if isinstance(error, LoginError) else str(error)
    return JSONResponse({"detail": sentence, **content}, status_code=status, headers=headers)


def describe_problems(source: bytes, error: SpecError) -> str:
    """Return a text that begins with the word that scripts look for, and has every mistake at its place."""
    lines = source.decode("utf-8-sig", errors="replace").splitlines()
    problems = chain.from_iterable(_problem_lines(problem, error.name, lines) for problem in error.problems)
    return (
        "\n".join(("Error!", "", *problems, *_in_other_words(source, error.problems), "", "Nothing was changed."))
        + "\n"
    )


def _problem_lines(problem: Problem, name: str, lines: list[str]) -> Iterator[str]:
    yield problem.sentence(name)
    if 0 < problem.line <= len(lines):
        yield f"    {lines[problem.line - 1][:200]}"


def _in_other_words(source: bytes, problems: tuple[Problem, ...]) -> Iterator[str]:
    """Yield the first Salmon's sentences about the most frequent mistakes."""
    if any(each.path.startswith("sampling.probs") and "add up to" not in each.message for each in problems):
        yield "The sampling.probs keys are not the same as samplers keys."
    misplaced = {key: value for key, value in read_tree(source).items() if _belongs_under_html(key, value)}
    if misplaced:
        block = write_tree({"html": dict(sorted(misplaced.items()))})
        yield f"Move keys {', '.join(map(str, misplaced))} under html: include this block of YAML in your file:\n\n{block}"


def _belongs_under_html(key: Any, value: Any) -> bool:
    return key in Html.model_fields and not (key in Spec.model_fields and isinstance(value, list)) and key != "title"
