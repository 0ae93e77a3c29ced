"""Hyperband against random search: a network on four circles, and the parameters of an
embedding; replays with 1 to 32 workers.

    python -m benchmarks.training.hyperband [--seeds 3] [--max-iter 81]

Four circles as in appendix A.1 of Sievert (2021): 60,000 rows, 10,000 of them test, scikit-learn's network of 24
neurons. Each search is run and recorded once; it is then replayed on a clock of 1 s per partial_fit and 1.5 s per
score, with other workers and priorities.
"""

import warnings
from typing import Any

import numpy as np
import torch
from scipy.stats import loguniform, uniform
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.report import Report, arguments
from benchmarks.training.figure import finish
from benchmarks.training.problems import answers
from benchmarks.training.replay import replay_search
from salmon import OrdinalEmbedding
from salmon.training import HyperbandSearch
from salmon.training.hyperband import new_search, rule_of_thumb

LAYERS = [(24,), (12, 12), (6, 6, 6, 6), (4, 4, 4, 4, 4, 4), (12, 6, 3, 3)]
SPACE = {
    "hidden_layer_sizes": LAYERS,
    "alpha": loguniform(1e-6, 1e-3),
    "batch_size": [32, 64, 128, 256, 512],
    "learning_rate": ["constant", "invscaling"],
    "learning_rate_init": loguniform(1e-4, 1e-2),
    "power_t": uniform(0.1, 0.8),
    "momentum": uniform(0, 1),
}
EMBEDDING_SPACE = {
    "noise": ["TSTE", "STE", "CKL", "SOE", "PowerTSTE"],
    "n_components": [1, 2, 3, 5],
    "step_size": loguniform(1e-4, 1),
}


def four_circles(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return four concentric rings with radii 1 to 4 and noise 0.2 in two features, and four features of pure noise."""
    rng = np.random.default_rng(seed)
    rings, angles = rng.integers(4, size=rows), rng.uniform(0, 2 * np.pi, rows)
    radii = rings + 1 + rng.normal(0, 0.2, rows)
    informative = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    return np.concatenate([informative, rng.standard_normal((rows, 4))], axis=1), rings


def best_so_far(history: list[dict[str, float]], column: str) -> tuple[list[float], list[float]]:
    """Return (column, best score so far) at every score."""
    return [row[column] for row in history], np.maximum.accumulate([row["score"] for row in history]).tolist()


def first_at(history: list[dict[str, float]], column: str, score: float) -> float:
    """Return the column where a score is first reached; NaN if it never is."""
    return next((row[column] for row in history if row["score"] >= score), float("nan"))


def race(report: Report, problem: str, searches: dict[bool, list[HyperbandSearch]]) -> dict[str, Any]:
    """Compare recorded searches: the work in which Hyperband reaches the best score of random
    search, and times with other workers.
    """
    shares, nearly, finals = [], [], []
    for adaptive, passive in zip(searches[False], searches[True], strict=True):
        whole = passive.history_[-1]["total_calls"]
        shares.append(first_at(adaptive.history_, "total_calls", passive.best_score_) / whole)
        nearly.append(first_at(adaptive.history_, "total_calls", 0.99 * passive.best_score_) / whole)
        finals.append((adaptive.best_score_, passive.best_score_))
    adaptive = searches[False][0]
    for what, found in (("its best score", shares), ("99 % of its best score", nearly)):
        report.add(
            problem=problem, what=f"share of random search's calls to {what}", share=float(np.nanmedian(found)),
            reached=f"{int(np.isfinite(found).sum())}/{len(found)}", hyperband_score=float(np.median([each[0] for each in finals])),
            random_score=float(np.median([each[1] for each in finals])),
        )  # fmt: skip
    recorded = {(int(row["model"]), int(row["partial_fit_calls"])): row["score"] for row in adaptive.history_}
    curves: dict[str, Any] = {}
    for workers in (1, 2, 4, 8, 16, 24, 32):
        ends = {}
        for priorities in (True, False):
            found = replay_search(new_search(adaptive.brackets, priorities=priorities), recorded, workers=workers)
            goals = [
                next(each.seconds for each in found if each.score >= quantile * adaptive.best_score_)
                for quantile in (0.95, 0.99, 1)
            ]
            ends[priorities] = (*goals, found[-1].seconds)
        report.add(
            problem=problem, what=f"replay, {workers} workers", minutes=ends[True][3] / 60, to_95=ends[True][0] / 60, to_99=ends[True][1] / 60,
            to_best=ends[True][2] / 60, share_of_fifo=ends[True][2] / ends[False][2], share_99=ends[True][1] / ends[False][1],
        )  # fmt: skip
        curves[str(workers)] = ends[True][3] / 60
    return curves


def main() -> None:
    given = arguments(__doc__.splitlines()[0], seeds={"type": int, "default": 3}, max_iter={"type": int, "default": 81})
    torch.set_num_threads(1)
    # Networks that are stopped early on purpose have not converged.
    warnings.simplefilter("ignore", ConvergenceWarning)
    report = Report(
        "Hyperband",
        (
            "problem",
            "what",
            "share",
            "reached",
            "hyperband_score",
            "random_score",
            "minutes",
            "to_95",
            "to_99",
            "to_best",
            "share_of_fifo",
            "share_99",
        ),
    )
    panels, scaling = [], {}
    for problem in ("four circles", "embedding"):
        found: dict[bool, list[HyperbandSearch]] = {False: [], True: []}
        for seed in range(given.seeds):
            if problem == "four circles":
                X, y = four_circles(60_000, seed)
                max_iter, size = rule_of_thumb(given.max_iter, 225_000)
                base: Any = MLPClassifier(solver="sgd", nesterovs_momentum=True)
                space, data, test = SPACE, (X[10_000:], y[10_000:]), (X[:10_000], y[:10_000])
            else:
                rows = answers(seed, 60, 12_000)
                max_iter, size = 27, 200
                base = OrdinalEmbedding(batch_size=100, epochs=1, n_targets=60)
                space, data, test = EMBEDDING_SPACE, (rows[2_000:8_000], None), (rows[8_000:], None)
            for passive, searches in found.items():
                search = HyperbandSearch(
                    base, space, max_iter=max_iter, chunk_size=size, passive=passive, random_state=seed,
                )  # fmt: skip
                searches.append(search.fit(data[0], data[1], test=test))
        scaling[problem] = race(report, problem, found)
        for column, label in (("total_calls", "partial_fit calls"), ("seconds", "seconds, one core")):
            panels.append(
                {"curves": {"Hyperband": best_so_far(found[False][0].history_, column), "random search": best_so_far(found[True][0].history_, column)},
                 "xlabel": label, "ylabel": "best score so far", "title": problem}
            )  # fmt: skip
    panels.append(
        {"curves": {problem: ([float(w) for w in curve], list(curve.values())) for problem, curve in scaling.items()}, "marks": "o",
         "xlabel": "workers", "ylabel": "minutes (replayed)", "xscale": "log", "yscale": "log"}
    )  # fmt: skip
    report.note(
        f"Medians over {given.seeds} seeds; max_iter = {given.max_iter} (four circles) and 27 (embedding), aggressiveness 3."
    )
    report.note(
        "share_of_fifo and share_99 are the times to the best score, and to 99 % of it, with priorities divided by those without."
    )
    finish(report, "hyperband", panels)


if __name__ == "__main__":
    main()
