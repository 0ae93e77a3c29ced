"""Sessions of the console, API tokens, guesses of passwords and the log of accesses, in the store.

Of a cookie or an API token only the digest is stored: who reads the store cannot log in with what is there.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from frontend.store import lua
from frontend.store.accounts import Account
from frontend.store.connection import Verbs
from salmon.wire import (
    ACCESS_LOG,
    ACCOUNTS,
    API_TOKENS,
    FAILED_LOGINS,
    GUESSES,
    LAST_USED,
    SESSIONS,
    decode_json,
    encode_json,
)
from salmon.wire.keys import place_of

Scope = Literal["read", "write"]

#: Guesses for one name from one place that are checked without a wait.
FREE_GUESSES = 10
#: The same while a name is guessed from many places.
FREE_GUESSES_IN_ATTACK = 1
#: Wrong guesses for one name, from all places together, that make an attack.
ATTACK = 100
#: Guesses from one place for all names together that are checked without a wait.
FREE_GUESSES_OF_PLACE = 50
#: After the free guesses, waits grow from two seconds, doubling, to this.
LONGEST_WAIT_MS = 15 * 60_000
#: Guesses are forgotten when there was none for so long.
FORGOTTEN_AFTER_S = 3600
#: Entries of the log that are kept. Failed logins have a place of their own, so that they cannot push the others out.
LOG_KEPT = 10_000
FAILURES_KEPT = 2_000


@dataclass(frozen=True)
class ConsoleSession:
    """A login of a browser. `mark` changes with the account's password and role, which end the session.

    `name` is the name and `account` the id of the account; the script that finds the session reads `name`, `created_ms`
    and `ends_ms`.
    """

    account: str
    name: str
    mark: str
    created_ms: int
    ends_ms: int
    address: str
    browser: str


@dataclass(frozen=True)
class ApiToken:
    """What a script sends in the place of a password. `ends_ms` is 0 where it does not end.

    `experiment` is the id of the only experiment that it reaches; empty where it reaches all of the account's.
    """

    account: str
    name: str
    label: str
    scope: Scope
    experiment: str
    created_ms: int
    ends_ms: int


@dataclass(frozen=True)
class Access:
    """An entry of the log: who did what, from which address, and when."""

    at_ms: int
    account: str
    address: str
    what: str
    detail: str


class Sessions(Verbs):
    """Verbs about sessions, API tokens and the log. `digest` is always that of a cookie's or token's secret."""

    async def begin(self, digest: str, session: ConsoleSession) -> None:
        """Keep a new session. Those whose time is over are forgotten."""
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(SESSIONS))
        await self.end(*(old for old, value in kept.items() if decode_json(value)["ends_ms"] < session.created_ms))
        await self._connection.do(lambda client: client.hset(SESSIONS, digest, encode_json(asdict(session))))

    async def find(self, digest: str, *, now_ms: int, idle_ms: int) -> tuple[ConsoleSession, Account] | None:
        """Return a session that goes on, with its account as it is now, in one round trip; note that it was used."""
        kept = await self._find(SESSIONS, digest, now_ms, idle_ms)
        return (ConsoleSession(**kept[0]), kept[1]) if kept else None

    async def list_sessions(self, account: str) -> list[tuple[str, ConsoleSession, int]]:
        """Return (digest, session, last used) of an account's sessions, the last used first."""
        return [(digest, ConsoleSession(**kept), used) for digest, kept, used in await self._list(SESSIONS, account)]

    async def end(self, *digests: str) -> None:
        """End sessions."""
        await self._end(SESSIONS, digests)

    async def end_all(self, account: str, *, besides: str = "") -> int:
        """End all sessions of an account, perhaps besides one, and return how many there were."""
        digests = [digest for digest, _, _ in await self.list_sessions(account) if digest != besides]
        await self.end(*digests)
        return len(digests)

    async def keep_token(self, digest: str, token: ApiToken) -> None:
        """Keep a new API token."""
        await self._connection.do(lambda client: client.hset(API_TOKENS, digest, encode_json(asdict(token))))

    async def find_token(self, digest: str, *, now_ms: int) -> tuple[ApiToken, Account] | None:
        """Return an API token that has not ended, with its account, in one round trip; note that it was used."""
        kept = await self._find(API_TOKENS, digest, now_ms, 0)
        return (ApiToken(**kept[0]), kept[1]) if kept else None

    async def list_tokens(self, account: str) -> list[tuple[str, ApiToken, int]]:
        """Return (digest, API token, last used or 0) of an account's API tokens."""
        return [(digest, ApiToken(**kept), used) for digest, kept, used in await self._list(API_TOKENS, account)]

    async def end_token(self, digest: str) -> None:
        """Revoke an API token."""
        await self._end(API_TOKENS, (digest,))

    async def note(self, access: Access, *, failed: bool = False) -> None:
        """Append an entry to the log; the oldest entries are dropped."""
        key, most = (FAILED_LOGINS, FAILURES_KEPT) if failed else (ACCESS_LOG, LOG_KEPT)
        entry = {name: str(value) for name, value in asdict(access).items()}
        await self._connection.do(lambda client: client.xadd(key, cast("Any", entry), maxlen=most, approximate=True))

    async def read_log(self, count: int) -> list[Access]:
        """Return the newest entries of the log, failed logins among them, the newest first."""
        kept: list[list[tuple[str, dict[str, str]]]] = await self._connection.together(
            lambda pipeline: [pipeline.xrevrange(key, count=count) for key in (ACCESS_LOG, FAILED_LOGINS)]
        )
        entries = sorted((entry for stream in kept for entry in stream), key=lambda e: place_of(e[0]), reverse=True)
        return [Access(int(e["at_ms"]), e["account"], e["address"], e["what"], e["detail"]) for _, e in entries[:count]]

    async def _find(self, key: str, digest: str, now_ms: int, idle_ms: int) -> tuple[dict[str, Any], Account] | None:
        found = await self._connection.run(lua.FIND_SESSION, (key, LAST_USED, ACCOUNTS), (digest, now_ms, idle_ms))
        if not found or not found[1]:
            return None
        kept, account = decode_json(found[0]), Account.decode(found[1])
        # Somebody may have taken the name of an account that was removed.
        return (kept, account) if kept["account"] == account.id else None

    async def _list(self, key: str, account: str) -> list[tuple[str, dict[str, Any], int]]:
        kept, used = await self._connection.together(
            lambda pipeline: (pipeline.hgetall(key), pipeline.hgetall(LAST_USED))
        )
        values = {digest: decode_json(text) for digest, text in cast("dict[str, str]", kept).items()}
        rows = [
            (digest, value, int(used.get(digest, 0))) for digest, value in values.items() if value["account"] == account
        ]
        return sorted(rows, key=lambda row: (-row[2], -row[1]["created_ms"]))

    async def _end(self, key: str, digests: tuple[str, ...]) -> None:
        if digests:
            await self._connection.together(
                lambda pipeline: (pipeline.hdel(key, *digests), pipeline.hdel(LAST_USED, *digests))
            )


@dataclass(frozen=True)
class Guesser:
    """Where a guess comes from: an address, or a browser that has logged in as this name before (`device`)."""

    address: str
    device: str = ""


class Guesses(Verbs):
    """Guesses of passwords and codes, counted for all web processes together."""

    async def reserve(
        self, kind: Literal["password", "code"], name: str, guesser: Guesser, *, now_ms: int, only_look: bool = False
    ) -> tuple[Account | None, int]:
        """Reserve a place for a guess; return the account of this name, and the time (ms) to wait where there is none.

        With `only_look` nothing is reserved.
        """
        account, wait = await self._connection.run(
            lua.RESERVE_GUESS,
            (ACCOUNTS, *self._counters(kind, name, guesser)),
            (
                *(name, now_ms, int(not only_look), FREE_GUESSES, FREE_GUESSES_IN_ATTACK, ATTACK),
                *(FREE_GUESSES_OF_PLACE, LONGEST_WAIT_MS, FORGOTTEN_AFTER_S),
            ),
        )
        known = Account.decode(account) if account and not name.startswith("@") else None
        return known, int(wait)

    async def release(self, kind: Literal["password", "code"], name: str, guesser: Guesser) -> None:
        """Give a place back, because the guess was right."""
        await self._connection.run(lua.RELEASE_GUESS, self._counters(kind, name, guesser), ())

    @staticmethod
    def _counters(kind: str, name: str, guesser: Guesser) -> tuple[str, ...]:
        """Return the keys of the counters of a guess; browsers that have logged in before have one of their own."""
        of_name = f"{GUESSES}:{kind}:{name}"
        if guesser.device:
            return of_name, f"{of_name}:device:{guesser.device}"
        return of_name, f"{of_name}:from:{guesser.address}", f"{GUESSES}:{kind}::from:{guesser.address}"
