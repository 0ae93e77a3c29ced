"""The estimator among scikit-learn's tools, and its sentences for what cannot be fitted."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from salmon import OrdinalEmbedding
from salmon.errors import SalmonError, TripletError
from salmon.estimator import triple_groups
from salmon.noise import CKL
from salmon.parallel import SerialExecutor
from salmon.simulate import stream


def test_clones_are_equal_and_share_a_cluster_instead_of_copying_it():
    class Uncopyable(SerialExecutor):
        def __deepcopy__(self, memo):
            raise AssertionError("a cluster was copied")

    executor = Uncopyable()
    model = OrdinalEmbedding(3, noise=CKL(mu=2.0), lapse=0.1, executor=executor)
    copy = clone(model)
    assert copy.executor is executor
    assert copy.get_params() == model.get_params()


def test_cross_validation_and_grid_search_run_on_triplets(answers):
    model = OrdinalEmbedding(n_targets=30, random_state=0)
    scores = cross_val_score(model, answers, cv=GroupKFold(4), groups=triple_groups(answers))
    assert np.all((scores > 0.7) & (scores < 0.9))
    search = GridSearchCV(model, {"n_components": [1, 2], "noise": [None, "STE"]}, cv=3).fit(answers)
    assert (search.best_params_["noise"], len(search.best_estimator_.embedding_)) == (None, 30)


def test_grid_search_can_judge_by_scikit_learns_own_scorers(answers):
    left = stream(3, "sides").random(len(answers)) < 0.5
    X = np.where(left[:, None], answers, answers[:, [0, 2, 1]])
    for scoring in ("accuracy", "neg_log_loss"):
        scores = cross_val_score(OrdinalEmbedding(n_targets=30), X, left, cv=3, scoring=scoring, error_score="raise")
        assert np.isfinite(scores).all()


def test_a_pipeline_may_end_in_an_embedding(answers, fitted):
    assert make_pipeline(OrdinalEmbedding(random_state=0)).fit(answers).score(answers) == fitted.score(answers)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        ([[0, 1, 2], [3, 3, 1]], r"Row 1 \[3, 3, 1\]"),
        ([[0, 1, 2], [3, 1, 3]], r"Row 1 \[3, 1, 3\]"),
        ([[0, 1, 1]], r"2 targets cannot|same foot"),
        ([[0, 1, 2], [0, 2, 2]], r"Row 1 \[0, 2, 2\]"),
        ([[0, 1, 2], [0, -2, 1]], r"Row 1 \[0, -2, 1\]"),
        ([[0, 1, 2.5]], r"Row 0 \[0.0, 1.0, 2.5\]"),
        ([[0, 1, 2], [0, np.nan, 1]], r"Row 1 .*nan"),
        ([[0, 1, 2], [0, np.inf, 1]], r"Row 1 .*inf"),
        ([[0, 0, 0]], "1 target cannot make a triplet"),
        ([[0, 1]], r"shape \(1, 2\)"),
        ([0, 1, 2], r"shape \(3,\)"),
        (np.zeros((0, 3)), "no answers"),
        ([["a", "b", None]], "whole numbers"),
    ],
)
def test_answers_that_cannot_be_fitted_are_a_value_error_with_row_and_value(X, sentence):
    with pytest.raises(ValueError, match=sentence):
        OrdinalEmbedding().fit(X)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([1, 2], r"Row 1 \(.*2.*\) of y"),
        ([1, np.nan], "Row 1"),
        (["left", "up"], "Row 1"),
        ([1], "2 rows of X and y has shape"),
        ([None, None], "Row 0 .*, 1"),
    ],
)
def test_a_y_that_does_not_say_who_won_is_named_by_row(y, sentence):
    with pytest.raises(TripletError, match=sentence):
        OrdinalEmbedding().fit([[0, 1, 2], [1, 2, 0]], y)


def test_a_target_that_was_never_fitted_is_named_with_what_to_do(fitted):
    with pytest.raises(TripletError, match=r"\[0, 1, 30\].*n_targets"):
        fitted.score([[0, 1, 30]])


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.predict([[0, 1, 2]]),
        lambda model: model.predict_proba([[0, 1, 2]]),
        lambda model: model.score([[0, 1, 2]]),
        lambda model: model.log_loss([[0, 1, 2]]),
        lambda model: model.embedding_,
    ],
    ids=["predict", "predict_proba", "score", "log_loss", "embedding_"],
)
def test_an_unfitted_estimator_says_so(use):
    with pytest.raises(NotFittedError):
        use(OrdinalEmbedding())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"noise": "TTSTE"}, "no noise model 'TTSTE'"),
        ({"lapse": "some"}, "no lapse 'some'"),
        ({"lapse": 0.7}, "0.7"),
        ({"n_components": 0}, "0 dimensions"),
        ({"ridge": -1.0}, "ridge is -1.0"),
        ({"validation_share": 1.0}, "validation_share of 1.0"),
        ({"n_targets": 2}, "2 targets"),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(SalmonError, match=sentence):
        OrdinalEmbedding(**options).fit([[0, 1, 2], [1, 2, 0]])
