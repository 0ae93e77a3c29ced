"""Who took part with one browser is named on the page Participants; nobody is flagged otherwise or excluded for it."""

import httpx

from frontend.context import Context
from tests.studies import OWNER, study

SPEC = "targets: [red, green, blue, cyan]\nsamplers: {Random: {}}\nhtml: {max_queries: 2}\n"
SECRET = "0123456789abcdef"


async def test_participants_of_one_browser_are_named_to_each_other(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC, "browsers")
    for name, secret in {"ann": SECRET, "bob": SECRET, "cid": "another-secret-of-16", "dan": ""}.items():
        body = {"parameters": {"puid": name}, "browser": secret}
        (await client.post(f"/e/{one.slug}/arrive", json=body)).raise_for_status()
    reply = await client.get(f"/api/experiments/{one.slug}/participants?wait=yes", auth=OWNER)
    people = {row["puid"]: row for row in reply.raise_for_status().json()["participants"]}
    said = {name: [flag["reason"] for flag in row["flags"]] for name, row in people.items()}
    assert said == {
        "ann": ["Took part with the same browser as bob."],
        "bob": ["Took part with the same browser as ann."],
        "cid": [],
        "dan": [],
    }
    assert all(row["keep"] and row["keep_auto"] for row in people.values())
