"""Embeddings on request: without some participants, and as they were earlier in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.answer_log import Rows
from backend.jobs.answers import Answered
from backend.jobs.cross_validation import (
    RIDGE,
    Candidate,
    Exam,
    ceiling_of,
    figures,
    join_folds,
    judge_fold,
    judged_model,
    noise_of,
)
from backend.jobs.steps import Course, Step
from salmon.errors import TripletError
from salmon.estimator.cross_validation import HeldOut, grouped_interval
from salmon.geometry import principal_axes
from salmon.jobs import RECOMMENDED, EmbeddingAsOf, FitWithout
from salmon.learning import accuracy, fit, log_loss
from salmon.noise import NoiseModel
from salmon.samplers.registry import active_sampler
from salmon.spec import SamplerSpec, Spec

#: Starts of an embedding that is shown: the spectral one and random ones.
_STARTS = 4


def without(meaning: FitWithout, spec: Spec, n: int, answered: Answered) -> Course:
    """The embedding without some participants; then the same answers of the others, judged with and without them."""
    kept = ~answered.given_by(meaning.exclude)
    if not kept.any():
        raise TripletError(
            f"No answers are left to fit: of {len(answered):,} answers that can be fitted, the excluded participants "
            "gave all.",
            hint="Exclude fewer participants.",
        )
    exam = Exam(answered.triplets, answered.random & kept, kept, n, meaning.folds, spec.seed)
    folds = exam.usable_folds if exam.usable_folds > 1 else 0
    candidates = [Candidate(meaning.d, meaning.noise)]
    if not kept.all():
        candidates.append(Candidate(meaning.d, meaning.noise, with_excluded=True))
    steps = [Step("fitting the answers that are kept", fit_kept, (meaning.d, judged_model(meaning.noise)))]
    for candidate in candidates:
        people = "everybody" if candidate.with_excluded or len(candidates) == 1 else "those who are kept"
        steps += [
            Step(f"judging a fit of {people}, fold {fold + 1} of {folds}", judge_fold, (candidate, 0, fold))
            for fold in range(folds)
        ]

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        embedding, *judged = outcomes
        found = [join_folds(exam, [judged[place : place + folds]]) for place in range(0, len(judged), folds or 1)]
        gave_none = sorted(set(meaning.exclude) - set(answered.names))
        notes = [f"Participant {name} gave no answer that can be fitted." for name in gave_none]
        if not folds:
            notes.append("Too few queries were asked at random to hold some out, so no accuracy can be given.")
        return {
            **embedding,
            "sampler": meaning.sampler,
            "excluded": {
                "participants": len(meaning.exclude),
                "answers": int((~kept).sum()),
                # How well the map of the others predicts those who were left out.
                "accuracy": accuracy(np.array(embedding["coordinates"]), answered.triplets[~kept]),
            },
            "held_out": _held_out(found, exam, folds),
            "ceiling": ceiling_of(answered.triplets[answered.repeatable & kept]),
            "notes": notes,
        }

    return Course(tuple(steps), conclude, shared=(exam,))


def as_of(meaning: EmbeddingAsOf, spec: Spec, n: int, answered: Answered) -> Course:
    """A sampler's embedding of the first answers only.

    It is always fitted again from these answers alone: what a run published then had begun at older embeddings, and its
    history keeps coordinates in single precision and not of every generation.
    """
    if meaning.answers is not None and len(answered) < meaning.answers:
        raise TripletError(
            f"There are only {len(answered):,} answers that can be fitted, not {meaning.answers:,}.",
            hint="Ask for fewer.",
        )
    sampler = spec.samplers[meaning.sampler] if meaning.sampler else None
    step = Step(f"fitting the first {len(answered):,} answers", fit_first, (sampler, n, spec.seed))

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        return {
            **outcomes[0],
            "sampler": meaning.sampler,
            "generation": meaning.generation,
            "cursor": answered.cursor,
            "ceiling": ceiling_of(answered.triplets[answered.repeatable]),
        }

    return Course((step,), conclude, shared=(answered.triplets,))


def fit_kept(exam: Exam, d: int, noise: NoiseModel) -> dict[str, Any]:
    """The embedding of the kept answers, on its principal axes."""
    return _fitted(exam.triplets[exam.kept], exam.n, d, noise, exam.seed)


def fit_first(triplets: Rows, sampler: SamplerSpec | None, n: int, seed: int) -> dict[str, Any]:
    """The embedding of these answers as the sampler shows it; the recommended one where there is no active sampler."""
    if sampler is None:
        return _fitted(triplets, n, 2, judged_model(RECOMMENDED), seed)
    active = active_sampler(sampler.sampler_class, dict(sampler.arguments))
    state = active.refit(active.start(n, seed), triplets)
    return _described(active.report(state, triplets), triplets, active.shown_model)


def _fitted(triplets: Rows, n: int, d: int, noise: NoiseModel, seed: int) -> dict[str, Any]:
    found = fit(triplets, n, d, noise=noise, ridge=RIDGE, n_starts=_STARTS, seed=seed)
    return _described(found.coordinates, triplets, noise) | {"converged": found.converged}


def _described(coordinates: NDArray[np.float64], triplets: Rows, noise: NoiseModel) -> dict[str, Any]:
    """An embedding on its principal axes, with how well it agrees with the answers that it was fitted to."""
    return {
        "coordinates": principal_axes(coordinates),
        "noise": noise_of(noise),
        "answers": len(triplets),
        "loss": log_loss(coordinates, triplets, noise=noise),
        "accuracy": accuracy(coordinates, triplets),
    }


def _held_out(found: list[HeldOut], exam: Exam, folds: int) -> dict[str, Any] | None:
    """Accuracy on random answers of those who are kept, and what leaving the others out changes."""
    if not found:
        return None
    content: dict[str, Any] = {"answers": int(exam.judged.sum()), "folds": folds, "without": figures(found[0])}
    if len(found) > 1:
        alone, together = found
        content["with"] = figures(together)
        # A difference in [−1, 1], brought to [0, 1] so that its interval knows of groups and stays within bounds.
        change = grouped_interval((1 + alone.hits.mean(axis=0) - together.hits.mean(axis=0)) / 2, alone.groups)
        content["change"] = {
            "accuracy": 2 * change.value - 1,
            "low": 2 * change.low - 1,
            "high": 2 * change.high - 1,
            "log_loss": alone.log_loss - together.log_loss,
        }
    return content
