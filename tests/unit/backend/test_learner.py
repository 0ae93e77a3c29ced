"""Live held-out accuracy: predicted before it is learned, counted once, with an honest interval."""

from math import isnan

import numpy as np
import pytest

from backend.learner import RECENT, LiveAccuracy

LINE = np.array([[0.0, 0], [1.0, 0], [3.0, 0], [-1.0, 0]])


def test_agreement_is_right_disagreement_wrong_and_a_tie_half() -> None:
    judged = LiveAccuracy().judge(LINE, [(0, 1, 2), (0, 2, 1), (0, 1, 3)])
    assert (judged.right, judged.total, judged.recent) == (1.5, 3, "rwt")


def test_what_is_stored_comes_back() -> None:
    judged = LiveAccuracy().judge(LINE, [(0, 1, 2), (0, 2, 1)])
    assert LiveAccuracy.of({name: str(value) for name, value in judged.numbers().items()}) == judged
    assert LiveAccuracy.of({}) == LiveAccuracy()


def test_only_the_last_predictions_are_recent() -> None:
    judged = LiveAccuracy().judge(LINE, [(0, 2, 1)] * 10 + [(0, 1, 2)] * RECENT)
    assert (judged.total, judged.recent_interval()[0]) == (RECENT + 10, 1.0)


def test_before_the_first_prediction_there_is_no_number() -> None:
    assert all(isnan(value) for value in LiveAccuracy().recent_interval())


def test_the_interval_covers_the_truth_about_95_times_of_100() -> None:
    draws = np.random.default_rng(0).random((2000, 200)) < 0.8
    intervals = [LiveAccuracy(recent="".join(np.where(row, "r", "w"))).recent_interval() for row in draws]
    assert np.mean([low <= 0.8 <= high for _, low, high in intervals]) == pytest.approx(0.95, abs=0.02)
