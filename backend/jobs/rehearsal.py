"""The experiment with simulated participants: which accuracy to expect after how many answers.

Simulated participants answer in random worlds with as many targets, with the noise of people who judged the alien eggs
(Jamieson et al., 2015). The configured sampler and random queries see the same worlds, and one estimator fits both from
their answers alone. There is one refit per round of n queries; a live experiment refits more often.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from backend.jobs.steps import JobPlan, JobStep
from salmon.jobs import Rehearsal
from salmon.planning import RANDOM, Stage, advance
from salmon.simulate import SimulatedParticipant, random_world
from salmon.spec import SamplerSpec, Spec

#: The most measurements of one run.
_MOST_POINTS = 40

Floats = NDArray[np.float64]


def plan_rehearsal(job: Rehearsal, spec: Spec, n: int) -> JobPlan:
    """Return the plan of all runs of the sampler and of random queries; each measurement is a step."""
    points = measured_at(n, job.answers)
    samplers: dict[str, SamplerSpec | None] = {RANDOM: None}
    if job.sampler:
        samplers[job.sampler] = spec.samplers[job.sampler]
    # Both are judged in the dimension in which the experiment will be shown.
    shown = int(spec.samplers[job.sampler].arguments.get("d", 2)) if job.sampler else job.d  # pyright: ignore[reportArgumentType]
    steps: list[JobStep] = []
    for run in range(job.runs):
        seed = int(np.random.SeedSequence([spec.seed, run]).generate_state(1)[0])
        person = SimulatedParticipant(random_world(n, job.d, seed), lapse=job.lapse)
        for name, sampler in samplers.items():
            for place, answers in enumerate(points):
                arguments = (sampler, shown, person, seed, answers)
                note = f"run {run + 1} of {job.runs}: {name}, {answers:,} answers"
                steps.append(JobStep(note, advance, arguments, after=len(steps) - 1 if place else None))

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        ends: list[Stage] = [stage for stage in outcomes if stage is not None]
        accuracy = np.array([stage.curve for stage in ends]).reshape(job.runs, len(samplers), len(points))
        curves = {name: _curve(accuracy[:, place]) for place, name in enumerate(samplers)}
        return {
            "n": n,
            "d": job.d,
            "runs": job.runs,
            "answers": points,
            "curves": curves,
            "best_possible": np.array([stage.best_possible for stage in ends]).mean(),
            "random_needs": _random_needs(points, curves, job.sampler),
        }

    return JobPlan(tuple(steps), conclude)


def measured_at(n: int, answers: int) -> list[int]:
    """Return the numbers of answers at which embeddings are judged: every n, fewer in a long run, and always the last."""
    every = n * max(1, -(-answers // (n * _MOST_POINTS)))
    return [*range(every, answers, every), answers]


def _curve(accuracy: Floats) -> dict[str, list[float]]:
    """Return the mean over runs of (runs, points) accuracies, with Student's 95 % interval if there are two runs or more."""
    runs = len(accuracy)
    mean = accuracy.mean(axis=0)
    spread = accuracy.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full_like(mean, np.nan)
    half = float(student.ppf(0.975, max(1, runs - 1))) * spread
    return {"accuracy": mean.tolist(), "low": (mean - half).tolist(), "high": (mean + half).tolist()}


def _random_needs(points: list[int], curves: Mapping[str, Mapping[str, list[float]]], sampler: str) -> float | None:
    """Return how many times more answers random queries need than the sampler for the accuracy they reach at the end."""
    if sampler not in curves:
        return None
    level = curves[RANDOM]["accuracy"][-1]
    reached = np.maximum.accumulate(curves[sampler]["accuracy"])
    if reached[0] >= level or reached[-1] < level:
        return None
    return points[-1] / float(np.interp(level, reached, points))
