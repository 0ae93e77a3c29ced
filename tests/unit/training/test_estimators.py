"""Classifier and regressor follow scikit-learn's conventions."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from salmon.errors import SalmonError
from salmon.training import CPSGD, QSGD, DaskClassifier, DaskRegressor, GeoDamp, VirtualGroup
from tests.unit.training.problems import regression


def layers(features=64, hidden=24, out=10):
    return torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, out))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:900]
    return X[order] / 16, y[order]


def classifier(**options):
    settings = {"optimizer__lr": 0.1, "optimizer__momentum": 0.9, "max_epochs": 8, "random_state": 0, **options}
    return DaskClassifier(layers, **settings)


def test_a_classifier_learns_digits_and_its_probabilities_sum_to_one(digits):
    X, y = digits
    fitted = classifier(batch_size=GeoDamp(16, delay=3, factor=2)).fit(X[:700], y[:700] * 10)
    assert fitted.score(X[700:], y[700:] * 10) > 0.85
    assert fitted.classes_.tolist() == list(range(0, 100, 10))
    assert fitted.predict_proba(X[:5]).sum(axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    assert fitted.n_features_in_ == 64


def test_a_regressor_predicts_in_the_shape_of_its_targets():
    X, y = (each.numpy() for each in regression())
    fitted = DaskRegressor(layers, module__features=6, module__out=1, optimizer__lr=0.02, max_epochs=60, random_state=1)
    assert fitted.fit(X, y.ravel()).predict(X).shape == (len(X),)
    assert fitted.score(X, y.ravel()) > 0.9
    assert fitted.fit(X, y).predict(X).shape == y.shape


def test_nested_parameters_can_be_read_set_and_cloned():
    made = classifier(batch_size=GeoDamp, batch_size__initial=16, batch_size__delay=5, module__hidden=12)
    copy = clone(made).set_params(batch_size__delay=60, optimizer__lr=0.5, max_epochs=2)
    assert made.get_params()["batch_size__delay"] == 5
    wanted = {"batch_size__delay": 60, "optimizer__lr": 0.5, "module__hidden": 12, "max_epochs": 2}
    assert wanted.items() <= copy.get_params().items()
    assert clone(copy).get_params() == copy.get_params()


def test_nested_parameters_replace_fields_of_a_value(digits):
    fitted = classifier(batch_size=GeoDamp(16, delay=60), batch_size__delay=1, batch_size__factor=2, max_epochs=3)
    assert {16, 32, 64} <= set(fitted.fit(*digits).history_["batch_size"])


def test_the_same_random_state_gives_the_same_fit_and_does_not_modify_the_module(digits):
    X, y = digits
    given = layers()
    before = given[0].weight.clone()
    first, second = (classifier(max_epochs=2).set_params(module=given).fit(X, y) for _ in range(2))
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    assert torch.equal(given[0].weight, before)


def test_partial_fit_continues_where_the_last_one_stopped(digits):
    X, y = digits
    whole = classifier(max_epochs=3).fit(X, y)
    grown = classifier(max_epochs=3)
    for _ in range(3):
        grown.partial_fit(X, y)
    assert np.allclose(grown.predict_proba(X), whole.predict_proba(X), atol=1e-4)
    assert grown.history_["epoch"][-1] == 3


def test_partial_fit_accepts_classes_that_it_has_not_seen(digits):
    X, y = digits
    few = y < 3
    fitted = classifier().partial_fit(X[few], y[few], classes=range(10)).partial_fit(X, y)
    assert fitted.classes_.tolist() == list(range(10))
    with pytest.raises(SalmonError, match="not one of"):
        classifier().partial_fit(X[few], y[few]).partial_fit(X, y)


def test_a_classifier_works_in_grid_search_and_cross_validation(digits):
    X, y = digits
    search = GridSearchCV(classifier(max_epochs=3), {"optimizer__lr": [1e-5, 0.1], "batch_size": [32]}, cv=2).fit(X, y)
    assert search.best_params_["optimizer__lr"] == 0.1
    assert cross_val_score(classifier(max_epochs=6), X, y, cv=2).min() > 0.7


def test_training_methods_can_be_given_as_parameters(digits):
    X, y = digits
    assert classifier(executor=VirtualGroup(4), averaging=CPSGD, averaging__period=4).fit(X, y).score(X, y) > 0.85
    fitted = classifier(executor=VirtualGroup(2), compression=QSGD(4)).fit(X, y)
    assert fitted.score(X, y) > 0.85
    assert fitted.history_.rows[-1]["workers"] == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nothing__lr": 1}, "nothing__lr"),
        ({"batch_size": GeoDamp(8), "batch_size__wrong": 1}, "batch_size cannot be built"),
        ({"module": layers(), "module__hidden": 3}, "module__hidden"),
    ],
)
def test_unknown_parameters_are_refused_by_name(digits, options, sentence):
    with pytest.raises(SalmonError, match=sentence):
        classifier().set_params(**options).fit(*digits)


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda X, y: classifier().fit(X, y[:-1]), "Give one target for each row"),
        (lambda X, y: classifier(max_epochs=1).fit(X, y).predict(X[:, :5]), "was trained on"),
        (lambda X, y: classifier().fit(X[0], y), "no examples"),
    ],
)
def test_data_of_the_wrong_shape_are_refused(digits, use, sentence):
    with pytest.raises(SalmonError, match=sentence):
        use(*digits)


@pytest.mark.parametrize("model", [classifier(), DaskRegressor(layers)], ids=["classifier", "regressor"])
def test_prediction_before_fitting_raises_not_fitted(model):
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 64)))


def test_tokens_stay_integers():
    def tokens():
        return torch.nn.Sequential(torch.nn.Embedding(4, 8), torch.nn.Flatten(), torch.nn.Linear(24, 2))

    X = np.random.default_rng(0).integers(0, 4, (200, 3))
    y = X[:, 0] > 1
    fitted = DaskClassifier(tokens, optimizer__lr=0.5, max_epochs=20, random_state=0).fit(X, y)
    assert fitted.score(X, y) > 0.95


def test_a_module_in_double_precision_gets_inputs_of_its_precision():
    X, y = (each.numpy() for each in regression())
    model = DaskRegressor(torch.nn.Linear(6, 1).double(), loss=lambda output, y: (output - y).square())
    assert model.set_params(optimizer__lr=0.02, max_epochs=40, random_state=0).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("averaging", [None, CPSGD(2)], ids=str)
def test_examples_of_weight_0_are_ignored(digits, averaging):
    X, y = digits
    wrong = np.arange(len(y)) % 2 == 0
    labels = np.where(wrong, (y + 1) % 10, y)
    model = classifier(executor=VirtualGroup(2), averaging=averaging)
    assert model.fit(X, labels, sample_weight=1.0 - wrong).score(X, y) > 0.85
    assert model.fit(X, labels, sample_weight=wrong).score(X, y) < 0.15


def test_a_weight_of_2_counts_as_an_example_given_twice():
    X, y = (each.numpy().astype(np.float64) for each in regression())
    settings = {"optimizer__lr": 0.02, "max_epochs": 30, "batch_size": 10**6, "random_state": 0}
    weighted = DaskRegressor(torch.nn.Linear(6, 1), **settings).fit(X, y, sample_weight=np.where(y[:, 0] > 0, 2, 1))
    twice = np.concatenate([np.arange(len(y)), np.flatnonzero(y[:, 0] > 0)])
    # The mean is over the number of examples, so the rate makes up for their number.
    settings["optimizer__lr"] *= len(twice) / len(y)
    again = DaskRegressor(torch.nn.Linear(6, 1), **settings)
    again.module.load_state_dict(weighted.module.state_dict())
    assert again.fit(X[twice], y[twice]).predict(X) == pytest.approx(weighted.predict(X), abs=1e-3)


@pytest.mark.parametrize("weights", [np.ones(3), -np.ones(900), np.full(900, np.nan)], ids=["few", "negative", "nan"])
def test_impossible_weights_are_refused(digits, weights):
    with pytest.raises(SalmonError, match="sample_weight"):
        classifier().fit(*digits, sample_weight=weights)


def test_early_stopping_keeps_the_best_module(digits):
    X, y = digits
    model = classifier(max_epochs=60, early_stopping=True, n_iter_no_change=3, optimizer__lr=0.2).fit(X, y)
    scores = model.validation_scores_
    assert 3 < len(scores) < 60
    assert model.history_["epoch"][-1] == len(scores)
    held = np.random.RandomState(0).permutation(len(X))[:90]
    assert model.score(X[held], y[held]) == max(scores)
    with pytest.raises(SalmonError, match="cannot hold out 0 of 900"):
        classifier(early_stopping=True, validation_fraction=0).fit(X, y)
