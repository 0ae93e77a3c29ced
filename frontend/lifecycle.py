"""When an experiment takes people in, and when it closes or pauses by itself, as its file says under `stopping`.

`due` and `fails_too_often` are pure functions. Whoever has begun may finish after an experiment closed by itself. It
closes at once where an answer or a participant is the last that was wanted, and the web process looks at every
experiment twice a minute besides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from frontend.context import Context
from frontend.errors import EarlyError, FullError, NotFoundError, NotOpenError, OverloadError
from frontend.experiments import ServedExperiment
from frontend.store.answers import Counts
from frontend.store.experiments import EndedBy
from frontend.store.participants import Participant, Source
from frontend.store.statuses import Status
from salmon.logs import fields
from salmon.spec import Spec
from salmon.wire.keys import is_tryout

if TYPE_CHECKING:
    from salmon.learning_curve import Look

log = logging.getLogger("salmon.lifecycle")

#: With more requests of participants under way in one process, nobody new is let in for a moment.
MOST_UNDER_WAY = 300
#: How often every experiment is looked at.
_LOOK_SECONDS = 30.0
#: Failures count for so long, and from so many participants: a single broken browser pauses nothing.
FAILURE_MS = 3_600_000
FEWEST_FAILING = 3
#: Events with which pages report that something failed which participants need.
FAILURES = frozenset({"load_failed", "answers_refused", "page_failed"})
_MOST_EVENTS = 5000


@dataclass(frozen=True)
class Ending:
    """Why an experiment ends by itself: the key under `stopping`, and a sentence."""

    by: EndedBy
    sentence: str


def due(spec: Spec, *, answers: int, finished: int, now_ms: int, look: Look | None = None) -> Ending | None:
    """Return why an experiment has to close now; None where it goes on.

    `finished` are those who hold a place, and `look` is the last one at what further answers would bring.
    """
    stopping, wanted = spec.stopping, wanted_participants(spec)
    if stopping.at is not None and now_ms >= stopping.at.timestamp() * 1000:
        return Ending("at", f"stopping.at is {stopping.at:%Y-%m-%d %H:%M} UTC, and that is past.")
    if stopping.answers is not None and answers >= stopping.answers:
        return Ending("answers", f"stopping.answers is {stopping.answers:,}, and there are {answers:,} answers.")
    if wanted and finished >= wanted:
        return Ending("participants", f"{wanted:,} participants are wanted, and {finished:,} have finished.")
    if stopping.accuracy_gain_below is not None and look is not None and look.stops:
        return Ending(
            "accuracy_gain_below",
            f"after {look.answers:,.0f} answers, {stopping.per:,} more bring less than {100 * stopping.accuracy_gain_below:g}"
            " points of accuracy, with all looks at it taken together in 95 of 100 such experiments.",
        )
    return None


def wanted_participants(spec: Spec) -> int:
    """Return how many participants are wanted: `stopping.participants`, or those of all groups; 0 for any number."""
    of_groups = [group.participants or 0 for group in spec.groups.values()]
    total = sum(of_groups) if of_groups and all(of_groups) else 0
    return min(filter(None, (spec.stopping.participants, total)), default=0)


def fails_too_often(spec: Spec, *, opened: int, failing: int) -> Ending | None:
    """Return why an experiment has to pause: too large a share of those who opened its page met a failure."""
    most = spec.stopping.errors_above
    if most is None or failing < FEWEST_FAILING or failing <= most * opened:
        return None
    return Ending(
        "errors_above",
        f"the pages of {failing} of {opened} participants reported a failure within an hour, more than {most:.0%}.",
    )


def count_failing(events: Iterable[Mapping[str, str]]) -> tuple[int, int]:
    """Return (how many participants opened the page, how many of them met a failure), from what pages reported."""
    opened: set[str] = set()
    failing: set[str] = set()
    for event in events:
        opened.add(event.get("participant", ""))
        if event.get("event") in FAILURES:
            failing.add(event.get("participant", ""))
    return len(opened), len(failing)


def takes_in(experiment: ServedExperiment, *, now_ms: int) -> bool:
    """Return whether somebody new may begin, if there is a place."""
    opens = experiment.spec.recruitment.opens_at
    return experiment.state.state == "open" and (opens is None or now_ms >= opens.timestamp() * 1000)


def check_takes_in(experiment: ServedExperiment, *, now_ms: int) -> None:
    """Refuse somebody new where the experiment is not open, or not open yet."""
    check_open(experiment.state.state)
    opens = experiment.spec.recruitment.opens_at
    if opens is not None and not takes_in(experiment, now_ms=now_ms):
        raise EarlyError(
            f"This study opens on {opens:%Y-%m-%d} at {opens:%H:%M} UTC.",
            hint="Please come back then by the same link.",
        )


def check_open(state: str) -> None:
    """Refuse what only an open experiment does, with a sentence that says why."""
    if state != "open":
        sentences = {
            "draft": "This experiment has not been opened yet.",
            "paused": "This experiment is paused at the moment.",
            "closed": "This experiment has ended.",
        }
        raise NotOpenError(
            sentences.get(state, "This experiment is not open."),
            state=state,
            hint="Answers already given are kept. Please contact the people who sent you the link.",
        )


def check_load(context: Context) -> None:
    """Let somebody new wait while this process has so much to do that those who have begun would wait, too."""
    waiting = context.metrics.under_way
    if waiting > MOST_UNDER_WAY:
        raise OverloadError(
            "Many people are taking part at this moment.",
            hint="This page begins by itself; a program asks again after the time in Retry-After.",
            wait_seconds=1 + waiting // MOST_UNDER_WAY,
        )


async def take_in(
    context: Context,
    experiment: ServedExperiment,
    source: Source,
    puid: str,
    *,
    status: Status = Status.ARRIVED,
    comes_back: bool = False,
) -> Participant:
    """Return the participant of a platform's id, new (with this status) or known; if no place is left, look for people
    who left first.
    """

    async def arrive() -> Participant:
        return await context.store.participants.arrive(
            experiment.id,
            source,
            puid,
            now_ms=context.now_ms(),
            status=status,
            quota=experiment.quota,
            comes_back=comes_back,
        )

    try:
        return await arrive()
    except FullError:
        if not await free_abandoned(context, experiment):
            raise
    return await arrive()


async def come_back(context: Context, experiment: ServedExperiment, participant: Participant) -> Participant:
    """Return a participant as they go on; who was away for too long takes a place again, and FullError is raised where
    they had not answered anything and none is left.
    """
    if participant.status != Status.ABANDONED or is_tryout(participant.id):
        return participant
    source = cast("Source", participant.source)
    return await take_in(context, experiment, source, participant.puid, comes_back=True)


async def free_abandoned(context: Context, experiment: ServedExperiment) -> int:
    """Free the places of those of whom there was no sign for as long as the experiment waits; return how many."""
    people = context.store.participants
    places = await people.read_places(experiment.id)
    until = context.now_ms() - experiment.spec.resume.abandoned_after.total_seconds() * 1000
    left: list[str] = []
    async for page in context.store.export_reader.read_people(experiment.id, places.under_way):
        left += [one.id for one in page if one.stored and last_sign_ms(one) < until]
    for participant in left:
        await people.abandon(experiment.id, participant)
    return len(left)


def last_sign_ms(participant: Participant) -> int:
    """Return when a participant did something last."""
    return max(participant.first_ms, participant.seen_ms, participant.last_ms, *participant.steps.values())


async def close_if_due(
    context: Context,
    experiment: ServedExperiment,
    *,
    answers: int | None = None,
    finished: int | None = None,
    look: Look | None = None,
) -> bool:
    """Close an open experiment that has what it wanted, and return whether it was closed now."""
    stopping, wanted = experiment.spec.stopping, wanted_participants(experiment.spec)
    if experiment.state.state != "open" or not (stopping.at or stopping.answers or wanted or look):
        return False
    if finished is None:
        finished = (await context.store.participants.count_places(experiment.id)).finished
    known = experiment.state.counters.get("answers", 0) if answers is None else answers
    ending = due(experiment.spec, answers=known, finished=finished, now_ms=context.now_ms(), look=look)
    return ending is not None and await _end(context, experiment, ending)


async def close_at_last_answer(context: Context, experiment: str, answers: int) -> None:
    """Close an experiment with the answer after which there are so many, if its newest revision wants no more."""
    await close_if_due(context, await context.catalogue.read(experiment), answers=answers)


async def why_it_would_close(context: Context, experiment: ServedExperiment) -> Ending | None:
    """Return why an experiment would close again at once if it were opened."""
    places = await context.store.participants.count_places(experiment.id)
    answers = experiment.state.counters.get("answers", 0)
    look = await _last_look(context, experiment)
    return due(experiment.spec, answers=answers, finished=places.finished, now_ms=context.now_ms(), look=look)


async def _last_look(context: Context, experiment: ServedExperiment) -> Look | None:
    """Return the last look at what further answers would bring, where that closes the experiment."""
    stopping = experiment.spec.stopping
    if stopping.accuracy_gain_below is None:
        return None
    dimensions = {name: experiment.dimensions_of(name) for name in experiment.active_samplers}
    n = len(experiment.targets)
    look = await context.histories.last_look(
        experiment.id, dimensions, n=n, worth=stopping.accuracy_gain_below, per=stopping.per
    )
    if look is not None and look.stops:
        counts = Counts.of(await context.store.experiments.read_counts(experiment.id))
        return None if counts.targets_without_answer(n) else look
    return look


async def look_at(context: Context, experiment: ServedExperiment) -> None:
    """Free places, and close or pause an experiment where that is due."""
    await free_abandoned(context, experiment)
    if experiment.state.state != "open":
        return
    look = await _last_look(context, experiment)
    if await close_if_due(context, experiment, look=look):
        return
    if experiment.spec.stopping.errors_above is not None:
        since_ms = max(experiment.state.since_ms, context.now_ms() - FAILURE_MS)
        events = await context.store.participants.read_recent_events(
            experiment.id, since_ms=since_ms, most=_MOST_EVENTS
        )
        opened, failing = count_failing(events)
        if ending := fails_too_often(experiment.spec, opened=opened, failing=failing):
            await _end(context, experiment, ending)


async def keep_watch(context: Context) -> None:
    """Look at every experiment, over and over; runs until it is cancelled."""
    while True:
        try:
            await look_at_all(context)
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again in half a minute
            log.error("experiments not looked at", extra=fields(error=f"{type(error).__name__}: {error}"))
        await asyncio.sleep(_LOOK_SECONDS)


async def look_at_all(context: Context) -> None:
    """Look at every experiment that participants may be in."""
    async for experiment in served_experiments(context):
        await look_at(context, experiment)


async def served_experiments(context: Context) -> AsyncIterator[ServedExperiment]:
    """Yield every experiment that is not a draft, as it is now."""
    for state in await context.store.experiments.list():
        if state.state == "draft":
            continue
        try:
            experiment = await context.catalogue.read(state.experiment)
        except NotFoundError:
            continue  # deleted meanwhile, or of a version that this one cannot read
        yield experiment


async def _end(context: Context, experiment: ServedExperiment, ending: Ending) -> bool:
    ended = await context.store.experiments.end_run(experiment.id, ending.by, ending.sentence, now_ms=context.now_ms())
    if ended:
        log.info(
            "experiment ended by itself",
            extra=fields(experiment=experiment.state.slug, by=f"stopping.{ending.by}", why=ending.sentence),
        )
    return ended
