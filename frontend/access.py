"""Who may see and change which experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from frontend.accounts import Experimenter, WithExperimenter
from frontend.catalogue import Experiment
from frontend.context import WithContext
from frontend.errors import ForbiddenError, NotFoundError
from frontend.store.experiments import ExperimentState

#: The owner of what was launched on the server itself: all of its experimenters share it.
LOCAL = "local"


def may_see(experimenter: Experimenter, state: ExperimentState) -> bool:
    """Whether an experiment is this experimenter's own, shared with them, or everybody's; the server's owner sees all."""
    return (
        experimenter.role == "owner" or state.owner in {experimenter.name, LOCAL} or experimenter.name in state.shared
    )


async def reachable(slug: str, context: WithContext, experimenter: WithExperimenter) -> Experiment:
    """The experiment of this name, for somebody who may see it."""
    experiment = await context.catalogue.find(slug)
    if not may_see(experimenter, experiment.state):
        # The same words as for a name that nobody has: what others call their experiments is theirs.
        raise NotFoundError(
            f"There is no experiment called {slug!r} here.",
            hint="Check the link, or ask the people who sent it to you.",
        )
    return experiment


async def server_owner(experimenter: WithExperimenter) -> Experimenter:
    """Whoever sends this request, if they own the server."""
    if experimenter.role != "owner":
        raise ForbiddenError("Only the owner of this server may do this.", hint="Ask the owner.")
    return experimenter


#: The experiment of the address, for somebody who may see it.
WithExperiment = Annotated[Experiment, Depends(reachable)]
#: The owner of the server.
WithOwner = Annotated[Experimenter, Depends(server_owner)]
