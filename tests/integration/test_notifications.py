"""Experimenters are told once, by e-mail and webhook, that an experiment closed, is full, stalled or failed."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email import message_from_string

import httpx
import pytest

from frontend import notifications
from frontend.context import Context
from frontend.lifecycle import look_at_all
from frontend.notifications import AWAY_MS, Event, Message, MessageError, Seen, check_way, events, send, tell_all
from frontend.store import Store
from frontend.store.experiments import ExperimentState
from frontend.store.places import Places
from salmon.spec import parse_spec
from tests.studies import OWNER, Study, study

SPEC = "title: Eggs\ntargets: 9\nsamplers: {Random: {}}\nhtml: {max_queries: 2}\n"
HOUR_MS = 3_600_000
_names = itertools.count()


@dataclass
class MailServer:
    """A mail server that keeps what it is sent; it knows as much of SMTP as a client without TLS needs."""

    port: int = 0
    mails: list[str] = field(default_factory=list[str])
    refuses: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line.split()[0].upper()
            if verb == "DATA":
                writer.write(b"354 go on\r\n")
                lines: list[str] = []
                while (part := (await reader.readline()).decode()) != ".\r\n":
                    lines.append(part)
                self.mails.append("".join(lines))
            writer.write(b"550 no\r\n" if verb == "MAIL" and self.refuses else b"250 ok\r\n")
            if verb == "QUIT":
                break
        writer.close()


@asynccontextmanager
async def mail_server() -> AsyncIterator[MailServer]:
    kept = MailServer()
    server = await asyncio.start_server(kept.serve, "127.0.0.1", 0)
    kept.port = server.sockets[0].getsockname()[1]
    async with server:
        yield kept


Open = Callable[[str], Awaitable[tuple[Study, str]]]


@pytest.fixture
def opened(client: httpx.AsyncClient, context: Context) -> Open:
    """Opens an experiment; returns it with its id."""

    async def begin(spec: str) -> tuple[Study, str]:
        one = await study(client, context, spec, f"told-{next(_names)}")
        return one, (await context.catalogue.find(one.slug)).id

    return begin


def seen(spec: str = "", **changes: object) -> Seen:
    state = ExperimentState("e1", "eggs", "open", 1, "ada", 1, 1, {"answers": 50})
    return replace(Seen(state, parse_spec(SPEC + spec).spec, Places(), 1000, 0, 2000), **changes)  # type: ignore[arg-type]


def test_what_is_worth_telling_follows_from_what_is_seen() -> None:
    calm = seen()
    assert events(calm) == []
    closed = replace(calm.state, state="closed", ended_by="answers", since_ms=77)
    assert [event.key for event in events(replace(calm, state=closed))] == ["closed:77"]
    assert events(replace(calm, state=replace(closed, ended_by=""))) == [], "somebody closed it by hand"
    paused = replace(calm.state, state="paused", ended_by="errors_above", since_ms=78)
    assert [event.key for event in events(replace(calm, state=paused))] == ["failed:78"]
    places = replace(Places(), held=5, finished=3)
    full = seen("stopping: {participants: 5}\n", places=places)
    assert [event.sentence for event in events(full)] == ["All 5 places are taken; 3 have finished."]
    away = replace(calm, away_since_ms=500, now_ms=500 + AWAY_MS)
    assert [event.name for event in events(away)] == ["failed"]
    assert events(replace(away, now_ms=away.now_ms - 1)) == []
    late = seen("notify: {stalled_after: 2h}\n", now_ms=1000 + 2 * HOUR_MS)
    assert [event.sentence for event in events(late)] == ["Nobody has answered for 2h; there are 50 answers."]
    assert events(replace(late, answered_ms=0)) == [], "nobody has begun yet"
    assert events(replace(late, now_ms=late.now_ms - 1)) == []
    reopened = replace(late, state=replace(late.state, since_ms=late.now_ms - 5))
    assert events(reopened) == [], "it was opened again a moment ago"


async def test_mail_is_sent_once_and_again_only_where_it_failed(opened: Open, context: Context, store: Store) -> None:
    spec = SPEC + "stopping: {answers: 2}\nnotify: {email: [ada@lab.example.org, bob@lab.example.org]}\n"
    one, experiment = await opened(spec)
    async with mail_server() as mails:
        url = f"smtp://salmon@127.0.0.1:{mails.port}"
        settings = context.settings.model_copy(update={"smtp_url": url, "public_url": "https://salmon.example.org"})
        here = replace(context, settings=settings)
        arrival = await one.arrive(puid="ada")
        for _ in range(2):
            query = await one.query(arrival)
            await one.answer({"token": query["token"], "winner": query["left"]})
        await look_at_all(here)
        mails.refuses = True
        await tell_all(here)
        assert mails.mails == []
        overview = (await one.client.get(f"/api/experiments/{one.slug}/overview", auth=OWNER)).json()
        assert "this server sends no mail" in str(overview["sentences"]), "the page's own server has no mail account"
        assert "did not take a message" in await store.experiments.read_message_problem(experiment)
        mails.refuses = False
        await asyncio.gather(*(tell_all(here) for _ in range(5)))
        (mail,) = (message_from_string(mail) for mail in mails.mails)
        assert (mail["Subject"], mail["From"]) == ("Salmon: Eggs closed", "salmon")
        assert mail["To"] == "ada@lab.example.org, bob@lab.example.org"
        assert f"https://salmon.example.org/console/experiments/{one.slug}/" in str(mail.get_payload())
        assert await store.experiments.read_message_problem(experiment) == ""


async def test_a_webhook_goes_to_named_hosts_alone(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        posted.append(request)
        return httpx.Response(302 if request.url.path == "/moved" else 200, headers={"Location": "https://127.0.0.1/"})

    real = httpx.AsyncClient
    monkeypatch.setattr(
        "httpx.AsyncClient", lambda **options: real(transport=httpx.MockTransport(reply), **options)
    )  # the network is not at hand
    message = Message("eggs", "Eggs", Event("full", 5, "All 5 places are taken."), "", 1_700_000_000_000)
    spec = parse_spec(SPEC + "notify: {webhook: https://hooks.example.org/services/T0}\n").spec
    with pytest.raises(MessageError, match=r"sends nothing to hooks\.example\.org"):
        await send(context.settings, spec, message, "webhook")
    assert posted == []
    settings = context.settings.model_copy(update={"webhook_hosts": "chat.example.org, hooks.example.org"})
    await send(settings, spec, message, "webhook")
    assert json.loads(posted[0].content) == {
        "event": "full",
        "experiment": "eggs",
        "sentence": "All 5 places are taken.",
        "text": "Eggs (eggs): All 5 places are taken.",
        "at": "2023-11-14T22:13:20Z",
    }
    moved = parse_spec(SPEC + "notify: {webhook: https://hooks.example.org/moved}\n").spec
    with pytest.raises(MessageError, match="status 302"):
        await send(settings, moved, message, "webhook")
    assert [request.url.host for request in posted] == ["hooks.example.org"] * 2, "no redirect was followed"
    disguised = parse_spec(SPEC + "notify: {webhook: 'https://hooks.example.org@127.0.0.1/'}\n").spec
    with pytest.raises(MessageError, match=r"sends nothing to 127\.0\.0\.1"):
        check_way(settings, disguised, "webhook")


def test_a_title_cannot_add_lines_to_the_head_of_a_mail() -> None:
    message = Message("eggs", "Eggs\r\nBcc: eve@example.org", Event("full", 5, "All."), "", 0)
    assert message.subject == "Salmon: Eggs Bcc: eve@example.org is full"
    assert notifications.Message("eggs", "", message.event, "", 0).subject == "Salmon: eggs is full"
