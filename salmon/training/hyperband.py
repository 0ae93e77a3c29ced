"""Hyperband: search parameters by training many models a little, and only the best of them to the end.

Each bracket starts many models, trains them a little, keeps the best fraction and trains those longer (Li et al. 2018,
algorithm 1). All brackets take about the same work; they differ in how much they trust early scores. The decisions are
pure functions of the scores, so that a recorded search can be replayed; `HyperbandSearch` carries them out on an
executor.
"""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterSampler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from salmon.errors import SalmonError
from salmon.parallel import Executor, SerialExecutor, Task, on_executor

# What a model may raise without ending the search: an impossible combination of parameters, divergence, or a wrong
# shape.
_FAILURES = (SalmonError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class HyperbandSearch(BaseEstimator):
    """Search parameters of an estimator with `partial_fit` by Hyperband (Li et al. 2018; Sievert 2021, chapter 2).

    Parameters
    ----------
    estimator : estimator with partial_fit and score
    parameters : dict of name -> list of values, or distribution with rvs
    max_iter : partial_fit calls of the models that are trained longest
    aggressiveness : one in this many models is promoted to the next rung
    chunk_size : examples of each partial_fit call; None is all of them. `rule_of_thumb` computes max_iter and
        chunk_size
    passive : random search with the same work: train fewer models, each of them to the end
    patience : number of calls after which a model that improves by less than `tolerance` stops; True is max_iter /
        aggressiveness
    test_share : share of the examples held out for scores, unless fit is given a test set
    priorities : whether the models with the highest scores are trained first
    random_state : int, RandomState or None
    executor : executor, Dask client or None (this process)

    Attributes
    ----------
    best_estimator_, best_params_, best_score_, best_index_, metadata_, model_params_
    cv_results_ : dict of arrays with one entry for each model: params, param_…, mean_test_score, rank_test_score,
        partial_fit_calls, bracket, and error, the sentence with which a model failed
    history_ : one dict for each score: model, bracket, partial_fit_calls, score, seconds, total_calls
    """

    def __init__(
        self,
        estimator: Any,
        parameters: Mapping[str, Any],
        *,
        max_iter: int = 81,
        aggressiveness: int = 3,
        chunk_size: int | None = None,
        passive: bool = False,
        patience: bool | int = False,
        tolerance: float = 1e-3,
        test_share: float = 0.15,
        priorities: bool = True,
        random_state: Any = None,
        executor: Any = None,
    ) -> None:
        self.estimator = estimator
        self.parameters = parameters
        self.max_iter = max_iter
        self.aggressiveness = aggressiveness
        self.chunk_size = chunk_size
        self.passive = passive
        self.patience = patience
        self.tolerance = tolerance
        self.test_share = test_share
        self.priorities = priorities
        self.random_state = random_state
        self.executor = executor

    @property
    def brackets(self) -> "tuple[Bracket, ...]":
        """Return the brackets of the search."""
        hyperband = hyperband_brackets(self.max_iter, self.aggressiveness)
        if not self.passive:
            return hyperband
        return random_search(max(1, round(sum(each.calls for each in hyperband) / self.max_iter)), self.max_iter)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return how many models and partial_fit calls the search takes; available before fitting."""
        return {
            "n_models": sum(each.models for each in self.brackets),
            "partial_fit_calls": sum(each.calls for each in self.brackets),
            "brackets": [{"bracket": each.index, "rungs": each.rungs} for each in self.brackets],
        }

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, test: tuple[ArrayLike, ArrayLike | None] | None = None
    ) -> Self:
        """Run the search. Models are scored on `test` (X, y), or on a held-out share of X and y."""
        rng = check_random_state(self.random_state)
        train, test_set = self._split(np.asarray(X), None if y is None else np.asarray(y), test, rng)
        brackets = self.brackets
        count = sum(each.models for each in brackets)
        sampled = list(
            cast(
                "Any", ParameterSampler(dict(self.parameters), _count_samples(self.parameters, count), random_state=rng)
            )
        )
        self.model_params_: list[dict[str, Any]] = [sampled[number % len(sampled)] for number in range(count)]
        seed = int(rng.randint(2**31))
        classes = (
            np.unique(train[1]) if train[1] is not None and hasattr(type(self.estimator), "predict_proba") else None
        )
        executor = on_executor(self.executor) or SerialExecutor()
        stride = int(self.max_iter / self.aggressiveness) if self.patience is True else int(self.patience)
        search = new_search(
            brackets, patience=stride, tolerance=self.tolerance, priorities=self.priorities, workers=executor.workers
        )
        pool = _WorkPool(executor, executor.scatter((train, test_set, classes, seed, self.chunk_size)))
        models: dict[int, Task | Any] = {
            number: make_model(self.estimator, parameters, seed + number)
            for number, parameters in enumerate(self.model_params_)
        }
        self.history_: list[dict[str, float]] = []
        started, total = time.perf_counter(), 0
        for work in search.begin():
            pool.submit(models, work, 0)
        while pool.running:
            work, had, score = pool.next_score()
            total += work.calls - had
            self.history_.append(
                {
                    "model": work.model, "bracket": brackets[search.models[work.model].bracket].index,
                    "partial_fit_calls": work.calls, "score": score, "seconds": time.perf_counter() - started,
                    "total_calls": total,
                }
            )  # fmt: skip
            search, more = search.absorb(work, score)
            for next_work in more:
                pool.submit(models, next_work, search.models[next_work.model].calls)
        best = search.best()
        self.best_index_, self.best_score_ = best, search.models[best].score
        self.cv_results_ = tabulate_models(search, self.model_params_, pool.errors)
        if not np.isfinite(self.best_score_):
            raise SalmonError(
                f"No model of the search could be trained. The first one: {pool.errors.get(0, 'its score is not finite')}",
                hint="Narrow the parameters: training may diverge at every step size.",
            )
        self.best_params_ = self.model_params_[best]
        self.best_estimator_ = cast("Task", models[best]).result()
        self.metadata_ = {**self.metadata, "partial_fit_calls": total}
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict with the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Predict probabilities with the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Score the best model."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def _split(self, X: Any, y: Any, test: Any, rng: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        if test is not None:
            return (X, y), test
        if not 0 < self.test_share < 1:
            raise SalmonError(
                f"With a test_share of {self.test_share}, training or test set is empty.",
                hint="Give a number between 0 and 1.",
            )
        order = rng.permutation(len(X))
        held = max(1, round(self.test_share * len(X)))
        parts = [(X[chosen], None if y is None else y[chosen]) for chosen in (order[held:], order[:held])]
        return parts[0], parts[1]


@dataclass(frozen=True)
class Bracket:
    """A bracket: `rungs` holds (models, partial_fit calls of each so far) at each decision; the
    last rung is trained to the end.
    """

    index: int
    rungs: tuple[tuple[int, int], ...]

    @property
    def models(self) -> int:
        """Return the number of models that the bracket starts."""
        return self.rungs[0][0]

    @property
    def calls(self) -> int:
        """Return the partial_fit calls of the whole bracket."""
        before = [0, *(calls for _, calls in self.rungs)]
        return sum(models * (calls - earlier) for (models, calls), earlier in zip(self.rungs, before, strict=False))


def hyperband_brackets(max_iter: int, aggressiveness: int = 3) -> tuple[Bracket, ...]:
    """Return the brackets, the most adaptive one first, computed in exact arithmetic.

    For s from s_max = ⌊log_η R⌋ down to 0, start ⌈(s_max + 1)/(s + 1) · ηˢ⌉ models with R/ηˢ calls; after
    each rung, one in η is promoted.
    """
    problems = [
        f"max_iter is {max_iter}." if max_iter < 1 else "",
        f"aggressiveness is {aggressiveness}." if aggressiveness < 2 else "",
    ]
    if any(problems):
        raise SalmonError(" ".join(filter(None, problems)), hint="Give max_iter ≥ 1 and aggressiveness ≥ 2.")
    largest = 0
    while aggressiveness ** (largest + 1) <= max_iter:
        largest += 1
    found: list[Bracket] = []
    for s in range(largest, -1, -1):
        models = -(-(largest + 1) * aggressiveness**s // (s + 1))
        rungs = tuple(
            (models // aggressiveness**i, max(1, max_iter * aggressiveness**i // aggressiveness**s))
            for i in range(s + 1)
        )
        found.append(Bracket(s, tuple(rung for rung in rungs if rung[0] > 0)))
    return tuple(found)


def random_search(models: int, calls: int) -> tuple[Bracket, ...]:
    """Return a single bracket in which every model is trained to the end."""
    return (Bracket(0, ((models, calls),)),)


def rule_of_thumb(parameters: int, examples: int) -> tuple[int, int]:
    """Return (max_iter, chunk_size) to try about this many parameter settings and train
    the best on this many examples.
    """
    if parameters < 1 or examples < parameters:
        raise SalmonError(f"{examples} examples cannot be divided into {parameters} calls.", hint="Give more examples.")
    return parameters, examples // parameters


@dataclass(frozen=True)
class WorkItem:
    """Train one model until it has had `calls` partial_fit calls, and score it."""

    model: int
    calls: int
    priority: float = 0.0


@dataclass(frozen=True)
class CandidateModel:
    """One model of a search: its bracket and rung, calls so far, (calls, score) pairs, and whether it was stopped."""

    bracket: int
    rung: int = 0
    calls: int = 0
    scores: tuple[tuple[int, float], ...] = ()
    stopped: bool = False

    @property
    def score(self) -> float:
        """Return the last score, −∞ before the first."""
        return self.scores[-1][1] if self.scores else -inf


@dataclass(frozen=True)
class SearchState:
    """A search between two work items.

    A model stops after `patience` calls without an improvement of `tolerance`; 0 disables this. The `workers` worst
    models of a bracket share one priority; without `priorities`, work is done first in, first out.
    """

    brackets: tuple[Bracket, ...]
    models: Mapping[int, CandidateModel]
    patience: int = 0
    tolerance: float = 1e-3
    priorities: bool = True
    workers: int = 1

    def begin(self) -> list[WorkItem]:
        """Return the first work item of every model."""
        return [self.work(number) for number in self.models]

    def absorb(self, done: WorkItem, score: float) -> tuple["SearchState", list[WorkItem]]:
        """Return the search after a finished work item, and the items that it makes possible."""
        model = self.models[done.model]
        scored = replace(model, calls=done.calls, scores=(*model.scores, (done.calls, score)))
        scored = replace(scored, stopped=not np.isfinite(score) or self._plateau(scored))
        search = replace(self, models={**self.models, done.model: scored})
        if not scored.stopped and scored.calls < search.target(scored):
            return search, [search.work(done.model)]
        return search.promote(scored.bracket, scored.rung)

    def best(self) -> int:
        """Return the number of the model with the highest last score."""
        return max(self.models, key=lambda number: self.models[number].score)

    def promote(self, bracket: int, rung: int) -> tuple["SearchState", list[WorkItem]]:
        """Promote the best models of a rung once all of its models are trained and scored."""
        members = {
            number: model for number, model in self.models.items() if (model.bracket, model.rung) == (bracket, rung)
        }
        rungs = self.brackets[bracket].rungs
        waiting = any(not model.stopped and model.calls < self.target(model) for model in members.values())
        if waiting or rung + 1 == len(rungs):
            return self, []
        ranked = sorted(members, key=lambda number: (-members[number].score, number))
        promoted = [number for number in ranked[: rungs[rung + 1][0]] if not members[number].stopped]
        raised = {number: replace(members[number], rung=rung + 1) for number in promoted}
        search = replace(self, models={**self.models, **raised})
        return search, [search.work(number) for number in promoted]

    def target(self, model: CandidateModel) -> int:
        """Return the number of calls at which the model's rung is decided."""
        return self.brackets[model.bracket].rungs[model.rung][1]

    def work(self, number: int) -> WorkItem:
        """Return the next work item of a model."""
        model = self.models[number]
        target = self.target(model)
        # A plateau can only be detected if a model is scored along the way.
        stride = max(1, self.patience // 3) if self.patience else target
        return WorkItem(number, min(target, model.calls + stride), self._priority(number))

    def _priority(self, number: int) -> float:
        """Return the last score; the worst models of a bracket share the median of theirs,
        and unscored models come last.
        """
        if not self.priorities:
            return 0.0
        own = self.models[number]
        scores = sorted(each.score for each in self.models.values() if each.bracket == own.bracket and each.scores)
        worst = scores[: self.workers]
        return float(np.median(worst)) if own.score in worst and len(scores) > self.workers else own.score

    def _plateau(self, model: CandidateModel) -> bool:
        """Whether the best score of the last `patience` calls does not improve on the best before them."""
        if not self.patience:
            return False
        before = [score for calls, score in model.scores if calls <= model.calls - self.patience]
        since = [score for calls, score in model.scores if calls > model.calls - self.patience]
        return bool(before) and max(since) < max(before) + self.tolerance


def new_search(
    brackets: tuple[Bracket, ...],
    *,
    patience: int = 0,
    tolerance: float = 1e-3,
    priorities: bool = True,
    workers: int = 1,
) -> SearchState:
    """Return a search of these brackets before its first work item."""
    numbers = [place for place, bracket in enumerate(brackets) for _ in range(bracket.models)]
    models = {number: CandidateModel(place) for number, place in enumerate(numbers)}
    return SearchState(brackets, models, patience, tolerance, priorities, workers)


class _WorkPool:
    """Work of a search on an executor: models stay where they were trained, and only scores are returned."""

    def __init__(self, executor: Executor, data: Any) -> None:
        self._executor, self._data = executor, data
        self.running: list[tuple[Task, WorkItem, int]] = []
        #: Number of a model that failed -> why.
        self.errors: dict[int, str] = {}

    def submit(self, models: dict[int, Any], work: WorkItem, had: int) -> None:
        """Train a model further and score it."""
        # Executors need a finite priority: models without a score come last.
        priority = work.priority if np.isfinite(work.priority) else -1e6
        trained = self._executor.submit(train_model, models[work.model], self._data, had, work.calls, priority=priority)
        models[work.model] = trained
        self.running.append((self._executor.submit(score_model, trained, self._data, priority=priority), work, had))

    def next_score(self) -> tuple[WorkItem, int, float]:
        """Wait for the next score; return its work item, the calls that the model had before, and the score."""
        first = next(iter(self._executor.as_completed([task for task, _, _ in self.running])))
        place = next(place for place, (task, _, _) in enumerate(self.running) if task is first)
        task, work, had = self.running.pop(place)
        score, error = task.result()
        if error:
            self.errors[work.model] = error
        return work, had, float(score)


@dataclass(frozen=True)
class FailedModel:
    """A model that could not be made, trained or scored, and why: it ends with a score
    of −∞, and the search goes on.
    """

    error: str


def train_model(model: Any, data: Any, had: int, calls: int) -> Any:
    """Return a copy of the model after more partial_fit calls, each on its own chunk, or why it failed."""
    if isinstance(model, FailedModel):
        return model
    (X, y), _, classes, seed, chunk_size = data
    size = min(chunk_size or len(X), len(X))
    named = {} if classes is None else {"classes": classes}
    try:
        # The earlier state is needed again if a worker is lost.
        trained: Any = clone(model) if had == 0 else deepcopy(model)
        for call in range(had, calls):
            chosen = select_chunk(len(X), size, call, seed)
            trained.partial_fit(X[chosen], *(() if y is None else (y[chosen],)), **named)
    except _FAILURES as error:
        return _explain_failure(error)
    return trained


def score_model(model: Any, data: Any) -> tuple[float, str]:
    """Return (score on the held-out examples, ""), or (−∞, why the model failed)."""
    if isinstance(model, FailedModel):
        return -inf, model.error
    X, y = data[1]
    try:
        score = float(model.score(X) if y is None else model.score(X, y))
    except _FAILURES as error:
        return -inf, _explain_failure(error).error
    return (score, "") if np.isfinite(score) else (-inf, "Its score is not finite.")


def tabulate_models(
    search: SearchState, parameters: Sequence[Mapping[str, Any]], errors: Mapping[int, str]
) -> dict[str, Any]:
    """Return the models of a search as columns, named as in scikit-learn's searches."""
    models = [search.models[number] for number in range(len(parameters))]
    scores = np.array([np.nan if number in errors else model.score for number, model in enumerate(models)])
    known = np.where(np.isnan(scores), -inf, scores)
    names = sorted({name for each in parameters for name in each})
    columns = {f"param_{name}": np.empty(len(models), dtype=object) for name in names}
    for number, each in enumerate(parameters):
        for name in names:
            columns[f"param_{name}"][number] = each.get(name)
    return {
        "params": list(parameters),
        **columns,
        "mean_test_score": scores,
        "rank_test_score": np.array([1 + int((known > score).sum()) for score in known], dtype=np.int32),
        "partial_fit_calls": np.array([model.calls for model in models]),
        "bracket": np.array([search.brackets[model.bracket].index for model in models]),
        "error": [errors.get(number, "") for number in range(len(models))],
    }


def select_chunk(examples: int, size: int, call: int, seed: int) -> NDArray[np.int64]:
    """Return the examples (size,) of a call: each pass over the data is shuffled
    differently, but alike for every model.
    """
    places = call * size + np.arange(size)
    passes = {each: np.random.default_rng([seed, each]).permutation(examples) for each in np.unique(places // examples)}
    return np.array([passes[place // examples][place % examples] for place in places])


def make_model(estimator: Any, parameters: Mapping[str, Any], seed: int) -> Any:
    """Return an untrained model with these parameters, or why it cannot be made."""
    model: Any = clone(estimator)
    try:
        model.set_params(**parameters)
    except _FAILURES as error:
        return _explain_failure(error)
    return model.set_params(random_state=seed) if "random_state" in model.get_params() else model


def _explain_failure(error: Exception) -> FailedModel:
    return FailedModel(f"{type(error).__name__}: {error}")


def _count_samples(parameters: Mapping[str, Any], count: int) -> int:
    """Return how many settings to sample: no more than there are combinations if all parameters are lists."""
    if any(hasattr(values, "rvs") for values in parameters.values()):
        return count
    return min(count, int(np.prod([len(cast("Sequence[Any]", values)) for values in parameters.values()])))
