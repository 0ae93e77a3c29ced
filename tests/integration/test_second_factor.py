"""Attacks on API tokens, HTTP Basic and the second factor, each tried on the real application and store."""

import asyncio
from typing import Any

import httpx
import pytest
from pyotp.totp import TOTP

from frontend.store import Store
from frontend.store.sessions import FREE_GUESSES
from salmon.wire import ACCOUNTS, encode_json
from tests.people import (
    ELSEWHERE,
    PASSWORD,
    Browse,
    Browser,
    Clock,
    MakeAccount,
    Send,
    make_experiment,
    make_send,
)

pytestmark = pytest.mark.usefixtures("quick_hashes")


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.test"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_site_cannot_use_a_password_that_the_browser_knows(
    owned: Send, method: str, headers: dict[str, str]
) -> None:
    files = {"spec": ("x.yaml", b"targets: [a, b, c, d]\n")}
    refused = await owned(method, "/api/experiments", headers=headers, **({"files": files} if method == "POST" else {}))
    assert refused.status_code == 403
    fine = await owned("GET", "/api/experiments", headers={"Sec-Fetch-Site": "none"})
    assert fine.status_code == 200


async def test_an_api_token_does_what_its_scope_says_and_no_more(
    client: httpx.AsyncClient, owned: Send, browse: Browse, fresh: MakeAccount
) -> None:
    await fresh("scripted")
    script = make_send(client, "scripted")
    await make_experiment(script, "of-token")
    await make_experiment(script, "other-of-token")

    async def token(**options: Any) -> dict[str, str]:
        made = await script("POST", "/api/account/tokens", json={"label": "t", **options})
        assert made.status_code == 201, made.text
        return {"Authorization": f"Bearer {made.json()['token']}"}

    reading, writing = await token(scope="read"), await token(scope="write")
    narrow = await token(scope="write", experiment="of-token")

    async def status(method: str, path: str, headers: dict[str, str], **options: Any) -> int:
        return (await client.request(method, path, headers=headers, **options)).status_code

    paused = {"json": {"state": "paused"}}
    assert await status("GET", "/api/experiments/of-token", reading) == 200
    assert await status("PUT", "/api/experiments/of-token/state", reading, **paused) == 403
    assert await status("GET", "/reset?force=1", reading) == 403
    assert await status("PUT", "/api/experiments/of-token/state", writing, **paused) == 200
    assert await status("PUT", "/api/experiments/of-token/state", narrow, **paused) == 200
    assert await status("PUT", "/api/experiments/other-of-token/state", narrow, **paused) == 404
    assert await status("POST", "/api/experiments", narrow, files={"spec": ("x", b"targets: [a, b, c]")}) == 403
    listed = (await client.get("/api/experiments", headers=narrow)).json()
    assert [row["slug"] for row in listed] == ["of-token"]
    for headers in (reading, writing, narrow):
        assert await status("GET", "/api/account", headers) == 403
        assert await status("POST", "/api/account/tokens", headers, json={"label": "more"}) == 403
        assert await status("DELETE", "/api/account/sessions", headers) == 403
    strange = await script("POST", "/api/account/tokens", json={"label": "x", "experiment": "not-mine"})
    assert strange.status_code == 404

    rows = (await script("GET", "/api/account")).json()["tokens"]
    assert all(row["used_ms"] > 0 and "token" not in row for row in rows)
    assert {row["experiment"] for row in rows} == {"", "of-token"}
    for row in rows:
        assert (await owned("DELETE", f"/api/account/tokens/{row['id']}")).status_code == 404
        assert (await script("DELETE", f"/api/account/tokens/{row['id']}")).status_code == 200
    assert await status("GET", "/api/experiments", writing) == 401
    assert await status("GET", "/api/experiments", {"Authorization": "Bearer salmon_guess"}) == 401


async def test_an_api_token_ends_at_its_date(browse: Browse, fresh: MakeAccount, clock: Clock) -> None:
    await fresh("ending")
    script = (await browse()).client
    made = await make_send(script, "ending")("POST", "/api/account/tokens", json={"label": "x", "days": 2})
    bearer = {"Authorization": f"Bearer {made.json()['token']}"}
    clock.pass_hours(47)
    assert (await script.get("/api/experiments", headers=bearer)).status_code == 200
    clock.pass_hours(2)
    assert (await script.get("/api/experiments", headers=bearer)).status_code == 401


async def switch_on(browser: Browser, clock: Clock) -> tuple[TOTP, list[str]]:
    """Set up a second factor and return the authenticator app and the recovery codes."""
    begun = (await browser.send("POST", "/api/account/second-factor")).json()
    assert begun["qr_code"].startswith("data:image/svg+xml")
    app = TOTP(begun["secret"])
    body = {"password": PASSWORD, "setup": begun["setup"], "code": "000000"}
    assert (await browser.send("PUT", "/api/account/second-factor", json=body)).status_code == 400
    # The code of the half minute before is taken too, which leaves the present one for the test.
    code = app.at(clock.ms // 1000 - 30)
    done = await browser.send("PUT", "/api/account/second-factor", json={**body, "code": code})
    assert done.status_code == 200, done.text
    return app, done.json()["recovery_codes"]


async def test_the_password_alone_does_not_pass_a_second_factor(
    browse: Browse, fresh: MakeAccount, client: httpx.AsyncClient, store: Store, clock: Clock
) -> None:
    await fresh("careful")
    browser, thief = await browse(), await browse(ELSEWHERE)
    await browser.log_in("careful", PASSWORD)
    app, codes = await switch_on(browser, clock)

    refused = await make_send(client, "careful")("GET", "/api/experiments")
    assert (refused.status_code, "API token" in refused.text) == (403, True)
    page = await thief.log_in("careful", PASSWORD)
    assert page.status_code == 200
    assert "salmon_login" not in thief.client.cookies
    pending = page.text.split('name="invitation" value="')[1].split('"')[0]

    async def enter(code: str, pending: str = pending) -> int:
        form = {"invitation": pending, "code": code}
        return (await thief.client.post("/console/login/code", data=form)).status_code

    assert await enter("") == 403
    assert await enter(app.at(clock.ms // 1000), pending[:-1] + "x") == 403
    code = app.at(clock.ms // 1000)
    assert await enter(code) == 303
    assert await enter(code) == 403  # a code is used once
    assert await enter(codes[0].upper()) == 303
    assert await enter(codes[0]) == 403  # and so is a recovery code
    assert (await browser.client.get("/api/account")).json()["recovery_codes"] == 9
    stored = await store.connection.do(lambda redis: redis.hgetall(ACCOUNTS))
    assert not any(code in encode_json(stored) for code in codes)


async def test_codes_are_guessed_as_rarely_as_passwords(browse: Browse, fresh: MakeAccount, clock: Clock) -> None:
    await fresh("coded")
    browser, thief = await browse(), await browse(ELSEWHERE)
    await browser.log_in("coded", PASSWORD)
    _, codes = await switch_on(browser, clock)
    page = await thief.log_in("coded", PASSWORD)
    pending = page.text.split('name="invitation" value="')[1].split('"')[0]
    thieves = [await browse(f"192.0.2.{k}") for k in range(40)]
    replies = await asyncio.gather(
        *(
            one.client.post("/console/login/code", data={"invitation": pending, "code": f"{k:06}"})
            for k, one in enumerate(thieves)
        )
    )
    assert sum(reply.status_code == 403 for reply in replies) <= FREE_GUESSES
    # The right password in between does not begin the count again.
    assert (await thief.log_in("coded", PASSWORD)).status_code == 200
    form = {"invitation": pending, "code": codes[0]}
    assert (await thief.client.post("/console/login/code", data=form)).status_code == 429
    # The owner, in the browser that has logged in before, is not kept out.
    page = await browser.log_in("coded", PASSWORD)
    pending = page.text.split('name="invitation" value="')[1].split('"')[0]
    reply = await browser.client.post("/console/login/code", data={"invitation": pending, "code": codes[0]})
    assert reply.status_code == 303


async def test_the_second_factor_is_not_switched_off_with_the_session_alone(
    browse: Browse, fresh: MakeAccount, owned: Send, clock: Clock
) -> None:
    await fresh("locked")
    browser = await browse()
    await browser.log_in("locked", PASSWORD)
    _, codes = await switch_on(browser, clock)
    for body, status in (
        ({"password": "not this one", "code": codes[0]}, 403),
        ({"password": PASSWORD, "code": "000000"}, 403),
        ({"password": PASSWORD, "code": codes[0]}, 200),
        ({"password": PASSWORD, "code": codes[1]}, 409),
    ):
        reply = await browser.send("DELETE", "/api/account/second-factor", json=body)
        assert reply.status_code == status, (body, reply.text)
    await switch_on(browser, clock)
    assert (await owned("DELETE", "/api/accounts/locked/second-factor")).status_code == 200
    assert (await (await browse()).log_in("locked", PASSWORD)).status_code == 303
