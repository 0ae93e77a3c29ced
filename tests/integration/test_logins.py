"""Attacks on the login, guesses and sessions, each tried on the real application and store."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from frontend import auth
from frontend.auth import make_first_invitation
from frontend.context import Context
from frontend.security import digest_of
from frontend.store import Store
from frontend.store.sessions import FREE_GUESSES, Guesser
from salmon.wire import API_TOKENS, SESSIONS, encode_json
from tests.people import (
    ELSEWHERE,
    HOME,
    PASSWORD,
    Browse,
    Clock,
    MakeAccount,
    Send,
    make_send,
)

pytestmark = pytest.mark.usefixtures("quick_hashes")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "null"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://salmon.test:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://salmon.test"},
    ],
)
@pytest.mark.parametrize("path", ["login", "login/code", "welcome", "logout"])
async def test_no_other_site_sends_a_form_of_the_login(
    client: httpx.AsyncClient, context: Context, owner: tuple[str, str], path: str, headers: dict[str, str]
) -> None:
    form = {"name": owner[0], "password": owner[1], "invitation": await make_first_invitation(context)}
    refused = await client.post(f"/console/{path}", data=form, headers=headers)
    assert refused.status_code == 403
    assert "another site" in refused.text
    assert "set-cookie" not in refused.headers


async def test_our_own_form_gets_in_where_a_proxy_changes_the_host_header(
    browse: Browse, owner: tuple[str, str]
) -> None:
    browser = await browse(base_url="http://127.0.0.1:8421", public_url="https://lab.example")
    reply = await browser.log_in(*owner, Origin="https://lab.example")
    assert reply.status_code == 303


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Passwords that were hashed to be compared."""
    seen: list[str] = []
    real = auth.password_fits

    def count(password: str, password_hash: str) -> bool:
        seen.append(password)
        return real(password, password_hash)

    monkeypatch.setattr(auth, "password_fits", count)
    return seen


async def test_of_100_guesses_at_once_on_two_processes_at_most_the_free_ones_are_tried(
    browse: Browse, fresh: MakeAccount, hashed: list[str]
) -> None:
    await fresh("guessed")
    processes = [await browse("192.0.2.1"), await browse("192.0.2.1")]
    replies = await asyncio.gather(*(processes[k % 2].log_in("guessed", f"guess {k}") for k in range(100)))
    assert len(hashed) <= FREE_GUESSES
    assert {reply.status_code for reply in replies} == {403, 429}
    assert sum(reply.status_code == 403 for reply in replies) == len(hashed)


async def test_the_same_by_http_basic_and_with_many_names(browse: Browse, hashed: list[str]) -> None:
    process = await browse("192.0.2.2")
    replies = await asyncio.gather(
        *(process.client.get("/api/experiments", auth=(f"name{k}", "password of all")) for k in range(100))
    )
    assert len(hashed) <= 50
    assert {reply.status_code for reply in replies} == {401, 429}


async def test_guesses_elsewhere_do_not_keep_the_right_password_out(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("victim")
    attacker, home = await browse(ELSEWHERE), await browse(HOME)
    for guess in range(FREE_GUESSES):
        assert (await attacker.log_in("victim", f"guess {guess}")).status_code == 403
    assert (await attacker.log_in("victim", PASSWORD)).status_code == 429
    assert (await home.log_in("victim", PASSWORD)).status_code == 303


async def test_a_browser_that_has_logged_in_before_gets_in_even_from_the_attackers_address(
    browse: Browse, fresh: MakeAccount
) -> None:
    await fresh("neighbour")
    await fresh("someone-else")
    laptop, attacker = await browse(ELSEWHERE), await browse(ELSEWHERE)
    assert (await laptop.log_in("neighbour", PASSWORD)).status_code == 303
    await laptop.send("DELETE", "/api/account/sessions")
    for guess in range(FREE_GUESSES + 2):
        await attacker.log_in("neighbour", f"guess {guess}")
    assert (await attacker.log_in("neighbour", PASSWORD)).status_code == 429
    assert await laptop.is_in()  # sessions go on
    assert (await laptop.log_in("neighbour", PASSWORD)).status_code == 303
    # The mark of a browser is worth nothing for another name, nor when somebody made it up.
    device = laptop.client.cookies["salmon_device"]
    for forged in (device[:-2] + "xx", device):
        attacker.client.cookies.set("salmon_device", forged)
        name = "neighbour" if forged != device else "someone-else"
        for guess in range(FREE_GUESSES):
            await attacker.log_in(name, f"guess {guess}")
        assert (await attacker.log_in(name, PASSWORD)).status_code == 429


async def test_waits_grow_and_guesses_that_wait_are_not_counted(store: Store, browse: Browse) -> None:
    del browse
    guesser, now_ms, waits = Guesser("192.0.2.77"), 10**12, list[int]()
    for _ in range(FREE_GUESSES + 12):
        _, wait = await store.guesses.reserve("password", "growing", guesser, now_ms=now_ms)
        assert wait == 0
        _, wait = await store.guesses.reserve("password", "growing", guesser, now_ms=now_ms)
        _, again = await store.guesses.reserve("password", "growing", guesser, now_ms=now_ms)
        if wait == 0:  # both were free guesses
            continue
        assert again == wait
        waits.append(wait)
        now_ms += wait
    assert waits == sorted(waits)
    assert waits[-1] == 15 * 60_000


async def test_a_script_that_sends_its_password_100_times_at_once_is_let_in(
    browse: Browse, fresh: MakeAccount, hashed: list[str]
) -> None:
    await fresh("busy")
    script = await browse("192.0.2.3")
    replies = await asyncio.gather(
        *(script.client.get("/api/experiments", auth=("busy", PASSWORD)) for _ in range(100))
    )
    assert {reply.status_code for reply in replies} == {200}
    assert len(hashed) == 1


async def test_who_sends_an_upload_is_found_out_once(
    browse: Browse, fresh: MakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fresh("uploads")
    script = await browse("192.0.2.5")
    asked: list[str] = []
    check_password = auth.check_password

    async def count(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments[2])
        return await check_password(*arguments, **options)

    monkeypatch.setattr(auth, "check_password", count)
    files = {"spec": ("colors.yaml", "targets: [red, green, blue]")}
    reply = await script.client.post("/api/experiments", auth=("uploads", PASSWORD), files=files)
    assert (reply.status_code, asked) == (201, ["uploads"])


async def test_a_password_that_is_remembered_cannot_be_found_out_while_guesses_wait(
    browse: Browse, fresh: MakeAccount
) -> None:
    await fresh("remembered")
    process = await browse("192.0.2.4")
    assert (await process.client.get("/api/experiments", auth=("remembered", PASSWORD))).status_code == 200
    for guess in range(FREE_GUESSES):
        await process.client.get("/api/experiments", auth=("remembered", f"guess {guess}"))
    assert (await process.client.get("/api/experiments", auth=("remembered", PASSWORD))).status_code == 429


@pytest.mark.parametrize("address", [ELSEWHERE, "127.0.0.1", "::1"])
async def test_a_forwarded_address_counts_only_from_a_trusted_proxy(
    browse: Browse, fresh: MakeAccount, address: str
) -> None:
    """Nobody named a proxy: the word of a program on this machine is worth no more than another's."""
    await fresh(f"forwarded-{len(address)}")
    attacker = await browse(address)
    for guess in range(FREE_GUESSES):
        await attacker.log_in(
            f"forwarded-{len(address)}", f"guess {guess}", **{"X-Forwarded-For": f"192.0.2.{100 + guess}"}
        )
    for guess in range(150):
        forged = {"X-Forwarded-For": f"192.0.2.{guess}"}
        assert (await attacker.log_in(f"forwarded-{len(address)}", "x", **forged)).status_code == 429


async def test_a_cookie_is_worth_nothing_after_logging_out(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("leaver")
    browser, thief = await browse(), await browse(ELSEWHERE)
    await browser.log_in("leaver", PASSWORD)
    thief.client.cookies.set("salmon_login", browser.client.cookies["salmon_login"])
    assert await thief.is_in()
    csrf = (await browser.csrf())["X-CSRF-Token"]
    assert (await browser.client.post("/console/logout", data={"csrf": "guessed"})).status_code == 403
    assert await browser.is_in()
    assert (await browser.client.post("/console/logout", data={"csrf": csrf})).status_code == 303
    assert not await thief.is_in()


async def test_a_cookie_that_was_planted_before_the_login_is_worth_nothing(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("planted")
    browser, thief = await browse(), await browse(ELSEWHERE)
    await browser.log_in("planted", PASSWORD)
    before = browser.client.cookies["salmon_login"]
    await browser.log_in("planted", PASSWORD)
    assert browser.client.cookies["salmon_login"] != before
    thief.client.cookies.set("salmon_login", before)
    assert not await thief.is_in()


async def test_sessions_end_when_idle_and_at_their_age(browse: Browse, fresh: MakeAccount, clock: Clock) -> None:
    await fresh("idle")
    browser = await browse()
    await browser.log_in("idle", PASSWORD)
    for _ in range(3):
        clock.pass_hours(11)
        assert await browser.is_in()
    clock.pass_hours(13)
    assert not await browser.is_in()
    await browser.log_in("idle", PASSWORD)
    for _ in range(15):
        clock.pass_hours(11)
        assert await browser.is_in()
    clock.pass_hours(5)
    assert not await browser.is_in()


async def test_a_person_sees_their_sessions_and_ends_one_or_all_others(
    browse: Browse, fresh: MakeAccount, owned: Send
) -> None:
    await fresh("several")
    await fresh("stranger")
    here, phone, tablet = [await browse() for _ in range(3)]
    for browser, agent in (
        (here, "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0"),
        (phone, "odd\x7f <b>"),
        (tablet, "x"),
    ):
        await browser.log_in("several", PASSWORD, **{"User-Agent": agent})
    rows = (await here.client.get("/api/account")).json()["sessions"]
    assert max((row["this"], row["browser"], row["address"]) for row in rows) == (True, "Firefox on Linux", HOME)
    assert len(rows) == 3
    assert not any("<" in row["browser"] for row in rows)
    (of_phone,) = [row for row in (await phone.client.get("/api/account")).json()["sessions"] if row["this"]]
    other = make_send(here.client, "stranger")
    assert (await other("DELETE", f"/api/account/sessions/{of_phone['id']}")).status_code == 404
    assert (await here.send("DELETE", f"/api/account/sessions/{of_phone['id']}")).status_code == 200
    assert [await browser.is_in() for browser in (here, phone, tablet)] == [True, False, True]
    assert (await here.send("DELETE", "/api/account/sessions")).json() == {"ended": 1}
    assert [await browser.is_in() for browser in (here, phone, tablet)] == [True, False, False]


async def test_a_new_role_ends_the_sessions_of_the_old_one(browse: Browse, fresh: MakeAccount, owned: Send) -> None:
    await fresh("demoted")
    browser = await browse()
    await browser.log_in("demoted", PASSWORD)
    assert (await owned("PUT", "/api/accounts/demoted/role", json={"role": "viewer"})).status_code == 200
    assert not await browser.is_in()


async def test_sessions_and_tokens_cannot_be_read_from_the_store(
    browse: Browse, fresh: MakeAccount, store: Store
) -> None:
    await fresh("hidden")
    browser = await browse()
    await browser.log_in("hidden", PASSWORD)
    token = (await browser.send("POST", "/api/account/tokens", json={"label": "x"})).json()["token"]
    for key, secret in ((SESSIONS, browser.client.cookies["salmon_login"]), (API_TOKENS, token)):
        kept = await store.connection.do(lambda redis, key=key: redis.hgetall(key))
        assert digest_of(secret) in kept
        assert secret not in encode_json(kept)


async def test_a_request_with_a_session_reads_the_store_once(
    browse: Browse, fresh: MakeAccount, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fresh("once")
    browser = await browse()
    await browser.log_in("once", PASSWORD)
    await browser.client.get("/api/examples")
    trips: list[str] = []
    for name in ("do", "run", "together", "do_binary"):
        real = getattr(store.connection, name)

        async def count(*arguments: Any, real: Any = real, name: str = name) -> Any:
            trips.append(name)
            return await real(*arguments)

        monkeypatch.setattr(store.connection, name, count)
    assert (await browser.client.get("/api/examples")).status_code == 200
    assert trips == ["run"]


async def test_cookies_cannot_be_read_by_scripts_nor_leave_https(browse: Browse, fresh: MakeAccount) -> None:
    await fresh("flags")
    plain = await (await browse()).log_in("flags", PASSWORD)
    for cookie in plain.headers.get_list("set-cookie"):
        assert re.fullmatch(r"salmon_(login|device)=\S+; HttpOnly; Max-Age=\d+; Path=/; SameSite=lax", cookie), cookie
    safe = await (await browse(public_url="https://lab.example")).log_in("flags", PASSWORD)
    for cookie in safe.headers.get_list("set-cookie"):
        assert re.fullmatch(
            r"__Host-salmon_(login|device)=\S+; HttpOnly; Max-Age=\d+; Path=/; SameSite=lax; Secure", cookie
        ), cookie
