"""Compare dimensions and noise models by cross-validation on the same folds.

Every fold is a step of its own, so that a job shows its progress, can be cancelled, and yields to live learning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.jobs.answers import AnswerSet
from backend.jobs.steps import JobPlan, JobStep
from backend.learner import Rows
from salmon.errors import TripletError
from salmon.estimator import grouped_folds, triple_groups
from salmon.estimator.cross_validation import (
    HeldOut,
    Interval,
    choose,
    cross_validate,
    noise_ceiling,
)
from salmon.jobs import RECOMMENDED, CrossValidation, Estimate
from salmon.noise import NoiseModel, noise_model
from salmon.spec import Spec

#: The ridge of every embedding that is evaluated or shown.
RIDGE = 0.03
#: The lapse of noise models that have no recommended one.
_LAPSE = 0.05

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """What all candidates are evaluated on: (m, 3) triplets of n targets, with the boolean masks `judged` and `kept` (m,).

    Only kept answers are judged. Excluded ones are fitted too if a candidate asks for it.
    """

    triplets: Rows
    judged: Bools
    kept: Bools
    n: int
    folds: int
    seed: int

    @property
    def usable_folds(self) -> int:
        """As many folds as asked for, or fewer, so that each has two groups of three targets; below 2 nothing can be held out."""
        groups = len(np.unique(triple_groups(self.triplets[self.judged]))) if self.judged.any() else 0
        return min(self.folds, groups // 2)

    def assign(self, repeat: int) -> NDArray[np.int64]:
        """Return (judged,) the fold in which each judged answer is held out; the same for every candidate."""
        return grouped_folds(self.triplets[self.judged], self.usable_folds, np.random.default_rng([self.seed, repeat]))


@dataclass(frozen=True)
class Candidate:
    """An embedding of d dimensions under a noise model, fitted to the kept answers or to all."""

    d: int
    noise: str
    with_excluded: bool = False

    @property
    def model(self) -> NoiseModel | None:
        """The noise model with its lapse; None where every fit learns it."""
        return noise_with_lapse(self.noise)


def noise_with_lapse(name: str) -> NoiseModel | None:
    """Return the noise model of this name with the lapse of fits that are evaluated or shown; None if they learn it."""
    return None if name == RECOMMENDED else noise_model(name, lapse=_LAPSE)


def judge_fold(evaluation: Evaluation, candidate: Candidate, repeat: int, fold: int) -> HeldOut:
    """Judge the answers of one fold by a fit without them and without their groups."""
    held_out = np.zeros(len(evaluation.triplets), dtype=np.bool_)
    held_out[np.flatnonzero(evaluation.judged)[evaluation.assign(repeat) == fold]] = True
    fitted = np.ones_like(evaluation.kept) if candidate.with_excluded else evaluation.kept
    found = cross_validate(
        evaluation.triplets[fitted], held_out[fitted], evaluation.n, candidate.d, candidate.model,
        ridge=RIDGE, folds=1, seed=evaluation.seed + repeat,
    )  # fmt: skip
    if found is None:
        raise TripletError("Too few different queries were asked at random to hold some out.")
    return found


def join_folds(evaluation: Evaluation, outcomes: Sequence[Sequence[HeldOut]]) -> HeldOut:
    """Return the folds of all repeats as one HeldOut, in the order in which they were judged."""
    m = int(evaluation.judged.sum())
    shape = len(outcomes), m
    hits, losses = np.empty(shape), np.empty(shape)
    places = np.empty(shape, dtype=np.int64)
    groups = np.empty(m, dtype=np.int64)
    fitted: list[float] = []
    for repeat, folds in enumerate(outcomes):
        places[repeat] = own = evaluation.assign(repeat)
        for fold, found in enumerate(folds):
            here = own == fold
            hits[repeat, here], losses[repeat, here] = found.hits[0], found.losses[0]
            groups[here] = found.groups
            fitted.append(found.fitted)
    return HeldOut(hits, losses, places, groups, float(np.mean(fitted)))


def figures(found: HeldOut) -> Estimate:
    """Return the accuracy with its 95 % interval, and the log-loss in nats."""
    accuracy = found.accuracy
    return {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "log_loss": found.log_loss}


def interval(found: Interval) -> dict[str, float]:
    """Return an accuracy with its 95 % interval."""
    return {"accuracy": found.value, "low": found.low, "high": found.high}


def describe_noise(model: NoiseModel | None) -> dict[str, Any]:
    """Return the name and parameters of a noise model; of one that each fit learns there are no parameters to tell."""
    if model is None:
        return {"name": RECOMMENDED, "learned": True}
    return {"name": type(model).__name__, **asdict(model)}


def describe_ceiling(triplets: Rows) -> dict[str, Any] | None:
    """Return the noise ceiling of these answers, or None if hardly any query was answered twice."""
    found = noise_ceiling(triplets)
    return asdict(found) if found else None


def plan_comparison(job: CrossValidation, spec: Spec, n: int, answers: AnswerSet) -> JobPlan:
    """Return the plan that evaluates every dimension with every noise model; each fold is a step."""
    evaluation = Evaluation(
        answers.triplets, answers.random, np.ones(len(answers), dtype=np.bool_), n, job.folds, spec.seed
    )
    folds = evaluation.usable_folds
    if folds < 2:
        raise TripletError(
            f"{int(answers.random.sum()):,} of {len(answers):,} answers are to random queries: too few to hold some out.",
            hint="Wait for more answers, or give the experiment a random share.",
        )
    candidates = [Candidate(d, noise) for noise, d in product(job.noise, job.dimensions)]
    steps = [
        JobStep(
            f"judging d = {candidate.d} with {candidate.noise}, fold {fold + 1} of {folds}",
            judge_fold,
            (candidate, repeat, fold),
        )
        for candidate in candidates
        for repeat in range(job.repeats)
        for fold in range(folds)
    ]

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        size = job.repeats * folds
        judged: dict[Candidate, HeldOut] = {}
        for place, candidate in enumerate(candidates):
            own = outcomes[place * size : (place + 1) * size]
            judged[candidate] = join_folds(evaluation, [own[start : start + folds] for start in range(0, size, folds)])
        selection = choose({(candidate.d, candidate.noise): found for candidate, found in judged.items()})
        d, name = selection.chosen
        return {
            "answers": len(answers),
            "judged": int(evaluation.judged.sum()),
            "folds": folds,
            "repeats": job.repeats,
            "candidates": [
                {
                    "d": candidate.d,
                    "noise": describe_noise(candidate.model),
                    **figures(found),
                    "behind": selection.behind[candidate.d, candidate.noise][0],
                    "behind_error": selection.behind[candidate.d, candidate.noise][1],
                }
                for candidate, found in judged.items()
            ],
            "dimension": {"chosen": d, "reason": selection.reason, "noise": name},
            "noise": {"chosen": name, "reason": selection.reason, "d": d},
            "ties": [{"d": d, "noise": name} for d, name in selection.ties],
            "ceiling": describe_ceiling(answers.for_ceiling()),
        }

    return JobPlan(tuple(steps), conclude, shared=(evaluation,))
