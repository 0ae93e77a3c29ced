"""Fixtures of the contracts with users of the first Salmon."""

from collections.abc import AsyncIterator

import httpx
import pytest
from argon2 import PasswordHasher

from frontend import security
from frontend.app import create_app
from frontend.auth import make_first_invitation
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from tests.old_scripts import AUTH, HERE, OldScript


@pytest.fixture
async def server(settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OldScript]:
    """The application in this process, with the account that scripts create, and nothing that is not archived."""
    # Scripts send their password with every request: a hash that takes its time would be most of these tests.
    monkeypatch.setattr(security, "_HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    transport = httpx.ASGITransport(app=create_app(settings, store), client=("127.0.0.1", 50000))
    async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
        if not await store.accounts.exist():
            invitation = await make_first_invitation(Context(settings, store))
            form = {"username": AUTH[0], "password": AUTH[1], "password2": AUTH[1]}
            (await client.post(f"/create_user?invitation={invitation}", data=form)).raise_for_status()
        for state in await store.experiments.list():
            await store.experiments.archive(state.experiment)
        yield OldScript(client)
