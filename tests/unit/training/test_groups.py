"""Ranks in Dask workers: the same results as in one process, and workers that join, leave and die."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import psutil
import pytest

from salmon.errors import SalmonError
from salmon.parallel import SerialExecutor
from salmon.parallel.dask import local_cluster
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    Checkpoint,
    Crossbow,
    GeoDamp,
    NoiseScale,
    SpectralAtomo,
    TorchGroup,
    VirtualGroup,
    WorkersFollow,
)
from salmon.training.groups import TOPIC, Meeting, open_store
from tests.program import REPOSITORY
from tests.unit.training.ddp import train_with_hooks
from tests.unit.training.problems import DieOnce, UntilRejoined, fails, losses, train

pytestmark = pytest.mark.slow

WAYS = [
    {},
    {"compression": QSGD(4)},
    {"compression": SpectralAtomo(2, bits=32)},
    {"monitors": [NoiseScale()], "batch_size": GeoDamp(10, delay=2, factor=2)},
    {"averaging": CPSGD(4)},
    {"averaging": ADPSGD(sampling_steps=10, initial_period=2)},
    {"averaging": Crossbow(2), "batch_size": 5},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_processes_compute_what_virtual_ranks_compute(cluster, way):
    there, here = train(group=TorchGroup(cluster), **way), train(2, **way)
    assert there.state.weights == pytest.approx(here.state.weights, abs=1e-4)
    for column in ("step", "examples", "batch_size", "workers", "bytes_sent", "synchronisations"):
        assert there.history[column].tolist() == here.history[column].tolist()


def test_a_dask_client_can_be_given_instead_of_an_executor(cluster):
    assert losses(train(group=TorchGroup(cluster.client))) == pytest.approx(losses(train(2)), rel=1e-3)


def test_a_killed_worker_costs_one_step_and_its_replacement_joins(cluster, tmp_path):
    died = tmp_path / "died"
    trained = train(group=TorchGroup(cluster), policies=[DieOnce(died, 30)], epochs=1e6, until=UntilRejoined(died, 2))
    history = trained.history
    # No step is missing or repeated, and the losses are those of an undisturbed run.
    assert history["step"].tolist() == list(range(1, len(history) + 1))
    assert losses(trained) == pytest.approx(losses(train(2, epochs=len(history) / 6)), rel=1e-2)
    workers = history["workers"].tolist()
    assert (workers[:31], workers[-1]) == ([2] * 30 + [1], 2)


def test_the_last_worker_can_die_and_the_run_continues_from_its_checkpoint(cluster, tmp_path):
    trained = train(
        group=TorchGroup(cluster, 1), policies=[DieOnce(tmp_path / "died", 9)], epochs=3, checkpoint=tmp_path / "kept"
    )
    assert (tmp_path / "died").exists()
    assert trained.history["step"].tolist() == list(range(1, 19))
    assert losses(trained) == pytest.approx(losses(train(1, epochs=3)), rel=1e-3)
    assert Checkpoint(tmp_path / "kept").folder.exists()


def test_replicas_of_a_lost_worker_are_dropped_and_the_others_continue(cluster, tmp_path):
    trained = train(group=TorchGroup(cluster), averaging=CPSGD(4), policies=[DieOnce(tmp_path / "died", 20)], epochs=6)
    assert trained.history["step"].tolist() == list(range(1, 37))
    assert losses(trained)[-1] < losses(trained)[0] / 5


def test_workers_follow_the_batch_where_the_cluster_can_scale(tmp_path):
    with local_cluster(1) as executor:
        assert executor.scalable
        trained = train(
            group=TorchGroup(executor, 1, largest=2), batch_size=GeoDamp(10, delay=2, factor=2),
            policies=[WorkersFollow(10, maximum=2)],
        )  # fmt: skip
        assert trained.history["workers"].tolist() == [1] * 24 + [2] * 12
        assert len(executor.addresses()) == 2
        assert losses(trained) == pytest.approx(losses(train(1, batch_size=GeoDamp(10, delay=2, factor=2))), rel=1e-3)
        # Long enough for a row to be published as an event of the cluster.
        reported = train(group=TorchGroup(executor), epochs=1e6, until=lambda row: row["seconds"] > 1.5)
        events = executor.client.get_events(TOPIC)
        assert events
        assert 0 < events[-1][1]["step"] <= len(reported.history)


def test_an_exception_in_the_loss_is_raised_in_the_driver(cluster):
    with pytest.raises(ZeroDivisionError, match="the loss failed"):
        train(group=TorchGroup(cluster), loss=fails)


def test_divergence_in_the_workers_gives_the_same_message(cluster):
    with pytest.raises(SalmonError, match="Lower the learning rate"):
        train(group=TorchGroup(cluster), rate=1e6, epochs=50)


def test_threads_of_one_process_can_be_ranks_too():
    with local_cluster(2, processes=False) as executor:
        trained = train(group=TorchGroup(executor))
    assert trained.state.weights == pytest.approx(train(2).state.weights, abs=1e-4)


def test_workers_exit_when_their_driver_is_killed():
    code = (
        "from salmon.training import TorchGroup\n"
        "from salmon.parallel.dask import local_cluster\n"
        "from tests.unit.training.problems import print_step, train\n"
        "if __name__ == '__main__':\n"
        "    with local_cluster(2) as executor:\n"
        "        train(group=TorchGroup(executor), epochs=1e9, watch=print_step)\n"
    )
    # Every process that the driver starts inherits its output, which is closed once all of them have exited.
    running = subprocess.Popen(
        (sys.executable, "-c", code), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )  # fmt: skip
    with running:
        try:
            assert running.stdout.readline() == b"step\n"
            os.kill(running.pid, signal.SIGKILL)
            running.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def trained_with_hooks(tmp_path_factory):
    return train_with_hooks(tmp_path_factory.mktemp("hooks"))


@pytest.mark.parametrize(("hook", "near"), [("QSGD, 16 bits", 2e-3), ("rounded to 8 bits", 2e-2)])
def test_a_ddp_hook_averages_the_compressed_gradients(trained_with_hooks, hook, near):
    first, second, alone = trained_with_hooks[hook]
    assert first.tolist() == second.tolist()
    # So many bits are nearly exact, so both ranks average to the gradient of the whole batch.
    assert first == pytest.approx(alone, abs=near)
    assert not np.array_equal(first, alone)


def listening():
    """Addresses at which this process accepts connections."""
    return {each.laddr for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN}


def test_ranks_and_store_listen_at_their_own_address_only():
    before = listening()
    store = open_store("127.0.0.1", 30)
    _, process_group = Meeting("127.0.0.1", store.port, "here", 0, 1, 1, 30).join()
    opened = listening() - before
    process_group.abort()
    assert store.port in {each.port for each in opened}
    assert len(opened) == 2
    assert {each.ip for each in opened} == {"127.0.0.1"}


def test_two_segments_meet_under_different_names_that_cannot_be_guessed(cluster, monkeypatch):
    names = []
    place = cluster.submit_at

    def record(address, function, *arguments, name):
        names.append(arguments[-1].name)
        return place(address, function, *arguments, name=name)

    monkeypatch.setattr(cluster, "submit_at", record)
    train(group=TorchGroup(cluster), epochs=2, progress=False, checkpoint=None)
    train(group=TorchGroup(cluster), epochs=1)
    assert len(names) == 4
    assert len(set(names)) == 2
    assert all(len(name) > 32 for name in names)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: TorchGroup(SerialExecutor()),
        lambda _: TorchGroup(3),
        lambda _: VirtualGroup(3, 2),
        lambda cluster: TorchGroup(cluster, 0),
    ],
    ids=["this process", "a number", "more ranks than the largest", "no workers"],
)
def test_anything_but_a_cluster_with_workers_is_refused(cluster, wrong):
    with pytest.raises(SalmonError):
        wrong(cluster)
