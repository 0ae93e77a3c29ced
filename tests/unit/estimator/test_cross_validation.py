"""Held-out accuracy, noise ceiling, choices and the map."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.answer_files.answer_table import read_answers
from salmon.errors import TripletError
from salmon.estimator import RECOMMENDED_NOISE, cross_validation, triple_groups
from salmon.estimator.cross_validation import (
    choose_dimension,
    choose_noise_by_accuracy,
    corrected_t_test,
    cross_validate,
    grouped_interval,
    holm,
    noise_ceiling,
)
from salmon.estimator.report import FitOptions, analyse
from salmon.noise import STE, TSTE
from salmon.simulate import DistanceLogistic, ScaledNoiseModel, bayes_accuracy, random_world, stream

pytestmark = pytest.mark.slow


def table(*parts):
    """The table of (sampler, triplets) pairs."""
    rows = [f"{h},{w},{x},{sampler}\n" for sampler, triplets in parts for h, w, x in triplets.tolist()]
    return read_answers("head,winner,loser,sampler\n" + "".join(rows))


@pytest.fixture(scope="module")
def answers(eggs):
    return eggs.answer(eggs.random_queries(1500, stream(0, "queries")), stream(0, "answers"))


@pytest.fixture(scope="module")
def report(answers):
    return analyse(table(("Random", answers)), FitOptions())


def test_held_out_accuracy_foretells_the_accuracy_on_fresh_answers(eggs, answers):
    found = cross_validate(answers, np.ones(len(answers), dtype=bool), 30, 2, RECOMMENDED_NOISE)
    assert found.accuracy.low < 0.82 < found.accuracy.high
    assert found.accuracy.value < bayes_accuracy(eggs) + 0.02
    assert 0.35 < found.log_loss < np.log(2)


def test_memorised_repeats_are_not_counted_as_foresight():
    # Coin throws, each query asked ten times with the same outcome: nothing can be foretold about other targets.
    rng = stream(0, "queries")
    queries = random_world(12, 2, 0).random_queries(60, rng)
    coin = np.where(rng.random(60)[:, None] < 0.5, queries, queries[:, [0, 2, 1]])
    rows = np.repeat(coin, 10, axis=0).astype(np.int32)
    assert cross_validate(rows, np.ones(len(rows), dtype=bool), 12, 2, TSTE(lapse=0.05), ridge=0.3).accuracy.low < 0.55
    assert np.mean([h in {tuple(row) for row in rows.tolist()} for h in map(tuple, coin.tolist())]) == 1


def test_only_random_answers_are_judged_and_their_groups_are_never_fitted(monkeypatch, answers):
    random = stream(1, "folds").random(len(answers)) < 0.3
    seen = []

    def watched(triplets, *arguments, **options):
        seen.append(set(map(frozenset, triplets.tolist())))
        return fit(triplets, *arguments, **options)

    fit = cross_validation.fit
    monkeypatch.setattr(cross_validation, "fit", watched)
    found = cross_validate(answers, random, 30, 2, TSTE(), folds=4)
    assert found.hits.shape == (1, random.sum())
    for fold, fitted in enumerate(seen):
        held = set(map(frozenset, answers[random][found.folds[0] == fold].tolist()))
        assert held
        assert not held & fitted


def test_nothing_is_held_out_where_nothing_was_random(answers):
    assert cross_validate(answers, np.zeros(len(answers), dtype=bool), 30, 2, TSTE()) is None


@given(
    hits=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=40),
    size=st.integers(1, 5),
)
def test_an_interval_holds_its_share_and_stays_within_0_and_1(hits, size):
    interval = grouped_interval(np.array(hits), np.arange(len(hits)) // size)
    assert 0 <= interval.low <= interval.value + 1e-9
    assert interval.value <= interval.high + 1e-9 <= 1 + 1e-9


def test_answers_that_repeat_each_other_widen_the_interval():
    hits = np.repeat((np.random.default_rng(0).random(200) < 0.8).astype(float), 5)
    alone = grouped_interval(hits, np.arange(1000))
    grouped = grouped_interval(hits, np.arange(1000) // 5)
    assert (grouped.high - grouped.low) / (alone.high - alone.low) == pytest.approx(np.sqrt(5), rel=0.05)


def test_intervals_hold_the_true_share_nineteen_times_in_twenty():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        chances = rng.choice([0.6, 1.0], size=150)
        interval = grouped_interval((rng.random(600) < np.repeat(chances, 4)).astype(float), np.arange(600) // 4)
        held += interval.low < 0.8 < interval.high
    assert 0.91 < held / 400 < 0.99


def test_the_noise_ceiling_is_above_what_the_truth_reaches_and_close_to_it(eggs):
    queries = eggs.random_queries(1500, stream(2, "queries"))
    chance = eggs.first_wins(queries)
    best = np.maximum(chance, 1 - chance).mean()
    found = noise_ceiling(eggs.answer(np.repeat(queries, 3, axis=0), stream(2, "answers")))
    assert found.queries <= 1500
    assert found.agreement.low < np.mean(chance**2 + (1 - chance) ** 2) < found.agreement.high
    assert best - 0.005 < found.ceiling.value < best + 0.06


def test_two_feet_swapped_are_the_same_query_and_another_head_is_not():
    found = noise_ceiling(np.array([[0, 1, 2], [0, 2, 1], [3, 1, 2], [3, 1, 2], [1, 0, 2]]))
    assert (found.queries, found.answers, found.agreement.value) == (2, 4, 0.5)


def test_without_repeats_there_is_no_ceiling():
    assert noise_ceiling(np.array([[0, 1, 2], [1, 0, 2], [1, 0, 2]])) is None


def results(world, dimensions):
    rows = world.answer(world.random_queries(3000, stream(3, "queries")), stream(3, "answers"))
    random = np.ones(len(rows), dtype=bool)
    return {d: cross_validate(rows, random, world.n, d, TSTE(lapse=0.03)) for d in dimensions}


def test_the_dimension_of_the_truth_is_chosen():
    choice = choose_dimension(results(random_world(15, 2, 2, DistanceLogistic(slope=4.0)), (1, 2, 3)))
    assert choice.chosen == 2
    assert choice.accuracy[1].value < choice.accuracy[2].value


def test_one_dimension_is_enough_for_the_eggs(eggs):
    choice = choose_dimension(results(eggs, (1, 2)))
    assert choice.chosen == 1
    assert "not significantly better" in choice.reason


def test_the_noise_model_that_answers_follow_is_chosen():
    world = random_world(12, 2, 6, ScaledNoiseModel(STE(lapse=0.02), scale=1.0))
    rows = world.answer(world.random_queries(4000, stream(6, "queries")), stream(6, "answers"))
    random = np.ones(len(rows), dtype=bool)
    judged = {type(noise).__name__: cross_validate(rows, random, 12, 2, noise) for noise in (TSTE(), STE(lapse=0.02))}
    assert choose_noise_by_accuracy(judged).chosen == "STE"


def test_the_corrected_test_is_more_careful_than_the_plain_one():
    difference = np.array([0.02, 0.01, 0.03, 0.0, 0.02, 0.01, 0.03, 0.01, 0.02, 0.02])
    assert corrected_t_test(difference, 900, 100) > corrected_t_test(difference, 1e9, 100)
    assert corrected_t_test(-difference, 900, 100) > 0.5
    assert corrected_t_test(np.zeros(10), 900, 100) == 1.0


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.01, 0.04, 0.02], [True, True, True]),
        ([0.03, 0.04, 0.02], [False, False, False]),
        ([0.001, 0.9, 0.03], [True, False, False]),
    ],
)
def test_holm_stops_at_the_first_p_value_that_is_too_large(p_values, rejected):
    assert holm(p_values) == rejected


def test_a_report_tells_everything_a_paper_needs(report, answers):
    record = report.as_json()
    assert json.loads(json.dumps(record)) == record
    for part in ("30 targets in 2 dimensions, from 1,500 answers", "PowerTSTE (lapse = 0.07, k = 0.85)", "Held-out"):
        assert part in report.as_text()
    assert record["held_out"]["low"] < record["held_out"]["accuracy"] < record["held_out"]["high"]
    assert record["answers"] == {"fitted": 1500, "random": 1500}
    assert len(record["uncertainty"]["standard_deviation"]) == 30


def test_the_map_lies_on_its_principal_axes_and_its_covariance_turned_with_it(report):
    centred = report.coordinates - report.coordinates.mean(axis=0)
    scatter = centred.T @ centred
    assert abs(scatter[0, 1]) < 1e-6 * scatter[0, 0]
    assert scatter[0, 0] >= scatter[1, 1]
    assert np.all(np.linalg.eigvalsh(report.covariance) > -1e-9)


def test_adaptive_answers_are_fitted_and_never_judged(answers):
    report = analyse(table(("ARR", answers[:900]), ("Random", answers[900:])), FitOptions())
    assert (report.answers, report.random_answers) == (1500, 600)
    only_active = analyse(table(("ARR", answers)), FitOptions())
    assert only_active.held_out is None
    assert "too few queries were chosen at random" in only_active.as_text()


def test_a_test_set_is_judged_and_never_fitted(answers):
    report = analyse(table(("Random", answers[:900]), ("Test", answers[900:])), FitOptions())
    assert report.answers == 900
    assert report.test_accuracy.low < 0.81 < report.test_accuracy.high
    with pytest.raises(TripletError, match="none is left to fit"):
        analyse(table(("Test", answers)), FitOptions())


def test_choices_are_made_on_held_out_answers_and_written_down(answers):
    told = []
    options = FitOptions(dimensions=(1, 2), noise="choose", choose_lapse=True, folds=3)
    report = analyse(table(("Random", answers)), options, lambda what, total, done: told.append((what, total, done)))
    assert report.dimension_choice.chosen == report.coordinates.shape[1]
    assert set(report.noise_choice.accuracy) == {"PowerTSTE", "TSTE", "STE", "CKL", "SOE", "GNMDS"}
    assert "<- chosen" in report.as_text()
    assert report.lapse_losses
    assert {("judging dimensions", 6, 6), ("judging noise models", 15, 15)} <= set(told)


def test_groups_are_the_sets_of_three_targets():
    groups = triple_groups(np.array([[0, 1, 2], [2, 0, 1], [0, 1, 3], [3, 1, 0]]))
    assert groups[0] == groups[1] != groups[2] == groups[3]
