"""Accounts of experimenters in the store, and the single-use links that make them or reset their passwords."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from frontend.errors import ConflictError, ForbiddenError, NotFoundError
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
    `second_factor` is the secret of one-time codes; empty if none are asked for. `version` grows with each change, so a
    change can be refused if it was decided on an account that is not like that any more.
    """

    name: str
    password_hash: str
    role: Role
    created_ms: int
    id: str
    second_factor: str = ""
    version: int = 0

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

    async def set_password(self, account: Account, password_hash: str) -> Account:
        """Change the password of an account as it was read, end its sessions and return it, all at once;
        ConflictError if it was changed meanwhile.
        """
        return await self._set(account, {"password_hash": password_hash}, version=account.version)

    async def set_role(self, account: Account, role: Role) -> Account:
        """Change the role of an account, whatever else has changed of it, end its sessions and return it, all at once;
        ConflictError if the server would have no owner.
        """
        return await self._set(account, {"role": role})

    async def set_second_factor(self, account: Account, secret: str, digests: tuple[str, ...]) -> None:
        """Store the secret of an account's one-time codes and the digests of its recovery codes, or "" and none, at
        once; ConflictError if the account was changed since it was read.
        """
        await self._set(account, {"second_factor": secret}, digests, version=account.version)

    async def remove_second_factor(self, account: Account) -> None:
        """Remove the second factor of an account with its recovery codes, whatever else has changed of it, at once."""
        await self._set(account, {"second_factor": ""})

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
        """Remove an account with its sessions, API tokens, invitations and second factor, all at once; ConflictError if
        the server would have no owner.
        """
        keys = (ACCOUNTS, SESSIONS, LAST_USED, API_TOKENS, INVITATIONS, RECOVERY_CODES, USED_CODES)
        outcome = await self._connection.run(
            lua.REMOVE_ACCOUNT, (*keys, *draft_keys(account.id)), (account.name, account.id)
        )
        _check_outcome(outcome, account)

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
        """Make the account that an invitation is for, or give the account its password and end its sessions, and mark
        the invitation as used, all at once; ForbiddenError if it is void.
        """
        outcome = await self._connection.run(
            lua.TAKE_UP_INVITATION,
            (ACCOUNTS, SESSIONS, LAST_USED, INVITATIONS),
            (digest, now_ms, account.name, account.encode(), _OWNER),
        )
        if outcome != "done":
            raise ForbiddenError(
                _REFUSALS[outcome], hint="Ask the owner of this server for a new link, or log in with your account."
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

    async def _set(
        self, account: Account, fields: dict[str, str], digests: tuple[str, ...] = (), *, version: int | None = None
    ) -> Account:
        """Change fields of an account, of a version or of any, and return it as it is then."""
        outcome, changed = await self._connection.run(
            lua.CHANGE_ACCOUNT,
            (ACCOUNTS, SESSIONS, LAST_USED, RECOVERY_CODES, USED_CODES),
            (account.name, account.id, "" if version is None else version, encode_json(fields), *digests),
        )
        _check_outcome(outcome, account)
        return Account.decode(changed)

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


def _check_outcome(outcome: str, account: Account) -> None:
    """Raise the error of a change that was not made."""
    if outcome == "gone":
        raise NotFoundError(f"There is no account called {account.name!r} any more.", hint="Nothing was changed.")
    if outcome == "only_owner":
        raise ConflictError("This is the only owner.", hint="Make another account an owner first.")
    if outcome == "changed":
        raise ConflictError(
            "This account was changed at the same moment.",
            hint="Nothing was changed by this; look at it and try again.",
        )
