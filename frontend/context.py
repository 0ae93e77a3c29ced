"""Context of every request: the parts of the web process."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, cast

from fastapi import Depends, Request

from frontend.experiments import Catalogue
from frontend.history import Histories
from frontend.media import MediaStore
from frontend.metrics import Metrics
from frontend.pages import Pages
from frontend.security import Attempts, Signer
from frontend.settings import Settings
from frontend.store import Store

#: Wrong passwords accepted for one name within a minute; the next ones have to wait.
MOST_ATTEMPTS = 10


@dataclass(frozen=True)
class Context:
    """The parts of the web process; each is built when it is first used, so that a subprocess builds only what it needs."""

    settings: Settings
    store: Store
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(12))

    @cached_property
    def signer(self) -> Signer:
        """Signs and checks tokens, sessions and invitations."""
        return Signer(self.settings.secret)

    @cached_property
    def media(self) -> MediaStore:
        """The files behind targets."""
        return MediaStore(self.settings.media_location)

    @cached_property
    def pages(self) -> Pages:
        """The templates."""
        return Pages.open()

    @cached_property
    def catalogue(self) -> Catalogue:
        """Experiments, parsed."""
        return Catalogue(self.store)

    @cached_property
    def attempts(self) -> Attempts:
        """Wrong passwords within the last minute."""
        return Attempts(MOST_ATTEMPTS)

    @cached_property
    def metrics(self) -> Metrics:
        """What this process counts about itself."""
        return Metrics()

    @cached_property
    def histories(self) -> Histories:
        """The histories of samplers, prepared for figures."""
        return Histories(self.store)

    def address(self, request: Request) -> str:
        """Return the address under which this server is reached, without a slash at the end."""
        return (self.settings.public_url or str(request.base_url)).rstrip("/")


@asynccontextmanager
async def open_context(settings: Settings) -> AsyncGenerator[Context]:
    """Yield a context for work outside of a web process, on a store that is closed at the end."""
    store = Store.open(settings.redis_url)
    try:
        yield Context(settings, store)
    finally:
        await store.close()


def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


WithContext = Annotated[Context, Depends(_context)]
