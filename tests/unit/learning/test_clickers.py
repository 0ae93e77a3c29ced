"""People who click blindly are found by others' map; people who answer are not, however few answers there are."""

import numpy as np
import pytest

from salmon.learning import fit
from salmon.learning.clickers import FALSE_POSITIVE_RATE, chance_ratios, find_clickers
from salmon.simulate import SimulatedParticipant, egg_world, stream

WORLD = egg_world(30)


def crowd(lapses, each, seed=0):
    """Answers of people with these lapses, one block a person."""
    generator = stream(seed, "answers")
    rows = [
        SimulatedParticipant(WORLD, lapse=lapse).react_all(WORLD.random_queries(each, generator), generator)[0]
        for lapse in lapses
    ]
    return np.concatenate(rows), np.repeat(np.arange(len(lapses)), each)


def found(lapses, each, seed=0):
    rows, people = crowd(lapses, each, seed)
    return find_clickers(rows, people, fit(rows, 30, seed=seed).coordinates)


def test_clickers_are_found_and_others_kept():
    clickers = found([0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.1], each=100)
    assert clickers.people == (1, 4)
    np.testing.assert_array_equal(~clickers.kept, np.repeat([0, 1, 0, 0, 1, 0, 0, 0], 100))


def test_most_people_who_answer_half_of_the_time_are_kept():
    left_out = [person for seed in range(10) for person in found([0.0] * 6 + [0.5] * 2, each=100, seed=seed).people]
    assert len(left_out) <= 20 / 3
    assert set(left_out) <= {6, 7}


@pytest.mark.parametrize("each", [10, 20, 40, 80])
def test_few_careful_people_are_left_out_however_often_it_is_looked(each):
    left_out = sum(len(found([0.0] * 10, each, seed).people) for seed in range(10))
    assert left_out <= 2 * FALSE_POSITIVE_RATE * 100


def test_a_crowd_of_clickers_says_nothing_about_anybody():
    assert len(found([1.0] * 10, each=60).people) <= 1


@pytest.mark.parametrize(("people", "each"), [(0, 1), (1, 500), (8, 9)])
def test_nobody_is_judged_by_too_few_answers_or_people(people, each):
    rows, given_by = crowd([1.0] * people, each) if people else (np.zeros((0, 3), np.int32), np.zeros(0, int))
    clickers = find_clickers(rows, given_by, np.random.default_rng(0).normal(size=(30, 2)))
    assert clickers.people == ()
    assert clickers.kept.all()


def test_a_map_that_says_nothing_speaks_against_nobody():
    generator = np.random.default_rng(1)
    ratios = chance_ratios(3 * generator.normal(size=5000), np.ones(5000, dtype=bool))
    assert abs(ratios).max() < 0.1
