"""How many queries a second the exact search scores, against the direct form and against the matrix product alone.

    OMP_NUM_THREADS=1 python -m benchmarks.search --json search.json

The direct form scores a query from its head's posterior over places, the posterior after either answer, and their
entropies, vectorised over a batch of queries. It is measured at the best of several batches, twice: as published
samplers write it (powers of any α, not-a-numbers replaced, logarithms where a chance is positive), and tightly (in
float32, without any of that).
"""

import tracemalloc

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.report import Report, arguments, seconds
from salmon.geometry import squared_distances
from salmon.learning import check_triplets
from salmon.noise import TSTE
from salmon.samplers.state import number_of_queries, random_queries
from salmon.search import exact_search
from salmon.search.information import head_posterior

BATCHES = (250, 500, 1000, 2000)
COLUMNS = (
    "n", "queries", "search_s", "queries_per_s", "direct_per_s", "batch", "ratio", "tight_per_s", "tight_ratio",
    "product_s", "of_product", "peak_MB", "difference",
)  # fmt: skip


def direct_gains(queries, tau, d2, alpha=1.0):
    """(q,) information gains, up to the head's own entropy, as published samplers compute them."""
    head, first, second = queries.T
    exponent = -(alpha + 1) / 2
    weight_first, weight_second = ((1 + d2[foot] / alpha) ** exponent for foot in (first, second))
    chance = weight_first / (weight_first + weight_second)
    chance[np.isnan(chance)] = 0
    p = (chance * tau[head]).sum(axis=1)
    gain = 0
    for share, chance_of_answer in ((p, chance), (1 - p, 1 - chance)):
        joint = tau[head] * chance_of_answer
        joint[np.isnan(joint)] = 0
        after = joint / joint.sum(axis=1, keepdims=True)
        row, column = np.argwhere(after > 0).T
        terms = np.zeros_like(after)
        terms[row, column] = -after[row, column] * np.log(after[row, column])
        gain = gain - share * terms.sum(axis=1)
    return gain


def tight_gains(queries, tau, d2):
    """The same, with the head's own entropy and with nothing that t-STE with α = 1 can do without."""
    head, first, second = queries.T
    prior = tau[head]
    weight_first, weight_second = 1 + d2[second], 1 + d2[first]
    chance = weight_first / (weight_first + weight_second)
    wins, loses = prior * chance, prior * (1 - chance)
    p = wins.sum(axis=1)
    wins /= p[:, None]
    loses /= (1 - p)[:, None]
    return entropy(prior) - p * entropy(wins) - (1 - p) * entropy(loses)


def entropy(distributions):
    return -(distributions * np.log(np.maximum(distributions, 1e-30))).sum(axis=1)


def main():
    options = arguments(__doc__, sizes={"type": int, "nargs": "*", "default": [30, 90, 200, 500, 1000]})
    report = Report("Exact search, t-STE, d = 2, one thread", COLUMNS)
    with threadpool_limits(1):
        for n in options.sizes:
            measure(n, report, options.cpu)
    report.note(
        "ratio, tight_ratio: queries a second, searched over direct. of_product: search_s over the time of 2n⁴ operations in float32 matrix products."
    )
    report.write(options.json)


def measure(n, report, cpu):
    generator = np.random.default_rng(n)
    coordinates = 2 * generator.normal(size=(n, 2))
    triplets = check_triplets(random_queries(n, 10 * n, generator), n)
    tau, d2 = head_posterior(triplets, coordinates, TSTE()), squared_distances(coordinates)
    tau32, d232 = tau.astype(np.float32), d2.astype(np.float32)
    batches = [random_queries(n, batch, generator) for batch in BATCHES]
    search_s, product_s, *direct_s = seconds(
        lambda: exact_search(coordinates, triplets),
        product(n),
        *(lambda queries=queries: direct_gains(queries, tau32, d232) for queries in batches),
        *(lambda queries=queries: tight_gains(queries, tau32, d232) for queries in batches),
        repeats=15,
        at_most_s=60,
        cpu=cpu,
    )
    rates = [batch / taken for batch, taken in zip(2 * BATCHES, direct_s, strict=True)]
    direct, tight = max(rates[: len(BATCHES)]), max(rates[len(BATCHES) :])
    tracemalloc.start()
    ranked = exact_search(coordinates, triplets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    searched = number_of_queries(n) / search_s
    product_s *= product_calls(n)
    report.add(
        n=n,
        queries=number_of_queries(n),
        search_s=search_s,
        queries_per_s=searched,
        direct_per_s=direct,
        batch=BATCHES[rates.index(direct)],
        ratio=searched / direct,
        tight_per_s=tight,
        tight_ratio=searched / tight,
        product_s=product_s,
        of_product=search_s / product_s,
        peak_MB=peak / 1e6,
        difference=float(np.abs(tight_gains(ranked.queries, tau, d2) - ranked.scores).max()),
    )


def product_calls(n):
    """How many of the products that are timed make 2n⁴ operations."""
    return n * n / 2048


def product(n):
    """An (n, n) by (n, 2048) float32 product by the same library that the search calls."""
    left, right = (np.random.default_rng(0).random(shape, dtype=np.float32) for shape in ((n, n), (n, 2048)))
    out = np.empty((n, 2048), dtype=np.float32)
    return lambda: np.matmul(left, right, out=out)


if __name__ == "__main__":
    main()
