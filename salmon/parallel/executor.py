"""Define one interface for running work in this process and on a cluster.

`SerialExecutor` needs no cluster: it does the work in this thread when its value is requested.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from salmon.errors import SalmonError, StartError


class ClusterAwayError(StartError):
    """Nobody answers where the scheduler of a cluster should be, or it has no workers."""


class Task(Protocol):
    """Submitted work, whose value `result` returns."""

    def result(self) -> Any:
        """Return the value, waiting for it if need be; raise what the work raised, or ClusterAwayError."""
        ...

    def done(self) -> bool:
        """Whether the value is there (or will never be)."""
        ...

    def cancel(self) -> None:
        """Cancel this work; nothing happens if it is already done."""
        ...


class Executor(Protocol):
    """Runs functions somewhere. They and their arguments must be picklable: top-level functions and plain values."""

    @property
    def workers(self) -> int:
        """Return how many pieces of work can run at the same time."""
        ...

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: float = 0) -> list[Any]:
        """Return the values of the function over the arguments, in their order."""
        ...

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None) -> Task:
        """Submit one piece of work. Higher priorities start first; `on` pins it to the worker of this index."""
        ...

    def as_completed(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield the tasks as they finish."""
        ...

    def scatter(self, value: Any) -> Any:
        """Move a value to the workers once; return a handle that can be an argument of later work in its place."""
        ...

    def scale(self, workers: int) -> None:
        """Ask for this many workers."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...


def on_executor(given: Any) -> Executor | None:
    """Return an executor as it is; a Dask client as an executor on its cluster; None as None."""
    if given is None or (hasattr(given, "scatter") and hasattr(given, "workers")):
        return given
    from salmon.parallel.dask import executor_on

    return executor_on(given)


@dataclass
class SerialTask:
    """Work that is done when its result is first requested, and not at all if it was cancelled before."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    priority: float = 0
    _outcome: tuple[Any, BaseException | None] | None = field(default=None, repr=False)
    _cancelled: bool = field(default=False, repr=False)

    def result(self) -> Any:
        """Return the value, computing it now if it was not yet."""
        if self._cancelled:
            raise SalmonError("This work was cancelled before it started.", hint="Hand it in again.")
        value, error = self.attempt()
        if error is not None:
            raise error
        return value

    def done(self) -> bool:
        """Whether the value is there, or the work was cancelled."""
        return self._cancelled or self._outcome is not None

    def cancel(self) -> None:
        """Cancel this work unless it is done."""
        self._cancelled = self._outcome is None

    def attempt(self) -> tuple[Any, BaseException | None]:
        """Do the work once and keep its value, or what it raised, for every caller of `result`."""
        if self._outcome is None:
            try:
                # Work may stand on earlier work, as on a cluster: the value takes the place of the task.
                values = [each.result() if isinstance(each, SerialTask) else each for each in self.arguments]
                self._outcome = self.function(*values), None
            except Exception as error:  # noqa: BLE001 - the work may raise anything; `result` raises it again
                self._outcome = None, error
        return self._outcome


class SerialExecutor:
    """An executor with one worker, this thread. Nothing is started and nothing is copied."""

    @property
    def workers(self) -> int:
        """Return 1."""
        return 1

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: float = 0) -> list[Any]:
        """Return the values of the function over the arguments, in their order."""
        del priority  # a single call has nothing to overtake
        return [function(*each) for each in zip(*arguments, strict=True)]

    def submit(self, function: Callable[..., Any], *arguments: Any, priority: float = 0, on: int | None = None) -> Task:
        """Note one piece of work; it is done when its result is requested."""
        del on  # there is one worker only
        return SerialTask(function, arguments, priority)

    def as_completed(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield the tasks by falling priority, each done when it is its turn."""
        for task in sorted(tasks, key=lambda task: -getattr(task, "priority", 0)):
            if isinstance(task, SerialTask) and not task.done():
                task.attempt()
            yield task

    def scatter(self, value: Any) -> Any:
        """Return the value itself, which is already here."""
        return value

    def scale(self, workers: int) -> None:
        """Refuse less than one worker; more than one makes no difference."""
        if workers < 1:
            raise SalmonError(f"{workers} workers cannot do any work.", hint="Ask for at least 1.")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
