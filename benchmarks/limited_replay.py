"""How many answers a search needs if it may ask recorded queries only, with human answers drawn from their counts.

    OMP_NUM_THREADS=1 python -m benchmarks.limited_replay --data materials.csv.gz --seeds 8

A file with counts of both choices says how people answer each recorded query, so that one can be asked any number of
times. But only a few of all queries were recorded. So the search of `Adaptive` scores the recorded queries of each head
and takes the best, with the same posterior, target and deflation; `Random` draws from all recorded queries. Queries
about a fifth of all sets of three targets are held out, and their answers judge an embedding that one estimator fits
for all contenders.

`search NAME` searches with that noise model, as `Adaptive(noise=NAME)` did before the shown and the searched model were
told apart; the search is now the first one whatever model is named. `learned search` uses a learned exponent and lapse.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.efficiency.levels import Curves
from benchmarks.efficiency.tables import Level, needed_table, ratio_table
from benchmarks.human_answers import present, read_human
from salmon.estimator import triple_groups
from salmon.learning import accuracy, fit, laplace
from salmon.learning.noise_learning import RECOMMENDED_NOISE, fit_with_learned_noise
from salmon.learning.posterior import fisher_weight, log_odds_gradient
from salmon.noise import noise_model
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.state import round_robin
from salmon.search.design import design_target, linearise
from salmon.simulate import stream

LEARNED = "learned search"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of human answers")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of n answers")
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--noise", nargs="*", default=["learned", "STE", "CKL", "GNMDS"], help="noise models to search with, too"
    )
    parser.add_argument("--lapse", type=float, nargs="*", default=[], help="lapses of further searches of Adaptive")
    parser.add_argument("--ridge", type=float, default=Adaptive.ridge, help="of the search of Adaptive")
    parser.add_argument("--random-share", type=float, default=Adaptive.random_share)
    parser.add_argument("--levels", type=float, nargs="+", default=[0.70, 0.72, 0.74, 0.75, 0.76])
    options = parser.parse_args()
    adaptive = Adaptive(d=options.d, ridge=options.ridge, random_share=options.random_share)
    searches = {"Random": None, "Adaptive": adaptive.model}
    searches |= {f"lapse {100 * lapse:g} %": replace(adaptive, lapse=lapse).model for lapse in options.lapse}
    searches |= {
        LEARNED if name == "learned" else f"search {name}": LEARNED
        if name == "learned"
        else noise_model(name, lapse=adaptive.lapse)
        for name in options.noise
    }
    seeds = range(options.first, options.first + options.seeds)
    for path in present(options.data):
        n, triplets = read_human(path)
        rows = {}
        for name, model in searches.items():
            runs = [run(n, triplets, model, adaptive, options.rounds, seed) for seed in seeds]
            curves = Curves(np.arange(1.0, options.rounds + 1), np.array(runs), tuple(seeds))
            rows[name] = {"accuracy": curves}
        levels = [Level("accuracy", level) for level in options.levels]
        title = f"{path.stem}, n = {n}, d = {options.d}, recorded queries only, {options.seeds} paired seeds"
        print("\n".join(needed_table(title, rows, levels)))
        print("\n".join(ratio_table("Compared with Random", rows, "Random", levels)), flush=True)
        print("\n".join(ratio_table("Compared with Adaptive", rows, "Adaptive", levels)), flush=True)


def run(n, triplets, model, adaptive, rounds, seed):
    """Return the accuracy after every n answers."""
    groups = triple_groups(triplets)
    generator = stream(seed, "queries")
    order = generator.permutation(int(groups.max()) + 1)
    judged = order[groups] < 0.2 * len(order)
    pool, test = Pool.of(triplets[~judged], n), triplets[judged]
    answers, curve = stream(seed, "answers"), []
    asked = generator.integers(len(pool.queries), size=n)
    rows = pool.answer(asked, answers)
    searched, shown = np.zeros((n, adaptive.d)), None
    searched += 0.1 * stream(seed, "sampler").standard_normal(searched.shape)
    while True:
        shown = fit(rows, n, adaptive.d, noise=RECOMMENDED_NOISE, start=shown, n_starts=2, seed=seed).coordinates
        curve.append(accuracy(shown, test))
        if len(curve) == rounds:
            return curve
        if model is None:
            asked = generator.integers(len(pool.queries), size=n)
        else:
            noise = model
            if model is LEARNED:
                noise = fit_with_learned_noise(rows, n, adaptive.d, start=shown, seed=seed).noise
            searched = fit(
                rows, n, adaptive.d, noise=noise, ridge=adaptive.ridge, start=searched, seed=seed
            ).coordinates
            asked = choose(pool, searched, rows, noise, adaptive, generator)
        rows = np.concatenate([rows, pool.answer(asked, answers)])


class Pool:
    """The recorded queries [head, foot, foot], how often the first foot won each, and the queries of each head."""

    def __init__(self, queries, first_wins, n):
        self.queries, self.first_wins = queries, first_wins
        self.of_head = [np.flatnonzero(queries[:, 0] == head) for head in range(n)]

    @classmethod
    def of(cls, triplets, n):
        """Count the answers to each query."""
        feet = np.sort(triplets[:, 1:], axis=1)
        queries, which = np.unique(np.concatenate([triplets[:, :1], feet], axis=1), axis=0, return_inverse=True)
        won = triplets[:, 1] == feet[:, 0]
        return cls(queries.astype(np.int32), np.bincount(which, won) / np.bincount(which), n)

    def answer(self, asked, generator):
        """Return an answer to each query, drawn from those that people gave."""
        queries = self.queries[asked]
        first = generator.random(len(asked)) < self.first_wins[asked]
        return np.where(first[:, None], queries, queries[:, [0, 2, 1]])


def choose(pool, coordinates, rows, noise, adaptive, generator):
    """Return the places of n queries: heads in turn, each with its best recorded query, a share of them at random."""
    n, d = coordinates.shape
    covariance = laplace(coordinates, rows, noise, ridge=adaptive.ridge, full=True).covariance
    target = design_target(linearise(coordinates, noise), covariance)
    gradient, log_odds = log_odds_gradient(coordinates, pool.queries, noise)
    weights = fisher_weight(log_odds, noise.lapse)
    places = (pool.queries.astype(np.int64)[:, :, None] * d + np.arange(d)).reshape(len(pool.queries), 3 * d)
    gradient = gradient.reshape(len(pool.queries), 3 * d)
    spread = covariance @ target @ covariance
    asked = []
    for head in round_robin(n, n, generator):
        if generator.random() < adaptive.random_share or not len(pool.of_head[head]):
            asked.append(int(generator.integers(len(pool.queries))))
        else:
            own = pool.of_head[head]
            at, g, w = places[own], gradient[own], weights[own]
            v, kv = (
                np.einsum("qi,qij,qj->q", g, matrix[at[:, :, None], at[:, None, :]], g)
                for matrix in (covariance, spread)
            )
            asked.append(int(own[np.argmax(w * kv / (1 + w * v))]))
        at, g, w = places[asked[-1]], gradient[asked[-1]], weights[asked[-1]]
        moved = covariance[:, at] @ g
        fall = np.sqrt(w / (1 + w * float(moved[at] @ g))) * moved
        pushed = target @ fall
        half = covariance @ pushed - 0.5 * fall * float(fall @ pushed)
        covariance = covariance - np.outer(fall, fall)
        change = np.outer(half, fall)
        spread = spread - change - change.T
    return np.array(asked)


if __name__ == "__main__":
    main()
