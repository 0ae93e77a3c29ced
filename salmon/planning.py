"""Plan a study: how accurate its embedding will be after how many answers, and what those answers take.

Simulated people answer in worlds of as many targets (`salmon.simulate`). The configured sampler and random queries meet
the same worlds, and one estimator fits both from their answers alone, so that they can be compared. A band is a
prediction interval: it says where one further study will lie, not where the mean of many does. There is one refit for
each round of n queries; a running experiment refits more often.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from salmon.errors import SalmonError
from salmon.estimator import RECOMMENDED_NOISE
from salmon.learning import fit
from salmon.learning.noise_learning import RECOMMENDED_RIDGE
from salmon.samplers.registry import active_sampler
from salmon.samplers.state import State
from salmon.simulate import (
    ChoiceModel,
    RatioSigmoid,
    SimulatedParticipant,
    World,
    clustered_world,
    random_world,
    stream,
)
from salmon.spec import SamplerSpec, Spec
from salmon.spec.sampler_arguments import ACTIVE_CLASSES

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

#: The name of the curve of random queries; no sampler can have this name.
RANDOM = "random queries"
#: How people tell distances apart. "typical" was fitted to human answers about alien eggs; "clear" and "hard" have
#: about twice and half its slope.
PEOPLE: Mapping[str, ChoiceModel] = {
    "typical": RatioSigmoid(),
    "clear": RatioSigmoid(slope=35.0, error=0.03),
    "hard": RatioSigmoid(slope=9.0, error=0.1),
}
#: How the targets lie.
WORLDS = ("random", "clusters")
#: The share of studies that a band holds.
BAND = 0.8
#: A neighbour is recovered if a target's nearest one on the map is truly among so many nearest.
NEAREST = 3
# Queries on which an embedding is judged, each by its exact probability: a standard error of about .002.
_JUDGED = 20_000
# Measurements of one run, in multiples of n: closer together where accuracy rises fast.
_MEASURED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 75, 90, 110, 135, 165, 200)
# Unless a number is given, a plan looks at this share of 20·n·d·log₂(n), which is usually enough for random queries.
_SHARE_OF_USUAL = 0.3


@dataclass(frozen=True)
class Stage:
    """One run so far: all triplets (m, 3), the sampler's state, and the embedding (n, d) that was judged last.

    `curve` is the expected accuracy at every measurement, `neighbours` the share of recovered neighbours, and
    `best_possible` the accuracy of the truth.
    """

    triplets: Ints
    coordinates: Floats | None = None
    state: State | None = None
    curve: tuple[float, ...] = ()
    neighbours: tuple[float, ...] = ()
    best_possible: float = float("nan")


def advance(
    sampler: SamplerSpec | None,
    d: int,
    person: SimulatedParticipant,
    seed: int,
    answers: int,
    stage: Stage | None = None,
) -> Stage:
    """Continue a run to so many answers, a round of n queries at a time, and judge its embedding in d dimensions.

    Without a sampler all queries are random.
    """
    n = person.world.n
    stage = stage or Stage(np.zeros((0, 3), np.int32))
    while len(stage.triplets) < answers:
        stage = _ask(stage, sampler, person, min(n, answers - len(stage.triplets)), seed)
    found = fit(
        stage.triplets, n, d, noise=RECOMMENDED_NOISE, ridge=RECOMMENDED_RIDGE, start=stage.coordinates, n_starts=2,
        seed=int(stream(seed, "start").integers(2**31)),
    )  # fmt: skip
    accuracy, best = _judge(person, found.coordinates, seed)
    return replace(
        stage,
        coordinates=found.coordinates,
        curve=(*stage.curve, accuracy),
        neighbours=(*stage.neighbours, neighbour_recovery(person.world, found.coordinates)),
        best_possible=best,
    )


def neighbour_recovery(world: World, coordinates: Floats) -> float:
    """Return the share of targets whose nearest one in an embedding (n, d) is truly among their three nearest."""
    d2 = ((coordinates[:, None, :] - coordinates[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(d2, np.inf)
    nearest = d2.argmin(axis=1)
    found = 0
    for head in range(world.n):
        distances = world.distances(head)
        distances[head] = np.inf
        found += int((distances < distances[nearest[head]]).sum()) < NEAREST
    return found / world.n


def _ask(stage: Stage, sampler: SamplerSpec | None, person: SimulatedParticipant, count: int, seed: int) -> Stage:
    """Add one round: queries by the sampler from all answers so far, or random ones, and the answers to them."""
    done = len(stage.triplets)
    state = stage.state
    if sampler is None:
        queries = person.world.random_queries(count, stream(seed, "queries", done))
    else:
        active = active_sampler(sampler.sampler_class, dict(sampler.arguments))
        before = state or active.start(person.world.n, int(stream(seed, "sampler").integers(2**31)))
        state = active.refit(before, stage.triplets) if done else before
        queries = active.search(state, stage.triplets, stage.triplets[:0], count).queries
    answers, _ = person.react_all(queries, stream(seed, "answers", done))
    return replace(stage, triplets=np.concatenate([stage.triplets, answers]), state=state)


def _judge(person: SimulatedParticipant, coordinates: Floats, seed: int) -> tuple[float, float]:
    """Return (expected accuracy of an embedding on new answers to random queries, the same for the true embedding)."""
    queries = person.world.random_queries(_JUDGED, stream(seed, "judge"))
    chance = person.left_wins(queries)
    heads, first, second = coordinates[queries.T]
    nearer = np.sign(((heads - second) ** 2).sum(axis=1) - ((heads - first) ** 2).sum(axis=1))
    return float((0.5 + nearer * (chance - 0.5)).mean()), float(np.maximum(chance, 1 - chance).mean())


@dataclass(frozen=True)
class Costs:
    """What an answer takes: `useful` of a participant's `answers` are fitted, and `besides`
    minutes go to everything else.

    `pay` is for an hour; a platform adds `fee`, a share of it.
    """

    answers: int = 50
    useful: float = 50
    seconds: float = 3.0
    besides: float = 3.0
    pay: float = 0.0
    fee: float = 0.0

    @property
    def minutes(self) -> float:
        """Return how many minutes one participant is there."""
        return self.besides + self.answers * self.seconds / 60

    def participants(self, answers: float) -> int:
        """Return how many participants give so many answers that are fitted."""
        return ceil(answers / self.useful)

    def hours(self, answers: float) -> float:
        """Return the time of all participants together."""
        return self.participants(answers) * self.minutes / 60

    def money(self, answers: float) -> float:
        """Return what they are paid, with the platform's fee."""
        return self.hours(answers) * self.pay * (1 + self.fee)


@dataclass(frozen=True)
class PlannedStudy:
    """What is planned: n targets that people arrange in d dimensions, asked by a sampler (None: at random only).

    `people` and `world` name what is assumed about the answers and the targets, `lapse` is the share of answers given
    without looking, and `most` how many answers are looked at.
    """

    n: int
    d: int = 2
    sampler: SamplerSpec | None = None
    people: str = "typical"
    world: str = "random"
    lapse: float = 0.0
    most: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for value, known, what in ((self.people, PEOPLE, "people"), (self.world, WORLDS, "worlds")):
            if value not in known:
                raise SalmonError(f"There are no {what} called {value!r}.", hint=f"Choose {' or '.join(known)}.")

    @property
    def points(self) -> tuple[int, ...]:
        """Return the numbers of answers at which embeddings are judged; the last is `most`."""
        most = self.most or max(10 * self.n, ceil(_SHARE_OF_USUAL * usual_answers(self.n, self.d)))
        return (*(k * self.n for k in _MEASURED if k * self.n < most), most)

    @property
    def contenders(self) -> dict[str, SamplerSpec | None]:
        """Return what is compared, by name: random queries, and the sampler's."""
        return {RANDOM: None} | ({self.sampler.sampler_class: self.sampler} if self.sampler else {})

    def person(self, run: int) -> tuple[SimulatedParticipant, int]:
        """Return the people of one run, who answer in a world of its own, and the seed of that run."""
        seed = int(np.random.SeedSequence([self.seed, run]).generate_state(1)[0])
        choices = PEOPLE[self.people]
        if self.world == "clusters":
            world = clustered_world(seed, self.n, choices=choices)
        else:
            world = random_world(self.n, self.d, seed, choices)
        return SimulatedParticipant(world, lapse=self.lapse), seed


def usual_answers(n: int, d: int) -> int:
    """Return 20·n·d·log₂(n), a rule of thumb for random queries."""
    return ceil(20 * n * d * log2(n))


def study_of(spec: Spec, n: int, **assumed: str | float) -> PlannedStudy:
    """Return the study that a spec with n targets describes: its first active sampler, or
    Adaptive beside random queries.
    """
    found = next((one for one in spec.samplers.values() if one.sampler_class in ACTIVE_CLASSES), None)
    sampler = found or SamplerSpec(name="Adaptive", sampler_class="Adaptive")
    d = sampler.arguments.get("d", 2)
    return PlannedStudy(n, int(d) if isinstance(d, int) else 2, sampler, seed=spec.seed, **assumed)  # pyright: ignore[reportArgumentType]


def costs_of(spec: Spec, *, seconds: float, pay: float, fee: float, besides: float) -> Costs:
    """Return what an answer takes in an experiment: trials that are checks give none that is fitted."""
    answers = spec.html.max_queries if spec.html.max_queries > 0 else Costs.answers
    checks = spec.checks
    useful = answers * (1 - checks.catch - checks.repeat) - min(checks.shared, answers / 2)
    return Costs(answers, max(1.0, useful), seconds, besides, pay, fee)


@dataclass(frozen=True)
class Curve:
    """A figure at every number of answers (p,): its mean over runs, and the band in which one study lies."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, values: Floats) -> "Curve":
        """Return the curve of (runs, p) values in [0, 1]; the band is Student's prediction
        interval, nothing for one run.
        """
        mean = values.mean(axis=0)
        runs = len(values)
        if runs < 2:
            return cls(tuple(mean), (float("nan"),) * len(mean), (float("nan"),) * len(mean))
        half = float(student.ppf(0.5 + BAND / 2, runs - 1)) * np.sqrt(1 + 1 / runs) * values.std(axis=0, ddof=1)
        return cls(tuple(mean), tuple(np.maximum(0, mean - half)), tuple(np.minimum(1, mean + half)))


@dataclass(frozen=True)
class Needed:
    """How many answers reach a level: the median of runs and the band; infinite where runs did not reach it."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """What to expect of a study after `answers` (p,), by the name of what asks; `runs` simulated studies were made.

    `values` holds the accuracies (runs, p), and `best_possible` what the truth itself reaches.
    """

    study: PlannedStudy
    answers: tuple[int, ...]
    runs: int
    accuracy: Mapping[str, Curve]
    neighbours: Mapping[str, Curve]
    best_possible: float
    values: Mapping[str, Floats] = field(repr=False)

    @classmethod
    def of(cls, study: PlannedStudy, runs: Sequence[Mapping[str, Stage]]) -> "Plan":
        """Return the plan of a study from the last stage of every run, by the name of what asks."""
        values = {name: np.array([run[name].curve for run in runs]) for name in study.contenders}
        neighbours = {name: np.array([run[name].neighbours for run in runs]) for name in study.contenders}
        return cls(
            study,
            study.points,
            len(runs),
            {name: Curve.of(found) for name, found in values.items()},
            {name: Curve.of(found) for name, found in neighbours.items()},
            float(np.mean([stage.best_possible for run in runs for stage in run.values()])),
            values,
        )

    def needed(self, name: str, level: float) -> Needed:
        """Return how many answers reach an accuracy, each run's running maximum joined by straight lines.

        Where all runs reach it, the band is Student's prediction interval of the logarithm.
        """
        found = np.array([answers_to(self.answers, run, level) for run in self.values[name]])
        middle = float(np.median(found))
        if len(found) > 1 and np.isfinite(found).all():
            logs = np.log(found)
            half = float(student.ppf(0.5 + BAND / 2, len(logs) - 1)) * np.sqrt(1 + 1 / len(logs)) * logs.std(ddof=1)
            return Needed(middle, *(float(np.exp(logs.mean() + sign * half)) for sign in (-1, 1)))
        return Needed(middle, float(np.quantile(found, (1 - BAND) / 2, method="lower")), inf)

    def usual_level(self) -> float:
        """Return an accuracy worth aiming at: two points below what is possible, or what nine
        of ten studies reach in the end.
        """
        reached = max(curve.low[-1] for curve in self.accuracy.values())
        return float(np.floor(100 * min(self.best_possible - 0.02, reached)) / 100)


def answers_to(answers: Sequence[int], accuracy: Sequence[float] | Floats, level: float) -> float:
    """Return where the running maximum of a curve first reaches a level; infinity where it never does."""
    best = np.maximum.accumulate(np.asarray(accuracy))
    if best[-1] < level:
        return inf
    at = int(np.argmax(best >= level))
    if at == 0:
        return float(answers[0])
    share = (level - best[at - 1]) / (best[at] - best[at - 1])
    return float(answers[at - 1] + share * (answers[at] - answers[at - 1]))


def simulate(
    study: PlannedStudy, runs: int, progress: Callable[[int, int], None] = lambda _, __: None
) -> Iterator[Plan]:
    """Simulate a study so many times; yield the plan after each run, which gets more certain.

    `progress` is called with how many measurements of all are done.
    """
    contenders, points = study.contenders, study.points
    total = runs * len(contenders) * len(points)
    made: list[dict[str, Stage]] = []
    done = 0
    for run in range(runs):
        person, seed = study.person(run)
        ends: dict[str, Stage] = {}
        for name, sampler in contenders.items():
            stage = Stage(np.zeros((0, 3), np.int32))
            for answers in points:
                stage = advance(sampler, study.d, person, seed, answers, stage)
                done += 1
                progress(done, total)
            ends[name] = stage
        made.append(ends)
        yield Plan.of(study, made)


def as_dict(plan: Plan, costs: Costs, level: float) -> dict[str, Any]:
    """Return the plan as plain values; what is not known is None."""
    study = plan.study
    return {
        "targets": study.n,
        "dimensions": study.d,
        "people": study.people,
        "world": study.world,
        "lapse": study.lapse,
        "seed": study.seed,
        "runs": plan.runs,
        "best_possible": plan.best_possible,
        "answers": list(plan.answers),
        "accuracy": {name: _plain(curve) for name, curve in plan.accuracy.items()},
        "neighbours": {name: _plain(curve) for name, curve in plan.neighbours.items()},
        "to_reach": {"accuracy": level, **{name: _needs(plan.needed(name, level), costs) for name in plan.accuracy}},
        "participant": {"answers": costs.answers, "fitted_answers": costs.useful, "minutes": costs.minutes},
        "texts": texts(plan, costs, level),
    }


def _plain(curve: Curve) -> dict[str, list[float | None]]:
    return {
        name: [value if isfinite(value) else None for value in values]
        for name, values in (("mean", curve.mean), ("low", curve.low), ("high", curve.high))
    }


def _needs(needed: Needed, costs: Costs) -> dict[str, Any]:
    def of(answers: float) -> dict[str, Any] | None:
        if not isfinite(answers):
            return None
        return {
            "answers": round(answers),
            "participants": costs.participants(answers),
            "hours": round(costs.hours(answers), 2),
            "money": round(costs.money(answers), 2),
        }

    return {"middle": of(needed.middle), "low": of(needed.low), "high": of(needed.high)}


def texts(plan: Plan, costs: Costs, level: float) -> dict[str, str]:
    """Return the paragraphs for the form of an ethics board and for a preregistration."""
    return {
        "ethics": ethics_paragraph(plan, costs, level),
        "preregistration": preregistration_paragraph(plan, costs, level),
    }


def ethics_paragraph(plan: Plan, costs: Costs, level: float) -> str:
    """Return a paragraph for the form of an ethics board: how many people, how long, and what they are paid."""
    name, needed = _best(plan, level)
    if not isfinite(needed.high):
        return (
            f"The number of participants follows from a simulation, but an accuracy of {level:.0%} was not reached reliably"
            f" within {plan.answers[-1]:,} answers; it has to be planned again with more."
        )
    people = costs.participants(needed.high)
    paid = f" They are paid {costs.pay:.2f} an hour, so {costs.minutes / 60 * costs.pay:.2f} each." if costs.pay else ""
    return (
        f"Each participant gives {costs.answers} judgements of the kind “which of two things is more like a third?”, which"
        f" takes about {costs.minutes:.0f} minutes. We ask for up to {people} participants ({costs.hours(needed.high):.1f} hours"
        f" in all).{paid} The number follows from {plan.runs} simulated studies of {plan.study.n} targets with queries by"
        f" {name}: in {0.5 + BAND / 2:.0%} of such studies {needed.high:,.0f} answers are enough for an embedding that predicts {level:.0%} of"
        f" new judgements, where at most {plan.best_possible:.0%} can be predicted. Judgements are stored under a random"
        " participant number."
    )


def preregistration_paragraph(plan: Plan, costs: Costs, level: float) -> str:
    """Return a paragraph for a preregistration: design, sample size, stopping and the figure that will be reported."""
    name, needed = _best(plan, level)
    study = plan.study
    sample = (
        f"We plan {needed.middle:,.0f} answers ({BAND:.0%} of simulated studies: {needed.low:,.0f} to {needed.high:,.0f}),"
        f" which is {costs.participants(needed.middle)} participants with {costs.answers} trials each, and stop at"
        f" {needed.high:,.0f} answers at the latest."
        if isfinite(needed.high)
        else f"Within {plan.answers[-1]:,} answers not all simulated studies reached this accuracy."
    )
    return (
        f"Participants judge which of two targets is more like a third; there are {study.n} targets. Queries are chosen by"
        f" {name}. An ordinal embedding in {study.d} dimensions is fitted to all answers that are no checks. Its accuracy is"
        " the share of answers to random queries that it predicts, from fits without those answers (cross-validation, with"
        f" all answers about the same three targets held out together). The aim is an accuracy of {level:.0%}. {sample} These"
        f" numbers come from {plan.runs} simulated studies (people: {study.people}; targets: {study.world};"
        f" {study.lapse:.0%} of answers without looking; seed {study.seed})."
    )


def _best(plan: Plan, level: float) -> tuple[str, Needed]:
    """Return what asks for the fewest answers to reach a level."""
    needed = {name: plan.needed(name, level) for name in plan.accuracy}
    name = min(needed, key=lambda one: (needed[one].middle, needed[one].low, one == RANDOM))
    return name, needed[name]
