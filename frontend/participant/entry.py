"""Who is let in, decided in one place for every door by which participants come.

The page and programs that arrive as it does send all that the link said and a secret of their browser. Scripts of the
first Salmon send an id and nothing else, so they are let in only if the experiment asks for nothing that they would
have to prove. Some ask for a query without saying for whom; then the token of that query shows that the experiment was
open to them, and the participant arrives with the answer.

| rule | `page` | `script` | `answer` |
|---|---|---|---|
| state, `opens_at` | the same for all | the same | when the query was served |
| consent, checks, platform | shown by the page | refused without `compat` | when the query was served |
| `invited_only`, signed links, `resume.policy` | proved | refused | refused |
| arrivals from one address, places | the same for all | the same | the same |
"""

from dataclasses import dataclass, replace
from typing import Literal

from fastapi import Request

from frontend.admission import address_of
from frontend.context import Context
from frontend.errors import BusyError, ForbiddenError, LinkError
from frontend.experiments import ServedExperiment
from frontend.lifecycle import check_open, check_takes_in, close_if_due, come_back, take_in, takes_in
from frontend.participant.arrival import (
    INVITED,
    Arrival,
    Visit,
    WayBack,
    is_new_submission,
    visit_of,
    way_back,
)
from frontend.prolific.signed_links import check_link
from frontend.store.participants import Participant
from frontend.store.statuses import FINISHED, Status

Door = Literal["page", "script", "answer"]


@dataclass(frozen=True)
class Entrant:
    """A participant who was let in, the experiment as it is then, and how they go on."""

    experiment: ServedExperiment
    participant: Participant
    way: WayBack = "continue"


async def admit(
    context: Context,
    request: Request,
    experiment: ServedExperiment,
    arrival: Arrival,
    *,
    door: Door,
    known: Participant | None = None,
    browser: str = "",
) -> Entrant:
    """Return who arrives, or raise the sentence that says why they may not.

    `known` is the participant of the session that a page had before a reload. A script has no session; whom it names is
    known if they have arrived before.
    """
    if door == "page":
        check_invitation(context, experiment, arrival)
    else:
        check_provable(experiment)
        known = await context.store.participants.find(experiment.id, arrival.source, arrival.puid)
        if known is not None and known.status != Status.ABANDONED:
            return Entrant(experiment, known)
    if known is None:
        await _wait_for_others(context, request, experiment)
        await check_signature(context, request, experiment, arrival)
    if door != "answer" and await close_if_due(context, experiment):
        experiment = await context.catalogue.read(experiment.id)
    if door == "page":
        participant = await _find_or_take_in(context, experiment, arrival, known)
        participant, way = await _go_on(
            context, experiment, arrival, participant, same_tab=known is not None, browser=browser
        )
        return Entrant(experiment, participant, way)
    if door == "script":
        check_takes_in(experiment, now_ms=context.now_ms())
    participant = await take_in(
        context, experiment, arrival.source, arrival.puid, status=Status.ACTIVE, comes_back=True
    )
    return Entrant(experiment, participant)


def check_script(context: Context, experiment: ServedExperiment) -> None:
    """Refuse scripts if the experiment takes nobody in, or asks for what they would pass over or cannot prove."""
    check_takes_in(experiment, now_ms=context.now_ms())
    if not experiment.spec.serves_scripts:
        raise ForbiddenError(
            "This experiment is answered on its own page only: scripts would pass over its consent, checks or platform.",
            hint="To serve them all the same, write security: {compat: on} into the description.",
        )
    check_provable(experiment)


def check_provable(experiment: ServedExperiment) -> None:
    """Refuse scripts if the experiment asks for what only a page can prove."""
    if demands := experiment.spec.unprovable_by_scripts:
        raise ForbiddenError(
            f"This experiment is answered on its own page only: scripts cannot prove what {' and '.join(demands)} asks for.",
            hint="Open the link of the study in a browser.",
        )


def check_invitation(context: Context, experiment: ServedExperiment, arrival: Arrival) -> None:
    """Refuse a one-time link that was not made here, and any other if only these are let in."""
    if arrival.invited:
        context.signer.check_invitation(experiment.id, arrival.puid)
    elif experiment.spec.recruitment.invited_only:
        raise LinkError(
            "Only invited people can take part in this study.",
            fault="missing",
            hint="Open the link of your invitation.",
            where=INVITED,
        )


async def check_signature(
    context: Context, request: Request, experiment: ServedExperiment, arrival: Arrival, *, expires: bool = True
) -> None:
    """Refuse a link that Prolific has not signed, if the file asks for signed links."""
    if experiment.spec.takes_signed_links_only:
        address = f"{context.address(request)}/e/{experiment.state.slug}/"
        await check_link(arrival.signed, address, context.study_keys, now_ms=context.now_ms(), expires=expires)


async def _wait_for_others(context: Context, request: Request, experiment: ServedExperiment) -> None:
    """Let an arrival in, or tell it to wait because too many came from its address at once."""
    wait_ms = await context.store.participants.admit(experiment.id, address_of(request), now_ms=context.now_ms())
    if wait_ms > 0:
        raise BusyError(
            "Many people are starting at this moment.",
            hint="This page begins by itself; a program asks again after the time in Retry-After.",
            wait_seconds=wait_ms / 1000,
        )


async def _find_or_take_in(
    context: Context, experiment: ServedExperiment, arrival: Arrival, known: Participant | None
) -> Participant:
    """Return the participant who arrives, with their group: a new one only if the experiment takes participants in.

    Who was here before goes on, or gets the way out again, also from another browser and where nobody new gets in.
    """
    participant, now_ms = known, context.now_ms()
    if participant is None and not takes_in(experiment, now_ms=now_ms):
        participant = await context.store.participants.find(experiment.id, arrival.source, arrival.puid)
    if participant is None:
        check_takes_in(experiment, now_ms=now_ms)
        participant = await take_in(context, experiment, arrival.source, arrival.puid)
    if participant.status not in FINISHED and not experiment.state.lets_finish:
        check_open(experiment.state.state)
    return participant if participant.group else replace(participant, group=experiment.group_of(participant.place))


async def _go_on(
    context: Context,
    experiment: ServedExperiment,
    arrival: Arrival,
    participant: Participant,
    *,
    same_tab: bool,
    browser: str,
) -> tuple[Participant, WayBack]:
    """Return the participant who goes on, and how: as before, or as a participant of a new visit."""
    participant, visit = await _find_visit(context, experiment, arrival, participant, same_tab=same_tab)
    now_ms, resume = context.now_ms(), experiment.spec.resume
    if visit == "same":
        way = way_back(resume, participant, same_tab=same_tab, browser=browser, now_ms=now_ms)
        if way != "restart":
            back = await come_back(context, experiment, participant)
            return replace(back, group=participant.group), way
    else:
        check_takes_in(experiment, now_ms=now_ms)
    anew = await context.store.participants.restart(
        experiment.id,
        participant.id,
        arrival.source,
        arrival.puid,
        now_ms=now_ms,
        group=participant.group,
        round_number=participant.round + (visit == "once_more"),
        quota=experiment.quota,
    )
    return anew, "restart"


async def _find_visit(
    context: Context, experiment: ServedExperiment, arrival: Arrival, participant: Participant, *, same_tab: bool
) -> tuple[Participant, Visit]:
    """Return what an arrival is, and whose it is: the submission of an earlier time
    belongs to the participant of then.
    """
    if participant.round > 0 and is_new_submission(arrival, participant):
        earlier = await context.store.participants.find_earlier(experiment.id, arrival.source, arrival.puid)
        for one in earlier:
            if one.companions and not is_new_submission(arrival, one):
                return one, "same"
    policy, repeats = experiment.spec.resume.policy, experiment.spec.recruitment.repeats
    return participant, visit_of(arrival, participant, repeats=repeats, policy=policy, same_tab=same_tab)
