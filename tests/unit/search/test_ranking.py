"""Searches keep to their memory, can be cut short, spread over workers, and say when they did not see everything."""

import itertools
import tracemalloc

import numpy as np
import pytest

from salmon.errors import SalmonError, TripletError
from salmon.learning import laplace
from salmon.noise import TSTE
from salmon.parallel import SerialExecutor
from salmon.search import exact_search, information_gain, ranking, uncertain_search
from salmon.search.wide_design import arrange_wide
from tests.properties.test_deflation import open_turns
from tests.properties.test_gradient import drawn


@pytest.fixture
def world():
    return np.random.default_rng(0).normal(size=(40, 2)), drawn(40, 300, 0)


class ThreeWorkers(SerialExecutor):
    """Three workers in one thread: pieces come in, one after the other."""

    @property
    def workers(self):
        return 3


def test_the_size_of_the_blocks_changes_nothing(world):
    whole, small = exact_search(*world, keep=3), exact_search(*world, keep=3, memory=20_000)
    np.testing.assert_allclose(small.scores, whole.scores, atol=1e-6)
    same = [tuple(a) == tuple(b) for a, b in zip(small.queries.tolist(), whole.queries.tolist(), strict=True)]
    assert np.mean(same) > 0.95


@pytest.mark.parametrize("keep", [1, 5])
def test_a_search_keeps_to_its_memory(keep):
    n, memory = 120, 400_000
    coordinates, rows = np.random.default_rng(0).normal(size=(n, 2)), drawn(n, 300, 0)
    tables, first, second, _ = ranking._prepare(coordinates, rows, TSTE(), 0, None)
    peaks: list[int] = []
    # Threads that other tests have left allocate too: the least of several peaks is the search's own.
    for _ in range(5):
        tracemalloc.start()
        ranking._best_of_pairs(tables, first, second, keep, memory)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Besides the work arrays there are the best so far, and the same number again from each block.
    assert min(peaks) < memory + 200 * n * keep


def test_a_search_that_is_cut_short_returns_what_it_has(world, monkeypatch):
    monkeypatch.setattr(ranking, "_WORTH_SENDING", 1)
    looks = itertools.count(1)
    ranked = exact_search(*world, memory=20_000, stop=lambda: next(looks) > 2)
    assert not ranked.complete
    assert 0 < len(ranked.queries) <= 40
    np.testing.assert_allclose(ranked.scores, information_gain(ranked.queries, *world), atol=1e-5)
    spread = exact_search(*world, executor=ThreeWorkers(), stop=lambda: True)
    assert not spread.complete
    assert len(spread.queries)


def test_a_search_that_is_stopped_before_it_starts_finds_nothing(world):
    ranked = exact_search(*world, stop=lambda: True)
    assert len(ranked.queries) == 0
    assert not ranked.complete


def test_above_a_thousand_targets_a_sample_is_scored_and_said_to_be_one(monkeypatch):
    monkeypatch.setattr(ranking, "LARGEST_EXACT", 20)
    monkeypatch.setattr(ranking, "_BUDGET", 4 * 60 * 20 * 300)
    coordinates, rows = np.random.default_rng(0).normal(size=(60, 2)), drawn(60, 300, 0)
    ranked = exact_search(coordinates, rows, seed=5)
    assert not ranked.exact
    assert sorted(ranked.queries[:, 0].tolist()) == list(range(60))
    np.testing.assert_array_equal(ranked.queries, exact_search(coordinates, rows, seed=5).queries)
    # Still far better than chance: the real gains of what was found beat those of random queries.
    found, at_random = (
        information_gain(queries, coordinates, rows).mean() for queries in (ranked.queries, drawn(60, 200, 1))
    )
    assert found > 2 * at_random


def test_heads_whose_places_are_given_are_not_judged_again(world):
    coordinates, rows = world
    nowhere_known = exact_search(coordinates, rows, log_posterior=np.zeros((40, 40)))
    np.testing.assert_array_equal(nowhere_known.queries, exact_search(coordinates, []).queries)


@pytest.mark.parametrize(
    ("search", "error", "words"),
    [
        (lambda world: exact_search(*world, keep=0), SalmonError, "keep is 0"),
        (lambda world: uncertain_search(world[0], keep=0), SalmonError, "keep is 0"),
        (lambda world: information_gain([[0, 1, 1]], *world), TripletError, r"Row 0 \[0, 1, 1\]"),
    ],
)
def test_keeping_nothing_and_faulty_queries_are_refused(world, search, error, words):
    with pytest.raises(error, match=words):
        search(world)


def test_many_targets_are_arranged_from_blocks_and_better_than_at_random():
    generator = np.random.default_rng(0)
    coordinates, rows = generator.normal(size=(60, 2)), drawn(60, 600, 0)
    posterior = laplace(coordinates, rows, full=False)
    turns = open_turns(np.arange(60))
    turns[7] = [3, 4, 5]
    arrangement = arrange_wide(posterior, TSTE(), turns, generator)
    assert arrangement.complete
    assert arrangement.queries[7].tolist() == [3, 4, 5]
    np.testing.assert_array_equal(arrangement.queries[:, 0], turns[:, 0])
    assert (arrangement.queries[:, 1] < arrangement.queries[:, 2]).all()
    assert (arrangement.queries[:, :1] != arrangement.queries[:, 1:]).all()
    assert arrangement.scores.mean() > 2 * arrange_wide(posterior, TSTE(), drawn(60, 60, 3), generator).scores.mean()
    spread = np.trace(arrangement.covariance, axis1=1, axis2=2)
    assert (spread <= np.trace(posterior.covariance, axis1=1, axis2=2) + 1e-12).all()
    stopped = arrange_wide(posterior, TSTE(), turns, generator, stop=lambda _: True)
    assert not stopped.complete
    assert len(stopped.queries) == 0
