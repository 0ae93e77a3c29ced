"""How scripts of the first Salmon are told what is wrong: its statuses and its `detail`, with sentences of ours in it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from frontend.errors import LoginError, body_of, status_of
from salmon.errors import SalmonError

#: What every login error says; scripts compare it.
_WRONG_LOGIN = "Incorrect username or password"


class OldError(SalmonError):
    """Something wrong for which the first Salmon had a status of its own."""

    def __init__(self, status: int, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.status = status


class OldRoute(APIRoute):
    """A route whose errors look to scripts as they did; people who come with a browser get a page as everywhere."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its errors caught."""
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handle(request)
            except SalmonError as error:
                if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
                    return _page(request, error)
                return _answer(error)

        return told


def _answer(error: SalmonError) -> Response:
    sentence = f"{_WRONG_LOGIN}: {error}" if isinstance(error, LoginError) else str(error)
    status = _status(error)
    headers = {"WWW-Authenticate": 'Basic realm="Salmon", charset="UTF-8"'} if status == 401 else {}
    return JSONResponse({"detail": sentence, **body_of(error)}, status_code=status, headers=headers)


def _page(request: Request, error: SalmonError) -> Response:
    status = _status(error)
    headers = {"WWW-Authenticate": 'Basic realm="Salmon", charset="UTF-8"'} if status == 401 else {}
    pages = request.app.state.context.pages
    return pages.error(request, status=status, error=body_of(error)["error"], headers=headers)


def _status(error: SalmonError) -> int:
    return error.status if isinstance(error, OldError) else status_of(error)
