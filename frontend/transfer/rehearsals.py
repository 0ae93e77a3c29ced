"""Rehearse an experiment on its own server: simulated people fill a scratch copy, which
every page of the console shows.

The copy has the experiment's file and targets, a name and a title that say what it is, and a mark in its state. It is
never the experiment that addresses without a name mean, is in no nightly bundle, tells nobody anything, and is closed
when its people have finished. It is removed by a click, or by itself after a day. The people are a process of their own
(`salmon.rehearsal`), because the web process carries no learning code; they reach this server by HTTP, at a rate that
leaves room for real participants.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from frontend.context import Context, open_context
from frontend.errors import ConflictError, GoneError, NotFoundError
from frontend.experiments import ServedExperiment
from frontend.launching import free_slug, note_change
from frontend.settings import Settings
from frontend.store.experiments import Change, ExperimentState, Revision
from frontend.transfer.erasure import begin_erasing, order_deletion
from frontend.transfer.subprocesses import Subprocesses
from salmon.logs import fields
from salmon.parent_watch import SUPERVISED
from salmon.spec import Spec
from salmon.spec.schema import Notify, Privacy, Security, Stopping
from salmon.wire import decode_json, encode_json

log = logging.getLogger("salmon.rehearsals")

#: A scratch copy is removed by itself after this time.
KEPT_MS = 24 * 3_600_000
#: People who have not finished after this time do not finish any more.
LONGEST_MS = 15 * 60_000
#: Answers a second of all simulated people together: real participants may be answering at the same time.
RATE = 40.0
#: Seconds that a person takes for a query, about; and answers of each person of an experiment without end.
_SECONDS, ENDLESS = 1.6, 50
#: Kinds of careless people, as in `salmon rehearse`.
SHARES = {"coin": 0.1, "fast": 0.05, "rule": 0.05, "leaving": 0.05}
_LOOK_SECONDS = 30.0
_WHAT = "rehearsed"
_MOST_SAID = 500


@dataclass(frozen=True)
class RehearsalOrder:
    """Order to let so many people take part in a scratch copy: the link that they open."""

    experiment: str
    slug: str
    link: str
    people: int

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(vars(self))


def scratch_spec(spec: Spec) -> Spec:
    """Return the description of a scratch copy: the same course, without what closes it,
    tells others or asks platforms.
    """
    recruitment = spec.recruitment
    changes: dict[str, Any] = {"invited_only": False, "opens_at": None, "prolific": None, "unsent": "wait"}
    if recruitment.sona is not None:
        changes["sona"] = recruitment.sona.model_copy(update={"credit": "participant"})
    return spec.model_copy(
        update={
            "html": spec.html.model_copy(update={"title": f"Rehearsal: {spec.html.title}"}),
            "recruitment": recruitment.model_copy(update=changes),
            "stopping": Stopping(),
            "notify": Notify(),
            "privacy": Privacy(),
            "security": Security(),
        }
    )


def trials_of(spec: Spec) -> int:
    """Return how many answers each simulated person gives."""
    return spec.html.max_queries if spec.html.max_queries > 0 else ENDLESS


async def find_rehearsal(context: Context, experiment: str) -> ExperimentState | None:
    """Return the scratch copy of an experiment; None where there is none."""
    states = await context.store.experiments.list()
    return next((state for state in states if state.rehearsal_of == experiment), None)


def check_is_real(state: ExperimentState) -> None:
    """Refuse what only a real experiment may do."""
    if state.rehearsal_of:
        raise ConflictError(
            "This is a rehearsal with simulated people, which is removed by itself.",
            hint="Change the experiment that it rehearses.",
        )


async def make_scratch_copy(
    context: Context, experiment: ServedExperiment, *, owner: str, by: str, people: int
) -> ExperimentState:
    """Make the scratch copy of an experiment, open for its simulated people; ConflictError where there is one."""
    check_is_real(experiment.state)
    if (other := await find_rehearsal(context, experiment.id)) is not None:
        raise ConflictError(
            f"There is a rehearsal of this experiment already, called {other.slug}.", hint="Remove it first."
        )
    stored = await context.store.experiments.read_revision(experiment.id, experiment.state.revision)
    revision = Revision(
        stored.source, scratch_spec(experiment.spec).to_json(), stored.manifest, context.now_ms(), stored.app_version
    )
    made = await context.store.experiments.create(
        await free_slug(context, f"{experiment.state.slug[:48]}-rehearsal", given=False),
        revision,
        owner=owner,
        state="open",
        now_ms=context.now_ms(),
        rehearsal_of=experiment.id,
        expected_answers=people * trials_of(experiment.spec),
    )
    await note_change(context, made.experiment, by, "created", f"rehearsal of {experiment.state.slug}")
    return made


def begin_rehearsing(subprocesses: Subprocesses, state: ExperimentState, *, link: str, people: int) -> None:
    """Let so many people begin at this link, in a subprocess."""
    order = RehearsalOrder(state.experiment, state.slug, link, people)
    subprocesses.begin(_name_of(state), "rehearse", order.encode())


async def remove_rehearsal(context: Context, subprocesses: Subprocesses, state: ExperimentState, *, by: str) -> None:
    """Stop the people of a scratch copy, wherever they run, and remove everything of it.

    A process elsewhere that lets them take part ends by itself: nothing is served any more.
    """
    subprocesses.end(_name_of(state))
    if context.settings.eraser_url:
        await order_deletion(context, state.experiment, state.slug, by=by)
    await context.store.experiments.delete(state.slug, state.experiment)
    if context.settings.eraser_url:
        begin_erasing(subprocesses)


async def outcome_of(context: Context, experiment: str) -> str:
    """Return the sentence about how its people came through; empty before the end."""
    changes = await context.store.experiments.read_changes(experiment)
    return next((change.detail for change in reversed(changes) if change.what == _WHAT), "")


async def keep_clearing(context: Context, subprocesses: Subprocesses) -> None:
    """Close rehearsals that take too long and remove old ones, over and over; runs until it is cancelled."""
    while True:
        try:
            await clear_old(context, subprocesses)
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again in half a minute
            log.error("rehearsals not looked at", extra=fields(error=f"{type(error).__name__}: {error}"))
        await asyncio.sleep(_LOOK_SECONDS)


async def clear_old(context: Context, subprocesses: Subprocesses) -> None:
    """Close the rehearsals that take too long; remove those that are a day old, or whose experiment is gone."""
    states = await context.store.experiments.list()
    known, now_ms = {state.experiment for state in states}, context.now_ms()
    for state in states:
        if not state.rehearsal_of:
            continue
        if now_ms >= state.created_ms + KEPT_MS or state.rehearsal_of not in known:
            await remove_rehearsal(context, subprocesses, state, by="a day after the rehearsal")
            log.info("rehearsal removed", extra=fields(experiment=state.slug))
        elif state.state == "open" and now_ms >= state.created_ms + LONGEST_MS:
            await _end(context, state.experiment, "The people did not finish in time; what they answered is kept.")


async def rehearse(order: str) -> None:
    """Let the people of an order take part, close the scratch copy, and note how they came through."""
    ordered = TypeAdapter(RehearsalOrder).validate_json(order)
    async with open_context(Settings()) as context:  # pyright: ignore[reportCallIssue]
        try:
            scratch = await context.catalogue.read(ordered.experiment)
            await _end(context, ordered.experiment, await _let_take_part(ordered, scratch))
        except (GoneError, NotFoundError):
            log.info("rehearsal was removed", extra=fields(experiment=ordered.slug))


async def _let_take_part(ordered: RehearsalOrder, scratch: ServedExperiment) -> str:
    """Run the people in a process that ends with this one; return a sentence about how they came through."""
    asked = {
        "spec": scratch.spec.to_json(),
        "targets": len(scratch.targets),
        "link": ordered.link,
        "people": ordered.people,
        "shares": SHARES,
        "pace": max(1.0, RATE * _SECONDS / ordered.people),
        "seed": scratch.spec.seed,
    }
    with TemporaryDirectory(prefix="salmon-rehearsal-") as folder:
        order = Path(folder) / "order.json"
        order.write_text(encode_json(asked), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "salmon.rehearsal", str(order)),
            # It ends with this process: it watches the other end of its standard input.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
        )
        try:
            assert process.stdout is not None  # noqa: S101 - both are pipes
            assert process.stderr is not None  # noqa: S101
            told, complaint = await asyncio.gather(process.stdout.read(), process.stderr.read())
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    if code:
        sentence = " ".join(complaint.decode(errors="replace").split())[-_MOST_SAID:]
        return f"The simulated people could not take part: {sentence}"
    return _sentence(decode_json(told.strip().rpartition(b"\n")[2]))


def _sentence(found: dict[str, dict[str, int]]) -> str:
    outcomes, problems = found["outcomes"], found["problems"]
    people = sum(outcomes.values())
    parts = [
        f"{outcomes.get(name, 0)} {words}"
        for name, words in (
            ("completed", "completed"),
            ("screened_out", "screened out"),
            ("left", "left in the middle"),
        )
    ]
    text = f"{people} simulated people: {', '.join(parts)}, {outcomes.get('failed', 0)} stopped by an error."
    return " ".join([text, *(f"{count} of them: {sentence}" for sentence, count in problems.items())])[:_MOST_SAID]


async def _end(context: Context, experiment: str, sentence: str) -> None:
    """Close a scratch copy and note how it went."""
    state = await context.store.experiments.read(experiment)
    await context.store.experiments.set_state(state.experiment, "closed", now_ms=context.now_ms())
    await context.store.experiments.note_change(
        experiment, Change(context.now_ms(), "simulated people", _WHAT, sentence)
    )


def _name_of(state: ExperimentState) -> str:
    return f"rehearsal {state.experiment}"
