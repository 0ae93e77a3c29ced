"""When replicas are synchronised."""

from itertools import pairwise

import pytest

from salmon.errors import SalmonError
from salmon.training.averaging import ADPSGD, CPSGD, Crossbow, FullSync


def synchronisations(method, steps, variance=lambda step, period: 1.0, rate=lambda step: 1.0):
    state, found, periods = method.start(), [], []
    for step in range(steps):
        state, due = method.decide(state, step)
        if due:
            found.append(step)
            state = method.learn(state, step, variance(step, state.period), rate(step))
        periods.append(state.period)
    return found, periods, state


@pytest.mark.parametrize(
    ("method", "steps", "found"),
    [(CPSGD(8), 30, [0, 8, 16, 24]), (FullSync(), 4, [0, 1, 2, 3])],
    ids=["a constant period", "full synchronisation"],
)
def test_synchronisation_happens_in_multiples_of_the_period(method, steps, found):
    assert synchronisations(method, steps)[0] == found


def test_the_adaptive_period_samples_c2_first_and_then_moves_by_one_at_each_synchronisation():
    found, periods, state = synchronisations(
        ADPSGD(sampling_steps=12, initial_period=4), 40, variance=lambda step, period: 2.0 if step < 12 else 1.0
    )
    assert (state.c2, found[:4]) == (2, [3, 7, 11, 15])
    # A variance of half of C2 is below 0.7: the period rises by one each time.
    assert [after - before for before, after in pairwise(found[3:])] == [5, 6, 7]
    assert periods[-1] == 8


@pytest.mark.parametrize(
    ("figures", "period"),
    [
        pytest.param({"variance": lambda step, _: 1.0 if step < 8 else 5.0}, 1, id="a large variance shortens it"),
        pytest.param({"variance": lambda step, _: 1.0 if step < 8 else 1.2}, 3, id="between the bounds it stays"),
        pytest.param({"rate": lambda step: 1.0 if step < 8 else 0.1}, 1, id="a lower rate shortens it"),
    ],
)
def test_the_period_follows_variance_and_rate_but_never_falls_below_one(figures, period):
    found, periods, _ = synchronisations(ADPSGD(sampling_steps=8, initial_period=3), 60, **figures)
    assert periods[-1] == period
    assert {after - before for before, after in pairwise(found[-5:])} == {period}


def test_during_warm_up_replicas_are_synchronised_in_every_step_and_c2_is_not_sampled():
    method = ADPSGD(sampling_steps=20, initial_period=4, warmup_steps=5)
    found, _, state = synchronisations(method, 20, variance=lambda step, period: 100.0 if step < 5 else 3.0)
    assert (found, state.c2) == ([0, 1, 2, 3, 4, 8, 12, 16], 3)


def test_crossbow_corrects_by_one_over_all_replicas_by_default():
    assert (Crossbow(4).strength(8), Crossbow(4, correction=0.3).strength(8)) == (1 / 8, 0.3)


def test_crossbow_takes_a_batch_for_each_of_its_replicas():
    assert (Crossbow(4).step_batch(16, 8), CPSGD().step_batch(16, 8)) == (128, 16)


@pytest.mark.parametrize(
    "wrong",
    [lambda: CPSGD(0), lambda: ADPSGD(initial_period=0), lambda: ADPSGD(10, warmup_steps=10), lambda: Crossbow(-1)],
)
def test_impossible_methods_are_refused(wrong):
    with pytest.raises(SalmonError):
        wrong()
