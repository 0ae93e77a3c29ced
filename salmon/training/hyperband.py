"""Choosing parameters by Hyperband on Dask futures: many models a little, the best of them to the end."""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterSampler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from salmon.distributed.brackets import Bracket, Work, hyperband_brackets, new_search, random_search
from salmon.errors import SalmonError
from salmon.parallel import Executor, SerialExecutor, Task, on_executor


class HyperbandSearch(BaseEstimator):
    """Search parameters of an estimator that has `partial_fit`, by Hyperband (Li et al. 2018; Sievert 2021, chapter 2).

    Parameters
    ----------
    estimator : estimator with partial_fit and score
    parameters : dict of name -> list of values, or distribution with rvs
    max_iter : partial_fit calls of the models that are trained longest
    aggressiveness : of so many models one goes on
    chunk_size : examples of a partial_fit call; None is all of them. `rule_of_thumb` gives both numbers
    passive : train as many models as one bracket's work pays for to the end, and stop none: random search
    patience : calls after which a model that gains less than `tolerance` stops; True is max_iter / aggressiveness
    test_share : share of the examples held out for scores, unless fit is given a test set
    priorities : whether the models that score highest are trained first
    executor : executor, Dask client or None (this process)

    Attributes
    ----------
    best_estimator_, best_params_, best_score_, metadata_, history_ (a line a score: model, bracket, partial_fit_calls,
    score, seconds, total_calls), model_params_
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
    def brackets(self) -> tuple[Bracket, ...]:
        """What will be trained."""
        hyperband = hyperband_brackets(self.max_iter, self.aggressiveness)
        if not self.passive:
            return hyperband
        return random_search(max(1, round(sum(each.calls for each in hyperband) / self.max_iter)), self.max_iter)

    @property
    def metadata(self) -> dict[str, Any]:
        """How many models and partial_fit calls the search takes, before anything is fitted."""
        return {
            "n_models": sum(each.models for each in self.brackets),
            "partial_fit_calls": sum(each.calls for each in self.brackets),
            "brackets": [{"bracket": each.index, "rungs": each.rungs} for each in self.brackets],
        }

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, test: tuple[ArrayLike, ArrayLike | None] | None = None
    ) -> Self:
        """Search; scores are those of `test` (X, y), or of a held-out share of X and y."""
        rng = check_random_state(self.random_state)
        train, judged = self._divided(np.asarray(X), None if y is None else np.asarray(y), test, rng)
        brackets = self.brackets
        count = sum(each.models for each in brackets)
        drawn = list(
            cast("Any", ParameterSampler(dict(self.parameters), _drawable(self.parameters, count), random_state=rng))
        )
        self.model_params_: list[dict[str, Any]] = [drawn[number % len(drawn)] for number in range(count)]
        seed = int(rng.randint(2**31))
        classes = np.unique(train[1]) if train[1] is not None and _has(self.estimator, "predict_proba") else None
        executor = on_executor(self.executor) or SerialExecutor()
        stride = int(self.max_iter / self.aggressiveness) if self.patience is True else int(self.patience)
        search = new_search(
            brackets, patience=stride, tolerance=self.tolerance, priorities=self.priorities, workers=executor.workers
        )
        there = _Placed(executor, executor.scatter((train, judged, classes, seed, self.chunk_size)))
        models: dict[int, Task | Any] = {
            number: _with_parameters(self.estimator, parameters, seed + number)
            for number, parameters in enumerate(self.model_params_)
        }
        self.history_: list[dict[str, float]] = []
        started, total = time.perf_counter(), 0
        for work in search.begin():
            there.hand_in(models, work, 0)
        while there.running:
            work, had, score = there.next_score()
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
                there.hand_in(models, next_work, search.models[next_work.model].calls)
        best = search.best()
        self.best_score_ = search.models[best].score
        if not np.isfinite(self.best_score_):
            raise SalmonError(
                "No model of the search could be trained.",
                hint="Narrow the parameters: perhaps every step size diverges.",
            )
        self.best_params_ = self.model_params_[best]
        self.best_estimator_ = cast("Task", models[best]).result()
        self.metadata_ = {**self.metadata, "partial_fit_calls": total}
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predictions of the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """The score of the best model."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def _divided(self, X: Any, y: Any, test: Any, rng: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        if test is not None:
            return (X, y), test
        if not 0 < self.test_share < 1:
            raise SalmonError(
                f"A test_share of {self.test_share} leaves nothing.", hint="Give a number between 0 and 1."
            )
        order = rng.permutation(len(X))
        held = max(1, round(self.test_share * len(X)))
        parts = [(X[chosen], None if y is None else y[chosen]) for chosen in (order[held:], order[:held])]
        return parts[0], parts[1]


class _Placed:
    """Work of a search on an executor: models stay where they were trained, and only scores come back."""

    def __init__(self, executor: Executor, data: Any) -> None:
        self._executor, self._data = executor, data
        self.running: list[tuple[Task, Work, int]] = []

    def hand_in(self, models: dict[int, Any], work: Work, had: int) -> None:
        """Train a model further and score it."""
        # A model without a score comes after all that have one.
        priority = work.priority if np.isfinite(work.priority) else -1e6
        trained = self._executor.submit(train_model, models[work.model], self._data, had, work.calls, priority=priority)
        models[work.model] = trained
        self.running.append((self._executor.submit(score_model, trained, self._data, priority=priority), work, had))

    def next_score(self) -> tuple[Work, int, float]:
        """The next piece of work that is scored, the calls its model had before, and the score."""
        first = next(iter(self._executor.as_completed([task for task, _, _ in self.running])))
        place = next(place for place, (task, _, _) in enumerate(self.running) if task is first)
        task, work, had = self.running.pop(place)
        return work, had, float(task.result())


def train_model(model: Any, data: Any, had: int, calls: int) -> Any:
    """A copy of the model after more partial_fit calls, each on its own chunk; None where it cannot be trained."""
    if model is None:
        return None
    (X, y), _, classes, seed, chunk_size = data
    size = min(chunk_size or len(X), len(X))
    # The earlier state may be needed again, where a worker is lost.
    trained: Any = clone(model) if had == 0 else deepcopy(model)
    named = {} if classes is None else {"classes": classes}
    for call in range(had, calls):
        chosen = chunk(len(X), size, call, seed)
        try:
            trained.partial_fit(X[chosen], *(() if y is None else (y[chosen],)), **named)
        except (SalmonError, ValueError, FloatingPointError):
            return None
    return trained


def score_model(model: Any, data: Any) -> float:
    """The score on the held-out examples; −∞ for a model that could not be trained."""
    if model is None:
        return -np.inf
    X, y = data[1]
    score = float(model.score(X) if y is None else model.score(X, y))
    return score if np.isfinite(score) else -np.inf


def chunk(examples: int, size: int, call: int, seed: int) -> NDArray[np.int64]:
    """(size,) the examples of a call: every pass over the data in an order of its own, the same for every model."""
    places = call * size + np.arange(size)
    passes = {each: np.random.default_rng([seed, each]).permutation(examples) for each in np.unique(places // examples)}
    return np.array([passes[place // examples][place % examples] for place in places])


def _with_parameters(estimator: Any, parameters: Mapping[str, Any], seed: int) -> Any:
    made: Any = clone(estimator)
    made.set_params(**parameters)
    return made.set_params(random_state=seed) if "random_state" in made.get_params() else made


def _drawable(parameters: Mapping[str, Any], count: int) -> int:
    """No more than there are combinations, where all parameters are lists."""
    if any(hasattr(values, "rvs") for values in parameters.values()):
        return count
    return min(count, int(np.prod([len(cast("Sequence[Any]", values)) for values in parameters.values()])))


def _has(estimator: Any, name: str) -> bool:
    return hasattr(type(estimator), name)
