"""One experiment on the application in this process, and what participants and its experimenter do with it."""

from pathlib import Path
from typing import Any

import httpx

from frontend.auth import make_account
from frontend.context import Context
from frontend.launching import launch
from tests.bundles import rows_of

OWNER = ("owner", "a good password")


class Study:
    """One launched experiment and what participants do on it."""

    def __init__(self, client: httpx.AsyncClient, context: Context, slug: str) -> None:
        self.client = client
        self.context = context
        self.slug = slug

    async def arrive(self, **parameters: str) -> dict[str, Any]:
        reply = await self.client.post(f"/e/{self.slug}/arrive", json={"parameters": parameters})
        return reply.raise_for_status().json()

    async def query(self, arrival: dict[str, Any], *, number: int = 0, **options: Any) -> dict[str, Any]:
        reply = await self.client.get(
            f"/e/{self.slug}/query",
            params={"number": number, **options},
            headers={"X-Salmon-Session": arrival["session"]},
        )
        return reply.raise_for_status().json()

    async def answer(self, *bodies: dict[str, Any]) -> httpx.Response:
        return await self.client.post(f"/e/{self.slug}/answers", json=list(bodies))

    async def rows(self) -> list[dict[str, str]]:
        reply = await self.client.get(f"/api/experiments/{self.slug}/exports/responses.csv", auth=OWNER)
        return rows_of(reply.raise_for_status().content)


async def study(client: httpx.AsyncClient, context: Context, spec: str, name: str) -> Study:
    made, _ = await launch(
        context, spec.encode(), spec_name=Path("spec.yaml"), archive=None, name=name, owner=OWNER[0], state="open"
    )
    if not await context.store.accounts.exist():
        await make_account(context, *OWNER, owner=True)
    return Study(client, context, made.slug)
