"""Credit that this server asks SONA for, against a stand-in of SONA's documented service on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from frontend import sona
from frontend.context import Context
from frontend.participant.completion import completion_of
from frontend.settings import Settings
from salmon.spec import parse_spec
from tests.studies import OWNER, Study, study

TOKEN = "abcdefgh1234secret"
SPEC = f"""\
targets: [red, green, blue, cyan, pink]
samplers: {{Random: {{}}}}
html: {{max_queries: 2}}
recruitment: {{platform: sona, sona: {{school: psych, experiment_id: 3, credit_token: {TOKEN}, credit: server}}}}
"""
GRANTED = """<WebstudyCreditResponse xmlns="http://schemas.datacontract.org/emssonalib" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
<Errors/><Result xmlns:a="x"><a:credit_status>G</a:credit_status><a:survey_code>{code}</a:survey_code></Result></WebstudyCreditResponse>"""
REFUSED = "<R><Errors><Error><ErrorMessage>Invalid survey code.</ErrorMessage></Error></Errors></R>"


@dataclass
class StandIn:
    """What SONA was asked, and what it says next: replies (status, body) are used up, then it grants every credit."""

    address: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    replies: list[tuple[int, str]] = field(default_factory=list)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    found = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            assert address.path == "/services/SonaAPI.svc/WebstudyCredit"
            found.asked.append({name: value for name, (value,) in parse_qs(address.query).items()})
            status, body = found.replies.pop(0) if found.replies else (200, GRANTED)
            content = body.replace("{code}", found.asked[-1]["survey_code"]).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            del arguments

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def school() -> Iterator[StandIn]:
    with stand_in() as found:
        yield found


@pytest.fixture
def settings(settings: Settings, school: StandIn) -> Settings:
    """The settings of the module, with SONA's address replaced by the stand-in's."""
    return settings.model_copy(update={"sona_url": school.address})


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sona, "_WAITS", (0.0, 0.0))


async def finish(one: Study, code: str) -> dict[str, object]:
    """Answer everything and return what the page of the end is told."""
    arrival = await one.arrive(survey_code=code)
    while "token" in (query := await one.query(arrival)):
        await one.answer({"token": query["token"], "winner": query["left"]})
    headers = {"X-Salmon-Session": arrival["session"]}
    reply = await one.client.post(f"/e/{one.slug}/finish", json={"given": 2}, headers=headers)
    return reply.raise_for_status().json()


async def rows_of(one: Study) -> dict[str, tuple[str, str]]:
    """The action and its reason for everybody on the page Payment."""
    reply = await one.client.get(f"/api/experiments/{one.slug}/payment", auth=OWNER)
    return {row["platform_id"]: (row["action"], row["reason"]) for row in reply.raise_for_status().json()["rows"]}


async def test_a_credit_is_granted_once_and_the_page_payment_says_so(
    client: httpx.AsyncClient, context: Context, school: StandIn
) -> None:
    one = await study(client, context, SPEC, "granted")
    school.replies = [(503, ""), (200, GRANTED)]
    end = await finish(one, "12345")
    assert (end["complete"], end["redirect"], end["credited"]) == (True, None, True)
    assert school.asked == [{"experiment_id": "3", "credit_token": TOKEN, "survey_code": "12345"}] * 2
    again = await finish(one, "12345")
    assert (again["credited"], len(school.asked)) == (True, 2)
    assert await rows_of(one) == {"12345": ("nothing", "SONA has granted the credit.")}
    guide = (await client.get("/api/experiments/granted/recruitment", auth=OWNER)).json()
    assert any("This server asks SONA for the credit" in step for step in guide["steps"])


async def test_whoever_gets_no_credit_is_sent_to_sona_and_named_on_the_page_payment(
    client: httpx.AsyncClient, context: Context, school: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    one = await study(client, context, SPEC, "refused")
    school.replies = [(200, REFUSED)]
    end = await finish(one, "777")
    assert (end["complete"], end["credited"]) == (True, False)
    assert end["redirect"] == (
        f"https://psych.sona-systems.com/webstudy_credit.aspx?experiment_id=3&credit_token={TOKEN}&survey_code=777"
    )
    assert len(school.asked) == 1  # a refusal is final
    action, reason = (await rows_of(one))["777"]
    assert action == "pay by hand"
    assert reason.startswith("SONA does not grant it. It says: Invalid survey code. They were shown SONA's own link")
    assert TOKEN not in caplog.text
    shown = await client.get("/api/experiments/refused/exports/config.yaml", auth=OWNER)
    assert TOKEN not in shown.raise_for_status().text


async def test_a_school_that_fails_again_and_again_blocks_nobody(
    client: httpx.AsyncClient, context: Context, school: StandIn
) -> None:
    one = await study(client, context, SPEC, "away")
    school.replies = [(503, "")] * 3
    end = await finish(one, "778")
    assert (end["complete"], end["credited"]) == (True, False)
    assert "survey_code=778" in str(end["redirect"])
    assert "SONA has a problem of its own (status 503)." in (await rows_of(one))["778"][1]
    assert len(school.asked) == 3


async def test_a_school_out_of_reach_is_a_sentence() -> None:
    recruitment = parse_spec(SPEC.encode()).spec.recruitment
    assert recruitment.sona is not None
    found = await sona.ask("http://127.0.0.1:9", recruitment.sona, "779")
    assert (found.granted, found.reason) == (False, "SONA cannot be reached from this server.")


@pytest.mark.parametrize(
    ("content", "granted"),
    [
        (GRANTED, True),
        (GRANTED.replace(">G<", ">N<"), False),
        ("<R><credit_status>G</credit_status></R>", False),
        (REFUSED, False),
        ("<html>", False),
        ('<!DOCTYPE a [<!ENTITY b "c">]><Result><credit_status>G</credit_status></Result>', False),
    ],
)
def test_only_a_result_with_the_status_g_is_a_credit(content: str, granted: bool) -> None:
    assert sona.read_reply(content.encode()).granted is granted


async def test_a_claim_is_held_by_one_caller_until_it_is_void(context: Context, client: httpx.AsyncClient) -> None:
    one = await study(client, context, SPEC, "claimed")
    await one.arrive(survey_code="4711")
    experiment = (await context.catalogue.find("claimed")).id
    (person,) = (await context.store.export_reader.read_arrivals(experiment)).values()
    claim = context.store.participants.claim_credit
    assert [await claim(experiment, person, now_ms=ms) for ms in (0, 1, 59_999, 60_000)] == [True, False, False, True]
    await context.store.participants.note_credit(experiment, person, granted=True, reason="")
    assert not await claim(experiment, person, now_ms=10**9)
    participant = await context.store.participants.read(experiment, person)
    assert participant is not None
    recruitment = parse_spec(SPEC.encode()).spec.recruitment
    assert completion_of(recruitment, participant).redirect is None
    assert completion_of(recruitment, replace(participant, credit="refused")).redirect is not None
