"""The noise that answers were given with is found beside the coordinates."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from salmon.learning import accuracy, fit
from salmon.learning import noise_learning as learning
from salmon.learning.noise_learning import RECOMMENDED_NOISE, fit_with_learned_noise, learn_noise, ridge_for
from salmon.noise import CKL, STE, PowerTSTE
from salmon.simulate import ScaledNoiseModel, random_world, stream


def answers(noise, count, seed=3, n=15, d=2, scale=1.0):
    world = random_world(n, d, seed, ScaledNoiseModel(noise, scale=scale))
    return world.answer(world.random_queries(count, stream(seed, "queries")), stream(seed, "answers"))


def test_many_answers_tell_a_light_tail_from_a_heavy_one():
    light = fit_with_learned_noise(answers(STE(), 20_000), 15).noise
    heavy = fit_with_learned_noise(answers(CKL(mu=0.2), 20_000), 15).noise
    assert light.k > 3
    assert heavy.k < 1.4


def test_many_answers_tell_how_many_were_given_without_looking():
    few, many = (
        fit_with_learned_noise(answers(PowerTSTE(k=2.0, lapse=lapse), 20_000, scale=2.0), 15).noise
        for lapse in (0.01, 0.15)
    )
    assert few.lapse < 0.04
    assert many.lapse > 0.08


def test_few_answers_leave_the_recommended_noise_nearly_alone():
    model = fit_with_learned_noise(answers(STE(), 150), 15).noise
    assert abs(np.log(model.k / RECOMMENDED_NOISE.k)) < 0.4
    assert abs(model.lapse - RECOMMENDED_NOISE.lapse) < 0.01


@pytest.mark.parametrize("lapse", [0.0, 0.1])
def test_a_lapse_that_is_given_is_kept(lapse):
    assert fit_with_learned_noise(answers(STE(), 3000), 15, lapse=lapse).noise.lapse == lapse


def test_answers_of_a_light_tail_are_predicted_better_than_with_the_fixed_model():
    rows, fresh = answers(STE(), 6000), answers(STE(), 26_000)[6000:]
    learned, fixed = fit_with_learned_noise(rows, 15), fit(rows, 15, noise=RECOMMENDED_NOISE)
    assert accuracy(learned.coordinates, fresh) > accuracy(fixed.coordinates, fresh)


def test_the_gradient_is_that_of_the_objective(monkeypatch):
    kept = {}

    def keep(objective, start, **options):
        kept.update(objective=objective, start=start)
        return learning_minimize(objective, start, **options)

    learning_minimize = learning.minimize
    monkeypatch.setattr(learning, "minimize", keep)
    rows = answers(STE(), 400)
    learn_noise(fit(rows, 15).coordinates, rows, RECOMMENDED_NOISE, ridge=0.03)
    for at in (kept["start"], kept["start"] + 0.3):
        numeric = approx_fprime(at, lambda where: kept["objective"](where)[0], 1e-7)
        np.testing.assert_allclose(kept["objective"](at)[1], numeric, atol=1e-5)


def test_the_ridge_grows_with_the_exponent_and_never_falls():
    assert ridge_for(PowerTSTE(k=0.8)) == ridge_for(RECOMMENDED_NOISE) == 0.03
    assert ridge_for(PowerTSTE(k=1.7), 0.1) == pytest.approx(0.8)


def test_learning_stops_when_it_is_told_to():
    rows = answers(STE(), 3000)
    assert fit_with_learned_noise(rows, 15, stop=lambda: True).noise == RECOMMENDED_NOISE


def test_evaluations_stay_near_those_of_one_fit():
    rows = answers(STE(), 3000)
    assert fit_with_learned_noise(rows, 15).evaluations < 1.5 * fit(rows, 15, noise=RECOMMENDED_NOISE).evaluations
