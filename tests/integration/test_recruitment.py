"""One-time links, and try-outs that arrive as from a platform, over the routes."""

import csv
import io
from urllib.parse import parse_qs, urlsplit

import httpx

from frontend.context import Context
from tests.studies import OWNER, study

BASE = "targets: [red, green, blue, cyan]\nsamplers: {Random: {}}\nhtml: {max_queries: 2}\n"
PAGE = "/api/experiments/{}/recruitment"


async def test_a_one_time_link_is_one_person(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, BASE + "recruitment: {invited_only: true}\n", "invited")
    reply = await client.get(f"{PAGE.format('invited')}/invitations.csv", params={"count": 3, "first": 7}, auth=OWNER)
    rows = list(csv.DictReader(io.StringIO(reply.raise_for_status().text)))
    assert [row["number"] for row in rows] == ["7", "8", "9"]
    invitations = [parse_qs(urlsplit(row["link"]).query)["i"][0] for row in rows]
    first = await colors.arrive(i=invitations[0])
    query = await colors.query(first)
    await colors.answer({"token": query["token"], "winner": query["left"]})
    again = await colors.arrive(i=invitations[0])
    assert (again["answers"], again["participant"]) == (1, first["participant"])
    assert (await colors.arrive(i=invitations[1]))["answers"] == 0
    changed = invitations[2].replace("9.", "10.", 1)
    for parameters in ({"i": changed}, {"i": "9"}, {"i": ""}, {}, {"puid": "somebody"}):
        refused = await client.post("/e/invited/arrive", json={"parameters": parameters})
        assert refused.status_code in {400, 403}, parameters
        assert (await client.get("/e/invited/", params=parameters)).status_code in {400, 403}, parameters
    assert await context.store.participants.count((await context.catalogue.find("invited")).id) == 2


async def test_a_test_arrival_walks_the_way_of_a_platform_and_records_nothing(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = BASE + "recruitment: {platform: sona, sona: {school: psych, experiment_id: 3, credit_token: abcdefgh1234}}\n"
    colors = await study(client, context, spec, "test-arrival")
    guide = (await client.get(PAGE.format("test-arrival"), auth=OWNER)).json()
    assert guide["link"].endswith("/e/test-arrival/?survey_code=%SURVEY_CODE%")
    assert (await client.get(guide["test"])).status_code == 200
    arrived = await colors.arrive(**{name: value for name, (value,) in parse_qs(urlsplit(guide["test"]).query).items()})
    for _ in range(2):
        query = await colors.query(arrived)
        await colors.answer({"token": query["token"], "winner": query["left"]})
    headers = {"X-Salmon-Session": arrived["session"]}
    done = (await client.post("/e/test-arrival/finish", json={"given": 2}, headers=headers)).json()
    assert done["redirect"] == guide["back"]
    assert await colors.rows() == []
    assert await context.store.participants.count((await context.catalogue.find("test-arrival")).id) == 0


async def test_the_code_and_the_check_of_a_link(client: httpx.AsyncClient, context: Context) -> None:
    await study(client, context, BASE + "recruitment: {platform: prolific, completion_code: C0DE7}\n", "guided")
    base = PAGE.format("guided")
    drawn = await client.get(f"{base}/qr.svg", auth=OWNER)
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    assert drawn.text.startswith("<svg")
    guide = (await client.get(base, auth=OWNER)).json()
    assert (guide["code"], guide["open"]) == ("C0DE7", True)
    found = (await client.post(f"{base}/check", json={"link": "https://app.prolific.co/x"}, auth=OWNER)).json()
    assert found == ["app.prolific.co no longer works: Prolific is at app.prolific.com."]
