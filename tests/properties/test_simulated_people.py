"""Laws of simulated worlds and of the people in them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from salmon.noise import NOISE_MODELS
from salmon.simulate import (
    DistanceLogistic,
    Judge,
    RatioSigmoid,
    ScaledNoiseModel,
    SimulatedParticipant,
    given_world,
    stream,
)

JUDGEMENTS = [
    RatioSigmoid(),
    DistanceLogistic(),
    *(ScaledNoiseModel(model(lapse=0.03)) for model in NOISE_MODELS.values()),
]
positions = arrays(np.float64, st.tuples(st.integers(3, 7), st.integers(1, 3)), elements=st.floats(-5, 5))


@pytest.mark.parametrize("judgement", JUDGEMENTS, ids=lambda judgement: repr(judgement)[:40])
@given(near=st.floats(0, 10), gap=st.floats(0, 10), more=st.floats(0, 5))
def test_chances_add_up_to_one_favour_the_nearer_foot_and_grow_with_the_gap(judgement, near, gap, more):
    first, second = np.array([near, near]), np.array([near + gap, near + gap + more])
    chance = judgement.first_wins(first, second)
    assert np.allclose(chance + judgement.first_wins(second, first), 1)
    assert np.all(chance >= 0.5 - 1e-12)
    assert chance[1] >= chance[0] - 1e-12


@given(coordinates=positions, guess=st.integers(0, 99))
def test_no_embedding_is_judged_better_than_the_truth(coordinates, guess):
    world = given_world(coordinates)
    judge = Judge.of(world)
    other = np.random.default_rng(guess).normal(size=coordinates.shape)
    assert judge.accuracy(other) <= judge.accuracy(coordinates) + 1e-6
    assert 0 <= judge.neighbour_rank_error(other) <= world.n - 2


@given(coordinates=positions, turn=st.floats(0, 6.3), scale=st.floats(0.1, 10))
def test_a_judge_sees_neither_place_nor_turn_nor_size(coordinates, turn, scale):
    guess = np.random.default_rng(3).normal(size=(len(coordinates), 2))
    judge = Judge.of(given_world(coordinates))
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    assert judge.accuracy(scale * guess @ rotation + 7.0) == pytest.approx(judge.accuracy(guess))


@given(lapse=st.floats(0, 1), side_bias=st.floats(-1, 1), seed=st.integers(0, 999))
def test_swapping_the_sides_mirrors_a_person_who_leans_to_one(lapse, side_bias, seed):
    world = given_world(stream(seed, "truth").normal(size=(5, 2)))
    queries = world.random_queries(10, stream(seed, "queries"))
    leaning, mirrored = (SimulatedParticipant(world, lapse=lapse, side_bias=bias) for bias in (side_bias, -side_bias))
    assert np.allclose(leaning.left_wins(queries), 1 - mirrored.left_wins(queries[:, [0, 2, 1]]))


@given(seed=st.integers(0, 999))
def test_every_answer_is_one_of_the_two_feet_and_every_time_is_positive(seed):
    world = given_world(stream(seed, "truth").normal(size=(6, 2)))
    queries = world.random_queries(20, stream(seed, "queries"))
    triplets, rt_ms = SimulatedParticipant(world, lapse=0.1).react_all(queries, stream(seed, "answers"))
    assert np.array_equal(np.sort(triplets[:, 1:], axis=1), np.sort(queries[:, 1:], axis=1))
    assert np.array_equal(triplets[:, 0], queries[:, 0])
    assert np.all(rt_ms > 0)
