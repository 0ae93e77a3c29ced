"""Experiments in the store: made once, revised by adding, never rewritten."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from frontend.errors import ConflictError, NotFoundError
from frontend.store.connection import Connection
from salmon.wire import EXPERIMENTS, REQUESTS, Keys, decode_json, encode_json

State = Literal["draft", "open", "paused", "closed"]
STATES: tuple[State, ...] = get_args(State)

_ID_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Revision:
    """One version of an experiment's description: the file as written, the same with every default, the targets."""

    source: str
    spec: str
    manifest: str | None
    created_ms: int


@dataclass(frozen=True)
class ExperimentState:
    """What may change while an experiment lives."""

    experiment: str
    slug: str
    state: State
    revision: int
    owner: str
    created_ms: int
    opened_ms: int
    counters: dict[str, int]


class Experiments:
    """Verbs about experiments."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, slug: str, revision: Revision, *, owner: str, state: State, now_ms: int) -> ExperimentState:
        """Make an experiment under a free name; the name is taken first and alone, so two makers never share it.

        A crash in between leaves a name without an experiment, which `list` passes over and the next `create` reuses.
        """
        experiment = "".join(secrets.choice(_ID_LETTERS) for _ in range(10))
        taken = not await self._connection.do(lambda client: client.hsetnx(EXPERIMENTS, slug, experiment))
        if taken:
            experiment = str(await self.find(slug))
            if await self._connection.do(lambda client: client.exists(Keys(experiment).state)):
                raise ConflictError(f"There is an experiment called {slug!r} already.", hint="Choose another name.")
        keys = Keys(experiment)
        values: dict[str, str | int] = {
            "slug": slug,
            "state": state,
            "revision": 1,
            "owner": owner,
            "created_ms": now_ms,
            "opened_ms": now_ms if state == "open" else 0,
        }
        await self._connection.together(
            lambda pipeline: (
                pipeline.hsetnx(keys.spec, "1", encode_json(vars(revision))),
                pipeline.hset(keys.state, mapping=cast("Any", values)),
            )
        )
        await self.announce(experiment)
        return await self.read(experiment)

    async def announce(self, experiment: str) -> None:
        """Tell the backend that an experiment is new or has changed."""
        entry = {"kind": "experiment", "experiment": experiment}
        await self._connection.do(
            lambda client: client.xadd(REQUESTS, cast("Any", entry), maxlen=10_000, approximate=True)
        )

    async def find(self, slug: str) -> str | None:
        """The id of the experiment of this name."""
        return await self._connection.do(lambda client: client.hget(EXPERIMENTS, slug))

    async def list(self) -> tuple[ExperimentState, ...]:
        """All experiments, the newest first."""
        names: dict[str, str] = await self._connection.do(lambda client: client.hgetall(EXPERIMENTS))
        hashes: list[dict[str, str]] = await self._connection.together(
            lambda pipeline: [pipeline.hgetall(Keys(experiment).state) for experiment in names.values()]
        )
        found = [_state(e, h) for e, h in zip(names.values(), hashes, strict=True) if h]
        return tuple(sorted(found, key=lambda item: -item.created_ms))

    async def read(self, experiment: str) -> ExperimentState:
        """The state of an experiment."""
        values = await self._connection.do(lambda client: client.hgetall(Keys(experiment).state))
        if not values:
            raise NotFoundError(f"There is no experiment {experiment!r}.", hint="It may have been deleted.")
        return _state(experiment, values)

    async def read_revision(self, experiment: str, revision: int) -> Revision:
        """One version of its description."""
        value = await self._connection.do(lambda client: client.hget(Keys(experiment).spec, str(revision)))
        if value is None:
            raise NotFoundError(f"Experiment {experiment!r} has no revision {revision}.")
        return Revision(**decode_json(value))

    async def set_state(self, experiment: str, state: State, *, now_ms: int) -> None:
        """Open, pause or close; the first opening is remembered as the start of the run."""
        opened = await self._connection.do(lambda client: client.hget(Keys(experiment).state, "opened_ms"))
        values: dict[str, str | int] = {"state": state}
        if state == "open" and opened in {None, "0"}:
            values["opened_ms"] = now_ms
        await self._connection.do(lambda client: client.hset(Keys(experiment).state, mapping=cast("Any", values)))
        await self.announce(experiment)


def _state(experiment: str, values: dict[str, str]) -> ExperimentState:
    own = {"slug", "state", "revision", "owner", "created_ms", "opened_ms"}
    return ExperimentState(
        experiment=experiment,
        slug=values["slug"],
        state=cast("State", values["state"]),
        revision=int(values["revision"]),
        owner=values["owner"],
        created_ms=int(values["created_ms"]),
        opened_ms=int(values["opened_ms"]),
        counters={name: int(value) for name, value in values.items() if name not in own},
    )
