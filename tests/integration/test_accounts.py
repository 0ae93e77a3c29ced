"""Attacks on accounts, invitations, shares, resets and the log, each tried on the real application and store."""

import asyncio
import json

import httpx
import pytest

from frontend.auth import make_account
from frontend.context import Context
from frontend.security import digest_of
from frontend.settings import EXAMPLE_SECRET, Settings
from frontend.store import Store
from frontend.store.accounts import Account
from frontend.store.sessions import FAILURES_KEPT, Access
from salmon.wire import ACCESS_LOG, ACCOUNTS, API_TOKENS, INVITATIONS, Keys, decode_json, encode_json
from tests.people import (
    PASSWORD,
    Browse,
    MakeAccount,
    Send,
    make_experiment,
    make_send,
)
from tests.program import REPOSITORY
from tests.studies import OWNER

pytestmark = pytest.mark.usefixtures("quick_hashes")


async def test_a_removed_member_does_not_come_back_with_the_old_invitation(
    owned: Send, client: httpx.AsyncClient, store: Store
) -> None:
    link = (await owned("POST", "/api/invitations", json={"name": "mallory"})).json()["link"]
    form = {"password": "a long password", "invitation": link.partition("invitation=")[2]}
    assert (await client.post("/console/welcome", data=form)).status_code == 303
    await make_experiment(owned, "shown")
    await owned("PUT", "/api/experiments/shown/shared", json={"accounts": {"mallory": "edit"}})
    assert (await owned("DELETE", "/api/accounts/mallory")).status_code == 200

    client.cookies.clear()
    assert (await client.get(link)).status_code == 403
    assert (await client.post("/console/welcome", data=form)).status_code == 403
    assert await store.accounts.read("mallory") is None
    assert (await owned("GET", "/api/experiments/shown")).json()["shared"] == {}


async def test_an_invitation_made_before_the_removal_is_void_after_it(
    owned: Send, client: httpx.AsyncClient, store: Store
) -> None:
    link, spare = [(await owned("POST", "/api/invitations", json={"name": "trudy"})).json()["link"] for _ in range(2)]
    form = {"password": "a long password"}
    used = {**form, "invitation": link.partition("invitation=")[2]}
    assert (await client.post("/console/welcome", data=used)).status_code == 303
    await owned("DELETE", "/api/accounts/trudy")
    refused = await client.post("/console/welcome", data={**form, "invitation": spare.partition("invitation=")[2]})
    assert refused.status_code == 403
    assert await store.accounts.read("trudy") is None


async def test_a_revoked_invitation_is_void(owned: Send, client: httpx.AsyncClient, store: Store) -> None:
    link = (await owned("POST", "/api/invitations", json={"name": "revoked", "role": "viewer"})).json()["link"]
    (kept,) = [row for row in (await owned("GET", "/api/invitations")).json() if row["name"] == "revoked"]
    assert (kept["by"], kept["role"], kept["used_ms"], kept["open"]) == (OWNER[0], "viewer", 0, True)
    assert (await owned("DELETE", f"/api/invitations/{kept['id']}")).status_code == 200
    assert (await owned("DELETE", f"/api/invitations/{kept['id']}")).status_code == 404
    form = {"password": "a long password", "invitation": link.partition("invitation=")[2]}
    assert (await client.post("/console/welcome", data=form)).status_code == 403
    assert await store.accounts.read("revoked") is None


async def test_two_who_open_the_same_invitation_at_once_make_one_account(
    owned: Send, browse: Browse, store: Store
) -> None:
    link = (await owned("POST", "/api/invitations", json={"name": "twice"})).json()["link"]
    form = {"invitation": link.partition("invitation=")[2]}
    browsers = [await browse() for _ in range(6)]
    replies = await asyncio.gather(
        *(
            b.client.post("/console/welcome", data={**form, "password": f"password of {k}"})
            for k, b in enumerate(browsers)
        )
    )
    assert sorted(reply.status_code for reply in replies) == [303, *[403] * 5]
    (kept,) = [row for row in (await owned("GET", "/api/invitations")).json() if row["name"] == "twice"]
    assert kept["used_ms"] > 0
    assert not kept["open"]


async def test_invitations_cannot_be_read_from_the_store(owned: Send, store: Store) -> None:
    link = (await owned("POST", "/api/invitations", json={"name": "secretive"})).json()["link"]
    kept = await store.connection.do(lambda redis: redis.hgetall(INVITATIONS))
    assert link.partition("invitation=")[2] not in encode_json(kept)


async def test_who_takes_a_removed_members_name_gets_nothing_of_theirs(
    owned: Send, client: httpx.AsyncClient, context: Context, fresh: MakeAccount
) -> None:
    before = await fresh("carol")
    await make_experiment(owned, "for-carol")
    await owned("PUT", "/api/experiments/for-carol/shared", json={"accounts": {"carol": "edit"}})
    script = make_send(client, "carol")
    await make_experiment(script, "of-carol")
    token = (await script("POST", "/api/account/tokens", json={"label": "hers", "scope": "write"})).json()["token"]
    kept = await context.store.connection.do(lambda redis: redis.hget(API_TOKENS, digest_of(token)))
    removed = await owned("DELETE", "/api/accounts/carol")
    assert removed.json() == {"name": "carol", "experiments": 1}

    after = await make_account(context, "carol", "another password")
    assert after.id != before.id
    again = make_send(client, "carol", "another password")
    assert (await again("GET", "/api/experiments")).json() == []
    for slug in ("for-carol", "of-carol"):
        assert (await again("GET", f"/api/experiments/{slug}")).status_code == 404
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await client.get("/api/experiments", headers=bearer)).status_code == 401
    # Even a token that an interruption left behind belongs to the old account.
    await context.store.connection.do(lambda redis: redis.hset(API_TOKENS, digest_of(token), kept))
    assert (await client.get("/api/experiments", headers=bearer)).status_code == 401
    assert (await owned("GET", "/api/experiments/of-carol")).json()["owner"] == OWNER[0]


async def test_a_removed_members_session_ends(owned: Send, browse: Browse, fresh: MakeAccount) -> None:
    await fresh("leaving")
    browser = await browse()
    await browser.log_in("leaving", PASSWORD)
    assert await browser.is_in()
    await owned("DELETE", "/api/accounts/leaving")
    assert not await browser.is_in()


async def test_accounts_of_earlier_versions_keep_what_is_theirs_and_their_names_give_nothing_away(
    owned: Send, client: httpx.AsyncClient, context: Context, store: Store, fresh: MakeAccount
) -> None:
    """An account without an id, as version 2.0.0.dev0 wrote it, its experiment and a share, both by its name."""
    made = await fresh("oldest")
    old = {"name": "oldest", "password_hash": made.password_hash, "role": "experimenter", "created_ms": 1}
    await store.connection.do(lambda redis: redis.hset(ACCOUNTS, "oldest", encode_json(old)))
    script = make_send(client, "oldest")
    await make_experiment(owned, "old-shared")
    shared = Keys(str(await store.experiments.find("old-shared"))).state
    await store.connection.do(lambda redis: redis.hset(shared, "shared", encode_json(["oldest"])))
    await make_experiment(script, "old-own")
    own = Keys(str(await store.experiments.find("old-own"))).state
    assert await store.connection.do(lambda redis: redis.hget(own, "owner")) == "oldest"

    assert {row["slug"] for row in (await script("GET", "/api/experiments")).json()} == {"old-own", "old-shared"}
    assert (await script("PUT", "/api/experiments/old-shared/state", json={"state": "paused"})).status_code == 200
    # A change of the account writes the id down; what is theirs stays theirs.
    await script("PUT", "/api/account/password", json={"old": PASSWORD, "new": "another password"})
    stored = decode_json(await store.connection.do(lambda redis: redis.hget(ACCOUNTS, "oldest")))
    assert stored["id"] == "oldest"
    script = make_send(client, "oldest", "another password")
    assert len((await script("GET", "/api/experiments")).json()) == 2

    await owned("DELETE", "/api/accounts/oldest")
    await make_account(context, "oldest", PASSWORD)
    assert (await make_send(client, "oldest")("GET", "/api/experiments")).json() == []
    assert Account.decode(encode_json({**old, "name": "local"})).id != "local"


async def test_a_reset_link_works_once_and_ends_sessions(owned: Send, browse: Browse, fresh: MakeAccount) -> None:
    await fresh("forgetful")
    browser, other = await browse(), await browse()
    await browser.log_in("forgetful", PASSWORD)
    link = (await owned("POST", "/api/accounts/forgetful/reset")).json()["link"]
    page = await other.client.get(link)
    assert 'value="forgetful"' in page.text
    form = {"invitation": link.partition("invitation=")[2], "name": OWNER[0], "password": "a new password"}
    assert (await other.client.post("/console/welcome", data=form)).headers["location"] == "/console/login"
    assert not await browser.is_in()
    assert (await browser.log_in("forgetful", PASSWORD)).status_code == 403
    assert (await browser.log_in("forgetful", "a new password")).status_code == 303
    assert (
        await other.client.post("/console/welcome", data={**form, "password": "yet another one"})
    ).status_code == 403
    assert (await (await browse()).log_in(*OWNER)).status_code == 303  # the name in the form changed nothing


async def test_a_reset_link_of_a_removed_account_does_not_open_another_of_its_name(
    owned: Send, context: Context, client: httpx.AsyncClient, fresh: MakeAccount
) -> None:
    await fresh("reborn")
    link = (await owned("POST", "/api/accounts/reborn/reset")).json()["link"]
    await owned("DELETE", "/api/accounts/reborn")
    await make_account(context, "reborn", PASSWORD)
    form = {"invitation": link.partition("invitation=")[2], "password": "a new password"}
    assert (await client.post("/console/welcome", data=form)).status_code == 403


@pytest.mark.parametrize(
    ("name", "password", "sentence"),
    [
        ("new", "too short", "fewer than 10"),
        ("new", "1234567890", "guessed first"),
        ("new", "PassWord1234", "guessed first"),
        ("new", "aaaaaaaaaaaab", "guessed first"),
        ("annabella1", "AnnaBella1", "made of the name"),
        ("local", "a long password", "reserved"),
        ("Server", "a long password", "reserved"),
        ("@owner", "a long password", "letters, digits"),
    ],
)
async def test_weak_passwords_and_reserved_names_are_refused(
    context: Context, owned: Send, name: str, password: str, sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        await make_account(context, name, password)
    if sentence == "reserved":
        assert (await owned("POST", "/api/invitations", json={"name": name})).status_code == 400


async def test_an_invitation_does_not_lead_where_a_host_header_says(browse: Browse, owner: tuple[str, str]) -> None:
    invitation = {"json": {"name": "hosted"}, "auth": owner}
    evil = await (await browse(base_url="http://evil.example")).client.post("/api/invitations", **invitation)
    assert evil.json()["link"].startswith("/console/welcome?invitation=")
    public = await browse(base_url="http://evil.example", public_url="https://lab.example/")
    link = (await public.client.post("/api/invitations", **invitation)).json()["link"]
    assert link.startswith("https://lab.example/console/welcome?")
    local = await (await browse(base_url="http://localhost:8421")).client.post("/api/invitations", **invitation)
    assert local.json()["link"].startswith("http://localhost:8421/console/welcome?")


def test_the_example_secret_is_refused(settings: Settings) -> None:
    assert f"SALMON_SECRET={EXAMPLE_SECRET}\n" in (REPOSITORY / "docker" / "example.env").read_text()
    with pytest.raises(ValueError, match="which everybody knows"):
        Settings(redis_url=settings.redis_url, secret=EXAMPLE_SECRET)


async def test_the_log_says_who_did_what_and_holds_no_secret(
    owned: Send, browse: Browse, fresh: MakeAccount, store: Store
) -> None:
    await fresh("logged")
    browser = await browse("192.0.2.9")
    await browser.log_in("logged", "a wrong guess")
    await browser.log_in("logged", PASSWORD)
    token = (await browser.send("POST", "/api/account/tokens", json={"label": "nightly"})).json()["token"]
    await make_experiment(make_send(browser.client, "logged"), "logged-one")
    await browser.send("PUT", "/api/experiments/logged-one/shared", json={"accounts": {OWNER[0]: "view"}})
    await browser.send("PUT", "/api/experiments/logged-one/state", json={"state": "closed"})
    deleted = await browser.send("DELETE", "/api/experiments/logged-one", json={"name": "logged-one"})
    assert deleted.status_code == 200, deleted.text
    await browser.client.post("/console/logout", data={"csrf": (await browser.csrf())["X-CSRF-Token"]})
    await owned("PUT", "/api/accounts/logged/role", json={"role": "viewer"})
    entries = (await owned("GET", "/api/log")).json()
    said = [(row["what"], row["address"]) for row in reversed(entries) if row["account"] == "logged"]
    assert [what for what, _ in said if what != "login"] == [
        "login failed",
        "API token created",
        "experiment created",
        "experiment shared",
        "experiment state",
        "experiment deleted",
        "logout",
    ]
    assert {address for _, address in said} == {"192.0.2.9"}
    assert ("login", "192.0.2.9") in said
    assert any(row["what"] == "role changed" and "logged is viewer" in row["detail"] for row in entries)
    kept = encode_json(await store.connection.do(lambda redis: redis.xrange(ACCESS_LOG)))
    assert not any(
        secret in kept for secret in (token, PASSWORD, "a wrong guess", browser.client.cookies["salmon_device"])
    )
    assert (await browser.client.get("/api/log", auth=("logged", PASSWORD))).status_code == 403


async def test_failed_logins_do_not_push_other_entries_out_of_the_log(store: Store, owned: Send) -> None:
    await store.sessions.note(Access(1, "somebody", "192.0.2.1", "account removed", "the one that counts"))
    entry = Access(2, "nobody", "192.0.2.2", "login failed", "")
    for _ in range(0, FAILURES_KEPT + 600, 200):
        await asyncio.gather(*(store.sessions.note(entry, failed=True) for _ in range(200)))
    log = await store.sessions.read_log(100_000)
    assert any(row.detail == "the one that counts" for row in log)
    assert sum(row.what == "login failed" for row in log) < FAILURES_KEPT + 400
    assert json.dumps((await owned("GET", "/api/log", params={"limit": 5})).json()).count("at_ms") == 5
