"""Signed links of Prolific: who comes with one gets in, and forged, expired and foreign
ones are refused with a sentence.
"""

import base64
import json
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from frontend.context import Context
from tests.living import client_on
from tests.prolific import SPEC, TERMS, StandIn, experiment_id
from tests.studies import OWNER, Study, study

IDS = {"PROLIFIC_PID": "a" * 24, "STUDY_ID": "b" * 24, "SESSION_ID": "c" * 24}
SIGNED = f"{{{TERMS}, signed_links: true}}"


@pytest.fixture(scope="module")
def keys() -> tuple[RSAPrivateKey, RSAPrivateKey]:
    """Prolific's key, and somebody else's."""
    return generate_private_key(65537, 2048), generate_private_key(65537, 2048)


def coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def published_key(key: RSAPrivateKey, identifier: str = "k1") -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    parts = {name: coded(value.to_bytes((value.bit_length() + 7) // 8)) for name, value in vars_of(numbers)}
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": identifier, **parts}


def vars_of(numbers: Any) -> list[tuple[str, int]]:
    return [("n", numbers.n), ("e", numbers.e)]


def token(key: RSAPrivateKey, context: Context, *, header: Any = None, **claims: Any) -> str:
    content = {
        "iss": "https://www.prolific.com",
        "aud": "http://salmon.test/e/signed/?PROLIFIC_PID=" + IDS["PROLIFIC_PID"],
        "exp": context.now_ms() / 1000 + 300,
        "prolific": {**IDS, "workspace_id": "w"},
    } | claims
    signed = ".".join(coded(json.dumps(part).encode()) for part in (header or {"alg": "RS256", "kid": "k1"}, content))
    return f"{signed}.{coded(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"


async def arrive(client: httpx.AsyncClient, **parameters: str) -> httpx.Response:
    return await client.post("/e/signed/arrive", json={"parameters": IDS | parameters})


async def opened(client: httpx.AsyncClient, context: Context) -> Study:
    found = await context.store.experiments.find("signed")
    if found is None:
        return await study(client, context, SPEC.replace("{TERMS}", SIGNED), "signed")
    return Study(client, context, "signed")


async def test_a_signed_link_lets_its_person_in_and_a_reload_goes_on(
    client: httpx.AsyncClient, context: Context, prolific: StandIn, keys: tuple[RSAPrivateKey, RSAPrivateKey]
) -> None:
    await opened(client, context)
    prolific.keys = [published_key(keys[0])]
    good = token(keys[0], context)
    assert (await client.get("/e/signed/", params=IDS | {"prolific_token": good})).status_code == 200
    first = await arrive(client, prolific_token=good)
    assert first.status_code == 200, first.text
    for audience in ("salmon.test", ["https://other.org", "salmon.test"], "http://salmon.test/e/signed"):
        assert (await arrive(client, prolific_token=token(keys[0], context, aud=audience))).status_code == 200
    assert prolific.asked.count("GET /.well-known/study/jwks.json") == 1
    # The page is reloaded when the link has expired: whoever has begun goes on.
    late = token(keys[0], context, exp=context.now_ms() / 1000 - 3600)
    assert (await client.get("/e/signed/", params=IDS | {"prolific_token": late})).status_code == 200
    again = {"parameters": IDS | {"prolific_token": late}, "session": first.json()["session"]}
    assert (await client.post("/e/signed/arrive", json=again)).status_code == 200
    # Whoever tries the experiment out needs no signature.
    link = (await client.post("/api/experiments/signed/tryout", auth=OWNER)).json()["link"]
    assert (await client.get(link)).status_code == 200


async def test_forged_expired_and_foreign_links_are_refused(
    client: httpx.AsyncClient, context: Context, prolific: StandIn, keys: tuple[RSAPrivateKey, RSAPrivateKey]
) -> None:
    await opened(client, context)
    own, other = keys
    prolific.keys = [published_key(own), {"kty": "oct", "k": "x"}, published_key(own, "")]
    good = token(own, context)
    now = context.now_ms() / 1000
    none = ".".join((coded(b'{"alg": "none", "kid": "k1"}'), good.split(".")[1], ""))
    attacks = {
        "": "takes signed links only",
        "no.token": "cannot be read",
        "a.b.c": "cannot be read",
        "x" * 4000: "cannot be read",
        none: "not signed by Prolific",
        token(other, context): "not signed by Prolific",
        good[:-8] + "AAAAAAAA": "not signed by Prolific",
        token(own, context, header={"alg": "HS256", "kid": "k1"}): "not signed by Prolific",
        token(own, context, header={"alg": "RS256", "kid": "k2"}): "not signed by Prolific",
        token(own, context, header={"alg": "RS256"}): "not signed by Prolific",
        token(own, context, exp=now - 120): "expired",
        token(own, context, exp="never"): "expired",
        token(own, context, nbf=now + 600): "expired",
        token(own, context, aud="http://salmon.test/e/another/"): "another study",
        token(own, context, aud="https://elsewhere.org/e/signed/"): "another study",
        token(own, context, aud=None): "another study",
        token(own, context, iss="https://evil.org"): "something else",
        token(own, context, prolific=IDS | {"PROLIFIC_PID": "d" * 24}): "ids in the link",
        token(own, context, prolific={}): "ids in the link",
        token(own, context, prolific=None): "ids in the link",
    }
    before = await context.store.participants.count(await experiment_id(context, "signed"))
    for sent, word in attacks.items():
        reply = await arrive(client, **({"prolific_token": sent} if sent else {}))
        assert (reply.status_code, word in reply.json()["error"]["message"]) == (400, True), (sent[:60], reply.text)
    for place in range(100):  # invented keys do not make this server ask
        header = {"alg": "RS256", "kid": f"invented{place}"}
        assert (await arrive(client, prolific_token=token(other, context, header=header))).status_code == 400
    assert prolific.asked.count("GET /.well-known/study/jwks.json") == 1
    assert (await client.get("/e/signed/", params=IDS)).status_code == 400
    assert await context.store.participants.count(await experiment_id(context, "signed")) == before


async def test_keys_that_cannot_be_read_are_an_error_of_the_platform(
    client: httpx.AsyncClient, context: Context, prolific: StandIn, keys: tuple[RSAPrivateKey, RSAPrivateKey]
) -> None:
    await opened(client, context)
    away = context.settings.model_copy(update={"prolific_url": "http://127.0.0.1:1"})
    async with client_on(away, context.store) as elsewhere:
        reply = await arrive(elsewhere, prolific_token=token(keys[0], context))
    assert (reply.status_code, "cannot be checked" in reply.text) == (502, True)
