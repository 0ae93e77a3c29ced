"""Counters that the console's figures are drawn from."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.store.answers import BINS_AN_OCTAVE, LAST_BIN, Counts, bin_of, bin_start_ms, recount
from salmon.records import TRIAL_TYPES, Answer, Served, Timing
from salmon.wire.answer_pages import AnswerColumns, columns_of
from tests import oracles
from tests.bundles import page_of


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    head, left, right = draw(st.permutations(range(6)))[:3]
    served_ms = draw(st.integers(0, 10**7))
    served = Served(
        experiment="e" * 10,
        revision=1,
        participant=draw(st.sampled_from(["ada", "ben", "eva"])),
        session="s",
        trial=1,
        sampler="Random",
        head=head,
        left=left,
        right=right,
        score=0.0,
        trial_type=draw(st.sampled_from(TRIAL_TYPES)),
        probability=0.0,
        sampler_probability=1.0,
        generation=0,
        published_ms=0,
        served_ms=served_ms,
        nonce="n",
    )
    timing = Timing(rt_ms=draw(st.floats(-1, 1e6)), query_wait_ms=draw(st.floats(-1, 1e6)))
    return Answer(served, draw(st.sampled_from([left, right])), timing, served_ms + draw(st.integers(0, 10**6)))


@given(st.floats(1, 8.64e7))
def test_a_time_lies_in_its_bin(milliseconds: float) -> None:
    place = bin_of(milliseconds)
    assert bin_start_ms(place) <= milliseconds * (1 + 1e-12)
    assert place == LAST_BIN or milliseconds <= bin_start_ms(place + 1) * (1 + 1e-12)


@given(st.lists(st.floats(10, 1e6), min_size=1, max_size=50))
def test_quantiles_are_right_to_the_width_of_a_bin(times: list[float]) -> None:
    counted = Counter(f"rt:{bin_of(time)}" for time in times)
    median = Counts.of({name: str(value) for name, value in counted.items()}).quantile_ms("rt", 0.5)
    assert median == pytest.approx(sorted(times)[(len(times) + 1) // 2 - 1], rel=2 ** (1 / BINS_AN_OCTAVE) - 1)


def pages_of(given_answers: list[Answer]) -> list[AnswerColumns]:
    """The answers as pages of two."""
    given = [("1-0", answer) for answer in given_answers]
    return [
        columns for start in range(0, len(given), 2) for columns in columns_of("e", page_of(*given[start : start + 2]))
    ]


@given(st.lists(answers(), max_size=30))
def test_counting_columns_moves_the_counters_that_recording_each_answer_moves(given_answers: list[Answer]) -> None:
    assert recount(pages_of(given_answers)) == oracles.recount(given_answers)


@given(st.lists(answers(), max_size=30))
def test_every_answer_is_counted_once_by_minute_target_and_type(given_answers: list[Answer]) -> None:
    counts = Counts.of({name: str(value) for name, value in recount(pages_of(given_answers)).items()})
    assert {sum(counts.get(group).values()) for group in ("minute", "head", "won")} == {len(given_answers)}
    assert sum(counts.get("foot").values()) == 2 * len(given_answers)
    assert sum(counts.types.values()) == len(given_answers)
    assert sum(counts.get("began").values()) == len({answer.served.participant for answer in given_answers})


def test_nothing_counted_has_no_quantile() -> None:
    assert Counts.of({}).quantile_ms("rt", 0.5) is None


def test_counters_of_a_later_version_are_passed_over() -> None:
    assert Counts.of({"minute:5": "2", "mood:happy": "7", "late": "1"}) == Counts({"minute": {5: 2}}, {}, 1)


def test_times_that_the_page_could_not_measure_are_not_counted() -> None:
    served = Served("e" * 10, 1, "p" * 12, "s", 1, "Random", 0, 1, 2, 0.0, "random", 0.0, 1.0, 0, 0, 1000, "nonce")
    counts = recount(pages_of([Answer(served, 1, Timing(), 2000)]))
    assert not [name for name in counts if name.startswith(("rt:", "wait:", "net:"))]
