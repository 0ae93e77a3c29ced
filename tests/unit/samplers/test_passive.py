"""Passive samplers: pure functions of participant, turn and seed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.samplers.passive import (
    Random,
    RoundRobin,
    Validation,
    candidates,
    count_queries,
    fallback,
    validation_queries,
)


@given(
    st.sampled_from([Random(), RoundRobin(), Validation(5)]),
    st.integers(3, 40),
    st.text(),
    st.integers(0, 999),
    st.integers(),
)
def test_the_same_participant_turn_and_seed_give_the_same_valid_query(
    sampler: Random | RoundRobin | Validation, n: int, participant: str, turn: int, seed: int
) -> None:
    query = sampler.query(n, participant=participant, turn=turn, seed=seed)
    assert query == sampler.query(n, participant=participant, turn=turn, seed=seed)
    assert len({query.head, *query.feet}) == 3
    assert all(0 <= target < n for target in (query.head, *query.feet))


def test_random_draws_every_query_equally_often() -> None:
    drawn = Counter(Random().query(4, participant="p", turn=turn, seed=1).key for turn in range(12_000))
    assert len(drawn) == count_queries(4) == 12
    chi_squared = sum((count - 1000) ** 2 / 1000 for count in drawn.values())
    assert chi_squared < 31.3  # the .999 quantile with 11 degrees of freedom


def test_round_robin_makes_every_target_the_head_once_a_lap() -> None:
    laps = [
        [RoundRobin().query(7, participant=participant, turn=turn, seed=0).head for turn in range(start, start + 7)]
        for participant, start in (("p", 0), ("p", 7), ("p", 14), ("q", 0))
    ]
    assert all(sorted(lap) == list(range(7)) for lap in laps)
    assert laps[0] != laps[1] or laps[1] != laps[2]
    assert laps[3] != laps[0]


def test_round_robin_scores_by_the_largest_distance_of_indices() -> None:
    query = RoundRobin().query(9, participant="p", turn=3, seed=2)
    assert query.score == max(abs(query.head - foot) for foot in query.feet)


def test_validation_asks_everybody_the_same_queries_in_laps_of_their_own_order() -> None:
    def lap(participant: str, number: int) -> list[str]:
        return [Validation(6).query(10, participant=participant, turn=6 * number + i, seed=3).key for i in range(6)]

    assert sorted(lap("a", 0)) == sorted(lap("b", 0)) == sorted(lap("a", 1))
    assert lap("a", 0) != lap("a", 1) or lap("a", 0) != lap("b", 0)
    assert len(set(lap("a", 0))) == 6
    assert [Validation(6).query(10, participant="a", turn=i, seed=3).score for i in range(7)] == [0, 1, 2, 3, 4, 5, 0]


def test_validation_takes_the_experimenters_queries() -> None:
    wanted = ((0, 1, 2), (3, 4, 5))
    keys = {Validation(queries=wanted).query(9, participant="p", turn=i, seed=0).key for i in range(2)}
    assert keys == {"0,1,2", "3,4,5"}


def test_there_are_never_more_validation_queries_than_queries() -> None:
    assert len(set(validation_queries(3, 20, 0))) == count_queries(3) == 3


@pytest.mark.parametrize("sampler", [Random((1, 3, 5)), RoundRobin((1, 3, 5))])
def test_a_subset_of_targets_is_respected(sampler: Random | RoundRobin) -> None:
    queries = [sampler.query(8, participant="p", turn=turn, seed=0) for turn in range(30)]
    assert {target for query in queries for target in (query.head, *query.feet)} == {1, 3, 5}


def test_candidates_are_different_and_a_check_has_only_one() -> None:
    drawn = candidates(Random(), 30, participant="p", turn=0, seed=0)
    assert len({query.key for query in drawn}) == len(drawn) > 1
    assert len(candidates(Validation(), 30, participant="p", turn=0, seed=0)) == 1


def test_a_fallback_says_what_it_is() -> None:
    assert {(query.trial_type, query.score) for query in fallback(9, participant="p", turn=1, seed=0)} == {
        ("fallback", -9999.0)
    }
