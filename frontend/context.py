"""Context of every request: the parts of the web process, built once by the program that starts it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
    """The parts of the web process."""

    settings: Settings
    store: Store
    signer: Signer
    media: MediaStore
    pages: Pages
    catalogue: Catalogue
    attempts: Attempts
    metrics: Metrics
    histories: Histories
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(12))

    @staticmethod
    def build(settings: Settings, store: Store) -> Context:
        """Build the parts that follow from settings and a store."""
        return Context(
            settings=settings,
            store=store,
            signer=Signer(settings.secret),
            media=MediaStore(settings.media_location),
            pages=Pages.open(),
            catalogue=Catalogue(store),
            attempts=Attempts(MOST_ATTEMPTS),
            metrics=Metrics(),
            histories=Histories(store),
        )

    def address(self, request: Request) -> str:
        """Return the address under which this server is reached, without a slash at the end."""
        return (self.settings.public_url or str(request.base_url)).rstrip("/")


def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


WithContext = Annotated[Context, Depends(_context)]
