"""Where work is done: one interface for this process and for a cluster."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self


class Task(Protocol):
    """Work handed in: its value comes with `result`."""

    def result(self) -> Any:
        """The value, waiting for it if need be; what the work raised is raised here."""
        ...

    def done(self) -> bool:
        """Whether the value is there (or will never be)."""
        ...

    def cancel(self) -> None:
        """Give up this work; nothing happens where it is already done."""
        ...


class Executor(Protocol):
    """Runs functions somewhere. Functions and arguments must travel: top-level functions and plain values."""

    @property
    def workers(self) -> int:
        """How many pieces of work can run at the same time."""
        ...

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: float = 0) -> list[Any]:
        """The values of the function over the arguments, in their order."""
        ...

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None) -> Task:
        """Hand in one piece of work. Higher priorities start first; `on` pins it to the worker of this index."""
        ...

    def as_completed(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """The tasks as they finish."""
        ...

    def scatter(self, value: Any) -> Any:
        """Move a value to the workers once; what comes back can be an argument of later work in its place."""
        ...

    def scale(self, workers: int) -> None:
        """Ask for this many workers."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...


def on_executor(given: Any) -> Executor | None:
    """An executor as it is; a Dask client as an executor on its cluster; None as None."""
    if given is None or (hasattr(given, "scatter") and hasattr(given, "workers")):
        return given
    from salmon.parallel.dask import executor_on

    return executor_on(given)
