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
    HeldOut,
    choose,
    cross_validate,
    grouped_interval,
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


def judge_all(world, candidates, count=3000):
    rows = world.answer(world.random_queries(count, stream(3, "queries")), stream(3, "answers"))
    random = np.ones(len(rows), dtype=bool)
    return {pair: cross_validate(rows, random, world.n, pair[0], noise) for pair, noise in candidates.items()}


def test_the_dimension_of_the_truth_is_chosen():
    world = random_world(15, 2, 2, DistanceLogistic(slope=4.0))
    choice = choose(judge_all(world, {(d, "PowerTSTE"): None for d in (1, 2, 3)}))
    assert choice.chosen[0] == 2
    assert choice.behind[1, "PowerTSTE"][0] > choice.behind[1, "PowerTSTE"][1]


def test_one_dimension_is_enough_for_the_eggs(eggs):
    assert choose(judge_all(eggs, {(d, "PowerTSTE"): None for d in (1, 2)})).chosen == (1, "PowerTSTE")


def test_dimension_and_noise_are_chosen_together():
    world = random_world(12, 2, 6, ScaledNoiseModel(STE(lapse=0.02), scale=1.0))
    candidates = {(d, name): noise for d in (1, 2) for name, noise in (("TSTE", TSTE()), ("STE", STE(lapse=0.02)))}
    choice = choose(judge_all(world, candidates, 4000))
    assert choice.chosen == (2, "STE")
    assert choice.best == choice.chosen or choice.best in choice.ties


def made_up(pattern):
    """Held-out results of one repeat, a group an answer."""
    hits = np.array([pattern], dtype=float)
    m = hits.shape[1]
    return HeldOut(hits, 1 - hits, np.zeros((1, m), dtype=np.int64), np.arange(m), 1000.0)


def test_fewer_dimensions_win_within_one_standard_error_and_ties_are_said():
    best = [1] * 80 + [0] * 20
    nearly = [1] * 78 + [0] * 2 + [1] + [0] * 19
    worse = [1] * 60 + [0] * 40
    choice = choose({(1, "CKL"): made_up(worse), (2, "CKL"): made_up(nearly), (3, "CKL"): made_up(best)})
    assert (choice.chosen, choice.best) == ((2, "CKL"), (3, "CKL"))
    assert choice.ties == ((2, "CKL"), (3, "CKL"))
    assert "0.0100 ± 0.0174 behind d = 3 with CKL" in choice.reason
    assert "do not tell it from d = 3 with CKL" in choice.reason


def test_a_noisy_candidate_is_not_chosen_for_being_uncertain():
    """A candidate far behind on average is not kept because its difference is uncertain, unless within one error."""
    generator = np.random.default_rng(0)
    best, noisy = np.ones(400), (generator.random(400) < 0.9).astype(float)
    choice = choose({(1, "TSTE"): made_up(noisy), (2, "TSTE"): made_up(best)})
    assert choice.chosen == (2, "TSTE")
    assert "No other is within one standard error" in choice.reason


def test_in_equal_dimensions_the_more_accurate_wins():
    choice = choose({(2, "A"): made_up([1, 1, 1, 0]), (2, "B"): made_up([1, 1, 1, 1])})
    assert choice.chosen == (2, "B")
    assert set(choice.ties) == {(2, "A"), (2, "B")}


def test_a_report_tells_everything_a_paper_needs(report, answers):
    record = report.as_json()
    assert json.loads(json.dumps(record)) == record
    for part in ("30 targets in 2 dimensions, from 1,500 answers", "PowerTSTE (lapse = ", "Held-out"):
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
    assert report.choice.chosen[0] == report.coordinates.shape[1]
    names = {"PowerTSTE", "TSTE", "STE", "CKL", "SOE", "GNMDS"}
    assert set(report.choice.accuracy) == {(d, name) for d in (1, 2) for name in names}
    assert "<- chosen" in report.as_text()
    assert bool(report.lapse_losses) == (report.choice.chosen[1] != "PowerTSTE")
    assert ("judging dimensions and noise models", 36, 36) in told


def test_groups_are_the_sets_of_three_targets():
    groups = triple_groups(np.array([[0, 1, 2], [2, 0, 1], [0, 1, 3], [3, 1, 0]]))
    assert groups[0] == groups[1] != groups[2] == groups[3]
