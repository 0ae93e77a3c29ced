"""What further answers would bring, said of curves whose end is known."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.learning_curve import ALPHA, LEAST_PREDICTIONS, bins, last_look, outlook

N, D, END = 30, 2, 0.83


def curve(answers: int, *, seed: int, scale: float = 60.0, every: int = 30) -> list[tuple[float, float, float]]:
    """A history in which every answer was predicted, with the chances of a curve that ends at 83 %."""
    generator, history, right = np.random.default_rng(seed), [], 0.0
    for made in range(every, answers + 1, every):
        share = END - (END - 0.5) / (1 + (made - every / 2) / scale)
        right += generator.binomial(every, share)
        history.append((float(made), right, float(made)))
    return history


@pytest.mark.parametrize("answers", [300, 1200, 4800])
def test_what_is_still_to_gain_lies_below_its_bound_in_most_experiments(answers: int) -> None:
    truth = (END - 0.5) / (1 + answers / 60.0)
    found = [outlook(curve(answers, seed=seed), n=N, d=D, worth=0.01) for seed in range(60)]
    assert sum(each is not None and truth <= each.gain_high for each in found) >= 54
    middle = float(np.median([each.accuracy for each in found if each]))
    assert middle == pytest.approx(END - truth, abs=0.03)


def test_more_answers_leave_less_to_gain_and_fewer_to_go() -> None:
    found = [outlook(curve(answers, seed=1), n=N, d=D, worth=0.01) for answers in (600, 2400, 9600, 38400)]
    assert all(
        one is not None and other is not None and other.gain_high < one.gain_high for one, other in pairwise(found)
    )
    assert found[-1] is not None
    assert found[-1].more == 0
    assert found[1] is not None
    assert found[1].more_high is None or found[1].more_high > 1000


@pytest.mark.parametrize("answers", [600, 1200, 4800])
def test_the_interval_of_further_answers_holds_the_truth(answers: int) -> None:
    truth = max(0.0, 60.0 * ((END - 0.5) / 0.01 - 1) - answers)
    found = [outlook(curve(answers, seed=seed), n=N, d=D, worth=0.01) for seed in range(60)]
    inside = [
        each is not None and each.more_low <= truth and (each.more_high is None or truth <= each.more_high)
        for each in found
    ]
    assert sum(inside) >= 54


def test_a_rule_looks_when_the_answers_have_grown_by_a_fifth_and_sees_only_those_until_then() -> None:
    history = curve(6000, seed=4)
    assert last_look(history[:9], n=N, d=D, worth=0.005, per=300) is None
    looks = [last_look(history[:end], n=N, d=D, worth=0.005, per=300) for end in range(10, len(history))]
    moments = sorted({look.answers for look in looks if look})
    assert moments[:4] == [300, 360, 420, 510]
    for moment in moments:
        assert len({look for look in looks if look and look.answers == moment}) == 1
    allowed = [look.allowed for look in looks if look]
    assert sum(set(allowed)) < ALPHA


def test_a_rule_stops_when_the_next_answers_bring_less_and_seldom_before() -> None:
    early, stopped = 0, 0
    for seed in range(40):
        history = curve(6000, seed=seed)
        for end in range(1, len(history) + 1):
            look = last_look(history[:end], n=N, d=D, worth=0.005, per=300)
            if look is not None and look.stops:
                gain = (END - 0.5) * (1 / (1 + look.answers / 60) - 1 / (1 + (look.answers + 300) / 60))
                early += gain > 0.005
                stopped += 1
                break
    assert early <= 2
    assert stopped >= 36


def test_nothing_is_said_of_a_few_predictions() -> None:
    assert outlook([], n=N, d=D, worth=0.01) is None
    assert outlook([(500.0, 30.0, LEAST_PREDICTIONS - 1.0)], n=N, d=D, worth=0.01) is None
    assert outlook([(500.0, 30.0, float(LEAST_PREDICTIONS))], n=N, d=D, worth=0.01) is not None
    assert LEAST_PREDICTIONS == 200
    assert outlook([(8.0 * N - 1, 150.0, 230.0)], n=N, d=D, worth=0.01) is None
    assert outlook([(8.0 * N, 150.0, 230.0)], n=N, d=D, worth=0.01) is not None


def after_an_erasure(seed: int) -> list[tuple[float, float, float]]:
    """A history whose counters begin again: the learner starts afresh with the 800 of 900 answers that are left."""
    again = [(800.0 + seen, right, made) for seen, right, made in curve(600, seed=seed + 1, scale=9.0)]
    return [*curve(900, seed=seed), (800.0, 0.0, 0.0), *again]


def test_counters_that_begin_again_make_no_bin_across_their_start() -> None:
    history = after_an_erasure(seed=3)
    for end in range(1, len(history) + 1):
        seen, right, made = bins(history[:end])
        assert np.all((right >= 0) & (right <= made)), history[end - 1]
        assert np.all(np.diff(seen) > 0)
    assert (right.sum(), made.sum()) == history[-1][1:]
    assert seen.min() > 800, "predictions after the new start stand after it"


@pytest.mark.parametrize("seed", range(5))
def test_what_is_said_after_an_erasure_comes_from_what_is_left(seed: int) -> None:
    history = after_an_erasure(seed)
    left = history[30:]
    assert [line[2] for line in left[:2]] == [0.0, 30.0]
    for end in range(1, len(left) + 1):
        so_far = history[: 30 + end]
        assert outlook(so_far, n=N, d=D, worth=0.01) == outlook(left[:end], n=N, d=D, worth=0.01)
        looks = [last_look(part, n=N, d=D, worth=0.005, per=300) for part in (so_far, left[:end])]
        assert looks[0] == looks[1]


lines = st.lists(st.tuples(*[st.integers(0, 500).map(float)] * 3), max_size=60)


@given(lines)
def test_no_history_makes_an_impossible_bin(history: list[tuple[float, float, float]]) -> None:
    seen, right, made = bins(history)
    assert np.all((right >= 0) & (right <= made))
    assert np.all(np.diff(seen) >= 0)
    outlook(history, n=N, d=D, worth=0.01)
    last_look(history, n=N, d=D, worth=0.01, per=20)


def test_parts_hold_every_prediction_once() -> None:
    history = curve(3000, seed=2)
    seen, right, made = bins(history)
    assert len(seen) <= 26
    assert (right.sum(), made.sum()) == history[-1][1:]
    assert np.all(np.diff(seen) > 0)
