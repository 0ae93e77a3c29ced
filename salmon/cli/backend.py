"""`salmon backend`: the learning process alone."""

import os
import sys


def backend() -> None:
    """Run the learning process alone; SALMON_REDIS_URL says on which store, SALMON_SCHEDULER on which Dask cluster.

    Example: SALMON_REDIS_URL=redis://backend:…@redis:6379 salmon backend
    """
    os.execv(sys.executable, (sys.executable, "-m", "backend"))  # noqa: S606
