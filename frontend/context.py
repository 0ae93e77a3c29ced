"""Context of every request: the parts of the web process."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, cast

from fastapi import Depends, Request

from frontend.experiments import Catalogue, OpenPages
from frontend.history import Histories
from frontend.media import MediaStore
from frontend.metrics import DataDisk, Metrics
from frontend.pages import Pages
from frontend.prolific.credentials import CredentialFiles, ProlificAccount
from frontend.prolific.signed_links import StudyKeys
from frontend.security import RecentPasswords, Signer
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.accounts import Account
from frontend.store.participants import Proposals


@dataclass(frozen=True)
class CountedUndecided:
    """How many proposals nobody has decided about; `of` are the proposals, and the number of decisions by then."""

    of: tuple[Proposals, int]
    count: int


@dataclass(frozen=True)
class Context:
    """The parts of the web process; each is built when it is first used, so that a
    subprocess builds only what it needs.
    """

    settings: Settings
    store: Store
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)
    nonce: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(12))
    #: Why programs of this server have died, by name, as its supervisor tells; "" if they run again.
    causes: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def signer(self) -> Signer:
        """Signs and checks tokens and the sessions of participants."""
        return Signer(self.settings.secret)

    @cached_property
    def media(self) -> MediaStore:
        """The files behind targets."""
        return MediaStore(self.settings.media_location)

    @cached_property
    def pages(self) -> Pages:
        """The templates."""
        return Pages.open(self.settings.mount)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Experiments, parsed."""
        return Catalogue(self.store)

    @cached_property
    def open_pages(self) -> OpenPages:
        """The pages whose participants are in the trials."""
        return OpenPages()

    @cached_property
    def prolific_files(self) -> CredentialFiles:
        """The accounts' tokens for Prolific."""
        return CredentialFiles(self.settings.data, self.settings.prolific_token)

    @cached_property
    def study_keys(self) -> StudyKeys:
        """The public keys of Prolific's signed links."""
        return StudyKeys(self.settings.prolific_url)

    async def read_prolific(self, account: str) -> ProlificAccount | None:
        """Return the credentials of an account for Prolific; None where it has none."""
        owner = any(each.id == account and each.role == "owner" for each in await self.store.accounts.list())
        return await asyncio.to_thread(self.prolific_files.read, account, owner=owner)

    @cached_property
    def recent_passwords(self) -> RecentPasswords:
        """Passwords that were right within the last minutes."""
        return RecentPasswords()

    @cached_property
    def checks(self) -> "dict[bytes, asyncio.Future[Account]]":
        """Passwords that are being checked at this moment: the same one is hashed once, however often it is sent."""
        return {}

    @cached_property
    def metrics(self) -> Metrics:
        """What this process counts about itself."""
        return Metrics()

    @cached_property
    def disk(self) -> DataDisk:
        """The disk of the data directory."""
        return DataDisk(self.settings.data, self.settings.disk_warning_mb)

    @property
    def store_problem(self) -> str:
        """Why the store does not work, as far as this process knows from its disk and its supervisor."""
        cause = self.causes.get("redis", "")
        if not cause or self.disk.full:
            return self.disk.problem
        return f"The store has stopped: {cause}. Answers are recorded again when it runs; the server's log has its last words."

    @property
    def warning(self) -> str:
        """What the people of this server should know about its disk and its copies; nothing where all is well."""
        return " ".join(filter(None, (self.store_problem, self.store.connection.problem, *self.notices.values())))

    @cached_property
    def notices(self) -> dict[str, str]:
        """Sentences about work in the background that has failed, by what it is."""
        return {}

    @cached_property
    def histories(self) -> Histories:
        """The histories of samplers, prepared for figures."""
        return Histories(self.store)

    @cached_property
    def undecided(self) -> dict[str, CountedUndecided]:
        """Of how many participants the exclusion is proposed and nobody has decided, where it was counted here."""
        return {}

    def address(self, request: Request) -> str:
        """Return the address under which this server is reached, without a slash at the end."""
        return self.settings.public_url or str(request.base_url).rstrip("/")

    def is_https(self, request: Request) -> bool:
        """Return whether browsers reach this server over HTTPS."""
        return self.address(request).startswith("https://")

    def link_address(self, request: Request) -> str:
        """Return what links that carry a secret begin with; "" where only the browser knows, which then completes them.

        Who sends a request chooses its Host header, so a link follows it on this machine only.
        """
        if self.settings.public_url or request.url.hostname in {"localhost", "127.0.0.1", "::1"}:
            return self.address(request)
        return ""


@asynccontextmanager
async def open_context(settings: Settings) -> AsyncGenerator[Context]:
    """Yield a context for work outside of a web process, on a store that is closed at the end."""
    store = Store.open(settings.redis_url)
    try:
        yield Context(settings, store)
    finally:
        await store.close()


async def _context(request: Request) -> Context:
    # Asynchronous, although it waits for nothing: FastAPI would run a plain function in a thread, at every request.
    return cast("Context", request.app.state.context)


WithContext = Annotated[Context, Depends(_context)]
