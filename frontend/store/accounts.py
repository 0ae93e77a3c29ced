"""Accounts of experimenters in the store, and the single-use links that make them or reset their passwords."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from frontend.errors import ConflictError, ForbiddenError
from frontend.store import lua
from frontend.store.connection import Verbs
from salmon.wire import (
    ACCOUNTS,
    API_TOKENS,
    INVITATIONS,
    LAST_USED,
    RECOVERY_CODES,
    SESSIONS,
    USED_CODES,
    decode_json,
    encode_json,
)
from salmon.wire.keys import draft_keys, draw_account_id

Role = Literal["owner", "experimenter", "viewer"]
Purpose = Literal["first", "account", "reset"]

#: The owner of what was launched on the server itself: all of its experimenters share it.
LOCAL = "local"
#: A field of the hash that no account can have as its name: whoever sets it first is the owner.
_OWNER = "@owner"
#: Why an invitation cannot be taken up.
_REFUSALS = {
    "unknown": "This link is invalid, or it was revoked.",
    "used": "This link has been used already.",
    "old": "This link has expired.",
    "taken": "This link has been used already, or an account of this name was created in another way.",
    "gone": "The account of this link does not exist any more.",
}


@dataclass(frozen=True)
class Account:
    """The login of an experimenter.

    Experiments belong to the `id`, which is never given twice; a name can be taken again when its account was removed.
    `second_factor` is the secret of one-time codes; empty where none are asked for.
    """

    name: str
    password_hash: str
    role: Role
    created_ms: int
    id: str
    second_factor: str = ""

    def encode(self) -> str:
        """Return the JSON that is stored."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(text: str) -> "Account":
        """Return the account of that JSON.

        Accounts of earlier versions have no id, and their experiments belong to the name: that is their id. Since no
        new id is anybody's name, who takes such a name again later gets nothing of it.
        """
        stored: dict[str, Any] = decode_json(text)
        values: dict[str, Any] = {"id": _id_of_old_account(stored["name"]), **stored}
        return Account(**values)


def _id_of_old_account(name: str) -> str:
    """Return the id of an account of an earlier version; `local` was allowed as a name then."""
    return f"@{LOCAL}" if name == LOCAL else name


@dataclass(frozen=True)
class Invitation:
    """A link that works once: for the owner's account, for an account of a name and role, or for a new password.

    `id` names it without being of use to anybody; `account` is the id of the account whose password is reset.
    """

    id: str
    purpose: Purpose
    name: str
    role: Role
    by: str
    created_ms: int
    ends_ms: int
    used_ms: int = 0
    account: str = ""


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
        return Account.decode(value) if value else None

    async def list(self) -> tuple[Account, ...]:
        """Return all accounts, by name."""
        values: dict[str, str] = await self._connection.do(lambda client: client.hgetall(ACCOUNTS))
        found = [Account.decode(value) for name, value in values.items() if not name.startswith("@")]
        return tuple(sorted(found, key=lambda account: account.name))

    async def names(self) -> dict[str, str]:
        """Return the name of each account by its id."""
        return {account.id: account.name for account in await self.list()}

    async def name_of(self, identifier: str) -> str:
        """Return the name of the account with this id; what is no account's stands for itself, such as `local`."""
        return (await self.names()).get(identifier, identifier)

    async def write(self, account: Account) -> None:
        """Store an account that was changed."""
        await self._connection.do(lambda client: client.hset(ACCOUNTS, account.name, account.encode()))

    async def create(self, account: Account) -> None:
        """Make an account under a free name; of several owners made at once, one succeeds.

        The owner's name is claimed first. A crash before the account is written leaves a claim that nobody holds: the
        next owner takes it over.
        """
        if account.role == "owner":
            await self._claim_ownership(account.name)
        if not await self._connection.do(lambda client: client.hsetnx(ACCOUNTS, account.name, account.encode())):
            raise ConflictError(f"There is an account called {account.name!r} already.", hint="Choose another name.")

    async def remove(self, account: Account) -> None:
        """Remove an account with its sessions, API tokens, invitations and second factor, all at once."""
        ended = await self._fields_of(SESSIONS, "account", account.id)
        tokens = await self._fields_of(API_TOKENS, "account", account.id)
        links = await self._fields_of(INVITATIONS, "name", account.name)
        codes = await self._recovery_fields(account.id)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hdel(ACCOUNTS, account.name),
                pipeline.hdel(USED_CODES, account.id),
                *(pipeline.hdel(SESSIONS, *ended) for _ in ended[:1]),
                *(pipeline.hdel(API_TOKENS, *tokens) for _ in tokens[:1]),
                *(pipeline.hdel(LAST_USED, *ended, *tokens) for _ in (ended + tokens)[:1]),
                *(pipeline.hdel(INVITATIONS, *links) for _ in links[:1]),
                *(pipeline.hdel(RECOVERY_CODES, *codes) for _ in codes[:1]),
                pipeline.delete(*draft_keys(account.id)),
            )
        )

    async def invite(self, digest: str, invitation: Invitation) -> None:
        """Keep an invitation under the digest of its secret. Those that nobody can use any more are forgotten."""
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(INVITATIONS))
        old = [field for field, value in kept.items() if decode_json(value)["ends_ms"] < invitation.created_ms]
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(INVITATIONS, digest, encode_json(asdict(invitation))),
                *(pipeline.hdel(INVITATIONS, *old) for _ in old[:1]),
            )
        )

    async def read_invitation(self, digest: str) -> Invitation | None:
        """Return the invitation whose secret has this digest, used or not."""
        value = await self._connection.do(lambda client: client.hget(INVITATIONS, digest))
        return Invitation(**decode_json(value)) if value else None

    async def list_invitations(self) -> tuple[Invitation, ...]:
        """Return the invitations that are kept, the newest first."""
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(INVITATIONS))
        found = [Invitation(**decode_json(value)) for value in kept.values()]
        return tuple(sorted(found, key=lambda invitation: -invitation.created_ms))

    async def revoke_invitation(self, identifier: str) -> Invitation | None:
        """Make an invitation void and return it; None where there is none of this id."""
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(INVITATIONS))
        for digest, value in kept.items():
            if decode_json(value)["id"] == identifier:
                await self._connection.do(lambda client, digest=digest: client.hdel(INVITATIONS, digest))
                return Invitation(**decode_json(value))
        return None

    async def take_up(self, digest: str, account: Account, *, now_ms: int) -> None:
        """Write the account that an invitation is for, and mark the invitation as used;
        ForbiddenError where it is void.
        """
        outcome = await self._connection.run(
            lua.TAKE_UP_INVITATION,
            (ACCOUNTS, INVITATIONS),
            (digest, now_ms, account.name, account.encode(), account.id, _OWNER),
        )
        if outcome != "done":
            raise ForbiddenError(
                _REFUSALS[outcome], hint="Ask the owner of this server for a new link, or log in with your account."
            )

    async def set_second_factor(self, account: Account, secret: str, digests: tuple[str, ...]) -> None:
        """Store the secret of an account's one-time codes and the digests of its recovery
        codes, or "" and none, at once.
        """
        old = await self._recovery_fields(account.id)
        changed = replace(account, second_factor=secret)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(ACCOUNTS, account.name, changed.encode()),
                *(pipeline.hdel(RECOVERY_CODES, *old) for _ in old[:1]),
                *(pipeline.hdel(USED_CODES, account.id) for _ in [secret] if not secret),
                *(pipeline.hset(RECOVERY_CODES, f"{account.id}:{digest}", "1") for digest in digests),
            )
        )

    async def count_recovery_codes(self, account: str) -> int:
        """Return how many recovery codes of an account are left."""
        return len(await self._recovery_fields(account))

    async def use_recovery_code(self, account: str, digest: str) -> bool:
        """Use a recovery code up and return whether there was one: each works once."""
        return bool(await self._connection.do(lambda client: client.hdel(RECOVERY_CODES, f"{account}:{digest}")))

    async def use_code(self, account: str, moment: int) -> bool:
        """Use the one-time code of a moment and return whether neither it nor a later one was used before."""
        return bool(await self._connection.run(lua.USE_CODE, (USED_CODES,), (account, moment)))

    async def _recovery_fields(self, account: str) -> tuple[str, ...]:
        fields: dict[str, str] = await self._connection.do(lambda client: client.hgetall(RECOVERY_CODES))
        return tuple(field for field in fields if field.startswith(f"{account}:"))

    async def _fields_of(self, key: str, name: str, value: str) -> tuple[str, ...]:
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(key))
        return tuple(field for field, text in kept.items() if decode_json(text)[name] == value)

    async def _claim_ownership(self, name: str) -> None:
        if await self._connection.do(lambda client: client.hsetnx(ACCOUNTS, _OWNER, name)):
            return
        holder = await self._connection.do(lambda client: client.hget(ACCOUNTS, _OWNER))
        if await self.read(holder) is not None:
            raise ConflictError("The owner's account exists already.", hint="Log in with it instead.")
        await self._connection.do(lambda client: client.hset(ACCOUNTS, _OWNER, name))


def new_account(name: str, password_hash: str, role: Role, *, now_ms: int) -> Account:
    """Return an account with an id of its own."""
    return Account(name, password_hash, role, now_ms, draw_account_id())


def with_password(account: Account, password_hash: str) -> Account:
    """Return the account with another password."""
    return replace(account, password_hash=password_hash)
