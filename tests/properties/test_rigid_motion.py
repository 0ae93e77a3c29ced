"""Moving, turning or mirroring an embedding changes no loss, no answer and no shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.geometry import align, centre, principal_axes, rigid_motions, squared_distances
from salmon.learning import accuracy, laplace, log_loss
from salmon.learning.objective import objective_of
from salmon.noise import NOISE_MODELS, noise_model
from tests.properties.test_gradient import drawn

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 4)


def placed(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d))


def motion(d, seed):
    """A rotation, possibly with a mirror, and a shift."""
    generator = np.random.default_rng(seed)
    return np.linalg.qr(generator.normal(size=(d, d)))[0], generator.normal(size=d)


@settings(max_examples=25)
@given(seed=seeds, d=dimensions, name=st.sampled_from(sorted(NOISE_MODELS)))
def test_a_rigid_motion_changes_no_loss(seed, d, name):
    rows, coordinates = drawn(7, 30, seed), placed(7, d, seed)
    rotation, shift = motion(d, seed + 1)
    objective = objective_of(rows, 7, noise_model(name))
    moved = coordinates @ rotation + shift
    assert objective(moved)[0] == pytest.approx(objective(coordinates)[0], rel=1e-9)
    assert accuracy(moved, rows) == accuracy(coordinates, rows)
    assert log_loss(moved, rows) == pytest.approx(log_loss(coordinates, rows), rel=1e-9)


@settings(max_examples=25)
@given(seed=seeds, d=dimensions, stretch=st.floats(0.1, 10))
def test_alignment_undoes_a_rigid_motion_and_with_scale_a_stretch(seed, d, stretch):
    reference = placed(8, d, seed)
    rotation, shift = motion(d, seed + 1)
    stretched = align(stretch * reference @ rotation + shift, reference, scale=True)
    np.testing.assert_allclose(stretched.coordinates, reference, atol=1e-9)
    assert stretched.scale == pytest.approx(1 / stretch)
    assert (stretched.residual, stretched.distance) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-9))
    np.testing.assert_allclose(align(reference @ rotation + shift, reference).coordinates, reference, atol=1e-9)


@settings(max_examples=25)
@given(seed=seeds, d=dimensions)
def test_principal_axes_keep_every_distance_and_order_the_axes_by_width(seed, d):
    coordinates = placed(9, d, seed)
    turned = principal_axes(coordinates)
    np.testing.assert_allclose(squared_distances(turned), squared_distances(coordinates), atol=1e-9)
    assert (np.diff((turned**2).sum(axis=0)) <= 1e-9).all()
    np.testing.assert_allclose(turned.mean(axis=0), 0, atol=1e-12)


@settings(max_examples=25)
@given(seed=seeds, d=dimensions)
def test_the_log_odds_do_not_move_along_rigid_motions(seed, d):
    rows, coordinates = drawn(7, 30, seed), placed(7, d, seed)
    gradient = objective_of(rows, 7, noise_model("TSTE"))(coordinates)[1].ravel()
    basis = rigid_motions(coordinates)
    assert basis.shape == (7 * d, d * (d + 1) // 2)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
    np.testing.assert_allclose(basis.T @ gradient, 0, atol=1e-12)


@settings(max_examples=15)
@given(seed=seeds, d=st.integers(1, 3))
def test_the_uncertainty_of_targets_does_not_depend_on_the_prior_of_rigid_motions(seed, d):
    coordinates = centre(placed(7, d, seed))
    posterior = laplace(coordinates, drawn(7, 200, seed), ridge=0.1)
    basis = rigid_motions(coordinates)
    projector = np.eye(7 * d) - basis @ basis.T
    expected = projector @ posterior.covariance @ projector
    blocks = np.stack([expected[t * d : t * d + d, t * d : t * d + d] for t in range(7)])
    np.testing.assert_allclose(posterior.target_covariance(), blocks, atol=1e-9)


def test_alignment_of_different_shapes_is_refused():
    with pytest.raises(Exception, match="cannot be aligned"):
        align(placed(5, 2, 0), placed(6, 2, 0))
