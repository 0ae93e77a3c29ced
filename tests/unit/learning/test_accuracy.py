"""Agreement is a share, ties are halves, and nothing is said about no answers."""

import numpy as np
import pytest

from salmon.learning import accuracy, log_loss
from salmon.noise import STE

LINE = np.array([[0.0], [1.0], [2.0], [-1.0]])


def test_accuracy_is_the_share_of_winners_that_lie_nearer_and_a_tie_counts_half():
    assert accuracy(LINE, [[0, 1, 2], [2, 1, 0], [0, 2, 1], [0, 1, 3]]) == (1 + 1 + 0 + 0.5) / 4


def test_log_loss_is_the_mean_of_minus_log_chance():
    assert log_loss(LINE, [[0, 1, 2], [0, 1, 3]], noise="STE") == pytest.approx(
        -np.log([1 / (1 + np.exp(1 - 4)), 0.5]).mean()
    )


def test_an_impossible_answer_costs_much_and_not_everything():
    far = np.array([[0.0], [1e3], [0.0]])
    assert 20 < log_loss(far, [[0, 1, 2]], noise=STE()) < 30
    assert log_loss(far, [[0, 1, 2]], noise="STE", lapse=0.05) == pytest.approx(-np.log(0.05))


def test_no_answers_have_no_accuracy():
    assert np.isnan([accuracy(LINE, []), log_loss(LINE, [])]).all()
