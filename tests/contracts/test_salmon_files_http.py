"""Scripts of the first Salmon against today's server: the same addresses, bodies, statuses and shapes."""

import csv
import io
from unittest.mock import AsyncMock

import httpx
import pytest

from frontend.app import create_app
from frontend.auth import make_first_invitation
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.export import FIRST_COLUMNS
from salmon.wire import Keys
from tests.contracts.salmon_rows import covers
from tests.old_scripts import AUTH, HERE, SIX, OldScript


@covers("http", "/create_user")
async def test_the_first_account_is_made_with_the_printed_link_and_once(
    server: OldScript, settings: Settings, store: Store
) -> None:
    invitation = await make_first_invitation(Context(settings, store))
    body = {"username": "other", "password": "another password", "password2": "another password"}
    said = (await server.post(f"/create_user?invitation={invitation}", 403, data=body)).text
    assert "maximum number of users" in said.lower()
    await server.post("/create_user", 409, data={**body, "password2": "password2"})
    assert "does not belong into an address" in (await server.post("/create_user/other/password1", 400)).text


@covers("http", "/create_user")
async def test_nobody_makes_the_first_account_without_the_link_from_wherever_they_come(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.accounts, "exist", AsyncMock(return_value=False))
    invitation = await make_first_invitation(Context(settings, store))
    body = {"username": "eve", "password": "a long password", "password2": "a long password"}
    foreign = f"/create_user?invitation={invitation}"
    for path, host, headers in (
        ("/create_user", HERE, {}),
        ("/create_user?invitation=forged", HERE, {}),
        ("/create_user", HERE, {"Origin": "null"}),
        (foreign, HERE, {"Origin": "null"}),
        (foreign, HERE, {"Origin": "http://evil.example"}),
        (foreign, HERE, {"Sec-Fetch-Site": "cross-site"}),
        (foreign, HERE, {"Sec-Fetch-Site": "same-site"}),
    ):
        transport = httpx.ASGITransport(app=create_app(settings, store), client=("127.0.0.1", 50000))
        async with httpx.AsyncClient(transport=transport, base_url=host) as client:
            refused = await client.post(path, data=body, headers=headers)
            assert refused.status_code == 403, (path, host, headers)
            assert "Traceback" not in refused.text
    assert await store.accounts.read("eve") is None


@covers("http", "basic", "port")
async def test_without_the_right_password_nothing_is_shown(server: OldScript) -> None:
    for path in ("/responses", "/embeddings", "/config", "/meta", "/dashboard", "/download", "/logs", "/reset?force=1"):
        refused = await server.get(path, 401, auth=None)
        assert refused.headers["www-authenticate"].startswith("Basic")
        assert "Incorrect username or password" in refused.json()["detail"]
    await server.post("/init_exp", 401, auth=("username", "wrong-password"))
    assert Settings.model_fields["port"].default == 8421


@covers("http", "/query", "/answer", "/responses", "/meta", "/")
@covers("responses", "26 columns in order", "units", "winner and loser are the feet", "sorted by receipt", "json")
async def test_a_script_initialises_asks_answers_and_takes_home(server: OldScript) -> None:
    await server.init(SIX)
    page = await server.get("/?puid=p1", 307, auth=None)
    assert page.headers["location"].endswith("/?puid=p1")
    assert (await server.client.get(page.headers["location"])).status_code == 200
    answers = [await server.answer_one(k % 3) for k in range(30)]
    rows = (await server.get("/responses")).json()
    assert [list(row) for row in rows] == [list(FIRST_COLUMNS)] * 30
    assert len(FIRST_COLUMNS) == 26
    for row, sent in zip(rows, answers, strict=True):
        assert all(row[key] == sent[key] for key in ("head", "left", "right", "winner", "sampler", "score"))
        assert row["puid"] == str(sent["puid"])
        assert {row["winner"], row["loser"]} == {row["left"], row["right"]}
        assert (row["response_time"], row["network_latency"], row["score"]) == (0.25, -1, -9999)
    assert [row["num_responses"] for row in rows] == list(range(1, 31))
    received = [row["time_received"] for row in rows]
    assert received == sorted(received)
    assert all(round(seconds, 3) == seconds for seconds in received)
    assert rows[0]["winner_html"] in {"0", "1", "two", "<b>three</b>", "4", "5"}
    table = list(csv.DictReader(io.StringIO((await server.get("/responses?json=0")).text)))
    assert list(table[0]) == list(FIRST_COLUMNS)
    assert [row["head"] for row in table] == [str(row["head"]) for row in rows]
    assert (await server.get("/meta")).json() == {"responses": 30, "participants": 3}


@covers("http", "/query")
async def test_a_query_can_be_of_one_sampler_and_of_one_participant(server: OldScript) -> None:
    await server.init({**SIX, "samplers": {"a": {"class": "Random"}, "b": {"class": "RoundRobin"}}})
    heads: list[int] = []
    for _ in range(6):
        query = (await server.client.get("/query?sampler=b&puid=p1")).json()
        assert set(query) == {"sampler", "score", "head", "left", "right", "token"}
        assert query["sampler"] == "b"
        heads.append(query["head"])
        # A round goes on when its query was answered: asking again gives the same one.
        assert (await server.client.get("/query?sampler=b&puid=p1")).json()["token"] == query["token"]
        answer = {**query, "winner": query["left"], "puid": "p1"}
        assert (await server.client.post("/answer", json=answer)).status_code == 200
    assert sorted(heads) == list(range(6))
    assert "The samplers are a, b." in (await server.get("/query?sampler=nothing", 500, auth=None)).json()["detail"]


async def test_what_is_fixed_for_each_participant_is_fixed_for_nobody(server: OldScript) -> None:
    sampling = {"samplers_per_user": 1, "details": {1: {"sampler": "a", "query": [0, 1, 2]}}}
    await server.init({**SIX, "samplers": {"a": {"class": "Random"}, "b": {"class": "Random"}}, "sampling": sampling})
    assert {(await server.client.get("/query")).json()["sampler"] for _ in range(20)} == {"a", "b"}
    first = (await server.client.get("/query?puid=p1")).json()
    assert (first["head"], {first["left"], first["right"]}) == (0, {1, 2})
    assert len({(await server.client.get("/query?puid=p1")).json()["sampler"] for _ in range(20)}) == 1


@covers("http", "/answer")
async def test_an_answer_that_comes_after_the_reset_is_kept(server: OldScript, store: Store) -> None:
    made = (await server.init(SIX)).json()
    query = (await server.client.get("/query")).json()
    (await server.client.delete("/reset?force=1", auth=AUTH)).raise_for_status()
    late = await server.client.post("/answer", json={**query, "winner": query["left"], "puid": "p"})
    assert late.json() == {"success": True}
    assert await store.answers.count(str(await store.experiments.find(made["experiment"]))) == 1


@covers("http", "/answer")
async def test_an_answer_sent_twice_or_by_two_is_recorded_once(server: OldScript) -> None:
    await server.init(SIX)
    sent = await server.answer_one("first")
    for puid in ("first", "second"):
        assert (await server.client.post("/answer", json={**sent, "puid": puid})).json() == {"success": True}
    assert [row["puid"] for row in (await server.get("/responses")).json()] == ["first"]


@covers("http", "/answer", "unsigned answers")
async def test_only_answers_to_queries_that_were_asked_are_taken(server: OldScript) -> None:
    await server.init(SIX)
    query = (await server.client.get("/query")).json()
    fine = {**query, "winner": query["left"], "puid": "p"}
    for changed, status in (
        ({"head": (query["head"] + 1) % 6}, 422 if (query["head"] + 1) % 6 == query["left"] else 400),
        ({"winner": query["head"]}, 422),
        ({"winner": "nobody"}, 422),
        ({"token": "forged"}, 403),
        ({"token": ""}, 403),
    ):
        refused = await server.client.post("/answer", json=fine | changed)
        assert refused.status_code in {status, 400}, (changed, refused.text)
        assert "Traceback" not in refused.text
    assert (await server.client.post("/answer", content=b"{")).status_code == 422
    swapped = fine | {"left": query["right"], "right": query["left"]}
    assert (await server.client.post("/answer", json=swapped)).json() == {"success": True}
    (row,) = (await server.get("/responses")).json()
    assert (row["left"], row["right"], row["winner"]) == (query["right"], query["left"], query["left"])


@covers("http", "unsigned answers")
async def test_answers_without_a_token_are_taken_where_the_experiment_says_so_and_marked(
    server: OldScript, store: Store
) -> None:
    made = await server.init({**SIX, "security": {"accept_unsigned_answers": True}})
    answer = {"head": 0, "left": 1, "right": 2, "winner": 2, "sampler": "random", "puid": "old"}
    assert (await server.client.post("/answer", json=answer)).json() == {"success": True}
    for changed in ({"head": 6}, {"head": 1}, {"sampler": "x"}):
        assert (await server.client.post("/answer", json=answer | changed)).status_code == 422
    experiment = await store.experiments.find(made.json()["experiment"])
    entries = await store.connection.do(lambda redis: redis.xrange(Keys(str(experiment)).answers))
    assert [(entry["signed"], entry["trial_type"]) for _, entry in entries] == [("0", "random")]
