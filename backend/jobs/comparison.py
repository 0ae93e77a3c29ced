"""Which dimension, and which noise model: every combination is judged on the same folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from backend.jobs.answered import Answered
from backend.jobs.course import Course, Step
from backend.jobs.folds import Candidate, Exam, ceiling_of, figures, join_folds, judge_fold, noise_of
from salmon.analysis import HeldOut, choose_dimension, choose_noise_by_accuracy
from salmon.errors import TripletError
from salmon.requests import CrossValidation
from salmon.spec import Spec


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
