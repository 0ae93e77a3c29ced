"""Jobs of the learning process: requested here, carried out there, and their results read here."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from frontend.errors import NotFoundError
from frontend.store.connection import Verbs
from frontend.store.lua import CANCEL_REQUEST
from salmon.wire import KEPT_SECONDS, REQUESTS, WAITS_SECONDS, JobStatus, Keys, Request, request
from salmon.wire.keys import draw_participant_id

#: The stream of requests is trimmed to about this length; a list looks through so many of its last entries.
_KEPT = 10_000
_LOOKED_AT = 2000


class JobRequests(Verbs):
    """Verbs about jobs that are requested of the learning process."""

    async def ask(self, kind: str, experiment: str, arguments: Mapping[str, Any], *, asked_by: str, now_ms: int) -> str:
        """Request a job, with arguments that were checked; return the id of the request.

        The request is written before it is announced: a crash in between leaves one that nobody carries out and nobody
        was told of, and it expires.
        """
        identifier = draw_participant_id()
        standing = JobStatus(kind, experiment, arguments, asked_ms=now_ms, asked_by=asked_by)
        key = request(identifier)
        await self._connection.together(
            lambda pipeline: (
                pipeline.hset(key, mapping=cast("Any", standing.encode())),
                pipeline.expire(key, WAITS_SECONDS),
            )
        )
        entry = Request(identifier, kind, experiment, arguments).encode()
        await self._connection.do(
            lambda client: client.xadd(REQUESTS, cast("Any", entry), maxlen=_KEPT, approximate=True)
        )
        return identifier

    async def read_request(self, experiment: str, identifier: str) -> JobStatus:
        """Return the status of a request about this experiment, with its result."""
        standing = JobStatus.decode(await self._connection.do(lambda client: client.hgetall(request(identifier))))
        if standing is None or standing.experiment != experiment:
            raise NotFoundError(
                f"There is no request {identifier!r} about this experiment.",
                hint="Results are kept for a day. Ask again.",
            )
        return standing

    async def list_requests(self, experiment: str, *, count: int) -> tuple[tuple[str, JobStatus], ...]:
        """Return (id, status without the result) of the last requests about an experiment, the newest first."""
        entries: list[tuple[str, dict[str, str]]] = await self._connection.do(
            lambda client: client.xrevrange(REQUESTS, count=_LOOKED_AT)
        )
        asked = [item for _, entry in entries if (item := Request.decode(entry)) and item.experiment == experiment]
        names = [name for name in JobStatus.__dataclass_fields__ if name != "result"]
        rows: list[list[str | None]] = await self._connection.together(
            lambda pipeline: [pipeline.hmget(request(item.request), names) for item in asked[:count]]
        )
        found: list[tuple[str, JobStatus]] = []
        for item, row in zip(asked, rows, strict=False):
            standing = JobStatus.decode({name: text for name, text in zip(names, row, strict=True) if text is not None})
            if standing is not None:
                found.append((item.request, standing))
        return tuple(found)

    async def cancel(self, experiment: str, identifier: str) -> JobStatus:
        """Ask a job to stop and return its status.

        Atomic: a waiting job is cancelled at once, a running one soon, and one that has ended stays as it is. A backend
        that begins it at this very moment sees the wish before it writes anything.
        """
        await self.read_request(experiment, identifier)  # NotFoundError where it is about another experiment
        await self._connection.run(CANCEL_REQUEST, (request(identifier),), (KEPT_SECONDS,))
        return await self.read_request(experiment, identifier)

    async def unknown_participants(self, experiment: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return which of these are no participants of the experiment."""
        known: list[int] = await self._connection.together(
            lambda pipeline: [pipeline.exists(Keys(experiment).participant(name)) for name in names]
        )
        return tuple(name for name, found in zip(names, known, strict=True) if not found)
