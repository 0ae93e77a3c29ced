"""Submissions at Prolific and the participants they belong to: statuses come by webhooks and
by asking, and are applied here.

A study that changes is asked about every minute; one that does not, less and less often. Events of webhooks make this
quicker and are not needed for it: what they leave out, the next look finds.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from frontend.context import Context
from frontend.prolific.platform import Prolific, Study, Submission
from frontend.prolific.webhooks import WebhookEvent
from frontend.store.experiments import ExperimentState
from frontend.store.participants import Participant
from frontend.store.prolific import Counted, StudyRecord
from frontend.store.statuses import PlatformStatus
from salmon.errors import SalmonError
from salmon.logs import fields

log = logging.getLogger("salmon.prolific")

#: How often it is looked which studies are due (s), how soon one is asked about again (ms), and how late at most.
_LOOK_SECONDS = 20.0
SOONEST_MS, LATEST_MS = 60_000, 30 * 60_000
#: Studies that are asked about in one round.
MOST_STUDIES = 20
_STATUSES = {status.name: status for status in PlatformStatus}
#: Statuses of a study in which submissions may still change.
_RUNNING = frozenset({"ACTIVE", "PAUSED", "AWAITING_REVIEW", "PUBLISHING", "SCHEDULED", "UNPUBLISHED"})


@dataclass(frozen=True)
class Schedule:
    """When a study is asked about next, and how long after the last time; it doubles while nothing changes."""

    due_ms: int = 0
    pause_ms: int = SOONEST_MS

    def after(self, *, changed: bool, now_ms: int) -> "Schedule":
        """Return the next turn, after one that found a change or not; a failure counts as no change."""
        pause_ms = SOONEST_MS if changed else min(2 * self.pause_ms, LATEST_MS)
        return Schedule(now_ms + pause_ms, pause_ms)


async def read_submissions(
    context: Context, platform: Prolific, experiment: str, record: StudyRecord
) -> tuple[Study, tuple[Submission, ...], bool]:
    """Read a study with its submissions, apply their statuses, and return them; and whether anything had changed."""
    asked_ms = context.now_ms()
    study = await platform.read_study(record.id)
    submissions = await platform.list_submissions(record.id)
    changed = await apply_submissions(context, experiment, submissions, at_ms=asked_ms)
    now = record_of(study, record, submissions, now_ms=context.now_ms())
    await context.store.prolific.write_study(experiment, now)
    return study, submissions, changed or replace(now, seen_ms=record.seen_ms) != record


def record_of(
    study: Study, record: StudyRecord, submissions: Sequence[Submission] | None, *, now_ms: int
) -> StudyRecord:
    """Return what is kept of a study after it was read; the counts stay where its submissions were not."""
    counts = (
        record.counts if submissions is None else dict(sorted(Counter(each.status for each in submissions).items()))
    )
    return replace(
        record,
        status=study.status,
        places=study.places,
        taken=study.taken,
        reward=study.reward,
        currency=study.currency or record.currency,
        seen_ms=now_ms,
        counts=counts,
    )


async def apply_submissions(
    context: Context, experiment: str, submissions: Iterable[Submission], *, at_ms: int
) -> bool:
    """Note the statuses that submissions had at a time with their participants; return whether any was new."""
    changed = False
    for each in submissions:
        participant = await find_participant(context, experiment, each.participant, each.id)
        if participant is not None and await _note(context, experiment, participant, each.status, at_ms):
            changed = True
    return changed


async def find_participant(context: Context, experiment: str, person: str, submission: str) -> Participant | None:
    """Return who arrived with this id of Prolific and this submission, also where the person came again later.

    Somebody of whom no submission is known has this one.
    """
    people = context.store.participants
    newest = await people.find(experiment, "prolific", person) if person else None
    if newest is None or newest.companions.get("SESSION_ID", submission) == submission:
        return newest
    earlier = await people.find_earlier(experiment, "prolific", person)
    return next((each for each in earlier if each.companions.get("SESSION_ID") == submission), None)


async def apply_event(context: Context, reference: str, event: WebhookEvent) -> Counted:
    """Apply an event to the experiments of an account, and return what became of it.

    An event about a study or a submission that belongs to none of them changes nothing.
    """
    if event.kind not in {"submission.status.change", "study.status.change"}:
        return "unknown"
    for state in await context.store.experiments.list():
        record = await context.store.prolific.read_study(state.experiment)
        if record is None or record.reference != reference:
            continue
        if event.kind == "study.status.change":
            if event.resource == record.id:
                await context.store.prolific.write_study(state.experiment, replace(record, status=event.status))
                return "applied"
            continue
        participant = await find_participant(context, state.experiment, event.participant, event.resource)
        if participant is not None and participant.companions.get("STUDY_ID", record.id) == record.id:
            await _note(context, state.experiment, participant, event.status, event.at_ms)
            return "applied"
    return "foreign"


async def keep_asking(context: Context) -> None:
    """Ask Prolific about the studies that are due, until this is cancelled."""
    turns: dict[str, Schedule] = {}
    owner = secrets.token_hex(8)
    while True:
        try:
            if await context.store.prolific.lock_polling(owner):
                try:
                    await ask_once(context, turns)
                finally:
                    await context.store.prolific.unlock_polling()
        except SalmonError as error:
            log.error("studies are not looked at", extra=fields(error=str(error)))
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again soon
            log.error("asking prolific failed", extra=fields(error=type(error).__name__))
        await asyncio.sleep(_LOOK_SECONDS)


async def ask_once(context: Context, turns: dict[str, Schedule]) -> int:
    """Ask about every study that is due, and return how many were; `turns` says when, and is updated."""
    asked = 0
    for state in await context.store.experiments.list():
        record = await context.store.prolific.read_study(state.experiment)
        if record is None or record.status not in _RUNNING:
            turns.pop(state.experiment, None)
            continue
        turn, now_ms = turns.get(state.experiment, Schedule()), context.now_ms()
        if turn.due_ms > now_ms or asked >= MOST_STUDIES:
            continue
        asked += 1
        turns[state.experiment] = turn.after(changed=await _ask(context, state, record), now_ms=now_ms)
    return asked


async def _ask(context: Context, state: ExperimentState, record: StudyRecord) -> bool:
    """Ask about one study, with the token of the account that made it; return whether anything had changed."""
    credentials = await context.read_prolific(record.account)
    if credentials is None:
        return False
    try:
        platform = Prolific(context.settings.prolific_url, credentials.token)
        _, _, changed = await read_submissions(context, platform, state.experiment, record)
    except SalmonError as error:
        log.warning("a study was not read", extra=fields(experiment=state.slug, error=error.message))
        return False
    return changed


async def _note(context: Context, experiment: str, participant: Participant, status: str, at_ms: int) -> bool:
    """Note the status of a submission with its participant; return whether it was new.

    A status that Salmon does not know, such as a partial approval, frees no place and changes nothing.
    """
    if status not in _STATUSES or participant.platform == (known := _STATUSES[status]):
        return False
    return await context.store.participants.note_platform_status(experiment, participant.id, known, at_ms)
