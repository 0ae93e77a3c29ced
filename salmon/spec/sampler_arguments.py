"""List the samplers that an experiment can name and the arguments that each takes.

The names are closed: a spec never looks up a class by its name. A test compares them with the tables of
`salmon.samplers` and `salmon.noise`, so that neither side can know a name that the other does not.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from salmon.spec.values import Misfit, Reader, choice, every, flag, number, scalar_of, share, whole

PassiveClass = Literal["Random", "RoundRobin", "Validation"]
ActiveClass = Literal["Adaptive", "Greedy", "Uncertainty", "ARR", "SRR", "TSTE", "STE", "GNMDS", "CKL", "SOE"]
SamplerClass = Literal[PassiveClass, ActiveClass]
NoiseModel = Literal["TSTE", "STE", "CKL", "GNMDS", "SOE", "PowerTSTE", "Logistic"]

PASSIVE_CLASSES: tuple[PassiveClass, ...] = get_args(PassiveClass)
ACTIVE_CLASSES: tuple[ActiveClass, ...] = get_args(ActiveClass)
SAMPLER_CLASSES: tuple[SamplerClass, ...] = (*PASSIVE_CLASSES, *ACTIVE_CLASSES)
NOISE_MODELS: tuple[NoiseModel, ...] = get_args(NoiseModel)

#: Names that older files use -> today's.
OLD_CLASSES: Mapping[str, SamplerClass] = MappingProxyType({"RandomSampling": "Random"})

#: What an argument's value can be once it is read.
Argument = str | int | float | bool | tuple[Any, ...]


def indices(value: Any, n_targets: int | None) -> tuple[int, ...]:
    """Read at least three different targets to choose from."""
    if not isinstance(value, list | tuple) or len(items := list(value)) < 3:  # pyright: ignore[reportUnknownArgumentType]
        raise Misfit("a list of at least three targets, counted from 0")
    read = every(items, lambda item: index(item, n_targets))
    if len(set(read)) < len(read):
        raise Misfit(sentence="{label} names a target twice.", hint="Name each target once.")
    return read


def queries(value: Any, n_targets: int | None) -> tuple[tuple[int, int, int], ...]:
    """Read fixed queries, each [head, foot, foot]."""
    if not isinstance(value, list | tuple) or not value:
        raise Misfit("a list of queries, each [head, left, right]")
    return every(value, lambda item: query(item, n_targets))  # pyright: ignore[reportUnknownArgumentType]


def query(value: Any, n_targets: int | None) -> tuple[int, int, int]:
    """Read three different targets: the head and two feet."""
    if not isinstance(value, list | tuple) or len(items := list(value)) != 3:  # pyright: ignore[reportUnknownArgumentType]
        raise Misfit("a query of three targets, [head, left, right]")
    head, left, right = every(items, lambda item: index(item, n_targets))
    if len({head, left, right}) < 3:
        raise Misfit(
            sentence="{label} names one target twice; a query needs three different ones.",
            hint="Change one of the three.",
        )
    return head, left, right


def index(value: Any, n_targets: int | None) -> int:
    """Read a target by its number, counted from 0."""
    high = None if n_targets is None else n_targets - 1
    wanted = (
        "the number of a target, counted from 0"
        if high is None
        else f"a target from 0 to {high:,} (there are {n_targets:,}, counted from 0)"
    )
    return whole(0, high, wanted)(value)


def random_state(value: Any) -> int:
    """Read a random state; an empty value means 0."""
    return 0 if scalar_of(value, "a whole number").empty else whole(0, 2**63 - 1)(value)


#: What every active sampler takes. Where the optimiser needs no tuning the old program's settings have no effect.
_ACTIVE: dict[str, Reader[Any]] = {
    "d": whole(1, 100),
    "R": number(0),
    "ridge": number(0),  # the weight of the prior
    "lapse": number(0, 0.499),  # the share of answers that are guesses
    "k": number(above=0),
    "alpha": number(above=0),
    "mu": number(above=0),
    "module__alpha": number(above=0),
    "module__mu": number(above=0),
    "n_search": whole(1),
    "initial_batch_size": whole(1),
    "random_state": random_state,
    "max_epochs": whole(1),
    "optimizer": choice("Embedding", "PadaDampG", "GeoDamp"),
    "optimizer__lr": number(above=0),
    "optimizer__momentum": number(0, 1),
    "optimizer__initial_batch_size": whole(1),
    "optimizer__max_epochs": whole(1),
    "optimizer__random_state": random_state,
}
#: Settings of the first Salmon's optimisers: today's refits need no tuning, so they change nothing.
_IGNORED = frozenset(
    {"random_state", "initial_batch_size", "max_epochs", *(n for n in _ACTIVE if n.startswith("optimizer"))}
)
_NOISE = choice(*NOISE_MODELS)
_RANKING: dict[str, Reader[Any]] = {**_ACTIVE, "scorer": choice("infogain", "uncertainty"), "fresh_posterior": flag}
_ROUND: dict[str, Reader[Any]] = {
    **_RANKING,
    "module": _NOISE,
    "n_top": whole(1),
    "priority": choice("random", "scores", "approx"),
}

#: Sampler class -> argument -> reader. `targets` and `queries` are read apart: they need the number of targets.
READERS: Mapping[SamplerClass, Mapping[str, Reader[Any]]] = MappingProxyType(
    {
        "Random": {},
        "RoundRobin": {},
        "Validation": {"n_queries": whole(1, 100_000)},
        "Adaptive": {
            **_ACTIVE,
            "ridge": number(above=0),
            "noise": _NOISE,
            "random_share": share,
            "leave_out": choice("clickers", "nobody"),
        },
        "Greedy": {**_RANKING, "noise": _NOISE},
        "Uncertainty": {**_RANKING, "noise": _NOISE},
        "SRR": {**_RANKING, "module": _NOISE},
        **dict.fromkeys(("ARR", "TSTE", "STE", "GNMDS", "CKL", "SOE"), _ROUND),
    }
)
#: Argument that belongs to a noise model -> the models that have it. With k, t-STE is its power form.
_MODELS_WITH: Mapping[str, tuple[NoiseModel, ...]] = MappingProxyType(
    {"alpha": ("TSTE",), "mu": ("CKL",), "k": ("TSTE", "PowerTSTE")}
)
_TARGETED: Mapping[str, str] = MappingProxyType({"Random": "targets", "RoundRobin": "targets", "Validation": "queries"})
#: The noise model has one name today and another in older files; each sampler keeps its original one.
_SYNONYMS = MappingProxyType({"module": "noise", "noise": "module"})


def argument_names(sampler_class: SamplerClass) -> tuple[str, ...]:
    """Return every argument that the sampler takes."""
    targeted = (_TARGETED[sampler_class],) if sampler_class in _TARGETED else ()
    return (*READERS[sampler_class], *targeted)


def argument_name(sampler_class: SamplerClass, written: str) -> str | None:
    """Return the sampler's own name for an argument, or None if it takes no such argument."""
    names = argument_names(sampler_class)
    if written in names:
        return written
    synonym = _SYNONYMS.get(written)
    return synonym if synonym in names else None


def read_argument(sampler_class: SamplerClass, name: str, value: Any, n_targets: int | None) -> Argument:
    """Return the typed value of one argument; a Misfit says what is wanted."""
    if name == "targets":
        return indices(value, n_targets)
    if name == "queries":
        return queries(value, n_targets)
    return READERS[sampler_class][name](value)


def noise_of(sampler_class: SamplerClass, arguments: Mapping[str, Argument]) -> str:
    """Return the noise model of an active sampler: the one written, or the one its class is named after, or t-STE."""
    named_after = sampler_class if sampler_class in NOISE_MODELS else "TSTE"
    return str(arguments.get("noise", arguments.get("module", named_after)))


def has_effect(sampler_class: SamplerClass, argument: str) -> bool:
    """Return whether an argument changes what the sampler does; the others are taken from older files and ignored."""
    return argument not in _IGNORED and not (argument == "n_search" and sampler_class != "SRR")


def models_with(argument: str) -> tuple[str, ...]:
    """Return the noise models that take an argument; all of them for an argument of the sampler itself."""
    return _MODELS_WITH.get(argument.removeprefix("module__"), NOISE_MODELS)


#: Everything that any sampler takes, for `sampling.common`: argument -> a class that can read it.
COMMON_ARGUMENTS: Mapping[str, SamplerClass] = MappingProxyType(
    {name: sampler_class for sampler_class in SAMPLER_CLASSES for name in argument_names(sampler_class)}
)
