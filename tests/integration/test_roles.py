"""Who may use which route: all routes of the application, for each role, in one table.

A route that is not in the table fails the test, so nobody adds one without saying who may use it.
"""

import io
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from frontend import auth
from frontend.app import create_app
from frontend.auth import make_account
from frontend.context import Context
from frontend.salmon1.experiment import by_script, for_experimenter
from frontend.settings import Settings
from frontend.store import Store
from tests.people import PASSWORD

pytestmark = pytest.mark.usefixtures("quick_hashes")

SPEC = b"targets: [a, b, c, d]\nsamplers: {Random: {}}\n"

#: Who asks: nobody; an account without any share; a viewer with a share; an experimenter who may look, and one who may
#: change; who owns the experiment; and an owner of the server.
PEOPLE: tuple[str, ...] = ("nobody", "stranger", "viewer", "looker", "editor", "author", "owner")

#: What a route is for -> what each of the people gets: in (+), login (401), forbidden (403), or no such experiment
#: (404).
FOR: dict[str, tuple[int, ...]] = {
    "everybody": (1, 1, 1, 1, 1, 1, 1),
    "accounts": (401, 1, 1, 1, 1, 1, 1),
    "experimenters": (401, 1, 403, 1, 1, 1, 1),
    "owners": (401, 403, 403, 403, 403, 403, 1),
    "looking": (401, 404, 1, 1, 1, 1, 1),
    "changing": (401, 404, 403, 403, 1, 1, 1),
    "owning": (401, 404, 403, 403, 403, 1, 1),
    "copying": (401, 404, 403, 1, 1, 1, 1),
    # The newest experiment that somebody may see; without any, the first Salmon's scripts expect 500.
    "newest": (401, 500, 1, 1, 1, 1, 1),
    "scripts": (401, 1, 403, 1, 1, 1, 1),
}

#: Route -> what it is for. `/api/...` and `/console/...` without `{slug}` are about the whole server.
ROUTES = {
    "GET /": "everybody",
    "GET /healthz": "everybody",
    "GET /readyz": "everybody",
    "GET /metrics": "everybody",
    "GET /openapi.json": "everybody",
    "GET /media/{name}": "everybody",
    "GET /scripts/{name}": "everybody",
    "GET /e/{slug}": "everybody",
    "GET /e/{slug}/": "everybody",
    "GET /e/{slug}/own.css": "everybody",
    "GET /e/{slug}/own.js": "everybody",
    "GET /schema.json": "everybody",
    "GET /client/{name}": "everybody",
    "POST /e/{slug}/arrive": "everybody",
    "POST /e/{slug}/steps/{step}": "everybody",
    "GET /e/{slug}/query": "everybody",
    "POST /e/{slug}/answers": "everybody",
    "POST /e/{slug}/events": "everybody",
    "POST /e/{slug}/finish": "everybody",
    "POST /e/{slug}/withdraw": "everybody",
    "POST /e/{slug}/skip": "everybody",
    "GET /query": "everybody",
    "POST /answer": "everybody",
    "GET /init": "everybody",
    "GET /init_exp": "everybody",
    "POST /create_user": "everybody",
    "POST /create_user/{username}/{password}": "everybody",
    "GET /console": "everybody",
    "GET /console/welcome": "everybody",
    "POST /console/welcome": "everybody",
    "GET /console/login": "everybody",
    "POST /console/login": "everybody",
    "POST /console/login/code": "everybody",
    "GET /console/login/institution": "everybody",
    "GET /api/doctor": "everybody",
    "GET /api/doctor/stream": "everybody",
    "POST /console/logout": "everybody",
    "GET /console/": "accounts",
    "GET /console/account": "accounts",
    "GET /console/new": "experimenters",
    "GET /console/people": "owners",
    "GET /console/privacy": "experimenters",
    "GET /api/people": "experimenters",
    "GET /api/people/export": "experimenters",
    "GET /api/people/erasures": "experimenters",
    "POST /api/people/erasures": "experimenters",
    "GET /api/people/erasures/{erasure}": "experimenters",
    "GET /console/experiments/{slug}/": "looking",
    "GET /console/experiments/{slug}/{tab}": "looking",
    "GET /api/account": "accounts",
    "PUT /api/account/password": "accounts",
    "DELETE /api/account/sessions": "accounts",
    "DELETE /api/account/sessions/{identifier}": "accounts",
    "POST /api/account/tokens": "accounts",
    "DELETE /api/account/tokens/{identifier}": "accounts",
    "POST /api/account/second-factor": "accounts",
    "PUT /api/account/second-factor": "accounts",
    "DELETE /api/account/second-factor": "accounts",
    "GET /api/account/prolific": "accounts",
    "PUT /api/account/prolific": "accounts",
    "DELETE /api/account/prolific": "accounts",
    "POST /api/prolific/events/{reference}": "everybody",
    "GET /api/experiments/{slug}/payment": "changing",
    "GET /api/experiments/{slug}/payment/{name}.csv": "changing",
    "GET /api/experiments/{slug}/prolific": "changing",
    "POST /api/experiments/{slug}/prolific/refresh": "changing",
    "POST /api/experiments/{slug}/prolific/study": "changing",
    "PUT /api/experiments/{slug}/prolific/study": "changing",
    "DELETE /api/experiments/{slug}/prolific/study": "changing",
    "POST /api/experiments/{slug}/prolific/places": "changing",
    "POST /api/experiments/{slug}/prolific/groups": "changing",
    "POST /api/experiments/{slug}/prolific/webhooks": "changing",
    "POST /api/experiments/{slug}/prolific/payments": "changing",
    "POST /api/experiments/{slug}/prolific/payments/plan": "changing",
    "POST /api/experiments/{slug}/prolific/payments/{key}/check": "changing",
    "DELETE /api/experiments/{slug}/prolific/payments/{key}": "changing",
    "GET /api/accounts": "owners",
    "PUT /api/accounts/{name}/role": "owners",
    "POST /api/accounts/{name}/reset": "owners",
    "DELETE /api/accounts/{name}/second-factor": "owners",
    "DELETE /api/accounts/{name}": "owners",
    "POST /api/invitations": "owners",
    "GET /api/invitations": "owners",
    "DELETE /api/invitations/{identifier}": "owners",
    "GET /api/log": "owners",
    "GET /api/examples": "accounts",
    "GET /api/examples/{name}/targets.zip": "accounts",
    "POST /api/check": "experimenters",
    "GET /api/draft": "experimenters",
    "PUT /api/draft": "experimenters",
    "DELETE /api/draft": "experimenters",
    "GET /api/draft/versions/{number}": "experimenters",
    "POST /api/draft/windows": "experimenters",
    "POST /api/draft/targets": "experimenters",
    "DELETE /api/draft/targets": "experimenters",
    "GET /api/experiments": "accounts",
    "POST /api/experiments": "experimenters",
    "POST /api/experiments/import": "experimenters",
    "GET /api/experiments/{slug}": "looking",
    "GET /api/experiments/{slug}/changes": "looking",
    "GET /api/experiments/{slug}/overview": "looking",
    "GET /api/experiments/{slug}/history": "looking",
    "GET /api/experiments/{slug}/model": "looking",
    "POST /api/experiments/{slug}/map/layout": "looking",
    "GET /api/experiments/{slug}/map.{extension}": "looking",
    "POST /api/experiments/{slug}/map.{extension}": "looking",
    "GET /api/experiments/{slug}/targets": "looking",
    "GET /api/experiments/{slug}/recruitment": "changing",
    "GET /api/experiments/{slug}/recruitment/qr.svg": "changing",
    "GET /api/experiments/{slug}/recruitment/invitations.csv": "changing",
    "POST /api/experiments/{slug}/recruitment/check": "changing",
    "GET /api/experiments/{slug}/participants": "looking",
    "GET /api/experiments/{slug}/participants/{participant}/answers": "looking",
    "GET /api/experiments/{slug}/requests": "looking",
    "GET /api/experiments/{slug}/requests/{request}": "looking",
    "GET /api/experiments/{slug}/exports/{name}.{extension}": "looking",
    "GET /api/experiments/{slug}/bundle": "looking",
    "POST /api/experiments/{slug}/tryout": "looking",
    "POST /api/experiments/{slug}/rehearsal": "changing",
    "GET /api/experiments/{slug}/rehearsal": "looking",
    "DELETE /api/experiments/{slug}/rehearsal": "changing",
    "GET /api/experiments/{slug}/stream": "looking",
    "POST /api/experiments/{slug}/copy": "copying",
    "PUT /api/experiments/{slug}/state": "changing",
    "PUT /api/experiments/{slug}/spec": "changing",
    "PUT /api/experiments/{slug}/participants": "changing",
    "PUT /api/experiments/{slug}/participants/{participant}": "changing",
    "POST /api/experiments/{slug}/requests": "changing",
    "DELETE /api/experiments/{slug}/requests/{request}": "changing",
    "PUT /api/experiments/{slug}/shared": "owning",
    "DELETE /api/experiments/{slug}": "owning",
    "GET /responses": "newest",
    "GET /embeddings": "newest",
    "GET /config": "newest",
    "GET /meta": "newest",
    "GET /dashboard": "newest",
    "POST /dashboard": "newest",
    "GET /download": "newest",
    "GET /logs": "newest",
    "POST /init_exp": "scripts",
    "POST /restore": "scripts",
    "GET /reset": "scripts",
    "DELETE /reset": "scripts",
}

#: Bodies that pass the check of their form, but name what is not there: who is let in changes nothing.
BODIES: dict[str, dict[str, Any]] = {
    "POST /e/{slug}/arrive": {"json": {}},
    "PUT /api/account/password": {"json": {"old": "not mine", "new": "not mine"}},
    "POST /api/account/tokens": {"json": {"label": "x"}},
    "PUT /api/account/second-factor": {"json": {"password": "not mine"}},
    "DELETE /api/account/second-factor": {"json": {"password": "not mine"}},
    "PUT /api/accounts/{name}/role": {"json": {"role": "viewer"}},
    "POST /api/invitations": {"json": {"name": "local"}},
    "POST /api/check": {"json": {"spec": ""}},
    "PUT /api/draft": {"json": {"spec": "", "known": 10**9, "window": "0123456789"}},
    "POST /api/draft/windows": {"json": {"window": "0123456789"}},
    "POST /api/draft/targets": {"files": {"targets": ("x.zip", b"nothing")}},
    "POST /api/experiments": {"files": {"spec": ("x.yaml", b"targets: 1")}},
    "POST /api/experiments/import": {"files": {"bundle": ("x.zip", b"nothing")}},
    "POST /api/experiments/{slug}/map/layout": {"json": {}},
    "POST /api/experiments/{slug}/map.{extension}": {"json": {"width_mm": 0}},
    "POST /api/experiments/{slug}/copy": {"json": {"name": "matrix"}},
    "PUT /api/experiments/{slug}/state": {"json": {"state": "open"}},
    "PUT /api/experiments/{slug}/spec": {"files": {"spec": ("x.yaml", b"targets: 1")}, "data": {"revision": "1"}},
    "POST /api/experiments/{slug}/recruitment/check": {"json": {"link": "https://example.org/"}},
    "PUT /api/account/prolific": {"json": {"token": "none"}},
    "POST /api/experiments/{slug}/prolific/study": {"json": {"cost": 0}},
    "PUT /api/experiments/{slug}/prolific/study": {"json": {"study": "nothing00"}},
    "POST /api/experiments/{slug}/prolific/places": {"json": {"places": 1, "cost": 0}},
    "POST /api/experiments/{slug}/prolific/payments/plan": {"json": {"action": "approve"}},
    "POST /api/experiments/{slug}/prolific/payments": {
        "json": {"action": "approve", "key": "0123456789abcdef", "count": 0, "sum": 0}
    },
    "PUT /api/experiments/{slug}/participants": {"json": {"decisions": [{"participant": "nobody", "keep": "auto"}]}},
    "PUT /api/experiments/{slug}/participants/{participant}": {"json": {"keep": "auto"}},
    "POST /api/experiments/{slug}/requests": {"json": {"kind": "nothing"}},
    "PUT /api/experiments/{slug}/shared": {"json": {"accounts": {"nobody-at-all": "view"}}},
    "DELETE /api/experiments/{slug}": {"json": {"name": "another"}},
    "POST /init_exp": {"data": {"exp": "targets: 1"}},
}
#: What stands for the parts of addresses.
_PARTS = {
    "slug": "matrix",
    "tab": "settings",
    "name": "responses",
    "extension": "csv",
    "request": "nothing1",
    "participant": "nobody000000",
    "identifier": "nothing",
    "number": "1",
    "erasure": "nothing",
    "reference": "nothing",
    "key": "nothing",
    "step": "welcome",
    "username": "x",
    "password": "x",
}


class Reply(NamedTuple):
    """What came back."""

    status: int
    text: str


@pytest.fixture
async def app(settings: Settings, store: Store, quick_hashes: None) -> FastAPI:
    """The application with an account of each kind, and one experiment."""
    del quick_hashes
    app = create_app(settings, store)
    context: Context = app.state.context
    if not await store.accounts.exist():
        for name in PEOPLE[1:]:
            role = name if name in {"viewer", "owner"} else "experimenter"
            await make_account(context, name, PASSWORD, role=role)  # pyright: ignore[reportArgumentType]
        async with client_of(app) as client:
            author = ("author", PASSWORD)
            files = {"spec": ("x.yaml", SPEC)}
            data = {"name": "matrix", "state": "open"}
            (await client.post("/api/experiments", files=files, data=data, auth=author)).raise_for_status()
            shares = {"accounts": {"viewer": "view", "looker": "view", "editor": "edit"}}
            (await client.put("/api/experiments/matrix/shared", json=shares, auth=author)).raise_for_status()
            arrive = await client.post("/e/matrix/arrive", json={"parameters": {"PROLIFIC_PID": "5f00" * 6}})
            session = {"X-Salmon-Session": arrive.raise_for_status().json()["session"]}
            query = (await client.get("/e/matrix/query", headers=session)).raise_for_status().json()
            answer = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            (await client.post("/e/matrix/answers", json=[answer])).raise_for_status()
    app.state.closing = lambda: True  # streams end at once
    return app


def client_of(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://salmon.test")


def routes_of(routes: Any, prefix: str = "") -> Iterator[str]:
    """Yield `METHOD path` of every route, also of those that frameworks add by themselves."""
    for route in routes:
        if isinstance(route, Mount):
            assert route.path == "/static", f"{route.path} is mounted and in no table"
            continue
        if not hasattr(route, "path"):
            inner = getattr(route, "original_router", None) or getattr(route, "router", None)
            assert inner is not None, f"{route!r} is no route that this test knows"
            yield from routes_of(inner.routes, prefix)
            continue
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            yield f"{method} {prefix}{route.path}"


async def ask(app: FastAPI, route: str, person: str) -> Reply:
    method, _, path = route.partition(" ")
    address = path.replace(":path", "").format(**_PARTS)
    if path.startswith("/api/accounts/"):
        address = address.replace("responses", "no-such-account")
    auth = None if person == "nobody" else (person, PASSWORD)
    async with client_of(app) as client:
        reply = await client.request(method, address, auth=auth, **BODIES.get(route, {}))
    return Reply(reply.status_code, reply.text)


def test_every_route_of_the_application_is_in_the_table(app: FastAPI) -> None:
    found = set(routes_of(app.routes))
    assert {"GET /console/", "POST /api/experiments"} <= found
    assert sorted(found - set(ROUTES)) == [], "say in ROUTES who may use these"
    assert sorted(set(ROUTES) - found) == [], "these are no routes any more"


@pytest.mark.parametrize("route", [route for route, what in ROUTES.items() if what != "everybody"])
async def test_each_role_gets_what_the_table_says(app: FastAPI, route: str) -> None:
    expected = dict(zip(PEOPLE, FOR[ROUTES[route]], strict=True))
    seen = {person: await ask(app, route, person) for person in PEOPLE}
    for person, reply in seen.items():
        if expected[person] == 1:
            refused = reply.status == 401 or (reply.status == 403 and not _is_about_the_request(reply))
            no_experiment = reply.status == 404 and "experiment called" in reply.text
            assert not refused, (person, reply)
            assert not no_experiment, (person, reply)
            assert "Traceback" not in reply.text
        else:
            assert reply.status == expected[person], (person, reply)
            if expected[person] == 404:
                assert "There is no experiment called" in reply.text


def _is_about_the_request(reply: Reply) -> bool:
    """Return whether a 403 complains about what was sent by who was let in: a wrong password, or a missing force=1."""
    return (
        "current password is wrong" in reply.text or "Do you really want" in reply.text or "already set" in reply.text
    )


@pytest.mark.parametrize("route", [route for route, what in ROUTES.items() if what == "everybody"])
async def test_routes_for_everybody_show_nothing_of_accounts(app: FastAPI, route: str) -> None:
    reply = await ask(app, route, "nobody")
    assert not any(name in reply.text for name in ("looker", "argon2", PASSWORD)), reply


def test_every_route_has_one_dependency_that_says_who(app: FastAPI) -> None:
    """Find the dependency of each guarded route, so that the table is not right by accident."""
    guards = {
        auth.read_account,
        auth.require_experimenter,
        auth.require_person,
        auth.require_owner,
        auth.find_visible,
        auth.find_editable,
        auth.find_own,
        by_script,
        for_experimenter,
    }

    def calls(dependant: Any) -> Iterator[Any]:
        for inner in dependant.dependencies:
            yield inner.call
            yield from calls(inner)

    def walk(routes: Any) -> Iterator[APIRoute]:
        for route in routes:
            if isinstance(route, APIRoute):
                yield route
            elif inner := (getattr(route, "original_router", None) or getattr(route, "router", None)):
                yield from walk(inner.routes)

    seen = 0
    for route in walk(app.routes):
        for method in (route.methods or set()) - {"HEAD"}:
            guarded = bool(guards & set(calls(route.dependant)))
            seen += guarded
            assert guarded == (ROUTES[f"{method} {route.path}"] != "everybody"), (method, route.path)
    assert seen > 50


@pytest.mark.parametrize("person", ["viewer", "looker"])
async def test_who_may_only_look_sees_no_platform_ids(app: FastAPI, person: str) -> None:
    platform_id = "5f00" * 6
    base = "/api/experiments/matrix"
    texts = [
        "responses.csv",
        "responses.jsonl",
        "participants.csv",
        "salmon_responses.csv",
        "events.csv",
        "quality.csv",
    ]
    async with client_of(app) as client:
        allowed = await client.get(f"{base}/exports/responses.csv", auth=("editor", PASSWORD))
        assert platform_id in allowed.text
        auth = (person, PASSWORD)
        for path in (*(f"{base}/exports/{name}" for name in texts), f"{base}/participants", "/responses", base):
            reply = await client.get(path, auth=auth)
            assert reply.status_code == 200, (path, reply.text)
            assert platform_id not in reply.text, path
        for path in (f"{base}/exports/platform_ids.csv", f"{base}/exports/responses.csv?personal=yes"):
            assert (await client.get(path, auth=auth)).status_code == 403
        assert (await client.get(f"{base}/bundle?personal=yes", auth=auth)).status_code == 403
        for path in (f"{base}/bundle", "/download"):
            assert platform_id.encode() not in unpacked((await client.get(path, auth=auth)).content)
        assert platform_id.encode() in unpacked((await client.get(f"{base}/bundle", auth=("author", PASSWORD))).content)


def unpacked(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


async def test_what_was_launched_on_the_server_is_every_experimenters_and_no_viewers(
    app: FastAPI, store: Store
) -> None:
    experiment = str(await store.experiments.find("matrix"))
    state = await store.experiments.read(experiment)
    await store.experiments.hand_over(state.owner, "local")
    try:
        changing = "PUT /api/experiments/{slug}/state"
        assert (await ask(app, changing, "stranger")).status == 200
        assert (await ask(app, "PUT /api/experiments/{slug}/shared", "stranger")).status == 403
        assert (await ask(app, changing, "viewer")).status == 403
        await store.experiments.share(experiment, {})
        assert (await ask(app, changing, "viewer")).status == 404
    finally:
        await store.experiments.share(experiment, state.shared)
        await store.experiments.hand_over("local", state.owner)
