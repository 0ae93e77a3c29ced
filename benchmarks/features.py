"""How many answers known features of the targets save, and what useless ones cost.

    OMP_NUM_THREADS=1 python -m benchmarks.features --n 300 --seeds 10
    OMP_NUM_THREADS=1 python -m benchmarks.features --n 1000 --seeds 3 --rounds 16 --at 5

Targets lie at N(0, I) in the plane and are judged as the alien eggs were. Of ten features two explain a share R² of one
axis each and eight are noise; a random rotation hides which. `Adaptive` asks, with features and without, on the same
seeds; the embedding that it reports after every n answers is judged by its accuracy on fresh answers to all queries
(from 500 targets on: to 300,000 random ones). With --at K the table says how many answers the other contenders need for
the accuracy that each has with K answers a target.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from benchmarks.efficiency.levels import Curves, answers_needed
from benchmarks.efficiency.tables import Level, needed_table, ratio_table
from salmon.geometry import squared_distances
from salmon.learning.features import Features
from salmon.samplers.adaptive import Adaptive
from salmon.simulate import Judge, random_world, stream

COLUMNS = 10
NONE = "no features"
# From here on all queries are too many to be judged by.
LARGE, SAMPLED = 500, 300_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=24, help="rounds of n answers")
    parser.add_argument("--explained", type=float, nargs="+", default=[0.0, 0.5], help="R² of the features")
    parser.add_argument("--levels", type=float, nargs="+", default=[0.60, 0.65, 0.70, 0.72, 0.74, 0.75, 0.76, 0.77])
    parser.add_argument("--at", type=int, help="compare the accuracy at so many answers a target")
    options = parser.parse_args()
    contenders = {NONE: None} | {f"R² = {share:g}": share for share in options.explained}
    found, seconds = {name: [] for name in contenders}, dict.fromkeys(contenders, 0.0)
    for seed in range(options.seeds):
        for name, share in contenders.items():
            began = time.process_time()
            found[name].append(run(options.n, share, options.rounds, seed))
            seconds[name] += time.process_time() - began
    answers, seeds = np.arange(1.0, options.rounds + 1), tuple(range(options.seeds))
    curves = {name: Curves(answers, np.array(values), seeds) for name, values in found.items()}
    rows = {name: {"accuracy": each} for name, each in curves.items()}
    levels = [Level("accuracy", level) for level in options.levels]
    print("\n".join(needed_table(f"n = {options.n}, {options.seeds} seeds", rows, levels)))
    print("\n".join(ratio_table(f"Compared with {NONE}", rows, NONE, levels)))
    if options.at:
        print(f"\nAnswers a target for the accuracy at {options.at} answers a target\n")
        print("| | accuracy | " + " | ".join(curves) + " |\n| --- |" + " --- |" * (1 + len(curves)))
        for name, curve in curves.items():
            level = float(curve.values.mean(axis=0)[options.at - 1])
            cells = [f"{answers_needed(answers, other.values.mean(axis=0), level):.1f}" for other in curves.values()]
            print(f"| {name} | {level:.4f} | " + " | ".join(cells) + " |")
    print("\nProcessor time: " + ", ".join(f"{name} {spent:.0f} s" for name, spent in seconds.items()))


def run(n, share, rounds, seed):
    """Return the accuracy after every n answers; `share` is R² of the features, None without any."""
    world, sampler = random_world(n, 2, seed), Adaptive()
    features = None if share is None else Features.of(features_of(world.coordinates, share, seed))
    judge = Judge.of(world).accuracy if n < LARGE else sampled_accuracy(world, seed)
    queries, answers = stream(seed, "queries"), stream(seed, "answers")
    triplets = world.answer(world.random_queries(n, queries), answers)
    start = sampler.start(n, int(stream(seed, "sampler").integers(2**31)))
    state, curve = replace(start, features=features), []
    while True:
        state = sampler.refit(state, triplets)
        curve.append(judge(sampler.report(state, triplets).coordinates))
        if len(curve) == rounds:
            return curve
        asked = sampler.search(state, triplets, np.empty((0, 3), np.int32), n).queries
        triplets = np.concatenate([triplets, world.answer(asked, answers)])


def features_of(coordinates, share, seed):
    """Return (n, COLUMNS) features, of which a linear map explains `share` of the variance of each axis."""
    generator = stream(seed, "truth", 1)
    n, d = coordinates.shape
    axes = (coordinates - coordinates.mean(axis=0)) / coordinates.std(axis=0)
    told = np.sqrt(share) * axes + np.sqrt(1 - share) * generator.normal(size=(n, d))
    table = np.concatenate([told, generator.normal(size=(n, COLUMNS - d))], axis=1)
    rotation, _ = np.linalg.qr(generator.normal(size=(COLUMNS, COLUMNS)))
    return table @ rotation


def sampled_accuracy(world, seed):
    """Return a function that judges an embedding by the expected agreement with answers to random queries."""
    queries = world.random_queries(SAMPLED, stream(seed, "judge"))
    chance = world.first_wins(queries)

    def judge(coordinates):
        d2 = squared_distances(coordinates)
        nearer = np.sign(d2[queries[:, 0], queries[:, 2]] - d2[queries[:, 0], queries[:, 1]])
        return float(np.mean(0.5 + nearer * (chance - 0.5)))

    return judge


if __name__ == "__main__":
    main()
