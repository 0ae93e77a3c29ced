"""The estimator, as its users and as scikit-learn use it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from salmon import OrdinalEmbedding
from salmon.errors import SalmonError, TripletError
from salmon.estimator import RECOMMENDED_NOISE, choose_noise, grouped_folds, noise_candidates, triple_groups
from salmon.estimator.cross_validation import held_out_split
from salmon.geometry import align
from salmon.learning import laplace
from salmon.noise import CKL, NOISE_MODELS, STE, TSTE, PowerTSTE
from salmon.simulate import Judge, ScaledNoiseModel, bayes_accuracy, random_world, stream

NEEDS_TRIPLETS = (
    "the check fits random real numbers or another number of columns; X must hold triplets of whole numbers"
)
WORDS = "the message is a sentence about triplets, not the wording that the check looks for"
#: Checks of scikit-learn that cannot apply to an estimator of triplets. What most of them look for is tested below
#: on triplets: pickling, unchanged state, independent rows, idempotent fits, empty and broken input.
CANNOT_APPLY = {
    "check_fit_score_takes_y": NEEDS_TRIPLETS,
    "check_estimators_overwrite_params": NEEDS_TRIPLETS,
    "check_dont_overwrite_parameters": NEEDS_TRIPLETS,
    "check_estimators_fit_returns_self": NEEDS_TRIPLETS,
    "check_readonly_memmap_input": NEEDS_TRIPLETS,
    "check_n_features_in_after_fitting": NEEDS_TRIPLETS,
    "check_estimators_dtypes": NEEDS_TRIPLETS,
    "check_dtype_object": NEEDS_TRIPLETS,
    "check_pipeline_consistency": NEEDS_TRIPLETS,
    "check_estimators_pickle": NEEDS_TRIPLETS,
    "check_f_contiguous_array_estimator": NEEDS_TRIPLETS,
    "check_methods_sample_order_invariance": NEEDS_TRIPLETS,
    "check_methods_subset_invariance": NEEDS_TRIPLETS,
    "check_dict_unchanged": NEEDS_TRIPLETS,
    "check_fit_idempotent": NEEDS_TRIPLETS,
    "check_fit_check_is_fitted": NEEDS_TRIPLETS,
    "check_n_features_in": NEEDS_TRIPLETS,
    "check_fit2d_predict1d": NEEDS_TRIPLETS,
    "check_positive_only_tag_during_fit": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_estimators_nan_inf": WORDS,
    "check_fit2d_1sample": WORDS,
    "check_fit2d_1feature": WORDS,
}


@parametrize_with_checks([OrdinalEmbedding()], expected_failed_checks=lambda _: CANNOT_APPLY)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks_pass_where_they_apply(estimator, check):
    check(estimator)


def test_thirty_random_answers_a_target_come_near_the_ceiling(eggs, fitted):
    assert bayes_accuracy(eggs) - 0.045 < Judge.of(eggs).accuracy(fitted.embedding_) < bayes_accuracy(eggs)


@pytest.mark.parametrize("noise", [*NOISE_MODELS, CKL(mu=1.0, lapse=0.1), None])
def test_every_noise_model_learns_from_answers(eggs, answers, noise):
    model = OrdinalEmbedding(noise=noise, random_state=1).fit(answers)
    assert Judge.of(eggs).accuracy(model.embedding_) > 0.74
    assert model.log_loss(answers) < np.log(2)


@pytest.mark.parametrize(
    ("noise", "lapse", "expected"),
    [
        ("TSTE", None, TSTE(lapse=0.05)),
        ("ste", 0.0, STE(lapse=0.0)),
        (CKL(mu=2.0, lapse=0.01), None, CKL(mu=2.0, lapse=0.01)),
        (CKL(mu=2.0), 0.2, CKL(mu=2.0, lapse=0.2)),
    ],
)
def test_the_lapse_follows_the_rule_of_the_docstring(answers, noise, lapse, expected):
    assert OrdinalEmbedding(noise=noise, lapse=lapse, max_iter=1).fit(answers).noise_ == expected


def test_without_a_noise_model_exponent_and_lapse_are_learned(answers, fitted):
    assert isinstance(fitted.noise_, PowerTSTE)
    assert fitted.noise_ != RECOMMENDED_NOISE
    assert fitted.ridge_ >= 0.03
    kept = OrdinalEmbedding(lapse=0.1, random_state=0).fit(answers).noise_
    assert kept.lapse == 0.1
    assert kept.k != RECOMMENDED_NOISE.k


def test_early_stopping_uses_the_recommended_noise_as_it_is(answers):
    assert OrdinalEmbedding(early_stopping=True, random_state=0).fit(answers).noise_ == RECOMMENDED_NOISE


def test_both_ways_of_writing_answers_fit_the_same_embedding(answers, fitted):
    left = stream(3, "sides").random(len(answers)) < 0.5
    X = np.where(left[:, None], answers, answers[:, [0, 2, 1]])
    for y in (left, left.astype(int), np.where(left, 1, -1), np.where(left, "left", "right"), left[:, None]):
        other = OrdinalEmbedding(random_state=0).fit(X, y)
        assert np.allclose(other.embedding_, fitted.embedding_)
        assert other.score(X, y) == fitted.score(answers)
        assert set(other.predict(X)) == set(np.asarray(y).ravel())
        assert np.mean(other.predict(X) == np.asarray(y).ravel()) == pytest.approx(other.score(X, y))


def test_chances_of_both_feet_add_up_to_one_and_decide_the_prediction(answers, fitted):
    chances = fitted.predict_proba(answers)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.array_equal(fitted.predict(answers), (chances[:, 1] > 0.5).astype(int))
    assert fitted.log_loss(answers) == pytest.approx(-np.log(chances[:, 1]).mean())


def test_a_row_is_predicted_alike_alone_and_among_others(answers, fitted):
    together = fitted.predict_proba(answers)
    assert np.allclose(together[:20], np.concatenate([fitted.predict_proba(row[None]) for row in answers[:20]]))
    assert np.allclose(fitted.predict_proba(answers[::-1]), together[::-1])


def test_score_is_an_accuracy_that_rises_with_better_fits(eggs, answers, fitted):
    fresh = eggs.answer(eggs.random_queries(4000, stream(9, "queries")), stream(9, "answers"))
    lazy = OrdinalEmbedding(random_state=0, max_iter=1, n_init=1).fit(answers[:40])
    assert lazy._coordinates.shape == (30, 2)
    assert fitted.score(fresh) > lazy.score(fresh)
    assert fitted.log_loss(fresh) < lazy.log_loss(fresh)
    assert "larger is better" in OrdinalEmbedding.score.__doc__


def test_what_users_do_with_the_embedding_changes_nothing(answers, fitted):
    before = fitted.score(answers)
    fitted.embedding_[:] = 0
    fitted.uncertainty_[:] = 0
    assert fitted.score(answers) == before
    assert fitted.uncertainty_.any()


def test_predicting_and_scoring_change_no_attribute(answers, fitted):
    before = pickle.dumps(vars(fitted))
    for use in (fitted.predict, fitted.score, fitted.log_loss):
        use(answers)
    assert pickle.dumps(vars(fitted)) == before


def test_a_fit_is_repeated_exactly_by_its_seed_and_survives_pickling(answers, fitted):
    again = OrdinalEmbedding(random_state=0).fit(answers)
    assert np.array_equal(again.embedding_, fitted.embedding_)
    assert np.array_equal(again.fit(answers).embedding_, fitted.embedding_)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).embedding_, fitted.embedding_)


def test_answers_in_any_memory_order_are_fitted_and_left_unchanged(answers, fitted):
    odd = np.asfortranarray(answers.astype(np.float64))
    odd.setflags(write=False)
    assert np.array_equal(OrdinalEmbedding(random_state=0).fit(odd).embedding_, fitted.embedding_)


def test_a_truth_drawn_from_the_same_seed_is_never_where_the_fit_starts():
    for seed in range(5):
        truth = np.random.default_rng(seed).standard_normal((12, 2))
        unborn = OrdinalEmbedding(random_state=seed, max_iter=1, n_restarts=2)
        start = 0.1 * np.random.default_rng(unborn._seed() + 1).standard_normal((12, 2))
        assert align(start, truth, scale=True).residual > 0.3


def test_more_answers_move_the_embedding_and_new_targets_join(eggs, answers):
    model = OrdinalEmbedding(random_state=0)
    for rows, n in ((answers[(answers < 25).all(axis=1)], 25), (answers, 30)):
        model.partial_fit(rows)
        assert model.embedding_.shape == (n, 2)
        assert model.log_loss(rows) < np.log(2)
    assert Judge.of(eggs).accuracy(model.embedding_) > 0.78


def test_a_new_fit_forgets_the_targets_of_the_one_before(answers):
    model = OrdinalEmbedding(random_state=0).fit(answers)
    few = answers[(answers < 12).all(axis=1)]
    assert model.fit(few).embedding_.shape == (12, 2)
    assert np.array_equal(model.embedding_, OrdinalEmbedding(random_state=0).fit(few).embedding_)


def test_partial_fits_end_where_one_fit_of_everything_ends(answers, fitted):
    parts = OrdinalEmbedding(random_state=0, n_targets=30, tolerance=1e-9)
    for part in np.array_split(answers, 3):
        parts.partial_fit(part)
    whole = OrdinalEmbedding(random_state=0, tolerance=1e-9).fit(answers)
    assert parts.objective_ == pytest.approx(whole.objective_, abs=2e-3)


def test_uncertainty_shrinks_with_answers_and_hides_no_free_rotation():
    world = random_world(12, 2, 1, ScaledNoiseModel(TSTE(lapse=0.05)))
    rows = world.answer(world.random_queries(2400, stream(1, "queries")), stream(1, "answers"))
    few, lot = (
        OrdinalEmbedding(random_state=0, n_targets=12, noise=TSTE(lapse=0.05), ridge=1.0).fit(given)
        for given in (rows[:300], rows)
    )
    assert lot.uncertainty_.shape == (12, 2, 2)
    assert np.trace(lot.uncertainty_.mean(axis=0)) < 0.5 * np.trace(few.uncertainty_.mean(axis=0))
    assert np.all(np.linalg.eigvalsh(lot.uncertainty_) > -1e-9)
    raw = laplace(lot.embedding_, rows, lot.noise_, ridge=1.0).covariance.reshape(12, 2, 12, 2)
    with_motions = np.mean([np.trace(raw[target, :, target]) for target in range(12)])
    assert np.trace(lot.uncertainty_.mean(axis=0)) < 0.5 * with_motions


def test_posterior_ellipses_hold_the_truth_as_often_as_they_say():
    inside = []
    for seed in range(8):
        world = random_world(12, 2, seed, ScaledNoiseModel(STE(lapse=0.02)))
        model = OrdinalEmbedding(noise=STE(lapse=0.02), ridge=1.0, random_state=seed).fit(
            world.answer(world.random_queries(1500, stream(seed, "queries")), stream(seed, "answers"))
        )
        gap = model.embedding_ - align(world.coordinates, model.embedding_).coordinates
        inside += list(np.einsum("ni,nij,nj->n", gap, np.linalg.inv(model.uncertainty_), gap) < 5.99)
    # Ellipses of 95 %; 96 targets, of which those of one world move together.
    assert 0.87 < np.mean(inside) < 1.0


def test_history_tells_every_iteration_and_the_objective_falls_within_a_start(fitted):
    assert fitted.n_iter_ == len(fitted.history_)
    for before, after in zip(fitted.history_, fitted.history_[1:], strict=False):
        assert after["start"] == before["start"] + 1 or after["objective"] <= before["objective"]


def test_early_stopping_returns_to_the_best_held_out_iteration(answers):
    model = OrdinalEmbedding(noise="STE", ridge=0.0, early_stopping=True, n_iter_no_change=5, random_state=0)
    model.fit(answers[:200])
    losses = [line["held_out_log_loss"] for line in model.history_]
    assert len(losses) - 1 - int(np.argmin(losses)) <= 5
    unstopped = OrdinalEmbedding(noise="STE", ridge=0.0, random_state=0).fit(answers[:200])
    assert model.log_loss(answers[200:]) < unstopped.log_loss(answers[200:])


def test_lapses_are_chosen_where_people_lapse_and_not_where_they_do_not():
    for lapse in (0.0, 0.15):
        world = random_world(15, 2, 4, ScaledNoiseModel(PowerTSTE(k=2.0, lapse=lapse), scale=2.0))
        model = OrdinalEmbedding(noise="TSTE", lapse="held-out", random_state=0).fit(
            world.answer(world.random_queries(3000, stream(4, "queries")), stream(4, "answers"))
        )
        assert abs(model.noise_.lapse - lapse) <= 0.051
        assert model.noise_losses_[model.noise_] <= model.noise_losses_[TSTE(lapse=0.0)]


def test_the_first_candidate_stays_when_answers_cannot_tell():
    world = random_world(8, 2, 4)
    rows = world.answer(world.random_queries(20, stream(4, "queries")), stream(4, "answers"))
    candidates = (RECOMMENDED_NOISE, PowerTSTE(k=0.85, lapse=0.0701))
    assert choose_noise(rows, 8, 2, candidates, ridge=0.03, seed=0)[0] == RECOMMENDED_NOISE


def test_candidates_begin_with_the_model_that_was_asked_for():
    assert noise_candidates(RECOMMENDED_NOISE)[0] == RECOMMENDED_NOISE
    assert noise_candidates(CKL(mu=3.0))[0] == CKL(mu=3.0)
    assert all(isinstance(model, CKL) and model.mu == 3.0 for model in noise_candidates(CKL(mu=3.0)))


triplets = st.lists(st.permutations(range(6)).map(lambda order: order[:3]), min_size=2, max_size=40)


@given(rows=triplets, seed=st.integers(0, 50))
def test_the_same_three_targets_are_never_on_both_sides(rows, seed):
    rows = np.array(rows, dtype=np.int32)
    rng = np.random.default_rng(seed)
    folds = grouped_folds(rows, 4, rng)
    if len(np.unique(triple_groups(rows))) < 2:
        with pytest.raises(TripletError, match="none can be held out"):
            held_out_split(rows, 0.3, rng)
        return
    held = held_out_split(rows, 0.3, rng)
    for group in np.unique(triple_groups(rows)):
        mask = triple_groups(rows) == group
        for same in (map(frozenset, rows[mask].tolist()), held[mask], folds[mask]):
            assert len(set(same)) == 1
    assert 0 < held.sum() < len(rows)


def test_targets_may_have_names(eggs, answers):
    names = np.array([f"egg {index:02d}" for index in range(30)])
    counted = OrdinalEmbedding(random_state=0, n_targets=30).fit(answers)
    named = OrdinalEmbedding(random_state=0).fit(names[answers])
    assert named.labels_.tolist() == names.tolist()
    np.testing.assert_allclose(named.embedding_, counted.embedding_)
    assert counted.labels_.tolist() == list(range(30))
    frame = pd.DataFrame(names[answers], columns=["head", "winner", "loser"])
    assert OrdinalEmbedding(random_state=0).fit(frame).score(frame) == named.score(names[answers].tolist())
    assert named.to_frame().loc["egg 07"].tolist() == named.embedding_[7].tolist()
    with pytest.raises(TripletError, match="no target a, b, c"):
        named.score([["a", "b", "c"]])
    with pytest.raises(TripletError, match="name their targets"):
        counted.score(names[answers])
    named.partial_fit([["egg 00", "egg 01", "a new one"]])
    assert named.labels_[-1] == "a new one"
    assert len(named.embedding_) == 31


def test_a_fit_begins_where_it_is_told_and_returns_the_positions(answers, fitted):
    again = OrdinalEmbedding(random_state=0, init=fitted.embedding_, n_init=0, n_targets=30)
    assert again.fit_transform(answers).shape == (30, 2)
    assert again.n_iter_ < fitted.n_iter_
    assert again.objective_ == pytest.approx(fitted.objective_, rel=1e-3)
    with pytest.raises(SalmonError, match="init has the shape"):
        OrdinalEmbedding(init=np.zeros((3, 2)), n_targets=30).fit(answers)


def test_the_earlier_name_of_n_init_works_with_a_warning(answers):
    with pytest.warns(FutureWarning, match="n_init"):
        OrdinalEmbedding(n_restarts=1, max_iter=3).fit(answers[:100])


def test_features_draw_the_positions_as_far_as_the_answers_support_them(eggs, answers):
    few, smoothness = answers[:150], eggs.coordinates
    known = OrdinalEmbedding(random_state=0).fit(few, features=smoothness)
    assert known.feature_weight_ >= 0.5
    assert known.score(answers[150:]) > OrdinalEmbedding(random_state=0).fit(few).score(answers[150:])
    useless = np.random.default_rng(3).normal(size=(30, 4))
    assert OrdinalEmbedding(random_state=0).fit(answers, features=useless).feature_weight_ == 0
    assert known.uncertainty_.shape == (30, 2, 2)
    assert OrdinalEmbedding(random_state=0).fit(few).feature_weight_ is None


def test_features_that_cannot_be_used_are_refused(eggs, answers):
    with pytest.raises(SalmonError, match="do not describe 30 targets"):
        OrdinalEmbedding(random_state=0).fit(answers, features=np.eye(29))
    with pytest.raises(SalmonError, match="fit in batches"):
        OrdinalEmbedding(random_state=0, batch_size=64).fit(answers, features=eggs.coordinates)
    with pytest.raises(SalmonError, match="features are those of 30"):
        OrdinalEmbedding(random_state=0).fit(answers, features=eggs.coordinates).partial_fit([[30, 1, 2]])
