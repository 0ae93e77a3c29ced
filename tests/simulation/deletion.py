"""The end of every simulated world: the experiment is deleted while requests are under
way, and others come afterwards.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from frontend.store import Store
from salmon.wire.keys import NOBODY
from tests.simulation.processes import URL
from tests.simulation.virtual_loop import detach

if TYPE_CHECKING:
    from tests.simulation.world import World

Request = tuple[str, str, Any]
#: How the keys end that participants change, beside their own.
_OF_PARTICIPANTS = (b":answers", b":arrivals", b":events", b":counts", b":state", b":quality", b":proposed")
#: How those end that hold ids of participants.
_PERSONAL = (b":arrivals", b":events", b":quality", b":proposed")
#: Answers that are sent to the deleted experiment.
_LATE_ANSWERS = 6


async def delete(world: World) -> None:
    """Delete the experiment; check that nothing of participants is left, and that later requests change nothing."""
    sessions = [tab.session for person in world.people for tab in person.tabs if tab.session]
    session = world.generator.choice(sessions) if sessions else None
    requests = _requests(world, session)
    world.checks.deleting = True
    under_way = [detach(_send(world, request, session, 0.03)) for request in requests]
    store = Store.open(URL)
    await world.outside_process("console", store.experiments.delete(world.slug, world.experiment))
    await asyncio.wait(under_way)
    before = _own_data(world)
    left = [key.decode() for key in before if b":p:" in key or key.endswith(_PERSONAL)]
    world.checks.require("a deletion leaves nobody's data", not left, f"there is still {left}")
    later = [detach(_send(world, request, session, 0.01)) for request in requests]
    await asyncio.wait(later)
    for (method, path, _), done in zip(requests, later, strict=True):
        # The first Salmon's routes answer 500 where there is no experiment.
        right = {410} if path == "answers" else {500} if path.startswith("/") else {404, 410}
        refused = done.result() in right
        world.checks.require(
            "a deleted experiment takes nothing more", refused, f"{method} {path}: status {done.result()}"
        )
    after = _own_data(world)
    changed = [key.decode() for key in {**before, **after} if before.get(key) != after.get(key)]
    world.checks.require("a deleted experiment takes nothing more", not changed, f"{changed} changed")
    await store.close()


def _requests(world: World, session: str | None) -> list[Request]:
    served = list(world.checks.served.items())[-_LATE_ANSWERS:]
    answers = [{"token": token, "winner": query.left} for token, query in served if query.participant != NOBODY]
    return [
        *([("POST", "answers", answers)] if answers else []),
        ("GET", "query?number=1", None),
        ("POST", "events", [{"event": "late", "detail": "", "trial": 0, "client_ms": 0}]),
        ("POST", "finish", {"given": 0, "incomplete": False}),
        ("POST", "steps/debrief", {}),
        ("POST", "arrive", {"browser": "", "parameters": {"puid": "late"}, "session": session}),
        ("GET", "/query?puid=late", None),
    ]


async def _send(world: World, request: Request, session: str | None, longest: float) -> int:
    """Send a request at some moment and return the status."""
    method, path, body = request
    content = b"" if body is None else json.dumps(body).encode()
    await asyncio.sleep(world.generator.uniform(0.0, longest))
    status, _ = await world.arrive(method, path, content, session, 0.0)
    return status


def _own_data(world: World) -> dict[bytes, Any]:
    """Return a copy of what participants may change of the experiment."""
    return {
        key: value if isinstance(value, bytes) else value.copy()
        for key, value in world.server.model.data.items()
        if world.experiment.encode() in key and (key.endswith(_OF_PARTICIPANTS) or b":p:" in key)
    }
