"""What ranks decide in each step of a job: every rule, policy, averaging and compression, on threads, and
on processes connected by gloo.

    python -m tests.unit.training.agreement

runs the product of all of them on two and four processes, and prints how many were alike. The test
suite runs every pair of them.
"""

import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from salmon.parallel.dask import local_cluster
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    AdaDampLR,
    Crossbow,
    EntrywiseAtomo,
    FollowNoiseScale,
    GeoDamp,
    GeoDampLR,
    InverseStep,
    NoiseScale,
    PadaDamp,
    PadaDampLR,
    PlateauDamp,
    RadaDamp,
    RadaDampLR,
    SmoothedLoss,
    SpectralAtomo,
    StepsAt,
    TernGrad,
    WorkersFollow,
)
from salmon.training.averaging import FullSync
from salmon.training.batch_size import ConstantBatch
from salmon.training.groups import Meeting, ProcessRanks, open_store
from salmon.training.loop import initial_state
from salmon.training.state import TrainingJob
from salmon.training.steps import Steps
from tests.unit.training.problems import network, regression

#: So few examples that an epoch has 4 to 6 steps: rules that count epochs decide several times in a run.
EXAMPLES, STEPS = 48, 14
SIZES = (2, 4)
TIMEOUT_S = 60.0


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
    PlateauDamp(8, tolerance=0.99),
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
COMPRESSIONS = [QSGD(6), QSGD(2, bucket=16), TernGrad(), EntrywiseAtomo(0.3), SpectralAtomo(1, bits=4)]
#: How ranks exchange: an averaging without compression, or compressed gradients.
EXCHANGES: list[dict[str, Any]] = [
    *({"averaging": each} for each in AVERAGINGS),
    *({"compression": each} for each in COMPRESSIONS),
]
NO_POLICY, NOISE_POLICY = ((), ()), ([FollowNoiseScale(8, 40)], [NoiseScale(0.5)])


@dataclass
class Trace:
    """What one rank decided in each step, and its parameters after each agreement."""

    decisions: list
    figures: list
    parameters: list


def until_low(row):
    """End a run where the loss is low."""
    return row["loss"] < 1.2 and row["step"] > 11


def job_of(**options):
    """Return a job on the regression."""
    options = {"loss": torch.nn.MSELoss(reduction="none"), "epochs": 100, **options}
    return TrainingJob(network(), partial(torch.optim.SGD, lr=0.02, momentum=0.9), **options)


def combine(rule, policy, exchange):
    """Return a job; policies that need averaged gradients are replaced where parameters are averaged."""
    averaged = exchange.get("averaging", FullSync()).differ
    policies, monitors = POLICIES[0] if averaged and policy is NOISE_POLICY else policy
    return job_of(
        batch_size=rule, policies=tuple(policies), monitors=tuple(monitors), until=until_low, **exchange
    )  # fmt: skip


def every_pair() -> Iterator[Any]:
    """Yield jobs among which every rule meets every exchange, every policy every rule,
    and every policy every exchange.
    """
    policies = [NO_POLICY, *POLICIES, NOISE_POLICY]
    for i, rule in enumerate(RULES):
        for j, exchange in enumerate(EXCHANGES):
            yield combine(rule, policies[(i + j) % len(policies)], exchange)
        # It is replaced where parameters are averaged, and some rules would never meet it.
        yield combine(rule, NOISE_POLICY, EXCHANGES[0])


def every_combination() -> Iterator[Any]:
    """Yield all jobs."""
    for rule in RULES:
        for exchange in EXCHANGES:
            averaged = exchange.get("averaging", FullSync()).differ
            for policy in [NO_POLICY, *POLICIES, *([] if averaged else [NOISE_POLICY])]:
                yield combine(rule, policy, exchange)


def follow(job, ranks):
    """Run one process of a group for some steps."""
    job = replace(job, module=deepcopy(job.module))
    data = tuple(each[:EXAMPLES] for each in regression())
    steps, trace = Steps(job, data, initial_state(job), ranks), Trace([], [], [])
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


def follow_in_process(jobs, meeting):
    """Run jobs one after another as one rank of a gloo group, inside a worker, and return their traces."""
    torch.set_num_threads(1)
    store, process_group = meeting.join()
    try:
        return [follow(job, ProcessRanks(process_group, store, meeting)) for job in jobs]
    finally:
        process_group.abort()


def follow_in_processes(executor, jobs, size) -> list[list[Trace]]:
    """Return the traces of all ranks for each job, from as many worker processes as there are ranks."""
    store = open_store(executor.host, TIMEOUT_S)
    tasks = [
        executor.submit_at(
            address, follow_in_process, jobs, Meeting(executor.host, store.port, f"agreement of {size}", rank, size, size, TIMEOUT_S),
            name=f"agreement-{rank}",
        )
        for rank, address in enumerate(executor.addresses()[:size])
    ]  # fmt: skip
    return [list(traces) for traces in zip(*(task.result() for task in tasks), strict=True)]


def check_alike(traces):
    """Assert that all ranks decided alike and agreed on their parameters."""
    first = traces[0]
    for other in traces[1:]:
        assert other.decisions == first.decisions
        assert other.figures == first.figures
        assert len(other.parameters) == len(first.parameters) > 0
        for ours, theirs in zip(first.parameters, other.parameters, strict=True):
            assert np.array_equal(ours, theirs)


def main() -> int:
    """Run all combinations on processes; return 1 if ranks differed in any."""
    torch.set_num_threads(1)
    failed = 0
    with local_cluster(max(SIZES)) as executor:
        for size in SIZES:
            jobs, started = list(every_combination()), time.monotonic()
            for job, traces in zip(jobs, follow_in_processes(executor, jobs, size), strict=True):
                try:
                    check_alike(traces)
                except AssertionError:
                    failed += 1
                    sys.stdout.write(
                        f"{size} processes differ: {job.batch_size} {job.averaging} {job.compression} {job.policies}\n"
                    )
            sys.stdout.write(f"{len(jobs)} combinations on {size} processes in {time.monotonic() - started:.0f} s\n")
    sys.stdout.write(f"{failed} combinations in which ranks differ\n")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
