"""Define the jobs that an experimenter may request of the learning process, and their arguments.

There are six kinds: an embedding without some participants (`fit`), an embedding as it was (`embedding`), the
comparison of dimensions and noise models (`cross_validation`), the plan of a study by simulated ones (`plan`), the
groups of people who see similarity differently (`groups`), and the comparison of samplers that an experiment lets race
(`race`).
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, NotRequired, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict  # pydantic reads no other below Python 3.12

from salmon.errors import Problem, SpecError, did_you_mean, listed, shown
from salmon.spec import Spec
from salmon.spec.sampler_arguments import ACTIVE_CLASSES, NOISE_MODELS, noise_of
from salmon.spec.values import Misfit, choice, number, whole, word

#: The recommended noise model; t-STE, too, is best shown by its power form.
RECOMMENDED = "PowerTSTE"
#: Noise models that are compared where none are named.
COMPARED = (RECOMMENDED, "TSTE", "STE", "CKL", "SOE", "GNMDS")

MOST_DIMENSIONS = 10
#: Fits of one comparison, and targets and answers a target of one plan: more would keep others waiting for hours.
MOST_FITS = 2000
MOST_PLANNED = 300
MOST_ANSWERS_A_TARGET = 200
#: Groups of people that are looked for.
MOST_GROUPS = 8
#: Entries of one list.
MOST_LISTED = 10_000
#: The form of a participant's id.
PARTICIPANT = re.compile(r"[a-z0-9]{1,40}")

_FROZEN = ConfigDict(extra="forbid")


class Estimate(TypedDict):
    """An accuracy on held-out answers with its 95 % interval, and the log-loss in nats."""

    accuracy: float
    low: float
    high: float
    log_loss: float


#: The held-out accuracy of the embedding of `everybody`, which the overview shows; where participants are excluded, the
#: accuracy on the random answers of the others alone, fitted `with` and `without` the excluded ones, and the `change`.
HeldOutAccuracy = TypedDict(
    "HeldOutAccuracy",
    {
        "answers": int,
        "folds": int,
        "everybody": Estimate,
        "kept_answers": NotRequired[int],
        "with": NotRequired[Estimate],
        "without": NotRequired[Estimate],
        "change": NotRequired[Estimate],
    },
)


class ExcludedAnswers(TypedDict):
    """The participants and answers that a fit leaves out, and the share that its embedding predicts of them."""

    participants: int
    answers: int
    accuracy: float


class StartedFrom(TypedDict):
    """The published map that a fit started from beside others, as `salmon fit --start` reads it."""

    source: str
    targets: list[int]
    coordinates: list[list[float]]


class FitResult(TypedDict):
    """Result of a job `fit`: an embedding on its principal axes, how well it predicts, and where it started."""

    coordinates: Any
    noise: dict[str, Any]
    answers: int
    loss: float
    accuracy: float
    converged: bool
    sampler: str
    start: StartedFrom | None
    excluded: ExcludedAnswers
    held_out: HeldOutAccuracy | None
    ceiling: dict[str, Any] | None
    notes: list[str]


class RequestError(SpecError):
    """Raised for a job that cannot be carried out as requested; `problems` lists everything wrong with it."""

    code = "bad_request"


def _as_list(value: Any) -> list[Any]:
    """Return several values as a list; one value alone needs no list."""
    items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownArgumentType]
    if len(items) > MOST_LISTED:
        raise Misfit(sentence=f"{{label}} has {len(items):,} entries; at most {MOST_LISTED:,} are read.")
    return items


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _at_least_one(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise Misfit(sentence="{label} names nothing to compare.", hint="Leave it out for the default.")
    return values


def _active_sampler(value: Any, info: ValidationInfo) -> str:
    """Read a sampler's name exactly as the experiment's file has it; it is empty if the experiment has no active
    sampler.
    """
    names: list[str] | None = (info.context or {}).get("active")
    if names is not None and not names and value != "":
        raise Misfit(sentence="This experiment has no active sampler.", hint="Leave sampler out.")
    if names and value not in names:
        raise Misfit(f"an active sampler of this experiment ({listed(names)})", hint=did_you_mean(str(value), names))
    return str(value)


Sampler = Annotated[str, BeforeValidator(_active_sampler)]
Dimensions = Annotated[int, BeforeValidator(whole(1, MOST_DIMENSIONS))]
Noise = Annotated[str, BeforeValidator(choice(*NOISE_MODELS))]
Folds = Annotated[int, BeforeValidator(whole(2, 20))]
Repetitions = Annotated[int, BeforeValidator(whole(1, 20))]
Place = Annotated[int, BeforeValidator(whole(1))]
Participant = Annotated[
    str, BeforeValidator(word(PARTICIPANT.pattern, "the id of a participant, small letters and digits"))
]


@dataclass(frozen=True, config=_FROZEN)
class FitWithout:
    """An embedding of all answers but those of some participants, judged with and without them."""

    exclude: Annotated[tuple[Participant, ...], BeforeValidator(_as_list), AfterValidator(_each_once)]
    sampler: Sampler
    d: Dimensions
    noise: Noise
    folds: Folds


@dataclass(frozen=True, config=_FROZEN)
class EmbeddingAsOf:
    """A sampler's embedding as of a generation, or of so many answers that may be fitted; exactly one of the two."""

    sampler: Sampler
    generation: Place | None
    answers: Place | None

    @model_validator(mode="after")
    def _one_moment(self) -> Self:
        if (self.generation is None) == (self.answers is None):
            raise Misfit(
                sentence="An embedding request needs either a generation or a number of answers.",
                hint="Give exactly one of generation and answers.",
                at=("generation",),
            )
        if self.generation is not None and not self.sampler:
            raise Misfit(
                sentence="This experiment has no active sampler, so nothing was refitted during its run.",
                hint="Give answers instead.",
                at=("generation",),
            )
        return self


@dataclass(frozen=True, config=_FROZEN)
class CrossValidation:
    """Every dimension with every noise model, judged on the same folds."""

    dimensions: Annotated[
        tuple[Dimensions, ...], BeforeValidator(_as_list), AfterValidator(_each_once), AfterValidator(_at_least_one)
    ]
    noise: Annotated[
        tuple[Noise, ...], BeforeValidator(_as_list), AfterValidator(_each_once), AfterValidator(_at_least_one)
    ]
    folds: Folds
    repeats: Repetitions

    @model_validator(mode="after")
    def _few_enough_fits(self) -> Self:
        fits = len(self.dimensions) * len(self.noise) * self.folds * self.repeats
        if fits > MOST_FITS:
            raise Misfit(
                sentence=f"{len(self.dimensions)} dimensions, {len(self.noise)} noise models, {self.folds} folds and"
                f" {self.repeats} repeats are {fits:,} fits; at most {MOST_FITS:,} are made for one request.",
                hint="Compare fewer at once.",
                at=("dimensions",),
            )
        return self


@dataclass(frozen=True, config=_FROZEN)
class StudyPlan:
    """Simulated studies of so many targets in d dimensions: accuracy against answers, and what an accuracy takes.

    `people` and `world` are those of `salmon.planning`, `lapse` is the share of answers that are guesses, and `answers`
    how many are looked at (0: as many as usual). `seconds` is the time of one answer, `besides` the minutes of
    everything else, `pay` what an hour costs, and `fee` the share of it that a platform adds. Without an `accuracy` a
    usual one is aimed at.
    """

    sampler: Sampler
    targets: Annotated[int, BeforeValidator(whole(4, MOST_PLANNED))]
    d: Dimensions
    people: Annotated[str, BeforeValidator(choice("typical", "clear", "hard"))]
    world: Annotated[str, BeforeValidator(choice("random", "clusters"))]
    lapse: Annotated[float, BeforeValidator(number(0, 0.9))]
    answers: Annotated[int, BeforeValidator(whole(0, MOST_ANSWERS_A_TARGET * MOST_PLANNED))]
    runs: Repetitions
    accuracy: Annotated[float, BeforeValidator(number(0.5, 1))] | None
    seconds: Annotated[float, BeforeValidator(number(0.1, 600))]
    besides: Annotated[float, BeforeValidator(number(0, 600))]
    pay: Annotated[float, BeforeValidator(number(0, 10_000))]
    fee: Annotated[float, BeforeValidator(number(0, 2))]

    @model_validator(mode="after")
    def _few_enough_answers(self) -> Self:
        most = MOST_ANSWERS_A_TARGET * self.targets
        if self.answers > most:
            raise Misfit(
                sentence=f"answers is {self.answers:,}; for {self.targets} targets at most {most:,} are simulated.",
                at=("answers",),
            )
        return self


@dataclass(frozen=True, config=_FROZEN)
class SamplerRace:
    """Where the race between the samplers stands."""


@dataclass(frozen=True, config=_FROZEN)
class PeopleGroups:
    """The groups that people fall into, at most so many, with maps in d dimensions and a
    permutation test of how these agree.
    """

    d: Dimensions
    most: Annotated[int, BeforeValidator(whole(1, MOST_GROUPS))]
    shuffles: Annotated[int, BeforeValidator(whole(19, 999))]


Job = FitWithout | EmbeddingAsOf | CrossValidation | StudyPlan | SamplerRace | PeopleGroups

_KINDS: dict[str, type[Job]] = {
    "fit": FitWithout,
    "embedding": EmbeddingAsOf,
    "cross_validation": CrossValidation,
    "plan": StudyPlan,
    "race": SamplerRace,
    "groups": PeopleGroups,
}
#: The kinds of jobs.
KINDS = tuple(_KINDS)


def read_job(kind: str, arguments: Mapping[str, Any], spec: Spec, n: int) -> Job:
    """Return a job about an experiment of n targets, with every default; a RequestError lists all mistakes."""
    if kind not in _KINDS:
        hint = did_you_mean(kind, KINDS) or f"Ask for {listed(KINDS)}."
        raise RequestError((Problem(f"There is no request of the kind {shown(kind)}.", path="kind", hint=hint),))
    if kind == "race" and not spec.sampling.race:
        raise RequestError(
            (
                Problem(
                    "In this experiment samplers do not race.",
                    path="kind",
                    hint="Write sampling: {race: 20%} in its file before it begins.",
                ),
            )
        )
    given = {name: value for name, value in arguments.items() if value is not None}
    active = [name for name, sampler in spec.samplers.items() if sampler.sampler_class in ACTIVE_CLASSES]
    sampler = given.get("sampler")
    defaults = _defaults(kind, spec, n, sampler if sampler in active else active[0] if active else "")
    try:
        return TypeAdapter(_KINDS[kind]).validate_python(defaults | given, context={"active": active, "n": n})
    except ValidationError as error:
        problems = [problem for refused in error.errors() for problem in _problems(kind, refused, given, defaults)]
    order = ["arguments." + name for name in given]
    problems.sort(key=lambda problem: order.index(problem.path) if problem.path in order else len(order))
    raise RequestError(tuple(problems))


def plain_arguments(job: Job) -> dict[str, Any]:
    """Return the arguments as plain values, which `read_job` reads back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(job).items()}


def _defaults(kind: str, spec: Spec, n: int, sampler: str) -> dict[str, Any]:
    """Return the value of each argument that is not given, for a job about one active sampler of the experiment."""
    own = spec.samplers[sampler] if sampler else None
    d = min(MOST_DIMENSIONS, int(own.arguments.get("d", 2))) if own else 2  # pyright: ignore[reportArgumentType]
    chosen = noise_of(own.sampler_class, own.arguments) if own else "TSTE"
    noise = shown_noise(chosen)
    return {
        "fit": {"exclude": (), "sampler": sampler, "d": d, "noise": noise, "folds": 10},
        "embedding": {"sampler": sampler, "generation": None, "answers": None},
        "cross_validation": {"dimensions": (1, 2, 3), "noise": COMPARED, "folds": 10, "repeats": 1},
        "plan": {
            "sampler": sampler,
            "targets": n,
            "d": d,
            "people": "typical",
            "world": "random",
            "lapse": 0.0,
            "answers": 0,
            "runs": 6,
            "accuracy": None,
            "seconds": 3.0,
            "besides": 3.0,
            "pay": 0.0,
            "fee": 0.0,
        },
        "race": {},
        "groups": {"d": d, "most": 4, "shuffles": 99},
    }[kind]


def shown_noise(searched: str) -> str:
    """Return the noise model under which an embedding is shown and judged whose queries are searched under another."""
    return RECOMMENDED if searched == "TSTE" else searched


def _problems(kind: str, refused: Any, given: Mapping[str, Any], known: Mapping[str, Any]) -> list[Problem]:
    """Return what Pydantic refused, in sentences of the program."""
    name, *places = [str(part) for part in refused["loc"]] or [""]
    if refused["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        hint = did_you_mean(name, known) or f"It takes {listed(tuple(known), 'and')}."
        return [Problem(f"A {kind} takes no argument {shown(name)}.", path=f"arguments.{name}", hint=hint)]
    misfit: Misfit = refused["ctx"]["error"]
    problems: list[Problem] = []
    for part in misfit.parts:
        argument = name or str(part.at[0])
        label = argument + (
            f", item {int(places[0]) + 1}" if places and isinstance(given[argument], list | tuple) else ""
        )
        sentence = part.sentence or f"{label} must be {part.wanted}, not {shown(str(refused['input']))}."
        problems.append(Problem(sentence.replace("{label}", label), path=f"arguments.{argument}", hint=part.hint))
    return problems
