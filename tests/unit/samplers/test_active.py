"""Active samplers tell one story: random at first, then every head in turn, and the same from the same answers."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from salmon.errors import SalmonError
from salmon.learning import accuracy
from salmon.noise import CKL, NOISE_MODELS, STE, TSTE, PowerTSTE
from salmon.samplers import adaptive as adaptive_module
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.arr import ARR, SRR, Greedy, Uncertainty
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.samplers.state import number_of_queries, random_queries
from salmon.spec import sampler_arguments
from tests.oracles import all_queries
from tests.unit.learning.test_refit import world
from tests.unit.search.test_ranking import ThreeWorkers

N = 12
NOTHING = np.zeros((0, 3), dtype=np.int32)
every_sampler = pytest.mark.parametrize("name", sorted(ACTIVE))


def learned(sampler, m=200):
    """A state that has absorbed answers, and these answers."""
    _, rows = world(N, 2, m, 0)
    return sampler.refit(sampler.start(N, 0), rows), rows


def taught(sampler, m=200):
    """A sampler, a state of it that has absorbed answers, and these answers."""
    return sampler, *learned(sampler, m)


def keys(asked):
    """The queries of a round as tuples."""
    return [tuple(query) for query in asked.queries.tolist()]


@every_sampler
def test_before_enough_answers_queries_are_random_and_flagged_with_their_probability(name):
    sampler = active_sampler(name)
    asked = sampler.search(*learned(sampler, m=N - 1), NOTHING, 30)
    assert set(asked.trial_types) == {"random"}
    np.testing.assert_allclose(asked.probabilities, 1 / number_of_queries(N))
    assert len(asked) == 30


@every_sampler
def test_the_same_answers_and_seed_give_the_same_queries(name):
    sampler = active_sampler(name)
    first, second = (sampler.search(state, rows, rows[:3], 20) for state, rows in (learned(sampler), learned(sampler)))
    np.testing.assert_array_equal(first.queries, second.queries)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.trial_types == second.trial_types


@pytest.mark.parametrize("m", [5, 200])
def test_a_second_round_from_the_same_state_draws_other_random_queries(m):
    sampler, state, rows = taught(Adaptive(random_share=0.5), m=m)
    first = sampler.search(state, rows, NOTHING, 40)
    second = sampler.search(state, rows, first.queries, 40)
    drawn = [
        {query for query, kind in zip(keys(asked), asked.trial_types, strict=True) if kind == "random"}
        for asked in (first, second)
    ]
    assert len(drawn[0]) > 10
    assert len(drawn[0] & drawn[1]) < len(drawn[0]) / 3


@every_sampler
def test_every_query_can_be_asked_and_carries_its_generation(name):
    sampler, state, rows = taught(active_sampler(name))
    state = sampler.refit(state, rows)
    asked = sampler.search(state, rows, NOTHING, 30)
    assert set(keys(asked)) <= set(all_queries(N))
    assert state.generation == asked.generation == 2
    assert state.absorbed == len(rows)
    assert np.isfinite(asked.scores).all()


@every_sampler
def test_its_embedding_learns_what_the_answers_say(name):
    sampler = active_sampler(name)
    truth, _ = world(N, 2, 600, 0)
    state, rows = learned(sampler, m=600)
    assert accuracy(sampler.report(state, rows).coordinates, rows) > accuracy(truth, rows) - 0.05


@pytest.mark.parametrize("sampler", [ARR(), Uncertainty(), Adaptive(random_share=0)], ids=repr)
def test_every_head_is_asked_about_once_a_lap(sampler):
    asked = sampler.search(*learned(sampler), NOTHING, 2 * N + 3)
    heads = asked.queries[:, 0].tolist()
    assert sorted(heads[:N]) == sorted(heads[N : 2 * N]) == list(range(N))
    assert len(asked) == 2 * N + 3


@pytest.mark.parametrize("sampler", [ARR(), ARR(n_top=3), Uncertainty(), Greedy()], ids=repr)
def test_what_is_pending_is_not_asked_again_nor_twice_in_a_round(sampler):
    state, rows = learned(sampler)
    first = sampler.search(state, rows, NOTHING, N)
    second = sampler.search(state, rows, first.queries[:, [0, 2, 1]], 2 * N)
    assert not set(keys(second)) & set(keys(first))
    assert len(set(keys(second))) == len(second) == 2 * N


def test_arr_asks_each_head_its_best_query():
    sampler, state, rows = taught(ARR(ridge=1, fresh_posterior=True))
    assert set(keys(sampler.search(state, rows, NOTHING, N))) == set(keys(sampler.rank(state, rows, 1, None, None)))


def test_arr_orders_a_round_by_score_if_told_so():
    scores, blurred = (
        ARR(priority=priority).search(*learned(ARR()), NOTHING, N).scores for priority in ("scores", "approx")
    )
    assert (np.diff(scores) <= 0).all()
    assert sorted(blurred) == sorted(scores)
    # A tenth of the range of noise disturbs the order without losing it.
    assert (np.diff(blurred) > 0).any()
    assert np.corrcoef(np.arange(N), blurred)[0, 1] < -0.3


def test_arr_as_published_judges_each_answer_under_the_embedding_of_its_time():
    sampler = ARR()
    _, rows = world(N, 2, 120, 0)
    state = sampler.refit(sampler.start(N, 0), rows[:60])
    early = state.log_posterior.copy()
    heads = np.setdiff1d(np.arange(N), rows[60:, 0])
    np.testing.assert_array_equal(sampler.refit(state, rows).log_posterior[heads], early[heads])
    assert sampler.refit(sampler.start(N, 0), rows[60:]).log_posterior.shape == (N, N)
    assert ARR(fresh_posterior=True).refit(sampler.start(N, 0), rows).log_posterior is None


def test_arr_can_rank_by_uncertainty():
    state, rows = learned(ARR(scorer="uncertainty"))
    asked = ARR(scorer="uncertainty", priority="scores").search(state, rows, NOTHING, N)
    same = Uncertainty(fresh_posterior=False).search(state, rows, NOTHING, N)
    np.testing.assert_allclose(np.sort(asked.scores), np.sort(same.scores))


def test_greedy_asks_the_best_of_all_whatever_the_heads():
    sampler, state, rows = taught(Greedy())
    np.testing.assert_array_equal(
        sampler.search(state, rows, NOTHING, 10).queries, sampler.rank(state, rows, 10, None, None).queries[:10]
    )


def test_srr_takes_the_best_of_the_feet_that_it_looked_at():
    state, rows = learned(SRR())
    few, many = (SRR(n_search=k).search(state, rows, NOTHING, 60).scores.mean() for k in (1, 200))
    assert many > few
    short = SRR().search(state, rows, NOTHING, 60, stop=lambda _: True)
    assert len(short) == 0
    assert not short.complete


def test_adaptive_gives_its_random_share_to_random_queries_and_says_how_likely_each_was():
    sampler = Adaptive(random_share=0.3)
    asked = sampler.search(*learned(sampler), NOTHING, 600)
    drawn = np.array([trial == "random" for trial in asked.trial_types])
    assert 0.22 < drawn.mean() < 0.38
    np.testing.assert_allclose(asked.probabilities[drawn], 0.3 / number_of_queries(N))
    assert not asked.probabilities[~drawn].any()
    assert (asked.scores > 0).all()


def test_adaptive_turns_elsewhere_when_a_query_is_pending():
    sampler, state, rows = taught(Adaptive(random_share=0))
    free = sampler.search(state, rows, NOTHING, N)
    crowded = sampler.search(state, rows, np.repeat(free.queries, 8, axis=0), N)
    assert len(set(keys(free)) & set(keys(crowded))) < N / 2
    assert crowded.scores.sum() < free.scores.sum()


def test_adaptive_can_be_cut_short_and_spread_over_workers(monkeypatch):
    sampler, state, rows = taught(Adaptive(random_share=0))
    looks = itertools.count(1)
    short = sampler.search(state, rows, NOTHING, N, stop=lambda _: next(looks) > 3)
    assert not short.complete
    assert len(short) == len(short.trial_types) == len(short.probabilities) == 3
    monkeypatch.setattr(adaptive_module, "_WORTH_SENDING", 5)
    here, there = (sampler.search(state, rows, NOTHING, N, executor) for executor in (None, ThreeWorkers()))
    np.testing.assert_array_equal(here.queries, there.queries)
    np.testing.assert_allclose(here.scores, there.scores, rtol=1e-4)


def test_adaptive_above_two_thousand_coordinates_says_that_it_did_not_see_everything():
    sampler = Adaptive(random_share=0.2)
    rows = random_queries(1100, 2200, np.random.default_rng(0))
    asked = sampler.search(sampler.start(1100, 0), rows, NOTHING, 150)
    assert not asked.exact
    assert len(asked) == 150
    assert asked.trial_types.count("random") > 10


def test_adaptive_reports_another_embedding_than_it_searches_with():
    sampler, state, rows = taught(Adaptive())
    shown = sampler.report(state, rows)
    assert shown.coordinates.shape == state.coordinates.shape
    assert (shown.coordinates**2).sum() > (state.coordinates**2).sum()
    assert isinstance(shown.noise, PowerTSTE)


@pytest.mark.parametrize("noise", NOISE_MODELS)
def test_adaptive_searches_alike_whatever_noise_model_it_shows(noise):
    sampler, state, rows = taught(Adaptive(noise=noise))
    usual, usual_state, _ = taught(Adaptive())
    np.testing.assert_array_equal(
        sampler.search(state, rows, NOTHING, 20).queries, usual.search(usual_state, rows, NOTHING, 20).queries
    )
    shown = sampler.report(state, rows)
    assert isinstance(shown.noise, PowerTSTE if noise == "TSTE" else NOISE_MODELS[noise])
    assert sampler.model == TSTE(lapse=0.05)


def test_adaptive_shows_the_parameters_that_an_experiment_names():
    sampler, state, rows = taught(Adaptive(noise=TSTE(alpha=3.0)))
    assert sampler.report(state, rows).noise == TSTE(alpha=3.0, lapse=0.07)


def test_a_state_read_back_without_its_places_judges_all_answers_again():
    sampler, state, rows = taught(ARR())
    again = sampler.refit(replace(state, log_posterior=None), rows)
    np.testing.assert_allclose(again.log_posterior.sum(), state.log_posterior.sum(), rtol=0.5)
    assert (again.log_posterior < 0).any(axis=1).sum() == len(set(rows[:, 0].tolist()))


@every_sampler
def test_every_argument_that_a_spec_takes_builds_a_sampler(name):
    values = {
        "scorer": "infogain", "optimizer": "GeoDamp", "priority": "approx", "module": "CKL", "noise": "CKL",
        "fresh_posterior": True, "random_share": 0.2, "lapse": 0.1, "ridge": 0.5,
        "leave_out": "nobody",
    }  # fmt: skip
    written = {argument: values.get(argument, 1) for argument in sampler_arguments.READERS[name]}
    sampler = active_sampler(name, written)
    assert (sampler.d, sampler.ridge, sampler.lapse) == (1, 0.5, 0.1)
    assert isinstance(sampler.noise, CKL)


def test_random_queries_reach_every_query_as_often_as_any_other():
    counts = Counter(map(tuple, random_queries(4, 24_000, np.random.default_rng(0)).tolist()))
    assert set(counts) == set(all_queries(4))
    assert number_of_queries(4) == len(counts) == 12
    # Standard deviation of a count: √(24,000 · 1/12 · 11/12) ≈ 43.
    assert all(abs(count - 2000) < 220 for count in counts.values())


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("ARR", {"module": "CKL"}, ARR(noise=CKL(mu=1.0))),
        ("ARR", {"module": "CKL", "module__mu": 0.05}, ARR(noise=CKL(mu=0.05))),
        (
            "ARR",
            {"R": 10, "n_top": 2, "priority": "scores", "optimizer": "GeoDamp"},
            ARR(noise=TSTE(), R=10, n_top=2, priority="scores"),
        ),
        ("TSTE", {"alpha": 2.0, "optimizer__lr": 0.1}, ARR(noise=TSTE(alpha=2.0), R=10)),
        ("STE", {}, ARR(noise=STE(), R=10)),
        ("SRR", {"n_search": 7}, SRR(noise=TSTE(), n_search=7)),
        ("ARR", {"module": "STE", "alpha": 1.0, "random_share": 0.3}, ARR(noise=STE())),
        ("Adaptive", {"scorer": "uncertainty", "max_epochs": 3, "optimizer": "Embedding"}, Adaptive(noise=TSTE())),
        ("Adaptive", {"k": 0.9, "n_search": 7, "random_state": 3}, Adaptive(noise=PowerTSTE(k=0.9))),
        ("Adaptive", {"noise": "STE", "d": 3}, Adaptive(noise=STE(), d=3)),
    ],
)
def test_present_and_older_spellings_build_the_same_samplers(name, arguments, expected):
    assert active_sampler(name, arguments) == expected


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: active_sampler("ARRR"), "no active sampler 'ARRR'"),
        (lambda: active_sampler("Adaptive", {"randomshare": 1}), "no argument randomshare"),
        (lambda: active_sampler("TSTE", {"alpha": -1}), "alpha is -1"),
        (lambda: ARR(priority="original"), "priority is 'original'"),
        (lambda: ARR(scorer="entropy"), "scorer is 'entropy'"),
        (lambda: ARR(n_top=0), "n_top is 0"),
        (lambda: SRR(n_search=0), "n_search is 0"),
        (lambda: Adaptive(random_share=15), "random_share is 15"),
        (lambda: Adaptive(ridge=0), "ridge is 0"),
        (lambda: Adaptive(noise="nothing"), "no noise model"),
    ],
)
def test_a_wrong_name_or_argument_is_refused_in_a_sentence(make, words):
    with pytest.raises(SalmonError, match=words):
        make()
