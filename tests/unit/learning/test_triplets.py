"""Faulty triplets are refused wherever they come in, in a sentence with the row and the value."""

import numpy as np
import pytest

from salmon.errors import TripletError
from salmon.learning import accuracy, check_triplets, fit, laplace, log_loss

GOOD = [[0, 1, 2], [2, 0, 1]]


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        ([[0, 1, 2], [0, 1, 4]], r"Row 1 \[0, 1, 4\] names a target outside 0 to 3"),
        ([[0, 1, -1]], r"Row 0 \[0, 1, -1\] names a target outside"),
        ([[0, 0, 1]], r"Row 0 \[0, 0, 1\] has its head as the winner"),
        ([[1, 0, 1]], "has its head as the loser"),
        ([[0, 1, 2], [0, 1, 2], [2, 1, 1]], r"Row 2 \[2, 1, 1\] has the same foot twice"),
        ([[0, 1, float("nan")]], "Row 0 .*nan.* whole numbers"),
        ([[0, 1, 1.5]], "Row 0 .*1.5.* whole numbers"),
        ([[0, 1, float("inf")]], "whole numbers"),
        ([0, 1, 2], r"shape \(3,\)"),
        ([[0, 1]], r"shape \(1, 2\)"),
        ([[0, 1, 2], [0, 1]], "differ in length"),
        ([["a", "b", "c"]], "hold <U1 values"),
        (np.zeros((2, 2, 2)), "cannot be read"),
        ([[0, 1, 1]] * 100, "and 97 more"),
        ([[0, 0, 1], [0, 1, 1], [0, 1, 9]], "Row 2 .*Row 0 .*Row 1 "),
    ],
)
def test_a_fault_is_named_with_its_row_and_value(faulty, words):
    with pytest.raises(TripletError, match=words):
        check_triplets(faulty, 4)


def test_one_target_makes_no_triplet():
    with pytest.raises(TripletError, match="1 target cannot make a triplet"):
        check_triplets([[0, 0, 0]], 1)


def test_whole_floats_and_small_integers_become_int32():
    assert check_triplets(np.array(GOOD, dtype=np.float64)).dtype == np.int32
    assert check_triplets(np.array(GOOD, dtype=np.uint8)).tolist() == GOOD


def test_no_answers_are_no_fault():
    assert check_triplets([], 5).shape == (0, 3)


@pytest.mark.parametrize(
    "use",
    [
        lambda rows: fit(rows, 3, 2),
        lambda rows: accuracy(np.zeros((3, 2)), rows),
        lambda rows: log_loss(np.zeros((3, 2)), rows),
        lambda rows: laplace(np.zeros((3, 2)), rows),
        lambda rows: laplace(np.zeros((3, 2)), GOOD, pending=rows),
    ],
    ids=["fit", "accuracy", "log_loss", "laplace", "pending"],
)
def test_every_function_of_triplets_checks_them(use):
    with pytest.raises(TripletError, match="Row 0"):
        use([[0, 1, 7]])
