"""Compare dimensions and noise models by cross-validation on the same folds.

Every fold is a step of its own, so that a job shows its progress, can be cancelled, and yields to live learning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from backend.jobs.answers import AnswerSet
from backend.jobs.steps import JobPlan, JobStep
from backend.learner import Rows
from salmon.errors import TripletError
from salmon.estimator.cross_validation import (
    Candidate,
    Evaluation,
    Floats,
    HeldOut,
    Interval,
    Pair,
    choose,
    noise_ceiling,
    noise_with_lapse,
)
from salmon.jobs import RECOMMENDED, CrossValidation, Estimate
from salmon.noise import NoiseModel
from salmon.spec import Spec


def judge_fold(evaluation: Evaluation, candidate: Candidate, repeat: int, fold: int) -> tuple[Floats, Floats, int]:
    """Judge the answers of one fold, as the step of a job."""
    return evaluation.judge_fold(candidate, repeat, fold)


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
    if not folds:
        raise TripletError(
            f"{int(answers.random.sum()):,} of {len(answers):,} answers are to random queries: too few to hold some out.",
            hint="Wait for more answers, or give the experiment a random share.",
        )
    candidates = {(d, noise): Candidate(d, noise_with_lapse(noise)) for noise, d in product(job.noise, job.dimensions)}
    steps = [
        JobStep(f"judging d = {d} with {noise}, fold {fold + 1} of {folds}", judge_fold, (candidate, repeat, fold))
        for (d, noise), candidate in candidates.items()
        for repeat in range(job.repeats)
        for fold in range(folds)
    ]

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        size = job.repeats * folds
        judged: dict[Pair, HeldOut] = {}
        for place, pair in enumerate(candidates):
            own = outcomes[place * size : (place + 1) * size]
            judged[pair] = evaluation.join_folds([own[start : start + folds] for start in range(0, size, folds)])
        selection = choose(judged)
        d, name = selection.chosen
        return {
            "answers": len(answers),
            "judged": int(evaluation.judged.sum()),
            "folds": folds,
            "repeats": job.repeats,
            "candidates": [
                {
                    "d": pair[0],
                    "noise": describe_noise(candidates[pair].noise),
                    **figures(found),
                    "behind": selection.behind[pair][0],
                    "behind_error": selection.behind[pair][1],
                }
                for pair, found in judged.items()
            ],
            "dimension": {"chosen": d, "reason": selection.reason, "noise": name},
            "noise": {"chosen": name, "reason": selection.reason, "d": d},
            "ties": [{"d": d, "noise": name} for d, name in selection.ties],
            "ceiling": describe_ceiling(answers.for_ceiling()),
        }

    return JobPlan(tuple(steps), conclude, shared=(evaluation,))
