"""What every noise model promises, tried on each of the table and on one that a user wrote."""

from dataclasses import dataclass

import numpy as np
import pytest

from salmon.errors import SalmonError
from salmon.learning import accuracy, fit
from salmon.noise import CKL, NOISE_MODELS, STE, TSTE, NoiseModel, PowerTSTE, noise_model
from tests.oracles import finite_difference


@dataclass(frozen=True)
class CityBlock(NoiseModel):
    """A user's own model: remoteness grows with the fourth root of the squared distance, softened at 0."""

    def remoteness(self, d2):
        return (d2 + 0.01) ** 0.25

    def remoteness_slope(self, d2):
        return 0.25 * (d2 + 0.01) ** -0.75


MODELS = [model() for model in NOISE_MODELS.values()]
MODELS += [TSTE(alpha=3.0), CKL(mu=1.0), PowerTSTE(k=0.85, lapse=0.07), STE(lapse=0.05), CityBlock()]
every_model = pytest.mark.parametrize("model", MODELS, ids=repr)
DISTANCES = np.array([0.0, 1e-30, 1e-12, 1e-6, 0.01, 0.5, 1.0, 3.0, 40.0, 1e4, 1e8, 1e12])


@every_model
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_probability_loss_and_slope_are_finite_from_distance_0_to_1e12(model, precision):
    d2_winner, d2_loser = (grid.astype(precision) for grid in np.meshgrid(DISTANCES, DISTANCES))
    chance = model.probability(d2_winner, d2_loser)
    loss, slope = model.loss_and_slope(model.remoteness(d2_loser) - model.remoteness(d2_winner))
    for values in (chance, loss, slope, model.remoteness_slope(DISTANCES.astype(precision))):
        assert np.isfinite(values).all()
        assert values.dtype == precision
    assert ((model.lapse - 1e-7 <= chance) & (chance <= 1 - model.lapse + 1e-7)).all()
    assert (loss >= 0).all()
    assert (slope <= 0).all()


@every_model
def test_the_feet_share_one_whole(model):
    d2_winner, d2_loser = np.meshgrid(DISTANCES, DISTANCES)
    np.testing.assert_allclose(
        model.probability(d2_winner, d2_loser) + model.probability(d2_loser, d2_winner), 1, atol=1e-14
    )


@every_model
def test_the_slope_of_the_remoteness_is_its_derivative(model):
    places = np.array([0.003, 0.1, 1.0, 7.0])
    measured = finite_difference(lambda d2: float(model.remoteness(d2).sum()), places)
    np.testing.assert_allclose(model.remoteness_slope(places), measured, rtol=1e-5)


@every_model
def test_the_slope_of_the_loss_is_its_derivative(model):
    log_odds = np.array([-30.0, -3.0, -0.4, 0.2, 0.9, 5.0])
    measured = finite_difference(lambda f: float(model.loss(f).sum()), log_odds)
    np.testing.assert_allclose(model.loss_and_slope(log_odds)[1], measured, atol=1e-6)


@every_model
def test_a_fit_with_it_recovers_a_line_of_targets(model):
    generator = np.random.default_rng(3)
    line = np.arange(12.0)
    rows = []
    while len(rows) < 500:
        head, first, second = generator.choice(12, 3, replace=False)
        near, far = sorted((first, second), key=lambda foot: abs(line[foot] - line[head]))
        if abs(line[near] - line[head]) < abs(line[far] - line[head]):
            rows.append((head, near, far))
    assert accuracy(fit(rows[:400], 12, 2, noise=model).coordinates, rows[400:]) > 0.85


D2_WINNER, D2_LOSER = np.array([0.3, 2.0]), np.array([1.0, 0.1])


def test_t_ste_with_one_degree_of_freedom_is_ckl_on_coordinates_stretched_by_the_root_of_mu():
    np.testing.assert_allclose(
        CKL(mu=0.05).probability(0.05 * D2_WINNER, 0.05 * D2_LOSER), TSTE().probability(D2_WINNER, D2_LOSER)
    )


def test_t_ste_is_the_power_model_on_coordinates_divided_by_the_root_of_alpha():
    np.testing.assert_allclose(
        TSTE(alpha=4.0).probability(D2_WINNER, D2_LOSER),
        PowerTSTE(k=2.5).probability(D2_WINNER / 4, D2_LOSER / 4),
    )


def test_the_old_default_of_ckl_is_kept():
    assert CKL().mu == 0.05


@pytest.mark.parametrize(
    ("name", "options", "model"),
    [
        ("t-ste", {"alpha": 2.0}, TSTE(alpha=2.0)),
        ("power_tste", {"lapse": 0.1}, PowerTSTE(lapse=0.1)),
        (CKL(mu=1), {"lapse": 0.05}, CKL(lapse=0.05, mu=1)),
    ],
)
def test_a_name_in_any_spelling_finds_its_model(name, options, model):
    assert noise_model(name, **options) == model


def test_logistic_tells_its_slope_from_the_scale_of_the_coordinates():
    coordinates = np.random.default_rng(0).normal(size=(9, 2)) * 3
    d2 = ((coordinates[0] - coordinates[1:]) ** 2).sum(axis=1)
    model = noise_model("Logistic")
    small, learned = model.learned(coordinates)
    small_d2 = ((small[0] - small[1:]) ** 2).sum(axis=1)
    assert (small**2).sum(axis=1).mean() == pytest.approx(1)
    np.testing.assert_allclose(learned.probability(small_d2, small_d2[::-1]), model.probability(d2, d2[::-1]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: noise_model("TSTEE"), "no noise model 'TSTEE'"),
        (lambda: noise_model("STE", alpha=1), "STE has no parameter alpha"),
        (lambda: TSTE(alpha=0), "alpha is 0"),
        (lambda: CKL(mu=-1), "mu is -1"),
        (lambda: PowerTSTE(k=float("nan")), "k is nan"),
        (lambda: STE(lapse=0.5), "lapse of 0.5"),
    ],
)
def test_a_wrong_name_or_parameter_is_refused_in_a_sentence(make, words):
    with pytest.raises(SalmonError, match=words):
        make()
