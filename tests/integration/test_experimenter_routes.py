"""The routes of experimenters on a real store: who may, what is checked, what is said."""

from pathlib import Path

import httpx
import pytest

from frontend.auth import make_first_invitation
from frontend.context import Context
from frontend.store import Store


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/experiments"), ("POST", "/api/experiments"), ("GET", "/api/experiments/x/exports/responses.csv")],
)
async def test_nobody_gets_in_without_a_login(client: httpx.AsyncClient, method: str, path: str) -> None:
    reply = await client.request(method, path)
    assert reply.status_code == 401
    assert reply.headers["WWW-Authenticate"].startswith("Basic")
    assert (await client.request(method, path, auth=("owner", "wrong password"))).status_code == 401


@pytest.mark.usefixtures("owner")
async def test_too_many_wrong_passwords_have_to_wait(client: httpx.AsyncClient) -> None:
    replies = [await client.get("/api/experiments", auth=("mallory", f"guess number {i}")) for i in range(11)]
    assert [reply.status_code for reply in replies] == [401] * 10 + [429]
    assert "Try again in" in replies[-1].json()["error"]["hint"]


async def test_a_script_launches_an_experiment_with_pictures(
    client: httpx.AsyncClient, owner: tuple[str, str], examples: Path
) -> None:
    files = {
        "spec": ("shapes.yaml", b"samplers: {Random: {}}\n"),
        "targets": ("targets.zip", (examples / "shapes" / "targets.zip").read_bytes()),
    }
    reply = await client.post("/api/experiments", files=files, data={"state": "open"}, auth=owner)
    assert reply.status_code == 201
    made = reply.json()
    assert (made["slug"], made["state"]) == ("shapes", "open")
    source = (await client.post("/e/shapes/arrive", json={})).json()["targets"][0]["source"]
    medium = await client.get(source)
    assert medium.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert medium.headers["Content-Security-Policy"].endswith("sandbox")
    assert (await client.get("/media/" + "0" * 64 + ".png")).status_code == 404
    assert (await client.get("/media/..%2Fcredentials.json")).status_code == 404


async def test_every_mistake_of_a_file_comes_back_at_once_with_its_place(
    client: httpx.AsyncClient, owner: tuple[str, str]
) -> None:
    text = b"targets: [a, b, c]\nsampler: {}\nsampling: {probs: {Adaptive: 80}}\nseed: soon\n"
    reply = await client.post("/api/experiments", files={"spec": ("three.yaml", text)}, auth=owner)
    assert reply.status_code == 422
    problems = reply.json()["error"]["problems"]
    assert [(problem["line"], problem["column"]) for problem in problems] == [(2, 1), (3, 19), (4, 7)]
    assert "samplers" in problems[0]["hint"]
    assert (await client.get("/api/experiments", auth=owner)).json() == [
        known for known in (await client.get("/api/experiments", auth=owner)).json() if known["slug"] != "three"
    ]


async def test_names_are_free_or_numbered_and_a_chosen_one_is_never_shared(
    client: httpx.AsyncClient, owner: tuple[str, str]
) -> None:
    files = {"spec": ("naming.yaml", b"targets: [a, b, c]\n")}
    first = await client.post("/api/experiments", files=files, auth=owner)
    second = await client.post("/api/experiments", files=files, auth=owner)
    assert (first.json()["slug"], second.json()["slug"]) == ("naming", "naming-2")
    chosen = await client.post("/api/experiments", files=files, data={"name": "naming"}, auth=owner)
    assert chosen.status_code == 409
    assert "already" in chosen.json()["error"]["message"]


async def test_a_change_by_cookie_needs_the_forms_token(client: httpx.AsyncClient, owner: tuple[str, str]) -> None:
    name, password = owner
    entered = await client.post("/console/login", data={"name": name, "password": password})
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    spec = {"spec": ("csrf.yaml", b"targets: [a, b, c]\n")}
    assert (await client.post("/api/experiments", files=spec)).status_code == 403
    token = (await client.get("/console/")).text.split('name="csrf" content="')[1].split('"')[0]
    assert (await client.post("/api/experiments", files=spec, headers={"X-CSRF-Token": token})).status_code == 201
    elsewhere = await client.post(
        "/console/login", data={"name": name, "password": password}, headers={"Origin": "http://evil.test"}
    )
    assert elsewhere.status_code == 403


@pytest.mark.usefixtures("owner")
async def test_the_first_link_is_worth_nothing_once_an_account_exists(
    client: httpx.AsyncClient, context: Context
) -> None:
    invitation = await make_first_invitation(context)
    assert (await client.get(f"/console/welcome?invitation={invitation}")).headers["location"] == "/console/login"
    form = {"name": "second", "password": "another password", "invitation": invitation}
    assert (await client.post("/console/welcome", data=form)).status_code == 403
    assert await context.store.accounts.read("second") is None


async def test_passwords_are_kept_as_argon2_and_wrong_forms_say_what_is_wrong(
    client: httpx.AsyncClient, owner: tuple[str, str], store: Store
) -> None:
    account = await store.accounts.read(owner[0])
    assert account is not None
    assert account.password_hash.startswith("$argon2id$")
    reply = await client.post("/console/login", data={"name": "", "password": ""})
    assert (reply.status_code, "name or the password is wrong" in reply.text) == (422, True)
