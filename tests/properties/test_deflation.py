"""A query's score is exactly how far its answer lets tr(MΣ) fall, and a round counts every query once posted."""

import itertools
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.geometry import centre
from salmon.learning import laplace
from salmon.noise import CKL, STE, TSTE, PowerTSTE
from salmon.search import design
from salmon.search.design import arrange, design_target, linearise
from tests import oracles
from tests.properties.test_gradient import drawn


@pytest.fixture(params=["numpy", "compiled"], autouse=True, scope="module")
def _loops(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(design, "WORTH_COMPILING", 0 if request.param == "compiled" else inf)
        yield


MODELS = [TSTE(lapse=0.05), PowerTSTE(k=0.85, lapse=0.07), STE(), CKL(mu=1, lapse=0.05)]


def designed(model, n, d, seed):
    coordinates = centre(np.random.default_rng(seed).normal(size=(n, d)))
    covariance = laplace(coordinates, drawn(n, 5 * n, seed), model, ridge=1).covariance
    linear = linearise(coordinates, model)
    return coordinates, covariance, linear, design_target(linear, covariance)


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_target_is_the_explicit_sum_over_all_queries(model, d):
    coordinates, covariance, _, target = designed(model, 6, d, seed=d)
    expected = oracles.design_target(model, coordinates, covariance)
    np.testing.assert_allclose(target, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("spread", [0.0, 1e-4])
@pytest.mark.parametrize("spot", [(0.0, 0.0), (3.0, 2.0)])
def test_targets_on_one_spot_leave_the_target_of_the_design_as_it_should_be(spread, spot):
    generator = np.random.default_rng(0)
    coordinates = 1.5 * generator.normal(size=(9, 2))
    coordinates[3:7] = np.array(spot) + spread * generator.normal(size=(4, 2))
    coordinates = centre(coordinates)
    covariance = laplace(coordinates, drawn(9, 60, 0), TSTE(lapse=0.05), ridge=1).covariance
    target = design_target(linearise(coordinates, TSTE(lapse=0.05)), covariance)
    expected = oracles.design_target(TSTE(lapse=0.05), coordinates, covariance)
    np.testing.assert_allclose(target, expected, atol=1e-3 * np.abs(expected).max())


def test_the_target_of_all_heads_is_the_sum_of_its_parts():
    _, covariance, linear, target = designed(TSTE(), 9, 2, seed=0)
    parts = [design_target(linear, covariance, heads) for heads in np.array_split(np.arange(9), 3)]
    np.testing.assert_allclose(sum(parts), target, atol=1e-5 * np.abs(target).max())


def open_turns(heads):
    """Turns of heads whose feet are still to be chosen."""
    return np.stack([heads, np.full(len(heads), -1), np.full(len(heads), -1)], axis=1).astype(np.int32)


def falls(model, coordinates, covariance, target, head):
    """Query of the head -> how far tr(MΣ) falls when it is answered, and Σ afterwards."""
    for query in oracles.all_queries(len(coordinates)):
        if query[0] == head:
            g = oracles.log_odds_gradient(model, coordinates, *query)
            w = oracles.fisher_weight(model, coordinates, *query)
            after = np.linalg.inv(np.linalg.inv(covariance) + w * np.outer(g, g))
            yield query, np.trace(target @ covariance) - np.trace(target @ after), after


@pytest.mark.parametrize("model", MODELS, ids=repr)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 3))
def test_every_turn_takes_the_query_with_the_largest_fall_and_counts_it_as_answered(model, seed, d):
    coordinates, covariance, linear, target = designed(model, 6, d, seed)
    heads = np.random.default_rng(seed).permutation(6)
    arrangement = arrange(linear, covariance, target, open_turns(heads))
    for head, query, score in zip(heads, arrangement.queries, arrangement.scores, strict=True):
        options = {asked: (fall, after) for asked, fall, after in falls(model, coordinates, covariance, target, head)}
        best = max(fall for fall, _ in options.values())
        fall, covariance = options[tuple(query.tolist())]
        assert score == pytest.approx(fall, rel=1e-3, abs=1e-6)
        assert fall == pytest.approx(best, rel=1e-3, abs=1e-6)
    np.testing.assert_allclose(arrangement.covariance, covariance, atol=1e-5)


def test_settled_queries_take_their_turn_and_are_counted_too():
    coordinates, covariance, linear, target = designed(TSTE(), 6, 2, seed=3)
    arrangement = arrange(linear, covariance, target, np.array([[0, 1, 2], [0, -1, -1]], dtype=np.int32))
    assert arrangement.queries[0].tolist() == [0, 1, 2]
    options = {asked: (fall, after) for asked, fall, after in falls(TSTE(), coordinates, covariance, target, 0)}
    assert arrangement.scores[0] == pytest.approx(options[0, 1, 2][0], rel=1e-3)
    second = {asked: fall for asked, fall, _ in falls(TSTE(), coordinates, options[0, 1, 2][1], target, 0)}
    assert second[tuple(arrangement.queries[1].tolist())] == pytest.approx(max(second.values()), rel=1e-3)


def test_within_a_period_the_posterior_follows_every_query_and_the_target_spread_once_a_period():
    # 30 targets: K is renewed every three turns, Σ with each.
    model = TSTE(lapse=0.05)
    _, covariance, linear, target = designed(model, 30, 2, seed=1)
    arrangement = arrange(linear, covariance, target, open_turns(np.arange(30)))
    coordinates = linear.coordinates.astype(np.float64)
    for query in arrangement.queries:
        g = oracles.log_odds_gradient(model, coordinates, *query)
        w = oracles.fisher_weight(model, coordinates, *query)
        moved = covariance @ g
        covariance = covariance - w / (1 + w * g @ moved) * np.outer(moved, moved)
    np.testing.assert_allclose(arrangement.covariance, covariance, atol=1e-6)


def test_targets_on_one_spot_are_asked_about_in_pairs_of_different_feet():
    linear = linearise(np.zeros((6, 2)), TSTE(lapse=0.05))
    covariance = np.eye(12)
    arrangement = arrange(linear, covariance, design_target(linear, covariance), open_turns(np.arange(6)))
    assert all(len(set(query)) == 3 for query in arrangement.queries.tolist())


def test_a_head_with_more_candidates_than_there_is_room_for_gets_the_same_feet(monkeypatch):
    _, covariance, linear, target = designed(TSTE(lapse=0.05), 20, 2, seed=5)
    expected = arrange(linear, covariance, target, open_turns(np.arange(20)))
    monkeypatch.setattr(design, "_ROOM", 0)
    monkeypatch.setattr(design, "_LEAST_ROOM", 1)
    np.testing.assert_array_equal(
        arrange(linear, covariance, target, open_turns(np.arange(20))).queries, expected.queries
    )


def test_an_arrangement_can_be_cut_short():
    _, covariance, linear, target = designed(TSTE(), 10, 2, seed=0)
    turns = open_turns(np.arange(10))
    looks = itertools.count(1)
    arrangement = arrange(linear, covariance, target, turns, stop=lambda _: next(looks) > 4)
    assert not arrangement.complete
    assert len(arrangement.queries) == 4
    np.testing.assert_array_equal(arrangement.queries, arrange(linear, covariance, target, turns).queries[:4])
