"""Which experiment an address without a name means: the open one, or else the last that was; and who may change it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from frontend.access import may_see
from frontend.accounts import Experimenter, WithExperimenter
from frontend.catalogue import Experiment
from frontend.compat.told import OldError
from frontend.context import Context, WithContext
from frontend.errors import ForbiddenError, LoginError
from frontend.store.experiments import ExperimentState

_NOTHING = "No data has been uploaded: there is no experiment here."
#: What a proxy adds: then the other end of the connection is not who asks.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
#: What browsers say of requests that other sites made them send.
_FOREIGN = frozenset({"cross-site", "same-site"})


def newest(states: Iterable[ExperimentState]) -> ExperimentState | None:
    """The open experiment that was opened last, or else the last of all; archived ones are passed over."""
    living = [state for state in states if not state.counters.get("archived")]
    return max(living, key=lambda state: (state.state == "open", state.opened_ms, state.created_ms), default=None)


async def for_participants(context: WithContext) -> Experiment:
    """The experiment that is open."""
    state = newest(await context.store.experiments.list())
    if state is None:
        raise OldError(500, _NOTHING, hint="Post one to /init_exp.")
    return await context.catalogue.read(state.experiment)


async def for_experimenter(context: WithContext, experimenter: WithExperimenter) -> Experiment:
    """The experiment that this experimenter means."""
    state = await seen_by(context, experimenter)
    if state is None:
        raise OldError(500, _NOTHING, hint="Post one to /init_exp.")
    return await context.catalogue.read(state.experiment)


async def seen_by(context: Context, experimenter: Experimenter) -> ExperimentState | None:
    """The newest experiment among those that somebody may see."""
    return newest(state for state in await context.store.experiments.list() if may_see(experimenter, state))


async def by_script(request: Request, experimenter: WithExperimenter) -> Experimenter:
    """Whoever sends name and password with the request itself: links and other sites' pages change nothing."""
    if not request.headers.get("authorization", "").lower().startswith("basic "):
        raise LoginError("This address takes name and password by HTTP Basic.", hint="In the browser, use the console.")
    if request.headers.get("sec-fetch-site", "") in _FOREIGN:
        raise ForbiddenError("Another site has sent this request.", hint="Open the address yourself.")
    return experimenter


def is_local(request: Request) -> bool:
    """Whether a request comes from this very machine, and was meant for it."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    try:
        here = ipaddress.ip_address(request.client.host).is_loopback
        named = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return here and named


ForParticipants = Annotated[Experiment, Depends(for_participants)]
ForExperimenter = Annotated[Experiment, Depends(for_experimenter)]
ByScript = Annotated[Experimenter, Depends(by_script)]
