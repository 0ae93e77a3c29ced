"""How good the dimension and the noise model are that cross-validation chooses, judged on answers it has not seen.

    OMP_NUM_THREADS=1 python -m benchmarks.choice --data eggs.csv.gz materials.csv.gz
    OMP_NUM_THREADS=1 python -m benchmarks.choice --true-dimension
    OMP_NUM_THREADS=1 python -m benchmarks.choice --on-test eggs.csv.gz
    OMP_NUM_THREADS=1 python -m benchmarks.choice --halving

Of each file a fifth of the sets of three targets is held out; simulated worlds get 20,000 fresh answers. `behind` is
how much more accurate the best candidate is on those than the chosen one; ± is the standard error of the difference of
the two in cross-validation, which is all that a choice can know. With --true-dimension: how often the chosen dimension
is that of the targets. With --on-test: the choice from the answers to random queries of a file, beside every fixed
choice, on the answers of its test set. With --halving: what successive halving (Jamieson and Talwalkar 2016) saves of
the grid, and how often it chooses the same.
"""

import argparse
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.human_answers import divide, present, read_human
from salmon.answer_files.answer_table import read_bytes
from salmon.estimator import RECOMMENDED_NOISE
from salmon.estimator.cross_validation import choose, cross_validate, paired_difference
from salmon.estimator.report import COMPARED_NOISE
from salmon.learning import fit
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.objective import compared_distances
from salmon.noise import CKL, STE, PowerTSTE, noise_model
from salmon.planning import usual_answers
from salmon.simulate import ScaledNoiseModel, egg_world, random_world, stream

LAPSE = 0.05
STARTS = 4  # as in `salmon fit`
NOISES = {"PowerTSTE": None} | {noise: noise_model(noise, lapse=LAPSE) for noise in COMPARED_NOISE}
WORLDS = {
    "STE": lambda seed: random_world(20, 1 + seed % 3, seed, ScaledNoiseModel(STE(lapse=0.03), scale=1.5)),
    "CKL": lambda seed: random_world(20, 1 + seed % 3, seed, ScaledNoiseModel(CKL(mu=0.1, lapse=0.03))),
    "power t-STE": lambda seed: random_world(20, 1 + seed % 3, seed, ScaledNoiseModel(RECOMMENDED_NOISE, scale=3.0)),
    "light tail": lambda seed: random_world(20, 1 + seed % 3, seed, ScaledNoiseModel(PowerTSTE(k=3, lapse=0.05))),
    "eggs": lambda _: egg_world(30),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="files of human answers")
    parser.add_argument("--d", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--answers", type=int, default=100, help="answers a target that are fitted")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--worlds", type=int, default=3, help="seeds of each simulated world")
    parser.add_argument("--true-dimension", action="store_true", help="find the dimension of simulated targets")
    parser.add_argument("--on-test", type=Path, help="a file with the samplers RandomSampling and Test")
    parser.add_argument("--halving", action="store_true", help="compare successive halving with the whole grid")
    options = parser.parse_args()
    if options.on_test is not None:
        for path in present([options.on_test]):
            judge_on_test(path, options)
        return
    if options.halving:
        halve(options)
        return
    if options.true_dimension:
        find_dimensions(options)
        return
    print("| answers | chosen | best | behind | ± |\n| --- | --- | --- | --- | --- |")
    for path in present(options.data):
        n, triplets = read_human(path)
        rows, fresh = divide(triplets, 0)
        for count in (options.answers * n, len(rows)):
            judge(f"{path.stem}, {min(count, len(rows)):,}", n, rows[:count], fresh, options)
    within = [
        judge(f"{name} {seed}", *simulated(WORLDS[name](seed), seed, options.answers), options)
        for name, seed in product(WORLDS, range(options.worlds))
    ]
    print(f"\nSimulated worlds within one standard error of the best: {np.mean(within):.0%} of {len(within)}.")


def find_dimensions(options):
    """Print how often the chosen dimension, or a tie of it, is that of targets N(0, I) in d dimensions."""
    print("| targets | d | answers | chosen | among the ties | worlds |\n| --- | --- | --- | --- | --- | --- |")
    noises = NOISES
    for n, d in product((30, 60), options.d):
        right, tied = 0, 0
        for seed in range(options.worlds):
            world = random_world(n, d, seed)
            count = usual_answers(n, d)
            rows = world.answer(world.random_queries(count, stream(seed, "queries")), stream(seed, "answers"))
            random = np.ones(len(rows), dtype=bool)
            candidates = product((*options.d, max(options.d) + 1), noises)
            judged = {
                (tried, noise): cross_validate(rows, random, n, tried, noises[noise], folds=options.folds)
                for tried, noise in candidates
            }
            found = choose(judged)
            right += found.chosen[0] == d
            tied += d in {pair[0] for pair in found.ties}
        worlds = options.worlds
        print(f"| {n} | {d} | {count:,} | {right / worlds:.0%} | {tied / worlds:.0%} | {worlds} |", flush=True)


def simulated(world, seed, per_target):
    rows, fresh = (
        world.answer(
            world.random_queries(count, stream(seed, "queries", place)),
            stream(seed, "answers", place),
        )
        for place, count in enumerate((per_target * world.n, 20_000))
    )
    return world.n, rows, fresh


def judge(name, n, rows, fresh, options):
    noises = NOISES
    random = np.ones(len(rows), dtype=bool)
    judged, hits = {}, {}
    for d, noise in product(options.d, noises):
        judged[d, noise] = cross_validate(rows, random, n, d, noises[noise], folds=options.folds)
        with_noise = fit_with_learned_noise if noises[noise] is None else partial(fit, noise=noises[noise])
        found = with_noise(rows, n, d, n_starts=STARTS)
        hits[d, noise] = hits_of(found.coordinates, fresh)
    chosen = choose(judged).chosen
    best = max(hits, key=lambda pair: hits[pair].mean())
    behind = float((hits[best] - hits[chosen]).mean())
    _, error = paired_difference(judged[best], judged[chosen])
    print(
        f"| {name} | d = {chosen[0]}, {chosen[1]} | d = {best[0]}, {best[1]} | {behind:.4f} | {error:.4f} |",
        flush=True,
    )
    return behind <= error


def judge_on_test(path, options):
    """Choose by cross-validation on the answers to random queries; print how every
    fixed choice does on the test set.
    """
    table = read_bytes(path.read_bytes(), name=str(path))
    samplers = np.array(table.samplers)
    rows, fresh, n = table.triplets[(samplers == "RandomSampling") & ~table.test], table.triplets[table.test], table.n
    random = np.ones(len(rows), dtype=bool)
    judged, hits = {}, {}
    for d, noise in product(options.d, NOISES):
        judged[d, noise] = cross_validate(rows, random, n, d, NOISES[noise], folds=options.folds)
        with_noise = fit_with_learned_noise if NOISES[noise] is None else partial(fit, noise=NOISES[noise])
        hits[d, noise] = hits_of(with_noise(rows, n, d, n_starts=STARTS).coordinates, fresh)
    chosen = choose(judged).chosen
    print(
        f"{len(rows):,} answers to random queries are fitted, {len(fresh):,} of the test set judge. Chosen: d = {chosen[0]}, {chosen[1]}."
    )
    print("| d | noise | accuracy on the test set | ahead of the chosen one | ± |\n| --- | --- | --- | --- | --- |")
    worst = -np.inf
    for pair in sorted(hits, key=lambda pair: -hits[pair].mean()):
        apart = hits[pair] - hits[chosen]
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        worst = max(worst, apart.mean() - error)
        mark = " (chosen)" if pair == chosen else ""
        print(f"| {pair[0]} | {pair[1]}{mark} | {hits[pair].mean():.4f} | {apart.mean():+.4f} | {error:.4f} |")
    best, alone = max(found.mean() for found in hits.values()), hits[chosen].std(ddof=1) / np.sqrt(len(fresh))
    behind = best - hits[chosen].mean()
    print(
        f"The best is {behind:.4f} ahead. Within one standard error of the chosen one's accuracy ({alone:.4f}):"
        f" {'yes' if behind <= alone else 'no'}; within one of every paired difference: {'yes' if worst <= 0 else 'no'}."
    )


def halve(options):
    """Compare successive halving over answers with the whole grid: processor time, and
    whether the choice is the same.
    """
    print("| world | answers | whole grid (s) | chosen | halving (s) | chosen |\n| --- | --- | --- | --- | --- | --- |")
    for n, d in ((30, 2), (60, 3)):
        for seed in range(options.worlds):
            world = random_world(n, d, seed)
            count = usual_answers(n, d)
            rows = world.answer(world.random_queries(count, stream(seed, "queries")), stream(seed, "answers"))
            grid = list(product((*options.d, max(options.d) + 1), NOISES))
            began = process_time()
            whole = choose(judge_all(rows, n, grid, options)).chosen
            between = process_time()
            left = grid
            for share in (9, 3, 1):
                found = judge_all(rows[: len(rows) // share], n, left, options)
                order = sorted(found, key=lambda pair: -found[pair].accuracy.value)
                left = [pair for pair in left if pair in order[: max(1, -(-len(left) // 3))]]
            halved = choose(found).chosen
            print(
                f"| n = {n}, d = {d}, {seed} | {count:,} | {between - began:.1f} | {whole[0]}, {whole[1]} |"
                f" {process_time() - between:.1f} | {halved[0]}, {halved[1]} |",
                flush=True,
            )


def judge_all(rows, n, grid, options):
    """Return the held-out judgement of each candidate."""
    random = np.ones(len(rows), dtype=bool)
    return {(d, noise): cross_validate(rows, random, n, d, NOISES[noise], folds=options.folds) for d, noise in grid}


def hits_of(coordinates, fresh):
    """Return 1 for each answer that an embedding predicts, ½ for a tie."""
    near, far = compared_distances(coordinates, fresh)
    return (near < far) + 0.5 * (near == far)


if __name__ == "__main__":
    main()
