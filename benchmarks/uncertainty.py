"""How often the ellipses of positions hold what they should: 68 % and 95 %.

    OMP_NUM_THREADS=1 python -m benchmarks.uncertainty --data eggs.csv.gz materials.csv.gz

Simulated: the model fitted to a file (or, with --n, to simulated eggs) is the truth; random queries are answered from
it, and fits are laid over the truth. Split-half: two fits of separate halves of a file are laid over each other, and
the sum of their covariances is compared with their difference. All targets of all runs are counted.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from benchmarks.human_answers import present, read_human
from salmon.geometry import align
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.uncertainty import laplace_covariance, position_covariance, squared_ellipse_distances
from salmon.samplers.state import random_queries
from salmon.simulate import egg_world

LEVELS = (0.68, 0.95)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="files of human answers")
    parser.add_argument("--n", type=int, nargs="*", default=[90], help="numbers of simulated eggs: 30, 90 or 300")
    parser.add_argument("--answers", type=int, nargs="+", default=[10, 20, 60], help="answers a target")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    print(
        "| truth | answers a target | 68 % | 95 % | Laplace alone: 68 % | 95 % |\n| --- | --- | --- | --- | --- | --- |"
    )
    human = {path.stem: read_human(path) for path in present(options.data)}
    for name, (n, triplets) in human.items():
        simulate(f"fitted to {name}, n = {n}", fit_with_learned_noise(triplets, n), options)
    for n in options.n:
        world, generator = egg_world(n), np.random.default_rng(n)
        triplets = world.answer(world.random_queries(60 * n, generator), generator)
        simulate(f"fitted to simulated eggs, n = {n}", fit_with_learned_noise(triplets, n), options)
    for name, (n, triplets) in human.items():
        for per_target in (*options.answers, 0):
            line(
                f"split-half of {name}", per_target or "half of all", split_half(n, triplets, per_target, options.runs)
            )


def simulate(name, truth, options):
    n = len(truth.coordinates)
    for per_target in options.answers:
        found = []
        for seed in range(options.runs):
            generator = np.random.default_rng([seed, n, per_target])
            triplets = answer(truth, random_queries(n, per_target * n, generator), generator)
            fitted = fit_with_learned_noise(triplets, n, seed=seed)
            laid = align(fitted.coordinates, truth.coordinates, scale=True)
            found.append(
                [
                    squared_ellipse_distances(laid.coordinates - truth.coordinates, turned(covariance, laid))
                    for covariance in covariances(fitted, triplets, seed)
                ]
            )
        line(name, per_target, found)


def split_half(n, triplets, per_target, runs):
    found = []
    for seed in range(runs):
        order = np.random.default_rng([seed, 2]).permutation(len(triplets))
        count = per_target * n or len(order) // 2
        halves = [triplets[order[:count]], triplets[order[count : 2 * count]]]
        one, other = (fit_with_learned_noise(half, n, seed=seed) for half in halves)
        laid = align(one.coordinates, other.coordinates, scale=True)
        found.append(
            [
                squared_ellipse_distances(laid.coordinates - other.coordinates, turned(mine, laid) + theirs)
                for mine, theirs in zip(
                    covariances(one, halves[0], seed), covariances(other, halves[1], seed), strict=True
                )
            ]
        )
    return found


def answer(truth, queries, generator):
    heads, first, second = truth.coordinates[queries.T]
    chance = truth.noise.probability(((heads - first) ** 2).sum(axis=1), ((heads - second) ** 2).sum(axis=1))
    return np.where((generator.random(len(queries)) < chance)[:, None], queries, queries[:, [0, 2, 1]])


def covariances(fitted, triplets, seed):
    return (
        position_covariance(fitted.coordinates, triplets, fitted.noise, ridge=fitted.ridge, seed=seed),
        laplace_covariance(fitted.coordinates, triplets, fitted.noise, ridge=fitted.ridge),
    )


def turned(covariance, laid):
    return laid.scale**2 * laid.rotation.T @ covariance @ laid.rotation


def line(name, answers, found):
    shares = [np.mean([row[kind] < chi2.ppf(level, 2) for row in found]) for kind in (0, 1) for level in LEVELS]
    print(f"| {name} | {answers} | " + " | ".join(f"{share:.2f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
