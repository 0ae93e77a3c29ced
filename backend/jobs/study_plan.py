"""The plan of a study: simulated studies, each of them steps, and what is known of the plan after every one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.jobs.steps import JobPlan, JobStep
from salmon.jobs import StudyPlan
from salmon.planning import Plan, PlannedStudy, Stage, advance, as_dict, costs_of
from salmon.spec import SamplerSpec, Spec


def plan_study(job: StudyPlan, spec: Spec) -> JobPlan:
    """Return the plan that simulates the study again and again; each measurement is a step.

    What is known is refined with every run, so it can be shown before the last.
    """
    study = study_of_job(job, spec)
    contenders, points = study.contenders, study.points
    steps: list[JobStep] = []
    for run in range(job.runs):
        person, seed = study.person(run)
        for name, sampler in contenders.items():
            for place, answers in enumerate(points):
                note = f"study {run + 1} of {job.runs}: {name}, {answers:,} answers"
                arguments = (sampler, study.d, person, seed, answers)
                steps.append(JobStep(note, advance, arguments, after=len(steps) - 1 if place else None))
    costs = costs_of(spec, seconds=job.seconds, pay=job.pay, fee=job.fee, besides=job.besides)
    each = len(contenders) * len(points)

    def so_far(outcomes: Sequence[Any]) -> Mapping[str, Any] | None:
        if not outcomes or len(outcomes) % each:
            return None
        ends: list[Stage] = [stage for stage in outcomes if stage is not None]
        runs = [
            dict(zip(contenders, ends[start : start + len(contenders)], strict=True))
            for start in range(0, len(ends), len(contenders))
        ]
        plan = Plan.of(study, runs)
        return as_dict(plan, costs, job.accuracy if job.accuracy is not None else plan.usual_level())

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        found = so_far(outcomes)
        assert found is not None  # noqa: S101 - all steps are done
        return found

    return JobPlan(tuple(steps), conclude, so_far=so_far)


def study_of_job(job: StudyPlan, spec: Spec) -> PlannedStudy:
    """Return the study that a request describes."""
    sampler = spec.samplers.get(job.sampler) or SamplerSpec(name="Adaptive", sampler_class="Adaptive")
    sampler = sampler.model_copy(update={"arguments": {**sampler.arguments, "d": job.d}})
    return PlannedStudy(
        job.targets,
        job.d,
        sampler,
        people=job.people,
        world=job.world,
        lapse=job.lapse,
        most=job.answers,
        seed=spec.seed,
    )
