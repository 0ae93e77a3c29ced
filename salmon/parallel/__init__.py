"""One interface for work in this process and on a Dask cluster; `salmon.parallel.dask` loads Dask when imported."""

from salmon.parallel.executor import Executor, SerialExecutor, Task, on_executor

__all__ = ["Executor", "SerialExecutor", "Task", "on_executor"]
