"""From a request to its course: what it means, which answers it needs, and the steps to its result."""

from __future__ import annotations

from collections.abc import Callable

from backend.jobs.answers import Answered, gather
from backend.jobs.cross_validation import compare
from backend.jobs.embeddings import as_of, without
from backend.jobs.rehearsal import rehearse
from backend.jobs.steps import Course
from backend.store import Store
from salmon.errors import SalmonError, TripletError
from salmon.jobs import CrossValidation, EmbeddingAsOf, FitWithout, Meaning, Rehearsal, read_request
from salmon.spec import Manifest, Spec, read_stored_spec, targets_of
from salmon.wire import Request


def course_of(store: Store, asked: Request, heard: Callable[[int], None]) -> Course:
    """The course of a request, from the newest revision of its experiment; `heard(count)` while answers are read."""
    spec, n = read_spec(store, asked.experiment)
    meaning = read_request(asked.kind, asked.arguments, spec, n)
    if isinstance(meaning, Rehearsal):
        return rehearse(meaning, spec, n)
    answered = _answered(store, asked.experiment, meaning, spec, n, heard)
    match meaning:
        case EmbeddingAsOf():
            return as_of(meaning, spec, n, answered)
        case FitWithout():
            return without(meaning, spec, n, answered)
        case CrossValidation():
            return compare(meaning, spec, n, answered)


def read_spec(store: Store, experiment: str) -> tuple[Spec, int]:
    """An experiment's newest description and how many targets it has."""
    found = store.find_experiment(experiment)
    if found is None:
        raise SalmonError("The experiment was deleted before this request was carried out.")
    revision = store.read_revision(experiment, found.revision)
    manifest = Manifest.load(revision["manifest"]) if revision["manifest"] else None
    spec = read_stored_spec(revision["spec"], manifest)
    return spec, len(targets_of(spec, manifest))


def _answered(
    store: Store, experiment: str, meaning: Meaning, spec: Spec, n: int, heard: Callable[[int], None]
) -> Answered:
    until, at_most = "+", None
    if isinstance(meaning, EmbeddingAsOf):
        at_most = meaning.answers
        if meaning.generation is not None:
            until = _cursor_of(store, experiment, meaning.sampler, meaning.generation)
    tests = frozenset(name for name, sampler in spec.samplers.items() if sampler.test)
    answers = store.read_answers(experiment, after="0", until=until)
    answered = gather(answers, tests=tests, n=n, at_most=at_most, heard=heard)
    if not len(answered):
        raise TripletError("There are no answers that can be fitted.", hint="Ask again when there are some.")
    return answered


def _cursor_of(store: Store, experiment: str, sampler: str, generation: int) -> str:
    cursor = store.find_generation(experiment, sampler, generation)
    if cursor is None:
        raise SalmonError(
            f"The history of {sampler} has no generation {generation:,}.", hint="Give one that it has, or answers."
        )
    return cursor
