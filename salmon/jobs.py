"""What an experimenter may ask of the learning process, and with which arguments.

Four kinds: an embedding without some participants (`fit`), an embedding as it was (`embedding`), the comparison of
dimensions and noise models (`cross_validation`), and the whole experiment with simulated participants (`rehearsal`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from salmon.errors import Problem, SpecError, did_you_mean, listed, shown
from salmon.spec import Spec
from salmon.spec.sampler_arguments import ACTIVE_CLASSES, NOISE_MODELS, noise_of
from salmon.spec.values import Misfit, Reader, choice, every, number, whole, word

T = TypeVar("T")

#: The recommended noise model; t-STE, too, is best shown by its power form.
RECOMMENDED = "PowerTSTE"
#: Noise models that are compared where none are named.
COMPARED = (RECOMMENDED, "TSTE", "STE", "CKL", "SOE", "GNMDS")

MOST_DIMENSIONS = 10
#: Fits of one comparison, and answers a target in one rehearsal: more would keep others waiting for hours.
MOST_FITS = 2000
MOST_ANSWERS_A_TARGET = 200
#: Entries of one list.
MOST_LISTED = 10_000
#: The form of a participant's id.
PARTICIPANT = re.compile(r"[a-z0-9]{1,40}")
_participant = word(PARTICIPANT.pattern, "the id of a participant, small letters and digits")


class RequestError(SpecError):
    """A request that cannot be carried out as it is; `problems` lists everything wrong with it."""

    code = "bad_request"


@dataclass(frozen=True)
class FitWithout:
    """An embedding of all answers but those of some participants, judged with and without them."""

    exclude: tuple[str, ...]
    sampler: str
    d: int
    noise: str
    folds: int


@dataclass(frozen=True)
class EmbeddingAsOf:
    """A sampler's embedding as of a generation, or of so many answers that may be fitted; exactly one of the two."""

    sampler: str
    generation: int | None
    answers: int | None


@dataclass(frozen=True)
class CrossValidation:
    """Every dimension with every noise model, judged on the same folds."""

    dimensions: tuple[int, ...]
    noise: tuple[str, ...]
    folds: int
    repeats: int


@dataclass(frozen=True)
class Rehearsal:
    """The experiment with simulated participants in random worlds of d dimensions; `lapse` of the answers are thoughtless."""

    sampler: str
    answers: int
    runs: int
    d: int
    lapse: float


Meaning = FitWithout | EmbeddingAsOf | CrossValidation | Rehearsal


def read_request(kind: str, arguments: Mapping[str, Any], spec: Spec, n: int) -> Meaning:
    """What a request about an experiment of n targets means, with every default; a RequestError lists all mistakes."""
    if kind not in _READERS:
        hint = did_you_mean(kind, _READERS) or f"Ask for {listed(_READERS)}."
        raise RequestError((Problem(f"There is no request of the kind {shown(kind)}.", path="kind", hint=hint),))
    given = _Given(kind, arguments)
    meaning = _READERS[kind](given, spec, n)
    given.refuse_unknown()
    if given.problems:
        raise RequestError(tuple(given.problems))
    return meaning


def plain_arguments(meaning: Meaning) -> dict[str, Any]:
    """The arguments as plain values, which `read_request` reads back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(meaning).items()}


class _Given:
    """The arguments of one request; what cannot be read is noted and replaced by its default."""

    def __init__(self, kind: str, arguments: Mapping[str, Any]) -> None:
        self.problems: list[Problem] = []
        self._kind = kind
        self._arguments = {name: value for name, value in arguments.items() if value is not None}
        self._known: list[str] = []

    def read(self, name: str, reader: Reader[T], default: T) -> T:
        self._known.append(name)
        if name not in self._arguments:
            return default
        value = self._arguments[name]
        try:
            return reader(value)
        except Misfit as misfit:
            for part in misfit.parts:
                label = name + "".join(f", item {int(place) + 1}" for place in part.at)
                wrong = value[int(part.at[0])] if part.at else value
                sentence = part.sentence or f"{label} must be {part.wanted}, not {shown(str(wrong))}."
                self.refuse(name, sentence.replace("{label}", label), part.hint)
            return default

    def has(self, name: str) -> bool:
        return name in self._arguments

    def refuse(self, name: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, path=f"arguments.{name}", hint=hint))

    def refuse_unknown(self) -> None:
        for name in self._arguments:
            if name not in self._known:
                hint = did_you_mean(name, self._known) or f"It takes {listed(self._known, 'and')}."
                self.refuse(name, f"A {self._kind} takes no argument {shown(name)}.", hint)


def _fit(given: _Given, spec: Spec, n: int) -> FitWithout:
    del n
    sampler = _sampler(given, spec)
    chosen = noise_of(spec.samplers[sampler].sampler_class, spec.samplers[sampler].arguments) if sampler else "TSTE"
    return FitWithout(
        exclude=given.read("exclude", _list_of(_participant), ()),
        sampler=sampler,
        d=given.read("d", whole(1, MOST_DIMENSIONS), _dimensions(spec, sampler)),
        noise=given.read("noise", choice(*NOISE_MODELS), RECOMMENDED if chosen == "TSTE" else chosen),
        folds=given.read("folds", whole(2, 20), 10),
    )


def _embedding(given: _Given, spec: Spec, n: int) -> EmbeddingAsOf:
    del n
    asked = EmbeddingAsOf(
        sampler=_sampler(given, spec),
        generation=given.read("generation", _maybe(whole(1)), None),
        answers=given.read("answers", _maybe(whole(1)), None),
    )
    if given.has("generation") == given.has("answers"):
        given.refuse("generation", "An embedding is asked for as of a generation or of a number of answers.",
                     "Give one of generation and answers.")  # fmt: skip
    if given.has("generation") and not asked.sampler:
        given.refuse("generation", "This experiment has no active sampler, so nothing was refitted during its run.",
                     "Give answers instead.")  # fmt: skip
    return asked


def _cross_validation(given: _Given, spec: Spec, n: int) -> CrossValidation:
    del spec, n
    asked = CrossValidation(
        dimensions=given.read("dimensions", _list_of(whole(1, MOST_DIMENSIONS)), (1, 2, 3)),
        noise=given.read("noise", _list_of(choice(*NOISE_MODELS)), COMPARED),
        folds=given.read("folds", whole(2, 20), 10),
        repeats=given.read("repeats", whole(1, 20), 1),
    )
    for name in ("dimensions", "noise"):
        if not getattr(asked, name):
            given.refuse(name, f"{name} names nothing to compare.", "Leave it out for the usual choice.")
    fits = len(asked.dimensions) * len(asked.noise) * asked.folds * asked.repeats
    if fits > MOST_FITS:
        given.refuse(
            "dimensions",
            f"{len(asked.dimensions)} dimensions, {len(asked.noise)} noise models, {asked.folds} folds and "
            f"{asked.repeats} repeats are {fits:,} fits; at most {MOST_FITS:,} are made for one request.",
            "Compare fewer at once.",
        )
    return asked


def _rehearsal(given: _Given, spec: Spec, n: int) -> Rehearsal:
    sampler = _sampler(given, spec)
    return Rehearsal(
        sampler=sampler,
        answers=given.read("answers", whole(n, MOST_ANSWERS_A_TARGET * n), 20 * n),
        runs=given.read("runs", whole(1, 20), 3),
        d=given.read("d", whole(1, MOST_DIMENSIONS), _dimensions(spec, sampler)),
        lapse=given.read("lapse", number(0, 1), 0.0),
    )


_READERS: dict[str, Callable[[_Given, Spec, int], Meaning]] = {
    "fit": _fit,
    "embedding": _embedding,
    "cross_validation": _cross_validation,
    "rehearsal": _rehearsal,
}
#: The kinds of requests.
KINDS = tuple(_READERS)


def _sampler(given: _Given, spec: Spec) -> str:
    """The active sampler that is meant: the named one or the first; empty where the experiment has none."""
    active = [name for name, sampler in spec.samplers.items() if sampler.sampler_class in ACTIVE_CLASSES]
    return given.read("sampler", _one_of(active), active[0] if active else "")


def _dimensions(spec: Spec, sampler: str) -> int:
    return min(MOST_DIMENSIONS, int(spec.samplers[sampler].arguments.get("d", 2))) if sampler else 2  # pyright: ignore[reportArgumentType]


def _one_of(names: list[str]) -> Reader[str]:
    """A name exactly as it is written in the experiment's file."""

    def read(value: Any) -> str:
        if not names and value != "":
            raise Misfit(sentence="This experiment has no active sampler.", hint="Leave sampler out.")
        if names and value not in names:
            wanted = f"an active sampler of this experiment ({listed(names)})"
            raise Misfit(wanted, hint=did_you_mean(str(value), names))
        return str(value)

    return read


def _list_of(reader: Reader[T]) -> Reader[tuple[T, ...]]:
    """Several values, each once; one alone needs no list."""

    def item(value: Any, place: int) -> T:
        try:
            return reader(value)
        except Misfit as misfit:
            raise Misfit(misfit.wanted, sentence=misfit.sentence, hint=misfit.hint, at=(place,)) from misfit

    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            return (reader(value),)
        if len(value) > MOST_LISTED:  # pyright: ignore[reportUnknownArgumentType]
            raise Misfit(sentence=f"{{label}} has {len(value):,} entries; at most {MOST_LISTED:,} are read.")  # pyright: ignore[reportUnknownArgumentType]
        return tuple(dict.fromkeys(every(value, item)))  # pyright: ignore[reportUnknownArgumentType]

    return read


def _maybe(reader: Reader[T]) -> Reader[T | None]:
    """A value that need not be given."""
    return reader
