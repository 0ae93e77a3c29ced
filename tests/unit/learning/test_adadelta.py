"""Adadelta goes downhill, the same way from the same seed, and never asks for more answers than there are."""

import numpy as np

from salmon.learning import log_loss
from salmon.learning.refit import adadelta
from salmon.noise import TSTE
from tests.unit.learning.test_refit import world

START = 1e-4 * np.random.default_rng(9).normal(size=(15, 2))
ROWS = world(15, 2, 800, seed=0)[1]


def test_more_epochs_fit_better():
    losses = [log_loss(adadelta(START, ROWS, TSTE(), epochs=epochs, seed=1, batch=64), ROWS) for epochs in (0, 5, 60)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1] + 0.05


def test_the_same_seed_draws_the_same_batches_and_leaves_its_start_alone():
    before = START.copy()
    first, second, other = (adadelta(START, ROWS, TSTE(), epochs=3, seed=seed, batch=64) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    np.testing.assert_array_equal(START, before)


def test_fewer_answers_than_a_batch_and_none_at_all_are_fine():
    assert np.isfinite(adadelta(START, ROWS[:10], TSTE(), epochs=3, seed=0)).all()
    np.testing.assert_array_equal(adadelta(START, ROWS[:0], TSTE(), epochs=3, seed=0), START)
