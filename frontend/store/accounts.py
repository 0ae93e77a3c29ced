"""Accounts of experimenters in the store."""

from dataclasses import asdict, dataclass, replace
from typing import Literal

from frontend.errors import ConflictError
from frontend.store.connection import Verbs
from salmon.wire import ACCOUNTS, decode_json, encode_json

Role = Literal["owner", "experimenter"]

#: A field of the hash that no account can have as its name: whoever sets it first is the owner.
_OWNER = "@owner"


@dataclass(frozen=True)
class Account:
    """The login of an experimenter."""

    name: str
    password_hash: str
    role: Role
    created_ms: int


class Accounts(Verbs):
    """Verbs about accounts."""

    async def exist(self) -> bool:
        """Return whether anybody has an account."""
        names, claimed = await self._connection.together(
            lambda pipeline: (pipeline.hlen(ACCOUNTS), pipeline.hexists(ACCOUNTS, _OWNER))
        )
        return int(names) > int(claimed)

    async def read(self, name: str) -> Account | None:
        """Return the account of this name."""
        if name.startswith("@"):
            return None
        value = await self._connection.do(lambda client: client.hget(ACCOUNTS, name))
        return Account(**decode_json(value)) if value else None

    async def list(self) -> tuple[Account, ...]:
        """Return all accounts, by name."""
        values: dict[str, str] = await self._connection.do(lambda client: client.hgetall(ACCOUNTS))
        found = [Account(**decode_json(value)) for name, value in values.items() if not name.startswith("@")]
        return tuple(sorted(found, key=lambda account: account.name))

    async def change_password(self, account: Account, password_hash: str) -> Account:
        """Store another password and return the account that has it."""
        changed = replace(account, password_hash=password_hash)
        await self._connection.do(lambda client: client.hset(ACCOUNTS, account.name, encode_json(asdict(changed))))
        return changed

    async def remove(self, name: str) -> None:
        """Remove an account; what it owned stays, and the server's owner sees it."""
        await self._connection.do(lambda client: client.hdel(ACCOUNTS, name))

    async def create(self, account: Account) -> None:
        """Make an account under a free name; of several owners made at once, one succeeds.

        The owner's name is claimed first. A crash before the account is written leaves a claim that nobody holds: the
        next owner takes it over.
        """
        if account.role == "owner":
            await self._claim_ownership(account.name)
        if not await self._connection.do(
            lambda client: client.hsetnx(ACCOUNTS, account.name, encode_json(asdict(account)))
        ):
            raise ConflictError(f"There is an account called {account.name!r} already.", hint="Choose another name.")

    async def _claim_ownership(self, name: str) -> None:
        if await self._connection.do(lambda client: client.hsetnx(ACCOUNTS, _OWNER, name)):
            return
        holder = await self._connection.do(lambda client: client.hget(ACCOUNTS, _OWNER))
        if await self.read(holder) is not None:
            raise ConflictError("The owner's account exists already.", hint="Log in with it instead.")
        await self._connection.do(lambda client: client.hset(ACCOUNTS, _OWNER, name))
