"""Searches keep to their memory, can be cut short, spread over workers, and say when they did not see everything."""

import tracemalloc

import numpy as np
import pytest

from salmon.errors import SalmonError, TripletError
from salmon.learning import laplace
from salmon.noise import TSTE
from salmon.parallel import SerialExecutor
from salmon.search import exact_search, information_gain, ranking, uncertain_search
from salmon.search.design import arrange_wide
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
    for _ in range(
        5
    ):  # threads that other tests have left allocate too: the least of several peaks is the search's own
        tracemalloc.start()
        ranking._best_of_pairs(tables, first, second, keep, memory)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    peak = min(peaks)
    # Besides the work arrays there are the best so far, and the same number again from each block.
    assert peak < memory + 200 * n * keep


def test_workers_find_what_one_finds(world, monkeypatch):
    monkeypatch.setattr(ranking, "_WORTH_SENDING", 1)
    here, there = exact_search(*world, keep=2), exact_search(*world, keep=2, executor=ThreeWorkers())
    np.testing.assert_allclose(there.scores, here.scores, atol=1e-6)
    np.testing.assert_allclose(information_gain(there.queries, *world), here.scores, atol=1e-6)
    assert there.complete


def test_a_search_that_is_cut_short_returns_what_it_has(world, monkeypatch):
    monkeypatch.setattr(ranking, "_WORTH_SENDING", 1)
    looks = []

    def stop():
        looks.append(1)
        return len(looks) > 2

    ranked = exact_search(*world, memory=20_000, stop=stop)
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
    again = exact_search(coordinates, rows, seed=5)
    np.testing.assert_array_equal(ranked.queries, again.queries)
    # Still far better than chance: the real gains of what was found beat those of random queries.
    drawn_at_random = drawn(60, 200, 1)
    found = information_gain(ranked.queries, coordinates, rows).mean()
    assert found > 2 * information_gain(drawn_at_random, coordinates, rows).mean()


def test_heads_whose_places_are_given_are_not_judged_again(world):
    coordinates, rows = world
    nowhere_known = exact_search(coordinates, rows, log_posterior=np.zeros((40, 40)))
    np.testing.assert_array_equal(nowhere_known.queries, exact_search(coordinates, []).queries)


@pytest.mark.parametrize(
    "search",
    [
        lambda keep: exact_search(np.zeros((4, 2)), [], keep=keep),
        lambda keep: uncertain_search(np.zeros((4, 2)), keep=keep),
    ],
)
def test_keeping_nothing_is_refused(search):
    with pytest.raises(SalmonError, match="keep is 0"):
        search(0)


def test_faulty_queries_are_named(world):
    with pytest.raises(TripletError, match=r"Row 0 \[0, 1, 1\]"):
        information_gain([[0, 1, 1]], *world)


def test_many_targets_are_arranged_from_blocks_and_better_than_at_random():
    generator = np.random.default_rng(0)
    coordinates, rows = generator.normal(size=(60, 2)), drawn(60, 600, 0)
    posterior = laplace(coordinates, rows, full=False)
    turns = np.stack([np.arange(60), np.full(60, -1), np.full(60, -1)], axis=1).astype(np.int32)
    turns[7] = [3, 4, 5]
    arrangement = arrange_wide(posterior, TSTE(), turns, generator)
    assert arrangement.complete
    assert arrangement.queries[7].tolist() == [3, 4, 5]
    np.testing.assert_array_equal(arrangement.queries[:, 0], turns[:, 0])
    assert (arrangement.queries[:, 1] < arrangement.queries[:, 2]).all()
    assert (arrangement.queries[:, 0] != arrangement.queries[:, 1]).all()
    assert (arrangement.queries[:, 0] != arrangement.queries[:, 2]).all()
    settled = arrange_wide(posterior, TSTE(), drawn(60, 60, 3), generator)
    assert arrangement.scores.mean() > 2 * settled.scores.mean()
    spread = np.trace(arrangement.covariance, axis1=1, axis2=2)
    assert (spread <= np.trace(posterior.covariance, axis1=1, axis2=2) + 1e-12).all()
    stopped = arrange_wide(posterior, TSTE(), turns, generator, stop=lambda: True)
    assert not stopped.complete
    assert len(stopped.queries) == 0
