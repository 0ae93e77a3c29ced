"""Batch-size rules: pure functions of the figures of a run."""

import itertools
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.errors import SalmonError
from salmon.training.batch_size import (
    AdaDamp,
    AdaDampLR,
    BatchSizeInputs,
    BatchSizeMemory,
    ConstantBatch,
    GeoDamp,
    GeoDampLR,
    PadaDamp,
    PadaDampLR,
    PlateauDamp,
    RadaDamp,
    RadaDampLR,
)

VARIANTS = [
    (GeoDamp(16, delay=2, factor=3), GeoDampLR(16, delay=2, factor=3)),
    (PadaDamp(16, rate=0.5), PadaDampLR(16, rate=0.5)),
    (AdaDamp(16, optimum=0.25), AdaDampLR(16, optimum=0.25)),
    (RadaDamp(16, memory=0.5), RadaDampLR(16, memory=0.5)),
]


def growths(rule, seen):
    """The growth after each step."""
    return [memory.growth for memory in itertools.accumulate(seen, rule.remember, initial=BatchSizeMemory())][1:]


FALLING = [BatchSizeInputs(k, k / 4, 2 / (k + 1), 1 / (k + 1), 4 / (k + 1), 1 / (k + 1) ** 2) for k in range(12)]


@pytest.mark.parametrize(("rule", "variant"), VARIANTS)
def test_an_lr_variant_divides_the_rate_by_the_factor_of_the_batch(rule, variant):
    assert growths(rule, FALLING) == growths(variant, FALLING)
    for growth in growths(rule, FALLING):
        assert rule.batch_and_rate(growth) == (max(1, ceil(rule.initial * growth - 1e-9)), 1)
        assert variant.batch_and_rate(growth) == (16, pytest.approx(1 / growth))


@pytest.mark.parametrize("rule", [rule for rule, _ in VARIANTS])
def test_a_falling_loss_never_shrinks_the_batch(rule):
    found = growths(rule, FALLING)
    assert found == sorted(found)
    assert found[0] == pytest.approx(1)
    assert found[-1] > 1


@given(growth=st.floats(0.01, 1e6), initial=st.integers(1, 500), room=st.integers(0, 1000))
def test_batch_over_rate_is_the_wanted_batch_below_and_above_the_maximum(growth, initial, room):
    batch, rate = ConstantBatch(initial, maximum=initial + room).batch_and_rate(growth)
    assert 1 <= batch <= initial + room
    assert rate <= 1
    assert batch / rate == pytest.approx(max(1, ceil(initial * growth - 1e-9)))


def test_geodamp_steps_up_every_delay_epochs():
    rule = GeoDamp(128, delay=60, factor=5, maximum=640)
    found = [rule.batch_and_rate(growths(rule, [BatchSizeInputs(epoch=epoch)])[0]) for epoch in (0, 59.9, 60, 120, 180)]
    assert found == [(128, 1), (128, 1), (640, 1), (640, 1 / 5), (640, 1 / 25)]


def test_padadamp_adds_to_the_batch_at_a_constant_rate():
    rule = PadaDamp(10, rate=0.5)
    found = [rule.batch_and_rate(growths(rule, [BatchSizeInputs(step=step)])[0])[0] for step in range(6)]
    assert found == [10, 11, 11, 12, 12, 13]


def test_adadamp_is_equation_3_3():
    growth = growths(AdaDamp(2, optimum=0.5), [BatchSizeInputs(full_loss=8.5), BatchSizeInputs(step=1, full_loss=1.3)])
    assert AdaDamp(2).batch_and_rate(growth[-1])[0] == ceil(2 * 8 / 0.8)


def test_adadamp_with_c_and_the_gradient_is_equation_3_4():
    rule = AdaDamp(7, c=30.0, gradient=True)
    (growth,) = growths(rule, [BatchSizeInputs(full_gradient_norm2=4.0)])
    assert rule.batch_and_rate(growth)[0] == ceil(30 / 4)
    assert (rule.needs, AdaDamp().needs, RadaDamp().needs) == ("gradient", "loss", "")


def test_radadamp_is_algorithm_1():
    rule, rolling, first = RadaDamp(8, memory=0.9, regularization=0.1), None, None
    memory = rule.remember(BatchSizeMemory(), BatchSizeInputs())
    assert memory.growth == 1
    for step in range(1, 6):
        loss, norm2 = 1 / step, 2 / step
        memory = rule.remember(memory, BatchSizeInputs(step=step, loss=loss, gradient_norm2=norm2))
        t = loss + 0.1 * norm2
        rolling = t if rolling is None else 0.9 * rolling + 0.1 * t
        first = first or t
        assert rule.batch_and_rate(memory.growth)[0] == ceil(8 * first / rolling - 1e-9)


def test_radadamp_grows_on_at_a_floor_of_the_loss_if_it_knows_it_and_padadamp_always():
    # The loss falls from 1.35 to 1, where noisy labels keep it.
    seen = [BatchSizeInputs(step=step, epoch=step / 20, loss=1 + 0.35 * 0.98**step) for step in range(1, 2000)]
    plain, informed, steady = (
        rule.batch_and_rate(growths(rule, seen)[-1])[0]
        for rule in (RadaDamp(32, memory=0.9), RadaDamp(32, memory=0.9, optimum=0.97), PadaDamp(32, rate=0.1))
    )
    assert plain == 43
    assert informed > 8 * 32
    assert steady > 7 * 32


def test_plateaudamp_grows_only_where_the_loss_no_longer_falls_and_no_faster_than_the_epochs():
    def batches(loss, epochs):
        seen = [BatchSizeInputs(step=k, epoch=k / 10, loss=loss(k / 10)) for k in range(10 * epochs)]
        return [ceil(32 * growth) for growth in growths(PlateauDamp(32), seen)]

    assert set(batches(lambda epoch: 0.95**epoch, 100)) == {32}
    # The loss reaches its floor in the first epoch; the second one is the first that is not better.
    floor = batches(lambda epoch: 1.0, 100)
    assert [floor.index(32 << power) for power in range(7)] == [0, 20, 40, 80, 160, 320, 640]
    assert all(batch <= 32 * max(1, k / 10) for k, batch in enumerate(floor))
    # A run that falls again does not grow.
    assert set(batches(lambda epoch: 1.0 if epoch < 2 else 0.95**epoch, 100)) <= {32, 64}
    assert set(batches(lambda epoch: -1 - epoch, 50)) == {32}


def test_growth_is_only_updated_every_dwell_steps():
    rule = PadaDamp(10, rate=1, dwell=3)
    found = growths(rule, [BatchSizeInputs(step=step) for step in range(7)])
    assert [rule.batch_and_rate(growth)[0] for growth in found] == [10, 10, 10, 13, 13, 13, 16]


def test_all_problems_of_a_rule_are_reported_at_once():
    with pytest.raises(SalmonError) as refused:
        GeoDamp(0, maximum=-1, delay=0)
    for problem in ("initial is 0", "maximum is -1", "delay is 0"):
        assert problem in str(refused.value)
