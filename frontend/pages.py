"""Pages: the context of each template as a dataclass whose fields are exactly the names that the template may use.

The JavaScript modules of the participant page are joined into one script when the process starts, because on a slow
network every round of requests delays the first trial. Each module is wrapped in a function, after those that it
imports. On disk they stay separate ES modules, which tests import one by one.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic_core import to_json
from starlette.responses import HTMLResponse, Response

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "(?:\.|\.\./participant)/(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const) (\w+))", re.MULTILINE)
_UNSUPPORTED = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
#: Comments that have lines of their own. What stands behind code stays: it could be part of a string.
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A script as it is sent, plain and compressed. Its name is a digest of its
    content, so it can be cached for ever.
    """

    name: str
    plain: bytes
    compressed: bytes

    @staticmethod
    def of(text: str) -> "Script":
        """Return the script with this text."""
        plain = text.encode()
        return Script(f"{hashlib.sha256(plain).hexdigest()[:16]}.js", plain, gzip.compress(plain, 9, mtime=0))


def read_script(folder: Path, entry: str) -> Script:
    """Return one script of the module `entry` of a folder and all modules that it imports."""
    return Script.of(join_modules({path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}, entry))


def read_client(static: Path, *entries: str) -> Script:
    """Return one ES module for pages of other sites, with the exports of these modules of the folder `client`."""
    paths = (*(static / "participant").glob("*.js"), *(static / "client").glob("*.js"))
    modules = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    exports = (f"export const {{ {', '.join(_EXPORT.findall(modules[name]))} }} = joined.{name};\n" for name in entries)
    return Script.of(join_modules(modules, *entries) + "".join(exports))


def join_modules(modules: Mapping[str, str], *entries: str) -> str:
    """Return one script that does what `entries` do; raise ValueError with the first line that cannot be joined.

    Two forms are supported: `import { names } from "./module.js"` on one line, and `export` in front of the declaration
    of a class, function or constant. Comments on lines of their own are left out: they were a sixth of what is sent. So
    that no string is taken for one, a template literal must end on its line.
    """
    return "const joined = {};\n" + "".join(
        _wrap_in_function(name, modules[name]) for name in _sort_by_imports(modules, entries)
    )


def _sort_by_imports(modules: Mapping[str, str], entries: tuple[str, ...]) -> list[str]:
    """Return the names of the modules that `entries` need, each after those that it imports."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"The modules {' and '.join((*above[above.index(name) :], name))} import each other.")
        if name not in modules:
            raise ValueError(f"{above[-1] if above else 'The page'}.js imports {name}.js, which is not there.")
        for _, imported in _IMPORT.findall(modules[name]):
            visit(imported, (*above, name))
        if name not in order:
            order.append(name)

    for entry in entries:
        visit(entry, ())
    return order


def _wrap_in_function(name: str, text: str) -> str:
    """Return a module as a function call that stores its exports in `joined`."""
    exported = _EXPORT.findall(text)
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = joined.\2;", _COMMENT.sub("", text)))
    if literal := next((line for line in body.splitlines() if line.count("`") % 2), None):
        raise ValueError(f"{name}.js: this line cannot be joined: {literal}")
    if line := _UNSUPPORTED.search(body):
        raise ValueError(f"{name}.js: this line cannot be joined: {line[0]}")
    return f"joined.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


Tab = Literal["overview", "map", "targets", "participants", "analysis", "recruitment", "payment", "exports", "settings"]


@dataclass(frozen=True)
class Frame:
    """Frame of every page of the console: who is logged in, and what forms and requests of this session carry.

    `warning` is what every page tells about the server: that its disk is full, for example. `style_nonce` lets the
    page's own scripts add styles, as the editor does: it is another for every page, and empty where none does.
    """

    account: str
    role: str
    csrf: str
    warning: str = ""
    style_nonce: str = ""

    @property
    def policy(self) -> str:
        """Return the content security policy of the page."""
        nonce = f" 'nonce-{self.style_nonce}'" if self.style_nonce else ""
        return _POLICY.replace("style-src 'self'", f"style-src 'self'{nonce}")


@dataclass(frozen=True)
class ExperimentHead:
    """Head of every page of one experiment; `address` is the link for participants. `rehearses` names the experiment
    whose rehearsal it is, and is empty where it is a real one.
    """

    slug: str
    title: str
    state: str
    revision: int
    owner: str
    address: str
    link: str
    access: str
    rehearses: str


@dataclass(frozen=True)
class ExperimentLine:
    """One experiment in the list."""

    slug: str
    title: str
    state: str
    owner: str
    targets: int
    answers: int
    participants: int
    created_ms: int
    address: str
    is_rehearsal: bool


@dataclass(frozen=True)
class ExperimentsPage:
    """List of the experiments that somebody may see."""

    template = "console/experiments.html"
    frame: Frame
    experiments: tuple[ExperimentLine, ...]


@dataclass(frozen=True)
class ScriptedPage:
    """A page that its script draws: the editor of a new experiment, one's own account,
    everybody's accounts, or privacy.

    `data` is what the script begins with.
    """

    name: Literal["launch", "account", "people", "privacy"]
    frame: Frame
    data: Mapping[str, Any]

    @property
    def template(self) -> str:
        """The template of the page."""
        return f"console/{self.name}.html"


@dataclass(frozen=True)
class TabPage:
    """One tab of an experiment; `data` is what its script begins with."""

    tab: Tab
    frame: Frame
    experiment: ExperimentHead
    data: Mapping[str, Any]

    @property
    def template(self) -> str:
        """The template of the tab."""
        return f"console/{self.tab}.html"


#: Nothing is loaded from another origin. Experimenters' HTML may carry style attributes; scripts are ours alone.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
    " media-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without a referrer, browsers name no origin in what a form sends
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class ParticipantPage:
    """The page that participants open; everything else reaches it as JSON when it says who arrives.

    `strings` are the texts that the page says by itself; `setting` is what its program needs before it arrives, and
    `sample` (head, left, right as HTML) what a preview shows. `elements` are the experimenter's own pieces of HTML by
    their place, and `hooks` the files that their scripts and styles expect: both are empty where nothing was written.
    `script` is the name of the page's program, all of it in one file.
    """

    template = "participant.html"
    title: str
    language: str
    direction: str
    strings: dict[str, str]
    setting: Mapping[str, Any]
    sample: tuple[str, str, str] | None
    elements: dict[str, str]
    hooks: frozenset[str]
    script: str


@dataclass(frozen=True)
class ErrorPage:
    """An error for people: one sentence what happened, one what to do or what exactly is wrong.

    `language` and `direction` are those of the first sentence.
    """

    template = "error.html"
    status: int
    message: str
    hint: str
    language: str = "en"
    direction: str = "ltr"


@dataclass(frozen=True)
class LoginPage:
    """Form for name and password, or for the code of a second factor.

    `purpose` is to log in, to enter a code, to make the first account or an invited one, or to set a new password;
    `invitation` is what the form carries from the step before. `institution` names whose login may be used instead;
    empty where there is none.
    """

    template = "login.html"
    purpose: Literal["log_in", "code", "first", "account", "reset"]
    name: str = ""
    invitation: str = ""
    message: str = ""
    institution: str = ""


PageContext = ParticipantPage | ErrorPage | LoginPage | ExperimentsPage | ScriptedPage | TabPage


#: What a page in an origin of its own may still do. It cannot read this site's storage, cookies or other pages.
_SANDBOX = (
    "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-orientation-lock allow-pointer-lock"
    " allow-popups allow-popups-to-escape-sandbox"
)


def participant_policy(
    *, trusted: bool, scripted: bool, elsewhere: bool, in_mturk: bool, shown_by: tuple[str, ...] = ()
) -> str:
    """Return the content security policy of the participant page.

    Nothing comes from another server unless the experimenter's HTML shows something from there, scripts are files of
    ours, and only what the experimenter calls trusted may hold scripts of its own. A page with scripts of the
    experimenter's runs in an origin of its own, so that they cannot use the login of whoever opens it. Mechanical Turk
    shows the page in a frame and takes its form; `shown_by` are the origins whose pages may frame it too.
    """
    shown = " https: http:" if elsewhere or trusted else ""
    own = " https: 'unsafe-inline'" if trusted else ""
    frames = "https:" if trusted else "'none'"
    mturk = " https://www.mturk.com https://workersandbox.mturk.com" if in_mturk else ""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self'{own}",
            f"style-src 'self'{own}",
            "style-src-attr 'unsafe-inline'",
            f"img-src 'self' data:{shown}",
            f"media-src 'self' data: blob:{shown}",
            f"font-src 'self'{' https: data:' if trusted else ''}",
            f"connect-src 'self'{' https:' if trusted else ''}",
            f"frame-src {frames}",
            f"form-action 'self'{mturk}",
            " ".join(("frame-ancestors 'self'", *shown_by)) + mturk,
            "base-uri 'none'",
            *((_SANDBOX,) if trusted or scripted else ()),
        )
    )


@dataclass(frozen=True)
class Pages:
    """Renderer of pages; autoescape is always on, and a name that the context does not have is an error.

    `clients` are the modules that pages of other sites import, by the name of their file.
    """

    environment: Environment
    static: Path
    participant_script: Script
    clients: Mapping[str, Script]

    @staticmethod
    def open(mount: str) -> "Pages":
        """Return the templates of this installation, whose addresses begin with the
        path that a proxy shows it under.
        """
        environment = Environment(
            loader=FileSystemLoader(Path(str(files("templates")))),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # The one way around autoescape: HTML that `frontend.html.clean` has cleaned.
        environment.filters["cleaned"] = Markup
        cast("dict[str, object]", environment.globals)["mount"] = mount
        environment.policies["json.dumps_function"] = _json
        static = Path(__file__).parent / "static"
        clients = {
            "salmon.js": read_client(static, "salmon"),
            "jspsych-salmon.js": read_client(static, "salmon", "jspsych"),
        }
        return Pages(environment, static, read_script(static / "participant", "main"), clients)

    def show(self, page: PageContext, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        """Return a page as a response."""
        return HTMLResponse(self._render(page), status_code=status, headers={**HEADERS, **(headers or {})})

    def show_compressed(self, page: ParticipantPage, request: Request, *, headers: dict[str, str]) -> Response:
        """Return the participant page, compressed if the browser accepts it: its length delays the first trial.

        Pages of the console are not compressed: they hold secrets of a session, which the length could betray.
        """
        headers = {**HEADERS, **headers, "Vary": "Accept-Encoding, Origin"}
        if not accepts_gzip(request):
            return HTMLResponse(self._render(page), headers=headers)
        content = gzip.compress(self._render(page).encode(), 6, mtime=0)
        return HTMLResponse(content, headers={**headers, "Content-Encoding": "gzip"})

    def _render(self, page: PageContext) -> str:
        context = {field.name: getattr(page, field.name) for field in fields(page)}
        return self.environment.get_template(page.template).render(context)

    def error(self, request: Request, *, status: int, error: Mapping[str, Any], headers: dict[str, str]) -> Response:
        """Return an error as a page; somebody who is not logged in is sent to the login from the console's pages."""
        if status == 401 and request.url.path.startswith("/console"):
            return Response(status_code=303, headers={"Location": "/console/login"})
        return self.show(ErrorPage(status, error["message"], error["hint"]), status=status, headers=headers)


def accepts_gzip(request: Request) -> bool:
    """Return whether a reply to this request may be compressed."""
    return "gzip" in request.headers.get("accept-encoding", "")


def _json(value: object, **_: object) -> str:
    """Return JSON of a page's data, in which dataclasses stand as objects."""
    return to_json(value).decode()
