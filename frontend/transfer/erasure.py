"""Find, export and erase one person, and remove deleted experiments.

What is to be erased is noted in the store first and carried out by one process at a time, with the store's user
`eraser`. Each step can be done again, so an erasure that was killed goes on with the next start, command or minute of a
web process. It is done when a search of the data directory finds the person no more: in the store, its append-only
file, kept bundles, logs and copies of damaged files. While it goes on, ids are noted in a form that this search does
not take for a trace; the note is removed at the end, and then the append-only file is written anew once more.
"""

import asyncio
import base64
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from typing_extensions import TypedDict

from frontend.auth import Experimenter, may_edit
from frontend.context import Context, open_context
from frontend.errors import BadRequestError, ConflictError, NotFoundError
from frontend.settings import Settings
from frontend.store.accounts import Role
from frontend.store.experiments import Change, ExperimentState
from frontend.store.people import StoredPerson
from frontend.transfer.kept_bundles import (
    Erasing,
    bundles_in,
    erase_in_bundle,
    export_from_bundle,
    find_in_bundles,
    mask,
    remove_leftovers,
    traces_in,
)
from frontend.transfer.nightly_bundles import find_elsewhere
from frontend.transfer.subprocesses import Subprocesses
from salmon.errors import SalmonError, StartError
from salmon.export import moment
from salmon.logs import fields
from salmon.wire import decode_json, encode_json
from salmon.wire.keys import draw_participant_id


class ErasureRow(TypedDict):
    """How far an erasure is."""

    erasure: str
    kind: Literal["person", "experiment"]
    by: str
    asked_ms: int
    slugs: list[str]
    answers: Literal["keep", "remove"]
    state: Literal["waiting", "running", "done", "failed"]
    step: str
    progress: float
    people: int
    removed: int
    bundles: list[str]
    unreached: list[str]
    ended_ms: int
    error: str


log = logging.getLogger("salmon.erasure")

Json = dict[str, Any]
#: What becomes of the answers of somebody who is erased: they stay as rows of nobody, or go.
AnswersOf = Literal["keep", "remove"]
#: Searches until an erasure gives up: somebody may arrive again, or a bundle may be written, in the middle.
_PASSES = 3
#: Platform ids shorter than this are looked for where ids stand, but not in the text of files, where they may mean
#: anything.
_SHORTEST_NAME = 8
_LOCK_SECONDS = 20
#: A temporary file of a bundle is left over after this time.
_STALE_SECONDS = 3600
_DAY_MS = 86_400_000
_MAINTENANCE_SECONDS = 60.0


@dataclass(frozen=True)
class PeopleOrder:
    """Order about one person: who asks, by name and account, and the platform id, participant id or link parameter."""

    do: Literal["find", "export", "erase"]
    name: str
    by: str
    account: str
    role: Role
    slugs: tuple[str, ...] = ()
    answers: AnswersOf = "keep"

    def encode(self) -> str:
        """Return the argument of the subprocess."""
        return encode_json(asdict(self))

    def reaches(self, state: ExperimentState) -> bool:
        """Return whether who asks may change an experiment: who may only look at it sees no platform ids."""
        return may_edit(Experimenter(self.account, self.by, self.role, "session"), state)


@dataclass
class Erasure:
    """An erasure as it is noted in the store. `sealed` leads to the person until the end, and is empty then.

    `experiments` are ids, `slugs` their names. `removed` counts answers that were removed, or are nobody's now.
    `unreached` are sentences about what could not be reached.
    """

    kind: Literal["person", "experiment"]
    by: str
    asked_ms: int
    experiments: tuple[str, ...]
    slugs: tuple[str, ...]
    answers: AnswersOf = "remove"
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    step: str = "waiting"
    progress: float = 0.0
    people: int = 0
    removed: int = 0
    bundles: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    noted: bool = False
    sealed: str = ""
    ended_ms: int = 0
    error: str = ""

    @staticmethod
    def decode(values: Mapping[str, Any]) -> "Erasure":
        """Return the erasure of stored values."""
        lists = {name: tuple(values.get(name, ())) for name in ("experiments", "slugs", "bundles", "unreached")}
        known: dict[str, Any] = {**values, **lists}
        return Erasure(**known)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in {"done", "failed"}

    def shown(self, identifier: str) -> ErasureRow:
        """Return what people see of it."""
        hidden = {"sealed", "noted", "experiments"}
        known = {name: value for name, value in vars(self).items() if name not in hidden}
        return cast("ErasureRow", {"erasure": identifier, **known})


@dataclass(frozen=True)
class _Plan:
    """Who is erased: (experiment, participant, id under which the answers stay or nothing), and their platform ids."""

    people: tuple[tuple[str, str, str], ...]
    names: tuple[str, ...]
    bundles: tuple[str, ...]
    by: str = ""
    role: str = ""

    def seal(self) -> str:
        """Return the plan in a form in which no id stands as such."""
        return base64.b85encode(encode_json(asdict(self)).encode()).decode()

    @staticmethod
    def unseal(text: str) -> "_Plan":
        """Return the plan of that text."""
        values = decode_json(base64.b85decode(text))
        people = tuple((str(e), str(p), str(a)) for e, p, a in values.pop("people"))
        return _Plan(people, tuple(values["names"]), tuple(values["bundles"]), values["by"], values["role"])


@asynccontextmanager
async def open_eraser(settings: Settings) -> AsyncGenerator[Context]:
    """Yield a context whose store may remove answers; StartError where no such user is known."""
    check_may_erase(settings)
    async with open_context(settings.model_copy(update={"redis_url": settings.eraser_url})) as context:
        yield context


def check_may_erase(settings: Settings) -> None:
    """Raise StartError where no address of the eraser is known."""
    if not _may_erase(settings):
        raise StartError(
            "People can be found and erased only with the store's user `eraser`, and SALMON_ERASER_URL is not set.",
            hint="Set it to the address of your Redis with this user (docs/operating.md, Your own Redis).",
        )


def _may_erase(settings: Settings) -> bool:
    return bool(settings.eraser_url)


async def find_person(context: Context, order: PeopleOrder) -> Json:
    """Return what is stored of a person, as counts for each experiment and kept bundle that may be seen."""
    states = await _visible(context, order)
    found = [(states[person.experiment], person) for person in await _read_people(context, order, states)]
    return {
        "id": order.name,
        "experiments": [
            {
                "slug": state.slug,
                "participant": person.participant,
                "puid": person.fields.get("puid", ""),
                "source": person.fields.get("source", ""),
                "status": person.fields.get("status", ""),
                "first_ms": int(person.fields.get("first_ms", 0)),
                "stored": _counts(person),
            }
            for state, person in found
        ],
        "bundles": [
            {"bundle": each.bundle, "slug": each.state.slug, "participant": each.participant}
            for each in find_in_bundles(kept_folder(context), order.name)
            if order.reaches(each.state)
        ],
    }


async def export_person(context: Context, order: PeopleOrder) -> Json:
    """Return everything that is stored of a person, in readable form."""
    states = await _visible(context, order)
    experiments: list[Json] = []
    for person in await _read_people(context, order, states):
        state = states[person.experiment]
        targets = (await context.catalogue.read(person.experiment)).targets
        verdicts = await context.store.participants.read_verdicts(person.experiment)
        verdict = verdicts.verdicts.get(person.participant) if verdicts else None
        experiments.append(
            {
                "experiment": state.slug,
                "participant": person.participant,
                "identities": person.identities,
                "about": {name: _readable(name, text) for name, text in sorted(person.fields.items())},
                "answers": [_readable_answer(at, entry, targets) for at, entry in person.answers],
                "events": [{"at": _time_of(at), **entry} for at, entry in person.events],
                "queries_seen": person.asked,
                "quality": asdict(verdict) if verdict else None,
                "changes": [entry for _, entry in person.changes],
            }
        )
    bundles = [
        {
            "bundle": each.bundle,
            "experiment": each.state.slug,
            **export_from_bundle(kept_folder(context) / each.bundle, each.participant),
        }
        for each in find_in_bundles(kept_folder(context), order.name)
        if order.reaches(each.state)
    ]
    if not experiments and not bundles:
        raise _nobody(order.name)
    return {"id": order.name, "exported": moment(context.now_ms()), "experiments": experiments, "kept_bundles": bundles}


async def order_erasure(context: Context, order: PeopleOrder) -> str:
    """Note that a person is to be erased, which happens from then on, whatever crashes; return the erasure's id."""
    states = await _visible(context, order)
    people = await _read_people(context, order, states)
    bundled = [each for each in find_in_bundles(kept_folder(context), order.name) if order.reaches(each.state)]
    if order.slugs:
        bundled = [each for each in bundled if each.state.slug in order.slugs]
    if not people and not bundled:
        raise _nobody(order.name)
    stand_ins: dict[str, str] = {}
    for participant in (*(person.participant for person in people), *(each.participant for each in bundled)):
        stand_ins.setdefault(participant, draw_participant_id() if order.answers == "keep" else "")
    names = {person.fields.get("puid", "") for person in people} | {each.fields.get("puid", "") for each in bundled}
    plan = _Plan(
        tuple((person.experiment, person.participant, stand_ins[person.participant]) for person in people)
        + tuple(("", each.participant, stand_ins[each.participant]) for each in bundled),
        tuple(sorted(names - {""} - set(stand_ins))),
        tuple(sorted({each.bundle for each in bundled})),
        order.by,
        order.role,
    )
    erasure = Erasure(
        kind="person",
        by=order.by,
        asked_ms=context.now_ms(),
        experiments=tuple(dict.fromkeys(person.experiment for person in people)),
        slugs=tuple(
            dict.fromkeys((*(states[p.experiment].slug for p in people), *(each.state.slug for each in bundled)))
        ),
        answers=order.answers,
        people=len(stand_ins),
        sealed=plan.seal(),
    )
    identifier = secrets.token_hex(6)
    await context.store.people.note_erasure(identifier, vars(erasure))
    return identifier


async def order_deletion(context: Context, experiment: str, slug: str, *, by: str) -> str:
    """Note that everything of an experiment is to be removed; return the id of the erasure."""
    erasure = Erasure("experiment", by, context.now_ms(), (experiment,), (slug,))
    identifier = secrets.token_hex(6)
    await context.store.people.note_erasure(identifier, vars(erasure))
    return identifier


async def read_erasures(context: Context) -> dict[str, Erasure]:
    """Return all erasures, by id."""
    return {name: Erasure.decode(values) for name, values in (await context.store.people.read_erasures()).items()}


async def carry_out(context: Context) -> None:
    """Carry out every erasure that has not ended; return at once where another process does."""
    owner = secrets.token_hex(8)
    if not await context.store.people.lock(owner, lives_seconds=_LOCK_SECONDS):
        return
    renewing = asyncio.create_task(_renew(context, owner))
    try:
        for identifier, erasure in (await read_erasures(context)).items():
            if not erasure.ended:
                await _carry_out_one(context, identifier, erasure)
    finally:
        renewing.cancel()
        with suppress(SalmonError):
            await context.store.people.unlock()


async def maintain(context: Context, subprocesses: Subprocesses) -> None:
    """Go on with erasures that were cut short, and once a day remove what was kept long
    enough; runs until it is cancelled.
    """
    next_ms = 0
    while _may_erase(context.settings):
        pending = False
        try:
            pending = any(not erasure.ended for erasure in (await read_erasures(context)).values())
            if pending:
                await begin_erasing(subprocesses)
            if context.now_ms() >= next_ms:
                if task := subprocesses.begin("retention", "retention"):
                    await task
                next_ms = context.now_ms() + _DAY_MS
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again in a minute
            log.error("not erased yet", extra=fields(error=f"{type(error).__name__}: {error}"))
        # A process that was killed in the middle of an erasure keeps others from it until its lock has ended.
        await asyncio.sleep(_LOCK_SECONDS if pending else _MAINTENANCE_SECONDS)


def begin_erasing(subprocesses: Subprocesses) -> asyncio.Task[bytes]:
    """Carry out what was noted, in a subprocess."""
    task = subprocesses.begin("erase", "erase")
    assert task is not None  # noqa: S101 - it is urgent
    return task


async def _carry_out_one(context: Context, identifier: str, erasure: Erasure) -> None:
    people = context.store.people
    erasure.state = "running"
    try:
        if erasure.kind == "experiment":
            erasure.unreached = await find_elsewhere(context, erasure.experiments)
            for experiment in erasure.experiments:
                await people.delete_experiment(experiment)
                await asyncio.to_thread(_remove_damaged, context, frozenset({experiment}))
            await people.rewrite_files()
        elif erasure.sealed:
            await _erase_person(context, identifier, erasure)
            erasure.sealed, erasure.step, erasure.progress = "", "removing the note of what to erase", 0.9
            await people.note_erasure(identifier, vars(erasure))
        # What was noted to find the person goes from the append-only file too.
        await people.rewrite_files()
        erasure.state, erasure.step, erasure.progress = "done", "done", 1.0
    except ConflictError as error:
        erasure.state, erasure.error, erasure.sealed = "failed", str(error), ""
    erasure.ended_ms = context.now_ms()
    await people.note_erasure(identifier, vars(erasure))
    log.info("erased", extra=fields(erasure=identifier, kind=erasure.kind, state=erasure.state))


async def _erase_person(context: Context, identifier: str, erasure: Erasure) -> None:
    """Erase until nothing is found any more; ConflictError names where something still is."""
    people, plan = context.store.people, _Plan.unseal(erasure.sealed)

    async def note(step: str, progress: float) -> None:
        erasure.step, erasure.progress = step, progress
        await people.note_erasure(identifier, vars(erasure))

    await note("erasing in the store", 0.1)
    needles, unreached = await _needles(context, plan, erasure)
    erasure.unreached = unreached
    left: list[str] = []
    for _ in range(_PASSES):
        for experiment, participant, anonymous in await _present(context, plan, erasure):
            erasure.removed += await people.erase(experiment, participant, anonymous=anonymous)
            await note("erasing in the store", 0.3)
        await note("writing the streams anew", 0.4)
        for experiment in erasure.experiments:
            await people.compact(experiment)
        await note("writing kept bundles anew", 0.5)
        await asyncio.to_thread(_erase_files, context, plan, needles, erasure)
        await note("writing the store's file anew", 0.7)
        await people.rewrite_files()
        await note("searching the data directory", 0.8)
        left = await asyncio.to_thread(_search, context, needles)
        if await _present(context, plan, erasure):
            left.append("the store, because this person has arrived again")
        if not left:
            break
    if left:
        raise ConflictError(
            f"The person was erased, but a trace was found in {', '.join(left)}.",
            hint="Nobody may take part under this id meanwhile; then erase again.",
        )
    if not erasure.noted:
        kept = "their answers stay as anonymous rows" if erasure.answers == "keep" else "their answers were removed"
        for experiment in erasure.experiments:
            change = Change(context.now_ms(), erasure.by, "erased", f"one person; {kept}")
            await context.store.experiments.note_change(experiment, change)
        erasure.noted = True


async def _present(context: Context, plan: _Plan, erasure: Erasure) -> list[tuple[str, str, str]]:
    """Return whom of a plan the store still knows: (experiment, participant, id under which the answers stay)."""
    stand_ins = {participant: anonymous for _, participant, anonymous in plan.people}
    found: list[tuple[str, str, str]] = []
    for experiment in erasure.experiments:
        own = [participant for known, participant, _ in plan.people if known == experiment]
        for name in (*own, *plan.names):
            for participant in await context.store.people.find(experiment, name):
                if participant not in stand_ins:  # arrived since: they get a stand-in of their own
                    stand_ins[participant] = draw_participant_id() if erasure.answers == "keep" else ""
                entry = (experiment, participant, stand_ins[participant])
                if entry not in found:
                    found.append(entry)
    return found


async def _needles(context: Context, plan: _Plan, erasure: Erasure) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the texts that no file may hold afterwards, and sentences about what stays because it is others'."""
    others = [state for state in await context.store.experiments.list() if state.experiment not in erasure.experiments]
    ids = [participant for _, participant, _ in plan.people]
    wanted = {*ids, *(name for name in plan.names if len(name) >= _SHORTEST_NAME)}
    unreached: list[str] = []
    needles: set[str] = set()
    for name in wanted:
        elsewhere = [each for each in find_in_bundles(kept_folder(context), name) if each.bundle not in plan.bundles]
        if elsewhere or await context.store.people.knows(name, [state.experiment for state in others]):
            unreached.append(
                "The same id takes part in an experiment, or is in a kept bundle, that this erasure does not cover."
            )
        else:
            needles.add(name)
    if not is_local(context):
        unreached.append(f"Kept bundles lie at {context.settings.bundles_location} and were not searched.")
    unreached += await find_elsewhere(context, erasure.experiments)
    return frozenset(needles), tuple(dict.fromkeys(unreached))


def _erase_files(context: Context, plan: _Plan, needles: frozenset[str], erasure: Erasure) -> None:
    if not is_local(context):
        return
    folder = kept_folder(context)
    remove_leftovers(folder)
    for path in folder.glob(".*.zip"):
        if path.stat().st_mtime < time.time() - _STALE_SECONDS:
            path.unlink(missing_ok=True)
    erasing = Erasing({participant: anonymous for _, participant, anonymous in plan.people}, frozenset(plan.names))
    for path in bundles_in(folder):
        if path.name in plan.bundles or traces_in(path, needles):
            erase_in_bundle(path, erasing)
            erasure.bundles = tuple(dict.fromkeys((*erasure.bundles, path.name)))
    _remove_damaged(context, needles)
    for path in _logs(context):
        mask(path, needles)


def _remove_damaged(context: Context, needles: frozenset[str]) -> None:
    """Remove the copies of damaged files of the store that hold one of some texts."""
    if is_local(context):
        for path in (Path(context.settings.data) / "damaged").glob("*"):
            if path.is_file() and traces_in(path, needles):
                path.unlink()


def _search(context: Context, needles: frozenset[str]) -> list[str]:
    """Return the files of the data directory and of the logs that hold a trace. Media hold nothing of participants."""
    root = Path(context.settings.data)
    files = [*_logs(context)]
    if is_local(context):
        files += [path for path in root.rglob("*") if path.is_file() and path.relative_to(root).parts[0] != "media"]
    found: list[str] = []
    for path in files:
        with suppress(FileNotFoundError):  # a file that is gone holds nothing
            if traces_in(path, needles):
                found.append(str(path.relative_to(root)) if path.is_relative_to(root) else str(path))
    return found


def _logs(context: Context) -> list[Path]:
    folder = context.settings.log_directory
    return sorted(Path(folder).glob("*.log*")) if folder else []


def is_local(context: Context) -> bool:
    """Return whether the data directory is one of this machine."""
    return "://" not in context.settings.data


def kept_folder(context: Context) -> Path:
    """Return where bundles of deleted experiments are kept."""
    return Path(context.settings.bundles_location)


async def _renew(context: Context, owner: str) -> None:
    while True:
        await asyncio.sleep(_LOCK_SECONDS / 4)
        with suppress(SalmonError):
            await context.store.people.lock(owner, lives_seconds=_LOCK_SECONDS)


async def _visible(context: Context, order: PeopleOrder) -> dict[str, ExperimentState]:
    """Return the experiments that who asks may change, by id; those of the order where it names some."""
    if not order.name.strip():
        raise BadRequestError(
            "Whom do you look for?", hint="Give a platform id, a participant id or a link's id.", where="id"
        )
    states = [state for state in await context.store.experiments.list() if order.reaches(state)]
    if order.slugs:
        states = [state for state in states if state.slug in order.slugs]
    return {state.experiment: state for state in states}


async def _read_people(context: Context, order: PeopleOrder, experiments: Iterable[str]) -> list[StoredPerson]:
    """Return everything about a person, in each experiment; other participants of the
    same platform id are that person.
    """
    found: list[StoredPerson] = []
    for experiment in experiments:
        names = set(await context.store.people.find(experiment, order.name))
        people = [await context.store.people.read(experiment, name) for name in sorted(names)]
        for puid in {person.fields.get("puid", "") for person in people} - {"", order.name}:
            more = set(await context.store.people.find(experiment, puid)) - names
            names |= more
            people += [await context.store.people.read(experiment, name) for name in sorted(more)]
        found += people
    return found


def _nobody(name: str) -> NotFoundError:
    return NotFoundError(
        f"Nothing is stored about {name!r}.",
        hint="Check the id: capital and small letters are different. Experiments that you may not see are not searched.",
        where="id",
    )


def _counts(person: StoredPerson) -> dict[str, int]:
    kinds = {
        "consents": "consent:",
        "replies": "question:",
        "link_parameters": "arrived:",
        "comprehension": "comprehension:",
    }
    return {
        "answers": len(person.answers),
        "events": len(person.events),
        **{kind: sum(name.startswith(prefix) for name in person.fields) for kind, prefix in kinds.items()},
        "practice_trials": len(decode_json(person.fields.get("practice") or "[]")),
        "decisions": int("keep" in person.fields),
        "queries_seen": len([key for key in person.asked if key]),
        "changes": len(person.changes),
        "requests": len(person.requests),
    }


def _readable(name: str, text: str) -> Any:
    if name.endswith("_ms") or name.startswith("step:"):
        return _iso(int(text)) if text.isdecimal() and int(text) else text
    with suppress(ValueError):
        if name == "practice" or name.partition(":")[0] in {"consent", "question", "comprehension"}:
            return decode_json(text)
    return text


def _readable_answer(at: str, entry: Mapping[str, str], targets: Sequence[Any]) -> Json:
    def label(name: str) -> str:
        number = int(entry[name])
        return targets[number].filename if number < len(targets) else str(number)

    return {
        "answer": at,
        "received": _iso(int(entry["received_ms"])),
        **{name: label(name) for name in ("head", "left", "right", "winner")},
        "stored": dict(entry),
    }


def _time_of(stream_id: str) -> str:
    return _iso(int(stream_id.partition("-")[0]))


def _iso(ms: int) -> str:
    return moment(ms)
