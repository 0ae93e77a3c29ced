"""An event loop whose clock is virtual and whose order of work is drawn from a seed.

Whenever several callbacks are ready, a seeded generator chooses which runs next; when none is, the clock jumps to the
next timer. Nothing waits in real time and nothing depends on the machine, so the same seed gives the same run.

`run_blocking` runs code that blocks (the learning process and its threads) as greenlets on the same loop: wherever it
would wait, `block` lets others go on. `Process` groups what dies together.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import Future, Task
from collections.abc import Awaitable, Callable, Coroutine
from types import ModuleType
from typing import Any

from greenlet import getcurrent, greenlet


class _Callback:
    """What asyncio calls a handle, with what this loop needs of one: it is made for every step, so it is kept small."""

    __slots__ = ("args", "callback", "context", "when_due")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: contextvars.Context, when_due: float) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.when_due = when_due

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_due


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop with a virtual clock, in seconds, and a seeded scheduler.

    `steps` counts the callbacks that ran; `after_step` is called after each with that number. `connect(host)` makes the
    transport of a new connection (see `store_model`).
    """

    def __init__(self, generator: random.Random) -> None:
        self.steps = 0
        self.after_step: Callable[[int], None] = lambda steps: None
        self.connect: Callable[[asyncio.BaseProtocol], Awaitable[asyncio.Transport]] = _refuse
        self.problems: list[str] = []
        self._generator = generator
        self._now = 0.0
        self._ready: list[_Callback] = []
        self._timers: list[tuple[float, int, _Callback]] = []
        self._order = 0
        self._running = self._stopped = False

    def time(self) -> float:
        """Return the virtual time."""
        return self._now

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine until its end or `stop`; RuntimeError where everything waits for ever."""
        self._running = True
        before = asyncio._get_running_loop()  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        asyncio._set_running_loop(self)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        try:
            task = self.create_task(main)
            while not task.done() and not self._stopped:
                self._step()
            return task.result() if task.done() else None
        finally:
            self._running = False
            asyncio._set_running_loop(before)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]

    def stop(self) -> None:
        """End the run after the present step."""
        self._stopped = True

    def _step(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and (timers[0][0] <= self._now or not ready or timers[0][2].callback is None):
            when, _, timer = heapq.heappop(timers)
            if timer.callback is not None:
                self._now = max(self._now, when)
                ready.append(timer)
        if not ready:
            raise RuntimeError("Everything in the simulated world waits, and nothing will wake it.")
        place = int(self._generator.random() * len(ready))
        handle = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        if handle.callback is None:
            return
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as in every loop of asyncio
            self.call_exception_handler({"message": f"Exception in callback {handle.callback}", "exception": error})
        self.steps += 1
        self.after_step(self.steps)

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = _Callback(callback, args, context or contextvars.copy_context(), self._now)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        timer = _Callback(callback, args, context or contextvars.copy_context(), when)
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, timer))
        return timer

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> Task[Any]:
        task = Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get()
        if process is not None:
            process.adopt(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Future[Any]:
        """Run a function in a later step of this loop."""
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                done.set_exception(error)

        self.call_soon(run)
        return done

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        protocol = protocol_factory()
        return await self.connect(protocol), protocol

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ConnectionError | ProcessKilled):
            self.problems.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False


async def _refuse(protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    raise ConnectionRefusedError("There is no server in this world.")


def loop_here() -> VirtualLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


class ProcessKilled(BaseException):
    """The process is gone in the middle of what it did."""


class Process:
    """What dies together: tasks, and connections, which are anything that can be closed.

    While it is stopped (`frozen_until`), what it sends stays where it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self._tasks: dict[Task[Any], None] = {}
        self.connections: dict[Any, None] = {}

    def adopt(self, task: Task[Any]) -> None:
        """Let a task die with this process."""
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: Task[Any]) -> None:
        self._tasks.pop(task, None)

    def start(self, work: Coroutine[Any, Any, Any]) -> Task[Any]:
        """Run a coroutine as part of this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context.run(lambda: loop_here().create_task(work, context=context))

    def kill(self) -> None:
        """End all of it now, as kill -9 does: nothing it still tries to send reaches anybody."""
        self.alive = False
        for connection in list(self.connections):
            connection.close()
        for task in list(self._tasks):
            task.cancel()


#: The process in which the present task runs; None outside of every process.
PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def detach(work: Any) -> asyncio.Task[Any]:
    """Start something that outlives the page that asked for it; nobody need look at its failure."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, None)
    task = context.run(lambda: loop_here().create_task(work, context=context))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def run_blocking(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function that calls `block` wherever it would wait."""
    running = greenlet(function)
    running.gr_context = contextvars.copy_context()
    outcome = running.switch(*arguments)
    while not running.dead:
        try:
            value = await outcome
        except asyncio.CancelledError:
            outcome = running.throw(ProcessKilled())
        except BaseException as error:  # noqa: BLE001 - it belongs to the function that waits
            outcome = running.throw(error)
        else:
            outcome = running.switch(value)
    return outcome


def block(awaitable: Awaitable[Any]) -> Any:
    """Wait inside of `run_blocking`; a process that was killed goes no further."""
    process = PROCESS.get()
    if process is not None and not process.alive:
        if asyncio.iscoroutine(awaitable):
            awaitable.close()
        raise ProcessKilled
    parent = getcurrent().parent
    assert parent is not None, "this code may only wait inside of run_blocking"
    return parent.switch(awaitable)


async def _wait_for(future: Future[Any], timeout: float | None) -> bool:
    """Return whether a future is done in time; it is left as it is."""
    await asyncio.wait((future,), timeout=timeout)
    return future.done()


class Event:
    """threading.Event for greenlets."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Future[None]] = []

    def set(self) -> None:
        self._set = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            future = loop_here().create_future()
            self._waiting.append(future)
            block(_wait_for(future, timeout))
        return self._set


class Empty(Exception):  # noqa: N818 - the name of queue.Empty
    """There was nothing in the queue in time."""


class SimpleQueue:
    """queue.SimpleQueue for greenlets."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._filled = Event()

    @classmethod
    def __class_getitem__(cls, _: object) -> type[SimpleQueue]:
        return cls

    def put(self, item: Any) -> None:
        self._items.append(item)
        filled, self._filled = self._filled, Event()
        filled.set()

    def get(self, timeout: float | None = None) -> Any:
        until = None if timeout is None else loop_here().time() + timeout
        while not self._items:
            left = None if until is None else until - loop_here().time()
            if left is not None and left <= 0:
                raise Empty
            self._filled.wait(left)
        return self._items.pop(0)


class Lock:
    """threading.Lock for greenlets."""

    def __init__(self) -> None:
        self._held = False
        self._free = Event()

    def __enter__(self) -> bool:
        while self._held:
            self._free.wait()
        self._held, self._free = True, Event()
        return True

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._free.set()


class Thread:
    """threading.Thread as a greenlet of the process that starts it."""

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._target, self._args = target, args
        self._task: Task[Any] | None = None

    def start(self) -> None:
        self._task = loop_here().create_task(run_blocking(self._target, *self._args))

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            block(_wait_for(self._task, timeout))

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()


class PoolFuture:
    """concurrent.futures.Future of a pool below."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task

    def result(self) -> Any:
        block(_wait_for(self.task, None))
        return self.task.result()

    def done(self) -> bool:
        return self.task.done()


class Pool:
    """ThreadPoolExecutor for greenlets; each piece of work is one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._closed = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> PoolFuture:
        task = loop_here().create_task(run_blocking(function, *arguments))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return PoolFuture(task)

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        del wait, cancel_futures
        self._closed = True


class Waited:
    """The result of `wait`: the futures that are done."""

    def __init__(self, done: set[PoolFuture]) -> None:
        self.done = done


def wait(futures: tuple[PoolFuture, ...], timeout: float | None = None) -> Waited:
    """concurrent.futures.wait for one future."""
    block(_wait_for(futures[0].task, timeout))
    return Waited({future for future in futures if future.done()})


class Shadow:
    """A module of which some names are replaced."""

    def __init__(self, module: ModuleType, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def sleep(seconds: float) -> None:
    """time.sleep for greenlets."""
    block(asyncio.sleep(seconds))


def monotonic() -> float:
    """time.monotonic of the virtual clock."""
    return loop_here().time()
