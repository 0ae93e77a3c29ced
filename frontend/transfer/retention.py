"""Remove what was kept for as long as an experiment's file and the settings say, after
the overview has announced it.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from frontend.context import Context
from frontend.errors import NotFoundError
from frontend.store.experiments import Change
from frontend.transfer.erasure import is_local, kept_folder, read_erasures
from frontend.transfer.kept_bundles import bundles_in
from salmon.logs import fields

log = logging.getLogger("salmon.retention")

#: Before something is removed because it was kept long enough, the overview says so for at least this time.
NOTICE_MS = 7 * 86_400_000
_DAY_MS = 86_400_000


def next_removal(moments: Iterable[int], keep: timedelta | None, *, announced_ms: int, now_ms: int) -> tuple[int, bool]:
    """Return (when something is removed that happened at these times, 0 for never; whether that is now).

    It is never removed before it was announced for a week.
    """
    first = min(moments, default=None)
    if keep is None or first is None:
        return 0, False
    wanted = first + int(keep.total_seconds() * 1000)
    soonest = max(wanted, now_ms + NOTICE_MS)
    if announced_ms and wanted <= announced_ms <= soonest:
        return announced_ms, announced_ms <= now_ms
    return soonest, False


@dataclass
class Removed:
    """What was removed because it was kept for as long as it should be."""

    ids: dict[str, int] = field(default_factory=dict[str, int])
    experiments: list[str] = field(default_factory=list[str])
    bundles: list[str] = field(default_factory=list[str])


async def remove_expired(context: Context) -> Removed:
    """Remove what experiments and settings say is kept no longer, and note in each
    experiment when the next removal is due.
    """
    removed, now_ms, people = Removed(), context.now_ms(), context.store.people
    for state in await context.store.experiments.list():
        try:
            privacy = (await context.catalogue.read(state.experiment)).spec.privacy
        except NotFoundError:
            continue  # an experiment that this version cannot read
        seen = await people.last_seen(state.experiment)
        newest = int((await context.store.export_reader.last_answer(state.experiment)).partition("-")[0])
        known = state.counters
        ids_ms, ids_due = next_removal(
            seen.values(), privacy.keep_ids, announced_ms=known.get("ids_due_ms", 0), now_ms=now_ms
        )
        last = max((*seen.values(), newest))
        answers_ms, answers_due = next_removal(
            [last] if last else [], privacy.keep_answers, announced_ms=known.get("answers_due_ms", 0), now_ms=now_ms
        )
        if answers_due:
            await people.delete_data(state.experiment)
            removed.experiments.append(state.slug)
            change = Change(now_ms, "privacy.keep_answers", "removed", "all answers and participants")
            await context.store.experiments.note_change(state.experiment, change)
            ids_ms = answers_ms = 0
        elif ids_due and privacy.keep_ids is not None:
            until = now_ms - privacy.keep_ids.total_seconds() * 1000
            due = [participant for participant, at in seen.items() if at <= until]
            for participant in due:
                await people.forget_ids(state.experiment, participant)
            removed.ids[state.slug] = len(due)
            change = Change(now_ms, "privacy.keep_ids", "removed", f"platform ids of {len(due)} participants")
            await context.store.experiments.note_change(state.experiment, change)
            left = [at for participant, at in seen.items() if participant not in due]
            ids_ms, _ = next_removal(left, privacy.keep_ids, announced_ms=0, now_ms=now_ms)
        if (ids_ms, answers_ms) != (known.get("ids_due_ms", 0), known.get("answers_due_ms", 0)):
            await people.note_due(state.experiment, {"ids_due_ms": ids_ms, "answers_due_ms": answers_ms})
    removed.bundles = await asyncio.to_thread(_remove_old_bundles, context)
    for identifier, erasure in (await read_erasures(context)).items():
        if erasure.ended and erasure.kind == "experiment":
            await people.remove_erasure(identifier)
    if removed.ids or removed.experiments:
        await people.rewrite_files()
    return removed


def _remove_old_bundles(context: Context) -> list[str]:
    days = context.settings.keep_bundles_days
    if not days or not is_local(context):
        return []
    old = [
        path
        for path in bundles_in(kept_folder(context))
        if path.stat().st_mtime * 1000 < context.now_ms() - days * _DAY_MS
    ]
    for path in old:
        path.unlink()
        log.info("kept bundle removed", extra=fields(bundle=path.name, days=days))
    return [path.name for path in old]
