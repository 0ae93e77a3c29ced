"""Attacks on the web process over HTTP: each is tried, and fails."""

import asyncio
import base64
import csv
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.store.participants import ARRIVALS_AT_ONCE, EVENTS_EACH
from salmon.records import Query
from salmon.wire import StoredVerdicts
from tests.program import Program
from tests.studies import OWNER, study

COLORS = "targets: [red, green, blue, cyan, pink]\nsamplers: {Random: {}}\n"
FOREIGN = "https://elsewhere.example"


@pytest.fixture
def running(program: Program) -> Iterator[httpx.Client]:
    """A client of a program in processes of its own."""
    with httpx.Client(base_url=program.address, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/e/anything/answers", "/e/anything/events", "/e/anything/steps/consent", "/e/anything/arrive", "/answer"],
)
async def test_a_body_of_six_megabytes_is_refused_before_it_is_parsed(client: httpx.AsyncClient, path: str) -> None:
    body = b"[" + b",".join([b"{}"] * 2_000_000) + b"]"
    reply = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 413
    assert "at most 2,000,000 bytes" in reply.json()["error"]["message"]


async def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long(client: httpx.AsyncClient) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"[" * 100_000

    reply = await client.post("/e/anything/answers", content=pieces())
    assert reply.status_code == 413
    assert sent < 25


async def test_a_login_is_a_few_words_and_no_more(client: httpx.AsyncClient) -> None:
    reply = await client.post("/console/login", data={"name": "a", "password": "b" * 70_000})
    assert reply.status_code == 413


@pytest.mark.parametrize("item", ["{}", "1", '{"token": 1}', "[[]]"])
async def test_a_body_full_of_mistakes_is_told_a_few_of_them(client: httpx.AsyncClient, item: str) -> None:
    body = "[" + ",".join([item] * (1_990_000 // (len(item) + 1))) + "]"
    reply = await client.post("/e/anything/answers", content=body)
    assert reply.status_code == 400
    assert len(reply.text) < 3_000


async def test_deep_nesting_is_a_sentence(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, COLORS, "deep")
    session = (await colors.arrive(puid="deep"))["session"]
    for path in ("answers", "events", "arrive", "steps/welcome", "finish"):
        reply = await client.post(
            f"/e/deep/{path}",
            content="[" * 100_000,
            headers={"Content-Type": "application/json", "X-Salmon-Session": session},
        )
        assert reply.status_code in {400, 422}, path
        assert reply.json()["error"]["message"]


def test_large_bodies_neither_block_nor_fill_the_web_process(
    running: httpx.Client, program: Program, record_property: Callable[[str, object], None]
) -> None:
    web = program.child("frontend")
    before = web.memory_info().rss
    body = b"[" + b",".join([b"{}"] * 2_000_000) + b"]"
    for _ in range(3):
        started = time.monotonic()
        assert running.post("/e/x/answers", content=body).status_code == 413
        refused = time.monotonic() - started
        started = time.monotonic()
        assert running.get("/healthz").status_code == 200
        record_property("refused_ms", 1000 * refused)
        record_property("healthz_ms", 1000 * (time.monotonic() - started))
    grown = web.memory_info().rss - before
    record_property("grown_mb", grown / 1e6)
    assert grown < 50e6


async def test_nothing_is_uploaded_by_somebody_who_is_not_logged_in(
    client: httpx.AsyncClient, context: Context
) -> None:
    await study(client, context, COLORS, "uploaded")
    for method, path in (
        ("POST", "/api/experiments"),
        ("POST", "/api/experiments/import"),
        ("PUT", "/api/experiments/uploaded/spec"),
        ("POST", "/init_exp"),
        ("POST", "/restore"),
    ):
        sent = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal sent
            yield b'--x\r\nContent-Disposition: form-data; name="spec"; filename="a"\r\n\r\n'
            for _ in range(1000):
                sent += 1
                yield b"a" * 100_000

        for headers in ({}, {"X-CSRF-Token": "x"}, {"Cookie": "salmon_login=x"}):
            reply = await client.request(
                method,
                path,
                content=pieces(),
                headers={"Content-Type": "multipart/form-data; boundary=x", **headers},
            )
            assert reply.status_code in {401, 403}, (path, headers)
            assert sent < 5, (path, headers)


@pytest.mark.parametrize("origin", ["null", FOREIGN, "http://test.evil.example"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/console/login"),
        ("POST", "/console/logout"),
        ("POST", "/create_user"),
        ("POST", "/create_user/eve/a%20good%20password"),
        ("GET", "/reset?force=1"),
        ("POST", "/api/experiments"),
        ("DELETE", "/api/experiments/x"),
        ("GET", "/console/"),
        ("GET", "/api/experiments"),
    ],
)
async def test_a_page_of_another_site_changes_and_reads_nothing(
    client: httpx.AsyncClient, origin: str, method: str, path: str
) -> None:
    owner = {"Authorization": "Basic " + base64.b64encode(b"owner:a good password").decode()}
    for headers in ({"Origin": origin}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        reply = await client.request(method, path, headers={**owner, **headers})
        assert reply.status_code == 403, headers
        assert "access-control-allow-origin" not in reply.headers


async def test_a_link_from_another_site_may_be_followed_to_the_console(client: httpx.AsyncClient) -> None:
    follows = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await client.get("/console/login", headers=follows)).status_code == 200
    framed = {**follows, "Sec-Fetch-Dest": "iframe"}
    assert (await client.get("/console/login", headers=framed)).status_code == 403


async def test_the_console_cannot_be_framed_kept_or_guessed_at(client: httpx.AsyncClient) -> None:
    reply = await client.get("/console/login")
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["cross-origin-opener-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_participants_routes_are_read_by_named_origins_and_never_by_cookies(
    client: httpx.AsyncClient, context: Context
) -> None:
    await study(client, context, COLORS + "security: {origins: ['https://lab.example']}\n", "embedded")
    for origin, allowed in (("null", "null"), ("https://lab.example", "https://lab.example"), (FOREIGN, None)):
        for route in ("arrive", "query", "answers", "finish", "withdraw", "skip"):
            reply = await client.options(f"/e/embedded/{route}", headers={"Origin": origin})
            assert reply.headers.get("access-control-allow-origin") == allowed
        reply = await client.post("/e/embedded/arrive", json={"parameters": {}}, headers={"Origin": origin})
        assert reply.headers.get("access-control-allow-origin") == allowed
        assert "access-control-allow-credentials" not in reply.headers
    page = await client.get("/e/embedded/", headers={"Accept": "text/html"})
    assert "frame-ancestors 'self' https://lab.example;" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("extra", "kept_apart"), [("", False), ("html: {js: 'x = 1'}\n", True), ("page: {trusted: true}\n", True)]
)
async def test_a_page_with_scripts_of_the_experimenter_is_kept_apart_from_the_site(
    client: httpx.AsyncClient, context: Context, extra: str, kept_apart: bool
) -> None:
    colors = await study(client, context, COLORS + extra, f"apart{len(extra)}")
    policy = (await client.get(f"/e/{colors.slug}/")).headers["content-security-policy"]
    assert ("sandbox allow-scripts" in policy) == kept_apart
    assert "allow-same-origin" not in policy


async def test_a_class_gets_in_and_a_flood_waits(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, COLORS, "class")
    replies = [await client.post("/e/class/arrive", json={"parameters": {}}) for _ in range(ARRIVALS_AT_ONCE)]
    assert {reply.status_code for reply in replies} == {200}
    # Time goes on while they arrive, and lets a few more in.
    more = await asyncio.gather(
        *(client.post("/e/class/arrive", json={"parameters": {}}) for _ in range(3 * ARRIVALS_AT_ONCE))
    )
    busy = [reply for reply in more if reply.status_code == 429]
    assert busy
    assert {reply.json()["error"]["code"] for reply in busy} == {"busy"}
    assert int(busy[0].headers["retry-after"]) >= 1
    # Whoever is in goes on, also after a reload.
    inside = replies[0].json()
    assert (await colors.query(inside))["token"]
    again = await client.post("/e/class/arrive", json={"parameters": {}, "session": inside["session"]})
    assert again.status_code == 200


async def test_one_participant_cannot_push_out_the_events_of_others(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, COLORS, "eventful")
    session = {"X-Salmon-Session": (await colors.arrive(puid="loud"))["session"]}
    for _ in range(EVENTS_EACH // 200 + 5):
        await client.post("/e/eventful/events", json=[{"event": "x"}] * 200, headers=session)
    lines = (await client.get("/api/experiments/eventful/exports/events.jsonl", auth=OWNER)).text.splitlines()
    assert len(lines) == EVENTS_EACH


async def test_scripts_do_not_pass_over_consent_checks_or_a_platform(
    client: httpx.AsyncClient, context: Context
) -> None:
    await study(client, context, COLORS + "consent: {text: May we?}\n", "agreed")
    for reply in (
        await client.get("/query"),
        await client.get("/query?puid=eve"),
        await client.post("/answer", json={"head": 0, "left": 1, "right": 2, "winner": 1, "sampler": "Random"}),
    ):
        assert reply.status_code == 403
        assert "compat: on" in reply.text
    await context.store.experiments.set_state((await context.catalogue.find("agreed")).id, "closed", now_ms=1)
    await study(client, context, COLORS + "consent: {text: May we?}\nsecurity: {compat: on}\n", "scripted")
    assert (await client.get("/query?puid=eve")).status_code == 200


async def test_a_deleted_experiment_takes_nothing_more(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, COLORS, "deleted")
    arrival = await colors.arrive(puid="late")
    query = await colors.query(arrival)
    session = {"X-Salmon-Session": arrival["session"]}
    experiment = (await context.catalogue.find("deleted")).id
    await context.store.experiments.delete("deleted", experiment)
    replies = [
        await colors.answer({"token": query["token"], "winner": query["left"]}),
        await client.post("/e/deleted/events", json={"event": "x"}, headers=session),
        await client.get("/e/deleted/query", headers=session),
        await client.post("/e/deleted/finish", json={"given": 1}, headers=session),
        await client.post("/e/deleted/steps/welcome", json={}, headers=session),
    ]
    assert [reply.status_code for reply in replies] == [410] * 5
    assert await context.store.answers.count(experiment) == 0
    assert await context.store.experiments.read_fields(experiment) == {}


async def test_verdicts_on_participants_go_with_their_experiment(client: httpx.AsyncClient, context: Context) -> None:
    await study(client, context, COLORS, "judged")
    experiment, people = (await context.catalogue.find("judged")).id, context.store.participants
    await people.remember_verdicts(experiment, StoredVerdicts("0-0", 1, "", {}))
    assert await people.read_verdicts(experiment) is not None
    await context.store.experiments.delete("judged", experiment)
    assert await people.read_verdicts(experiment) is None


@pytest.mark.parametrize(("unsent", "let_go"), [("wait", False), ("release", True)])
async def test_a_page_that_claims_to_have_answered_gets_the_code_where_the_experimenter_wants_it(
    client: httpx.AsyncClient, context: Context, unsent: str, let_go: bool
) -> None:
    spec = COLORS + f"html: {{max_queries: 4}}\nrecruitment: {{completion_code: SECRET77, unsent: {unsent}}}\n"
    colors = await study(client, context, spec, f"claims-{unsent}")
    arrival = await colors.arrive(puid="hasty")
    queries = [await colors.query(arrival, number=number) for number in (1, 2, 3, 4)]
    await colors.answer(*({"token": query["token"], "winner": query["left"]} for query in queries[:2]))
    reply = await client.post(
        f"/e/{colors.slug}/finish",
        json={"given": 4, "incomplete": True},
        headers={"X-Salmon-Session": arrival["session"]},
    )
    assert ("SECRET77" in reply.text) == let_go


async def test_who_knows_an_id_does_not_get_the_session_of_another_browser(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = COLORS + "html: {max_queries: 1}\nresume: {policy: same_browser}\nrecruitment: {completion_code: SECRET77}\n"
    colors = await study(client, context, spec, "browsers")

    async def open_link(browser: str, session: str | None = None) -> httpx.Response:
        body = {"parameters": {"puid": "somebody"}, "browser": browser, "session": session}
        return await client.post("/e/browsers/arrive", json=body)

    arrival = (await open_link("a" * 32)).json()
    query = await colors.query(arrival)
    await colors.answer({"token": query["token"], "winner": query["left"]})
    for stranger in ("b" * 32, ""):
        assert (await open_link(stranger)).status_code == 409
    assert (await open_link("a" * 32)).status_code == 200
    assert (await open_link("", arrival["session"])).status_code == 200, "a page that is reloaded kept its session"
    headers = {"X-Salmon-Session": (await open_link("a" * 32)).json()["session"]}
    assert "SECRET77" in (await client.post("/e/browsers/finish", json={"given": 1}, headers=headers)).text
    assert (await open_link("b" * 32)).status_code == 409


async def test_what_participants_write_is_no_formula_in_a_table(client: httpx.AsyncClient, context: Context) -> None:
    formula = "=HYPERLINK(1)"
    spec = COLORS + "questions: [{name: remark, text: Anything?}]\n"
    colors = await study(client, context, spec, "formulas")
    arrival = await colors.arrive(puid="@SUM")
    session = {"X-Salmon-Session": arrival["session"]}
    query = await colors.query(arrival)
    await colors.answer({"token": query["token"], "winner": query["left"]})
    await client.post("/e/formulas/events", json={"event": formula, "detail": "+1"}, headers=session)
    await client.post("/e/formulas/steps/questions", json={"replies": {"remark": formula}}, headers=session)
    for name in ("responses", "participants", "platform_ids", "events", "triplettools_triplets"):
        text = (await client.get(f"/api/experiments/formulas/exports/{name}.csv", auth=OWNER)).text
        cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))], name
    assert f"'{formula}" in (await client.get("/api/experiments/formulas/exports/events.csv", auth=OWNER)).text
    lines = (await client.get("/api/experiments/formulas/exports/events.jsonl", auth=OWNER)).text
    assert json.loads(lines.splitlines()[0])["event"] == formula, "other formats hold the text as it is"


async def test_every_fixed_query_is_answered_although_replies_are_lost(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = (
        "targets: [a, b, c, d, e, f, g, h]\nhtml: {max_queries: 6}\nsamplers: {V: {class: Validation, n_queries: 4}, R: {class: Random}}\n"
        "sampling: {probs: {V: 50, R: 50}, details: {2: {sampler: R, query: [0, 1, 2]}, 6: {sampler: R, query: [3, 4, 5]}}}\n"
    )
    colors = await study(client, context, spec, "lossy")
    chance = random.Random(3)

    async def take_part(puid: str) -> None:
        arrival = await colors.arrive(puid=puid)
        for number in range(1, 7):
            query = await colors.query(arrival, number=number)
            while chance.random() < 0.1:  # the reply is lost, and the page asks again
                again = await colors.query(arrival, number=number)
                assert again["token"] == query["token"]
            if chance.random() < 0.1:  # the page is reloaded, and has kept nothing
                arrival = await colors.arrive(puid=puid)
                assert arrival["numbers"] == {"open": [number], "next": number + 1}
                query = await colors.query(arrival, number=number)
            body = {"token": query["token"], "winner": query["left"]}
            for _ in range(1 + (chance.random() < 0.1)):
                await colors.answer(body)
        assert (await colors.query(arrival, number=7))["done"] is True

    for puid in range(40):
        await take_part(f"p{puid}")
    rows = await colors.rows()
    assert len(rows) == 240
    for puid in range(40):
        own = [row for row in rows if row["puid"] == f"p{puid}"]
        asked = [(row["head"], *sorted((row["left"], row["right"]))) for row in own]
        assert asked[1] == ("0", "1", "2")
        assert asked[5] == ("3", "4", "5")
        validated = [query for row, query in zip(own, asked, strict=True) if row["sampler"] == "V"]
        assert len(set(validated)) == min(len(validated), 4), "no query of the set twice before each was asked once"


async def test_scripts_get_a_listed_query_again_until_it_is_answered(
    client: httpx.AsyncClient, context: Context
) -> None:
    spec = COLORS + "sampling: {details: {1: {sampler: Random, query: [0, 1, 2]}}}\n"
    await study(client, context, spec, "old-lossy")
    first = (await client.get("/query?puid=old")).json()
    assert (await client.get("/query?puid=old")).json()["token"] == first["token"]
    names = ("head", "left", "right", "sampler", "token")
    body = {name: first[name] for name in names} | {"winner": first["left"], "puid": "old"}
    assert (await client.post("/answer", json=body)).status_code == 200
    second = (await client.get("/query?puid=old")).json()
    assert second["token"] != first["token"]
    assert (await client.get("/query?puid=old")).json()["token"] != second["token"], (
        "a skip in a page of the first Salmon"
    )


async def test_asking_for_nobody_takes_nothing_from_the_list(
    client: httpx.AsyncClient, context: Context, probe: BackendStore
) -> None:
    await study(client, context, "targets: [a, b, c, d, e, f, g, h]\nsamplers: {Adaptive: {}}\n", "anonymous")
    experiment = (await context.catalogue.find("anonymous")).id
    queries = [Query(k, (k + 1, k + 2), score=5.0 - k, trial_type="active", generation=1) for k in range(6)]
    probe.publish(experiment, "Adaptive", probe.take_over(experiment), queries=queries)
    asked = [(await client.get("/query")).json() for _ in range(60)]
    assert {query["score"] for query in asked} == {query.score for query in queries}
    assert len(await context.store.turns.peek_queries(experiment, "Adaptive", 10)) == 6
    names = ("head", "left", "right", "sampler", "token")
    body = {name: asked[0][name] for name in names} | {"winner": asked[0]["left"], "puid": "me"}
    assert (await client.post("/answer", json=body)).status_code == 200
    left = await context.store.turns.peek_queries(experiment, "Adaptive", 10)
    assert asked[0]["score"] not in {query.score for query in left}
