"""Source of exports: what they need to know beside the answers, each part read once, when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256

from frontend.context import Context
from frontend.errors import NotFoundError
from frontend.experiments import ServedExperiment
from frontend.store.experiments import Revision
from frontend.store.models import NewestModel, PublishedModel
from frontend.store.participants import Participant
from frontend.transfer.participant_tables import Conduct
from frontend.transfer.subprocesses import OF_ANSWERS, ExportOrder
from salmon.export import RevisionRecord, TargetNames
from salmon.export.targets_models import Generation
from salmon.quality import Decision, Evidence, judge
from salmon.wire import StoredVerdicts, decode_array

People = dict[str, Participant]

#: Dimensions of a table of embeddings where no sampler learns.
_DIMENSIONS = 2


class ExportSource:
    """One experiment as of its last answer, `until`: what comes later is in no file."""

    def __init__(self, context: Context, experiment: ServedExperiment, order: ExportOrder, until: str) -> None:
        self.context = context
        self.experiment = experiment
        self.order = order
        self.until = until
        self.export_reader = context.store.export_reader
        self.export_reader.leave_out_damaged = order.damaged == "leave_out"
        self.targets = [TargetNames(target.html, target.filename) for target in experiment.targets]
        self._quality: StoredVerdicts | None = None
        self._judged = False
        self._people: People | None = None
        self._revisions: dict[int, RevisionRecord] | None = None
        self._media_problems: dict[str, str] | None = None

    @staticmethod
    async def open(context: Context, order: ExportOrder) -> ExportSource:
        """Return the experiment of an order."""
        experiment = await context.catalogue.find(order.slug)
        known = experiment.spec.samplers
        if order.sampler and order.sampler not in known:
            raise NotFoundError(
                f"There is no sampler called {order.sampler!r} here.",
                hint=f"There is {', '.join(known)}.",
                where="sampler",
            )
        source = ExportSource(context, experiment, order, await context.store.export_reader.last_answer(experiment.id))
        if order.name in OF_ANSWERS:
            # Before the first byte is sent: afterwards, an error could only break the connection.
            await source.quality()
            if not source._judged:
                await source.export_reader.verify(experiment.id, until=source.until)
        return source

    @property
    def samplers(self) -> tuple[str, ...]:
        """The samplers asked for."""
        return (self.order.sampler,) if self.order.sampler else tuple(self.experiment.spec.samplers)

    @property
    def questions(self) -> tuple[str, ...]:
        """The names of the questions after the trials."""
        return tuple(question.name for question in self.experiment.spec.questions)

    async def revisions(self) -> dict[int, RevisionRecord]:
        """Return every revision by its number, in order."""
        if self._revisions is None:
            found = await self.context.store.experiments.read_revisions(self.experiment.id)
            stored = {number: Revision.decode(text) for number, text in found.items()}
            self._revisions = {
                number: RevisionRecord(
                    revision.created_ms,
                    (await self.context.catalogue.revision(self.experiment.id, number)).spec.seed,
                    sha256(revision.spec.encode()).hexdigest()[:16],
                    revision.app_version,
                )
                for number, revision in stored.items()
            }
        return self._revisions

    async def media_problems(self) -> dict[str, str]:
        """Return name of the medium → sentence, for media that are missing or were altered."""
        if self._media_problems is None:
            self._media_problems = await asyncio.to_thread(self.context.media.problems, self.experiment.files)
        return self._media_problems

    async def dimensions(self) -> int:
        """Columns that every embedding fits into: the most dimensions that any revision gives to a sampler."""
        catalogue, experiment = self.context.catalogue, self.experiment.id
        specs = [(await catalogue.revision(experiment, number)).spec for number in await self.revisions()]
        written = [sampler.arguments.get("d") for spec in specs for sampler in spec.samplers.values()]
        return max((d for d in written if isinstance(d, int)), default=_DIMENSIONS)

    async def people(self) -> People:
        """Return what is known of everybody who arrived or has answered, in the order of arriving."""
        if self._people is None:
            arrivals = await self.export_reader.read_arrivals(self.experiment.id)
            judged = (await self.quality()).verdicts
            names = list(dict.fromkeys((*arrivals.values(), *judged)))
            found: People = {}
            async for page in self.export_reader.read_people(self.experiment.id, names):
                found.update((person.id, person) for person in page if person.stored or person.id in judged)
            self._people = dict(sorted(found.items(), key=lambda item: (item[1].first_ms, item[0])))
        return self._people

    async def puids(self) -> Mapping[str, str]:
        """Return the id that is written for each participant: none where ids of platforms are left out."""
        if not self.order.personal:
            return {}
        return {name: person.puid for name, person in (await self.people()).items() if person.stored}

    async def decisions(self) -> dict[str, Decision]:
        """Return the decision about each participant."""
        verdicts = (await self.quality()).verdicts
        return {name: person.decision(verdicts.get(name)) for name, person in (await self.people()).items()}

    async def excluded(self) -> dict[str, str]:
        """Return participants who are left out of analyses, with the reason."""
        return {name: decision.reason for name, decision in (await self.decisions()).items() if not decision.keep}

    async def quality(self) -> StoredVerdicts:
        """Return the verdicts on everybody: as remembered, or found and remembered
        where something has happened since.
        """
        if self._quality is None:
            decisions = self.experiment.state.counters.get("decisions", 0)
            newest = await self.context.store.models.find_newest(
                self.experiment.id, tuple(self.experiment.spec.samplers)
            )
            known = await self.context.store.participants.read_verdicts(self.experiment.id)
            now = (self.until, decisions, newest.name if newest else "")
            people = self.context.store.participants
            if known is None or (known.as_of, known.decisions, known.model) != now:
                known = await self._judge(decisions, newest)
                await people.remember_verdicts(self.experiment.id, known)
            elif await people.read_proposals(self.experiment.id) is None:  # an earlier version found these verdicts
                await people.remember_verdicts(self.experiment.id, known)
            self._quality = known
        return self._quality

    async def conduct(self) -> dict[str, Conduct]:
        """Return what the events say about each participant."""
        found: dict[str, Conduct] = {}
        async for page in self.export_reader.read_events(self.experiment.id):
            for _, entry in page:
                found.setdefault(entry.get("participant", ""), Conduct()).note(entry)
        return found

    async def generations(self, sampler: str) -> AsyncIterator[Generation]:
        """Yield a sampler's history, in order."""
        async for _, model in self.context.store.models.read_history(self.experiment.id, sampler):
            yield _decode_generation(sampler, model, "coordinates")

    async def newest(self, sampler: str) -> Generation | None:
        """Return a sampler's newest embedding: the one that is shown where there is one."""
        model = await self.context.store.models.read(self.experiment.id, sampler)
        if model is None:
            return None
        return _decode_generation(sampler, model, "reported" if "reported" in model.arrays else "coordinates")

    async def _judge(self, decisions: int, newest: NewestModel | None) -> StoredVerdicts:
        # The newest model is named before it is read: where another is published in between, verdicts are found once
        # more.
        shown, checks = await self.newest(newest.sampler) if newest else None, self.experiment.spec.checks
        evidence = Evidence(len(self.targets), checks.obvious)
        async for columns in self.export_reader.read_columns(self.experiment.id, until=self.until):
            evidence.add_columns(
                columns.column("participant"),
                columns.column("trial_type"),
                columns.column("head"),
                columns.column("left"),
                columns.column("right"),
                columns.column("winner"),
                columns.column("rt_ms"),
            )
        self._judged = True
        limit = self.experiment.spec.html.max_queries
        asked: dict[str, int] = {}
        excluded: set[str] = set()
        async for page in self.export_reader.read_people(self.experiment.id, list(evidence.traces)):
            for person in page:
                asked[person.id] = limit if limit > 0 else person.turns
                if person.keep == "exclude":
                    excluded.add(person.id)
        verdicts = judge(
            evidence,
            asked=asked,
            excluded=frozenset(excluded),
            coordinates=shown.coordinates if shown else None,
            tolerate=None if checks.on_failure == "nothing" else checks.tolerate,
        )
        return StoredVerdicts(self.until, decisions, newest.name if newest else "", verdicts)


def _decode_generation(sampler: str, model: PublishedModel, array: str) -> Generation:
    """Return a model or a line of history, with the coordinates of one of its arrays where it has them."""
    return Generation(sampler, model.numbers, decode_array(model.arrays[array]) if array in model.arrays else None)
