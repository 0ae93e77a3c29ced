"""The experiment with simulated participants: which accuracy to expect after how many answers.

Simulated participants answer in random worlds with as many targets, with the noise of people who judged the alien eggs
(Jamieson et al., 2015). The configured sampler and random queries see the same worlds, and one estimator fits both from
their answers alone. There is one refit per round of n queries; a live experiment refits more often.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from backend.jobs.steps import JobPlan, JobStep
from backend.learner import Rows
from salmon.estimator import RECOMMENDED_NOISE
from salmon.estimator.cross_validation import RIDGE
from salmon.jobs import Rehearsal
from salmon.learning import fit
from salmon.samplers.registry import active_sampler
from salmon.samplers.state import State
from salmon.simulate import SimulatedParticipant, random_world, stream
from salmon.spec import SamplerSpec, Spec

#: The name of the curve of random queries in the result; no sampler can have this name.
RANDOM = "random queries"
#: Queries on which an embedding is judged, each by its exact probability: a standard error of about .002.
_JUDGED = 20_000
#: The most measurements of one run.
_MOST_POINTS = 40

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """One run so far: all triplets (m, 3), the sampler's state, and the embedding (n, d) that was judged last.

    `curve` is the expected accuracy at every measurement, `best_possible` that of the truth.
    """

    triplets: Rows
    coordinates: Floats | None = None
    state: State | None = None
    curve: tuple[float, ...] = ()
    best_possible: float = float("nan")


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


def advance(
    sampler: SamplerSpec | None,
    d: int,
    person: SimulatedParticipant,
    seed: int,
    answers: int,
    stage: Stage | None = None,
) -> Stage:
    """Continue a run to so many answers, a round of n queries at a time, and judge its embedding in d dimensions."""
    n = person.world.n
    stage = stage or Stage(np.zeros((0, 3), np.int32))
    while len(stage.triplets) < answers:
        stage = _ask(stage, sampler, person, min(n, answers - len(stage.triplets)), seed)
    found = fit(
        stage.triplets, n, d, noise=RECOMMENDED_NOISE, ridge=RIDGE, start=stage.coordinates, n_starts=2,
        seed=int(stream(seed, "start").integers(2**31)),
    )  # fmt: skip
    accuracy, best = judge(person, found.coordinates, seed)
    return replace(stage, coordinates=found.coordinates, curve=(*stage.curve, accuracy), best_possible=best)


def _ask(stage: Stage, sampler: SamplerSpec | None, person: SimulatedParticipant, count: int, seed: int) -> Stage:
    """Add one round: queries by the sampler from all answers so far, or random ones, and the answers to them."""
    done = len(stage.triplets)
    state = stage.state
    if sampler is None:
        queries = person.world.random_queries(count, stream(seed, "queries", done))
    else:
        active = active_sampler(sampler.sampler_class, dict(sampler.arguments))
        before = state or active.start(person.world.n, int(stream(seed, "sampler").integers(2**31)))
        state = active.refit(before, stage.triplets) if done else before
        queries = active.search(state, stage.triplets, stage.triplets[:0], count).queries
    answers, _ = person.react_all(queries, stream(seed, "answers", done))
    return replace(stage, triplets=np.concatenate([stage.triplets, answers]), state=state)


def judge(person: SimulatedParticipant, coordinates: Floats, seed: int) -> tuple[float, float]:
    """Return (expected accuracy of an embedding on new answers to random queries, the same for the true embedding)."""
    queries = person.world.random_queries(_JUDGED, stream(seed, "judge"))
    chance = person.left_wins(queries)
    heads, first, second = coordinates[queries.T]
    nearer = np.sign(((heads - second) ** 2).sum(axis=1) - ((heads - first) ** 2).sum(axis=1))
    return float((0.5 + nearer * (chance - 0.5)).mean()), float(np.maximum(chance, 1 - chance).mean())


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
