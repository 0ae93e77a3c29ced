"""One whole round of `Adaptive`: refit, posterior, design, scoring of all heads, arrangement of n queries.

    OMP_NUM_THREADS=1 python -m benchmarks.round --json round.json
    OMP_NUM_THREADS=1 python -m benchmarks.round --full --sizes 300 500 1000

The round is the one a live experiment waits for: 12·n answers are in, n of them since the last refit, and n/3 queries
are posted and not answered yet. With --full every pair of feet of every head is scored with the full covariance,
however many targets there are; otherwise the sampler decides, and beyond n·d = 1,000 it takes the cheaper mode, which
has no design of its own and scores a sample of the queries.
"""

from math import inf, log

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.report import Report, arguments, seconds, tste_world
from salmon.learning import check_triplets, laplace
from salmon.samplers import adaptive
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.state import random_queries
from salmon.search.design import design_target, linearise

COLUMNS = ("n", "round_ms", "refit_ms", "posterior_ms", "design_ms", "arrange_ms", "queries_scored_per_s", "growth")


def main():
    options = arguments(
        __doc__,
        sizes={"type": int, "nargs": "*", "default": [30, 90, 200, 500]},
        d={"type": int, "default": 2},
        full={"action": "store_true"},
    )
    if options.full:
        adaptive._LARGEST_FULL_DESIGN = inf  # noqa: SLF001
    report = Report(f"One round of Adaptive, d = {options.d}, one thread", COLUMNS)
    before = None
    with threadpool_limits(1):
        for n in options.sizes:
            before = measure(n, options.d, report, before, options.cpu)
    report.note("growth: the exponent of n between this size and the one before.")
    report.write(options.json)


def measure(n, d, report, before, cpu):
    answers = answered(n, d, 12 * n)
    sampler = Adaptive(d=d)
    early = sampler.refit(sampler.start(n, 0), answers[: 11 * n])
    pending = random_queries(n, n // 3, np.random.default_rng(1))
    state = sampler.refit(early, answers)
    full = n * d <= adaptive._LARGEST_FULL_DESIGN  # noqa: SLF001

    def find_posterior():
        return laplace(state.coordinates, answers, sampler.model, ridge=sampler.ridge, pending=pending, full=full)

    parts = [
        lambda: sampler.search(sampler.refit(early, answers), answers, pending, n),
        lambda: sampler.refit(early, answers),
        find_posterior,
    ]
    if full:  # beyond, a round has a covariance a target, and no matrix of all pairs of them
        linear, posterior = linearise(state.coordinates, sampler.model), find_posterior()
        parts.append(lambda: design_target(linear, posterior.covariance))
    round_s, refit_s, posterior_s, *design = seconds(
        *parts,
        repeats=15,
        at_most_s=60,
        cpu=cpu,
    )
    arrange_s = round_s - refit_s - posterior_s - sum(design)
    report.add(
        n=n,
        round_ms=1e3 * round_s,
        refit_ms=1e3 * refit_s,
        posterior_ms=1e3 * posterior_s,
        design_ms=1e3 * design[0] if design else None,
        arrange_ms=1e3 * arrange_s,
        queries_scored_per_s=n * (n - 1) * (n - 2) / 2 / round_s if full else None,
        growth=None if before is None else log(round_s / before[1]) / log(n / before[0]),
    )
    return n, round_s


def answered(n, d, count):
    """Answers drawn from t-STE about N(0, 2²) coordinates."""
    generator = np.random.default_rng([n, d])
    world = tste_world(n, d, generator)
    return check_triplets(world.answer(world.random_queries(count, generator), generator), n)


if __name__ == "__main__":
    main()
