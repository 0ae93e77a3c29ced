"""Every rank takes the same decisions: batch, period, step size and stop, from figures that have travelled."""

import threading
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import torch

from salmon.errors import SalmonError
from salmon.parallel.dask import local_cluster
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    Crossbow,
    FollowNoiseScale,
    NoiseScale,
    RadaDamp,
    SmoothedLoss,
    VirtualGroup,
)
from salmon.training.batch_size import ConstantBatch
from salmon.training.groups import Meeting, ProcessRanks, VirtualRanks, count_all_gather, count_exchange, open_store
from tests.unit.training.agreement import (
    AVERAGINGS,
    NOISE_POLICY,
    POLICIES,
    RULES,
    SIZES,
    LossPolicy,
    check_alike,
    every_combination,
    every_pair,
    follow,
    follow_in_processes,
    job_of,
    until_low,
)
from tests.unit.training.problems import train


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
        self.bytes_sent = 0
        self._rank, self._exchange = rank, exchange

    def reduce(self, vectors):
        received = self._exchange(self._rank, vectors[0].clone())
        self.bytes_sent += count_exchange(self.size, vectors[0])
        return sum(received[1:], start=received[0])

    def gather(self, vectors):
        received = self._exchange(self._rank, vectors[0].clone())
        self.bytes_sent += count_exchange(self.size, vectors[0])
        return torch.stack(received)

    def while_waiting(self, task):
        if task is not None:
            task()

    def reduce_coded(self, payloads, expand):
        received = self._exchange(self._rank, payloads[0])
        self.bytes_sent += count_all_gather(self.size, [len(each) for each in received])
        return np.stack([expand(each) for each in received]).sum(axis=0, dtype=np.float32)

    def asked_to_regroup(self):
        return False


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
    job = job_of(batch_size=rule, averaging=averaging, until=until_low)
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
    store = open_store("127.0.0.1", timeout.total_seconds())
    job = job_of(until=lambda row: row["step"] >= 10, **options)

    def start(rank):
        meeting = Meeting("127.0.0.1", store.port, "here", rank, 2, 2, timeout.total_seconds())
        own, process_group = meeting.join()
        return follow(job, ProcessRanks(process_group, own, meeting))

    traces = follow_all(2, start)
    check_alike(traces)
    assert [decided[-1] for decided in traces[0].decisions].count(True) == 1
    if "compression" not in options and "policies" not in options:
        check_virtual(job, traces)


@pytest.fixture(scope="module")
def four_processes():
    with local_cluster(max(SIZES)) as executor:
        yield executor


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_every_pair_of_methods_decides_alike_in_separate_processes(four_processes, size):
    jobs = list(every_pair())
    for traces in follow_in_processes(four_processes, jobs, size):
        check_alike(traces)


CHANGING = {
    "batch or rate": [{"batch_size": rule} for rule in RULES if not isinstance(rule, ConstantBatch)]
    + [{"policies": tuple(policies), "monitors": tuple(monitors)} for policies, monitors in [*POLICIES, NOISE_POLICY]],
    "period": [{"averaging": each} for each in AVERAGINGS if isinstance(each, ADPSGD)],
}


@pytest.mark.parametrize(
    ("decision", "options"), [(name, each) for name in CHANGING for each in CHANGING[name]], ids=str
)
def test_the_runs_are_long_enough_for_decisions_to_change(decision, options):
    decided = follow(job_of(**options), VirtualRanks(2, 2)).decisions
    chosen = {each[4] if decision == "period" else (each[0], each[2]) for each in decided}
    assert len(chosen) > 1


def test_some_runs_are_stopped_and_others_are_not():
    stopped = {
        follow(job_of(averaging=each, until=until_low), VirtualRanks(2, 2)).decisions[-1][-1] for each in AVERAGINGS
    }
    assert stopped == {True, False}


def test_the_jobs_of_the_suite_have_every_pair_that_the_product_has():
    def pairs(jobs):
        parts = [(str(job.batch_size), str(job.averaging) + str(job.compression), names(job.policies)) for job in jobs]
        return {(one, two) for part in parts for one in part for two in part}

    def names(policies):
        return str([type(policy).__name__ for policy in policies])

    assert pairs(every_pair()) == pairs(every_combination())


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
