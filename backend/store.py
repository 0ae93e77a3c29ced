"""The learning process's half of Redis, as verbs.

It reads answers and specs and can write neither: the server's access list says so. When Redis is away, every verb raises
StoreError and the service waits and tries again; nothing is lost, because what was not published is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from salmon.errors import StoreError
from salmon.wire import BACKEND, EXPERIMENTS, REQUESTS, Heartbeat, Keys


@dataclass(frozen=True)
class Followed:
    """An experiment as the backend sees it."""

    experiment: str
    slug: str
    state: str
    revision: int


class Store:
    """Verbs on one connection; used by one thread."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(url, decode_responses=True, socket_connect_timeout=5, socket_timeout=30)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def beat(self, heartbeat: Heartbeat, *, lives_seconds: int) -> None:
        """Say that this backend lives; the word expires by itself."""
        self._do(lambda client: client.set(BACKEND, heartbeat.encode(), ex=lives_seconds))

    def list_experiments(self) -> tuple[Followed, ...]:
        """Every experiment there is."""
        names: dict[str, str] = self._do(lambda client: client.hgetall(EXPERIMENTS))
        found: list[Followed] = []
        for slug, experiment in sorted(names.items()):
            values = self._do(
                lambda client, experiment=experiment: client.hmget(Keys(experiment).state, ["state", "revision"])
            )
            if values[0]:
                found.append(Followed(experiment, slug, values[0], int(values[1])))
        return tuple(found)

    def take_over(self, experiment: str) -> int:
        """Become the backend of an experiment: the number that lets this one publish and no earlier one."""
        return int(self._do(lambda client: client.incrby(Keys(experiment).fence, 1)))

    def last_request(self) -> str:
        """Where the stream of requests ends now."""
        entries = self._do(lambda client: client.xrevrange(REQUESTS, count=1))
        return str(entries[0][0]) if entries else "0"

    def wait(self, cursors: Mapping[str, str], *, at_most_ms: int) -> dict[str, list[tuple[str, dict[str, str]]]]:
        """Entries after the cursors of several streams; sleeps in Redis until there are some, or time is up."""
        found = self._do(lambda client: client.xread(cast("Any", dict(cursors)), block=at_most_ms, count=1000))
        return dict(found or ())

    def _do(self, command: Callable[[Any], Any]) -> Any:
        try:
            return command(self._client)
        except RedisError as error:
            raise StoreError(f"The store does not answer: {error}.", hint="Trying again.") from error
