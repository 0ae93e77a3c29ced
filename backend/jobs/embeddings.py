"""Jobs that fit an embedding: without some participants, and as it was earlier in the run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.jobs.answers import AnswerSet
from backend.jobs.cross_validation import (
    describe_ceiling,
    describe_noise,
    figures,
    judge_fold,
)
from backend.jobs.steps import JobPlan, JobStep
from backend.learner import Rows
from salmon.answer_files.published_map import PublishedMap
from salmon.errors import TripletError
from salmon.estimator.cross_validation import RIDGE, Candidate, Evaluation, HeldOut, noise_with_lapse, paired_difference
from salmon.geometry import principal_axes
from salmon.jobs import RECOMMENDED, EmbeddingAsOf, ExcludedAnswers, FitWithout, HeldOutAccuracy
from salmon.learning import accuracy, fit, log_loss
from salmon.learning.features import Features
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.noise import NoiseModel
from salmon.samplers.registry import active_sampler
from salmon.spec import SamplerSpec, Spec

#: Starts of an embedding that is shown: the spectral one and random ones.
_STARTS = 4
_Z = 1.959964  # 95 %
Floats = NDArray[np.float64]


def plan_fit_without(
    job: FitWithout, spec: Spec, n: int, answers: AnswerSet, *, published: PublishedMap | None = None
) -> JobPlan:
    """Return the plan of a fit without some participants, and of the accuracy on the others'
    answers with and without them.

    The `published` map is one start of the fit. Fits that are judged do not start from it: it has seen what they hold
    out.
    """
    kept = ~answers.given_by(job.exclude)
    if not kept.any():
        raise TripletError(
            f"No answers are left to fit: of {len(answers):,} answers that can be fitted, the excluded participants "
            "gave all.",
            hint="Exclude fewer participants.",
        )
    evaluation = Evaluation(answers.triplets, answers.random, kept, n, job.folds, spec.seed)
    folds = evaluation.usable_folds
    # The first is the accuracy that the overview shows; the second, on the same folds, says what leaving people out
    # changes.
    candidates = [Candidate(job.d, noise_with_lapse(job.noise))]
    if folds and not kept.all() and (answers.random & kept).any():
        candidates.append(replace(candidates[0], only_kept=True))
    start = published and published.coordinates
    steps = [JobStep("fitting the answers that are kept", fit_kept, (job.d, noise_with_lapse(job.noise), start))]
    for candidate in candidates:
        people = "those who are kept" if candidate.only_kept else "everybody"
        steps += [
            JobStep(f"judging a fit of {people}, fold {fold + 1} of {folds}", judge_fold, (candidate, 0, fold))
            for fold in range(folds)
        ]

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        embedding, *judged = outcomes
        everybody = evaluation.join_folds([judged[:folds]]) if folds else None
        alone = evaluation.join_folds([judged[folds:]], only_kept=True) if len(candidates) > 1 else None
        notes = [
            f"Participant {name} gave no answer that can be fitted."
            for name in sorted(set(job.exclude) - set(answers.names))
        ]
        if not folds:
            notes.append("Too few queries were asked at random to hold some out, so no accuracy can be given.")
        excluded: ExcludedAnswers = {
            "participants": len(job.exclude),
            "answers": int((~kept).sum()),
            # How well the map of the others predicts those who were left out.
            "accuracy": accuracy(np.array(embedding["coordinates"]), answers.triplets[~kept]),
        }
        return {
            **embedding,
            "sampler": job.sampler,
            "start": published and published.as_json(),
            "excluded": excluded,
            "held_out": _held_out(everybody, alone, evaluation),
            "ceiling": describe_ceiling(answers.for_ceiling(without=job.exclude)),
            "notes": notes,
        }

    return JobPlan(tuple(steps), conclude, shared=(evaluation,))


def plan_embedding_as_of(
    job: EmbeddingAsOf,
    spec: Spec,
    n: int,
    answers: AnswerSet,
    features: Features | None = None,
    *,
    published: PublishedMap | None = None,
) -> JobPlan:
    """Return the plan of a fit to the first answers only.

    It is always fitted again from these answers alone: what the run published at that time had started from older
    embeddings, and the history keeps coordinates in single precision and not of every generation. The map that was
    `published` then is one of its starts.
    """
    if job.answers is not None and len(answers) < job.answers:
        raise TripletError(
            f"There are only {len(answers):,} answers that can be fitted, not {job.answers:,}.",
            hint="Ask for fewer.",
        )
    sampler = spec.samplers[job.sampler] if job.sampler else None
    arguments = (sampler, n, spec.seed, features, published and published.coordinates)
    step = JobStep(f"fitting the first {len(answers):,} answers", fit_first, arguments)

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        return {
            **outcomes[0],
            "sampler": job.sampler,
            "start": published and published.as_json(),
            "generation": job.generation,
            "cursor": answers.cursor,
            "ceiling": describe_ceiling(answers.for_ceiling()),
        }

    return JobPlan((step,), conclude, shared=(answers.triplets,))


def fit_kept(
    evaluation: Evaluation, d: int, noise: NoiseModel | None, published: Floats | None = None
) -> dict[str, Any]:
    """Fit the embedding of the kept answers, on its principal axes."""
    return _fitted(evaluation.triplets[evaluation.kept], evaluation.n, d, noise, evaluation.seed, published)


def fit_first(
    triplets: Rows,
    sampler: SamplerSpec | None,
    n: int,
    seed: int,
    features: Features | None,
    published: Floats | None = None,
) -> dict[str, Any]:
    """Fit these answers as the sampler does, or with the recommended noise model if there is no active sampler.

    A `published` map is polished beside the sampler's own embedding, unless that was stopped before it converged.
    """
    if sampler is None:
        return _fitted(triplets, n, 2, noise_with_lapse(RECOMMENDED), seed, published)
    active = active_sampler(sampler.sampler_class, dict(sampler.arguments))
    state = active.refit(replace(active.start(n, seed), features=features), triplets)
    shown = active.report(state, triplets)
    searched = {"searched_with": describe_noise(active.model)}
    coordinates = shown.coordinates
    if published is not None and shown.ridge is not None:
        coordinates = fit(
            triplets, n, coordinates.shape[1], noise=shown.noise, ridge=shown.ridge, precision=shown.precision,
            start=coordinates, published=published, n_starts=0, seed=seed,
        ).coordinates  # fmt: skip
    return _described(coordinates, triplets, shown.noise) | searched


def _fitted(
    triplets: Rows, n: int, d: int, noise: NoiseModel | None, seed: int, published: Floats | None
) -> dict[str, Any]:
    with_noise = fit_with_learned_noise if noise is None else partial(fit, noise=noise)
    found = with_noise(triplets, n, d, ridge=RIDGE, published=published, n_starts=_STARTS, seed=seed)
    return _described(found.coordinates, triplets, found.noise) | {"converged": found.converged}


def _described(coordinates: Floats, triplets: Rows, noise: NoiseModel) -> dict[str, Any]:
    """Describe an embedding on its principal axes, with its loss and accuracy on the answers that it was fitted to."""
    return {
        "coordinates": principal_axes(coordinates),
        "noise": describe_noise(noise),
        "answers": len(triplets),
        "loss": log_loss(coordinates, triplets, noise=noise),
        "accuracy": accuracy(coordinates, triplets),
    }


def _held_out(everybody: HeldOut | None, alone: HeldOut | None, evaluation: Evaluation) -> HeldOutAccuracy | None:
    """Describe the accuracy of everybody's embedding, and how leaving some out changes
    it on the answers of the others.
    """
    if everybody is None:
        return None
    content: HeldOutAccuracy = {
        "answers": int(evaluation.judged.sum()),
        "folds": evaluation.usable_folds,
        "everybody": figures(everybody),
    }
    if alone is not None:
        own = evaluation.kept[evaluation.judged]
        together = HeldOut(
            everybody.hits[:, own], everybody.losses[:, own], everybody.folds[:, own], alone.groups, everybody.fitted
        )
        gain, error = paired_difference(alone, together)
        content["kept_answers"] = int(own.sum())
        content["with"], content["without"] = figures(together), figures(alone)
        content["change"] = {
            "accuracy": gain,
            "low": max(-1.0, gain - _Z * error),
            "high": min(1.0, gain + _Z * error),
            "log_loss": alone.log_loss - together.log_loss,
        }
    return content
