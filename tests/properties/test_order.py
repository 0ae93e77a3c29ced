"""Laws of the shuffled order: every example once, in any parts, and every position equally likely."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from salmon.training.examples import ShuffledOrder

seeds = st.lists(st.integers(0, 2**31), min_size=1, max_size=2)


@given(st.integers(1, 3_000), seeds, st.lists(st.integers(0, 3_000), max_size=5))
def test_parts_of_any_length_are_one_permutation(n, seed, cuts):
    order = ShuffledOrder(n, seed)
    ends = sorted({0, n, *(min(cut, n) for cut in cuts)})
    together = np.concatenate([order.part(start, stop) for start, stop in pairwise(ends)]).tolist()
    assert sorted(together) == list(range(n))
    assert together == ShuffledOrder(n, seed).part(0, n).tolist()
    assert order.part(n, n).size == 0


def test_every_position_is_equally_likely_for_each_example_and_each_pair():
    orders = 4_000
    for n in (2, 5, 12, 30):
        places = np.zeros((n, n))
        follows = np.zeros((n, n))
        for seed in range(orders):
            found = ShuffledOrder(n, [seed]).part(0, n)
            places[np.arange(n), found] += 1
            follows[found[:-1], found[1:]] += 1
        # Chi square over its degrees of freedom is 1 on average, and its spread is √(2 / degrees).
        for counts in (places.ravel(), follows[~np.eye(n, dtype=bool)]):
            assert ((counts - orders / n) ** 2 / (orders / n)).mean() < 1 + 6 * np.sqrt(2) / (n - 1)


def test_epochs_of_one_seed_are_uncorrelated():
    n = 100_000
    first, second = (ShuffledOrder(n, [7, epoch]).part(0, n) for epoch in (0, 1))
    for one, other in ((first, second), (first[:-1], first[1:]), (first, np.arange(n))):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(n)
    # A random order leaves about one example where it was.
    assert (first == np.arange(n)).sum() < 10
