"""The posterior is the one that the formulas write down."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from salmon.errors import SalmonError
from salmon.geometry import centre
from salmon.learning import laplace
from salmon.noise import CKL, STE, TSTE, PowerTSTE
from tests.oracles import posterior_covariance
from tests.properties.test_gradient import drawn


@pytest.mark.parametrize("model", [TSTE(), PowerTSTE(k=0.85, lapse=0.05), STE(lapse=0.02), CKL(mu=1)], ids=repr)
def test_the_covariance_is_the_inverse_of_ridge_plus_information(model):
    coordinates = np.random.default_rng(0).normal(size=(5, 2))
    rows = drawn(5, 25, 1)
    expected = posterior_covariance(model, coordinates, rows, 0.7)
    np.testing.assert_allclose(laplace(coordinates, rows, model, ridge=0.7).covariance, expected, rtol=1e-5, atol=1e-8)


def test_pending_queries_count_whichever_way_round_their_feet_are():
    coordinates = np.random.default_rng(0).normal(size=(6, 2))
    rows, pending = drawn(6, 20, 1), drawn(6, 4, 2)
    answered = laplace(coordinates, np.concatenate([rows, pending]))
    for either in (pending, pending[:, [0, 2, 1]]):
        np.testing.assert_allclose(laplace(coordinates, rows, pending=either).covariance, answered.covariance)


def test_the_block_form_inverts_each_targets_own_information():
    coordinates = np.random.default_rng(0).normal(size=(6, 3))
    rows = drawn(6, 40, 1)
    precision = np.linalg.inv(laplace(coordinates, rows, full=True).covariance)
    blocks = np.stack([np.linalg.inv(precision[3 * t : 3 * t + 3, 3 * t : 3 * t + 3]) for t in range(6)])
    posterior = laplace(coordinates, rows, full=False)
    assert not posterior.full
    np.testing.assert_allclose(posterior.covariance, blocks, rtol=1e-8)


def test_above_two_thousand_coordinates_the_block_form_is_chosen():
    posterior = laplace(np.random.default_rng(0).normal(size=(1001, 2)), drawn(1001, 50, 1))
    assert posterior.covariance.shape == posterior.target_covariance().shape == (1001, 2, 2)


def test_the_block_form_also_loses_its_rigid_motions():
    coordinates = centre(np.random.default_rng(0).normal(size=(6, 2)))
    blocks = laplace(coordinates, drawn(6, 40, 1), full=False)
    same = type(blocks)(coordinates, block_diag(*blocks.covariance), full=True, ridge=1.0)
    np.testing.assert_allclose(blocks.target_covariance(), same.target_covariance(), atol=1e-12)


def test_many_answers_about_a_target_make_it_sure():
    coordinates = np.random.default_rng(0).normal(size=(8, 2))
    rows = np.concatenate([drawn(8, 30, 1), np.repeat([[0, 1, 2], [0, 3, 4], [0, 5, 6]], 60, axis=0)])
    assert np.trace(laplace(coordinates, rows).target_covariance(), axis1=1, axis2=2).argmin() == 0


def test_without_a_ridge_there_is_no_posterior():
    with pytest.raises(SalmonError, match="ridge of 0"):
        laplace(np.zeros((4, 2)), [], ridge=0)
