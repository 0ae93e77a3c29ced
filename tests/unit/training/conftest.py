"""Small networks train fastest on one thread; modules are initialised alike in every run of a test."""

import logging
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack

import dask.config
import pytest
import torch
from distributed.utils import get_mp_context

from salmon.errors import SalmonError
from salmon.parallel.dask import DaskExecutor, local_cluster


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True, scope="package")
def forked_workers() -> Iterator[None]:
    """Fork workers from a process that has imported everything once; a new process needs two seconds for it."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context()  # Dask's own list of modules, which is replaced
        multiprocessing.get_context("forkserver").set_forkserver_preload(["distributed", "tests.unit.training.preload"])
        yield


class SharedCluster:
    """Two workers for all tests of the package; a worker killed by a test is replaced."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self.executor = self._open.enter_context(local_cluster(2))

    def ready(self) -> DaskExecutor:
        """Return it with both workers; on a busy machine a nanny may not bring its
        worker back, so it begins anew then.
        """
        try:
            self.executor.wait_for(2, timeout_s=30)
        except SalmonError:
            self.close()
            self.executor = self._open.enter_context(local_cluster(2))
            self.executor.wait_for(2, timeout_s=60)
        return self.executor

    def close(self) -> None:
        self._open.close()


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[SharedCluster]:
    # Nannies log that they restart a killed worker, which some of these tests do on purpose.
    logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
    logging.getLogger("distributed.scheduler").setLevel(logging.CRITICAL)
    shared = SharedCluster()
    yield shared
    shared.close()


@pytest.fixture
def cluster(shared_cluster: SharedCluster) -> DaskExecutor:
    """The shared cluster with both workers present."""
    return shared_cluster.ready()
