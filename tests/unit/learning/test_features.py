"""Features of the targets are a prior: followed as far as the answers support them, and not
at all where they say nothing.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.features import features_of
from salmon.errors import SalmonError
from salmon.learning import fit, laplace
from salmon.learning.features import (
    WEIGHTS,
    Features,
    fit_with_features,
    learn_prior,
    log_evidence,
    search_precision,
    shown_precision,
)
from salmon.learning.objective import objective_of
from salmon.learning.posterior import information
from salmon.learning.uncertainty import position_covariance
from salmon.noise import TSTE
from salmon.samplers.adaptive import Adaptive
from salmon.simulate import Judge, random_world, stream

N = 60
NOISE = TSTE(lapse=0.05)


@pytest.fixture(scope="module")
def world():
    return random_world(N, 2, 3)


@pytest.fixture(scope="module")
def rows(world):
    return world.answer(world.random_queries(8 * N, stream(3, "queries")), stream(3, "answers"))


def known(world, share):
    return Features.of(features_of(world.coordinates, share, 5))


def dense(features, weight, ridge):
    """The prior's covariance, written down as in the module's docstring."""
    directions = features.directions.astype(np.float64)
    kernel = (directions * features.strengths) @ directions.T
    return ((1 - weight) * np.eye(len(kernel)) + weight * kernel) / ridge


def test_the_kernel_is_that_of_the_standardised_columns():
    table = np.random.default_rng(0).normal(size=(9, 4)) * [1, 100, 1e-3, 1] + 7
    table[:, 3] = 2.5  # says nothing
    features = Features.of(table)
    columns = (table[:, :3] - table[:, :3].mean(axis=0)) / table[:, :3].std(axis=0)
    np.testing.assert_allclose(dense(features, 1.0, 1.0), columns @ columns.T / 3, atol=1e-5)
    assert np.trace(dense(features, 1.0, 1.0)) == pytest.approx(9, rel=1e-5)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_precision_is_the_inverse_of_the_covariance(world, weight):
    features = known(world, 0.5)
    prior = search_precision(features, weight, 2.0)
    np.testing.assert_allclose(prior.matrix @ dense(features, weight, 2.0), np.eye(N), atol=1e-5)
    x = np.random.default_rng(1).normal(size=(N, 2))
    np.testing.assert_allclose(prior.times(x), prior.matrix @ x, atol=1e-9)
    np.testing.assert_allclose(prior.diagonal, np.diag(prior.matrix))


def test_without_weight_features_change_nothing(world, rows):
    features = known(world, 0.5)
    plain = fit(rows, N, 2, noise=NOISE, ridge=1.0)
    with_features = fit(rows, N, 2, noise=NOISE, ridge=1.0, precision=search_precision(features, 0.0, 1.0))
    np.testing.assert_allclose(with_features.coordinates, plain.coordinates, atol=1e-3)
    np.testing.assert_allclose(shown_precision(features, 0.0, 0.03).matrix, 0.03 * np.eye(N), atol=1e-12)


def test_the_gradient_of_the_objective_is_that_of_its_value(world, rows):
    objective = objective_of(rows, N, NOISE, precision=search_precision(known(world, 0.5), 0.5, 1.0))
    generator = np.random.default_rng(2)
    x, step = generator.normal(size=(2, N, 2))
    rise = (objective(x + 1e-5 * step)[0] - objective(x - 1e-5 * step)[0]) / 2e-5
    assert rise == pytest.approx(float(np.vdot(objective(x)[1], step)), rel=1e-6)


@pytest.mark.parametrize("full", [True, False])
def test_the_posterior_has_the_precision_of_the_prior(world, rows, full):
    prior = search_precision(known(world, 0.5), 0.5, 1.0)
    x = np.random.default_rng(4).normal(size=(N, 2))
    found = laplace(x, rows, NOISE, precision=prior, full=full)
    total = information(x, rows, NOISE) + np.kron(prior.matrix, np.eye(2))
    if full:
        np.testing.assert_allclose(found.covariance @ total, np.eye(2 * N), atol=1e-6)
    else:
        own = total.reshape(N, 2, N, 2)[np.arange(N), :, np.arange(N), :]
        np.testing.assert_allclose(found.covariance @ own, np.tile(np.eye(2), (N, 1, 1)), atol=1e-6)


def test_the_evidence_is_nearly_that_of_the_whole_matrix(world, rows):
    features = known(world, 0.5)
    start = fit_with_features(rows, features).fit.coordinates

    def both(weight):
        prior = search_precision(features, weight, 1.0)
        found = fit(rows, N, 2, noise=NOISE, precision=prior, start=start, n_starts=0)
        x = found.coordinates
        whole = -found.loss * len(rows) - np.vdot(x, prior.times(x)) / 2 + np.linalg.slogdet(prior.matrix)[1]
        total = information(x, rows, NOISE) + np.kron(prior.matrix, np.eye(2))
        return log_evidence(found, rows, prior), whole - np.linalg.slogdet(total)[1] / 2

    cheap, whole = np.array([both(weight) for weight in (0.0, 0.3, 0.7)]).T
    np.testing.assert_allclose(np.diff(cheap), np.diff(whole), atol=3)
    assert cheap.argmax() == whole.argmax()


def test_useful_features_get_weight_and_useless_ones_none(world, rows):
    assert fit_with_features(rows, known(world, 0.5)).weight >= 0.2
    assert fit_with_features(rows, known(world, 0.0)).weight == 0.0


def test_useful_features_make_few_answers_go_further(world):
    few = world.answer(world.random_queries(5 * N, stream(4, "queries")), stream(4, "answers"))
    judge = Judge.of(world)
    prior = learn_prior(few, known(world, 0.7), ridge=0.03)
    with_features = fit(few, N, 2, noise=NOISE, precision=prior.precision, start=prior.start)
    assert judge.accuracy(with_features.coordinates) > 0.02 + judge.accuracy(fit(few, N, 2, noise=NOISE).coordinates)


def test_a_weight_that_was_learned_before_is_kept_where_it_is_still_right(world, rows):
    features = known(world, 0.5)
    first = fit_with_features(rows, features)
    again = fit_with_features(rows, features, weight=first.weight, start=first.fit.coordinates)
    assert again.weight == first.weight


def test_ellipses_are_smaller_where_features_help(world, rows):
    prior = learn_prior(rows, known(world, 0.9), ridge=0.03)
    found = fit(rows, N, 2, noise=NOISE, precision=prior.precision, start=prior.start)
    spread = position_covariance(found.coordinates, rows, NOISE, ridge=0.03, precision=found.precision)
    assert (np.linalg.eigvalsh(spread) > 0).all()


def test_adaptive_learns_the_weight_and_searches_with_it(world, rows):
    sampler = Adaptive()
    plain = sampler.refit(sampler.start(N, 0), rows)
    state = sampler.refit(replace(sampler.start(N, 0), features=known(world, 0.7)), rows)
    assert plain.feature_weight is None
    assert state.feature_weight is not None
    assert state.feature_weight > 0
    nothing = np.zeros((0, 3), dtype=np.int32)
    asked, without = (
        sampler.search(state, rows, nothing, 20),
        sampler.search(replace(state, features=None), rows, nothing, 20),
    )
    assert (asked.queries != without.queries).any()
    assert sampler.report(state, rows).precision is not None
    assert sampler.report(plain, rows).precision is None


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (np.zeros((4, 0)), "shape"),
        (np.zeros((2, 2, 2)), "shape"),
        ([[1.0, np.nan], [2, 3], [4, 5]], "Feature 1 of target 0 is nan"),
        (np.ones((5, 2)), "No feature differs"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(table, sentence):
    with pytest.raises(SalmonError, match=sentence):
        Features.of(table)


def test_a_table_of_other_targets_is_refused():
    with pytest.raises(SalmonError, match="do not describe 4 targets"):
        Features.of(np.eye(3), 4)
