"""Worlds, participants and streams of randomness."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.errors import SalmonError
from salmon.noise import STE
from salmon.simulate import (
    EGG_COUNTS,
    STREAMS,
    Judge,
    RatioSigmoid,
    ScaledNoiseModel,
    SimulatedParticipant,
    bayes_accuracy,
    clustered_world,
    egg_world,
    given_world,
    logistic_world,
    noisy_world,
    random_world,
    stream,
)


@pytest.mark.parametrize(("n", "expected"), [(30, 0.8355), (90, 0.8342), (300, 0.8344)])
def test_the_egg_worlds_have_the_published_bayes_accuracy(n, expected):
    assert round(bayes_accuracy(egg_world(n)), 4) == expected


def test_each_egg_world_holds_the_smaller_ones():
    worlds = [set(egg_world(n).coordinates.ravel().tolist()) for n in EGG_COUNTS]
    assert worlds[0] < worlds[1] < worlds[2]
    assert [len(world) for world in worlds] == list(EGG_COUNTS)


def test_general_worlds_are_as_hard_as_the_protocol_says():
    for make, ceiling in ((logistic_world, 0.864), (clustered_world, 0.746), (noisy_world, 0.681)):
        assert abs(np.mean([bayes_accuracy(make(seed)) for seed in range(5)]) - ceiling) < 0.008, make.__name__


def test_feet_at_equal_distances_are_a_coins_throw_even_on_the_head_itself():
    assert RatioSigmoid().first_wins(np.array([0.0, 2.0]), np.array([0.0, 2.0])).tolist() == [0.5, 0.5]


@given(n=st.integers(3, 7), seed=st.integers(0, 99))
def test_random_queries_have_three_different_targets(n, seed):
    queries = random_world(n, 2, 1).random_queries(50, stream(seed, "queries"))
    assert all(len(set(query)) == 3 for query in queries.tolist())
    assert 0 <= queries.min() <= queries.max() < n


def test_the_judge_agrees_with_counting_every_query_one_by_one():
    world = random_world(6, 2, 7)
    guess = stream(7, "start").normal(size=(6, 2))
    agreed, ranks = [], []
    for h in range(6):
        others = [t for t in range(6) if t != h]
        d = {t: np.linalg.norm(guess[h] - guess[t]) for t in others}
        true = world.distances(h)
        nearest = min(others, key=d.__getitem__)
        ranks.append(sum(true[t] < true[nearest] for t in others))
        for b, c in combinations(others, 2):
            chance = world.first_wins([(h, b, c)])[0]
            agreed.append(chance if d[b] < d[c] else 1 - chance)
    judge = Judge.of(world)
    assert judge.accuracy(guess) == pytest.approx(np.mean(agreed), abs=1e-6)
    assert judge.neighbour_rank_error(guess) == np.mean(ranks)


def test_the_truth_scores_bayes_accuracy_and_a_collapsed_map_one_half():
    world = egg_world(30)
    judge = Judge.of(world)
    assert judge.accuracy(world.coordinates) == pytest.approx(bayes_accuracy(world), abs=1e-6)
    assert judge.accuracy(np.zeros((30, 2))) == pytest.approx(0.5)
    assert judge.neighbour_rank_error(world.coordinates) == 0


def test_truth_and_initialisation_never_share_numbers():
    for seed in range(20):
        truth = random_world(30, 2, seed).coordinates
        starts = [
            stream(seed, "start").normal(size=(30, 2)),
            np.random.default_rng(seed).normal(size=(30, 2)),
            np.random.RandomState(seed).randn(30, 2),
        ]
        for start in starts:
            assert abs(np.corrcoef(truth.ravel(), start.ravel())[0, 1]) < 0.7


def test_streams_differ_by_name_seed_and_number_and_are_otherwise_the_same():
    draws = {(seed, name): stream(seed, name).random() for seed in range(3) for name in STREAMS}
    draws[0, "answers", 1] = stream(0, "answers", 1).random()
    assert len(set(draws.values())) == len(draws)
    assert stream(2, "truth").random() == draws[2, "truth"]


def test_a_person_who_never_looks_answers_by_side_alone():
    world = random_world(8, 2, 1)
    person = SimulatedParticipant(world, lapse=1.0, side_bias=0.6)
    assert np.allclose(person.left_wins(world.random_queries(30, stream(1, "queries"))), 0.2)


def test_lapses_pull_every_answer_towards_the_side_a_person_prefers():
    world = random_world(8, 2, 1)
    queries = world.random_queries(4000, stream(1, "queries"))
    person = SimulatedParticipant(world, lapse=0.2, side_bias=-1.0)
    triplets, _ = person.react_all(queries, stream(1, "answers"))
    left = np.mean(triplets[:, 1] == queries[:, 1])
    expected = person.left_wins(queries)
    assert abs(left - expected.mean()) < 5 * np.sqrt((expected * (1 - expected)).mean() / len(queries))
    assert expected.mean() > world.first_wins(queries).mean() + 0.05


def test_response_times_are_log_normal_and_longer_for_hard_queries():
    person = SimulatedParticipant(
        given_world([[0.0], [1.0], [1.0], [9.0]], RatioSigmoid(error=0.0)), median_ms=1000, hard_factor=2.0, spread=0.4
    )
    rng = stream(4, "answers")
    easy, hard = (person.react_all([(0, 1, other)] * 4000, rng)[1] for other in (3, 2))
    assert np.log(hard).std() == pytest.approx(0.4, abs=0.03)
    assert np.median(hard) == pytest.approx(2000, rel=0.05)
    assert np.median(easy) == pytest.approx(1000, rel=0.06)


def test_a_person_answers_the_same_query_alike_in_one_and_in_many():
    person = SimulatedParticipant(egg_world(30))
    reaction = person.react(3, 8, 20, stream(0, "answers", 5))
    triplets, rt_ms = person.react_all([(3, 8, 20)], stream(0, "answers", 5))
    assert (reaction.winner, reaction.rt_ms) == (triplets[0, 1], rt_ms[0])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: egg_world(31), SalmonError, "30, 90, 300"),
        (lambda: given_world([[0.0, 1.0], [np.nan, 2.0], [1.0, 1.0]]), SalmonError, "without NaN"),
        (lambda: stream(0, "thruth"), KeyError, "truth, queries"),
        (
            lambda: SimulatedParticipant(egg_world(30), lapse=1.2, side_bias=-3),
            SalmonError,
            "(?s)lapse is 1.2.*side_bias is -3",
        ),
    ],
    ids=["a size without eggs", "a place that is no number", "a stream nobody named", "an impossible person"],
)
def test_what_cannot_be_simulated_is_refused_with_every_reason_at_once(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_world_can_answer_by_any_noise_model_that_is_fitted():
    world = given_world([[0.0], [1.0], [3.0]], ScaledNoiseModel(STE(lapse=0.1), scale=2.0))
    assert world.first_wins([(0, 1, 2)])[0] == pytest.approx(0.1 + 0.8 / (1 + np.exp(4.0 - 36.0)))
