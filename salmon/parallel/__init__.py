"""One interface for work in this process and on a Dask cluster; `salmon.parallel.dask` loads Dask when imported."""

from salmon.parallel.executor import ClusterAwayError, Executor, SerialExecutor, Task, on_executor

__all__ = ["ClusterAwayError", "Executor", "SerialExecutor", "Task", "on_executor"]
