"""What the files of an export need to know beside the answers: read when it is first needed, once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from frontend.context import Context
from frontend.errors import NotFoundError
from frontend.experiments import Experiment
from frontend.store.models import ARRAYS
from frontend.transfer.orders import Order
from salmon.export import RevisionNames, TargetNames
from salmon.export.participants import Conduct, Decision
from salmon.export.readme import RevisionRecord
from salmon.export.targets_models import Generation
from salmon.quality import Evidence, judge
from salmon.spec import Manifest
from salmon.wire import StoredVerdicts, decode_array, decode_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

People = dict[str, dict[str, str]]

#: Dimensions of a table of embeddings where no sampler learns.
_DIMENSIONS = 2


class Collection:
    """One experiment as of its last answer, `until`: what comes later is in no file."""

    def __init__(self, context: Context, experiment: Experiment, order: Order, until: str) -> None:
        self.context = context
        self.experiment = experiment
        self.order = order
        self.until = until
        self.logbook = context.store.logbook
        self.targets = [TargetNames(target.html, target.filename) for target in experiment.targets]
        self._judgement: StoredVerdicts | None = None
        self._people: People | None = None
        self._revisions: list[RevisionRecord] | None = None
        self._manifest: Manifest | None = None

    @staticmethod
    async def open(context: Context, order: Order) -> Collection:
        """The experiment of an order."""
        experiment = await context.catalogue.find(order.slug)
        known = experiment.spec.samplers
        if order.sampler and order.sampler not in known:
            raise NotFoundError(
                f"There is no sampler called {order.sampler!r} here.",
                hint=f"There is {', '.join(known)}.",
                where="sampler",
            )
        return Collection(context, experiment, order, await context.store.logbook.last_answer(experiment.id))

    @property
    def samplers(self) -> tuple[str, ...]:
        """The samplers asked for."""
        return (self.order.sampler,) if self.order.sampler else tuple(self.experiment.spec.samplers)

    @property
    def questions(self) -> tuple[str, ...]:
        """The names of the questions after the trials."""
        return tuple(question.name for question in self.experiment.spec.questions)

    async def revisions(self) -> list[RevisionRecord]:
        """Every revision, in order."""
        if self._revisions is None:
            found = await self.logbook.read_revisions(self.experiment.id)
            contents = {number: decode_json(text) for number, text in found.items()}
            self._revisions = [
                RevisionRecord(number, content["created_ms"], content["spec"], content.get("app_version", ""))
                for number, content in contents.items()
            ]
            newest = contents[self.experiment.state.revision]["manifest"]
            self._manifest = Manifest.load(newest) if newest else None
        return self._revisions

    async def manifest(self) -> Manifest | None:
        """The list of target files, where there are any."""
        await self.revisions()
        return self._manifest

    async def revision_names(self) -> dict[int, RevisionNames]:
        """How each revision appears in a row."""
        catalogue, experiment = self.context.catalogue, self.experiment.id
        return {
            revision.number: RevisionNames(
                (await catalogue.revision(experiment, revision.number)).spec.seed,
                revision.config_hash,
                revision.app_version,
            )
            for revision in await self.revisions()
        }

    async def dimensions(self) -> int:
        """Columns that every embedding fits into: the most dimensions that any revision gives to a sampler."""
        catalogue, experiment = self.context.catalogue, self.experiment.id
        specs = [(await catalogue.revision(experiment, revision.number)).spec for revision in await self.revisions()]
        written = [sampler.arguments.get("d") for spec in specs for sampler in spec.samplers.values()]
        return max((d for d in written if isinstance(d, int)), default=_DIMENSIONS)

    async def people(self) -> People:
        """What is known of everybody who arrived or has answered, in the order of arriving."""
        if self._people is None:
            arrivals = await self.logbook.read_arrivals(self.experiment.id)
            judged = (await self.judgement()).verdicts
            names = list(dict.fromkeys((*arrivals.values(), *judged)))
            found: People = {}
            async for page in self.logbook.read_people(self.experiment.id, names):
                found.update((name, values) for name, values in page if values or name in judged)
            self._people = dict(sorted(found.items(), key=lambda item: (int(item[1].get("first_ms", 0)), item[0])))
        return self._people

    async def puids(self) -> Mapping[str, str]:
        """The id that is written for each participant: none where ids of platforms are left out."""
        if not self.order.personal:
            return {}
        return {name: values["puid"] for name, values in (await self.people()).items() if "puid" in values}

    async def decisions(self) -> dict[str, Decision]:
        """Whom the experimenter keeps."""
        verdicts = (await self.judgement()).verdicts
        return {name: Decision.of(values, verdicts.get(name)) for name, values in (await self.people()).items()}

    async def excluded(self) -> dict[str, str]:
        """Participants who are left out of analyses, with the reason."""
        return {name: decision.reason for name, decision in (await self.decisions()).items() if not decision.keep}

    async def judgement(self) -> StoredVerdicts:
        """The verdicts on everybody: as remembered, if nothing has happened since; otherwise found out and remembered."""
        if self._judgement is None:
            decisions = self.experiment.state.counters.get("decisions", 0)
            known = StoredVerdicts.decode(await self.logbook.read_judgement(self.experiment.id))
            if known is None or (known.as_of, known.decisions) != (self.until, decisions):
                known = await self._judge(decisions)
                await self.logbook.remember_judgement(self.experiment.id, known.encode())
            self._judgement = known
        return self._judgement

    async def conduct(self) -> dict[str, Conduct]:
        """What the events tell of each participant."""
        found: dict[str, Conduct] = {}
        async for page in self.logbook.read_events(self.experiment.id):
            for _, entry in page:
                found.setdefault(entry.get("participant", ""), Conduct()).note(entry)
        return found

    async def generations(self, sampler: str) -> AsyncIterator[Generation]:
        """A sampler's history, in order."""
        async for _, entry in self.logbook.read_history(self.experiment.id, sampler):
            yield generation_of(sampler, entry, "coordinates")

    async def newest(self, sampler: str) -> Generation | None:
        """A sampler's newest embedding: the one that is shown where there is one."""
        entry = await self.logbook.read_model(self.experiment.id, sampler)
        return generation_of(sampler, entry, "reported" if "reported" in entry else "coordinates") if entry else None

    async def _judge(self, decisions: int) -> StoredVerdicts:
        evidence = Evidence(len(self.targets))
        async for page in self.logbook.read_answers(self.experiment.id, until=self.until):
            for _, answer in page:
                evidence.add(answer)
        limit = self.experiment.spec.html.max_queries
        asked: dict[str, int] = {}
        excluded: set[str] = set()
        async for page in self.logbook.read_people(self.experiment.id, list(evidence.traces)):
            for name, values in page:
                asked[name] = limit if limit > 0 else int(values.get("turns", 0))
                if values.get("keep") == "exclude":
                    excluded.add(name)
        verdicts = judge(
            evidence, asked=asked, excluded=frozenset(excluded), coordinates=await self._map_of_most_answers()
        )
        return StoredVerdicts(self.until, decisions, verdicts)

    async def _map_of_most_answers(self) -> NDArray[Any] | None:
        """The newest embedding of the sampler whose model has seen most answers."""
        found = [await self.newest(sampler) for sampler in self.experiment.spec.samplers]
        known = [generation for generation in found if generation is not None]
        return max(known, key=lambda generation: generation.answers).coordinates if known else None


def generation_of(sampler: str, entry: Mapping[str, bytes], array: str) -> Generation:
    """A model or a line of history, with the coordinates of one of its arrays where it has them."""
    numbers = {name: value.decode() for name, value in entry.items() if name not in ARRAYS}
    return Generation(sampler, numbers, decode_array(entry[array]) if array in entry else None)
