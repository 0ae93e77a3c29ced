"""The gradient of a refit's objective equals finite differences, for every noise model and both ways of counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.learning import check_triplets
from salmon.learning.objective import TENSORS_FROM, arithmetic_for, blocks_of, evaluate, objective_of
from salmon.noise import NOISE_MODELS, PowerTSTE, noise_model
from tests.oracles import finite_difference

MODELS = [model() for model in NOISE_MODELS.values()] + [PowerTSTE(k=0.85, lapse=0.07)]


def drawn(n, m, seed):
    generator = np.random.default_rng(seed)
    return check_triplets(np.array([generator.choice(n, 3, replace=False) for _ in range(m)]), n)


# 40 answers about 6 targets repeat their distances; 5 answers about 9 targets hardly do: the two forms of a block.
@pytest.mark.parametrize(("n", "m"), [(6, 40), (9, 5)])
@pytest.mark.parametrize("model", MODELS, ids=repr)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4), ridge=st.floats(0, 2))
def test_the_gradient_equals_finite_differences(n, m, model, seed, d, ridge):
    objective = objective_of(drawn(n, m, seed), n, model, ridge=ridge)
    coordinates = np.random.default_rng(seed + 1).normal(size=(n, d))
    measured = finite_difference(lambda moved: objective(moved)[0], coordinates)
    # A hinge has no derivative at its edge; a step of 1e-6 meets it only by accident.
    np.testing.assert_allclose(objective(coordinates)[1], measured, atol=2e-5)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_both_ways_of_counting_give_the_same_loss_and_gradient(model):
    rows = drawn(8, 60, 0)
    coordinates = np.random.default_rng(1).normal(size=(8, 2))
    merged = objective_of(rows, 8, model)
    parts = [objective_of(rows[start : start + 20], 8, model) for start in (0, 20, 40)]
    np.testing.assert_allclose(merged(coordinates)[0], np.mean([part(coordinates)[0] for part in parts]))
    np.testing.assert_allclose(merged(coordinates)[1], np.mean([part(coordinates)[1] for part in parts], axis=0))


@pytest.mark.parametrize("n", [6, 9], ids=["distances recur", "distances hardly recur"])
@pytest.mark.parametrize("model", MODELS, ids=repr)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4))
def test_arrays_and_tensors_give_the_same_loss_and_gradient(n, model, seed, d):
    blocks = tuple(blocks_of(drawn(n, 33, seed), n, size=16))
    coordinates = np.random.default_rng(seed + 1).normal(size=(n, d))
    with arithmetic_for(0) as arrays, arithmetic_for(TENSORS_FROM) as tensors:
        assert type(arrays) is not type(tensors)
        (loss, gradient), (same_loss, same_gradient) = (
            evaluate(model, coordinates, blocks, use) for use in (arrays, tensors)
        )
    assert same_loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(same_gradient, gradient, rtol=1e-9, atol=1e-12)


def test_targets_on_one_spot_pull_nowhere_and_break_nothing():
    rows = drawn(6, 30, 0)
    for name in NOISE_MODELS:
        value, gradient = objective_of(rows, 6, noise_model(name))(np.zeros((6, 2)))
        assert np.isfinite(value)
        assert not gradient.any()
