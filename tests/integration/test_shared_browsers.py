"""Who took part with one browser or from one network is named on the page Participants, and who pasted texts.

Nobody is excluded for it, and no address is stored.
"""

import httpx

from frontend.context import Context
from salmon.wire import Keys
from tests.bundles import rows_of
from tests.studies import OWNER, Study, study

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


async def flags_of(one: Study) -> dict[str, list[str]]:
    reply = await one.client.get(f"/api/experiments/{one.slug}/participants?wait=yes", auth=OWNER)
    rows = reply.raise_for_status().json()["participants"]
    assert all(row["keep"] and row["keep_auto"] for row in rows)
    return {row["puid"]: [flag["reason"] for flag in row["flags"]] for row in rows}


async def test_without_the_switch_nothing_is_kept_of_an_address(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC, "no-network")
    for name in ("ann", "bob"):
        await one.arrive(puid=name)
    assert await flags_of(one) == {"ann": [], "bob": []}
    experiment = (await context.catalogue.find("no-network")).id
    assert not await context.store.connection.do(lambda client: client.exists(Keys(experiment).network_key))


async def test_one_network_is_a_hint_under_a_key_that_is_thrown_away(
    client: httpx.AsyncClient, context: Context
) -> None:
    one = await study(client, context, f"{SPEC}privacy: {{network_hint: true}}\n", "network")
    two = await study(client, context, f"{SPEC}privacy: {{network_hint: true}}\n", "network-too")
    for name in ("ann", "bob"):
        await one.arrive(puid=name)
    await two.arrive(puid="ann")
    keys = Keys((await context.catalogue.find("network")).id)
    # Three days later.
    await context.store.connection.do(lambda client: client.delete(keys.network_key))
    await one.arrive(puid="cid")
    sentence = "Came from the same network, within three days, as {}."
    assert await flags_of(one) == {"ann": [sentence.format("bob")], "bob": [sentence.format("ann")], "cid": []}
    people = [
        (await context.store.participants.find((await context.catalogue.find(slug)).id, "link", puid))
        for slug, puid in (("network", "ann"), ("network", "bob"), ("network", "cid"), ("network-too", "ann"))
    ]
    first, second, later, elsewhere = (person.network for person in people if person is not None)
    assert first == second
    assert len({first, later, elsewhere}) == 3
    fields = await context.store.connection.do(
        lambda client: client.hgetall(keys.participant(str(people[0] and people[0].id)))
    )
    assert "127.0.0.1" not in str(fields)


async def test_pasting_is_counted_and_named(client: httpx.AsyncClient, context: Context) -> None:
    one = await study(client, context, SPEC, "pasting")
    headers = {"X-Salmon-Session": (await one.arrive(puid="ann"))["session"]}
    await one.arrive(puid="bob")
    for events in (["copy", "paste"], ["paste", "blur"]):
        content = [{"event": event} for event in events]
        (await client.post("/e/pasting/events", json=content, headers=headers)).raise_for_status()
    assert await flags_of(one) == {
        "ann": ["Pasted into text questions 2 times, and copied from them once."],
        "bob": [],
    }
    table = await client.get("/api/experiments/pasting/exports/participants.csv", auth=OWNER)
    assert sorted((row["pasted"], row["copied"]) for row in rows_of(table.content)) == [("0", "0"), ("2", "1")]
