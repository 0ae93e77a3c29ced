"""Pages: one context dataclass a template, whose fields are exactly the names the template may use."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

#: Nothing comes from another origin; experimenters' HTML may carry style attributes, scripts only ours.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
    " media-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class ParticipantPage:
    """The page that participants open; everything else reaches it as JSON when it says who arrives."""

    template = "participant.html"
    title: str
    language: str
    direction: str
    slug: str
    background: str


@dataclass(frozen=True)
class ErrorPage:
    """An error for people: one sentence what happened, one what to do."""

    template = "error.html"
    status: int
    message: str
    hint: str


@dataclass(frozen=True)
class LoginPage:
    """Asks for name and password: of the owner's new account (with the first invitation) or of an old one."""

    template = "login.html"
    first: bool
    invitation: str
    message: str
    name: str


@dataclass(frozen=True)
class ExperimentLine:
    """One experiment in the list."""

    slug: str
    title: str
    state: str
    targets: int
    answers: int
    participants: int
    address: str


@dataclass(frozen=True)
class ExperimentsPage:
    """The experiments of this server."""

    template = "experiments.html"
    account: str
    csrf: str
    experiments: tuple[ExperimentLine, ...]
    problems: tuple[str, ...]


Page = ParticipantPage | ErrorPage | LoginPage | ExperimentsPage


@dataclass(frozen=True)
class Pages:
    """Renders pages; autoescape is always on, and a name that the context does not have is an error."""

    environment: Environment
    static: Path

    @staticmethod
    def open() -> Pages:
        """The templates of this installation."""
        folder = Path(str(files("templates")))
        environment = Environment(
            loader=FileSystemLoader(folder),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return Pages(environment, Path(__file__).parent / "static")

    def show(self, page: Page, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        """A page as a response."""
        values = {field.name: getattr(page, field.name) for field in fields(page)}
        text = self.environment.get_template(page.template).render(values)
        return HTMLResponse(text, status_code=status, headers={**HEADERS, **(headers or {})})

    def error(self, request: Request, *, status: int, error: dict[str, Any], headers: dict[str, str]) -> Response:
        """An error as a page; somebody who is not logged in is sent to the login from the console's pages."""
        if status == 401 and request.url.path.startswith("/console"):
            return Response(status_code=303, headers={"Location": "/console/login"})
        return self.show(ErrorPage(status, error["message"], error["hint"]), status=status, headers=headers)
