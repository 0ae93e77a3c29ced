"""Exact search finds what scoring every query one by one finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.noise import CKL, GNMDS, SOE, STE, TSTE, Logistic, PowerTSTE
from salmon.search import exact_search, information_gain, uncertain_search
from tests import oracles
from tests.properties.test_gradient import drawn

MODELS = [
    TSTE(),
    TSTE(alpha=4),
    STE(),
    CKL(mu=1),
    GNMDS(),
    SOE(),
    Logistic(slope=2),
    PowerTSTE(k=0.85, lapse=0.07),
    STE(lapse=0.1),
]
every_model = pytest.mark.parametrize("model", MODELS, ids=repr)


@every_model
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 7), d=st.integers(1, 3), keep=st.integers(1, 30))
def test_each_head_gets_its_best_queries_of_all(model, seed, n, d, keep):
    coordinates = 1.5 * np.random.default_rng(seed).normal(size=(n, d))
    rows = drawn(n, 4 * n, seed)
    ranked = exact_search(coordinates, rows, model, keep)
    assert ranked.exact
    assert ranked.complete
    assert (np.diff(ranked.scores) <= 0).all()
    gains = {query: oracles.information_gain(model, coordinates, rows, query) for query in oracles.all_queries(n)}
    for head in range(n):
        of_head = sorted((gain for query, gain in gains.items() if query[0] == head), reverse=True)[:keep]
        found = ranked.queries[ranked.queries[:, 0] == head]
        assert len({tuple(query) for query in found.tolist()}) == len(found) == len(of_head)
        np.testing.assert_allclose(ranked.scores[ranked.queries[:, 0] == head], of_head, atol=1e-5)
        np.testing.assert_allclose([gains[tuple(query)] for query in found.tolist()], of_head, atol=1e-5)


@every_model
def test_scoring_some_queries_equals_the_oracle_to_rounding(model):
    coordinates, rows = np.random.default_rng(0).normal(size=(6, 2)), drawn(6, 30, 1)
    queries = oracles.all_queries(6)
    expected = [oracles.information_gain(model, coordinates, rows, query) for query in queries]
    np.testing.assert_allclose(information_gain(queries, coordinates, rows, model), expected, atol=1e-12)


@every_model
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 8), keep=st.integers(1, 25))
def test_the_most_uncertain_queries_are_those_of_all(model, seed, n, keep):
    coordinates = np.random.default_rng(seed).normal(size=(n, 2))
    ranked = uncertain_search(coordinates, model, keep)
    entropies = {query: oracles.entropy(oracles.chance(model, coordinates, *query)) for query in oracles.all_queries(n)}
    for head in range(n):
        of_head = sorted((value for query, value in entropies.items() if query[0] == head), reverse=True)[:keep]
        found = ranked.queries[ranked.queries[:, 0] == head].tolist()
        np.testing.assert_allclose([entropies[tuple(query)] for query in found], of_head, atol=1e-9)
        np.testing.assert_allclose(ranked.scores[ranked.queries[:, 0] == head], of_head, atol=1e-9)
