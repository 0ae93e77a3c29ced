"""Fixtures of the tests about Prolific: the stand-in, and requests of an owner whose token ends with the test."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from frontend.prolific import platform
from frontend.settings import Settings
from tests.prolific import Send, StandIn, stand_in


@pytest.fixture
def prolific() -> Iterator[StandIn]:
    with stand_in() as made:
        yield made


@pytest.fixture
def settings(settings: Settings, prolific: StandIn) -> Settings:
    """The settings of the module, with Prolific's address replaced by the stand-in's."""
    return settings.model_copy(update={"prolific_url": prolific.address})


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_WAITS", (0.0, 0.0))


@pytest.fixture
async def send(client: httpx.AsyncClient, owner: tuple[str, str]) -> AsyncIterator[Send]:
    """Requests of the owner, whose account has no token when the test has ended."""

    async def request(method: str, path: str, **options: Any) -> httpx.Response:
        return await client.request(method, path, auth=owner, **options)

    yield request
    await request("DELETE", "/api/account/prolific")
