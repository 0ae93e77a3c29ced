"""Files that experimenters are writing: every version for a while, what is known of their ZIP, and who has them open.

A draft belongs to the account that writes a new experiment, or to the experiment whose file is changed; then all who
may change it share the draft. It goes when it is saved as an experiment or a revision, and after a quarter of a year.
"""

from dataclasses import asdict, dataclass
from typing import Any

from frontend.store import lua
from frontend.store.connection import Verbs
from salmon.wire import decode_json, encode_json
from salmon.wire.keys import draft_keys

KEPT_SECONDS = 90 * 86_400
#: What one window saves within this time is one version of the history.
ONE_VERSION_MS = 120_000
MOST_VERSIONS = 40
#: All versions of a draft together have about this size at most.
_MOST_BYTES = 8_000_000
#: Somebody who was not heard of for this long has closed the page.
GONE_MS = 25_000


@dataclass(frozen=True)
class DraftVersion:
    """One version of a draft: who saved it, when, and its text."""

    number: int
    at_ms: int
    by: str
    text: str


@dataclass(frozen=True)
class DraftZip:
    """The ZIP of a draft: its name and size, whether it was read as trusted, and its
    manifest (JSON) or its problems.
    """

    name: str
    size_bytes: int
    trusted: bool
    manifest: str | None
    problems: tuple[dict[str, Any], ...] = ()


class Drafts(Verbs):
    """Verbs about drafts. `owner` is the id of an account or of an experiment."""

    async def read(self, owner: str) -> tuple[DraftVersion, ...]:
        """Return the versions that are kept, the newest first."""
        versions, _, _ = draft_keys(owner)
        kept: dict[str, str] = await self._connection.do(lambda client: client.hgetall(versions))
        found = [DraftVersion(int(name[1:]), **decode_json(text)) for name, text in kept.items() if name[1:].isdigit()]
        return tuple(sorted(found, key=lambda version: -version.number))

    async def newest(self, owner: str) -> int:
        """Return the number of the newest version; 0 where there is no draft."""
        versions, _, _ = draft_keys(owner)
        return int(await self._connection.do(lambda client: client.hget(versions, "head")) or 0)

    async def save(self, owner: str, text: str, *, known: int, by: str, window: str, now_ms: int) -> int | None:
        """Save the next version and return its number; None where `known` is not the newest. Atomic."""
        versions, _, _ = draft_keys(owner)
        entry = encode_json({"at_ms": now_ms, "by": by, "text": text})
        most = max(3, min(MOST_VERSIONS, _MOST_BYTES // max(len(entry), 1)))
        done, number = await self._connection.run(
            lua.SAVE_DRAFT, (versions,), (known, entry, window, now_ms, ONE_VERSION_MS, most, KEPT_SECONDS)
        )
        return int(number) if done else None

    async def remove(self, owner: str) -> None:
        """Remove a draft with its history and what is known of its ZIP; its files stay where media are kept."""
        versions, targets, _ = draft_keys(owner)
        await self._connection.do(lambda client: client.delete(versions, targets))

    async def read_zip(self, owner: str) -> DraftZip | None:
        """Return what is known of the ZIP; None where there is none."""
        _, targets, _ = draft_keys(owner)
        kept = await self._connection.do(lambda client: client.get(targets))
        if kept is None:
            return None
        values: dict[str, Any] = decode_json(kept)
        return DraftZip(problems=tuple(values.pop("problems")), **values)

    async def keep_zip(self, owner: str, read: DraftZip) -> None:
        """Keep what was read of a ZIP, in place of an earlier one."""
        _, targets, _ = draft_keys(owner)
        await self._connection.do(lambda client: client.set(targets, encode_json(asdict(read)), ex=KEPT_SECONDS))

    async def remove_zip(self, owner: str) -> None:
        """Forget the ZIP of a draft."""
        _, targets, _ = draft_keys(owner)
        await self._connection.do(lambda client: client.delete(targets))

    async def note_open(self, owner: str, window: str, name: str, *, now_ms: int) -> tuple[str, ...]:
        """Note that somebody has the draft open, and return the names of whoever else has it open."""
        _, _, windows = draft_keys(owner)
        _, _, kept = await self._connection.together(
            lambda pipeline: (
                pipeline.hset(windows, window, encode_json({"name": name, "at_ms": now_ms})),
                pipeline.expire(windows, KEPT_SECONDS),
                pipeline.hgetall(windows),
            )
        )
        seen = {other: decode_json(text) for other, text in kept.items()}
        if gone := [other for other, entry in seen.items() if entry["at_ms"] < now_ms - GONE_MS]:
            await self._connection.do(lambda client: client.hdel(windows, *gone))
        return tuple(sorted(entry["name"] for other, entry in seen.items() if other != window and other not in gone))

    async def note_closed(self, owner: str, window: str) -> None:
        """Note that somebody has closed the page."""
        _, _, windows = draft_keys(owner)
        await self._connection.do(lambda client: client.hdel(windows, window))
