"""Small networks train fastest on one thread; modules are initialised alike in every run of a test."""

import logging
from collections.abc import Iterator

import pytest
import torch

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


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[DaskExecutor]:
    """Two workers for all tests of the package; a worker killed by a test is replaced."""
    # Nannies log that they restart a killed worker, which some of these tests do on purpose.
    logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
    logging.getLogger("distributed.scheduler").setLevel(logging.CRITICAL)
    with local_cluster(2) as executor:
        yield executor


@pytest.fixture
def cluster(shared_cluster: DaskExecutor) -> DaskExecutor:
    """The shared cluster with both workers present."""
    shared_cluster.wait_for(2, timeout_s=60)
    return shared_cluster
