"""Experiments as they are served: each revision is read from the store and parsed once, then kept."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Self, cast

from frontend.errors import NotFoundError
from frontend.security import Session
from frontend.store import Store
from frontend.store.experiments import ExperimentState, Revision
from frontend.store.participants import Participant
from frontend.store.places import Quota
from salmon import __version__
from salmon.errors import SpecError
from salmon.samplers.passive import PASSIVE, PassiveSampler
from salmon.spec import Manifest, Spec, TargetSpec, read_stored_spec, targets_of
from salmon.spec.sampler_arguments import ACTIVE_CLASSES
from salmon.spec.schema import Checks


@dataclass(frozen=True)
class SamplingPlan:
    """What of an experiment decides about sampling; hashable.

    `checks` is None where there are none; `trials` is how many trials a participant has (0 or less: without end).
    `race` is the share of trials that are held out to compare samplers.
    """

    samplers: tuple[str, ...]
    probabilities: tuple[int, ...]
    samplers_per_user: int
    details: tuple[tuple[int, str, tuple[int, int, int] | None], ...]
    seed: int
    checks: Checks | None = None
    trials: int = 0
    race: float = 0.0


@dataclass(frozen=True)
class ParsedRevision:
    """One revision of an experiment, which never changes. `manifest` is the list of its
    files where targets came in a ZIP.
    """

    spec: Spec
    manifest: Manifest | None
    targets: tuple[TargetSpec, ...]
    plan: SamplingPlan
    passive: dict[str, PassiveSampler]
    shown_targets: tuple[int, ...] | None = field(default=None, kw_only=True)  # of one group; None where all are shown

    @property
    def quota(self) -> Quota:
        """How many places there are, and in each group."""
        groups = tuple((name, group.participants) for name, group in self.spec.groups.items())
        known = tuple((name, places) for name, places in groups if places is not None)
        return Quota(self.spec.stopping.participants or 0, known)

    @property
    def active_samplers(self) -> tuple[str, ...]:
        """The samplers that fit a map while the experiment runs."""
        return tuple(name for name, one in self.spec.samplers.items() if one.sampler_class in ACTIVE_CLASSES)

    def dimensions_of(self, sampler: str) -> int:
        """Return the dimensions that a sampler's embedding has."""
        d = self.spec.samplers[sampler].arguments.get("d", self.spec.sampling.common.get("d", 2))
        return d if isinstance(d, int) else 2

    def has_enough(self, answers: int) -> bool:
        """Return whether so many answers are all that the experiment wanted."""
        wanted = self.spec.stopping.answers
        return wanted is not None and answers >= wanted

    def for_participant(self, participant: Participant) -> Self:
        """Return the experiment as one participant meets it: that of their group, and nothing fixed or shared that the
        same person was asked before.
        """
        own = self.for_group(participant.group)
        if participant.round == 0:
            return own
        shares = dict(zip(own.plan.samplers, own.plan.probabilities, strict=True))
        drawn = {name: share for name, share in shares.items() if not _is_a_fixed_set(own.passive.get(name))}
        drawn = drawn if any(drawn.values()) else shares
        checks = own.plan.checks
        if checks is not None:
            checks = checks.model_copy(update={"shared": 0})
            checks = checks if checks.catch or checks.repeat else None
        plan = replace(own.plan, samplers=tuple(drawn), probabilities=tuple(drawn.values()), details=(), checks=checks)
        return replace(own, plan=plan)

    def for_group(self, name: str) -> Self:
        """Return the experiment as one group of participants meets it; itself where there is no such group."""
        group = self.spec.groups.get(name) if name else None
        if group is None:
            return self
        plan = self.plan
        if group.samplers:
            shares = dict(zip(plan.samplers, plan.probabilities, strict=True))
            kept = tuple(sampler for sampler in plan.samplers if sampler in group.samplers)
            plan = replace(plan, samplers=kept, probabilities=tuple(shares[sampler] for sampler in kept))
        shown = None
        if group.targets is not None:
            shown = tuple(target.index for target in self.targets if target.filename in group.targets)
        return replace(self, spec=self.spec.for_group(name), plan=plan, shown_targets=shown)

    def group_of(self, place: int) -> str:
        """Return the group of the participant who came at this place, from 0.

        Of as many who come one after the other as there are groups, each gets another, in an order that is drawn anew.
        """
        names = tuple(self.spec.groups)
        if not names:
            return ""
        block, turn = divmod(place, len(names))
        return Random(f"{self.plan.seed}:groups:{block}").sample(names, len(names))[turn]

    @property
    def files(self) -> tuple[TargetSpec, ...]:
        """The targets, and the pictures of texts: everything that may have a file."""
        return (*self.targets, *(self.manifest.picture_files() if self.manifest is not None else ()))


@dataclass(frozen=True)
class ServedExperiment(ParsedRevision):
    """The newest revision of an experiment, with its state as it was when the experiment was looked up."""

    state: ExperimentState

    @property
    def id(self) -> str:
        """The id of the experiment, E in the names of its keys."""
        return self.state.experiment


@dataclass
class OpenPage:
    """A page whose participant is in the trials: its session, the participant as they were when it
    first asked, and the experiment as they meet it.

    `last_fixed` is the last trial whose query is fixed, and `loads_ahead` whether files are loaded trial by trial.
    `position` is the last place in the experiment's order at which the page was seen to be: the next turn will probably
    be at the next.
    """

    session: Session
    participant: Participant
    experiment: ServedExperiment
    last_fixed: int
    loads_ahead: bool
    position: int


class OpenPages:
    """The pages that ask this process, by their key; of too many, the oldest are forgotten.

    What is remembered is compared with the store where a turn begins, in the same call.
    """

    _MOST = 5_000

    def __init__(self) -> None:
        self._pages: dict[str, OpenPage] = {}

    def find(self, key: str) -> OpenPage | None:
        """Return what is known of the page with this key, whose signature was checked then."""
        return self._pages.get(key)

    def remember(self, key: str, page: OpenPage) -> None:
        """Remember a page whose participant may ask."""
        if len(self._pages) >= self._MOST:
            del self._pages[next(iter(self._pages))]
        self._pages[key] = page

    def forget(self, key: str) -> None:
        """Forget a page of which something has changed."""
        self._pages.pop(key, None)


class Catalogue:
    """Lookup of experiments; a revision never changes, so it is parsed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parsed: dict[tuple[str, int], ParsedRevision] = {}
        self._newest: tuple[str, ServedExperiment | None] | None = None

    async def find(self, slug: str) -> ServedExperiment:
        """Return the experiment of this name, with its newest revision."""
        experiment = await self._store.experiments.find(slug)
        if experiment is None:
            raise NotFoundError(
                f"There is no experiment called {slug!r} here.",
                hint="Check the link, or ask the people who sent it to you.",
            )
        return await self.read(experiment)

    async def origins_of(self, slug: str) -> tuple[str, ...]:
        """Return the origins whose pages may show an experiment; none where there is no such experiment."""
        experiment = await self._store.experiments.find(slug)
        return (await self.read(experiment)).spec.security.origins if experiment else ()

    async def read(self, experiment: str) -> ServedExperiment:
        """Return the experiment of this id, with its newest revision."""
        state = await self._store.experiments.read(experiment)
        return ServedExperiment(**vars(await self.revision(experiment, state.revision)), state=state)

    async def read_newest(self) -> ServedExperiment | None:
        """Return the experiment that addresses without a name mean, read anew after every change that was announced.

        Whoever serves it compares its state where they write: a change may not have been announced yet.
        """
        version = await self._store.experiments.read_version()
        if self._newest is None or self._newest[0] != version:
            state = newest(await self._store.experiments.list())
            self._newest = (version, await self.read(state.experiment) if state is not None else None)
        return self._newest[1]

    def forget_newest(self) -> None:
        """Read it anew next time: its state is another one."""
        self._newest = None

    async def revision(self, experiment: str, revision: int) -> ParsedRevision:
        """Return one revision, parsed; read from the store the first time only."""
        known = self._parsed.get((experiment, revision))
        if known is None:
            known = parse_revision(await self._store.experiments.read_revision(experiment, revision))
            self._parsed[experiment, revision] = known
        return known


def newest(states: Iterable[ExperimentState]) -> ExperimentState | None:
    """Return the open experiment that was opened last, or else the last of all; archived ones
    and rehearsals are passed over.
    """
    return max(
        [state for state in states if not state.counters.get("archived") and not state.rehearsal_of],
        key=lambda state: (state.state == "open", state.opened_ms, state.created_ms),
        default=None,
    )


def _is_a_fixed_set(sampler: PassiveSampler | None) -> bool:
    """Return whether a sampler asks everybody the same queries."""
    return sampler is not None and sampler.repeats


def make_revision(source: str, spec: Spec, manifest: Manifest | None, *, now_ms: int) -> Revision:
    """Return what is stored of a description: as written, and with every default, so that
    later defaults change nothing.
    """
    return Revision(
        source,
        spec.to_json(),
        manifest.dump() if manifest is not None else None,
        created_ms=now_ms,
        app_version=__version__,
    )


def parse_revision(revision: Revision) -> ParsedRevision:
    """Return a stored revision as it is served; NotFoundError where this version cannot read it."""
    manifest = Manifest.load(revision.manifest) if revision.manifest else None
    try:
        spec = read_stored_spec(revision.spec, manifest)
    except SpecError as error:
        raise NotFoundError(
            f"This version of Salmon cannot read the stored experiment: {error}",
            hint="Export it with the version that created it.",
        ) from error
    probabilities = spec.probabilities
    plan = SamplingPlan(
        samplers=tuple(probabilities),
        probabilities=tuple(probabilities.values()),
        samplers_per_user=1 if spec.sampling.race else spec.sampling.samplers_per_user,
        details=tuple((k, detail.sampler, detail.query) for k, detail in spec.sampling.details.items()),
        seed=spec.seed,
        checks=spec.checks if spec.checks.catch or spec.checks.repeat or spec.checks.shared else None,
        trials=spec.html.max_queries,
        race=spec.sampling.race,
    )
    passive = {
        name: PASSIVE[sampler.sampler_class](**cast("dict[str, Any]", dict(sampler.arguments)))
        for name, sampler in spec.samplers.items()
        if sampler.sampler_class in PASSIVE
    }
    return ParsedRevision(spec, manifest, targets_of(spec, manifest), plan, passive)
