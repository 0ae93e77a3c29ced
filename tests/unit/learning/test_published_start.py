"""A map that was shown is one start of every later fit, whose result is therefore never worse."""

import numpy as np
import pytest

from salmon.errors import SalmonError
from salmon.learning import fit
from salmon.learning.noise_learning import fit_with_learned_noise
from salmon.learning.objective import objective_of
from salmon.learning.refit import start_from
from tests.adaptive_studies import adaptive_study

N = 30


@pytest.fixture(scope="module")
def studies():
    return [adaptive_study(N, seed) for seed in range(20)]


def behind(found, triplets, shown):
    """By how much a fit is worse than the map that was shown, both by the objective of the fit."""
    return found.objective - objective_of(triplets, len(shown), found.noise, ridge=found.ridge)(shown)[0]


def test_a_fit_is_never_worse_by_its_own_objective_than_the_map_that_was_shown(studies):
    missed = []
    for triplets, shown in studies:
        missed.append(behind(fit_with_learned_noise(triplets, N, 2, n_starts=4), triplets, shown))
        found = fit_with_learned_noise(triplets, N, 2, published=shown, n_starts=4)
        assert behind(found, triplets, shown) <= 1e-9
        assert "published" in found.start_names
    assert max(missed) > 0.005, "these worlds are too easy to show anything: four starts find every optimum"


@pytest.mark.parametrize("noise", ["TSTE", "STE", "CKL"])
def test_a_fit_under_another_noise_model_is_never_worse_either(studies, noise):
    for triplets, shown in studies[:6]:
        assert behind(fit(triplets, N, 2, noise=noise, published=shown, n_starts=4), triplets, shown) <= 1e-9


def test_a_fit_in_more_dimensions_is_never_worse_and_leaves_the_plane(studies):
    triplets, shown = studies[4]
    found = fit_with_learned_noise(triplets, N, 3, published=shown, n_starts=1)
    assert behind(found, triplets, np.column_stack([shown, np.zeros(N)])) <= 1e-6
    assert np.linalg.matrix_rank(found.coordinates, tol=1e-2) == 3


def test_a_published_map_of_fewer_targets_or_more_dimensions_is_continued(studies):
    _, shown = studies[0]
    added = start_from(shown, N + 5, 2, seed=1)
    np.testing.assert_allclose(added[:N], shown - shown.mean(axis=0))
    assert np.abs(added[N:]).max() < 0.5
    gap = shown.copy()
    gap[7] = np.nan
    assert np.isfinite(start_from(gap, N, 2, seed=1)).all()
    flat = start_from(np.column_stack([0.01 * np.arange(N), shown]), N, 2, seed=1)
    assert flat.shape == (N, 2)
    np.testing.assert_allclose(np.linalg.norm(flat), np.linalg.norm(shown), rtol=0.1)
    assert start_from(shown[:0], N, 2, seed=1).shape == (N, 2)
    with pytest.raises(SalmonError, match="cannot begin a fit"):
        start_from(np.zeros(N), N, 2, seed=1)


def test_the_same_published_map_gives_the_same_bytes(studies):
    triplets, shown = studies[1]
    one, other = (fit_with_learned_noise(triplets, N, 2, published=shown, n_starts=4).coordinates for _ in range(2))
    assert one.tobytes() == other.tobytes()
