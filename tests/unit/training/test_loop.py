"""The training loop in virtual groups computes what the formulas say, for any number of ranks."""

from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import nan

import numpy as np
import pytest
import torch

from salmon.errors import SalmonError
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    Crossbow,
    EntrywiseAtomo,
    FollowNoiseScale,
    GeoDamp,
    GeoDampLR,
    GradientVariance,
    InverseStep,
    NoiseScale,
    RadaDamp,
    SmoothedLoss,
    SpectralAtomo,
    StepPlan,
    StepsAt,
    TernGrad,
    VirtualGroup,
    WorkersFollow,
    fit,
)
from salmon.training.examples import ShuffledOrder
from salmon.training.loop import choose_replicas
from salmon.training.state import SegmentOutcome
from tests.unit.training.problems import ROWS, losses, network, regression, train
from tests.unit.training.uncoded import without_codes


def parameters(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


def gradient_on(rows, module):
    """The gradient of the mean loss on some rows."""
    inputs, labels = regression()
    torch.nn.functional.mse_loss(module(inputs[rows]), labels[rows]).backward()
    return np.concatenate([each.grad.numpy().ravel() for each in module.parameters()])


def test_one_rank_is_plain_stochastic_gradient_descent():
    module, (inputs, labels) = network(), regression()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(4):
        for chosen in ShuffledOrder(ROWS, [0, epoch]).part(0, ROWS).reshape(-1, 20):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(module(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
    assert parameters(train(1).module) == pytest.approx(parameters(module), abs=1e-5)


@pytest.mark.parametrize("ranks", [2, 3, 7])
@pytest.mark.parametrize(
    "batch_size", [20, GeoDamp(8, delay=1, factor=2, maximum=40), RadaDamp(8, memory=0.5), AdaDamp(8)]
)
def test_the_number_of_ranks_only_changes_rounding(ranks, batch_size):
    alone, shared = train(1, batch_size=batch_size), train(ranks, batch_size=batch_size)
    assert [row["batch_size"] for row in shared.history.rows] == [row["batch_size"] for row in alone.history.rows]
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-3)


def test_averaging_parameters_in_every_step_equals_full_synchronisation():
    # Without momentum the mean of the steps is the step along the mean gradient.
    alone, averaged = train(1, momentum=0), train(4, momentum=0, averaging=CPSGD(1))
    assert parameters(averaged.module) == pytest.approx(parameters(alone.module), abs=1e-5)


def test_a_constant_period_sends_a_fraction_of_the_bytes():
    full, seldom = train(4, epochs=8), train(4, averaging=CPSGD(6), epochs=8)
    assert seldom.history.rows[-1]["synchronisations"] == 8
    assert seldom.history.rows[-1]["bytes_sent"] < full.history.rows[-1]["bytes_sent"] / 5
    assert losses(seldom)[-1] < losses(seldom)[0] / 5


def test_the_variance_of_replicas_is_measured_before_they_are_averaged():
    variance, places = train(3, averaging=CPSGD(4), epochs=1).history.select_measured("replica_variance")
    assert places.tolist() == [0, 4]
    assert (variance > 0).all()
    # The first synchronisation follows one step from a common start: the variance is that of the three first steps.
    parts = np.split(ShuffledOrder(ROWS, [0, 0]).part(0, 20), [6, 13])
    ends = np.array([-0.02 * gradient_on(part, network()) for part in parts])
    assert variance[0] == pytest.approx(((ends - ends.mean(axis=0)) ** 2).sum(axis=1).mean(), rel=1e-3)


def test_the_adaptive_period_moves_in_the_loop():
    trained = train(4, averaging=ADPSGD(sampling_steps=12, initial_period=2), epochs=12, policies=[StepsAt((4,))])
    assert trained.history["period"][:12].tolist() == [2] * 12
    assert trained.state.averaging.c2 > 0
    assert losses(trained)[-1] < losses(trained)[0] / 5


def test_crossbow_follows_its_formula():
    trained = train(1, averaging=Crossbow(2, correction=0.3, momentum=0.4), batch_size=10, epochs=0.5, momentum=0)
    start = parameters(network())
    replicas, centre, before = [start.copy(), start.copy()], start.copy(), start.copy()
    order = ShuffledOrder(ROWS, [0, 0]).part(0, ROWS)
    for step in range(3):
        corrections = []
        for each in range(2):
            chosen = order[20 * step + 10 * each : 20 * step + 10 * each + 10]
            module = network()
            torch.nn.utils.vector_to_parameters(torch.from_numpy(replicas[each]), module.parameters())
            corrections.append(0.3 * (replicas[each] - centre))
            replicas[each] = replicas[each] - 0.02 * gradient_on(chosen, module) - corrections[-1]
        centre, before = centre + sum(corrections) + 0.4 * (centre - before), centre
    assert trained.state.arrays["weights"] == pytest.approx(np.array(replicas), abs=1e-5)
    assert parameters(trained.module) == pytest.approx(centre, abs=1e-5)


def test_crossbow_chooses_the_number_of_replicas():
    trained = train(1, averaging=Crossbow(), batch_size=4, epochs=2)
    assert trained.job.averaging.count >= 1
    assert trained.history.rows[0]["batch_size"] == min(ROWS, 4 * trained.job.averaging.count)


class TimedGroup:
    """A group whose steps take a set time, and whose loss falls at a set rate, for each number of replicas."""

    size = 1

    def __init__(self, seconds, fall):
        self.seconds, self.fall, self.counts = seconds, fall, []

    def run(self, job, data, state, end_epoch):
        count = job.averaging.count
        self.counts.append(count)
        rows = []
        for step in range(1, int(end_epoch * 30) + 1):
            rows.append({"step": step, "seconds": step * self.seconds(count), "loss": self.fall(count) ** step})
            if job.until is not None and job.until(rows[-1]):
                break
        return SegmentOutcome(state, tuple(rows), "finished")


@pytest.mark.parametrize(
    ("seconds", "fall", "chosen", "tried"),
    [
        # Four replicas cost what one does and need half the steps; more of them only cost more.
        (lambda count: max(1, count / 4), lambda count: 0.98 ** min(count, 4), 4, [1, 2, 4, 8]),
        # Replicas cost nothing, but do not help: throughput alone would choose the most.
        (lambda count: 1.0, lambda count: 0.98, 1, [1, 2]),
        # They help, but each costs as much as the first.
        (float, lambda count: 0.98**count, 1, [1, 2]),
        (lambda count: 1.0, lambda count: 0.995**count, 32, [1, 2, 4, 8, 16, 32]),
    ],
    ids=["four", "no help", "no gain", "as many as allowed"],
)
def test_replicas_are_doubled_as_long_as_the_target_is_reached_sooner(seconds, fall, chosen, tried):
    group = TimedGroup(seconds, fall)
    job = replace(train(1, epochs=0.1).job, averaging=Crossbow(), epochs=100)
    assert choose_replicas(job, regression(), group) == chosen
    assert group.counts == tried


@pytest.mark.parametrize("compression", [QSGD(8), SpectralAtomo(3)], ids=str)
def test_compressed_gradients_train_with_fewer_bytes(compression):
    # Wide enough that headers, of which compressed gradients have more, do not decide.
    module = torch.nn.Sequential(torch.nn.Linear(6, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
    plain, coded = (
        train(3, module=deepcopy(module), epochs=8, rate=0.005, **options)
        for options in ({}, {"compression": compression})
    )
    assert losses(coded)[-1] < losses(coded)[0] / 5
    assert coded.history.rows[-1]["bytes_sent"] < plain.history.rows[-1]["bytes_sent"]


def test_at_the_maximum_batch_the_learning_rate_falls_instead():
    rows = train(2, batch_size=GeoDamp(10, delay=1, factor=2, maximum=20), epochs=4).history.rows
    last = {int(row["epoch"] - 1e-6): (row["batch_size"], row["learning_rate"]) for row in rows}
    assert last == {0: (10, 0.02), 1: (20, 0.02), 2: (20, 0.01), 3: (20, 0.005)}


def test_an_lr_variant_keeps_the_batch_and_lowers_the_rate():
    rows = train(1, batch_size=GeoDampLR(20, delay=2, factor=4), epochs=4).history.rows
    assert {(row["batch_size"], row["learning_rate"]) for row in rows} == {(20, 0.02), (20, 0.005)}


def test_the_noise_scale_is_that_of_the_examples():
    # A linear function that hardly changes: noise and signal can be computed from each example's gradient.
    module = torch.nn.Linear(6, 1, bias=False)
    inputs, labels = regression()
    each = 2 * (module(inputs) - labels).detach() * inputs
    mean = each.mean(dim=0)
    expected = float(((each - mean) ** 2).sum(dim=1).mean() / (mean @ mean))
    trained = train(
        4, module=module, rate=1e-7, momentum=0, epochs=400, batch_size=40, monitors=[NoiseScale(0.999), GradientVariance(0.999)]
    )  # fmt: skip
    assert trained.history.rows[-1]["noise_scale"] == pytest.approx(expected, rel=0.25)
    assert trained.history.rows[-1]["gradient_variance"] == pytest.approx(
        float(((each - mean) ** 2).sum(dim=1).mean()), rel=0.15
    )


def noise_scales(epochs, **options):
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 1))
    torch.nn.utils.vector_to_parameters(torch.linspace(-1, 1, 65), module.parameters())
    options = {"rate": 1e-9, "momentum": 0, "epochs": epochs, "batch_size": 40, **options}
    return train(4, module=module, monitors=[NoiseScale(0.999)], **options).history["noise_scale"]


@pytest.fixture(scope="module")
def uncompressed_noise_scale():
    return noise_scales(400)[-1]


@pytest.mark.parametrize("compression", [QSGD(1), QSGD(4), SpectralAtomo(1, bits=4)], ids=str)
def test_the_noise_scale_is_that_of_uncompressed_gradients(compression, uncompressed_noise_scale):
    with without_codes():
        found = noise_scales(400, compression=compression)
    assert found[-1] == pytest.approx(uncompressed_noise_scale, rel=0.3)
    coded = noise_scales(20, compression=compression)
    np.testing.assert_array_equal(coded, found[: len(coded)])


def test_the_value_of_a_monitor_stays_the_same_between_measurements():
    often, seldom = (
        train(2, monitors=[NoiseScale(0.0, every=every), SmoothedLoss(0.0, every=every)]).history for every in (1, 3)
    )
    assert losses(train(2)).tolist() == seldom["loss"].tolist()
    assert seldom["smoothed_loss"].tolist() == np.repeat(seldom["loss"][::3], 3).tolist()
    # Without smoothing, a value depends on one step only.
    shown = [row.get("noise_scale") for row in often.rows]
    assert [row.get("noise_scale") for row in seldom.rows] == [shown[k - k % 3] for k in range(len(shown))]
    assert len(set(shown)) > 3


def test_a_policy_follows_the_noise_scale_and_workers_follow_the_batch():
    trained = train(
        2, epochs=12, monitors=[NoiseScale(0.5), SmoothedLoss()],
        policies=[FollowNoiseScale(10, 60), WorkersFollow(10, minimum=2)],
    )  # fmt: skip
    batches = trained.history["batch_size"]
    assert batches[0] == 10
    assert batches.max() > 30
    largest = [row["workers"] for row in trained.history.rows if row["batch_size"] == batches.max()]
    assert set(largest) == {-(-batches.max() // 10)}


def test_the_default_batch_grows_once_the_loss_no_longer_falls():
    batches = fit(
        network(), regression(), partial(torch.optim.SGD, lr=0.02), loss=torch.nn.MSELoss(reduction="none"), epochs=40
    ).history["batch_size"]
    # An epoch has 120 examples, and its last batch those that are left.
    assert batches[:8].tolist() == [32, 32, 32, 24] * 2
    assert batches.max() == 32
    history = fit(
        torch.nn.Linear(6, 1),
        [each.repeat(5, 1) for each in regression()],
        partial(torch.optim.SGD, lr=0.1),
        loss=torch.nn.MSELoss(reduction="none"),
        epochs=40,
    ).history
    # An eighth of the examples at most; then the learning rate falls.
    assert history["batch_size"].max() == 75
    assert history["learning_rate"].min() < 0.1


def follow_noise(scales, policy):
    """Return the batches that a policy plans for these measurements."""
    figures, planned = {}, []
    for scale in scales:
        plan = policy({**figures, "noise_scale": scale}, StepPlan(1))
        planned.append(plan.batch_size)
        figures = {"planned_batch_size": plan.batch_size}
    return planned


def test_a_few_wrong_measurements_of_the_noise_hardly_change_the_batch():
    scales = [nan if k % 7 == 0 else 1e12 if k % 50 == 25 else 40.0 for k in range(400)]
    batches = follow_noise(scales, FollowNoiseScale(32, 4096))
    assert batches == sorted(batches)
    assert batches[-1] <= 60
    assert follow_noise([1e12] * 200, FollowNoiseScale(32, 4096))[-1] == 4096


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_noise_scale_policy_does_not_drive_the_loss_away(ranks):
    # Noisy labels, and a rate at which small batches keep the parameters far from their optimum.
    options = {"rate": 0.05, "epochs": 60, "batch_size": 8}
    small = train(ranks, **options)
    for seed in range(3):
        followed = train(
            ranks, monitors=[NoiseScale(0.0, every=1)], policies=[FollowNoiseScale(8, 64)], seed=seed, **options
        )
        batches = [row["batch_size"] for row in followed.history.rows if row["batch_size"] >= 8]
        assert max(batches) == 64
        assert np.mean(losses(followed)[-20:]) <= 1.1 * np.mean(losses(small)[-20:])


def test_policies_are_functions_of_the_last_row():
    seen = []

    def remember(figures, plan):
        seen.append(dict(figures))
        return replace(plan, rate_factor=0.5)

    trained = train(1, policies=[remember, InverseStep(2)], epochs=1)
    assert [figures["step"] for figures in seen] == [0, 1, 2, 3, 4, 5]
    assert seen[3]["loss"] == trained.history.rows[2]["loss"]
    assert trained.history["learning_rate"] == pytest.approx([0.01, 0.01, *(0.01 * 2 / k for k in (3, 4, 5, 6))])


def test_watched_figures_are_in_the_history_and_can_end_the_run():
    calls = []

    def watch(module):
        calls.append(module.training)
        return {"size": float(sum(each.abs().sum() for each in module.parameters()))}

    trained = train(2, watch=watch, watch_every=2, until=lambda row: row["step"] >= 5)
    # The request to finish travels with the next exchange; a single rank finishes at once.
    assert len(trained.history) == 6
    assert calls == [False, False, False]
    assert trained.history.select_measured("size")[1].tolist() == [1, 3, 5]
    assert len(train(1, until=lambda row: row["step"] >= 5).history) == 5


@pytest.mark.parametrize("averaging", [None, CPSGD(2), Crossbow(2)], ids=str)
def test_modules_with_buffers_and_dropout_train_too(averaging):
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1)
    )
    before = deepcopy(module[1].running_mean)
    trained = train(2, module=module, averaging=averaging, epochs=20)
    assert losses(trained)[-1] < losses(trained)[0] / 3
    assert not torch.equal(trained.module[1].running_mean, before)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda: train(1, loss=torch.nn.MSELoss()), 'reduction="none"'),
        (lambda: fit(network(), regression(), torch.optim.LBFGS, loss=torch.nn.MSELoss(reduction="none")), "element-wise"),
        (lambda: train(1, rate=1e6, epochs=50), "Lower the learning rate"),
        (lambda: train(1, monitors=[SmoothedLoss(), SmoothedLoss()]), "smoothed_loss"),
        (lambda: train(2, monitors=[NoiseScale(every=0)]), "every 0 steps"),
        (lambda: VirtualGroup(0), "0 ranks"),
    ],
    ids=[
        "a loss averaged over examples", "an optimiser that mixes parameters", "divergence",
        "two monitors of one name", "a monitor that never measures", "an empty group",
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_with_advice(start, words):
    with pytest.raises(SalmonError, match=words):
        start()


@pytest.mark.parametrize("rate", [3.0, 100.0, 1e6, 1e15])
@pytest.mark.parametrize(
    "compression",
    [QSGD(4), QSGD(8, bucket=64), TernGrad(), EntrywiseAtomo(0.1), SpectralAtomo(2, bits=4), SpectralAtomo(2, bits=32)],
    ids=str,
)
def test_a_compressed_run_that_diverges_ends_with_advice_and_without_warnings(compression, rate):
    followed = {"monitors": [NoiseScale()], "policies": [FollowNoiseScale(20, 60)]}
    # Warnings are errors in tests.
    with pytest.raises(SalmonError, match=r"diverged.*ower the learning rate"):
        train(2, rate=rate, epochs=50, compression=compression, **followed)


def test_all_impossible_combinations_are_reported_at_once():
    with pytest.raises(SalmonError) as refused:
        train(1, compression=QSGD(), averaging=CPSGD(), monitors=[NoiseScale()])
    for problem in (
        "QSGD compresses gradients, but CPSGD exchanges parameters",
        "noise_scale needs averaged gradients",
        "needs at least two",
    ):
        assert problem in str(refused.value)


def test_a_single_crossbow_replica_is_plain_gradient_descent():
    assert losses(train(1, averaging=Crossbow(1))).tolist() == losses(train(1)).tolist()
