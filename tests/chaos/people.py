"""People who go on through everything that fails: at the participant's page, and with scripts of the first Salmon."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.ledger import Ledger

#: How long somebody waits before a request is sent again.
RETRY_SECONDS = 0.15
#: A request that is not answered after this time is sent again.
PATIENCE_SECONDS = 10.0
#: Of all answers, so many are sent although nobody reads the reply, and so many are sent again when they are stored.
CUT_SHARE, REPEAT_SHARE = 0.04, 0.05


class StrangerError(Exception):
    """The server does not know the session or token any more: the link has to be opened again."""


@dataclass
class People:
    """People on one experiment of a server at one address, until `ending` is set; each
    finishes what they have begun.
    """

    address: str
    slug: str
    ledger: Ledger
    seed: int
    thinking_seconds: float = 0.5
    trials: int = 40
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self, people: int) -> None:
        """Let so many people take part, every second one with a script."""
        limits = httpx.Limits(max_connections=people, max_keepalive_connections=people)
        async with httpx.AsyncClient(base_url=self.address, limits=limits, timeout=PATIENCE_SECONDS) as client:
            await asyncio.gather(*(self._somebody(client, number) for number in range(people)))

    async def _somebody(self, client: httpx.AsyncClient, number: int) -> None:
        chance = random.Random(f"{self.seed}:{number}")
        life = 0
        while not self.ending.is_set():
            life += 1
            try:
                if number % 2 == 0:
                    await self._page(client, chance, f"page-{number}-{life}")
                else:
                    await self._script(client, chance, f"script-{number}-{life}")
            except StrangerError:
                continue  # with a new link

    async def _page(self, client: httpx.AsyncClient, chance: random.Random, puid: str) -> None:
        arrival = await self._ask(client, "POST", "arrive", json={"parameters": {"puid": puid}})
        headers = {"X-Salmon-Session": arrival["session"]}
        given = 0
        while not self.ending.is_set():
            query = await self._ask(client, "GET", f"query?number={given + 1}", headers=headers, cut=chance)
            if query.get("done"):
                break
            if query.get("over"):
                self.ledger.surprises.append(f"{puid}: turn {given + 1} is over before it was answered")
                return
            await self._think(chance)
            body = {"token": query["token"], "winner": chance.choice([query["left"], query["right"]]), "rt_ms": 800}
            self.ledger.note_sent(query["token"], body["winner"])
            await self._send(client, chance, "answers", body)
            given += 1
        if given == self.trials:
            reply = await self._ask(client, "POST", "finish", json={"given": given}, headers=headers)
            if reply["complete"]:
                self.ledger.codes[puid] = given
            else:
                self.ledger.surprises.append(f"{puid}: {given} answers were acknowledged, the end finds {reply}")

    async def _script(self, client: httpx.AsyncClient, chance: random.Random, puid: str) -> None:
        """Ask with a puid or for nobody in particular, and answer with it."""
        asking = "/query" if chance.random() < 0.3 else f"/query?puid={puid}"
        for _ in range(self.trials):
            if self.ending.is_set():
                return
            query = await self._ask(client, "GET", asking, cut=chance)
            await self._think(chance)
            winner = chance.choice([query["left"], query["right"]])
            self.ledger.note_sent(query["token"], winner)
            await self._send(client, chance, "/answer", {**query, "winner": winner, "puid": puid})

    async def _think(self, chance: random.Random) -> None:
        await asyncio.sleep(chance.expovariate(1 / self.thinking_seconds))

    async def _send(self, client: httpx.AsyncClient, chance: random.Random, path: str, body: dict[str, Any]) -> None:
        """Send an answer until it is acknowledged; now and then once more."""
        token, times = body["token"], 1 + (chance.random() < REPEAT_SHARE)
        for repeat in range(times):
            while True:
                began = time.monotonic()
                reply = await self._ask(client, "POST", path, json=body, cut=chance)
                result = reply.get("results", [reply])[0]
                if "error" in result:
                    if result["error"]["code"] == "forged":
                        raise StrangerError
                    self.ledger.surprises.append(f"an answer was refused: {result['error']}")
                    return
                break
            if repeat and result.get("recorded"):
                self.ledger.surprises.append("an answer that was acknowledged was recorded again")
            self.ledger.repeats += repeat
            self.ledger.note_acknowledged(token, began=began)

    async def _ask(
        self, client: httpx.AsyncClient, method: str, path: str, *, cut: random.Random | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request again and again until it is answered; now and then nobody reads the first reply."""
        url = path if path.startswith("/") else f"/e/{self.slug}/{path}"
        if cut is not None and cut.random() < CUT_SHARE:
            self.ledger.cut_replies += 1
            try:
                async with asyncio.timeout(cut.uniform(0.001, 0.02)):
                    await client.request(method, url, **options)
            except (TimeoutError, httpx.HTTPError):
                pass
        while True:
            try:
                reply = await client.request(method, url, **options)
            except httpx.HTTPError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if reply.status_code in {401, 403}:
                raise StrangerError
            if reply.status_code < 400 or (reply.status_code == 422 and "results" in reply.text):
                return reply.json()
            if reply.status_code not in {429, 502, 503}:
                self.ledger.surprises.append(f"{method} {url}: {reply.status_code} {reply.text[:300]}")
            await asyncio.sleep(RETRY_SECONDS)
