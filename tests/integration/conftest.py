"""Fixtures of the tests that hold the learning loop in their hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from backend.service import Service
from backend.store import Store as BackendStore
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor

SPEC = "targets: 30\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\nseed: 11\n"


@pytest.fixture
def backend_url(data_directory: DataDirectory) -> str:
    return data_directory.redis_url("backend", data_directory.credentials().backend)


@pytest.fixture
def open_service(backend_url: str) -> Iterator[Callable[..., Service]]:
    """Makes services; each is stopped at the end."""
    made: list[tuple[Service, BackendStore]] = []

    def make(store: BackendStore | None = None) -> Service:
        own = store or BackendStore(backend_url)
        service = Service(own, SerialExecutor)
        made.append((service, own))
        return service

    yield make
    for service, own in made:
        service.stop()
        service.close()
        own.close()
