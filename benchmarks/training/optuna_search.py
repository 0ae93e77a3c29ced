"""Optuna's TPE with its pruners against our brackets: the same spaces, data, chunks and number of partial_fit calls.

    python -m pip install optuna
    python -m benchmarks.training.optuna_search [--seeds 5]

Optuna is not among the project's dependencies. HyperbandSearch runs first; TPE with the Hyperband pruner, TPE with the
successive-halving pruner, and random settings with the Hyperband pruner then get as many partial_fit calls as it took.
Both see the same chunks of data in the same order, and are scored on the same examples: Optuna after every call,
because its pruners decide from reported scores, HyperbandSearch at the end of each rung. Four circles have 14,000 rows
here, of which 2,000 are test, and 3,000 in a chunk.
"""

import importlib
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.hyperband import EMBEDDING_SPACE, SPACE, best_so_far, four_circles
from benchmarks.training.problems import answers
from salmon import OrdinalEmbedding
from salmon.training import HyperbandSearch
from salmon.training.hyperband import FailedModel, make_model, score_model, select_chunk

MAX_ITER = 27
#: problem -> (search space, examples of a chunk).
PROBLEMS: dict[str, tuple[dict[str, Any], int]] = {"four circles": (SPACE, 3_000), "embedding": (EMBEDDING_SPACE, 200)}
OURS = "HyperbandSearch"


def make_problem(name: str, seed: int) -> tuple[Any, Any, Any]:
    """Return (estimator, training set, test set)."""
    if name == "four circles":
        X, y = four_circles(14_000, seed)
        return MLPClassifier(solver="sgd", nesterovs_momentum=True), (X[2_000:], y[2_000:]), (X[:2_000], y[:2_000])
    rows = answers(seed, 60, 12_000)
    return OrdinalEmbedding(batch_size=100, epochs=1, n_targets=60), (rows[2_000:8_000], None), (rows[8_000:], None)


def suggest(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that Optuna suggests from lists and SciPy's uniform and log-uniform distributions."""
    found: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, list):
            found[name] = values[trial.suggest_categorical(name, list(range(len(values))))]
        else:
            low, high = (float(each) for each in values.support())
            found[name] = trial.suggest_float(name, low, high, log=values.dist.name in {"loguniform", "reciprocal"})
    return found


def run_optuna(
    optuna: Any, sampler: Any, pruner: Any, problem: tuple[Any, Any, Any], name: str, budget: int, seed: int
) -> list[dict[str, float]]:
    """Return one row for each score, until the budget of partial_fit calls is spent."""
    (estimator, (X, y), test), (space, size) = problem, PROBLEMS[name]
    classes = {} if y is None else {"classes": np.unique(y)}
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    history: list[dict[str, float]] = []
    started, total, models = time.perf_counter(), 0, 0
    while total < budget:
        trial = study.ask()
        model: Any = make_model(estimator, suggest(trial, space), seed + models)
        model = model if isinstance(model, FailedModel) else clone(model)
        models += 1
        score, state = -np.inf, optuna.trial.TrialState.COMPLETE
        for call in range(min(MAX_ITER, budget - total)):
            chosen = select_chunk(len(X), size, call, seed)
            total += 1
            try:
                model.partial_fit(X[chosen], *(() if y is None else (y[chosen],)), **classes)
            except (ArithmeticError, RuntimeError, ValueError):
                state = optuna.trial.TrialState.FAIL
                break
            score, error = score_model(model, (None, test))
            if error:
                state = optuna.trial.TrialState.FAIL
                break
            history.append(
                {"score": score, "total_calls": total, "seconds": time.perf_counter() - started, "model": models}
            )
            trial.report(score, call + 1)
            if trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        study.tell(trial, score if state == optuna.trial.TrialState.COMPLETE else None, state=state)
    return history


def kinds(optuna: Any, seed: int) -> dict[str, tuple[Any, Any]]:
    """Return name -> (sampler, pruner)."""
    samplers, pruners = optuna.samplers, optuna.pruners

    def hyperband() -> Any:
        return pruners.HyperbandPruner(min_resource=1, max_resource=MAX_ITER, reduction_factor=3)

    return {
        "Optuna: TPE, Hyperband": (samplers.TPESampler(seed=seed), hyperband()),
        "Optuna: TPE, successive halving": (samplers.TPESampler(seed=seed), pruners.SuccessiveHalvingPruner(reduction_factor=3)),
        "Optuna: random, Hyperband": (samplers.RandomSampler(seed=seed), hyperband()),
    }  # fmt: skip


def summarise(report: Report, problem: str, runs: dict[str, list[list[dict[str, float]]]]) -> None:
    """Add a row for each method: its best score, and the calls to 99 % of our best score of the same seed."""
    ours = [max(row["score"] for row in run) for run in runs[OURS]]
    budgets = [run[-1]["total_calls"] for run in runs[OURS]]
    for method, found in runs.items():
        best = [max(row["score"] for row in run) for run in found]
        calls = [
            next((row["total_calls"] for row in run if row["score"] >= 0.99 * goal), np.inf)
            for run, goal in zip(found, ours, strict=True)
        ]
        middle = float(np.median(calls))
        report.add(
            problem=problem, method=method, budget=float(np.median(budgets)), score=float(np.median(best)), least=min(best), most=max(best),
            wins=sum(a > b + 1e-9 for a, b in zip(best, ours, strict=True)), losses=sum(a < b - 1e-9 for a, b in zip(best, ours, strict=True)),
            reached=int(np.isfinite(calls).sum()), calls=middle if np.isfinite(middle) else None, models=float(np.median([len({row["model"] for row in run}) for run in found])),
            seconds=float(np.median([run[-1]["seconds"] for run in found])),
        )  # fmt: skip


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 5})
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        raise SystemExit("Optuna is not installed: python -m pip install optuna") from None
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", ConvergenceWarning)
    columns = (
        "problem",
        "method",
        "budget",
        "score",
        "least",
        "most",
        "wins",
        "losses",
        "reached",
        "calls",
        "models",
        "seconds",
    )
    report = Report("Optuna against our brackets", columns)
    panels = []
    for name, (space, size) in PROBLEMS.items():
        runs: dict[str, list[Any]] = {OURS: [], **{each: [] for each in kinds(optuna, 0)}}
        for seed in range(given.seeds):
            problem = make_problem(name, seed)
            search = HyperbandSearch(problem[0], space, max_iter=MAX_ITER, chunk_size=size, random_state=seed)
            search.fit(*problem[1], test=problem[2])
            runs[OURS].append(search.history_)
            for kind, (sampler, pruner) in kinds(optuna, seed).items():
                budget = int(search.history_[-1]["total_calls"])
                runs[kind].append(run_optuna(optuna, sampler, pruner, problem, name, budget, seed))
        summarise(report, name, runs)
        panels.append(
            {"curves": {each: best_so_far(found[0], "total_calls") for each, found in runs.items()}, "xlabel": "partial_fit calls",
             "ylabel": "best score so far", "title": name}
        )  # fmt: skip
    report.note(
        f"Medians over {given.seeds} seeds; max_iter is {MAX_ITER}, aggressiveness and reduction factor are 3. Optuna {optuna.__version__}. Wins and losses "
        "compare the best score of each seed with ours."
    )
    finish(report, "optuna_search", panels)


if __name__ == "__main__":
    main()
