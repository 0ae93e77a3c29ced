"""Ellipses of positions hold about what they should."""

import numpy as np
import pytest
from scipy.stats import chi2

from salmon.geometry import align, rigid_motions, similarity_motions
from salmon.learning import fit, laplace
from salmon.learning import uncertainty as module
from salmon.learning.uncertainty import laplace_covariance, position_covariance, squared_ellipse_distances
from salmon.noise import SOE, STE, PowerTSTE
from salmon.simulate import ScaledNoiseModel, random_world, stream

N = 20


def answered(noise, per_target, seed=0):
    world = random_world(N, 2, 1, ScaledNoiseModel(noise, scale=2.0))
    return world, world.answer(world.random_queries(per_target * N, stream(seed, "queries")), stream(seed, "answers"))


def share_inside(noise, fitted_with, level, covariance_of):
    distances = []
    for seed in range(3):
        world, rows = answered(noise, 60, seed)
        found = fit(rows, N, noise=fitted_with, seed=seed)
        laid = align(found.coordinates, world.coordinates, scale=True)
        covariance = laid.scale**2 * laid.rotation.T @ covariance_of(found, rows) @ laid.rotation
        distances.append(squared_ellipse_distances(laid.coordinates - world.coordinates, covariance))
    return np.mean(np.concatenate(distances) < chi2.ppf(level, 2))


def calibrated(found, rows):
    return position_covariance(found.coordinates, rows, found.noise, ridge=found.ridge)


def test_ellipses_hold_about_68_percent_of_the_true_positions():
    noise = PowerTSTE(k=0.85, lapse=0.07)
    assert 0.5 < share_inside(noise, noise, 0.68, calibrated) < 0.86


def test_a_loss_that_is_no_probability_gets_ellipses_of_the_right_size_too():
    def alone(found, rows):
        return laplace_covariance(found.coordinates, rows, found.noise, ridge=found.ridge)

    by_halves = share_inside(STE(lapse=0.05), SOE(), 0.68, calibrated)
    assert abs(by_halves - 0.68) < abs(share_inside(STE(lapse=0.05), SOE(), 0.68, alone) - 0.68) + 0.1
    assert 0.5 < by_halves < 0.86


def test_all_ellipses_share_one_factor(monkeypatch):
    _, rows = answered(STE(), 30)
    found = fit(rows, N, noise="STE", lapse=0.05)
    ratio = calibrated(found, rows) / laplace_covariance(found.coordinates, rows, found.noise, ridge=found.ridge)
    np.testing.assert_allclose(ratio, ratio[0, 0, 0])
    monkeypatch.setattr(module, "_FEWEST", 10_000)
    np.testing.assert_array_equal(
        calibrated(found, rows), laplace_covariance(found.coordinates, rows, found.noise, ridge=found.ridge)
    )


def test_the_same_answers_and_seed_give_the_same_ellipses():
    _, rows = answered(STE(), 20)
    found = fit(rows, N, noise="STE", lapse=0.05)
    np.testing.assert_array_equal(calibrated(found, rows), calibrated(found, rows))


def test_a_target_that_nobody_was_asked_about_is_the_least_certain_and_stays_on_the_map():
    _, rows = answered(STE(), 60)
    rows = rows[(rows != 0).all(axis=1)]
    found = fit(rows, N, noise="STE", lapse=0.05)
    covariance = laplace_covariance(found.coordinates, rows, found.noise, ridge=found.ridge)
    spread = np.trace(covariance, axis1=1, axis2=2)
    assert spread.argmax() == 0
    assert spread[0] < 4 * (found.coordinates**2).sum(axis=1).mean()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_neither_shifts_nor_turns_nor_size_count_as_uncertainty(d):
    coordinates = np.random.default_rng(0).normal(size=(7, d))
    motions = similarity_motions(coordinates)
    np.testing.assert_allclose(motions.T @ motions, np.eye(motions.shape[1]), atol=1e-12)
    assert motions.shape[1] == rigid_motions(coordinates).shape[1] + 1
    rows = np.random.default_rng(1).permuted(np.tile(np.arange(7), (60, 1)), axis=1)[:, :3].astype(np.int32)
    posterior = laplace(coordinates, rows, ridge=0.5)
    projected = np.eye(7 * d) - motions @ motions.T
    expected = (projected @ posterior.covariance @ projected).reshape(7, d, 7, d)[np.arange(7), :, np.arange(7), :]
    np.testing.assert_allclose(posterior.target_covariance(size=True), expected, atol=1e-10)


def test_a_map_in_one_point_has_no_growth():
    assert similarity_motions(np.zeros((4, 2))).shape == rigid_motions(np.zeros((4, 2))).shape
