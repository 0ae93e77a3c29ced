"""Cross-validation one fold at a time, so that it can be watched, stopped and let others pass.

Which dimension, and which noise model: every combination is judged on the same folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.answer_log import Rows
from backend.jobs.answers import Answered
from backend.jobs.steps import Course, Step
from salmon.errors import TripletError
from salmon.estimator import RECOMMENDED_NOISE, grouped_folds, triple_groups
from salmon.estimator.cross_validation import (
    HeldOut,
    Interval,
    choose_dimension,
    choose_noise_by_accuracy,
    cross_validate,
)
from salmon.estimator.noise_ceiling import noise_ceiling
from salmon.jobs import RECOMMENDED, CrossValidation
from salmon.noise import NoiseModel, noise_model
from salmon.spec import Spec

#: The ridge of every embedding that is judged or shown.
RIDGE = 0.03
#: The lapse of noise models that are judged and have no recommended one.
_LAPSE = 0.05

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Exam:
    """Answers and which of them are judged: (m, 3) triplets of n targets, `judged` (m,), `kept` (m,) the others' excluded.

    Only kept answers are judged; those excluded are fitted too where a comparison asks for it.
    """

    triplets: Rows
    judged: Bools
    kept: Bools
    n: int
    folds: int
    seed: int

    @property
    def usable_folds(self) -> int:
        """As many folds as asked for, or fewer, so that each has two groups of three targets; below 2 nothing can be judged."""
        groups = len(np.unique(triple_groups(self.triplets[self.judged]))) if self.judged.any() else 0
        return min(self.folds, groups // 2)

    def assign(self, repeat: int) -> NDArray[np.int64]:
        """(judged,) in which fold each judged answer is held out: the same for every candidate."""
        rng = np.random.default_rng([self.seed, repeat])
        return grouped_folds(self.triplets[self.judged], self.usable_folds, rng)


@dataclass(frozen=True)
class Candidate:
    """What is judged: an embedding of d dimensions under a noise model, fitted to the kept answers or to all."""

    d: int
    noise: str
    with_excluded: bool = False

    @property
    def model(self) -> NoiseModel:
        """The noise model, with the lapse that it is judged with."""
        return judged_model(self.noise)


def judged_model(name: str) -> NoiseModel:
    """The noise model of this name as it is judged and shown."""
    return RECOMMENDED_NOISE if name == RECOMMENDED else noise_model(name, lapse=_LAPSE)


def judge_fold(exam: Exam, candidate: Candidate, repeat: int, fold: int) -> HeldOut:
    """The answers of one fold, judged by a fit without them and without their groups."""
    held_out = np.zeros(len(exam.triplets), dtype=np.bool_)
    held_out[np.flatnonzero(exam.judged)[exam.assign(repeat) == fold]] = True
    fitted = np.ones_like(exam.kept) if candidate.with_excluded else exam.kept
    found = cross_validate(
        exam.triplets[fitted], held_out[fitted], exam.n, candidate.d, candidate.model,
        ridge=RIDGE, folds=1, seed=exam.seed + repeat,
    )  # fmt: skip
    if found is None:
        raise TripletError("Too few different queries were asked at random to hold some out.")
    return found


def join_folds(exam: Exam, outcomes: Sequence[Sequence[HeldOut]]) -> HeldOut:
    """One HeldOut of all folds of each repeat, in the order in which they were judged."""
    m = int(exam.judged.sum())
    shape = len(outcomes), m
    hits, losses = np.empty(shape), np.empty(shape)
    places = np.empty(shape, dtype=np.int64)
    groups = np.empty(m, dtype=np.int64)
    fitted: list[float] = []
    for repeat, folds in enumerate(outcomes):
        places[repeat] = own = exam.assign(repeat)
        for fold, found in enumerate(folds):
            here = own == fold
            hits[repeat, here], losses[repeat, here] = found.hits[0], found.losses[0]
            groups[here] = found.groups
            fitted.append(found.fitted)
    return HeldOut(hits, losses, places, groups, float(np.mean(fitted)))


def figures(found: HeldOut) -> dict[str, float]:
    """Accuracy with its 95 % interval, and the log-loss in nats."""
    return {**interval(found.accuracy), "log_loss": found.log_loss}


def interval(found: Interval) -> dict[str, float]:
    """An accuracy with its 95 % interval."""
    return {"accuracy": found.value, "low": found.low, "high": found.high}


def noise_of(model: NoiseModel) -> dict[str, Any]:
    """A noise model by name and parameters."""
    return {"name": type(model).__name__, **asdict(model)}


def ceiling_of(triplets: Rows) -> dict[str, Any] | None:
    """The noise ceiling of these answers; None where hardly a query was answered twice."""
    found = noise_ceiling(triplets)
    return asdict(found) if found else None


def compare(meaning: CrossValidation, spec: Spec, n: int, answered: Answered) -> Course:
    """Every dimension with every noise model; a fold of one of them is a step."""
    exam = Exam(answered.triplets, answered.random, np.ones(len(answered), dtype=np.bool_), n, meaning.folds, spec.seed)
    folds = exam.usable_folds
    if folds < 2:
        raise TripletError(
            f"{int(answered.random.sum()):,} of {len(answered):,} answers are to random queries: too few to hold some out.",
            hint="Wait for more answers, or give the experiment a random share.",
        )
    candidates = [Candidate(d, noise) for noise, d in product(meaning.noise, meaning.dimensions)]
    steps = [
        Step(
            f"judging d = {candidate.d} with {candidate.noise}, fold {fold + 1} of {folds}",
            judge_fold,
            (candidate, repeat, fold),
        )
        for candidate in candidates
        for repeat in range(meaning.repeats)
        for fold in range(folds)
    ]

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        size = meaning.repeats * folds
        judged: dict[Candidate, HeldOut] = {}
        for place, candidate in enumerate(candidates):
            own = outcomes[place * size : (place + 1) * size]
            judged[candidate] = join_folds(exam, [own[start : start + folds] for start in range(0, size, folds)])
        by_dimension = {d: judged[Candidate(d, meaning.noise[0])] for d in meaning.dimensions}
        dimension = choose_dimension(by_dimension)
        by_noise = {name: judged[Candidate(dimension.chosen, name)] for name in meaning.noise}
        noise = choose_noise_by_accuracy(by_noise)
        return {
            "answers": len(answered),
            "judged": int(exam.judged.sum()),
            "folds": folds,
            "repeats": meaning.repeats,
            "candidates": [
                {"d": candidate.d, "noise": noise_of(candidate.model), **figures(found)}
                for candidate, found in judged.items()
            ],
            "dimension": {"chosen": dimension.chosen, "reason": dimension.reason, "noise": meaning.noise[0]},
            "noise": {"chosen": noise.chosen, "reason": noise.reason, "d": dimension.chosen},
            "ceiling": ceiling_of(answered.triplets[answered.repeatable]),
        }

    return Course(tuple(steps), conclude, shared=(exam,))
