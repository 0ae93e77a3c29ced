"""Who is let in by which door: the page, programs that arrive as it does, and the three ways of scripts of the first
Salmon. Each rule holds at every door, or the door is shut.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import pytest

from frontend.app import create_app
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.participants import ARRIVALS_AT_ONCE
from tests.people import Clock
from tests.prolific import TERMS
from tests.studies import OWNER, Study, study

pytestmark = pytest.mark.usefixtures("quick_hashes")

PLAIN = "targets: [red, green, blue, cyan, pink]\nsamplers: {Random: {}}\nhtml: {max_queries: 3}\n"
#: Parameters in which platforms name a participant.
FOREIGN = ("PROLIFIC_PID", "participantId", "workerId", "survey_code", "puid")
_names = (f"doors-{number}" for number in count())


@pytest.fixture
def context(settings: Settings, store: Store, clock: Clock) -> Context:
    """The parts of a web process whose clock stands still: nobody else is let in while time passes."""
    return Context(settings, store, now_ms=lambda: clock.ms)


@pytest.fixture
async def client(settings: Settings, store: Store, context: Context) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings, store)
    app.state.context = context
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://salmon.test") as opened:
        yield opened


async def participants_of(context: Context, one: Study) -> int:
    return await context.store.participants.count((await context.catalogue.find(one.slug)).id)


async def opened(client: httpx.AsyncClient, context: Context, extra: str = "") -> Study:
    """The experiment that was opened last, on which addresses without a name are."""
    for earlier in await context.store.experiments.list():
        await context.store.experiments.archive(earlier.experiment)
    return await study(client, context, PLAIN + extra, next(_names))


async def invitation_of(context: Context, one: Study, number: int = 1) -> str:
    return context.signer.sign_invitation((await context.catalogue.find(one.slug)).id, number)


@pytest.mark.parametrize("name", FOREIGN)
async def test_an_invitation_is_one_participant_whatever_is_added_to_its_link(
    client: httpx.AsyncClient, context: Context, name: str
) -> None:
    one = await opened(client, context, "recruitment: {invited_only: true}\n")
    invitation = await invitation_of(context, one)
    first = await one.arrive(i=invitation)
    for value in ("11111", "22222", "33333"):
        again = await one.arrive(i=invitation, **{name: value})
        assert again["participant"] == first["participant"]
    assert await participants_of(context, one) == 1


@dataclass
class Doors:
    """Every way to take part under an id, as one request; its status and what it says."""

    one: Study
    context: Context
    token: dict[str, Any]

    async def page(self, puid: str) -> httpx.Response:
        return await self._arrive({"puid": puid}, "text/html")

    async def client(self, puid: str) -> httpx.Response:
        return await self._arrive({"puid": puid}, "*/*", Origin="null")

    async def asking(self, puid: str) -> httpx.Response:
        return await self.one.client.get("/query", params={"puid": puid})

    async def asking_in_a_browser(self, puid: str) -> httpx.Response:
        """By the route itself, because a browser's request is not plain."""
        return await self.one.client.get("/query", params={"puid": puid}, headers={"Accept": "text/html"})

    async def answering(self, puid: str) -> httpx.Response:
        """The answer to a query that was served to nobody in particular."""
        body = {**self.token, "winner": self.token["left"], "puid": puid}
        return await self.one.client.post("/answer", json=body)

    async def answering_unsigned(self, puid: str) -> httpx.Response:
        body = {"head": 0, "left": 1, "right": 2, "winner": 1, "sampler": "Random", "puid": puid}
        return await self.one.client.post("/answer", json=body)

    async def _arrive(self, parameters: dict[str, str], accept: str, **headers: str) -> httpx.Response:
        body = {"parameters": parameters, "browser": "a-browser-of-another"}
        return await self.one.client.post(
            f"/e/{self.one.slug}/arrive", json=body, headers={"Accept": accept, **headers}
        )


Change = Callable[[Study, Context], Awaitable[None]]


async def revise(one: Study, spec: str) -> None:
    known = (await one.client.get(f"/api/experiments/{one.slug}", auth=OWNER)).json()["revision"]
    files, data = {"spec": ("x.yaml", spec.encode())}, {"revision": str(known)}
    reply = await one.client.put(f"/api/experiments/{one.slug}/spec", files=files, data=data, auth=OWNER)
    assert reply.status_code == 200, reply.text


async def nothing(one: Study, context: Context) -> None:
    del one, context


async def pause(one: Study, context: Context) -> None:
    await context.store.experiments.set_state((await context.catalogue.find(one.slug)).id, "paused", now_ms=1)


async def close(one: Study, context: Context) -> None:
    await context.store.experiments.set_state((await context.catalogue.find(one.slug)).id, "closed", now_ms=1)


async def fill(one: Study, context: Context) -> None:
    del context
    await one.arrive(puid="the-only-place")


async def begin_as_victim(one: Study, context: Context) -> None:
    """Somebody else begins in another browser, and answers one trial."""
    del context
    body = {"parameters": {"puid": "newcomer"}, "browser": "the-browser-of-the-victim"}
    arrival = (await one.client.post(f"/e/{one.slug}/arrive", json=body)).raise_for_status().json()
    query = await one.query(arrival)
    (await one.answer({"token": query["token"], "winner": query["left"]})).raise_for_status()


async def use_up(one: Study, context: Context) -> None:
    """As many arrive from this address at this moment as may."""
    experiment = (await context.catalogue.find(one.slug)).id
    for _ in range(ARRIVALS_AT_ONCE):
        await context.store.participants.admit(experiment, "127.0.0.1", now_ms=context.now_ms())


EVERY_DOOR = ("page", "client", "asking", "asking_in_a_browser", "answering", "answering_unsigned")
#: Rules: what the description says, what happens first, and the doors that stay open to a new participant. A query
#: that was served while the experiment was open may be answered later.
RULES: dict[str, tuple[str, Change, tuple[str, ...]]] = {
    "none": ("", nothing, EVERY_DOOR),
    "paused": ("", pause, ("answering",)),
    "closed": ("", close, ("answering",)),
    "not open yet": ("recruitment: {opens_at: 2099-01-01 00:00}\n", nothing, ("answering",)),
    "invited only": ("recruitment: {invited_only: true}\n", nothing, ()),
    "signed links": (
        f"recruitment: {{platform: prolific, completion_code: C0DE7, prolific: {{{TERMS}, signed_links: true}}}}\n",
        nothing,
        (),
    ),
    "the same browser": ("resume: {policy: same_browser}\n", begin_as_victim, ()),
    "nobody comes back": ("resume: {policy: block}\n", begin_as_victim, ()),
    "no place is left": ("stopping: {participants: 1}\n", fill, ()),
    "too many arrivals": ("", use_up, ()),
}


@pytest.mark.parametrize("door", EVERY_DOOR)
@pytest.mark.parametrize("rule", RULES)
async def test_every_rule_holds_at_every_door(
    client: httpx.AsyncClient, context: Context, rule: str, door: str
) -> None:
    extra, first, let_in = RULES[rule]
    scripts = "security: {compat: on, accept_unsigned_answers: on}\n"
    one = await opened(client, context, scripts)
    token = (await client.get("/query")).raise_for_status().json()
    if extra:  # the token is from before, so the door of answers is tried with one
        await revise(one, PLAIN + scripts + extra)
    await first(one, context)
    before = await participants_of(context, one)
    reply = await getattr(Doors(one, context, token), door)("newcomer")
    assert reply.status_code < 500, reply.text
    assert (reply.status_code == 200) == (door in let_in), reply.text
    assert await participants_of(context, one) - before == (1 if door in let_in else 0)
    if reply.status_code != 200 and door != "asking_in_a_browser":
        assert reply.json()["error"]["message"].endswith((".", "!"))
