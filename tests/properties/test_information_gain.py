"""Information gain lies between 0 and log 2, however extreme the embedding and however many the answers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.noise import NOISE_MODELS, noise_model
from salmon.search import exact_search, information_gain
from salmon.search.information import head_posterior
from tests import oracles
from tests.properties.test_gradient import drawn


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(NOISE_MODELS)),
    lapse=st.sampled_from([0.0, 0.05]),
    spread=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 30.0, 1e6]),
    m=st.sampled_from([0, 20, 3000]),
)
def test_the_gain_is_between_0_and_log_2(seed, name, lapse, spread, m):
    coordinates = spread * np.random.default_rng(seed).normal(size=(8, 2))
    rows, model = drawn(8, m, seed) if m else [], noise_model(name, lapse=lapse)
    ranked = exact_search(coordinates, rows, model)
    for scores in (information_gain(oracles.all_queries(8), coordinates, rows, model), ranked.scores):
        assert ((scores >= 0) & (scores <= np.log(2) + 1e-12)).all()
    assert len(ranked.queries) == 8


def test_a_head_with_a_thousand_answers_still_has_a_posterior():
    coordinates = np.random.default_rng(0).normal(size=(6, 2))
    posterior = head_posterior(np.array([[0, 1, 2], [0, 2, 1]] * 1500, dtype=np.int32), coordinates, noise_model("STE"))
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    np.testing.assert_allclose(posterior[1:], 1 / 6)


def test_a_certain_answer_tells_nothing():
    # Feet 1 and 2 are as far from each other as can be from everything that could be the head.
    coordinates = np.array([[0.0], [0.1], [1000.0], [0.05]])
    assert information_gain([[0, 1, 2]], coordinates, [], "STE")[0] < 0.57
    assert information_gain([[0, 1, 2]], coordinates, [[0, 1, 2]] * 60, "STE")[0] < 1e-9
