"""Refits find what the answers say, from wherever they start."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from salmon.errors import SalmonError
from salmon.learning import accuracy, fit
from salmon.parallel import SerialExecutor


def world(n, d, m, seed, spread=2.0):
    """True coordinates and answers drawn from t-STE."""
    generator = np.random.default_rng(seed)
    truth = spread * generator.normal(size=(n, d))
    rows = np.array([generator.choice(n, 3, replace=False) for _ in range(m)])
    d2_first, d2_second = ((truth[rows[:, :1]] - truth[rows[:, 1:]]) ** 2).sum(axis=2).T
    swapped = generator.random(m) > (1 + d2_second) / (2 + d2_first + d2_second)
    rows[swapped] = rows[swapped][:, [0, 2, 1]]
    return truth, rows


def test_a_fit_agrees_with_fresh_answers_nearly_as_well_as_the_truth():
    truth, rows = world(20, 2, 2500, seed=1)
    found = fit(rows[:1500], 20, 2)
    assert found.converged
    assert accuracy(found.coordinates, rows[1500:]) > accuracy(truth, rows[1500:]) - 0.03
    np.testing.assert_allclose(found.coordinates.mean(axis=0), 0, atol=1e-12)


def test_a_line_is_found_in_one_dimension_from_every_seed():
    line, rows = world(15, 1, 1500, seed=2, spread=4.0)
    for seed in range(5):
        found = fit(rows, 15, 1, seed=seed)
        assert abs(spearmanr(line[:, 0], found.coordinates[:, 0]).statistic) > 0.97
        assert found.start_names == ("three dimensions",)


def test_a_warm_start_reaches_the_same_loss_in_fewer_evaluations():
    _, rows = world(20, 2, 1000, seed=3)
    cold, warm = fit(rows, 20, 2), fit(rows, 20, 2, start=fit(rows[:900], 20, 2).coordinates)
    assert warm.start_names == ("warm",)
    assert warm.objective <= cold.objective + 1e-3
    assert warm.evaluations < cold.evaluations / 2


def test_few_answers_are_fitted_from_several_starts_and_the_best_is_kept():
    _, rows = world(20, 2, 100, seed=4)
    found = fit(rows, 20, 2, start=np.random.default_rng(0).normal(size=(20, 2)))
    assert (found.start_names, found.objective) == (("warm", "spectral", "random 1"), min(found.start_losses))


def test_the_same_seed_gives_the_same_coordinates():
    _, rows = world(15, 2, 100, seed=5)
    np.testing.assert_array_equal(*(fit(rows, 15, 2, seed=7).coordinates for _ in range(2)))


def test_a_ridge_keeps_answers_that_agree_with_each_other_from_blowing_up():
    rows = [[0, 1, 2]] * 50 + [[1, 0, 2]] * 50
    free, held = fit(rows, 3, 2, ridge=0), fit(rows, 3, 2, ridge=1)
    assert np.abs(held.coordinates).max() < 3 < np.abs(free.coordinates).max()


def test_a_fit_can_be_watched_and_stopped():
    _, rows = world(20, 2, 500, seed=6)
    seen = []
    found = fit(
        rows, 20, 2, n_starts=1, callback=lambda _, objective: seen.append(objective), stop=lambda: len(seen) >= 3
    )
    assert len(seen) == 3
    assert seen == sorted(seen, reverse=True)
    assert found.objective == pytest.approx(seen[-1])
    assert not found.converged


def test_no_answers_leave_every_target_near_the_origin():
    np.testing.assert_allclose(fit([], 5, 2, ridge=1).coordinates, 0, atol=1e-3)


def test_more_dimensions_than_targets_still_fit():
    coordinates = fit([[0, 1, 2], [1, 0, 2]], 3, 5).coordinates
    assert coordinates.shape == (3, 5)
    assert np.isfinite(coordinates).all()


def test_a_large_fit_follows_only_the_start_that_looks_best():
    heads = np.random.default_rng(0).integers(0, 40, 210_000)
    rows = np.stack([heads, (heads + 1) % 40, (heads + 9) % 40], axis=1)
    assert len(fit(rows, 40, 2, max_iter=5, executor=SerialExecutor()).start_names) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 2}, "2 targets cannot be embedded"),
        ({"d": 0}, "0 dimensions"),
        ({"ridge": -1.0}, "ridge is -1"),
        ({"start": np.zeros((4, 2))}, r"start of shape \(4, 2\)"),
        ({"start": np.full((5, 2), np.nan)}, "finite numbers"),
    ],
)
def test_a_fit_that_cannot_be_is_refused_in_a_sentence(arguments, words):
    with pytest.raises(SalmonError, match=words):
        fit(**{"triplets": [], "n": 5, "d": 2} | arguments)
