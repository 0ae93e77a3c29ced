"""From a job that was asked for to its plan: read its arguments and its answers, and list the steps to its result."""

from collections.abc import Callable

from backend.jobs.answers import AnswerSet, collect_answers
from backend.jobs.cross_validation import plan_comparison
from backend.jobs.embeddings import plan_embedding_as_of, plan_fit_without
from backend.jobs.people_groups import plan_groups
from backend.jobs.sampler_race import collect_race, plan_race
from backend.jobs.steps import JobPlan
from backend.jobs.study_plan import plan_study
from backend.store import Store
from salmon.errors import SalmonError, TripletError
from salmon.jobs import CrossValidation, EmbeddingAsOf, FitWithout, Job, PeopleGroups, SamplerRace, StudyPlan, read_job
from salmon.spec import Spec
from salmon.wire import Request


def plan_job(store: Store, asked: Request, on_progress: Callable[[int], None]) -> JobPlan:
    """Return the plan of a job about the newest revision of its experiment;
    `on_progress(count)` while answers are read.
    """
    found = store.find_experiment(asked.experiment)
    if found is None:
        raise SalmonError("The experiment was deleted before this request was carried out.")
    spec, n = store.read_spec(asked.experiment, found.revision)
    job = read_job(asked.kind, asked.arguments, spec, n)
    if isinstance(job, StudyPlan):
        return plan_study(job, spec)
    if isinstance(job, SamplerRace):
        answered = store.read_answers(asked.experiment, after="0", until="+")
        return plan_race(collect_race(answered, spec, n, on_progress))
    until = _find_generation(store, asked.experiment, job) if isinstance(job, EmbeddingAsOf) else None
    answers = _answered(store, asked.experiment, job, spec, n, on_progress, until=until)
    match job:
        case EmbeddingAsOf():
            features = store.read_features(asked.experiment, found.revision)
            shown = store.find_shown(asked.experiment, job.sampler, until=until or answers.cursor)
            return plan_embedding_as_of(job, spec, n, answers, features, published=shown)
        case FitWithout():
            shown = store.read_shown(asked.experiment, job.sampler)
            return plan_fit_without(job, spec, n, answers, published=shown)
        case CrossValidation():
            return plan_comparison(job, spec, n, answers)
        case PeopleGroups():
            return plan_groups(job, spec, n, answers)


def _find_generation(store: Store, experiment: str, job: EmbeddingAsOf) -> str | None:
    """Return the cursor of the generation that a job is about; None if it names no generation."""
    if job.generation is None:
        return None
    until = store.find_generation(experiment, job.sampler, job.generation)
    if until is None:
        raise SalmonError(
            f"The history of {job.sampler} has no generation {job.generation:,}.",
            hint="Give one that it has, or answers.",
        )
    return until


def _answered(
    store: Store,
    experiment: str,
    job: Job,
    spec: Spec,
    n: int,
    on_progress: Callable[[int], None],
    *,
    until: str | None,
) -> AnswerSet:
    tests = frozenset(name for name, sampler in spec.samplers.items() if sampler.test)
    answers = collect_answers(
        store.read_answers(experiment, after="0", until=until or "+"),
        tests=tests,
        n=n,
        at_most=job.answers if isinstance(job, EmbeddingAsOf) else None,
        on_progress=on_progress,
    )
    if not len(answers):
        raise TripletError("There are no answers that can be fitted.", hint="Ask again when there are some.")
    return answers
