"""Every rank takes the same decisions: batch, period, step size and stop, from figures that have travelled."""

import threading
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributed import TCPStore

from salmon.errors import SalmonError
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    AdaDampLR,
    Crossbow,
    FollowNoiseScale,
    GeoDamp,
    GeoDampLR,
    InverseStep,
    NoiseScale,
    PadaDamp,
    PadaDampLR,
    RadaDamp,
    RadaDampLR,
    SmoothedLoss,
    StepsAt,
    VirtualGroup,
    WorkersFollow,
)
from salmon.training.averaging import FullSync
from salmon.training.batch_size import ConstantBatch
from salmon.training.groups import Meeting, ProcessRanks, VirtualRanks
from salmon.training.loop import initial_state
from salmon.training.state import TrainingJob
from salmon.training.steps import Steps
from tests.unit.training.problems import network, regression, train

STEPS = 22


class LossPolicy:
    """Change batch, rate and workers with the loss, as a policy of a user may."""

    def __call__(self, figures, plan):
        loss = figures.get("loss", 1.0)
        return replace(plan, batch_size=8 + int(1e4 * loss) % 13, rate_factor=1 / (1 + loss))


class SmoothedPolicy:
    """Choose the batch from a monitor."""

    def __call__(self, figures, plan):
        return replace(plan, batch_size=8 + int(1e4 * figures.get("smoothed_loss", 1.0)) % 13)


RULES = [
    ConstantBatch(12),
    GeoDamp(8, delay=1, factor=2),
    PadaDamp(8, rate=0.5),
    RadaDamp(8, memory=0.5),
    AdaDamp(8, dwell=3),
    AdaDamp(8, gradient=True),
    GeoDampLR(12, delay=1, factor=2),
    PadaDampLR(12, rate=0.5),
    RadaDampLR(12, memory=0.5),
    AdaDampLR(12),
]
AVERAGINGS = [
    FullSync(),
    CPSGD(4),
    ADPSGD(sampling_steps=6, initial_period=3),
    ADPSGD(sampling_steps=4, initial_period=2, warmup_steps=2),
    Crossbow(2),
    Crossbow(1, momentum=0.5),
]
POLICIES = [
    ([LossPolicy()], []),
    ([SmoothedPolicy()], [SmoothedLoss()]),
    ([InverseStep(4), StepsAt((1, 2))], []),
    ([LossPolicy(), WorkersFollow(10)], []),
]


class SharedExchange:
    """Slots in which the ranks of a group, each a thread, leave what they send."""

    def __init__(self, size):
        self.slots, self.barrier = [None] * size, threading.Barrier(size)

    def __call__(self, rank, sent):
        self.slots[rank] = sent
        self.barrier.wait(timeout=30)
        received = list(self.slots)
        self.barrier.wait(timeout=30)
        return received


class ThreadRanks:
    """One rank of a group of threads: it knows of the others only what they send."""

    def __init__(self, rank, size, exchange):
        self.size = self.largest = size
        self.local = range(rank, rank + 1)
        self._rank, self._exchange = rank, exchange

    def reduce(self, vectors):
        received = self._exchange(self._rank, vectors[0].clone())
        return sum(received[1:], start=received[0])

    def reduce_coded(self, payloads, expand):
        received = self._exchange(self._rank, payloads[0])
        return np.stack([expand(each) for each in received]).sum(axis=0, dtype=np.float32)

    def asked_to_regroup(self):
        return False


@dataclass
class Trace:
    """What one rank decided in each step, and its parameters after each agreement."""

    decisions: list
    figures: list
    parameters: list


def job_of(**options):
    options = {"loss": torch.nn.MSELoss(reduction="none"), "epochs": 100, **options}
    return TrainingJob(network(), partial(torch.optim.SGD, lr=0.02, momentum=0.9), **options)


def follow(job, ranks):
    """Run one process of a group for some steps."""
    job = replace(job, module=deepcopy(job.module))
    steps, trace = Steps(job, regression(), initial_state(job), ranks), Trace([], [], [])
    before = 0
    for _ in range(STEPS):
        plan = steps.plan()
        row = steps.take(plan)
        finish = steps.synchronisation.finish
        trace.decisions.append(
            (plan.batch_size, row["batch_size"], plan.rate_factor, plan.workers, row.get("period"), finish)
        )
        trace.figures.append({name: value for name, value in row.items() if name != "seconds"})
        # Replicas of Crossbow differ on purpose; their central average is what ranks agree on.
        central = steps.synchronisation.arrays().get("centre")
        if row["synchronisations"] > before:
            trace.parameters.append(steps.state().weights if central is None else central[0])
        before = row["synchronisations"]
        if finish:
            break
    return trace


def follow_all(size, start):
    """Run `start(rank)` in a thread for each rank, and return the traces of all of them."""
    traces, errors = [None] * size, []

    def run(rank):
        try:
            traces[rank] = start(rank)
        except Exception as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=60)
    assert errors == []
    return traces


def check_alike(traces):
    first = traces[0]
    for other in traces[1:]:
        assert other.decisions == first.decisions
        assert other.figures == first.figures
        assert len(other.parameters) == len(first.parameters) > 0
        for ours, theirs in zip(first.parameters, other.parameters, strict=True):
            assert np.array_equal(ours, theirs)


def check_virtual(job, traces):
    """A virtual group shows what separate ranks show; only rounding differs."""
    virtual, size = follow(job, VirtualRanks(len(traces), len(traces))), len(traces)
    assert len(virtual.figures) == len(traces[0].figures), size
    for ours, theirs in zip(virtual.figures, traces[0].figures, strict=True):
        assert ours == pytest.approx(theirs, rel=5e-3, abs=1e-6)


def threads_of(job, size):
    exchange = SharedExchange(size)
    return follow_all(size, lambda rank: follow(job, ThreadRanks(rank, size, exchange)))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("averaging", AVERAGINGS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_decides_alike_on_all_ranks(rule, averaging, size):
    job = job_of(batch_size=rule, averaging=averaging, until=lambda row: row["loss"] < 0.4 and row["step"] > 9)
    traces = threads_of(job, size)
    check_alike(traces)
    check_virtual(job, traces)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("averaging", AVERAGINGS, ids=str)
@pytest.mark.parametrize(("policies", "monitors"), POLICIES, ids=["loss", "monitor", "rate", "workers"])
def test_every_policy_decides_alike_on_all_ranks(policies, monitors, averaging, size):
    job = job_of(policies=tuple(policies), monitors=tuple(monitors), averaging=averaging)
    check_alike(threads_of(job, size))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("policies", [(), (FollowNoiseScale(8, 40),)], ids=["no policy", "noise scale"])
def test_compressed_gradients_are_decided_on_alike(rule, policies, size):
    job = job_of(batch_size=rule, compression=QSGD(6), monitors=(NoiseScale(0.5),), policies=policies)
    check_alike(threads_of(job, size))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": RadaDamp(8, memory=0.5), "averaging": CPSGD(4)},
        {"batch_size": RadaDamp(8, memory=0.5), "averaging": ADPSGD(sampling_steps=6, initial_period=3)},
        {"batch_size": AdaDamp(8, gradient=True), "averaging": Crossbow(2)},
        {"policies": (LossPolicy(),), "averaging": ADPSGD(sampling_steps=6, initial_period=3)},
        {"policies": (LossPolicy(),), "compression": QSGD(6)},
    ],
    ids=str,
)
def test_ranks_connected_by_gloo_decide_alike(options):
    timeout = timedelta(seconds=30)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
    job = job_of(until=lambda row: row["step"] >= 15, **options)

    def start(rank):
        meeting = Meeting("127.0.0.1", store.port, "here", rank, 2, 2, timeout.total_seconds())
        own, process_group = meeting.join()
        return follow(job, ProcessRanks(process_group, own, meeting))

    traces = follow_all(2, start)
    check_alike(traces)
    assert [decided[-1] for decided in traces[0].decisions].count(True) == 1
    if "compression" not in options and "policies" not in options:
        check_virtual(job, traces)


def test_a_policy_sees_only_what_the_workers_share():
    def by_the_clock(figures, plan):
        return replace(plan, batch_size=4 if figures["step"] == 0 or figures["seconds"] < 1 else 8)

    with pytest.raises(SalmonError, match="'seconds', which the workers do not share"):
        train(2, policies=[by_the_clock])
    with pytest.raises(SalmonError, match="'watched', which the workers do not share"):
        train(
            2,
            watch=lambda module: {"watched": 1.0},
            policies=[lambda figures, plan: replace(plan, rate_factor=figures["watched"])],
        )


def test_between_agreements_the_loss_is_that_of_the_last_one():
    history = train(3, averaging=CPSGD(4), epochs=2).history
    assert len(set(history["loss"].tolist())) == 3
    assert history["loss"][4:8].tolist() == [history["loss"][4]] * 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"averaging": CPSGD(), "monitors": [SmoothedLoss(every=2)]}, "give it every=1"),
        ({"policies": [FollowNoiseScale()]}, "noise_scale, which is not among the monitors"),
        ({"averaging": CPSGD(), "compression": QSGD()}, "QSGD compresses gradients"),
        ({"averaging": ADPSGD(), "monitors": [NoiseScale()]}, "needs averaged gradients"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_its_reason(options, reason):
    with pytest.raises(SalmonError, match=reason):
        train(2, group=VirtualGroup(2), **options)
